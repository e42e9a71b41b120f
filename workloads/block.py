"""A Megatron-style transformer block under tensor parallelism.

::

    x ─┬─ norm ─ QKV (column, by heads) ─ attention ─ O (row) ─+─┬─ norm ─ up (column) ─ GELU ─ down (row) ─+
       └───────────────────────────────────────────────────────┘ └──────────────────────────────────────────┘

Forward, two all-reduces (after O and after down); backward, two (before up and before QKV). Activations are
(seq, batch, hidden): the sequence first, so that a slice of it is contiguous.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from overlapscope import markers

from .config import BlockConfig
from .marked import marked
from .parallel import ColumnParallelLinear, Ranks, RowParallelLinear

__all__ = ["Block", "BlockProgram", "Draw", "build"]


class Draw:
    """Random full tensors, the same on every rank and in every dtype (drawn in float32, then rounded)."""

    def __init__(self, seed: int, dtype: torch.dtype, device: torch.device) -> None:
        self.generator = torch.Generator(device).manual_seed(seed)
        self.dtype, self.device = dtype, device

    def __call__(self, *shape: int, scale: float = 1.0, mean: float = 0.0) -> Tensor:
        """Normally distributed values."""
        values = torch.randn(shape, generator=self.generator, device=self.device)
        return values.mul_(scale).add_(mean).to(self.dtype)


class Block(nn.Module):
    """One block. Every parameter is drawn, biases and norms too, so that none can be wrong unseen."""

    def __init__(self, config: BlockConfig, ranks: Ranks, draw: Draw) -> None:
        super().__init__()
        h, f = config.hidden, config.ffn
        self.heads, self.head_size = config.heads // ranks.size, h // config.heads
        self.attn_norm = _norm(h, draw)
        self.qkv = ColumnParallelLinear(*_linear(h, 3 * h, draw), ranks, "attn.qkv", blocks=3)
        self.o = RowParallelLinear(*_linear(h, h, draw), ranks, "attn.o")
        self.mlp_norm = _norm(h, draw)
        self.up = ColumnParallelLinear(*_linear(h, f, draw), ranks, "mlp.up")
        self.down = RowParallelLinear(*_linear(f, h, draw), ranks, "mlp.down")

    def forward(self, x: Tensor) -> Tensor:
        """(seq, batch, hidden) to the same."""
        qkv = self.qkv(marked("attn.norm", "replicated", self.attn_norm, x))
        y = self.o(marked("attn.core", "sharded", self.attention, qkv))
        x = marked("attn.residual", "replicated", torch.add, x, y)
        up = self.up(marked("mlp.norm", "replicated", self.mlp_norm, x))
        y = self.down(marked("mlp.gelu", "sharded", F.gelu, up))
        return marked("mlp.residual", "replicated", torch.add, x, y)

    def attention(self, qkv: Tensor) -> Tensor:
        """Causal, over this rank's heads: (seq, batch, 3 · heads · size) to (seq, batch, heads · size)."""
        seq, batch, _ = qkv.shape
        split = qkv.view(seq, batch, 3, self.heads, self.head_size)
        q, k, v = split.permute(2, 1, 3, 0, 4)  # each (batch, heads, seq, size)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.permute(2, 0, 1, 3).reshape(seq, batch, -1)


class BlockProgram:
    """Blocks, their input and the gradient that reaches them from above."""

    def __init__(self, config: BlockConfig, ranks: Ranks, device: torch.device) -> None:
        draw = Draw(config.seed, getattr(torch, config.dtype), device)
        self.forward_only = config.forward_only
        self.device = device
        self.blocks = nn.ModuleList(Block(config, ranks, draw) for _ in range(config.layers))
        shape = (config.seq, config.batch, config.hidden)
        self.x = draw(*shape).requires_grad_(not config.forward_only)
        # A gradient as a loss further up would send it. That of a plain sum is one expanded constant.
        self.grad = draw(*shape)

    def forward(self) -> Tensor:
        """The blocks' output."""
        y = self.x
        for i, block in enumerate(self.blocks):
            y = marked(f"layer {i}", "layer", block, y)
        return y

    def step(self) -> None:
        """Forward, and unless told otherwise backward; gradients are fresh each step."""
        self.blocks.zero_grad()
        self.x.grad = None
        with markers.range("forward", "phase"), torch.set_grad_enabled(not self.forward_only):
            y = self.forward()
        if not self.forward_only:
            with markers.range("backward", "phase"):
                torch.autograd.backward(y, self.grad)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def build(config: BlockConfig, ranks: Ranks, device: torch.device) -> BlockProgram:
    """This rank's share of the blocks."""
    return BlockProgram(config, ranks, device)


def _linear(inputs: int, outputs: int, draw: Draw) -> tuple[Tensor, Tensor]:
    # 1/sqrt(inputs) keeps the size of activations whatever the width.
    return draw(outputs, inputs, scale=inputs**-0.5), draw(outputs, scale=0.1)


def _norm(width: int, draw: Draw) -> nn.LayerNorm:
    norm = nn.LayerNorm(width, device=draw.device, dtype=draw.dtype)
    with torch.no_grad():
        norm.weight.copy_(draw(width, scale=0.1, mean=1.0))
        norm.bias.copy_(draw(width, scale=0.1))
    return norm
