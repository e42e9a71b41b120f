"""Communication that nothing hides: because it shares a stream with compute, or because nothing runs beside it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...intervals import covered, union, unions
from ..selection import COMPUTE, of_kind
from .finding import Facts, Found

__all__ = ["exposed_communication"]

Rows = npt.NDArray[np.bool_]
"""Mask of rows of ``Overlap.instances``."""

COMPUTE_STREAM = (1, 2)
"""A stream is the compute stream if it carries at least half of the time in which the rank computes. By time, not by
count: a stray kernel on a communication stream changes nothing. And half: where compute is spread over more streams,
what shares one of them can still hide under the others."""


def exposed_communication(facts: Facts) -> Iterator[Found]:
    """Communication on the compute stream, what nothing hides elsewhere, and what nothing could hide."""
    shared = _on_compute_stream(facts)
    yield _on_the_compute_stream(facts, shared)
    yield _alone(facts, ~shared)
    yield _beyond(facts)


def _on_the_compute_stream(facts: Facts, comm: Rows) -> Found:
    """Exposed communication on a stream that carries most of the compute: nothing behind it can start.

    Cost: of each rank the lesser of that exposed time and of compute that has no communication beside it. Waiting
    for late ranks counts: on this stream it blocks what is queued behind it, whether that needs the data or not.
    """
    some = facts.overlap.instances[comm]
    cost = _hideable(facts, some.groupby("rank")["exposed_ns"].sum().to_dict())
    ranks = tuple(rank for rank, ns in cost.items() if ns)
    some, ops = some[some["rank"].isin(ranks)], facts.comm_ops[comm & _of(facts, ranks)]
    return Found(
        "comm-on-compute-stream",
        "Communication on the compute stream",
        sum(cost.values()),
        ranks,
        {
            "streams": sorted(set(some["lane"]), key=lambda lane: (len(lane), lane)),
            "n_ops": len(some),
            "exposed_ns": facts.each(int(some["exposed_ns"].sum()), ranks or None),
            "waiting_ns": facts.each(int(some["exposed_wait_ns"].fillna(0).sum()), ranks or None),
            "hidden_ns": facts.each(int(some["overlap_ns"].sum()), ranks or None),
        },
        "a stream of its own (PyTorch: async_op=True, wait() only where the result is needed; for sends "
        "batch_isend_irecv), with compute that does not need it queued in between",
        ops,
        some["exposed_ns"].to_numpy(),
    )


def _alone(facts: Facts, apart: Rows) -> Found:
    """Exposed transfer on streams of its own, while there is compute that it could run beside.

    Cost: of each rank the lesser of its exposed time after the last rank has begun (all exposed time, where that is
    not known) and of compute that has no communication beside it.
    """
    some = facts.overlap.instances[apart]
    transfer = some["exposed_ns"] - some["exposed_wait_ns"].fillna(0).astype("int64")
    cost = _hideable(facts, transfer.groupby(some["rank"]).sum().to_dict())
    ranks = tuple(rank for rank, ns in cost.items() if ns)
    mine = some["rank"].isin(ranks)
    by_kind = (
        transfer[mine].groupby(some.loc[mine, "collective"]).sum().sort_values(ascending=False, kind="stable")
    )
    return Found(
        "exposed-transfer",
        "Exposed transfer that this compute could hide",
        sum(cost.values()),
        ranks,
        {
            "collectives": [str(c) for c in by_kind.index[by_kind > 0]],
            "n_ops": int(np.count_nonzero(transfer[mine])),
            "exposed_transfer_ns": facts.each(int(by_kind.sum()), ranks or None),
            "hideable_ns": facts.each(sum(cost.values()), ranks or None),
            "known_to_be_transfer": bool(some.loc[mine, "exposed_wait_ns"].notna().all()),
        },
        _all_ranks_first(facts, some[mine])
        + "compute to run beside it: chunked or ring GEMMs (Megatron --tp-comm-overlap, PyTorch async TP), backward "
        "collectives under weight gradients, gradient buckets, prefetched all-gathers",
        facts.comm_ops[apart & _of(facts, ranks)],
        transfer[mine].to_numpy(),
    )


def _beyond(facts: Facts) -> Found:
    """Exposed transfer for which there is no compute: no schedule can hide it.

    Cost: of each rank its exposed time after the last rank has begun (all exposed time, where that is not known)
    less compute that has no communication beside it.
    """
    some = facts.overlap.instances
    transfer = some["exposed_ns"] - some["exposed_wait_ns"].fillna(0).astype("int64")
    exposed = {int(rank): int(ns) for rank, ns in transfer.groupby(some["rank"]).sum().items()}
    hideable = _hideable(facts, exposed)
    cost = {rank: ns - hideable[rank] for rank, ns in exposed.items()}
    ranks = tuple(rank for rank, ns in cost.items() if ns)
    mine = some["rank"].isin(ranks)
    return Found(
        "comm-bound",
        "Exposed transfer that no compute here could hide",
        sum(cost.values()),
        ranks,
        {
            "exposed_transfer_ns": facts.each(int(transfer[mine].sum()), ranks or None),
            "hideable_ns": facts.each(sum(hideable[rank] for rank in ranks), ranks or None),
            "known_to_be_transfer": bool(some.loc[mine, "exposed_wait_ns"].notna().all()),
        },
        _all_ranks_first(facts, some[mine])
        + "less to send or more to compute: fewer ranks a layer, a faster link, a smaller dtype on the wire, "
        "larger sequences or batches; no schedule can hide it",
        facts.comm_ops[_of(facts, ranks)],
        transfer[mine].to_numpy(),
    )


def _all_ranks_first(facts: Facts, instances: pd.DataFrame) -> str:
    """Of one rank of many what looks like transfer may all be waiting: no link is to blame before that is known."""
    there = facts.trace.provenance.world_size or 0
    if there <= len(facts.trace.ranks) or instances["exposed_wait_ns"].notna().all():
        return ""
    return f"first record all {there} ranks, which tells waiting for late ones from transfer; then "


def _of(facts: Facts, ranks: tuple[int, ...]) -> Rows:
    return np.asarray(facts.overlap.instances["rank"].isin(ranks).to_numpy(), np.bool_)


def _hideable(facts: Facts, exposed: dict[int, int]) -> dict[int, int]:
    """Of each rank the lesser of these times and its compute without communication beside it."""
    compute, overlapped = facts.column("compute_ns"), facts.column("overlap_ns")
    return {rank: min(int(ns), compute[rank] - overlapped[rank]) for rank, ns in exposed.items()}


def _on_compute_stream(facts: Facts) -> Rows:
    """Which rows of the instances are on a stream that carries most of the rank's compute; none of a CPU run."""
    if not facts.on_gpus:
        return np.zeros(len(facts.overlap.instances), np.bool_)
    comm_lane = facts.trace.ops["lane"].to_numpy()[facts.comm_ops]
    carries = np.zeros(len(facts.trace.lanes), np.int64)
    shared = np.zeros(len(facts.trace.lanes), np.bool_)
    part, whole = COMPUTE_STREAM
    compute = facts.column("compute_ns")
    for rank, _, ops, window in facts.of_ranks():
        lanes = np.unique(comm_lane[_of(facts, (rank,))])
        lane = ops["lane"].to_numpy()
        shares = np.zeros(len(carries), np.bool_)
        shares[lanes] = True
        beside = np.flatnonzero(shares[lane])  # of a large trace mostly nothing but communication
        beside = beside[of_kind(ops.iloc[beside], *COMPUTE)]
        start, end = (ops[c].to_numpy()[beside] for c in ("start", "end"))
        if len(lanes) == 1:  # the usual case, in linear time
            spans = union(start, end)
            carries[lanes] = covered(window, spans.start, spans.end).sum()
        else:
            on, first, last = unions(lane[beside].astype(np.int64), start, end)
            np.add.at(carries, on, covered(window, first, last))
        shared[lanes] = (carries[lanes] > 0) & (whole * carries[lanes] >= part * compute[rank])
    return np.asarray(shared[comm_lane], np.bool_)
