"""How a GEMM and the collective beside it share the time: one class a schedule.

Two products stand with a collective, and each is the other's transpose, so one schedule serves both passes:
*gather-matmul* (all ranks' rows times a matrix) in a column layer's forward and a row layer's backward,
*matmul-scatter* in a row layer's forward and a column layer's backward. Without sequence parallelism only a
row layer's forward has one: *matmul-reduce*.

===========  ===========================================================================================
schedule     what runs at once
===========  ===========================================================================================
serial       nothing: the GEMM, then its collective, or the other way round
pipelined    the GEMM in chunks along the sequence: a chunk travels while the next (or last) is multiplied
ring         shards go round a ring: the shard at hand is multiplied while the next arrives
symm_mem     PyTorch's asynchronous tensor parallelism: copies between the GPUs under parts of the GEMM
===========  ===========================================================================================

All give the same result up to the order of additions. Tensors are (seq, batch, width); matrices (in, out).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor

from .collectives import Wire
from .layer_config import LayerConfig

__all__ = ["Pipelined", "Ring", "Serial", "SymmMem", "multiply", "schedule", "shares", "spans"]


def schedule(config: LayerConfig) -> Serial:
    """The one that a configuration names."""
    if config.schedule == "pipelined":
        assert config.chunks is not None
        return Pipelined(config.chunks)
    return {"serial": Serial, "ring": Ring, "symm_mem": SymmMem}[config.schedule]()


class Serial:
    """One after the other: what the others are measured against."""

    def gather_matmul(self, x: Tensor, matrix: Tensor, bias: Tensor | None, wire: Wire) -> Tensor:
        """All ranks' rows times the matrix, plus the bias: (seq / ranks, ...) to (seq, ...)."""
        return multiply(wire.all_gather(x).wait(), matrix, wire, bias)

    def matmul_scatter(self, x: Tensor, matrix: Tensor, wire: Wire) -> Tensor:
        """This rank's rows of the sum over ranks of ``x @ matrix``: (seq, ...) to (seq / ranks, ...)."""
        return wire.reduce_scatter(multiply(x, matrix, wire)).wait()

    def matmul_reduce(self, x: Tensor, matrix: Tensor, wire: Wire) -> Tensor:
        """The sum over ranks of ``x @ matrix``."""
        return wire.all_reduce(multiply(x, matrix, wire)).wait()

    def column_backward(
        self, grad: Tensor, x: Tensor, weight: Tensor, wire: Wire, *, overlap: bool
    ) -> tuple[Tensor, Tensor]:
        """Gradients of a column layer's input rows and of its weight, of which the input was not kept whole.

        With `overlap` the input's rows are gathered under the input gradient's GEMM, and that gradient is
        scattered under the weight gradient's.
        """
        gathered = wire.all_gather(x)
        if not overlap:
            gathered.wait()
        product = multiply(grad, weight, wire)
        whole = gathered.wait()
        scattered = wire.reduce_scatter(product)
        if not overlap:
            scattered.wait()
        weight_grad = outer(grad, whole, wire)
        return scattered.wait(), weight_grad

    def row_backward(self, grad: Tensor, x: Tensor, weight: Tensor, wire: Wire) -> tuple[Tensor, Tensor]:
        """Gradients of a row layer's input and of its weight, from this rank's rows of the output's."""
        whole = wire.all_gather(grad).wait()
        return multiply(whole, weight, wire), outer(whole, x, wire)


