"""The same block and MLP on PyTorch's DTensor: plain modules and a plan for ``parallelize_module``.

Written as torchtitan writes its Llama: activations (batch, seq, hidden), a linear layer each for queries, keys,
values, gate and up, the input of attention and MLP prepared once for all layers that take it. The numbers are
those of :mod:`workloads.block`, so outputs and gradients are, too. What is different is on the wire, a block:

=====================  ======================================  ==============================================
layout                 forward                                 backward
=====================  ======================================  ==============================================
tensor parallel        2 all-reduces                           2 all-reduces
and sequence parallel  2 all-gathers, 2 reduce-scatters        2 all-gathers, 2 reduce-scatters: a column
                                                               layer keeps its gathered input
=====================  ======================================  ==============================================

After a backward pass with sequence parallelism, the gradient of each parameter of a norm is summed by an
all-reduce of its own, when an optimizer would first look at it. (Ours has one for all, and row biases in it; here
these have theirs from the gathered gradient.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from overlapscope import markers

from .attention import attend, rotary_table, rotate
from .block_config import BlockConfig, MlpConfig
from .draw import Draw
from .marked import marked
from .norm import EPSILON
from .program import LayerProgram

__all__ = ["DtensorProgram"]


class Attention(nn.Module):
    """Causal, with shared keys and values and a rotary embedding as the configuration says."""

    def __init__(self, config: BlockConfig, draw: Draw) -> None:
        super().__init__()
        h, widths = config.hidden, config.qkv()
        weight, bias = draw.linear(h, sum(widths), biased=config.biased)
        biases = [None] * 3 if bias is None else torch.split(bias, list(widths))
        self.wq, self.wk, self.wv = map(_linear, torch.split(weight, list(widths)), biases)
        self.wo = _linear(*draw.linear(h, h, biased=config.biased))
        self.size = h // config.heads
        self.table = rotary_table(config, draw.dtype, draw.device) if config.rotary else None

    def forward(self, x: Tensor) -> Tensor:
        """(batch, seq, hidden) to the same, or this rank's rows of it."""
        q = marked("attn.q", "sharded", self.wq, x)
        k = marked("attn.k", "sharded", self.wk, x)
        v = marked("attn.v", "sharded", self.wv, x)
        return marked("attn.out", "sharded", self.wo, marked("attn.core", "sharded", self.core, q, k, v))

    def core(self, *qkv: Tensor) -> Tensor:
        """Each (batch, seq, this rank's heads · size) to the same."""
        q, k, v = (x.view(*x.shape[:-1], -1, self.size) for x in qkv)
        if self.table is not None:
            cos, sin = (x[:, 0] for x in self.table)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        return attend(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2).flatten(2)


class FeedForward(nn.Module):
    """``w2(gelu(w1(x)))``, or with a gate ``w2(silu(w1(x)) · w3(x))``."""

    def __init__(self, config: MlpConfig, draw: Draw) -> None:
        super().__init__()
        h, f = config.hidden, config.ffn
        weight, bias = draw.linear(h, config.up, biased=config.biased)
        self.w1 = _linear(weight[:f], bias)
        self.w3 = _linear(weight[f:], None) if config.gated else None
        self.w2 = _linear(*draw.linear(f, h, biased=config.biased))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, seq, hidden) to the same, or this rank's rows of it."""
        if self.w3 is None:
            inner = marked("mlp.gelu", "sharded", F.gelu, marked("mlp.up", "sharded", self.w1, x))
        else:
            gate = marked("mlp.gate", "sharded", self.w1, x)
            inner = marked("mlp.swiglu", "sharded", _gated, gate, marked("mlp.up", "sharded", self.w3, x))
        return marked("mlp.down", "sharded", self.w2, inner)


class Mlp(nn.Module):
    """A feed-forward alone."""

    def __init__(self, config: MlpConfig, draw: Draw) -> None:
        super().__init__()
        self.feed_forward = FeedForward(config, draw)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, seq, hidden), or this rank's rows of it, to the same."""
        y: Tensor = self.feed_forward(x)
        return y


