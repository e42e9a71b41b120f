"""A step on some number of ranks: every block's work and exchanges, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .machine import Constant, Machine, Route
from .schedules import NOTHING, Part, alone, pipelined, ring, serial, under
from .work import ELEMENT, Linear, Op, Shape

if TYPE_CHECKING:
    from workloads import Link

__all__ = ["Layout", "Prediction", "Size", "block", "predict", "sizes"]

RINGS = ("ring", "symm_mem")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the blocks are split, and what their exchanges run beside; as in :class:`workloads.BlockConfig`."""

    sequence_parallel: bool = False
    schedule: str = "serial"
    chunks: int | None = None
    overlap_backward: bool = True
    forward_only: bool = False


@dataclass(frozen=True, slots=True)
class Size:
    """A step on `tp` ranks.

    Attributes
    ----------
    tp : int
    part : Part
        Times in s, a rank's bytes on the wire.
    memory : float
        Bytes a rank holds at least.
    link : str or None
        The link that was taken; None on one rank, which needs none.
    """

    tp: int
    part: Part
    memory: float
    link: str | None

    @property
    def step(self) -> float:
        """T, s."""
        return self.part.compute + self.part.exposed

    @property
    def hidden(self) -> float:
        """T with all the communication hidden that this compute can hide, s: max(compute, comm)."""
        return max(self.part.compute, self.part.comm)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Sizes ascending from 1, the one that was asked for among them.

    ``beyond`` are those that the link does not join, for which nothing is predicted.
    """

    name: str
    gpu: str
    shape: Shape
    layout: Layout
    machine: Machine
    routes: tuple[Route, ...]
    asked: int
    sizes: tuple[Size, ...]
    beyond: tuple[int, ...]

    @property
    def constants(self) -> list[Constant]:
        """All that went in."""
        return [*self.machine.constants, *(c for route in self.routes for c in route.constants)]

    @property
    def size(self) -> Size:
        """The one asked for."""
        return next(size for size in self.sizes if size.tp == self.asked)

    def speedup(self, size: Size) -> float:
        """T(1) / T(N)."""
        return self.sizes[0].step / size.step

    def efficiency(self, size: Size) -> float:
        """T(1) / (N · T(N))."""
        return self.speedup(size) / size.tp

    def fits(self, size: Size) -> bool:
        """What a rank holds at least is no more than its GPU has."""
        return size.memory <= self.machine.memory.value * 1e9


@dataclass(frozen=True, slots=True)
class _Rank:
    """One of `tp` ranks, that can say how long things take it."""

    shape: Shape
    layout: Layout
    machine: Machine
    tp: int
    link: Link | None

    def time(self, *ops: Op) -> float:
        return sum(map(self.machine.seconds, ops))

    def exchange(self, collective: str, size: float) -> tuple[float, float]:
        """Seconds, and bytes sent by a rank."""
        if self.link is None:
            return 0.0, 0.0
        # On a link without latency that carries one byte a second it takes as many seconds as bytes are sent.
        bare = replace(self.link, alpha=0.0, beta=1.0)
        n = round(size)
        return self.link.seconds(collective, n, self.tp), bare.seconds(collective, n, self.tp)


def predict(shape: Shape, layout: Layout, machine: Machine, tp: int, link: Link | None) -> Part:
    """A step on `tp` ranks: all blocks and, with sequence parallelism, the sum of whole parameters' gradients.

    On one rank nothing is sent or cut, whatever the schedule: the base is the GEMM in one piece.
    """
    total = block(shape, layout, machine, tp, link) * shape.layers
    if layout.sequence_parallel and not layout.forward_only and tp > 1:
        rank = _Rank(shape, layout, machine, tp, link)
        total += serial(0.0, *rank.exchange("all_reduce", ELEMENT * shape.layers * shape.whole))
    return total


def block(shape: Shape, layout: Layout, machine: Machine, tp: int, link: Link | None) -> Part:
    """One block, forward and, unless told otherwise, backward."""
    rank = _Rank(shape, layout, machine, tp, None if tp == 1 else link)
    times = machine.attention_backward.value
    passes = [False] if layout.forward_only else [False, True]
    total = NOTHING
    for backward in passes:
        total += alone(
            rank.time(
                shape.attention(tp, times if backward else 1.0, backward=backward),
                *shape.elementwise(tp, sequence_parallel=layout.sequence_parallel, backward=backward),
            )
        )
        for linear in shape.linears(tp):
            total += _backward(rank, linear) if backward else _forward(rank, linear)
    return total


def _forward(rank: _Rank, linear: Linear) -> Part:
    """A column layer gathers its rows, or has them; a row layer scatters, or sums, its products."""
    shape, layout, tp = rank.shape, rank.layout, rank.tp
    split = layout.sequence_parallel
    if tp == 1 or (linear.column and not split):
        return alone(rank.time(linear.product(shape.tokens)))
    if split and layout.schedule in RINGS:
        add = 0.0 if linear.column or layout.schedule == "symm_mem" else _addition(rank)
        return _ring(rank, rank.time(linear.product(shape.tokens / tp)), add)
    collective = ("all_gather" if linear.column else "reduce_scatter") if split else "all_reduce"
    if layout.schedule == "pipelined":
        assert layout.chunks is not None
        work = rank.time(linear.product(shape.tokens / layout.chunks))
        seconds, wire = rank.exchange(collective, shape.activation / layout.chunks)
        return pipelined(work, seconds, layout.chunks, wire)
    return serial(rank.time(linear.product(shape.tokens)), *rank.exchange(collective, shape.activation))


def _backward(rank: _Rank, linear: Linear) -> Part:
    """The input's gradient and the weight's; pipelined and symm_mem are of the forward pass alone."""
    layout, tp, rows = rank.layout, rank.tp, rank.shape.tokens
    product, outer = rank.time(linear.product(rows)), rank.time(linear.outer(rows))
    if tp == 1 or (not linear.column and not layout.sequence_parallel):
        return alone(product + outer)
    if layout.sequence_parallel and layout.schedule == "ring" and layout.overlap_backward:
        return _ring_backward(rank, linear)
    beside = under if layout.overlap_backward else serial
    volume = rank.shape.activation
    if not layout.sequence_parallel:
        return alone(product) + beside(outer, *rank.exchange("all_reduce", volume))
    gather, scatter = (rank.exchange(c, volume) for c in ("all_gather", "reduce_scatter"))
    if (
        linear.column
    ):  # its rows are gathered again under the one, the gradient's sum scattered under the other
        return beside(product, *gather) + beside(outer, *scatter)
    return serial(product + outer, *gather)


def _ring_backward(rank: _Rank, linear: Linear) -> Part:
    """Column: a scatter of the gradient, then its rows go round under the weight gradient. Row: one ring for both."""
    rows = rank.shape.tokens / rank.tp
    product, outer = rank.time(linear.product(rows)), rank.time(linear.outer(rows, accumulate=True))
    if linear.column:
        return _ring(rank, product, _addition(rank)) + _ring(rank, outer)
    return _ring(rank, product + outer)


def _ring(rank: _Rank, work: float, add: float = 0.0) -> Part:
    hop, wire = rank.exchange("send_recv", rank.shape.activation / rank.tp)
    return ring(work, hop, rank.tp, wire, add)


def _addition(rank: _Rank) -> float:
    """Of the partial sum that came in: two arrays of a rank's rows are read, one is written."""
    return rank.time(Op(0, 3 * rank.shape.activation / rank.tp, "memory"))


def sizes(
    shape: Shape, layout: Layout, machine: Machine, routes: Sequence[Route], asked: Sequence[int]
) -> tuple[tuple[Size, ...], tuple[int, ...]]:
    """Predict for each number of ranks, over the first of the routes that joins so many.

    Returns
    -------
    sizes, beyond
        What was predicted, and the numbers of ranks that no route joins.
    """
    found, beyond = [], []
    for tp in sorted(asked):
        route = next((r for r in routes if r.domain is None or tp <= r.domain), None)
        if route is None and tp > 1:
            beyond.append(tp)
            continue
        part = predict(shape, layout, machine, tp, None if route is None else route.link)
        memory = shape.memory(
            tp,
            sequence_parallel=layout.sequence_parallel,
            forward_only=layout.forward_only,
            state_bytes=machine.state_bytes.value,
        )
        found.append(Size(tp, part, memory, route.name if route is not None and tp > 1 else None))
    return tuple(found), tuple(beyond)
