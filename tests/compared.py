"""Runs to compare, whose every figure is known: a GEMM and an all-reduce a step, after it or under it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from builders import TraceBuilder, nsys

__all__ = ["GEMM", "SERIAL", "UNDER", "run", "trace"]

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"

Step = tuple[int, int, int]
"""Length of the GEMM, and start and end of the all-reduce, in µs from the start of the GEMM."""

SERIAL: Sequence[Step] = [(600 + i, 600 + i, 1000 + i) for i in range(5)]
"""Steps of 1000 to 1004 µs, 600 to 604 compute; 400 communication, all exposed."""

UNDER: Sequence[Step] = [(600 + i, 300, 800) for i in range(5)]
"""Steps of 800 µs; 500 communication, of which 300 to 304 are hidden and 200 to 196 exposed."""

EVERY = 10_000_000  # ns from step to step


def trace(path: Path, steps: Sequence[Step], *, ranks: int = 1, gpu: str = "NVIDIA H100 80GB HBM3") -> Path:
    """One kernel after another on each rank, all ranks alike; without steps: one, in no range."""
    t = TraceBuilder()
    for rank in range(ranks):
        p = t.process(pid=7 + rank, rank=rank, world=ranks)
        p.mark(f"rank {rank} of {ranks}", 0, domain="overlapscope", category="rank")
        g = p.device(rank, gpu)
        for i, (gemm, start, end) in enumerate(steps):
            at = i * EVERY
            p.range(f"step {i}", at, at + EVERY, domain="overlapscope", category="step")
            launch = (at + 10, at + 20)
            first = at + 1000
            g.kernel(GEMM, first, first + 1000 * gemm, stream=7, launch=launch)
            if end > start:
                g.kernel(ALL_REDUCE, first + 1000 * start, first + 1000 * end, stream=20, launch=launch)
    return nsys.write(t, path)


def run(folder: Path, steps: Sequence[Step], *, ranks: int = 1, **changes: Any) -> Path:
    """A run directory; `changes` replace what run.json says, those of `options` one by one."""
    folder.mkdir(parents=True)
    trace(folder / "trace.sqlite", steps, ranks=ranks)
    manifest: dict[str, Any] = {
        "schema_version": 1,
        "complete": True,
        "workload": "block",
        "options": {"hidden": 32, "seq": 16, "schedule": "serial", "chunks": None}
        | changes.pop("options", {}),
        "tp": ranks,
        "steps": len(steps),
        "warmup": 1,
        "device": "cuda",
        "backend": "nccl",
        "recorder": "nsys",
        "threads_per_rank": 1,
        "link": None,
        "versions": {"torch": "2.13.0"},
        "hardware": {"cpu": "a CPU", "cores": 2, "gpus": [{"name": "H100"}] * ranks},
    }
    (folder / "run.json").write_text(json.dumps(manifest | changes))
    return folder
