"""What ranks say to one another: each call starts an exchange and gives it back as :class:`Pending`.

Everything goes along the first dimension. Each exchange is inside a range ``<name>.<collective>`` with the role
``comm``, from the call to the end of the wait, with its bytes; ranges of exchanges under way together overlap. The
call and the wait themselves, in which the thread computes nothing, are inside ranges ``<name>.<collective>.call`` and
``<name>.<collective>.wait`` with the role ``wait``.

==================  ===================================  ==============  ===============
call                result                               bytes           in a trace
==================  ===================================  ==============  ===============
``all_reduce``      the sum, in place                    of the array    all_reduce
``all_gather``      all ranks' rows, in rank order       of the result   all_gather
``reduce_scatter``  this rank's rows of the sum          of the input    reduce_scatter
``all_to_all``      the rows that each rank has for this of the input    all_to_all
``pass_on``         what the left neighbour passed on    of the message  send_recv
==================  ===================================  ==============  ===============
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from overlapscope import markers

from .exchange import exchange
from .link import Link

__all__ = ["Pending", "Ranks", "Wire"]

# PyTorch 2.13 gave both a new name and warns at the old one.
_all_gather: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter: Callable[..., Any] = (
    getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
)


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks a layer is split over, which of them this one is, and what link they pretend to have.

    Of one rank nothing is sent.
    """

    rank: int = 0
    size: int = 1
    group: dist.ProcessGroup | None = None  # None: the default group
    link: Link | None = None  # None: whatever is there


class Pending:
    """An exchange under way. What it reads and writes must be left alone until it was waited for."""

    def __init__(self, result: Tensor, works: list[Any], marker: markers.Range | None) -> None:
        self._result, self._works, self._marker = result, works, marker

    def wait(self) -> Tensor:
        """The result; on a GPU it is the stream that waits."""
        if self._marker is not None:
            with markers.range(f"{self._marker.name}.wait", "wait"):
                for work in self._works:
                    work.wait()
            self._marker.end()
        self._works, self._marker = [], None
        return self._result


