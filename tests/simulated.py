"""A program of 64 ranks whose every nanosecond is known: tensor parallel on 8 nodes, data parallel between them.

A step is so many layers of one GEMM and one all-reduce over the node, then an all-reduce over the nodes with GEMMs
under it. What can go wrong is planted: ranks that come late, a node whose link is slow, GEMMs that communication
slows down, a clock for each node. The truth is kept beside the trace, in time that no clock shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from made import made
from overlapscope import Trace

__all__ = ["NODES", "PER_NODE", "Plants", "Simulated", "simulate"]

Int64 = npt.NDArray[np.int64]

NODES, PER_NODE = 8, 8
RANKS = NODES * PER_NODE
STEPS, LAYERS, UNDER = 30, 4, 4
US = 1_000
STEP = 100_000 * US  # from step to step; most of it is waiting for data
GEMM, TRANSFER, BETWEEN = 400 * US, 100 * US, 2_000 * US
BYTES = 10_000_000  # 100 GB/s algbw, 175 GB/s busbw
JITTER = 1 * US


@dataclass(frozen=True)
class Plants:
    """What is wrong."""

    late: Mapping[int, Mapping[int, int]]  # rank: {step: ns}
    slow_nodes: tuple[int, ...] = ()  # transfers take twice as long there
    contention: float = 0.0  # GEMMs under communication take longer by this share
    offset: int = 0  # clocks are off by up to so many ns either way
    drift: float = 0.0  # and gain or lose up to so much: the first node's nothing, the others' evenly between


@dataclass(frozen=True, eq=False)
class Simulated:
    """The trace as the nodes' clocks show it, and what is true.

    `wait` and `wire` are of each rank, all steps together, exposed; ns. `offset` and `drift` are of each node.
    """

    trace: Trace
    true: Trace  # on one clock
    wait: Int64
    wire: Int64
    offset: Int64
    drift: npt.NDArray[np.float64]


def simulate(plants: Plants, seed: int = 1) -> Simulated:
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    node, local = np.divmod(np.arange(RANKS), PER_NODE)
    tensor = np.where(np.isin(node, plants.slow_nodes), 2 * TRANSFER, TRANSFER)
    wait, wire = np.zeros(RANKS, np.int64), np.zeros(RANKS, np.int64)

    def ops(kind: str, start: Int64, end: Int64, **more: Any) -> None:
        for rank in range(RANKS):
            each = {name: int(v[rank]) if isinstance(v, np.ndarray) else v for name, v in more.items()}
            at = {"rank": rank, "start": int(start[rank]), "end": int(end[rank]), "kind": kind}
            rows.append(at | {"thread": 1, "launch": int(start[rank])} | each)

    def all_reduce(begun: Int64, group: Int64, transfer: Any, number: int, first: int) -> tuple[Int64, Int64]:
        """When the last of the group has begun, and when each is done."""
        latest = pd.Series(begun).groupby(group).transform("max").to_numpy()
        end = latest + transfer + rng.integers(-JITTER, JITTER + 1, RANKS)
        told = {"collective": "all_reduce", "bytes": BYTES, "group": 8, "sequence": number}
        ops("comm", begun, end, communicator=first + group, **told)
        return latest, end

    for step in range(STEPS):
        now = step * STEP + rng.integers(0, 2 * US, RANKS)
        late = np.array([plants.late.get(rank, {}).get(step, 0) for rank in range(RANKS)])
        for layer in range(LAYERS):
            done = now + GEMM + rng.integers(0, 2 * US, RANKS)
            ops("gemm", now, done)
            begun = done + (late if layer == 0 else 0)
            latest, now = all_reduce(begun, node, tensor, LAYERS * step + layer, 0)
            wait += latest - begun
            wire += now - latest
        latest, end = all_reduce(now, local, BETWEEN, step, NODES)
        for _ in range(UNDER):
            done = now + round(GEMM * (1 + plants.contention)) + rng.integers(0, 2 * US, RANKS)
            ops("gemm", now, done)
            now = done
        # The GEMMs hide the whole lateness of others, but not all of the transfer.
        assert bool((now >= latest).all() and (now <= end).all())
        wire += end - now
    offset = np.where(np.arange(NODES) == 0, 0, rng.integers(-plants.offset, plants.offset + 1, NODES))
    drift = np.concatenate([[0], np.linspace(-plants.drift, plants.drift, NODES - 1)])
    true = made(rows, _steps(), ranks=RANKS)
    devices = true.ranks.assign(device=local, gpu="NVIDIA H100 80GB HBM3", clock=node)
    true = replace(true, ranks=devices.assign(clock=0))
    return Simulated(_on_clocks(replace(true, ranks=devices), offset, drift), true, wait, wire, offset, drift)


def _steps() -> list[dict[str, Any]]:
    return [
        {
            "rank": rank,
            "thread": 1,
            "start": step * STEP - 10 * US,
            "end": step * STEP + STEP // 2,
            "name": f"step {step}",
            "role": "step",
        }
        for rank in range(RANKS)
        for step in range(STEPS)
    ]


def _on_clocks(trace: Trace, offset: Int64, drift: npt.NDArray[np.float64]) -> Trace:
    def told(table: pd.DataFrame, *columns: str) -> pd.DataFrame:
        node = table["rank"].to_numpy() // PER_NODE
        shown = {}
        for column in columns:
            time = table[column].to_numpy()
            shown[column] = time + offset[node] + np.rint(time * drift[node]).astype(np.int64)
        return table.assign(**shown)

    return replace(
        trace, ops=told(trace.ops, "start", "end", "launch"), ranges=told(trace.ranges, "start", "end")
    )
