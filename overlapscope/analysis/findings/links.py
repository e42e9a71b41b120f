"""What the link costs: messages too small to use it, and links slower than they should be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import pandas as pd

from ..bandwidth import bus_factor
from .finding import Facts, Found

__all__ = ["latency_bound", "slow_communicator", "slow_link"]

SMALL = 1_000_000
"""Bytes up to which NCCL takes its low-latency protocol on H100; a larger message that is slow is slow for another
reason."""

MOSTLY = Fraction(1, 2)
"""From this part of a transfer on it is latency rather than bytes that it takes."""

SLOWER = Fraction(5, 4)
"""Times the peers' time. Bus bandwidths seen on one type of link lie within a fifth (200 to 240 GB/s on NVLink 3)."""

LARGE = 64_000_000
"""Bytes from which on latency (56 µs on 8 GPUs, the slowest protocol) is a small part of an exchange on any link."""

FAR_BELOW, SEEN = Fraction(1, 2), Fraction(2, 3)
"""Of a link's peak: large messages are seen at two thirds and more of it (200 of 300, 370 of 450, 835 of 900 GB/s, 24
of 25); below half something is wrong."""


def latency_bound(facts: Facts) -> Iterator[Found]:
    """Small collectives whose transfer is mostly latency.

    The reference is the highest bandwidth of the same collective on the same communicator, at the median transfer of
    each size, or the link's peak where it is known and higher. A size of at most 1 MB whose median transfer is at
    least twice what its bytes would take at the reference is latency-bound.

    Cost: Σ exposed transfer × (1 − bytes / (reference · median transfer)).
    """
    table = _exchanges(facts)
    total, seen = Fraction(0), []
    for (collective, _, n), some in table.groupby(["collective", "communicator", "n"], sort=True):
        median = _median(some, "bytes")
        best = max((Fraction(size) / time for size, time in median.items()), default=Fraction(0))
        factor = bus_factor(collective, n)
        if facts.peak_gbs is not None and facts.on_gpus and factor:
            best = max(best, Fraction(facts.peak_gbs) / factor)
        for size, time in median.items():
            share = 1 - Fraction(size) / (best * time)
            if size <= SMALL and share >= MOSTLY:
                mine = some[some["bytes"] == size]
                total += int(mine["exposed_wire_ns"].sum()) * share
                seen.append(mine.assign(time=float(time)))
    small = pd.concat(seen) if seen else table[:0].assign(time=0.0)
    yield Found(
        "latency-bound",
        "Collectives too small for the link",
        total,
        _ranks(small),
        {
            "collectives": sorted(set(small["collective"])),
            "n_ops": len(small),
            "largest_bytes": int(small["bytes"].max()) if len(small) else None,
            "median_ns": round(float(small["time"].median())) if len(small) else None,
        },
        "fewer, larger messages: gradient buckets (DDP bucket_cap_mb), one collective for several tensors, a larger "
        "batch; one-shot or symmetric-memory all-reduces for what must stay small",
        small["op"].to_numpy(),
        small["exposed_wire_ns"].to_numpy(),
    )


def slow_communicator(facts: Facts) -> Iterator[Found]:
    """A communicator whose transfers take longer than those of the same kind, size and number of ranks on others.

    Per kind and size its median transfer is held against the median of the other communicators' medians; from 5/4 of
    it on the communicator is slow at that size.

    Cost: Σ exposed transfer × (1 − peers' median / own median) over these.
    """
    table = _exchanges(facts)
    table = table[table["communicator"] >= 0]
    slow: dict[int, list[tuple[pd.DataFrame, Fraction, Fraction]]] = {}
    for _, some in table.groupby(["collective", "bytes", "n"], sort=True):
        median = _median(some, "communicator")
        for communicator, time in median.items() if len(median) > 1 else ():
            peers = _middle([t for other, t in median.items() if other != communicator])
            if time >= SLOWER * peers:
                slow.setdefault(communicator, []).append(
                    (some[some["communicator"] == communicator], time, peers)
                )
    for communicator, sizes in slow.items():
        costs = [int(rows["exposed_wire_ns"].sum()) * (1 - peers / time) for rows, time, peers in sizes]
        rows, time, peers = sizes[int(np.argmax([float(cost) for cost in costs]))]
        every = pd.concat([rows for rows, _, _ in sizes])
        yield Found(
            "slow-link",
            "One group of ranks exchanges more slowly than the others",
            sum(costs, Fraction(0)),
            _ranks(every),
            {
                "communicator": facts.trace.communicators[communicator],
                "collective": str(rows["collective"].iloc[0]),
                "bytes": int(rows["bytes"].iloc[0]),
                "median_ns": round(time),
                "peers_ns": round(peers),
            },
            "check their links (nvidia-smi nvlink --status, nvidia-smi topo -m; NCCL_DEBUG=INFO: P2P, SHM or NET?), "
            "NICs (ibstat), and who else uses them",
            every["op"].to_numpy(),
            every["exposed_wire_ns"].to_numpy(),
        )


