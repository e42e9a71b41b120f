"""What each size of a sweep takes and what bandwidth that is: the figures of nccl-tests, from the trace.

The program has marked every exchange with a range of the role ``sweep`` (:class:`overlapscope.markers.Point`). The
ops launched inside are the exchange; what is outside, such as the barrier before it, is not. An exchange lasts from
the latest start over its ranks, so that nobody's lateness counts, to the latest end: METRICS' transfer, own end −
latest start, of the rank that is done last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..classify import Kind
from ..intervals import Int64, covered
from ..markers import Point
from ..trace import NA, Trace
from .clocks import Clocks
from .window import Windows, find_steps
from .window import windows as usual

__all__ = [
    "BANDWIDTH_COLUMNS",
    "Bandwidth",
    "bandwidth",
    "bus_factor",
    "figures",
    "inside",
    "transfers",
    "within",
]

BANDWIDTH_COLUMNS: dict[str, str] = {
    "collective": "object",
    "bytes": "int64",
    "count": "int64",
    "dtype": "object",
    "redop": "object",
    "ranks": "int64",
    "exchanges": "int64",
    "time_ns": "Int64",
    "p99_ns": "Int64",
    "algbw_gbs": "Float64",
    "busbw_gbs": "Float64",
    "peak_gbs": "Float64",
    "wrong": "int64",
}

FIGURES = ("time_ns", "p99_ns", "algbw_gbs", "busbw_gbs")


@dataclass(frozen=True, slots=True, eq=False)
class Bandwidth:
    """What :func:`bandwidth` found.

    Attributes
    ----------
    table : DataFrame
        One row a collective and size, by these. ``bytes`` of the whole array (of the message for send_recv),
        ``count`` elements as the call takes them, ``dtype``, ``redop``, ``ranks``; ``exchanges``: how many the
        figures are of; ``time_ns`` and ``p99_ns``: median and 99th percentile by nearest rank (of fewer than 100
        the longest); ``algbw_gbs`` = bytes / time_ns and ``busbw_gbs`` = algbw × :func:`bus_factor`, at the
        median; ``peak_gbs`` of the link, where it is known; ``wrong``: elements, over all ranks, that the program
        found wrong. What cannot be known is missing.
    notes : tuple of str
        What was left out and why.
    """

    table: pd.DataFrame
    notes: tuple[str, ...] = ()


def bandwidth(
    trace: Trace,
    windows: Windows | None = None,
    peak_gbs: float | None = None,
    clocks: Clocks | None = None,
) -> Bandwidth | None:
    """Time and bandwidth of every size of a sweep; None where the trace holds no sweep.

    Parameters
    ----------
    trace : Trace
        All ranks of the program.
    windows : Windows, optional
        Only exchanges that lie whole inside the window of every rank count; by default its steps, as `windows` has it.
    peak_gbs : float, optional
        What the link between the ranks can carry each way, GB/s.
    clocks : Clocks, optional
        How those of the ranks run beside one another, as `match` finds it; by default as the trace has it.
    """
    windows = usual(trace) if windows is None else windows
    clocks = clocks or Clocks()
    marked = _marked(trace)
    if not len(marked):
        return None
    points = {name: Point.parse(name) for name in marked["name"].unique()}
    ranks = trace.provenance.world_size or len(trace.ranks)
    why = _incomparable(trace, ranks, clocks)
    times, notes = ({}, [why]) if why else _times(trace, marked, windows, clocks)
    rows = [
        _row(point, ranks, times.get(name, np.empty(0, np.int64)), peak_gbs)
        for name, point in points.items()
        if point is not None
    ]
    table = pd.DataFrame(rows, columns=list(BANDWIDTH_COLUMNS)).astype(BANDWIDTH_COLUMNS)
    table = table.sort_values(["collective", "bytes", "dtype"], kind="stable", ignore_index=True)
    if not why and (table["exchanges"] == 0).any():
        notes.append("sizes without a time: no exchange of them was recorded on all ranks inside the window")
    return Bandwidth(table, (*notes, *_carried_out_as(marked)))


def bus_factor(collective: str, ranks: int) -> Fraction | None:
    """What busbw is of algbw: the share of the array that crosses each rank's link, as nccl-tests has it.

    None where it is not defined: of one rank nothing crosses, of other collectives it is not known.
    """
    if ranks < 2:
        return None
    share = Fraction(ranks - 1, ranks)
    known = dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all"), share)
    known |= {"all_reduce": 2 * share, **dict.fromkeys(("send_recv", "broadcast", "reduce"), Fraction(1))}
    return known.get(collective)


def transfers(instances: pd.DataFrame) -> pd.Series[int]:
    """Latest end − latest start of each instance of a collective, ns.

    Parameters
    ----------
    instances : DataFrame
        One row an instance and rank: ``instance`` (any key), ``start``, ``end`` (ns, of one clock).
    """
    latest = instances.groupby("instance", sort=False)[["start", "end"]].max()
    return latest["end"] - latest["start"]


def within(some: pd.DataFrame, windows: Windows) -> Int64:
    """How much of some ops (``rank``, ``start``, ``end``) is in their rank's window, ns; -1 of those that are NA."""
    found = np.full(len(some), -1, np.int64)
    rank, start, end = (some[c].to_numpy() for c in ("rank", "start", "end"))
    for one in np.unique(rank):
        here = np.flatnonzero((rank == one) & (start != NA))
        found[here] = covered(windows.of_rank[one], start[here], end[here])
    return found


