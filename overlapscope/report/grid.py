"""A table before it is laid out: words and figures in rows, the same for every layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Grid"]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; names in it are escaped.

    Attributes
    ----------
    title : str
    head : sequence of str
        Heads of the columns; a line feed in one is where it may be broken.
    rows : sequence of sequence of str
        Words, and figures as `overlapscope.report.words.Figure`, which know their number.
    note : str or None
        What a reader must know of it.
    foot : sequence of sequence of str
        Rows that sum the others up.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str | None = None
    foot: Sequence[Sequence[str]] = ()
