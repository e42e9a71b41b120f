"""Linear layers split over ranks, Megatron-LM's way.

A column layer holds some rows of the weight (columns of its transpose); a row layer holds some columns. Column,
anything elementwise (or a head at a time), row: between the two nothing is sent. What is sent around them:

=====================  =======================================  ================================================
layout                 column layer                             row layer
=====================  =======================================  ================================================
tensor parallel        forward -; backward all-reduce           forward all-reduce; backward -
and sequence parallel  forward all-gather; backward             forward reduce-scatter; backward all-gather
                       all-gather, reduce-scatter
=====================  =======================================  ================================================

With sequence parallelism the input of a column layer and the output of a row layer are this rank's s/t rows. A
column layer keeps those for its backward pass, not the gathered ones, and gathers them again.

How GEMM and collective share the time is a :mod:`schedule <workloads.schedules>`'s matter. Layers are cut from the
full weight, so the same weight gives the same function for every number of ranks, layout and schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .collectives import Ranks, Wire
from .marked import marked
from .schedules import Serial, multiply, outer, shares

__all__ = ["ColumnParallelLinear", "Layout", "Ranks", "RowParallelLinear", "copy", "reduce"]


@dataclass(frozen=True, slots=True)
class Layout:
    """How layers are split and when they communicate.

    Attributes
    ----------
    ranks : Ranks
    schedule : Serial
        Or one of those derived from it.
    sequence_parallel : bool
        Between row and column layers each rank has its part of the sequence only.
    overlap_backward : bool
        A column layer's collectives run under the GEMMs of its backward pass.
    """

    ranks: Ranks
    schedule: Serial
    sequence_parallel: bool = False
    overlap_backward: bool = True

    def own(self, x: Tensor) -> Tensor:
        """This rank's part of a full (seq, ...) tensor: with sequence parallelism a copy of its rows."""
        if not self.sequence_parallel:
            return x
        return shares(x, self.ranks.size)[self.ranks.rank].clone()

    def part(self, x: Tensor) -> Tensor:
        """This rank's part of a full (..., width) tensor: a copy of its columns."""
        return x.tensor_split(self.ranks.size, dim=-1)[self.ranks.rank].contiguous()


def copy(x: Tensor, ranks: Ranks, name: str = "copy") -> Tensor:
    """`x` itself; backward, the sum of its gradient over the ranks. `name` is the collective's range."""
    return _copy(x, Wire(ranks, name))


def reduce(x: Tensor, ranks: Ranks, name: str = "reduce") -> Tensor:
    """The sum of `x` over the ranks, in place; backward, the gradient itself."""
    return _reduce(x, Wire(ranks, name))


class ColumnParallelLinear(nn.Module):
    """``x @ weight.T + bias``, of which each rank computes some of the outputs.

    Parameters
    ----------
    weight, bias : Tensor, shapes (outputs, inputs) and (outputs,)
        The full layer; the bias may be None.
    layout : Layout
    name : str
        Name of its range. The range of its backward is ``<name>.grad``, in which each GEMM has its own,
        ``<name>.dgrad`` for the input's gradient and ``<name>.wgrad`` for the weight's.
    blocks : sequence of int, optional
        Widths of parts of the outputs, each split over the ranks: those of queries, keys and values, so that
        a rank gets all three of its heads. One part where none are given.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, layout: Layout, name: str, *, blocks: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self.layout, self.name, self.blocks = layout, name, list(blocks) or [len(weight)]
        self.weight = nn.Parameter(self.shard(weight))
        self.bias = None if bias is None else nn.Parameter(self.shard(bias))

    def shard(self, full: Tensor) -> Tensor:
        """This rank's part of a full weight, bias or gradient: a copy, so that the full one can go."""
        ranks = self.layout.ranks
        return torch.cat([shares(part, ranks.size)[ranks.rank] for part in torch.split(full, self.blocks)])

    def forward(self, x: Tensor) -> Tensor:
        """(seq, batch, inputs), or this rank's rows of it, to (seq, batch, outputs / ranks)."""
        return marked(self.name, "sharded", self._linear, x)

    def _linear(self, x: Tensor) -> Tensor:
        return _column_linear(x, self.weight, self.bias, self.layout, self.name)


