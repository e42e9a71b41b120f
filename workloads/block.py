"""A Megatron-style transformer block under tensor parallelism.

::

    x ─┬─ norm ─ QKV (column, by heads) ─ attention ─ out (row) ─+─┬─ norm ─ MLP (up column, down row) ─+─
       └─────────────────────────────────────────────────────────┘ └────────────────────────────────────┘

Forward, two all-reduces (after out and after down); backward, two (before up and before QKV). With sequence
parallelism norms and residuals are on each rank's s/t rows: two all-gathers and two reduce-scatters forward, four
and two backward. Keys and values may have fewer heads, shared by those of the queries.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .attention import Core
from .block_config import BlockConfig
from .collectives import Ranks
from .draw import Draw
from .marked import marked
from .mlp import Mlp
from .norm import Norm
from .parallel import ColumnParallelLinear, Layout, RowParallelLinear
from .program import LayerProgram

__all__ = ["Block", "BlockProgram", "build"]


class Block(nn.Module):
    """This rank's share of one block."""

    def __init__(self, config: BlockConfig, layout: Layout, draw: Draw) -> None:
        super().__init__()
        h, biased, qkv = config.hidden, config.biased, config.qkv()
        # Beside a part of the sequence these are whole on every rank, and their gradients are of that part.
        self.role = "sharded" if layout.sequence_parallel else "replicated"
        self.attn_norm = Norm(*draw.norm(h, biased=biased))
        self.qkv = ColumnParallelLinear(
            *draw.linear(h, sum(qkv), biased=biased), layout, "attn.qkv", blocks=qkv
        )
        self.core = Core(config, layout.ranks.size, draw)
        self.out = RowParallelLinear(*draw.linear(h, h, biased=biased), layout, "attn.out")
        self.mlp_norm = Norm(*draw.norm(h, biased=biased))
        self.mlp = Mlp(config, layout, draw)

    def forward(self, x: Tensor) -> Tensor:
        """(seq, batch, hidden), or this rank's rows of it, to the same."""
        qkv = self.qkv(marked("attn.norm", self.role, self.attn_norm, x))
        y = self.out(marked("attn.core", "sharded", self.core, qkv))
        x = marked("attn.residual", self.role, torch.add, x, y)
        y = self.mlp(marked("mlp.norm", self.role, self.mlp_norm, x))
        return marked("mlp.residual", self.role, torch.add, x, y)


class BlockProgram(LayerProgram[BlockConfig]):
    """Blocks, one after another."""

    def layer(self, draw: Draw) -> Block:
        """One of them."""
        return Block(self.config, self.layout, draw)


def build(config: BlockConfig, ranks: Ranks, device: torch.device) -> LayerProgram[Any]:
    """This rank's share of the blocks."""
    if config.impl == "dtensor":
        from .dtensor import DtensorProgram  # takes a second to import

        return DtensorProgram(config, ranks, device)
    return BlockProgram(config, ranks, device)
