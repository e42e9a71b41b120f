"""Where a command's result goes: to a file, or to the terminal or what stands in its place."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path

from ..errors import OptionError

__all__ = ["Format", "Page", "check_page", "put", "put_page", "refuse_terminal"]


class Format(str, Enum):
    TEXT = "text"
    JSON = "json"
    CSV = "csv"
    MD = "md"
    PARQUET = "parquet"


class Page(str, Enum):
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


def check_page(path: Path | None, *, force: bool, within: Path | None = None) -> None:
    """Refuse a page that could not be written, before the work for it is done; `within` will be made by then.

    Raises
    ------
    OptionError
        It exists and `force` is not set, or its folder does not exist or is not writable.
    """
    from ..files import replacing

    if path is None or (within is not None and path.parent.resolve() == within.resolve() and not path.exists()):
        return
    with replacing(path, force=force, probe=True):
        pass


def put_page(html: str, path: Path, *, force: bool) -> None:
    """Write a page, and say on stderr where it is larger than a mail or a chat takes."""
    from ..files import write_text

    write_text(path, html, force=force)
    size = path.stat().st_size
    if size > LARGE:
        print(f"{path} is {size / 1e6:.1f} MB, most of it the timeline", file=sys.stderr)
