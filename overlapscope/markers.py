"""How a program tells what its ranges are: one convention over NVTX and torch.profiler.

In NVTX a range lies in the domain ``overlapscope``; its message is the name, its *category* is the role, its
payload the bytes that move. A PyTorch profile has only names, so the roles go beside them: the top-level key
``overlapscope`` of the JSON holds ``{"roles": {name: role}}``. One name therefore has one role in a program.

===============  ====================================================================================
role             what the range is
===============  ====================================================================================
``step``         one measured iteration, ``step 3`` (:func:`step`)
``warmup``       an iteration that is not measured, ``warmup 0`` (:func:`warmup`)
``rank``         zero length, ``rank 3 of 8``: which rank this process is (:func:`rank`)
``link``         zero length, ``link 50 GB/s, 5 us``: the link is paced, not a real one (:func:`link`)
``phase``        a part of a step: ``forward``, ``backward``
``layer``        one layer, ``layer 0``
``sharded``      work that shrinks with the number of ranks
``replicated``   work that every rank does in full
``comm``         a collective, ``<what>.<collective>`` (``mlp.down.all_reduce``), from its call to its end; the
                 payload is its bytes
``wait``         the program is in a collective's call, or waits for its end, and computes nothing
``sweep``        one exchange that is timed for its size, and nothing else (:func:`point`)
===============  ====================================================================================

A collective that is started and waited for later is a :func:`start` before the call, ended after the wait, with
``wait`` ranges around the call and the waiting alone: it runs beside whatever the program does meanwhile.

Nothing is emitted, and next to nothing spent, unless something records. Neither torch nor nvtx is imported
before the first range; a program without either runs as it would without markers.

>>> from overlapscope import markers
>>> with markers.step(0):
...     with markers.range("attn.qkv", role="sharded"):
...         pass
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import ContextDecorator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

__all__ = ["DOMAIN", "Point", "Range", "link", "point", "range", "rank", "start", "step", "warmup"]

DOMAIN = "overlapscope"
"""The NVTX domain of the ranges, and the key of the roles in a PyTorch profile."""

_UNKNOWN = object()
_nvtx: Any = _UNKNOWN  # the nvtx module; None where nothing listens
_roles: dict[str, str] = {}
_roles_json = "{}"


class Range(ContextDecorator):
    """What :func:`range` gives: a context manager, and a decorator."""

    __slots__ = ("_pushed", "_record", "_started", "bytes", "name", "role")

    def __init__(self, name: str, role: str = "", *, bytes: int | None = None) -> None:
        self.name = name
        self.role = role
        self.bytes = bytes
        self._pushed = False
        self._started: Any = None
        self._record: Any = None

    def _recreate_cm(self) -> Range:
        # As a decorator: a fresh range a call, so that a recursive function nests.
        return Range(self.name, self.role, bytes=self.bytes)

    def __enter__(self) -> Range:
        nvtx = _listening()
        if nvtx is not None:
            nvtx.push_range(self.name, domain=DOMAIN, category=self.role or None, payload=self.bytes)
            self._pushed = True
        self._begin_record()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._record is not None:
            self._record.__exit__(kind, error, trace)
            self._record = None
        if self._pushed:
            _nvtx.pop_range(DOMAIN)
            self._pushed = False

    def end(self) -> None:
        """End a range that :func:`start` began."""
        self.__exit__(None, None, None)
        if self._started is not None:
            _nvtx.end_range(self._started)
            self._started = None

    def _start(self) -> Range:
        nvtx = _listening()
        if nvtx is not None:
            self._started = nvtx.start_range(
                self.name, domain=DOMAIN, category=self.role or None, payload=self.bytes
            )
        self._begin_record()
        return self

    def _begin_record(self) -> None:
        torch = _profiling()
        if torch is not None:
            self._record = torch.profiler.record_function(self.name)
            self._record.__enter__()
            torch.autograd._add_metadata_json(DOMAIN, _with_role(self.name, self.role))


def range(name: str, role: str = "", *, bytes: int | None = None) -> Range:
    """A named range with a role.

    Parameters
    ----------
    name : str
        What is done, such as ``attn.qkv``.
    role : str, optional
        One of the roles above, or one of your own.
    bytes : int, optional
        Bytes that move (of the whole array for a collective).
    """
    return Range(name, role, bytes=bytes)


def start(name: str, role: str = "", *, bytes: int | None = None) -> Range:
    """A range that has begun and ends with its :meth:`Range.end`; such ranges need not nest."""
    return Range(name, role, bytes=bytes)._start()


def step(index: int) -> Range:
    """The range of measured iteration `index`."""
    return range(f"step {index}", "step")


def warmup(index: int) -> Range:
    """The range of iteration `index` of those that are not measured."""
    return range(f"warmup {index}", "warmup")


def rank(rank: int, world: int) -> None:
    """Say which rank of how many this process is. Call it once recording has begun."""
    with range(f"rank {rank} of {world}", "rank"):
        pass


def link(text: str) -> None:
    """Say that the link between the ranks is paced, and how. Call it once recording has begun."""
    with range(f"link {text}", "link"):
        pass


@dataclass(frozen=True)
class Point:
    """One size of a sweep over a collective; the name of its range says all of it.

    Attributes
    ----------
    collective : str
        all_reduce, all_gather, reduce_scatter, all_to_all or send_recv.
    bytes : int
        Of the whole array; of the message for send_recv.
    count : int
        Elements as the call takes them: of a rank's part for all_gather, reduce_scatter and all_to_all.
    dtype, redop : str
        Element type, and sum or none.
    wrong : int
        Elements, over all ranks, that were found wrong when it was checked.
    """

    collective: str
    bytes: int
    count: int
    dtype: str
    redop: str
    wrong: int

    def __str__(self) -> str:
        """``all_reduce 1024 B, 256 float32 sum, 0 wrong``, which :meth:`parse` reads again."""
        return f"{self.collective} {self.bytes} B, {self.count} {self.dtype} {self.redop}, {self.wrong} wrong"

    @classmethod
    def parse(cls, name: str) -> Point | None:
        """The point that a range's name tells; None where it is none."""
        match = re.fullmatch(r"(\w+) (\d{1,18}) B, (\d{1,18}) (\w+) (\w+), (\d{1,18}) wrong", name, re.ASCII)
        if match is None:
            return None
        collective, nbytes, count, dtype, redop, wrong = match.groups()
        return cls(collective, int(nbytes), int(count), dtype, redop, int(wrong))


