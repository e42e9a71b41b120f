"""Where a command's result goes: to a file, or to the terminal or what stands in its place."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path

from ..errors import OptionError

__all__ = ["Format", "put"]


class Format(str, Enum):
    TEXT = "text"
    JSON = "json"
    CSV = "csv"
    MD = "md"
    PARQUET = "parquet"


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
    elif sys.stdout.isatty():
        raise OptionError(
            "is nothing for a terminal", "send it to a file: ... > table.parquet", "--format parquet"
        )
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
