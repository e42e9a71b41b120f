"""The report broken down: by range of the program, stream, collective, step or rank; what overlap costs; steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from ..analysis.steps import FEWEST
from .document import Document
from .grid import Grid
from .parts import covers, unit_of
from .words import Figure, count, duration, escape, number, percent, scale, shortened

__all__ = [
    "MOST_RANGES",
    "RANGE_HEAD",
    "brief",
    "contention",
    "full",
    "listed",
    "over_ranks",
    "place",
    "range_figures",
    "ranges_note",
    "ranges_title",
    "sentences",
    "spread",
    "worst",
]

MOST_RANGES = 12  # rows of the tree in a report that was not asked for one: a glance, half a screen
MOST_OUTLIERS = 4
LINE = 80 - 2  # the table has an empty column on either side

Cell = Callable[[dict[str, Any], tuple[int, str]], str]
"""What a row shows in a column, times in a unit."""


def full(document: Document) -> Grid:
    """The table that was asked for, all rows of it."""
    assert document.by is not None
    if document.by != "range":
        return listed(document, document.by)
    unit = unit_of(document)
    table = over_ranks(document.ranges)
    return Grid(ranges_title(document), *_ranges(table, unit), ranges_note(document))


def listed(document: Document, by: str) -> Grid:
    """Every row by stream, collective, step or rank."""
    tables: dict[str, Callable[[], pd.DataFrame]] = {
        "stream": lambda: document.streams,
        "collective": lambda: document.overlap.collectives,
        "step": lambda: document.steps.table,
        "rank": lambda: document.overlap.ranks,
    }
    unit = unit_of(document)
    columns = COLUMNS[by]
    rows = [[cell(row, unit) for cell in columns.values()] for row in tables[by]().to_dict("records")]
    title = f"By {by} ({unit[1]}{'' if by == 'step' else covers(document)})"
    return Grid(title, list(columns), rows, spread(document) if by == "step" else None)


def ranges_title(document: Document) -> str:
    """Of the tree of ranges: its unit and what its figures cover."""
    unit = unit_of(document)
    n = len(document.overlap.ranks)
    what = "Where in the program" if document.by is None else "By range"
    return f"{what} ({unit[1]}{covers(document)}{f', mean of {n} ranks' if n > 1 else ''})"


def brief(document: Document) -> Grid | None:
    """The ranges that expose most, each below those around it; None where no op was launched in a range."""
    if document.by is not None or not len(document.trace.ranges):
        return None
    table = over_ranks(document.ranges)
    if not (table["place"] == "range").any():
        return None
    shown = table.loc[worst(table, MOST_RANGES)]
    unit = unit_of(document)
    more = len(table) - len(shown)
    note = f"{more} more: --by range lists all" if more else None
    return Grid(ranges_title(document), *_ranges(shown, unit), note)


def worst(table: pd.DataFrame, most: int) -> list[int]:
    """Those rows of `over_ranks` that expose most, `most` of them, in the order of the program."""
    # What is around a range has no less of either than the range, so no row comes without those above it.
    table = table.assign(depth=table["path"].map(len))
    order = table.sort_values(
        ["exposed_comm_ns", "compute_ns", "depth"], ascending=[False, False, True], kind="stable"
    )
    return sorted(order.index[:most])


def sentences(document: Document) -> list[str]:
    """What overlap costs, and how alike the steps are."""
    return [*contention(document), *([spread(document)] if len(document.steps.spread) else [])]


# -- ranges --------------------------------------------------------------------------------------------------

PLACES = {"outside": "(in no range)", "unknown": "(launch not recorded)"}
MEANS = ("n_ops", "compute_ns", "comm_ns", "overlap_ns", "exposed_comm_ns")


def over_ranks(table: pd.DataFrame) -> pd.DataFrame:
    """The mean of the ranks, a rank without the path counting as 0; in the order of the program."""
    n = table["rank"].nunique()
    table = table.assign(unplaced=table["place"] != "range")
    # The ranks' rows are in one order; where a path is missing on some, its parent's place decides.
    sums = table.groupby(["unplaced", "place", "path"], sort=False)[list(MEANS)].sum().reset_index()
    sums["order"] = _tree_order(sums["path"].tolist())
    sums = sums.sort_values(["unplaced", "order"], kind="stable", ignore_index=True)
    sums[list(MEANS)] = sums[list(MEANS)] / n
    return sums


def _tree_order(paths: list[tuple[str, ...]]) -> list[int]:
    """Each path below the one around it, neighbours as they come."""
    place: dict[tuple[str, ...], int] = {}
    for path in paths:
        for depth in range(1, len(path) + 1):
            place.setdefault(path[:depth], len(place))
    keys = [tuple(place[path[:depth]] for depth in range(1, len(path) + 1)) for path in paths]
    rank = {key: i for i, key in enumerate(sorted(set(keys)))}
    return [rank[key] for key in keys]


RANGE_HEAD = ("range", "ops", "compute", "comm", "overlap", "exposed")


def place(row: dict[str, Any]) -> str:
    """What a row of `over_ranks` is called below the one around it."""
    return (escape(row["path"][-1]) if row["path"] else PLACES[row["place"]]) or "(no name)"


def range_figures(row: dict[str, Any], unit: tuple[int, str]) -> list[Figure]:
    """Its figures, as `RANGE_HEAD` has them."""
    return [count(row["n_ops"]), *(number(row[c], unit) for c in MEANS[1:])]


def _ranges(table: pd.DataFrame, unit: tuple[int, str]) -> tuple[list[str], list[list[str]]]:
    head = list(RANGE_HEAD)
    rows = [
        ["  " * (len(row["path"]) - 1) + place(row), *range_figures(row, unit)]
        for row in table.to_dict("records")
    ]
    columns = zip(head[1:], *(row[1:] for row in rows), strict=True)
    left = LINE - sum(2 + max(map(len, column)) for column in columns)
    return head, [[shortened(row[0], left), *row[1:]] for row in rows]


def ranges_note(document: Document) -> str | None:
    """Of how many ops it is not known where they were launched."""
    table = document.ranges
    unknown = int(table.loc[table["place"] == "unknown", "n_ops"].sum())
    if not unknown:
        return None
    return f"Of {unknown:,} ops, over all ranks, the trace does not say where they were launched."


# -- other tables --------------------------------------------------------------------------------------------


def _time(column: str) -> Cell:
    return lambda row, unit: number(row[f"{column}_ns"], unit)


def _plain(column: str) -> Cell:
    return lambda row, unit: escape(str(row[column]))


def _rank(row: dict[str, Any], unit: tuple[int, str]) -> str:
    return Figure(str(row["rank"]), row["rank"])


def _share(part: str, whole: str) -> Cell:
    return lambda row, unit: percent(row[f"{part}_ns"], row[f"{whole}_ns"])


def _step(row: dict[str, Any], unit: tuple[int, str]) -> str:
    return shortened(escape(row["step"]), 18) + " *" * bool(row["outlier"])


def _whole(column: str) -> Cell:
    return lambda row, unit: count(row[column])


COLUMNS: dict[str, dict[str, Cell]] = {
    "stream": {
        "rank": _rank,
        "stream": _plain("stream"),
        "ops": _whole("n_ops"),
        "compute": _time("compute"),
        "comm": _time("comm"),
        "memory": _time("memory"),
        "overlap": _time("overlap"),
        "exposed": _time("exposed_comm"),
    },
    "collective": {
        "rank": _rank,
        "collective": _plain("collective"),
        "count": _whole("count"),
        "time (sum)": _time("sum"),
        "time (union)": _time("union"),
        "exposed": _time("exposed"),
        "hidden": _share("overlap", "union"),
    },
    "step": {
        "rank": _rank,
        "step": _step,
        "window": _time("window"),
        "compute": _time("compute"),
        "comm": _time("comm"),
        "exposed": _time("exposed_comm"),
        "memory": _time("exposed_memory"),
        "idle": _time("idle"),
    },
    "rank": {
        "rank": _rank,
        "window": _time("window"),
        "compute": _time("compute"),
        "exposed": _time("exposed_comm"),
        "memory": _time("exposed_memory"),
        "idle": _time("idle"),
        "comm": _time("comm"),
        "hidden": _share("overlap", "comm"),
    },
}


# -- sentences -----------------------------------------------------------------------------------------------


def contention(document: Document) -> list[str]:
    """What overlap costs: overlap that slows compute by as much as it hides is no gain: both beside each other."""
    found = document.contention
    if not found.hidden_ns:
        return []
    if not found.n_overlapped:
        return ["Slowdown of compute under communication: n/a. No op ran under it to 90 %."]
    if found.total_ns is None or found.net_gain_ns is None or found.slowdown is None:
        return [
            f"Slowdown of compute under communication: n/a. {found.n_overlapped:,} op"
            f"{'s' * (found.n_overlapped != 1)} ran under it; no kernel has 3 instances both under it and beside "
            "it to compare."
        ]
    n = document.n_steps
    what = document.per
    some = f"({found.n_measured:,} of {found.n_overlapped:,} ops could be compared)"
    if found.total_ns <= 0:
        return [f"Compute under communication is not seen to take longer than alone {some}."]
    hidden, lost, gain = (_signed(float(t) / n) for t in (found.hidden_ns, found.total_ns, found.net_gain_ns))
    return [
        f"Compute under communication takes {100 * (1 + found.slowdown):.1f} % of its time alone {some}: overlap hides "
        f"{hidden} and costs {lost} per {what}, a net gain of {gain}."
    ]


def _signed(ns: float) -> str:
    return "-" * (ns < 0) + duration(abs(ns))


def spread(document: Document) -> str:
    """Median step, spread, and the steps that stand out, named."""
    spreads = document.steps.spread
    window, mad = spreads["window_median_ns"].mean(), spreads["window_mad_ns"].mean()
    unit = scale(window)
    exposed = duration(spreads["exposed_comm_median_ns"].mean(), unit)
    if spreads["n_steps"].max() == 1:
        return (
            f"One step: {duration(window, unit)}, {exposed} of it exposed; how far steps spread is not known."
        )
    text = f"Steps: median {duration(window, unit)} (spread {duration(mad, unit)}), {exposed} of it exposed."
    out = document.steps.outliers
    if not len(out):
        return text + " None stands out." * bool(spreads["n_steps"].max() >= FEWEST)
    named = []
    for step, rows in list(out.groupby("step", sort=False))[:MOST_OUTLIERS]:
        of_rank = spreads.set_index("rank")["window_median_ns"]
        ratios = rows["window_ns"] / rows["rank"].map(of_rank)
        named.append(f"{escape(str(step))} ({ratios.loc[(ratios - 1).abs().idxmax()]:.2f}x)")
    more = out["step"].nunique() - len(named)
    return f"{text} Outliers: {', '.join(named)}{f' and {more} more' if more else ''}."
