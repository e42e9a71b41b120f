"""An open nsys export: what it holds, bulk reads of it, and the refusal of what is none."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import adbc_driver_manager
import adbc_driver_sqlite.dbapi as adbc
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from ...errors import InputError, NotATraceError
from ...intervals import Int64
from ...trace import NA
from .schema import (
    ACTIVITY_TABLES,
    GRAPH_TABLE,
    KERNEL_TABLE,
    METADATA_TABLES,
)

__all__ = ["HOW_TO_TRACE_GRAPHS", "Export", "codes_of", "no_ops"]

# Rows a batch: large enough that the call costs nothing, small enough (a few MB) to stay out of the peak.
BATCH_ROWS = 65_536

HOW_TO_TRACE_GRAPHS = "capture with nsys profile --cuda-graph-trace=node"


class Export:
    """An open export: its tables and columns, and bulk reads of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _check_size(path)
        self.uri = f"file:{quote(os.fsencode(path.resolve()))}?mode=ro{_immutable(path)}"
        try:
            # A second is long for a reader of a finished file: a lock that lasts is a writer at work.
            self.db = sqlite3.connect(self.uri, uri=True, timeout=1)
            self.db.text_factory = lambda text: text.decode("utf-8", "replace")
            tables = [
                r[0]
                for r in self.db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
            ]
            self.columns = {
                t: [r[1] for r in self.db.execute(f"SELECT * FROM pragma_table_info({_literal(t)})")]
                for t in tables
            }
        except sqlite3.Error as error:
            raise self.failed(error) from error

    def __enter__(self) -> Export:
        _check_tables(self)
        try:
            self.bulk = adbc.connect(self.uri)
        except adbc_driver_manager.Error as error:
            self.db.close()
            raise self.failed(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        self.bulk.close()
        self.db.close()

    def failed(self, error: Exception) -> InputError:
        text = str(error)
        if "locked" in text or "busy" in text:
            return InputError(
                "is locked by another process", "wait until the export is written, then try again", self.path
            )
        if "malformed" in text or "not a database" in text or "disk I/O" in text:
            return InputError(
                f"is damaged ({text})", "export it again with nsys export --type sqlite", self.path
            )
        return InputError(f"cannot be read ({text})", "check that it is a finished nsys export", self.path)

    def has(self, table: str, *columns: str) -> bool:
        return table in self.columns and all(c in self.columns[table] for c in columns)

    def rows(self, sql: str) -> list[tuple]:  # type: ignore[type-arg]
        try:
            return self.db.execute(sql).fetchall()
        except sqlite3.Error as error:
            raise self.failed(error) from error

    def count(self, table: str) -> int:
        return int(self.rows(f"SELECT count(*) FROM {table}")[0][0]) if table in self.columns else 0

    def column(self, table: str, name: str, default: int = NA) -> str:
        """SQL for a column of integers; the default where the file has no such column or no value in it."""
        return f"COALESCE({name}, {default})" if self.has(table, name) else str(default)

    def integer(self, table: str, name: str, default: int = NA) -> str:
        """The same for `rows`, which takes whatever a damaged file holds: the default also where it is no integer."""
        if not self.has(table, name):
            return str(default)
        return f"CASE WHEN typeof({name}) = 'integer' THEN {name} ELSE {default} END"

    def batches(self, sql: str) -> Iterator[list[Int64]]:
        """The integer columns of a query, in pieces; NA where a value is null."""
        try:
            with self.bulk.cursor() as cursor:
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)})
                cursor.execute(sql)
                for batch in cursor.fetch_record_batch():
                    yield [_integers(column) for column in batch.columns]
        except (adbc_driver_manager.Error, pa.ArrowException, OSError, _NotIntegersError) as error:
            raise self.failed(error) from error

    def integers(self, sql: str) -> list[Int64]:
        """The integer columns of a query, whole."""
        parts = list(self.batches(sql))
        return [np.concatenate(c) for c in zip(*parts, strict=True)] if parts else []


def _check_size(path: Path) -> None:
    """A truncated file says itself how long it should be: page size at byte 16, page count at byte 28."""
    with path.open("rb") as file:
        header = file.read(100)
    size = path.stat().st_size
    if len(header) < 100:
        raise InputError(f"is cut off after {size} bytes", "export or copy it again", path)
    page = int.from_bytes(header[16:18], "big")
    page = 65_536 if page == 1 else page
    # The page count is valid only where the change counter agrees with the version that wrote it.
    pages = int.from_bytes(header[28:32], "big") if header[24:28] == header[92:96] else 0
    if size < page * pages:
        raise InputError(
            f"is cut off: it holds {size:,} of {page * pages:,} bytes", "export or copy it again", path
        )


def _immutable(path: Path) -> str:
    """For a file with a write-ahead log that is empty: without it SQLite wants to write beside the file."""
    with path.open("rb") as file:
        write_ahead = file.read(20)[18:20] == b"\2\2"
    log = path.with_name(f"{path.name}-wal")
    pending = log.exists() and log.stat().st_size > 0
    return "&immutable=1" if write_ahead and not pending else ""


def _check_tables(export: Export) -> None:
    if not export.columns:
        raise InputError("is an empty SQLite file", "export the report again", export.path)
    if not any(t in export.columns for t in (*METADATA_TABLES, *ACTIVITY_TABLES)):
        some = ", ".join(sorted(export.columns)[:3])
        raise NotATraceError(
            f"is SQLite, but not an nsys export (it has no kernel table; it holds {some})",
            "make one with nsys export --type sqlite REPORT.nsys-rep",
            export.path,
        )


def no_ops(export: Export) -> InputError:
    """Why an export without ops cannot be analysed."""
    if export.count(GRAPH_TABLE):
        return InputError(
            "holds only CUDA graphs traced as a whole, their kernels are unknown",
            HOW_TO_TRACE_GRAPHS,
            export.path,
        )
    if export.count(KERNEL_TABLE):
        return InputError(
            "holds no ops that could be used: no kernel says which GPU it ran on",
            "export it again, or record it again",
            export.path,
        )
    if KERNEL_TABLE in export.columns:
        return InputError(
            "holds no ops: its kernel and copy tables are empty",
            "capture with nsys profile --trace=cuda,nvtx",
            export.path,
        )
    return InputError(
        "is an nsys export without a kernel table: CUDA was not traced, or the export was interrupted",
        "capture with --trace=cuda,nvtx and export again",
        export.path,
    )


class _NotIntegersError(ValueError):
    """A column of numbers holds something else."""


def _integers(column: pa.Array) -> Int64:
    if pa.types.is_null(column.type):
        return np.full(len(column), NA)
    if not pa.types.is_integer(column.type):
        raise _NotIntegersError(f"malformed: a column of integers holds {column.type}")
    if column.null_count:
        column = column.fill_null(NA)
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


def codes_of(keys: Int64, code_of: Callable[[int], int]) -> npt.NDArray[np.int32]:
    """Codes of keys; only the distinct ones pass through Python."""
    which, distinct = pd.factorize(keys)
    codes = np.array([code_of(int(key)) for key in distinct], np.int32)
    coded: npt.NDArray[np.int32] = codes[which]
    return coded


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
