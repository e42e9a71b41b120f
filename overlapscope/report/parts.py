"""The tables of a report, whatever it is laid out as: ranks, bounds, collectives, who was waited for, unknown names."""

from __future__ import annotations

import pandas as pd

from .document import Document
from .grid import Grid
from .opening import IDEAL_WORDS, gained
from .words import Figure, count, escape, number, percent, scale, shortened, size

__all__ = ["BOUNDS", "bounds", "collectives", "covers", "kinds", "ranks", "unit_of", "unknown", "waited_for"]

BOUNDS = "Upper bounds of the gain, all else as recorded, if"

PARTS = ("window_ns", "compute_ns", "exposed_comm_ns", "exposed_memory_ns", "idle_ns", "comm_ns")

MOST_OF_A_NAME = 160  # characters, three lines of a terminal's column; what is cut shows as an ellipsis


def unit_of(document: Document) -> tuple[int, str]:
    """One for all times, so that they compare at a glance: that of the longest window."""
    return scale(document.overlap.ranks["window_ns"].max())


def covers(document: Document) -> str:
    """What the figures of the tables cover, where that is more than one step."""
    n = len(document.overlap.windows.steps)
    return f", {n} steps together" if n > 1 else ""


def ranks(document: Document) -> Grid:
    """The identity, rank by rank; below it the mean, where there are several, and its shares."""
    table, unit = document.overlap.ranks, unit_of(document)
    head = ["rank", "window", "= compute", "+ exposed\ncomm", "+ exposed\nmemory", "+ idle", "comm", "hidden"]
    rows = [
        [
            Figure(str(row["rank"]), row["rank"]),
            *(number(row[p], unit) for p in PARTS),
            percent(row["overlap_ns"], row["comm_ns"]),
        ]
        for row in table.to_dict("records")
    ]
    mean = table[[*PARTS, "overlap_ns"]].mean()
    share = ["share", *(percent(mean[p], mean["window_ns"]) for p in PARTS), ""]
    foot = [share]
    if len(table) > 1:
        hidden = percent(mean["overlap_ns"], mean["comm_ns"])
        foot = [["mean", *(number(mean[p], unit) for p in PARTS), hidden], share]
    return Grid(f"Where the time went ({unit[1]}{covers(document)})", head, rows, foot=foot)


def bounds(document: Document) -> list[tuple[str, str]]:
    """(ideal, what could be gained at most by it); nothing where nothing is exposed."""
    if not document.overlap.ranks["exposed_comm_ns"].sum():
        return []
    return [(IDEAL_WORDS[ideal], gained(bound)) for ideal, bound in document.bounds.items()]


def kinds(document: Document) -> str:
    """What the compute consists of, since GEMMs are what people split."""
    if document.provenance.from_ranges:
        return "Compute: of what kind is not known."
    total = document.overlap.ranks[
        ["compute_ns", "gemm_ns", "attention_ns", "gemm_overlap_ns", "comm_ns"]
    ].sum()
    said = [f"{percent(total['gemm_ns'], total['compute_ns'])} GEMM"]
    if total["attention_ns"]:
        said.append(f"{percent(total['attention_ns'], total['compute_ns'])} attention")
    text = f"Compute: {', '.join(said)}."
    if total["comm_ns"]:
        text += f" Communication under GEMMs: {percent(total['gemm_overlap_ns'], total['comm_ns'])}."
    return text


def collectives(document: Document) -> Grid | None:
    """Each collective, those that expose most first; None without communication."""
    table = document.overlap.collectives
    if not len(table):
        return None
    unit, n = unit_of(document), len(document.overlap.ranks)
    figures = ["count", "union_ns", "overlap_ns", "exposed_ns", "exposed_unsplit_ns"]
    by_collective = table.groupby("collective")
    sums = by_collective[figures].sum()
    split = by_collective[["exposed_wait_ns", "exposed_wire_ns"]].sum(min_count=1)
    mean = f", mean of {n} ranks" if n > 1 else ""
    rows = []
    for name, row in sums.sort_values("exposed_ns", ascending=False).iterrows():
        nbytes = table.loc[table["collective"] == name, "bytes"]
        rows.append(
            [
                str(name),
                count(row["count"] / n),
                "n/a" if nbytes.isna().any() else size(int(nbytes.sum()) / n),
                *(number(row[c] / n, unit) for c in ("union_ns", "exposed_ns")),
                *_split(split.loc[name], int(row["exposed_unsplit_ns"]), n, unit),
                percent(row["overlap_ns"], row["union_ns"]),
            ]
        )
    return Grid(
        f"Communication ({unit[1]}{covers(document)}{mean})",
        ["collective", "count", "bytes", "time", "exposed", "= waiting", "+ transfer", "hidden"],
        rows,
    )


def _split(parts: pd.Series, unsplit: int, n: int, unit: tuple[int, str]) -> list[str]:
    """Waiting and transfer; n/a where of any exposed time it is not known which it is."""
    if unsplit or parts.isna().any():
        return ["n/a", "n/a"]
    return [number(int(part) / n, unit) for part in parts]


def waited_for(document: Document) -> Grid | None:
    """By whom the others were kept waiting, the dearest first; None where nobody was."""
    table = document.stragglers[document.stragglers["cost_ns"] > 0]
    if not len(table):
        return None
    unit = unit_of(document)
    rows = [
        [
            Figure(str(row["rank"]), row["rank"]),
            Figure(f"{row['last']:,} of {row['collectives']:,}", row["last"]),
            number(row["late_ns"], unit),
            number(row["cost_ns"], unit),
        ]
        for row in table.sort_values("cost_ns", ascending=False, kind="stable").to_dict("records")
    ]
    head = ["rank", "came last", "later than the next", "the others together waited"]
    return Grid(f"Who was waited for ({unit[1]}{covers(document)})", head, rows)


def unknown(document: Document) -> Grid | None:
    """Names that no rule knows, the longest in time first; None where there are none."""
    table = document.unclassified
    if not len(table):
        return None
    kernels = document.names[document.names["kind"] != "memory"]
    told = percent(int(table["sum_ns"].sum()), int(kernels["sum_ns"].sum()))
    unit = scale(table["sum_ns"].max())
    rows = [
        [
            shortened(escape(row["name"]), MOST_OF_A_NAME),
            count(row["count"]),
            number(row["sum_ns"], unit),
        ]
        for row in table.to_dict("records")
    ]
    title = f"Names that no rule knows, counted as compute ({told} of all op time)"
    return Grid(title, ["name", "count", f"sum ({unit[1]})"], rows)
