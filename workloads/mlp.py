"""The MLP of a transformer block under tensor parallelism: up (column), activation, down (row).

With ``gpt`` the activation is GELU. With ``llama`` it is SwiGLU: gate and up are one column GEMM, of which each
rank has its part of both. As a workload it is alone, without norm and residual: what a block does between two
residuals. Forward one all-reduce, backward one; with sequence parallelism all-gather and reduce-scatter forward,
two and one backward.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from .block_config import MlpConfig
from .collectives import Ranks
from .draw import Draw
from .marked import marked
from .parallel import ColumnParallelLinear, Layout, RowParallelLinear
from .program import LayerProgram

__all__ = ["Mlp", "MlpProgram", "build", "swiglu"]


class Mlp(nn.Module):
    """This rank's share of one."""

    def __init__(self, config: MlpConfig, layout: Layout, draw: Draw) -> None:
        super().__init__()
        h, f = config.hidden, config.ffn
        self.gated = config.gated
        up = draw.linear(h, config.up, biased=config.biased)
        self.up = ColumnParallelLinear(*up, layout, "mlp.up", blocks=[f] * (config.up // f))
        self.down = RowParallelLinear(*draw.linear(f, h, biased=config.biased), layout, "mlp.down")

    def forward(self, x: Tensor) -> Tensor:
        """(seq, batch, hidden), or this rank's rows of it, to the same."""
        up = self.up(x)
        inner = (
            marked("mlp.swiglu", "sharded", swiglu, up)
            if self.gated
            else marked("mlp.gelu", "sharded", F.gelu, up)
        )
        y: Tensor = self.down(inner)
        return y


def swiglu(x: Tensor) -> Tensor:
    """(..., gate and up side by side) to half the width: silu(gate) · up (Shazeer 2020)."""
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


class MlpProgram(LayerProgram[MlpConfig]):
    """MLPs, one after another."""

    def layer(self, draw: Draw) -> Mlp:
        """One of them."""
        return Mlp(self.config, self.layout, draw)


def build(config: MlpConfig, ranks: Ranks, device: torch.device) -> LayerProgram[Any]:
    """This rank's share of the MLPs."""
    if config.impl == "dtensor":
        from .dtensor import DtensorProgram  # takes a second to import

        return DtensorProgram(config, ranks, device)
    return MlpProgram(config, ranks, device)
