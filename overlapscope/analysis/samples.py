"""Step by step, ranks together: what a comparison of runs takes as its samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..classify import Kind
from ..intervals import Int64, Spans, covered, union
from ..trace import Trace
from .matching import Matching, Places
from .names import tally
from .overlap import owned
from .selection import COMPUTE, of_kind, running
from .steps import figures_between
from .window import Windows, find_steps, step_bounds

__all__ = ["FIGURES", "Samples", "samples"]

FIGURES = (
    *("window", "compute", "comm", "overlap", "exposed_comm", "exposed_wait", "exposed_wire"),
    *("exposed_memory", "idle"),
)
SUMS = (*FIGURES, "exposed_unsplit")


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """What `samples` found.

    Attributes
    ----------
    mode : str
        That of the windows; where it is not "steps" the one row is the whole window.
    ranks : int
        How many each sum is over.
    steps : DataFrame
        One row per step that every rank has: the figures of `Overlap.ranks` in its time (``window_ns``, ...),
        integer ns, added up over ranks; ``split``: whether waiting was told from transfer anywhere.
    collectives : DataFrame
        One row per such step and collective: ``step`` (row of `steps`), ``collective``, ``count``, ``union_ns``,
        ``exposed_ns``, added up over ranks.
    names : mapping of str to float
        Of each op name the summed durations, ns a step and rank.
    left_out : int
        Steps that not every rank has, or has ops in.
    """

    mode: str
    ranks: int
    steps: pd.DataFrame
    collectives: pd.DataFrame
    names: Mapping[str, float]
    left_out: int

    def times(self, figure: str) -> list[float]:
        """One of :data:`FIGURES` in each step where it exists: ns, mean of the ranks."""
        table = self.steps
        if figure in ("exposed_wait", "exposed_wire"):
            table = table[table["split"] & (table["exposed_unsplit_ns"] == 0)]
        return list(map(float, table[f"{figure}_ns"] / self.ranks))

    def ratios(self, part: str, whole: str) -> list[float]:
        """One figure as a share of another in each step where that is not 0."""
        table = self.steps[self.steps[f"{whole}_ns"] > 0]
        return list(map(float, table[f"{part}_ns"] / table[f"{whole}_ns"]))

    def of_collective(self, collective: str, column: str) -> list[float]:
        """``count``, ``union_ns`` or ``exposed_ns`` of a collective in each step, mean of the ranks; 0 where none."""
        mine = self.collectives[self.collectives["collective"] == collective].set_index("step")[column]
        return list(map(float, mine.reindex(range(len(self.steps)), fill_value=0) / self.ranks))


def samples(trace: Trace, windows: Windows, matching: Matching, step_pattern: str | None = None) -> Samples:
    """Measure every step by itself; where the windows are not steps, the whole window as one.

    All that runs in a step's time counts in it. A step runs on each rank in its own time; ranks are brought
    together by the step's name.
    """
    place = matching.places(len(trace.ops))
    found = find_steps(trace, step_pattern) if windows.mode == "steps" else None
    totals, collectives, keys = [], [], []
    for rank in trace.ranks["rank"].tolist():
        ops = trace.of_rank(rank)
        if found is None:
            key, (start, end) = ["window"], _hull(windows.of_rank[rank])
        else:
            key, start, end = _steps(ops, found[(found["rank"] == rank) & ~found["warmup"]])
        figures, by_collective = _figures(ops, start, end, place)
        totals.append(figures.assign(key=key))
        collectives.append(by_collective.assign(key=by_collective["step"].map(dict(enumerate(key)))))
        keys.append(key)
    everywhere = set(keys[0]).intersection(*keys)
    shared = [key for key in keys[0] if key in everywhere]
    table = pd.concat(totals).groupby("key").sum().reindex(shared).reset_index(drop=True)
    table = table.assign(split=table["split"] > 0).astype({f"{f}_ns": "int64" for f in SUMS})
    return Samples(
        windows.mode,
        len(trace.ranks),
        table,
        _together(pd.concat(collectives), shared),
        _names(trace, windows),
        len({key for some in keys for key in some}) - len(shared),
    )


def _hull(spans: Spans) -> tuple[Int64, Int64]:
    """From the first to the last instant; a rank without ops has no length, as everywhere."""
    if not len(spans):
        return np.zeros(1, np.int64), np.zeros(1, np.int64)
    return spans.start[:1], spans.end[-1:]


def _steps(ops: pd.DataFrame, steps: pd.DataFrame) -> tuple[list[str], Int64, Int64]:
    """A rank's steps: a key that is the same on every rank, and when each runs."""
    which, start, end = step_bounds(ops, steps)
    # Names may come again, as in two loops: the n-th of a name is the n-th of it everywhere.
    nth = steps.groupby("name").cumcount()
    keys = [f"{name}\0{n}" for name, n in zip(steps["name"], nth, strict=True)]
    return [keys[i] for i in which.tolist()], start, end


def _together(table: pd.DataFrame, shared: list[str]) -> pd.DataFrame:
    place = {key: i for i, key in enumerate(shared)}
    table = table.assign(step=table["key"].map(place)).dropna(subset="step").astype({"step": "int64"})
    summed = table.groupby(["step", "collective"], as_index=False)[["count", "union_ns", "exposed_ns"]].sum()
    return summed.reset_index(drop=True)


def _names(trace: Trace, windows: Windows) -> dict[str, float]:
    table = tally(trace, windows)
    n = sum(windows.n_steps.values()) or len(trace.ranks)
    return dict(zip(table["name"].tolist(), (table["sum_ns"] / n).tolist(), strict=True))


def _figures(ops: pd.DataFrame, start: Int64, end: Int64, place: Places) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Of each of a rank's steps, in ns; and of each collective in it."""
    C = running(ops, *COMPUTE)
    comm = ops[of_kind(ops, Kind.COMM)]
    own = owned(comm, place)

    def exposed(first: Int64, last: Int64) -> Int64:
        return covered(union(first, last) - C, start, end)

    known = own.known
    figures = figures_between(ops, start, end)
    figures["exposed_wait_ns"] = exposed(own.start[known], own.begun[known])
    figures["exposed_wire_ns"] = exposed(own.begun[known], own.end[known])
    figures["exposed_unsplit_ns"] = exposed(own.start[~known], own.end[~known])
    split = figures["exposed_wait_ns"] + figures["exposed_wire_ns"] + figures["exposed_unsplit_ns"]
    assert np.array_equal(split, figures["exposed_comm_ns"]), "exposed time of a step is not shared out"
    rows = [pd.DataFrame(columns=["step", "collective", "count", "union_ns", "exposed_ns"])]
    for collective, at in comm.reset_index(drop=True).groupby("collective", observed=True).indices.items():
        begin, finish = (comm[c].to_numpy()[at] for c in ("start", "end"))
        before = np.sort(begin)
        row = {
            "step": np.arange(len(start)),
            "collective": collective,
            "count": np.searchsorted(before, end) - np.searchsorted(before, start),
            "union_ns": covered(union(begin, finish), start, end),
            "exposed_ns": exposed(own.start[at], own.end[at]),
        }
        table = pd.DataFrame(row)
        rows.append(table[(table["count"] > 0) | (table["union_ns"] > 0)])
    told = int(known.any() or not len(comm))
    return pd.DataFrame(figures).assign(split=told), pd.concat(rows[1:] or rows)