class Block(nn.Module):
    """One block."""

    def __init__(self, config: BlockConfig, draw: Draw) -> None:
        super().__init__()
        self.role = "sharded" if config.sequence_parallel else "replicated"
        self.attention_norm = _norm(*draw.norm(config.hidden, biased=config.biased))
        self.attention = Attention(config, draw)
        self.ffn_norm = _norm(*draw.norm(config.hidden, biased=config.biased))
        self.feed_forward = FeedForward(config, draw)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, seq, hidden), or this rank's rows of it, to the same."""
        y = self.attention(marked("attn.norm", self.role, self.attention_norm, x))
        x = marked("attn.residual", self.role, torch.add, x, y)
        y = self.feed_forward(marked("mlp.norm", self.role, self.ffn_norm, x))
        return marked("mlp.residual", self.role, torch.add, x, y)


def plan(*, sequence_parallel: bool) -> dict[str, ParallelStyle]:
    """How the modules of a block are split; those that a module has not are passed over."""
    rows = Shard(1) if sequence_parallel else Replicate()
    column, row = ColwiseParallel(), RowwiseParallel(output_layouts=rows)
    # Without it each column layer would sum the gradient of its input by itself.
    once = PrepareModuleInput(input_layouts=rows, desired_input_layouts=Replicate())
    styles: dict[str, ParallelStyle] = {
        "attention": once,
        **dict.fromkeys(("attention.wq", "attention.wk", "attention.wv"), column),
        "attention.wo": row,
        "feed_forward": once,
        **dict.fromkeys(("feed_forward.w1", "feed_forward.w3"), column),
        "feed_forward.w2": row,
    }
    if sequence_parallel:
        styles |= dict.fromkeys(("attention_norm", "ffn_norm"), SequenceParallel())
    return styles


class DtensorProgram(LayerProgram[MlpConfig]):
    """Blocks or MLPs, one after another. One rank has the plain modules."""

    def layer(self, draw: Draw) -> nn.Module:
        """One of them, this rank's share."""
        config = self.config
        whole = Block(config, draw) if isinstance(config, BlockConfig) else Mlp(config, draw)
        if self.layout.ranks.size == 1:
            return whole
        has = dict(whole.named_modules())
        styles = plan(sequence_parallel=config.sequence_parallel)
        here = {name: style for name, style in styles.items() if has.get(name) is not None}
        return parallelize_module(whole, self.mesh(), here)

    def mesh(self) -> DeviceMesh:
        """The ranks, in a line."""
        group = self.layout.ranks.group or dist.group.WORLD
        assert group is not None
        return DeviceMesh.from_group(group, self.device.type)

    def enter(self, full: Tensor) -> Tensor:
        """This rank's part of the full (seq, batch, hidden) input: (batch, seq, hidden), or its rows of it."""
        return super().enter(full).transpose(0, 1).contiguous()

    def leave(self, full: Tensor) -> Tensor:
        """This rank's part of the full output, likewise."""
        return super().leave(full).transpose(0, 1).contiguous()

    def forward(self) -> Tensor:
        """The last layer's output, which is there: an MLP's is not before somebody looks at it."""
        y = super().forward()
        _finish(y)
        return y

    def finish_gradients(self) -> None:
        """Sum what is still partial, as an optimizer would have PyTorch do: an all-reduce each."""
        partial = [
            p
            for p in self.blocks.parameters()
            if isinstance(p.grad, DTensor) and any(place.is_partial() for place in p.grad.placements)
        ]
        if not partial:
            return
        with markers.range("gradients", "phase"):
            for p in partial:
                assert isinstance(p, DTensor)
                assert isinstance(p.grad, DTensor)
                p.grad = p.grad.redistribute(placements=p.placements)
                _finish(p.grad.to_local())

    def measure(self) -> dict[str, Any]:
        """Nothing: the formula is of the other implementation."""
        return {}


def _finish(x: Tensor) -> None:
    """Wait for the collective that `x` may come from: PyTorch waits when it is first computed with."""
    if isinstance(x, AsyncCollectiveTensor):
        wait: Callable[[], Tensor] = x.trigger_wait
        wait()


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight.clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.clone())
    return layer


def _norm(weight: Tensor, bias: Tensor | None) -> nn.Module:
    norm: nn.LayerNorm | nn.RMSNorm
    if bias is None:
        norm = nn.RMSNorm(len(weight), EPSILON, device="meta")
    else:
        norm = nn.LayerNorm(len(weight), EPSILON, device="meta")
        norm.bias = nn.Parameter(bias)
    norm.weight = nn.Parameter(weight)
    return norm


def _gated(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up
