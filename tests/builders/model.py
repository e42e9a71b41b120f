"""The records of a handmade trace: what happened, before any tool's format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "COPY_KINDS",
    "SYNC_KINDS",
    "Annotation",
    "Call",
    "Collective",
    "HostOp",
    "Nccl",
    "Op",
    "Range",
    "Sync",
]

COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "HtoH": 9, "PtoP": 10}
"""CUpti_ActivityMemcpyKind."""

SYNC_KINDS = {"event": 1, "stream_wait": 2, "stream": 3, "context": 4}
"""CUpti_ActivitySynchronizationType."""


@dataclass(frozen=True)
class Call:
    """A CUDA API call on the host: a launch, or one that launches nothing."""

    name: str
    start: int
    end: int
    thread: int
    correlation: int


@dataclass(frozen=True)
class Collective:
    """What PyTorch writes beside an NCCL kernel. Element counts, not bytes."""

    name: str  # as PyTorch says it: allreduce, _allgather_base, _reduce_scatter_base, send, ...
    in_elements: int
    out_elements: int | None = None  # None: as many as go in
    dtype: str = "BFloat16"
    ranks: Sequence[int] = (0, 1)
    group: str = "0"
    description: str = "default_pg"
    seq: int | None = None
    peer: tuple[int, int] | None = None  # (src, dst) of a send or receive


@dataclass(frozen=True)
class Nccl:
    """Payload of a range that NCCL itself records in its NVTX domain."""

    comm: int  # uint64
    nbytes: int | None = None
    op: str | None = None  # reduction operation
    root: int | None = None
    peer: int | None = None
    ranks: int | None = None  # of the ncclCommInit calls, with rank and device
    rank: int | None = None
    device: int | None = None


@dataclass(frozen=True)
class Op:
    """One activity of a GPU; `what` is kernel, memcpy, memset or graph."""

    what: str
    name: str
    short: str
    start: int
    end: int
    device: int
    stream: int
    correlation: int
    launch: Call | None
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (128, 1, 1)
    nbytes: int = 0
    copy: str = ""  # one of COPY_KINDS
    host: str = "Pageable"  # or Pinned: the host side's memory
    src: int | None = None  # devices of a PtoP copy
    dst: int | None = None
    graph_node: int | None = None
    collective: Collective | None = None


@dataclass(frozen=True)
class Annotation:
    """A range projected on a stream (PyTorch's gpu_user_annotation). Never an op."""

    name: str
    start: int
    end: int
    device: int
    stream: int


@dataclass(frozen=True)
class Sync:
    """A wait, in the table of waits. Never an op."""

    kind: str  # one of SYNC_KINDS
    start: int
    end: int
    device: int
    stream: int | None
    call: Call


@dataclass(frozen=True)
class Range:
    """An NVTX range or mark, or an annotation of PyTorch's profiler."""

    name: str
    start: int
    end: int | None  # None: never closed
    thread: int
    domain: str | None
    category: str | None
    kind: str  # push_pop, start_end, mark
    end_thread: int | None
    payload: int | float | Nccl | None
    registered: bool  # the name is a registered string: textId instead of text


@dataclass(frozen=True)
class HostOp:
    """An operator on a CPU thread, as PyTorch's profiler sees it."""

    name: str
    start: int
    end: int
    thread: int
    dims: Sequence[Sequence[int]] | None
    dtype: str
