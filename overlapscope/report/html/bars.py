"""Stacked bars: where the time of each rank, of each step, and of each collective went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ..document import Document
from ..export import records
from ..parts import unit_of
from ..words import escape, number, percent, shortened
from .blocks import Bar, Bars, Part

__all__ = ["MOST_RANKS", "MOST_STEPS", "collectives", "ranks", "steps"]

MOST_STEPS = 60  # bars that are seen as one picture; the table has every step

MOST_RANKS = 64  # two screens of bars

IDENTITY = (
    ("busy", "compute", "alone_ns"),
    ("comm", "compute, communication hidden under it", "overlap_ns"),
    ("wait", "exposed: waiting for late ranks", "exposed_wait_ns"),
    ("wire", "exposed: transfer", "exposed_wire_ns"),
    ("unsplit", "exposed: waiting or transfer", "exposed_unsplit_ns"),
    ("memory", "exposed copies, memsets", "exposed_memory_ns"),
    ("idle", "idle", "idle_ns"),
)
"""Class, words and column of the parts that add up to a window: its first two are the compute."""

COMMUNICATION = (
    ("comm", "hidden", "overlap_ns"),
    ("wait", "exposed: waiting for late ranks", "exposed_wait_ns"),
    ("wire", "exposed: transfer", "exposed_wire_ns"),
    ("unsplit", "exposed: waiting or transfer", "exposed_unsplit_ns"),
)


def ranks(document: Document) -> Bars:
    """The identity, a bar a rank; of very many ranks those that expose most."""
    table = document.overlap.ranks
    if len(table) > MOST_RANKS:
        table = table.loc[sorted(table["exposed_comm_ns"].nlargest(MOST_RANKS).index)]
    rows = _alone(records(table))
    labels = [f"rank {row['rank']}" for row in rows]
    return _identity(document, "Where the time of each rank went", labels, rows)


def steps(document: Document) -> Bars | None:
    """The identity, a bar a step, mean of the ranks; None where one bar says nothing or hundreds say too much."""
    table = document.steps.table
    names = table["step"].drop_duplicates()
    if not 1 < len(names) <= MOST_STEPS:
        return None
    figures = [column for column in table.columns if column.endswith("_ns")]
    means = table.groupby("step", sort=False)[figures].mean()
    # Which of it is waiting is known of ranks, not of steps.
    means["exposed_wire_ns"] = means["exposed_comm_ns"]
    rows = _alone(records(means.reset_index()))
    labels = [shortened(escape(str(row["step"])), 18) for row in rows]
    words = {"wire": "exposed communication"}
    return _identity(document, "Where the time of each step went", labels, rows, words)


def collectives(document: Document) -> Bars | None:
    """How much of each collective was hidden, waiting and transfer, mean of the ranks."""
    table = document.overlap.collectives
    if not len(table):
        return None
    n = len(document.overlap.ranks)
    columns = ["union_ns", "exposed_ns", *(column for *_, column in COMMUNICATION)]
    means = table.groupby("collective")[columns].sum() / n
    rows = records(means.sort_values("exposed_ns", ascending=False).reset_index())
    longest = max(row["union_ns"] for row in rows) or 1
    unit = unit_of(document)
    bars = [
        Bar(
            str(row["collective"]),
            _parts(row, COMMUNICATION, longest, unit),
            [number(row["exposed_ns"], unit), percent(row["overlap_ns"], row["union_ns"])],
        )
        for row in rows
    ]
    return Bars("What of each collective is exposed", [f"exposed ({unit[1]})", "hidden"], bars)


def _alone(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "alone_ns": row["compute_ns"] - row["overlap_ns"]} for row in rows]


def _identity(
    document: Document,
    label: str,
    labels: Sequence[str],
    rows: Sequence[dict[str, Any]],
    words: Mapping[str, str] | None = None,
) -> Bars:
    unit = unit_of(document)
    longest = max(row["window_ns"] for row in rows) or 1
    parts = [(key, (words or {}).get(key, said), column) for key, said, column in IDENTITY]
    bars = [
        Bar(
            name,
            _parts(row, parts, longest, unit),
            [number(row["exposed_comm_ns"], unit), percent(row["exposed_comm_ns"], row["window_ns"])],
        )
        for name, row in zip(labels, rows, strict=True)
    ]
    return Bars(label, [f"exposed ({unit[1]})", "share"], bars)


def _parts(
    row: Mapping[str, Any],
    parts: Sequence[tuple[str, str, str]],
    longest: float,
    unit: tuple[int, str],
) -> list[Part]:
    """What is not there has no piece."""
    found = [(key, words, row.get(column)) for key, words, column in parts]
    return [
        Part(key, words, 100 * ns / longest, number(ns, unit))
        for key, words, ns in found
        if ns is not None and not pd.isna(ns) and ns > 0
    ]
