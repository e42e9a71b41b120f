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
    known = _distinct([getattr(lane, side) for lane in lanes for side in ("start", "end")])
    told = (strip, *(lane.exposed for lane in lanes))
    changes = _distinct([getattr(pieces, side) for pieces in told for side in ("start", "end")])
    place = np.searchsorted(known, changes)
    extra = changes[(place == len(known)) | (np.append(known, 0)[place] != changes)]
    edges = _distinct([known, extra])
    code = np.full(len(edges), OUTSIDE, np.int64)
    _fill(code, edges, strip.start, strip.end, strip.state)
    for number, lane in enumerate(lanes):
        owned = np.full(len(lane.exposed), OWNED + number, np.int64)
        _fill(code, edges, lane.exposed.start, lane.exposed.end, owned)
    return extra, code


def _distinct(lists: Sequence[Int64]) -> Int64:
    """All values, sorted, each once. np.unique hashes, which takes ten times as long as sorting what is half sorted."""
    values = np.sort(np.concatenate([*lists, np.empty(0, np.int64)]))
    first = np.ones(len(values), np.bool_)
    first[1:] = values[1:] != values[:-1]
    return np.asarray(values[first], np.int64)


def _fill(code: Int64, edges: Int64, start: Int64, end: Int64, value: Int64) -> None:
    """Write the value of each interval, sorted and disjoint, to the edges inside it."""
    at = np.searchsorted(start, edges, side="right") - 1
    inside = (at >= 0) & (edges < end[at]) if len(start) else np.zeros(len(edges), np.bool_)
    code[inside] = value[at[inside]]
