"""What is known of the op or range that was picked on a timeline, as plain Python values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...analysis.paths import paths
from ...classify import Kind
from ...intervals import covered
from ...trace import NA
from ..document import Document
from .lanes import Lane

__all__ = ["picked"]


def picked(document: Document, lane: Lane, number: int) -> dict[str, Any]:
    """An op of a lane, or a range.

    Parameters
    ----------
    document : Document
    lane : Lane
    number : int
        Which one on it, from 0.

    Returns
    -------
    dict
        ``rank``, ``lane`` (its label), ``name``, ``kind`` (of `Kind`, or "range"), ``collective``, ``start_ns``,
        ``end_ns``, ``duration_ns``, ``exposed_ns`` (of communication), ``bytes``, ``path`` (names of the ranges around
        its launch). What does not exist is None.
    """
    at, start, end = (int(column[number]) for column in (lane.position, lane.start, lane.end))
    found: dict[str, Any] = {"rank": lane.rank, "lane": lane.label}
    times = {"start_ns": start, "end_ns": end, "duration_ns": end - start}
    if lane.ranges:
        name = str(document.trace.ranges["name"].iloc[at])
        unknown = {"exposed_ns": None, "bytes": None, "path": None}
        return {**found, "name": name, "kind": "range", "collective": None, **times, **unknown}
    op = document.trace.ops.iloc[at]
    comm = op["kind"] == Kind.COMM.value
    exposed = int(covered(lane.exposed, np.array([start]), np.array([end]))[0])
    # Of this op alone: to look up all of a large trace takes seconds.
    alone = replace(document.trace, ops=document.trace.ops.iloc[[at]].reset_index(drop=True))
    tree = paths(alone, document.step_pattern)
    place = int(tree.of_op[0])
    return {
        **found,
        "name": str(document.trace.names["string"].iloc[op["name"]]),
        "kind": str(op["kind"]),
        "collective": str(op["collective"]) if isinstance(op["collective"], str) else None,
        **times,
        "exposed_ns": exposed if comm else None,
        "bytes": None if op["bytes"] == NA else int(op["bytes"]),
        "path": tuple(tree.names[place]) if place >= 0 else None,
    }
