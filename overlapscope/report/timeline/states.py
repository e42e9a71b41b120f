"""A rank's states and the exposed parts of its ops, told by the ends of ops that a page has anyway.

Whatever a rank's state, and whichever op answers for exposed time, changes only where an op begins or ends, or at an
edge of the window. Such an edge needs no number of its own: it stands in the columns of the lanes. So for each piece
between two edges one small number is enough, where two times would double the size of the page.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...intervals import Int64
from .lanes import STATES, Lane, Strip

__all__ = ["OUTSIDE", "OWNED", "coded"]

OUTSIDE = len(STATES)
"""Code of what lies in no window; lower ones are positions in `STATES`."""

OWNED = OUTSIDE + 1
"""Code of what is exposed by the first lane; by the second it is one more, and so on. Where it is exposed by a lane
that is not drawn, it is the state alone."""


def coded(strip: Strip, lanes: Sequence[Lane]) -> tuple[Int64, Int64]:
    """The states of a rank and the exposed pieces of its lanes of ops.

    Returns
    -------
    (extra, code)
        Edges that no op of these lanes has, sorted; and a code for what follows each edge, of all sorted.
    """
    of_ops = [getattr(lane, side) for lane in lanes for side in ("start", "end")]
    known = np.unique(np.concatenate([*of_ops, np.empty(0, np.int64)]))
    pieces = [
        getattr(part, side)
        for part in (strip, *(lane.exposed for lane in lanes))
        for side in ("start", "end")
    ]
    extra = np.setdiff1d(np.concatenate(pieces), known, assume_unique=False)
    edges = np.union1d(known, extra)
    code = np.full(len(edges), OUTSIDE, np.int64)
    _fill(code, edges, strip.start, strip.end, strip.state)
    for number, lane in enumerate(lanes):
        owned = np.full(len(lane.exposed), OWNED + number, np.int64)
        _fill(code, edges, lane.exposed.start, lane.exposed.end, owned)
    return extra, code


def _fill(code: Int64, edges: Int64, start: Int64, end: Int64, value: Int64) -> None:
    """Write the value of each interval, sorted and disjoint, to the edges inside it."""
    at = np.searchsorted(start, edges, side="right") - 1
    inside = (at >= 0) & (edges < end[at]) if len(start) else np.zeros(len(edges), np.bool_)
    code[inside] = value[at[inside]]