def inside(some: pd.DataFrame, windows: Windows) -> npt.NDArray[np.bool_]:
    """Which of them lie whole in it."""
    length = (some["end"] - some["start"]).to_numpy()
    return np.asarray(within(some, windows) == length, np.bool_)


def figures(collective: str, nbytes: int, ranks: int, times: Int64) -> dict[str, int | float | None]:
    """Median and 99th percentile by nearest rank, and the bandwidth at the median: :data:`FIGURES`.

    Parameters
    ----------
    collective : str
    nbytes : int
        Of the whole array; of the message for send_recv.
    ranks : int
        Between which it was exchanged.
    times : array of int
        Its transfers, ns, ascending. Of none, and at no time, nothing is known.
    """
    found: dict[str, int | float | None] = dict.fromkeys(FIGURES)
    n, factor = len(times), bus_factor(collective, ranks)
    if n:
        # Nearest rank: the least time that so large a part of all does not exceed.
        time, late = int(times[-(-n // 2) - 1]), int(times[-(-99 * n // 100) - 1])
        found |= {"time_ns": time, "p99_ns": late}
        if time:
            found["algbw_gbs"] = nbytes / time  # bytes a ns are GB/s
            found["busbw_gbs"] = None if factor is None else float(factor * nbytes / time)
    return found


def _marked(trace: Trace) -> pd.DataFrame:
    """The exchanges of every rank: rank, name, step, order (among its like in the step), start, end, as.

    Start and end are those of the ops launched inside the range: of its communication or, where one rank alone
    has none, of its copies. Both are NA where nothing was recorded.
    """
    ranges = trace.ranges
    sweeps = ranges[(ranges["role"] == "sweep") & (ranges["end"] != NA)]
    sweeps = sweeps.assign(name=sweeps["name"].astype(object))
    sweeps = sweeps[[Point.parse(name) is not None for name in sweeps["name"]]]
    if not len(sweeps):
        return sweeps
    steps, parts = find_steps(trace), []
    for rank, mine in sweeps.groupby("rank"):
        own = steps[steps["rank"] == rank]
        at = np.searchsorted(own["start"].to_numpy(), mine["start"].to_numpy(), side="right") - 1
        names = np.array(["", *own["name"]], object)
        parts.append(_with_ops(trace, int(rank), mine.assign(step=names[at + 1])))
    marked = pd.concat(parts, ignore_index=True)
    return marked.assign(order=marked.groupby(["rank", "step", "name"]).cumcount())


def _with_ops(trace: Trace, rank: int, ranges: pd.DataFrame) -> pd.DataFrame:
    """A rank's ranges, by start, with the extent of what was launched inside each in place of their own."""
    ops = trace.of_rank(rank)
    ops = ops[ops["kind"].isin([Kind.COMM.value, Kind.MEMORY.value])]
    begin, finish = ranges["start"].to_numpy(), ranges["end"].to_numpy()
    launch = np.where(ops["launch"] == NA, ops["start"], ops["launch"])
    at = np.searchsorted(begin, launch, side="right") - 1
    inside = (at >= 0) & (launch < finish[at])
    ops = ops[inside].assign(at=at[inside])
    comm = ops["kind"] == Kind.COMM.value
    ops = ops[comm | ~ops["at"].isin(ops.loc[comm, "at"])]
    extent = ops.groupby("at").agg(start=("start", "min"), end=("end", "max"), did=("collective", "first"))
    extent = extent.reindex(np.arange(len(ranges)))
    return pd.DataFrame(
        {
            "rank": rank,
            "name": ranges["name"].to_numpy(),
            "step": ranges["step"].to_numpy(),
            "start": extent["start"].fillna(NA).astype("int64").to_numpy(),
            "end": extent["end"].fillna(NA).astype("int64").to_numpy(),
            "as": extent["did"].astype(object).to_numpy(),
        }
    )


def _incomparable(trace: Trace, ranks: int, clocks: Clocks) -> str | None:
    """Why times of one rank cannot be set against another's, if so."""
    if len(trace.ranks) < ranks:
        return f"no times: only {len(trace.ranks)} of {ranks} ranks are in the trace, and the last to start counts"
    if len(trace.ranks) > 1 and not (trace.provenance.one_clock or clocks.of_rank):
        return "no times: the clocks of the ranks' files are not aligned, and the last rank to start counts"
    return None


def _times(
    trace: Trace, marked: pd.DataFrame, windows: Windows, clocks: Clocks
) -> tuple[Mapping[str, Int64], list[str]]:
    """Times by name of the range, ascending, of what all ranks have; and a note of what not all have."""
    key = ["step", "name"]
    each = marked.groupby([*key, "rank"], sort=False).size().unstack(fill_value=0)
    # Where a rank has more of them than another, which is which cannot be told.
    alike = each.eq(each.iloc[:, 0], axis=0).all(axis=1) & (len(each.columns) == len(trace.ranks))
    marked = marked.assign(inside=inside(marked, windows))
    marked["whole"] = marked["inside"] & alike.reindex(pd.MultiIndex.from_frame(marked[key])).to_numpy()
    marked["instance"] = marked.groupby([*key, "order"], sort=False).ngroup()
    of = marked.groupby("instance")
    complete = of["whole"].transform("all")
    partly = int((of["inside"].any() & ~of["whole"].all()).sum())
    notes = (
        [f"exchanges left out, since not every rank has them inside the window: {partly}"] if partly else []
    )
    kept = marked[complete].copy()
    for rank, here in kept.groupby("rank").groups.items():
        for column in ("start", "end"):
            kept.loc[here, column] = clocks[int(rank)].common(kept.loc[here, column].to_numpy())
    time = transfers(kept)
    names = kept.drop_duplicates("instance").set_index("instance")["name"]
    return {str(name): np.sort(some.to_numpy()) for name, some in time.groupby(names)}, notes


def _row(point: Point, ranks: int, times: Int64, peak_gbs: float | None) -> dict[str, object]:
    return {
        "collective": point.collective,
        "bytes": point.bytes,
        "count": point.count,
        "dtype": point.dtype,
        "redop": point.redop,
        "ranks": ranks,
        "exchanges": len(times),
        **figures(point.collective, point.bytes, ranks, times),
        "peak_gbs": peak_gbs,
        "wrong": point.wrong,
    }


def _carried_out_as(marked: pd.DataFrame) -> list[str]:
    """Where the library made something else of what was asked for."""
    asked = {name: point.collective for name in marked["name"].unique() if (point := Point.parse(name))}
    pairs = {(asked[name], did) for name, did in marked[["name", "as"]].dropna().drop_duplicates().to_numpy()}
    return [
        f"what was asked for as {what} was carried out, and stands in the trace, as {did}"
        for what, did in sorted(pairs)
        if did != what
    ]