@dataclass(frozen=True, slots=True)
class Wire:
    """The exchanges of one layer in one pass, and how its ranges are named.

    Attributes
    ----------
    ranks : Ranks
    layer : str
        First part of their ranges' names.
    backward : bool
        The pass is the backward one: exchanges are named ``<layer>.grad.<collective>``, and each GEMM has a range
        of its own (:meth:`gemm`).
    always : bool
        Of one rank, too, something is sent: to itself.
    """

    ranks: Ranks
    layer: str
    backward: bool = False
    always: bool = False

    def gemm(self, gradient: str) -> AbstractContextManager[object]:
        """The range of a GEMM that makes the data gradient (``dgrad``) or the weight gradient (``wgrad``).

        Forward a layer has one product, and its own range is around it.
        """
        return markers.range(f"{self.layer}.{gradient}", "sharded") if self.backward else nullcontext()

    def all_reduce(self, x: Tensor) -> Pending:
        """Sum `x` over the ranks, in place."""
        return self._start("all_reduce", x, x, x, _reduce)

    def all_gather(self, x: Tensor, out: Tensor | None = None) -> Pending:
        """(rows, ...) of every rank to (ranks · rows, ...), into `out` where it is given."""
        if out is None:
            out = x if self._alone else x.new_empty(self.ranks.size * len(x), *x.shape[1:])
        return self._start("all_gather", x.contiguous(), out, out, _gather)

    def reduce_scatter(self, x: Tensor, out: Tensor | None = None) -> Pending:
        """(ranks · rows, ...) to this rank's (rows, ...) of the sum, into `out` where it is given."""
        if out is None:
            out = x if self._alone else x.new_empty(len(x) // self.ranks.size, *x.shape[1:])
        return self._start("reduce_scatter", x, out, x, _scatter)

    def all_to_all(self, x: Tensor, out: Tensor | None = None) -> Pending:
        """The k-th of as many equal parts as there are ranks to rank k; from each its part for this one, by rank."""
        return self._start("all_to_all", x, torch.empty_like(x) if out is None else out, x, _exchange)

    def pass_on(self, x: Tensor, out: Tensor | None = None) -> Pending:
        """Send `x` to the right neighbour of the ring and receive the like from the left one."""
        return self._start("send_recv", x, torch.empty_like(x) if out is None else out, x, _pass)

    @property
    def _alone(self) -> bool:
        """Whether nothing is sent."""
        return self.ranks.size == 1 and not self.always

    def _start(self, collective: str, x: Tensor, result: Tensor, whole: Tensor, call: Call) -> Pending:
        ranks = self.ranks
        if self._alone:
            return Pending(result, [], None)
        size = whole.numel() * whole.element_size()
        name = f"{self.layer}.grad" if self.backward else self.layer
        marker = markers.start(f"{name}.{collective}", "comm", bytes=size)
        on_gloo = x.device.type == "cpu"
        # The call returns at once only as a rule: gloo's threads may take its core.
        with markers.range(f"{marker.name}.call", "wait"):
            if ranks.link is not None:
                job = _paced(call, ranks, x, result, ranks.link.seconds(collective, size, ranks.size))
                works = [exchange.post(f"paced:{collective}", job)]
            elif on_gloo and collective == "send_recv":
                works = [exchange.post(f"gloo:{collective}", _plain(call, ranks, x, result))]
            else:
                works = call(ranks, x, result)
        return Pending(result, works, marker)


Call = Callable[[Ranks, Tensor, Tensor], list[Any]]
"""Starts an exchange of a tensor into another; returns what to wait for."""


def _reduce(ranks: Ranks, x: Tensor, result: Tensor) -> list[Any]:
    return [dist.all_reduce(result, group=ranks.group, async_op=True)]


def _gather(ranks: Ranks, x: Tensor, result: Tensor) -> list[Any]:
    return [_all_gather(result, x, group=ranks.group, async_op=True)]


def _scatter(ranks: Ranks, x: Tensor, result: Tensor) -> list[Any]:
    return [_reduce_scatter(result, x, group=ranks.group, async_op=True)]


def _exchange(ranks: Ranks, x: Tensor, result: Tensor) -> list[Any]:
    return [dist.all_to_all_single(result, x, group=ranks.group, async_op=True)]


def _pass(ranks: Ranks, x: Tensor, result: Tensor) -> list[Any]:
    group = ranks.group or dist.group.WORLD
    assert group is not None
    right, left = (dist.get_global_rank(group, (ranks.rank + by) % ranks.size) for by in (1, -1))
    both = [dist.P2POp(dist.isend, x, right, group), dist.P2POp(dist.irecv, result, left, group)]
    return list(dist.batch_isend_irecv(both))


def _plain(call: Call, ranks: Ranks, x: Tensor, result: Tensor) -> Callable[[], float]:
    def job() -> float:
        for work in call(ranks, x, result):
            work.wait()
        return 0.0

    return job


def _paced(call: Call, ranks: Ranks, x: Tensor, result: Tensor, seconds: float) -> Callable[[], float]:
    """The exchange, to be over `seconds` after the last of those concerned was ready for it.

    All ranks are on one machine and have one clock. In a ring a rank depends on its left neighbour alone.
    """

    def job() -> float:
        ready = torch.tensor([time.monotonic()], dtype=torch.float64)
        if call is _pass:
            other = torch.empty_like(ready)
            works = _pass(ranks, ready, other)
        else:
            other = ready.clone()
            works = [dist.all_reduce(other, dist.ReduceOp.MAX, group=ranks.group, async_op=True)]
        for work in (*works, *call(ranks, x, result)):
            work.wait()
        return max(float(ready), float(other)) + seconds

    return job
