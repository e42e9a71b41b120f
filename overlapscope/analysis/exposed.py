"""Exposed communication piece by piece: when it was, whose, and what the rank did meanwhile."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ..classify import Kind
from ..intervals import Int64, Spans, intersect, subtract
from ..trace import Trace
from .matching import Places
from .overlap import Overlap, owned
from .selection import COMPUTE, of_kind, running, touching

__all__ = ["PIECE_COLUMNS", "STATES", "exposed", "instance_ops"]

STATES = ("wait", "wire", "unsplit")
"""Before the last rank had begun; after; and where that is not known."""

PIECE_COLUMNS: dict[str, str] = {
    "rank": "int64",
    "op": "int64",
    "state": "object",
    "start": "int64",
    "end": "int64",
}


def exposed(trace: Trace, result: Overlap) -> pd.DataFrame:
    """The instants that make up a result's ``exposed_comm_ns``.

    Parameters
    ----------
    trace : Trace
    result : Overlap
        What `overlap` found for it.

    Returns
    -------
    DataFrame
        One row per piece, by rank and start: ``rank``, ``op`` (row of ``trace.ops`` that it is counted to),
        ``state`` (one of :data:`STATES`), ``start`` and ``end`` (ns since the trace's origin). Pieces of a rank are
        disjoint, and those of each state add up to the rank's exposed_wait_ns, exposed_wire_ns and
        exposed_unsplit_ns exactly.
    """
    place = result.matching.places(len(trace.ops))
    parts = [_of_rank(trace, rank, window, place) for rank, window in result.windows.of_rank.items()]
    found = pd.concat(parts, ignore_index=True).astype(PIECE_COLUMNS)
    for row in result.ranks.to_dict("records"):
        mine = found[found["rank"] == row["rank"]]
        total = int((mine["end"] - mine["start"]).sum())
        assert total == row["exposed_comm_ns"], f"rank {row['rank']}: the pieces add up to {total} ns"
    return found


def instance_ops(trace: Trace, result: Overlap) -> Int64:
    """The row of ``trace.ops`` of each row of ``result.instances``."""
    return np.concatenate([_comm(trace, rank, w).index for rank, w in result.windows.of_rank.items()])


def _comm(trace: Trace, rank: int, window: Spans) -> pd.DataFrame:
    """A rank's communication in its window."""
    ops = trace.of_rank(rank)
    inside = touching(window, ops["start"].to_numpy(), ops["end"].to_numpy())
    return ops[inside & of_kind(ops, Kind.COMM)]


def _of_rank(trace: Trace, rank: int, window: Spans, place: Places) -> pd.DataFrame:
    comm = _comm(trace, rank, window)
    alone = subtract(window, running(trace.of_rank(rank), *COMPUTE))
    own = owned(comm, place)
    # Each op's own time is cut in two where the last rank began; of what is not known the second part is all.
    starts, ends = np.concatenate([own.start, own.begun]), np.concatenate([own.begun, own.end])
    late = np.where(own.known, STATES.index("wire"), STATES.index("unsplit"))
    state = np.concatenate([np.full(len(comm), STATES.index("wait")), late])
    op = np.tile(comm.index.to_numpy(), 2)
    order = np.argsort(starts, kind="stable")
    order = order[ends[order] > starts[order]]
    # Disjoint, though some touch: their pieces stay apart, which a union would not leave them.
    pieces = intersect(Spans(starts[order], ends[order]), alone)
    owner = order[np.searchsorted(starts[order], pieces.start, side="right") - 1]
    return pd.DataFrame(
        {
            "rank": rank,
            "op": op[owner],
            "state": np.array(STATES, object)[state[owner]],
            "start": pieces.start,
            "end": pieces.end,
        }
    )