def point(what: Point) -> Range:
    """The range of one exchange of a sweep: what is launched inside is timed as that and nothing else."""
    return range(str(what), "sweep", bytes=what.bytes)


def _listening() -> Any:
    """The nvtx module, or None where no tool listens. A tool is there from a process's start or never is."""
    global _nvtx
    if _nvtx is _UNKNOWN:
        try:
            import nvtx
        except ImportError:
            _nvtx = None
        else:
            # Without a tool newer versions give a stand-in for a domain, which has no handle.
            _nvtx = nvtx if hasattr(nvtx.get_domain(DOMAIN), "handle") else _unasked(nvtx)
    return _nvtx


def _unasked(nvtx: Any) -> Any:
    """Ranges for a tool that does not say that it listens, or None where no tool is there.

    nvtx 0.2.12 and newer asks a tool whether it wants the domain, and records nothing otherwise. Tools older than
    the question, such as nsys 2022.4, never answer, and record all the same what they are sent.
    """
    if "NVTX_INJECTION64_PATH" not in os.environ:
        return None
    try:
        return _Unasked(nvtx)
    except (AttributeError, TypeError):  # this goes by nvtx's inside, which may change
        return None


class _Unasked:
    """The functions of the nvtx module for our domain, which is there whatever the tool says."""

    def __init__(self, nvtx: Any) -> None:
        self._domain = object.__new__(nvtx.Domain)  # whose __new__ asks
        self._domain.handle = nvtx._lib.lib.DomainHandle(DOMAIN)
        self._domain.__init__(DOMAIN)

    def push_range(self, name: str, domain: str, category: str | None, payload: int | None) -> None:
        self._domain.push_range(self._domain.get_event_attributes(name, None, category, payload))

    def pop_range(self, domain: str) -> None:
        self._domain.pop_range()

    def start_range(self, name: str, domain: str, category: str | None, payload: int | None) -> Any:
        return self._domain.start_range(self._domain.get_event_attributes(name, None, category, payload))

    def end_range(self, started: Any) -> None:
        self._domain.end_range(started)


def _profiling() -> Any:
    """The torch module while its profiler records, else None."""
    profiler = sys.modules.get("torch.autograd.profiler")
    if profiler is None or not getattr(profiler, "_is_profiler_enabled", False):
        return None
    return sys.modules["torch"]


def _with_role(name: str, role: str) -> str:
    """The metadata that holds every role so far.

    It is sent with every range, because a profiler forgets it between sessions and does not say when one
    begins; a send costs 0.2 µs where the range itself costs 12.
    """
    global _roles_json
    if role and _roles.get(name) != role:
        _roles[name] = role
        _roles_json = json.dumps({"roles": _roles})
    return _roles_json