class RowParallelLinear(nn.Module):
    """``x @ weight.T + bias``, of which each rank holds some of the inputs.

    Parameters
    ----------
    weight, bias : Tensor, shapes (outputs, inputs) and (outputs,)
        The full layer. Every rank keeps the bias; it is added once, to the sum.
    layout : Layout
    name : str
        Name of its range. The range of its backward is ``<name>.grad``, in which each GEMM has its own,
        ``<name>.dgrad`` for the input's gradient and ``<name>.wgrad`` for the weight's.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, layout: Layout, name: str) -> None:
        super().__init__()
        self.layout, self.name = layout, name
        self.weight = nn.Parameter(self.shard(weight))
        self.bias = None if bias is None else nn.Parameter(bias.clone())

    def shard(self, full: Tensor) -> Tensor:
        """This rank's part of a full weight or gradient: a copy, so that the full one can go."""
        return full.reshape(len(full), self.layout.ranks.size, -1)[:, self.layout.ranks.rank].clone()

    def forward(self, x: Tensor) -> Tensor:
        """(seq, batch, inputs / ranks) to (seq, batch, outputs), or this rank's rows of it."""
        return marked(self.name, "sharded", self._linear, x)

    def _linear(self, x: Tensor) -> Tensor:
        y = _row_linear(x, self.weight, self.layout, self.name)
        return y if self.bias is None else y + self.bias


class _ColumnLinear(torch.autograd.Function):
    """The product and, in the backward pass, its two; in one, because their collectives interleave with them."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layout: Layout, name: str
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.layout, ctx.name, ctx.biased = layout, name, bias is not None
        wire = Wire(layout.ranks, name)
        if layout.sequence_parallel:
            return layout.schedule.gather_matmul(x, weight.t(), bias, wire)
        return multiply(x, weight.t(), wire, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        layout, grad = ctx.layout, grads[0]
        wire = Wire(layout.ranks, ctx.name, backward=True)
        overlap = layout.overlap_backward
        if layout.sequence_parallel:
            x_grad, weight_grad = layout.schedule.column_backward(grad, x, weight, wire, overlap=overlap)
        else:
            # The input gradient is whole, and can travel, before the weight gradient is begun.
            travelling = wire.all_reduce(multiply(grad, weight, wire))
            if not overlap:
                travelling.wait()
            weight_grad = outer(grad, x, wire)
            x_grad = travelling.wait()
        bias_grad = grad.flatten(0, -2).sum(0) if ctx.biased else None
        return x_grad, weight_grad, bias_grad, None, None


_column_linear: Callable[..., Tensor] = _ColumnLinear.apply


class _RowLinear(torch.autograd.Function):
    """The product and its sum over the ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, layout: Layout, name: str) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.layout, ctx.name = layout, name
        wire = Wire(layout.ranks, name)
        if layout.sequence_parallel:
            return layout.schedule.matmul_scatter(x, weight.t(), wire)
        return layout.schedule.matmul_reduce(x, weight.t(), wire)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        layout, grad = ctx.layout, grads[0]
        wire = Wire(layout.ranks, ctx.name, backward=True)
        if not layout.sequence_parallel:
            return multiply(grad, weight, wire), outer(grad, x, wire), None, None
        schedule = layout.schedule if layout.overlap_backward else Serial()
        return *schedule.row_backward(grad, x, weight, wire), None, None


_row_linear: Callable[..., Tensor] = _RowLinear.apply


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, wire: Wire) -> Tensor:
        ctx.wire = wire
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # Autograd may hand the same gradient to others, so the sum is made in a copy.
        grad = grads[0].clone(memory_format=torch.contiguous_format)
        return ctx.wire.all_reduce(grad).wait(), None


_copy: Callable[..., Tensor] = _Copy.apply


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, wire: Wire) -> Tensor:
        ctx.mark_dirty(x)
        return wire.all_reduce(x).wait()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0], None


_reduce: Callable[..., Tensor] = _Reduce.apply
