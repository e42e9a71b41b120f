"""Which range each op was launched in: what the program says an op is part of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..classify import Kind
from ..intervals import Int64, innermost
from ..trace import NA, Trace

__all__ = ["axis", "launched_in"]


def launched_in(trace: Trace, among: npt.NDArray[np.bool_] | None = None) -> Int64:
    """The innermost range in which each op was launched: same rank, same thread, at the time of its launch.

    Ranges that do not nest (start/end ranges of NVTX) count by their start: the last to begin is the innermost.
    A range that was never closed holds nothing. A collective of a CPU run that its library ran on a thread of its
    own is in the range of role `comm` that waits for it.

    Parameters
    ----------
    trace : Trace
    among : bool array of shape (ranges,), optional
        The ranges that count; all by default.

    Returns
    -------
    int64 array of shape (ops,)
        Position of the range in ``trace.ranges``; -1 where there is none, or where the trace does not say
        when or on which thread the op was launched.
    """
    ranges, ops = trace.ranges, trace.ops
    counts = (ranges["end"] != NA).to_numpy()
    if among is not None:
        counts = counts & among
    of_range = np.flatnonzero(counts)
    of_op = np.flatnonzero(((ops["launch"] != NA) & (ops["thread"] != NA)).to_numpy())
    found = np.full(len(ops), -1, np.int64)
    if not len(of_range) or not len(of_op):
        return found
    _on_their_thread(trace, of_range, of_op, found)
    if trace.provenance.lanes == "host":
        _on_the_librarys(trace, of_range, found)
    return found


def _on_their_thread(trace: Trace, of_range: Int64, of_op: Int64, found: Int64) -> None:
    ranges, ops = trace.ranges, trace.ops
    columns = {c: ranges[c].to_numpy()[of_range] for c in ("rank", "thread", "start", "end")}
    launched = {c: ops[c].to_numpy()[of_op] for c in ("rank", "thread", "launch")}
    times = [columns["start"], columns["end"], launched["launch"]]
    rank, thread = (np.concatenate([columns[c], columns[c], launched[c]]) for c in ("rank", "thread"))
    start, end, launch = np.split(
        axis(rank, thread, np.concatenate(times)), np.cumsum([len(t) for t in times[:2]])
    )
    inside = innermost(start, end, launch)
    held = inside >= 0
    found[of_op[held]] = of_range[inside[held]]


def _on_the_librarys(trace: Trace, of_range: Int64, found: Int64) -> None:
    """Collectives that no range of their thread holds: in the order in which they were called.

    gloo takes them up in that order, each after its range began and before the wait that ends it.
    """
    ranges, ops = trace.ranges.iloc[of_range], trace.ops
    waiting = of_range[(ranges["role"] == "comm").to_numpy()]
    lost = np.flatnonzero((found < 0) & (ops["kind"] == Kind.COMM.value).to_numpy())
    for rank in np.unique(ops["rank"].to_numpy()[lost]):
        mine = waiting[trace.ranges["rank"].to_numpy()[waiting] == rank]
        here = lost[ops["rank"].to_numpy()[lost] == rank]
        begin, end = (trace.ranges[c].to_numpy()[mine] for c in ("start", "end"))
        at = ops["start"].to_numpy()[here]
        held = innermost(begin, end, at) >= 0  # a barrier that nothing marks is in none
        here, at = here[held], at[held]
        if not len(here):
            continue
        # Each takes the first range that is still open, after the one that the last took.
        turn = np.arange(len(here))
        open_ = np.searchsorted(np.maximum.accumulate(end), at, side="right")
        taken = np.minimum(np.maximum.accumulate(open_ - turn) + turn, len(mine) - 1)
        fits = (begin[taken] <= at) & (at < end[taken])
        found[here[fits]] = mine[taken[fits]]


def axis(rank: npt.NDArray[np.int32], thread: Int64, time: Int64) -> Int64:
    """Times as places on one axis on which the threads' times follow each other, equal times in one place."""
    order = np.lexsort((time, thread, rank))
    rank, thread, time = rank[order], thread[order], time[order]
    differs = (rank[1:] != rank[:-1]) | (thread[1:] != thread[:-1]) | (time[1:] != time[:-1])
    place = np.empty(len(order), np.int64)
    place[order] = np.concatenate([[0], np.cumsum(differs)])
    return place
