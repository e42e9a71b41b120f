"""Where a command's result goes: to a file, or to the terminal or what stands in its place."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path

from ..errors import OptionError

__all__ = ["Format", "ReportFormat", "put", "refuse_terminal", "told"]


class Format(str, Enum):
    TEXT = "text"
    JSON = "json"
    CSV = "csv"
    MD = "md"
    PARQUET = "parquet"


class ReportFormat(str, Enum):
    """What `report` lays out beside those: one page for a browser."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"
    MD = "md"
    PARQUET = "parquet"
    HTML = "html"


NOT_TEXT = {"parquet": "table.parquet", "html": "report.html"}
"""Formats that a terminal cannot show, and a file that could hold each."""


def refuse_terminal(format: str, output: Path | None) -> None:
    """Refuse to send a terminal what it cannot show. Raises OptionError."""
    if format in NOT_TEXT and output is None and sys.stdout.isatty():
        raise OptionError(
            "is nothing for a terminal", f"send it to a file: ... > {NOT_TEXT[format]}", f"--format {format}"
        )


def told(output: Path, line: str) -> None:
    """Say what was written, unless what was written went the same way."""
    from ..files import is_stream

    if not is_stream(output):
        print(line)


def put(content: str | bytes, output: Path | None = None, *, force: bool = False) -> None:
    """Write text or, to anything but a terminal, bytes. Raises OptionError."""
    from ..files import write_bytes, write_text

    if isinstance(content, str):
        if output is None:
            sys.stdout.write(content)
        else:
            write_text(output, content, force=force)
    elif output is not None:
        write_bytes(output, content, force=force)
    else:
        refuse_terminal("parquet", None)
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
