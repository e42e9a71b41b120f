"""Step by step: the figures of each step, how much they spread, and which steps stand out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..classify import Kind
from ..intervals import Int64, Spans, covered
from ..trace import Trace
from .selection import COMPUTE, running
from .window import find_steps, step_bounds

__all__ = ["FEWEST", "SPREAD_COLUMNS", "STEP_COLUMNS", "Steps", "figures_between", "steps"]

FIGURES = ("window", "compute", "comm", "overlap", "exposed_comm", "exposed_memory", "idle")

STEP_COLUMNS: dict[str, str] = {
    "rank": "int64",
    "step": "object",
    "start": "int64",
    "end": "int64",
    **{f"{figure}_ns": "int64" for figure in FIGURES},
    "outlier": "bool",
}
SPREAD_COLUMNS: dict[str, str] = {
    "rank": "int64",
    "n_steps": "int64",
    **{f"{figure}_{what}_ns": "float64" for figure in FIGURES for what in ("median", "mad")},
}

FEWEST = 5
"""Steps of a rank from which on one can stand out: of four, two alike leave the other two no measure."""

MADS = 3 * 1.4826
"""Distance from the median, in median absolute deviations. 1.4826 of them are one standard deviation of a normal
distribution (Rousseeuw and Croux 1993); three of those as a bound: Leys et al. 2013, J. Exp. Soc. Psychol. 49."""

LEAST = 0.05
"""... and as a share of the median: steps that are alike to the microsecond would else all stand out."""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """What `steps` found.

    Attributes
    ----------
    table : DataFrame
        One row per rank and step, warm-up left out: ``step`` (name), ``start`` and ``end`` (ns since the trace's
        origin, from the first op launched inside the step to the end of the last), ``window_ns`` between them,
        and inside it the figures of `Overlap.ranks`. window = compute + exposed_comm + exposed_memory + idle in
        each row, exactly. All that runs in a step's time counts in it: where ops of one step still run when the
        next has begun, in both. ``outlier``: its window is further from its rank's median than 3 robust standard
        deviations and 5 %, of at least 5 steps.
    spread : DataFrame
        One row per rank: ``n_steps``, and the median and the median absolute deviation of each figure (ns).
    """

    table: pd.DataFrame
    spread: pd.DataFrame

    @classmethod
    def none(cls) -> Steps:
        """Of no steps at all."""
        table, spread = (pd.DataFrame(columns=list(c)).astype(c) for c in (STEP_COLUMNS, SPREAD_COLUMNS))
        return cls(table, spread)

    @property
    def outliers(self) -> pd.DataFrame:
        """The rows of `table` that stand out."""
        return self.table[self.table["outlier"]]


def steps(trace: Trace, step_pattern: str | None = None) -> Steps:
    """Measure every step by itself; no rows where the trace has no steps.

    Raises
    ------
    OptionError
        The pattern is not a regular expression.
    """
    found = find_steps(trace, step_pattern)
    found = found[~found["warmup"]]
    tables, spreads = [], []
    for rank in trace.ranks["rank"].tolist():
        ops, mine = trace.of_rank(rank), found[found["rank"] == rank]
        which, start, end = step_bounds(ops, mine)
        if not len(which):
            continue
        names = mine["name"].to_numpy()[which]
        figures = figures_between(ops, start, end)
        head = {"rank": rank, "step": names, "start": start, "end": end}
        tables.append({**head, **figures, "outlier": _standing_out(figures["window_ns"])})
        spreads.append({"rank": rank, "n_steps": len(which), **_spread(figures)})
    if not tables:
        return Steps.none()
    table = pd.concat(map(pd.DataFrame, tables), ignore_index=True)
    spread = pd.DataFrame(spreads, columns=list(SPREAD_COLUMNS))
    return Steps(table.astype(STEP_COLUMNS), spread.astype(SPREAD_COLUMNS))


def figures_between(ops: pd.DataFrame, start: Int64, end: Int64) -> dict[str, Int64]:
    """A rank's figures in each interval, such as those of its steps: ``window_ns`` and the other columns, in ns."""
    C, M, X = running(ops, *COMPUTE), running(ops, Kind.COMM), running(ops, Kind.MEMORY)
    busy = C | M

    def inside(some: Spans) -> Int64:
        return covered(some, start, end)

    figures = {
        "window_ns": end - start,
        "compute_ns": inside(C),
        "comm_ns": inside(M),
        "overlap_ns": inside(M & C),
        "exposed_comm_ns": inside(M - C),
        "exposed_memory_ns": inside(X - busy),
        "idle_ns": end - start - inside(busy | X),
    }
    parts = sum(figures[f"{part}_ns"] for part in ("compute", "exposed_comm", "exposed_memory", "idle"))
    assert np.array_equal(parts, figures["window_ns"]), "the parts of a step do not add up to it"
    return figures


def _spread(figures: dict[str, Int64]) -> dict[str, float]:
    """Median and median absolute deviation; both are whole or half ns, which a float holds exactly."""
    found = {}
    for figure, values in figures.items():
        name = figure.removesuffix("_ns")
        median = float(np.median(values))
        found[f"{name}_median_ns"] = median
        found[f"{name}_mad_ns"] = float(np.median(np.abs(values - median)))
    return found


def _standing_out(window: Int64) -> npt.NDArray[np.bool_]:
    if len(window) < FEWEST:
        return np.zeros(len(window), np.bool_)
    off = np.abs(window - np.median(window))
    return np.asarray((off > MADS * np.median(off)) & (off > LEAST * np.median(window)), np.bool_)