def slow_link(facts: Facts) -> Iterator[Found]:
    """Large messages far below the link's peak, where that is known: sizes from 64 MB on whose bus bandwidth, at the
    median transfer, is below half of it.

    Cost: Σ exposed transfer × (1 − bus bandwidth / (2/3 peak)).
    """
    if facts.peak_gbs is None or not facts.on_gpus:
        return
    peak = Fraction(facts.peak_gbs)
    table = _exchanges(facts)
    total, seen, rates = Fraction(0), [], []
    for (collective, _, n, size), some in table.groupby(
        ["collective", "communicator", "n", "bytes"], sort=True
    ):
        factor = bus_factor(collective, n)
        if factor is None or size < LARGE:
            continue
        rate = factor * size / _median(some, "bytes")[size]
        if rate < FAR_BELOW * peak:
            total += int(some["exposed_wire_ns"].sum()) * (1 - rate / (SEEN * peak))
            seen.append(some)
            rates.append(float(rate))
    slow = pd.concat(seen) if seen else table[:0]
    yield Found(
        "slow-link",
        "Large messages stay far below the link's peak",
        total,
        _ranks(slow),
        {
            "collectives": sorted(set(slow["collective"])),
            "n_ops": len(slow),
            "lowest_busbw_gbs": min(rates, default=None),
            "highest_busbw_gbs": max(rates, default=None),
            "peak_gbs": facts.peak_gbs,
        },
        "NCCL_DEBUG=INFO: which transport (P2P, SHM, NET with GDRDMA?) and how many channels; nvidia-smi topo -m; ACS "
        "and IOMMU off; all_reduce_perf of nccl-tests on the idle machine as a reference",
        slow["op"].to_numpy(),
        slow["exposed_wire_ns"].to_numpy(),
    )


def _exchanges(facts: Facts) -> pd.DataFrame:
    """Ops whose transfer and bytes are known, and that no window's edge cuts: one row each.

    ``transfer`` is that of the exchange: latest start to the end on the rank that is done last; ``n`` the ranks of
    its communicator, as recorded or else as matched.
    """
    comm = facts.overlap.instances
    known = comm["match"].notna() & comm["exposed_wire_ns"].notna() & comm["bytes"].notna()
    whole = comm["duration_ns"] == comm["end"] - comm["start"]
    some = np.flatnonzero((known & whole & (comm["bytes"].fillna(0) > 0)).to_numpy(bool))
    op = facts.comm_ops[some]
    columns = ["rank", "collective", "match", "transfer_ns", "exposed_wire_ns", "bytes"]
    table = comm[columns].iloc[some].astype(dict.fromkeys(columns[2:], "int64")).reset_index(drop=True)
    of_match = table.groupby("match")
    group = facts.trace.ops["group"].to_numpy()[op]
    table = table.assign(
        op=op,
        communicator=facts.trace.ops["communicator"].to_numpy()[op],
        transfer=of_match["transfer_ns"].transform("max"),
        n=np.where(group > 0, group, of_match["rank"].transform("size")),
    )
    # Clocks that are brought together coarsely can put an end before the last start.
    return table[table["transfer"] > 0]


def _median(some: pd.DataFrame, by: str) -> dict[int, Fraction]:
    """Median transfer in ns of each value of a column."""
    time = some.drop_duplicates("match").groupby(by)["transfer"]
    return {int(value): _middle(rows.tolist()) for value, rows in time}


def _middle(values: Sequence[int | Fraction]) -> Fraction:
    ordered = sorted(map(Fraction, values))
    n = len(ordered)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def _ranks(some: pd.DataFrame) -> tuple[int, ...]:
    return tuple(sorted(set(some["rank"].tolist())))
