"""Two runs of the same work beside each other: what changed, and what of it their spread does not explain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import numpy as np

from .samples import FIGURES, Samples
from .shift import Shift, shift

__all__ = ["FEW_RUNS", "RATIOS", "Baseline", "Collective", "Comparison", "Name", "compare"]

RATIOS = {"hidden_share": ("overlap", "comm"), "exposed_share": ("exposed_comm", "window")}
"""Shares that are compared as such, step by step."""

COLUMNS = ("count", "union_ns", "exposed_ns")
"""Of `Samples.collectives`, in the order of `Collective`."""

FEW_RUNS = 2
"""Runs a side from which on runs are the samples: steps of one run are more alike than runs are."""


@dataclass(frozen=True, slots=True)
class Collective:
    """One kind of collective on both sides, ns and counts a step, mean of the ranks."""

    name: str
    count: Shift
    time: Shift
    exposed: Shift


@dataclass(frozen=True, slots=True)
class Name:
    """Summed durations of the ops of one name, ns a step and rank, mean of the runs: their spread is not known."""

    name: str
    a: float
    b: float

    @property
    def change(self) -> float:
        return self.b - self.a


@dataclass(frozen=True, slots=True)
class Baseline:
    """B against A as the serial run of the same work, of the sides' medians. What does not exist is None.

    Effective communication time (ECT) and overlap efficiency: Chang et al. 2024, FLUX, arXiv:2406.06858.

    Attributes
    ----------
    compute_only_ns : float or None
        A step of the un-split GEMMs alone: of the run given for that, else A's compute \\|C\\|, which it is where
        nothing overlaps.
    ect_a_ns, ect_b_ns : float or None
        T − compute_only_ns.
    efficiency : float or None
        1 − ECT of B / ECT of A. Negative where B's schedule costs more than it hides.
    low, high : float or None
        Interval of the efficiency, from that of the step time, with ECT of A taken as exact.
    speedup : float or None
        T of A / T of B.
    ideal : float or None
        (\\|C\\| + \\|M\\|) / max(\\|C\\|, \\|M\\|), of A.
    attained : float or None
        (speedup − 1) / (ideal − 1).
    """

    compute_only_ns: float | None
    ect_a_ns: float | None
    ect_b_ns: float | None
    efficiency: float | None
    low: float | None
    high: float | None
    speedup: float | None
    ideal: float | None
    attained: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `compare` found.

    Attributes
    ----------
    unit : str
        What the samples are: "steps" of all runs together, or medians of "runs".
    times : mapping of str to Shift
        By `FIGURES`: ns a step, mean of the ranks.
    ratios : mapping of str to Shift
        By :data:`RATIOS`.
    collectives : tuple of Collective
        Those of either side, most exposed first.
    names : tuple of Name
        Those of either side, largest change first.
    baseline : Baseline
    """

    unit: str
    times: Mapping[str, Shift]
    ratios: Mapping[str, Shift]
    collectives: tuple[Collective, ...]
    names: tuple[Name, ...]
    baseline: Baseline


def compare(
    a: Sequence[Samples], b: Sequence[Samples], compute_only: Sequence[Samples] | None = None
) -> Comparison:
    """Compare one or several runs a side.

    Parameters
    ----------
    a, b : sequence of Samples
        From two runs a side on, a run's median over its steps is one sample: how much runs differ is then part of
        the spread. Else the steps of all runs are the samples, and what is told is of these runs alone.
    compute_only : sequence of Samples, optional
        Runs of the un-split GEMMs alone.
    """
    unit = "runs" if min(len(a), len(b)) >= FEW_RUNS else "steps"

    def both(values: Callable[[Samples], list[float]]) -> Shift:
        return shift(_values(a, values, unit), _values(b, values, unit))

    times = {figure: both(partial(Samples.times, figure=figure)) for figure in FIGURES}
    ratios = {
        name: both(partial(Samples.ratios, part=part, whole=whole)) for name, (part, whole) in RATIOS.items()
    }
    kinds = sorted({str(kind) for run in (*a, *b) for kind in run.collectives["collective"].unique()})
    collectives = [
        Collective(kind, *(both(partial(Samples.of_collective, collective=kind, column=c)) for c in COLUMNS))
        for kind in kinds
    ]
    collectives.sort(key=lambda c: -max(c.exposed.a or 0, c.exposed.b or 0))
    alone = times["compute"].a
    if compute_only is not None:
        alone = _median(_values(compute_only, partial(Samples.times, figure="window"), unit))
    return Comparison(
        unit,
        times,
        ratios,
        tuple(collectives),
        _names(a, b),
        _baseline(times, alone),
    )


def _values(runs: Sequence[Samples], values: Callable[[Samples], list[float]], unit: str) -> list[float]:
    by_run = [values(run) for run in runs]
    if unit == "runs":
        return [float(np.median(some)) for some in by_run if some]
    return [value for some in by_run for value in some]


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def _names(a: Sequence[Samples], b: Sequence[Samples]) -> tuple[Name, ...]:
    def mean(runs: Sequence[Samples], name: str) -> float:
        return fmean(run.names.get(name, 0.0) for run in runs)

    every = {name for run in (*a, *b) for name in run.names}
    rows = [Name(name, mean(a, name), mean(b, name)) for name in every]
    return tuple(sorted(rows, key=lambda row: (-abs(row.change), row.name)))


def _baseline(times: Mapping[str, Shift], alone: float | None) -> Baseline:
    step, compute, comm = times["window"], times["compute"].a, times["comm"].a
    ect_a, ect_b = (None if t is None or alone is None else t - alone for t in (step.a, step.b))
    # Where the serial run does not communicate, or is no slower than its GEMMs alone, there is nothing to hide.
    base = ect_a if comm and ect_a is not None and ect_a > 0 else None
    most = max(compute or 0, comm or 0)
    ideal = ((compute or 0) + (comm or 0)) / most if most else None
    speedup = step.a / step.b if step.a is not None and step.b else None

    def saved(difference: float | None) -> float | None:
        """A change of the step time as the efficiency that it is: 1 − (ECT_A + d) / ECT_A. Adding 0 avoids −0."""
        return None if base is None or difference is None else -difference / base + 0.0

    return Baseline(
        alone,
        ect_a,
        ect_b,
        saved(step.change),
        saved(step.high),
        saved(step.low),
        speedup,
        ideal,
        None if speedup is None or ideal is None or ideal <= 1 else (speedup - 1) / (ideal - 1),
    )
