"""A Megatron-style transformer block under tensor parallelism.

::

    x ─┬─ norm ─ QKV (column, by heads) ─ attention ─ out (row) ─+─┬─ norm ─ up (column) ─ GELU ─ down (row) ─+
       └─────────────────────────────────────────────────────────┘ └──────────────────────────────────────────┘

Forward, two all-reduces (after out and after down); backward, two (before up and before QKV). With sequence
parallelism norms and residuals are on each rank's s/t rows: two all-gathers and two reduce-scatters forward, four
and two backward. Activations are (seq, batch, hidden): the sequence first, so that a slice of it is contiguous.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from overlapscope import markers

from .activations import saved_bytes, variants
from .collectives import Ranks, Wire
from .config import BlockConfig
from .marked import marked
from .parallel import ColumnParallelLinear, Layout, RowParallelLinear
from .schedules import schedule

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

    def __init__(self, config: BlockConfig, layout: Layout, draw: Draw) -> None:
        super().__init__()
        h, f = config.hidden, config.ffn
        self.heads, self.head_size = config.heads // layout.ranks.size, h // config.heads
        # Beside a part of the sequence these are whole on every rank, and their gradients are of that part.
        self.role = "sharded" if layout.sequence_parallel else "replicated"
        self.attn_norm = _norm(h, draw)
        self.qkv = ColumnParallelLinear(*_linear(h, 3 * h, draw), layout, "attn.qkv", blocks=3)
        self.out = RowParallelLinear(*_linear(h, h, draw), layout, "attn.out")
        self.mlp_norm = _norm(h, draw)
        self.up = ColumnParallelLinear(*_linear(h, f, draw), layout, "mlp.up")
        self.down = RowParallelLinear(*_linear(f, h, draw), layout, "mlp.down")

    def forward(self, x: Tensor) -> Tensor:
        """(seq, batch, hidden), or this rank's rows of it, to the same."""
        qkv = self.qkv(marked("attn.norm", self.role, self.attn_norm, x))
        y = self.out(marked("attn.core", "sharded", self.attention, qkv))
        x = marked("attn.residual", self.role, torch.add, x, y)
        up = self.up(marked("mlp.norm", self.role, self.mlp_norm, x))
        y = self.down(marked("mlp.gelu", "sharded", F.gelu, up))
        return marked("mlp.residual", self.role, torch.add, x, y)

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
        self.config, self.forward_only = config, config.forward_only
        self.device = device
        self.layout = Layout(ranks, schedule(config), config.sequence_parallel, config.overlap_backward)
        self.blocks = nn.ModuleList(Block(config, self.layout, draw) for _ in range(config.layers))
        shape = (config.seq, config.batch, config.hidden)
        self.x = self.layout.own(draw(*shape)).requires_grad_(not config.forward_only)
        # A gradient as a loss further up would send it. That of a plain sum is one expanded constant.
        self.grad = self.layout.own(draw(*shape))

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
            self.finish_gradients()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def finish_gradients(self) -> None:
        """With sequence parallelism, add up the gradients of what is whole on every rank: norms, row biases.

        Each rank has those of its rows. One all-reduce for all of them, once a step, as Megatron-LM does.
        """
        if not self.layout.sequence_parallel or self.layout.ranks.size == 1:
            return
        with markers.range("gradients", "phase"):
            grads = [p.grad for p in self.whole_parameters() if p.grad is not None]
            flat = torch.cat([grad.flatten() for grad in grads])
            summed = Wire(self.layout.ranks, "gradients").all_reduce(flat).wait()
            for grad, part in zip(grads, torch.split(summed, [g.numel() for g in grads]), strict=True):
                grad.copy_(part.view_as(grad))

    def measure(self) -> dict[str, Any]:
        """What a block keeps for its backward pass, with and without sequence parallelism. All ranks together."""
        if self.forward_only:
            return {}
        ranks, rows = self.layout.ranks, []
        for name, config in variants(self.config, ranks.size).items():
            one = BlockProgram(config, replace(ranks, link=None), self.device)
            rows.append(
                {
                    "layout": name,
                    "measured_bytes": saved_bytes(one.blocks[0], one.x),
                    "formula_bytes": config.saved(ranks.size),
                }
            )
        return {"saved_activations": rows}

    def whole_parameters(self) -> list[nn.Parameter]:
        """Those that every rank holds whole."""
        return [
            p
            for name, p in self.blocks.named_parameters()
            if "_norm." in name or name.endswith(("out.bias", "down.bias"))
        ]


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
