"""PyTorch profiler traces (Kineto): Chrome-trace JSON, plain or gzipped.

Event times are decimal microseconds in the text; they are read from the text itself, since a double cannot
hold every nanosecond of them. ``ts`` counts from ``baseTimeNanoseconds`` (absent in older files: the epoch).
"""

from .read import read

__all__ = ["read"]
