"""Ops of a run of which nothing but NVTX ranges was recorded, as under nsys on a machine without a GPU.

What our markers say is then all there is: a ``comm`` range is a collective, and a thread computes while the
innermost of its ranges that speak of time is ``sharded`` or ``replicated``.
"""

from __future__ import annotations

import numpy as np

from ...intervals import Int64, held
from ..raw import Names, RawOps, missing
from .export import Export
from .ops import Found, Units
from .ranges import Nvtx, message_sql
from .schema import (
    EVENT_PUSH_POP,
    EVENT_START_END,
    GRAPH_TABLE,
    HOST_DEVICE,
    KERNEL_TABLE,
    NVTX_TABLE,
    RUNTIME_TABLE,
    thread_of,
)

__all__ = ["marked_ops"]

COMPUTE = ("sharded", "replicated")
ROLES = (*COMPUTE, "comm", "wait")
PAYLOAD = ("uint64Value", "int64Value", "uint32Value", "int32Value")


def marked_ops(export: Export, nvtx: Nvtx, names: Names, units: Units) -> Found | None:
    """Ops made of ranges; None where there are none, or where a GPU worked and its work is missing.

    Each is named ``<role>:<name of its range>``, which the classifier knows.
    """
    if any(export.count(table) for table in (KERNEL_TABLE, GRAPH_TABLE, RUNTIME_TABLE)):
        return None
    role_of = {key: role for role in ROLES for key in nvtx.marked(role)}
    if not role_of:
        return None
    numbers = ", ".join(sorted({str(category) for _, _, category in role_of}))
    payload = ", ".join(column for column in PAYLOAD if export.has(NVTX_TABLE, column))
    rows = export.rows(
        f"SELECT start, end, globalTid, eventType = {EVENT_PUSH_POP}, domainId, category,"
        f" COALESCE({payload or 'NULL'}, -1), {message_sql(export)} FROM {NVTX_TABLE}"
        f" WHERE eventType IN ({EVENT_PUSH_POP}, {EVENT_START_END}) AND category IN ({numbers})"
        " AND typeof(start) = 'integer' AND typeof(end) = 'integer' AND typeof(globalTid) = 'integer'"
    )
    rows = [row for row in rows if (row[2] >> 24, row[4], row[5]) in role_of]
    if not rows:
        return None
    start, end, tid, nests, nbytes = (np.array([row[i] for row in rows], np.int64) for i in (0, 1, 2, 3, 6))
    role = np.array([role_of[row[2] >> 24, row[4], row[5]] for row in rows])
    name = np.array([names.code(f"{r}:{row[7]}") for r, row in zip(role, rows, strict=True)], np.int32)
    comm = np.flatnonzero(role == "comm")
    # A collective that was started, to be waited for later, runs beside what its thread does meanwhile.
    speaks = (role != "comm") | (nests == 1)
    computing = [_pieces(start, end, np.flatnonzero(speaks & (tid == thread))) for thread in np.unique(tid)]
    held_start, held_end, owner = (np.concatenate(parts) for parts in zip(*computing, strict=True))
    keep = np.isin(role[owner], COMPUTE)
    which = np.concatenate([comm, owner[keep]])
    ops = RawOps.of(
        np.concatenate([start[comm], held_start[keep]]),
        np.concatenate([end[comm], held_end[keep]]),
        units.codes((tid[which] & ~0xFFFFFF) | HOST_DEVICE),
        thread_of(tid[which]),
        name[which],
    )
    ops.launch, ops.thread = ops.start.copy(), thread_of(tid[which])
    ops.writable("bytes")
    known = np.flatnonzero(nbytes[comm] >= 0)
    ops.bytes[known] = nbytes[comm][known]
    return Found(ops, missing(len(ops))) if len(ops) else None


def _pieces(start: Int64, end: Int64, some: Int64) -> tuple[Int64, Int64, Int64]:
    """What each of some ranges, all of one thread, holds as the innermost of them."""
    held_start, held_end, owner = held(start[some], end[some])
    return held_start, held_end, some[owner]
