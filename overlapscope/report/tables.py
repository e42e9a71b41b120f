"""A table for programs and for pull requests: CSV, Markdown, JSON, Parquet; rows and columns as they are."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from .export import records
from .markdown import inline
from .markdown import table as pipes

__all__ = ["FORMATS", "csv", "json_text", "laid_out", "markdown", "of_rows", "parquet"]

FORMATS = ("json", "csv", "md", "parquet")


def of_rows(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A table of plain values, each column of the narrowest type that holds them."""
    return pd.DataFrame(rows).convert_dtypes()


def laid_out(table: pd.DataFrame, format: str) -> str | bytes:
    """In one of :data:`FORMATS`."""
    layouts: dict[str, Callable[[pd.DataFrame], str | bytes]] = {
        "json": json_text,
        "csv": csv,
        "md": markdown,
        "parquet": parquet,
    }
    return layouts[format](table)


def csv(table: pd.DataFrame) -> str:
    """One row a row; what does not exist is empty. The names of a path stand between "/", numbers between spaces."""
    lists = {c: table[c].map(_joined) for c in table.columns if table[c].dtype == object}
    return str(table.assign(**lists).to_csv(index=False))


def _joined(value: Any) -> Any:
    if not isinstance(value, tuple):
        return value
    return "/".join(value) if all(isinstance(part, str) for part in value) else " ".join(map(str, value))


def json_text(table: pd.DataFrame) -> str:
    """A list of objects; what does not exist is null."""
    return json.dumps(records(table), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def markdown(table: pd.DataFrame) -> str:
    """A table with the columns' names for heads; what does not exist is n/a."""
    rows = [["n/a" if v is None else inline(str(_joined(v))) for v in row.values()] for row in records(table)]
    return "\n".join(pipes(list(map(inline, table.columns)), rows)) + "\n"


def parquet(table: pd.DataFrame) -> bytes:
    """Columns in their own types (int64 ns; a path is a list of names); what does not exist is null."""
    import pyarrow
    import pyarrow.parquet

    text = {c: table[c].map(_text) for c in table.columns if table[c].dtype == object}
    file = io.BytesIO()
    columns = pyarrow.Table.from_pandas(table.assign(**text), preserve_index=False)
    pyarrow.parquet.write_table(columns.replace_schema_metadata(None), file)
    return file.getvalue()


def _text(value: Any) -> Any:
    """Names as UTF-8, which Parquet demands; bytes that are not stand as escapes, as in every other layout."""
    if isinstance(value, tuple):
        return [_text(name) for name in value]
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
