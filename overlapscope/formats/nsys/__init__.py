"""Nsight Systems SQLite exports, schema 2.x to 3.x: reading and writing side by side.

Every table and column is looked up in the file; nothing goes by version or position. Bulk columns come through
ADBC in batches, so that a file of millions of kernels is never held twice.
"""

from .read import read
from .write import annotate, write

__all__ = ["annotate", "read", "write"]
