"""Which time is analysed: a whole trace, its steps, or a given piece."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..errors import OptionError
from ..intervals import EMPTY, Int64, Spans, outermost, span, union
from ..trace import LIMIT, NA, Trace

__all__ = [
    "STEP_PATTERN",
    "WARMUP_PATTERN",
    "Windows",
    "find_steps",
    "step_bounds",
    "step_ranges",
    "windows",
]

STEP_PATTERN = r"(?i)^(?:profilerstep#|(?:step|iteration|iter)[ _#:]?\s?)(\d+)$"
"""PyTorch's own step ranges, and what people write by hand."""

WARMUP_PATTERN = r"(?i)^warm-?_?up[ _#:]?\s?(?:(?:step|iteration|iter)[ _#:]?\s?)?(\d+)$"

STEP_COLUMNS = ("rank", "name", "start", "end", "warmup")

UNITS_NS = {"": 1, "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class Windows:
    """The analysed time of each rank.

    Attributes
    ----------
    mode : str
        "whole", "steps" or "range".
    of_rank : mapping of int to Spans
        The analysed instants of each rank, ns since the trace's origin.
    steps : tuple of str
        Names of the steps that are in (mode "steps"), in order, of the rank that has most of them.
    without_ops : tuple of str
        Names of the steps that are not, on one rank at least, since no op was launched inside them: they have no
        length, and do not count where something is said per step.
    n_steps : mapping of int to int
        How many steps of each rank are in.
    left_out : tuple of str
        Names of the warm-up steps that are not.
    note : str or None
        Why it is not the window one would expect.
    """

    mode: str
    of_rank: Mapping[int, Spans]
    steps: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    without_ops: tuple[str, ...] = ()
    n_steps: Mapping[int, int] = field(default_factory=dict)
    note: str | None = None


def windows(trace: Trace, spec: str | None = None, step_pattern: str | None = None) -> Windows:
    """Resolve what the user asked for.

    Parameters
    ----------
    spec : str, optional
        "whole": each rank's first op's start to its last op's end. "steps": each step's first op launched
        inside it to its last, warm-up left out. "START:END", with units ("1.5ms:20ms"; without: ns), counted
        from the trace's origin, for all ranks alike; either may be left out. Without a spec: "steps" where all
        ranks have them, else "whole".
    step_pattern : str, optional
        Regular expression of the names of step ranges, in place of :data:`STEP_PATTERN` and of the role "step".

    Raises
    ------
    OptionError
        The spec cannot be read, lies outside the trace, or asks for steps where there are none.
    """
    if spec is None and step_pattern is None:
        return _steps_or_whole(trace)
    if spec == "whole":
        return _whole(trace)
    if spec == "steps" or spec is None:
        return _steps(trace, find_steps(trace, step_pattern), step_pattern)
    return _range(trace, spec)


def find_steps(trace: Trace, pattern: str | None = None) -> pd.DataFrame:
    """The step ranges of every rank: rank, name, start, end (ns), warmup; by rank and start."""
    is_step, is_warmup = step_ranges(trace, pattern)
    closed = (trace.ranges["end"] != NA).to_numpy()
    found = trace.ranges.assign(warmup=is_warmup)[(is_step | is_warmup) & closed]
    parts = []
    for _, mine in found.groupby("rank"):
        # A step told on two threads, or a step range inside another, is one step.
        parts.append(mine[outermost(mine["start"].to_numpy(), mine["end"].to_numpy())])
    steps = pd.concat(parts) if parts else found
    return steps[list(STEP_COLUMNS)].astype({"name": object}).reset_index(drop=True)


def step_ranges(
    trace: Trace, pattern: str | None = None
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which rows of ``trace.ranges`` are steps, and which are warm-up steps, wherever they lie."""
    try:
        step = re.compile(pattern or STEP_PATTERN)
    except (re.error, OverflowError, RecursionError) as error:
        raise OptionError(f"is not a regular expression ({error})", "mend it", "--step-pattern") from error
    ranges = trace.ranges
    names = list(ranges["name"].cat.categories)
    roles = ranges["role"].astype(object)
    is_warmup = (roles == "warmup") | ranges["name"].isin([n for n in names if re.match(WARMUP_PATTERN, n)])
    is_step = ranges["name"].isin([n for n in names if step.search(n)])
    if pattern is None:
        is_step |= roles == "step"
    else:  # whoever names a warm-up a step wants it as one
        is_warmup &= False
    return is_step.to_numpy(), is_warmup.to_numpy()


def _whole(trace: Trace, note: str | None = None) -> Windows:
    of_rank = {}
    for rank in trace.ranks["rank"].tolist():
        ops = trace.of_rank(rank)
        of_rank[rank] = span(int(ops["start"].iloc[0]), int(ops["end"].max())) if len(ops) else EMPTY
    return Windows("whole", of_rank, note=note)


def _steps_or_whole(trace: Trace) -> Windows:
    steps = find_steps(trace)
    if not len(steps):
        return _whole(trace)
    try:
        return _steps(trace, steps, None)
    except OptionError as error:
        return _whole(trace, f"the whole trace is analysed, since {error.what}")


def _steps(trace: Trace, steps: pd.DataFrame, pattern: str | None) -> Windows:
    kept = steps[~steps["warmup"]]
    if not len(kept):
        if pattern is not None:
            raise OptionError(f"{pattern!r} matches no range", "mend it, or leave it out", "--step-pattern")
        what = "all its steps are warm-up" if len(steps) else "the trace has no step ranges"
        raise OptionError(what, "use --window whole, or name them with --step-pattern", "--window steps")
    ranks = trace.ranks["rank"].tolist()
    of_rank, n_steps, names, told = {}, {}, [], set()
    without_ops: dict[str, None] = {}  # in order, each once
    for rank in ranks:
        mine = kept[kept["rank"] == rank]
        which, start, end = step_bounds(trace.of_rank(rank), mine)
        of_rank[rank], n_steps[rank] = union(start, end), len(which)
        filled = np.isin(np.arange(len(mine)), which)
        names.append(tuple(mine.loc[filled, "name"]))
        told.add(tuple(mine["name"]))
        without_ops |= dict.fromkeys(mine.loc[~filled, "name"])
    without = [rank for rank, window in of_rank.items() if not len(window)]
    if without:
        some = ", ".join(map(str, without[:8])) + (", ..." if len(without) > 8 else "")
        raise OptionError(
            f"no op was launched inside a step on rank {some}", "use --window whole", "--window steps"
        )
    return Windows(
        "steps",
        of_rank,
        steps=max(names, key=len),
        left_out=tuple(dict.fromkeys(steps.loc[steps["warmup"], "name"])),
        without_ops=tuple(without_ops),
        n_steps=n_steps,
        note=None if len(told) == 1 else "the ranks do not have the same steps: are they of one run?",
    )


def step_bounds(ops: pd.DataFrame, steps: pd.DataFrame) -> tuple[Int64, Int64, Int64]:
    """When each of a rank's steps runs: from the first op launched inside it to the last one's end.

    An op without a launch counts by its start. Bounds of two steps may overlap.

    Returns
    -------
    (which, start, end)
        One entry per step in which an op was launched; `which` is its position in `steps`.
    """
    start, end, launch = (ops[c].to_numpy() for c in ("start", "end", "launch"))
    launch = np.where(launch == NA, start, launch)
    order = np.argsort(launch, kind="stable")
    first = np.searchsorted(launch[order], steps["start"].to_numpy())
    last = np.searchsorted(launch[order], steps["end"].to_numpy())
    which = np.flatnonzero(last > first)
    inside = [order[first[i] : last[i]] for i in which.tolist()]
    starts = np.array([start[i].min() for i in inside], np.int64)
    ends = np.array([end[i].max() for i in inside], np.int64)
    return which, starts, ends


def _range(trace: Trace, spec: str) -> Windows:
    number = r"(?:(-?[0-9]{1,20}(?:\.[0-9]{1,20})?)\s*(ns|us|µs|μs|ms|s|))?"
    match = re.fullmatch(rf"\s*{number}\s*:\s*{number}\s*", spec)
    if match is None or (match[1] is None and match[3] is None):
        raise OptionError(
            f"cannot read {spec!r}", "give whole, steps, or START:END such as 1.5ms:20ms", "--window"
        )
    units = {match[i + 1] != "" for i in (1, 3) if match[i] is not None and float(match[i]) != 0}
    if len(units) > 1:
        raise OptionError(f"{spec!r} has one unit for two times", "give both a unit", "--window")
    first, last = trace.span
    start = first if match[1] is None else _nanoseconds(match[1], match[2])
    end = last if match[3] is None else _nanoseconds(match[3], match[4])
    told = f"the trace's ops run from {first / 1e6:.6g} ms to {last / 1e6:.6g} ms"
    if not (-LIMIT < start < LIMIT and -LIMIT < end < LIMIT):
        raise OptionError(f"{spec} is out of range", told, "--window")
    if end <= start:
        raise OptionError(f"{spec} ends before it starts", told, "--window")
    if end <= first or start >= last:
        raise OptionError(f"{spec} lies outside the trace", told, "--window")
    beyond = start < first or end > last
    return Windows(
        "range",
        dict.fromkeys(trace.ranks["rank"].tolist(), span(start, end)),
        note=f"the window reaches beyond the trace, which counts as idle: {told}" if beyond else None,
    )


def _nanoseconds(number: str, unit: str) -> int:
    whole, _, fraction = number.partition(".")
    scale = UNITS_NS[unit]
    sign = -1 if whole.startswith("-") else 1
    return int(whole) * scale + sign * (int(fraction) * scale // 10 ** len(fraction) if fraction else 0)
