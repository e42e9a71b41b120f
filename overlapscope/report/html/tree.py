"""Where in the program: every range below the one around it, folded to those that expose most."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ..breakdown import (
    MOST_RANGES,
    RANGE_HEAD,
    over_ranks,
    place,
    range_figures,
    ranges_note,
    ranges_title,
    worst,
)
from ..document import Document
from ..parts import unit_of
from ..words import shortened
from .blocks import Tree, TreeRow

__all__ = ["MOST_ROWS", "places", "tree"]

MOST_ROWS = 3000
"""Rows of the page: more make it slow on a phone; the JSON has all."""

MOST_OF_A_NAME = 80


def tree(document: Document, *, unfolded: bool = False) -> Tree | None:
    """The ranges; folded to what a terminal shows, or all open. None where no op was launched in a range."""
    if not len(document.trace.ranges):
        return None
    every = over_ranks(document.ranges)
    if not (every["place"] == "range").any():
        return None
    table = every.loc[worst(every, MOST_ROWS)] if len(every) > MOST_ROWS else every
    shown = set(table.index) if unfolded else set(worst(table, MOST_RANGES))
    left_out = len(every) - len(table)
    notes = [
        ranges_note(document),
        f"{left_out:,} more, which expose less: the JSON has all" if left_out else None,
    ]
    return Tree(
        ranges_title(document),
        RANGE_HEAD,
        _rows(table, shown, document),
        " ".join(filter(None, notes)) or None,
    )


def _rows(table: pd.DataFrame, shown: set[int], document: Document) -> list[TreeRow]:
    unit = unit_of(document)
    longest = max(float(table["comm_ns"].max()), 1.0)
    paths = table["path"].tolist()
    around = {path[:-1] for path in paths if len(path) > 1}
    opened = {path[:-1] for at, path in zip(table.index, paths, strict=True) if at in shown and len(path) > 1}
    return [
        TreeRow(
            id=f"range-{at}",
            depth=max(len(row["path"]) - 1, 0),
            name=shortened(place(row), MOST_OF_A_NAME),
            cells=range_figures(row, unit),
            hidden=100 * row["overlap_ns"] / longest,
            exposed=100 * row["exposed_comm_ns"] / longest,
            branch=bool(row["path"]) and row["path"] in around,
            open=bool(row["path"]) and row["path"] in opened,
            brief=at in shown,
        )
        for at, row in zip(table.index, table.to_dict("records"), strict=True)
    ]


def places(document: Document, paths: Sequence[tuple[str, ...] | None]) -> list[str | None]:
    """The rows of the ranges that findings name; None where one has none."""
    if not len(document.trace.ranges):
        return [None] * len(paths)
    every = over_ranks(document.ranges)
    kept = every if len(every) <= MOST_ROWS else every.loc[worst(every, MOST_ROWS)]
    rows = {path: f"range-{at}" for at, path in zip(kept.index, kept["path"], strict=True)}
    return [None if path is None else rows.get(path) for path in paths]
