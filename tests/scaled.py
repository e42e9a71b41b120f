"""The worked example of strong scaling: the same work on one rank and on two, 500 ns and 300.5 ns a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from builders import TraceBuilder, nsys

__all__ = ["GEMM", "one_rank", "two_ranks"]

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>>(int)"


def process(t: TraceBuilder, rank: int) -> Any:
    """A rank whose ranges, by name, are a place to launch from: 10 ns each."""
    p = t.process(pid=7 + rank, rank=rank)
    ours = {"domain": "overlapscope"}
    p.range("step 0", 0, 90, **ours, category="step")
    p.range("layer 0", 0, 80, **ours, category="layer")
    p.range("up", 10, 20, **ours, category="sharded")
    p.range("gelu", 20, 30, **ours, category="sharded")
    p.range("norm", 30, 40, **ours, category="replicated")
    return p


AT = {"up": (11, 12), "gelu": (21, 22), "norm": (31, 32), "none": (41, 42)}


def one_rank(path: Path) -> Path:
    """Window [100, 600): up 420, gelu 70, norm 40, unmarked 10; of these 540, 470 on the clock."""
    t = TraceBuilder()
    g = process(t, 0).device(0)
    g.kernel(GEMM, 100, 500, stream=7, launch=AT["up"])
    g.kernel(ELEMENTWISE, 450, 520, stream=8, launch=AT["gelu"])
    g.kernel(ELEMENTWISE, 500, 540, stream=7, launch=AT["norm"])
    g.kernel(ELEMENTWISE, 540, 550, stream=7, launch=AT["none"])
    g.memcpy("HtoD", 550, 560, stream=9, launch=AT["none"])
    g.kernel(GEMM, 580, 600, stream=7, launch=AT["up"])
    return nsys.write(t, path)


def two_ranks(path: Path) -> Path:
    """Windows of 300 and 301: nothing idle, 40 and 50 of the all-reduce exposed."""
    t = TraceBuilder()
    for rank, (gemm, end) in enumerate([(320, 400), (310, 401)]):
        g = process(t, rank).device(rank)
        g.kernel(GEMM, 100, gemm, stream=7, launch=AT["up"])
        g.kernel(ALL_REDUCE, 300 if rank == 0 else 310, 360, stream=20, launch=AT["up"])
        g.kernel(ELEMENTWISE, 360, end, stream=7, launch=AT["norm"])
    return nsys.write(t, path)
