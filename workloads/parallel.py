"""Linear layers split over ranks, Megatron-LM's way, and the pair of functions they rest on.

Each function is its partner's transpose, so what one does forward the other does backward:

=================  ==============  ===============
function           forward         backward
=================  ==============  ===============
:func:`copy`       identity        all-reduce
:func:`reduce`     all-reduce      identity
=================  ==============  ===============

A column layer holds some rows of the weight (columns of its transpose) and has a copy before it; a row layer
holds some columns and has a reduce after it. Column, anything elementwise (or a head at a time), row: between
the two nothing is sent.

Layers are cut from the full weight, so the same weight gives the same function for every number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 (the name everybody knows it by)
from torch import Tensor, nn

from overlapscope import markers

from .marked import marked

__all__ = ["ColumnParallelLinear", "Ranks", "RowParallelLinear", "copy", "reduce"]


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks a layer is split over, and which of them this one is. Of one rank nothing is sent."""

    rank: int = 0
    size: int = 1
    group: dist.ProcessGroup | None = None  # None: the default group


def copy(x: Tensor, ranks: Ranks, name: str = "copy") -> Tensor:
    """`x` itself; backward, the sum of its gradient over the ranks. `name` is the collective's range."""
    return _copy(x, ranks, name)


def reduce(x: Tensor, ranks: Ranks, name: str = "reduce") -> Tensor:
    """The sum of `x` over the ranks, in place; backward, the gradient itself."""
    return _reduce(x, ranks, name)


class ColumnParallelLinear(nn.Module):
    """``x @ weight.T + bias``, of which each rank computes some of the outputs.

    Parameters
    ----------
    weight, bias : Tensor, shapes (outputs, inputs) and (outputs,)
        The full layer.
    ranks : Ranks
    name : str
        Name of its range; the range of its backward is ``<name>.grad``.
    blocks : int
        The outputs are this many equal blocks, each split over the ranks: 3 for queries, keys and values, so
        that a rank gets all three of its heads.
    """

    def __init__(self, weight: Tensor, bias: Tensor, ranks: Ranks, name: str, *, blocks: int = 1) -> None:
        super().__init__()
        self.ranks, self.name, self.blocks = ranks, name, blocks
        self.weight = nn.Parameter(self.shard(weight))
        self.bias = nn.Parameter(self.shard(bias))

    def shard(self, full: Tensor) -> Tensor:
        """This rank's part of a full weight, bias or gradient: a copy, so that the full one can go."""
        split = full.reshape(self.blocks, self.ranks.size, -1, *full.shape[1:])
        return split[:, self.ranks.rank].reshape(-1, *full.shape[1:]).clone()

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs / ranks)."""
        return marked(self.name, "sharded", self._linear, x)

    def _linear(self, x: Tensor) -> Tensor:
        return _column_linear(x, self.weight, self.bias, self.ranks, f"{self.name}.grad")


class RowParallelLinear(nn.Module):
    """``x @ weight.T + bias``, of which each rank holds some of the inputs.

    Parameters
    ----------
    weight, bias : Tensor, shapes (outputs, inputs) and (outputs,)
        The full layer. Every rank keeps the bias; it is added once, to the sum.
    ranks : Ranks
    name : str
        Name of its range; the range of its backward is ``<name>.grad``.
    """

    def __init__(self, weight: Tensor, bias: Tensor, ranks: Ranks, name: str) -> None:
        super().__init__()
        self.ranks, self.name = ranks, name
        self.weight = nn.Parameter(self.shard(weight))
        self.bias = nn.Parameter(bias.clone())

    def shard(self, full: Tensor) -> Tensor:
        """This rank's part of a full weight or gradient: a copy, so that the full one can go."""
        return full.reshape(len(full), self.ranks.size, -1)[:, self.ranks.rank].clone()

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs / ranks) to (..., outputs)."""
        return marked(self.name, "sharded", self._linear, x)

    def _linear(self, x: Tensor) -> Tensor:
        return reduce(F.linear(x, self.weight), self.ranks, self.name) + self.bias


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Ranks, name: str) -> Tensor:
        ctx.ranks, ctx.name = ranks, name
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # Autograd may hand the same gradient to others, so the sum is made in a copy.
        grad = grads[0].clone(memory_format=torch.contiguous_format)
        _all_reduce(grad, ctx.ranks, ctx.name)
        return grad, None, None


_copy: Callable[..., Tensor] = _Copy.apply


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Ranks, name: str) -> Tensor:
        ctx.mark_dirty(x)
        _all_reduce(x, ranks, name)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0], None, None


_reduce: Callable[..., Tensor] = _Reduce.apply


class _ColumnLinear(torch.autograd.Function):
    """A linear layer with the copy before it, in one, because their backwards interleave.

    The input gradient is whole, and can be sent, before the weight gradient is begun: here it is sent at
    once and waited for; what would hide the collective under the weight gradient's GEMM waits after it.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, ranks: Ranks, name: str) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.ranks, ctx.name = ranks, name
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad = grads[0].reshape(-1, len(weight))
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = grad.mm(weight).view(x.shape)
            _all_reduce(grad_x, ctx.ranks, ctx.name)
        grad_weight = grad.t().mm(x.reshape(-1, weight.shape[1]))
        return grad_x, grad_weight, grad.sum(0), None, None


_column_linear: Callable[..., Tensor] = _ColumnLinear.apply


def _all_reduce(x: Tensor, ranks: Ranks, name: str) -> None:
    """Sum `x` over the ranks, in place; the range ``<name>.all_reduce`` spans call and wait."""
    if ranks.size == 1:
        return
    with markers.range(f"{name}.all_reduce", "comm", bytes=x.numel() * x.element_size()):
        dist.all_reduce(x, group=ranks.group)