class Pipelined(Serial):
    """In chunks along the sequence, forward. Of all ranks' rows a chunk takes the same part of each."""

    def __init__(self, chunks: int) -> None:
        self.chunks = chunks

    def gather_matmul(self, x: Tensor, matrix: Tensor, bias: Tensor | None, wire: Wire) -> Tensor:
        """All chunks start to travel; each is multiplied when it is there."""
        n = wire.ranks.size
        parts = spans(len(x), self.chunks)
        travelling = [wire.all_gather(x[a:b]) for a, b in parts]
        out = x.new_empty(n, *x.shape[:-1], matrix.shape[1])
        for (a, b), chunk in zip(parts, travelling, strict=True):
            product = multiply(chunk.wait(), matrix, wire, bias)
            out[:, a:b] = product.view(n, b - a, *product.shape[1:])
        return out.flatten(0, 1)

    def matmul_scatter(self, x: Tensor, matrix: Tensor, wire: Wire) -> Tensor:
        """A chunk's sum is scattered while the next is multiplied."""
        n = wire.ranks.size
        parts = shares(x, n)
        travelling = [
            wire.reduce_scatter(multiply(parts[:, a:b].flatten(0, 1), matrix, wire))
            for a, b in spans(len(x) // n, self.chunks)
        ]
        return torch.cat([chunk.wait() for chunk in travelling])

    def matmul_reduce(self, x: Tensor, matrix: Tensor, wire: Wire) -> Tensor:
        """A chunk's sum travels while the next is multiplied, into its place in the result."""
        out = x.new_empty(*x.shape[:-1], matrix.shape[1])
        travelling = [
            wire.all_reduce(multiply(x[a:b], matrix, wire, out=out[a:b]))
            for a, b in spans(len(x), self.chunks)
        ]
        for chunk in travelling:
            chunk.wait()
        return out


class Ring(Serial):
    """Decomposed: n - 1 steps of a ring in place of a collective, one of n GEMMs under each, both passes."""

    def gather_matmul(self, x: Tensor, matrix: Tensor, bias: Tensor | None, wire: Wire) -> Tensor:
        """Each shard is multiplied while the next comes in."""
        out = x.new_empty(wire.ranks.size, *x.shape[:-1], matrix.shape[1])
        for owner, shard in circle(x, wire):
            multiply(shard, matrix, wire, bias, out=out[owner])
        return out.flatten(0, 1)

    def matmul_scatter(self, x: Tensor, matrix: Tensor, wire: Wire) -> Tensor:
        """The partial sum of a rank's rows comes in while this rank's part of it is multiplied."""
        rank, n = wire.ranks.rank, wire.ranks.size
        parts = shares(x, n)
        total = multiply(parts[(rank - 1) % n], matrix, wire)
        for k in range(1, n):
            arriving = wire.pass_on(total)
            part = multiply(parts[(rank - k - 1) % n], matrix, wire)
            total = part.add_(arriving.wait())
        return total

    def column_backward(
        self, grad: Tensor, x: Tensor, weight: Tensor, wire: Wire, *, overlap: bool
    ) -> tuple[Tensor, Tensor]:
        """Two rings: the input gradient's partial sums, then the input's shards under the weight gradient."""
        if not overlap:
            return super().column_backward(grad, x, weight, wire, overlap=False)
        parts = shares(grad, wire.ranks.size)
        weight_grad = torch.zeros_like(weight)
        x_grad = self.matmul_scatter(grad, weight, wire)
        for owner, shard in circle(x, wire):
            outer(parts[owner], shard, wire, onto=weight_grad)
        return x_grad, weight_grad

    def row_backward(self, grad: Tensor, x: Tensor, weight: Tensor, wire: Wire) -> tuple[Tensor, Tensor]:
        """One ring: under each shard of the gradient its part of both products."""
        parts = shares(x, wire.ranks.size)
        weight_grad, x_grad = torch.zeros_like(weight), torch.empty_like(parts)
        for owner, shard in circle(grad, wire):
            multiply(shard, weight, wire, out=x_grad[owner])
            outer(shard, parts[owner], wire, onto=weight_grad)
        return x_grad.flatten(0, 1), weight_grad


class SymmMem(Serial):
    """PyTorch's fused operators over symmetric memory: CUDA with access between the GPUs. Forward."""

    def gather_matmul(self, x: Tensor, matrix: Tensor, bias: Tensor | None, wire: Wire) -> Tensor:
        """``torch.ops.symm_mem.fused_all_gather_matmul``."""
        if wire.ranks.size == 1:
            return super().gather_matmul(x, matrix, bias, wire)
        _, (out,) = torch.ops.symm_mem.fused_all_gather_matmul(x, [matrix], 0, _symmetric(wire))
        product: Tensor = out
        return product if bias is None else product.add_(bias)

    def matmul_scatter(self, x: Tensor, matrix: Tensor, wire: Wire) -> Tensor:
        """``torch.ops.symm_mem.fused_matmul_reduce_scatter``."""
        if wire.ranks.size == 1:
            return super().matmul_scatter(x, matrix, wire)
        out: Tensor = torch.ops.symm_mem.fused_matmul_reduce_scatter(x, matrix, "sum", 0, _symmetric(wire))
        return out


def multiply(
    x: Tensor, matrix: Tensor, wire: Wire, bias: Tensor | None = None, out: Tensor | None = None
) -> Tensor:
    """``x @ matrix + bias``, one GEMM over all rows; into a contiguous `out` where one is given."""
    shape = (*x.shape[:-1], matrix.shape[1])
    flat = rows(x)
    at = None if out is None else out.view(-1, shape[-1])
    with wire.gemm("dgrad"):
        product = torch.mm(flat, matrix, out=at) if bias is None else torch.addmm(bias, flat, matrix, out=at)
    return product.view(shape) if out is None else out


def outer(grad: Tensor, x: Tensor, wire: Wire, onto: Tensor | None = None) -> Tensor:
    """The gradient of a weight (outputs, inputs); added `onto` one where it is given."""
    left, right = rows(grad).t(), rows(x)
    with wire.gemm("wgrad"):
        return left.mm(right) if onto is None else onto.addmm_(left, right)


def rows(x: Tensor) -> Tensor:
    """(..., width) as a matrix."""
    return x.reshape(-1, x.shape[-1])


def shares(x: Tensor, ranks: int) -> Tensor:
    """(seq, ...) as (ranks, seq / ranks, ...): what is whose."""
    return x.reshape(ranks, -1, *x.shape[1:])


def spans(total: int, parts: int) -> list[tuple[int, int]]:
    """[0, total) in `parts` pieces in order, as equal as can be."""
    edges = [total * i // parts for i in range(parts + 1)]
    return list(pairwise(edges))


def circle(x: Tensor, wire: Wire) -> Iterator[tuple[int, Tensor]]:
    """Every rank's shard with its owner, this rank's first; the next travels while one is worked on."""
    rank, n = wire.ranks.rank, wire.ranks.size
    shard = x.contiguous()
    for k in range(n):
        arriving = wire.pass_on(shard) if k < n - 1 else None
        yield (rank - k) % n, shard
        if arriving is not None:
            shard = arriving.wait()


def _symmetric(wire: Wire) -> str:
    """The name of the group, which may use symmetric memory."""
    import torch.distributed._symmetric_memory as symmetric  # defines the operators

    group = wire.ranks.group or dist.group.WORLD
    assert group is not None
    enable = symmetric.enable_symm_mem_for_group
    if not hasattr(enable, "__deprecated__"):  # PyTorch does it by itself since it says so
        enable(group.group_name)
    return str(group.group_name)
