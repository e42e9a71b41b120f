"""Saying what is being done while it is done."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .formats.raw import Progress

__all__ = ["progress"]


@contextmanager
def progress() -> Iterator[Progress]:
    """Tells what is being done, on stderr and only where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    from .report.words import escape

    console = Console(stderr=True)
    with console.status("starting") as status:
        yield lambda text: status.update(escape(text).replace("[", "\\["))
