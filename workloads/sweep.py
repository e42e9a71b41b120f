"""One collective over many sizes, as nccl-tests does it: checked once, then timed step by step.

A step is one exchange of every size. Before each all ranks meet, outside of what is timed, so that none is late by
what went before. The buffers are there before, and hold zeros while they are timed, so that sums in place stay
what they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from overlapscope import markers
from overlapscope.markers import Point

from .collectives import Pending, Ranks, Wire
from .config import WrongError
from .sizes import CollectiveConfig

__all__ = ["Sweep", "build"]

EXACT = 251
"""Values below it are exact in every type (bfloat16 counts up to 256), so sums are, in whatever order. A prime, so
that parts of an array do not look alike."""


class Sweep:
    """The buffers of the largest size, of which each exchange takes the beginning."""

    def __init__(self, config: CollectiveConfig, ranks: Ranks, device: torch.device) -> None:
        self.config, self.ranks, self.device = config, ranks, device
        self.wire = Wire(ranks, "sweep", always=True)
        self.dtype: torch.dtype = getattr(torch, config.dtype)
        sizes = config.bytes(ranks.size)
        send, receive = config.buffers(sizes[-1], ranks.size)
        self.send = self._zeros(send)
        self.receive = self.send if config.COLLECTIVE == "all_reduce" else self._zeros(receive)
        self.points = [self._point(size) for size in sizes]

    def step(self) -> None:
        """One exchange of every size."""
        for point in self.points:
            if self.ranks.size > 1:
                dist.barrier(self.ranks.group)
            with markers.point(point):
                self.exchange(point).wait()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def measure(self) -> dict[str, Any]:
        """Every size, checked against what is known without the collective. Raises WrongError on ranks that differ."""
        for point in self.points:
            self.check(point)
        self.send.zero_()
        self.receive.zero_()
        notes = self.config.notes(self.ranks.size)
        return {"sizes_bytes": [p.bytes for p in self.points], **({"notes": notes} if notes else {})}

    def exchange(self, point: Point) -> Pending:
        """Start one."""
        x, out = self._views(point)
        if point.collective == "all_reduce":
            return self.wire.all_reduce(x)
        call = {
            "all_gather": self.wire.all_gather,
            "reduce_scatter": self.wire.reduce_scatter,
            "all_to_all": self.wire.all_to_all,
            "send_recv": self.wire.pass_on,
        }[point.collective]
        return call(x, out)

    def check(self, point: Point) -> None:
        """Exchange values of which the right result is known, and compare."""
        x, out = self._views(point)
        out.fill_(-1)  # the beginning of a right result is there from the size before
        x.copy_(repeated(self._sent(), 0, len(x), x))
        result = self.exchange(point).wait()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        at, wrong = 0, 0
        for values, first, count in self._right(point):
            differs = result[at : at + count] != repeated(values, first, count, result)
            wrong += int(torch.count_nonzero(differs))
            at += count
        assert at == len(result), "every element is compared"
        if wrong:
            raise WrongError(
                f"{point.collective} of {point.bytes} B gave {wrong} wrong elements of {len(result)} on this rank"
            )

    def _sent(self, rank: int | None = None) -> list[int]:
        """One period of what a rank sends, this one by default."""
        rank = self.ranks.rank if rank is None else rank
        # So that the sum over the ranks stays below it, too.
        most = max(2, EXACT // self.ranks.size) if self._redop == "sum" else EXACT
        return [(i + 17 * rank + self.config.seed) % EXACT % most for i in range(EXACT)]

    def _right(self, point: Point) -> Iterator[tuple[list[int], int, int]]:
        """The right result in pieces: one period of the values, where in it the piece begins, and its length."""
        rank, n, count = self.ranks.rank, self.ranks.size, point.count
        if self._redop == "sum":
            total = [sum(values) for values in zip(*(self._sent(r) for r in range(n)), strict=True)]
            yield total, rank * count if point.collective == "reduce_scatter" else 0, count
        elif point.collective == "send_recv":
            yield self._sent((rank - 1) % n), 0, count
        else:
            for other in range(n):
                yield self._sent(other), rank * count if point.collective == "all_to_all" else 0, count

    @property
    def _redop(self) -> str:
        return "sum" if self.config.COLLECTIVE in ("all_reduce", "reduce_scatter") else "none"

    def _point(self, size: int) -> Point:
        count = size // self.dtype.itemsize // (self.ranks.size if self.config.SHARED else 1)
        return Point(self.config.COLLECTIVE, size, count, self.config.dtype, self._redop, 0)

    def _views(self, point: Point) -> tuple[Tensor, Tensor]:
        """What an exchange of that size reads and writes."""
        send, receive = self.config.buffers(point.bytes, self.ranks.size)
        return self.send[: send // self.dtype.itemsize], self.receive[: receive // self.dtype.itemsize]

    def _zeros(self, size: int) -> Tensor:
        return torch.zeros(size // self.dtype.itemsize, dtype=self.dtype, device=self.device)


def repeated(values: list[int], first: int, count: int, like: Tensor) -> Tensor:
    """`count` elements of the values over and over, from the `first` on."""
    at = first % len(values)
    period = torch.tensor(values[at:] + values[:at], dtype=like.dtype, device=like.device)
    return period.repeat(-(-count // len(values)))[:count]


def build(config: CollectiveConfig, ranks: Ranks, device: torch.device) -> Sweep:
    """This rank's share of the sweep."""
    return Sweep(config, ranks, device)
