"""Which range each op was launched in: what the program says an op is part of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..intervals import Int64, innermost
from ..trace import NA, Trace

__all__ = ["launched_in"]


def launched_in(trace: Trace, among: npt.NDArray[np.bool_] | None = None) -> Int64:
    """The innermost range in which each op was launched: same rank, same thread, at the time of its launch.

    Ranges that do not nest (start/end ranges of NVTX) count by their start: the last to begin is the innermost.
    A range that was never closed holds nothing.

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
    columns = {c: ranges[c].to_numpy()[of_range] for c in ("rank", "thread", "start", "end")}
    launched = {c: ops[c].to_numpy()[of_op] for c in ("rank", "thread", "launch")}
    times = [columns["start"], columns["end"], launched["launch"]]
    rank, thread = (np.concatenate([columns[c], columns[c], launched[c]]) for c in ("rank", "thread"))
    start, end, launch = np.split(
        _one_axis(rank, thread, np.concatenate(times)), np.cumsum([len(t) for t in times[:2]])
    )
    inside = innermost(start, end, launch)
    held = inside >= 0
    found[of_op[held]] = of_range[inside[held]]
    return found


def _one_axis(rank: npt.NDArray[np.int32], thread: Int64, time: Int64) -> Int64:
    """Times as places on one axis on which the threads' times follow each other, equal times in one place."""
    order = np.lexsort((time, thread, rank))
    rank, thread, time = rank[order], thread[order], time[order]
    differs = (rank[1:] != rank[:-1]) | (thread[1:] != thread[:-1]) | (time[1:] != time[:-1])
    place = np.empty(len(order), np.int64)
    place[order] = np.concatenate([[0], np.cumsum(differs)])
    return place
