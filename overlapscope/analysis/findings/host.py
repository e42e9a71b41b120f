"""Time in which the GPU has nothing to do because the host has given it nothing; and copies that nothing hides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...classify import Kind
from ...intervals import EMPTY, Int64, covered, subtract, union
from ...trace import NA
from ..selection import COMPUTE, of_kind, running
from .finding import Facts, Figure, Found, Meanwhile

__all__ = ["exposed_copies", "late_launches"]

PAUSE_NS = 1_000_000
"""A launch takes 5 to 10 µs, the host's work between two ops tens to hundreds: whoever lets the GPU idle for a
millisecond does something else than launch."""


def late_launches(facts: Facts) -> Iterator[Found]:
    """Idle times before ops that were launched too late, short and long ones; and before those that were not."""
    gaps = _gaps(facts)
    late = gaps.of(gaps.launch > gaps.start)
    yield _launch_gaps(late)
    yield _pauses(late)
    yield _queued(gaps.of(gaps.launch <= gaps.start))


def _launch_gaps(gaps: _Gaps) -> Found:
    """Short idle times before ops that were launched too late.

    Idle before an op is the host's doing if the call that launched the op came after the end of all that ran before
    it. Cost: such idle times of less than 1 ms, without what lies under stalls of the profiler or under graphs that
    were traced as a whole.
    """
    short = gaps.of(gaps.whole < PAUSE_NS)
    return Found(
        "launch-gaps",
        "The GPU waits for launches",
        int(short.idle.sum()),
        short.ranks,
        {
            "n_gaps": len(short.op),
            "median_ns": short.median_ns,
            "longest_ns": short.longest["longest_ns"],
        },
        "CUDA graphs (torch.cuda.graph, torch.compile mode reduce-overhead), fewer and larger kernels (fusion, fused "
        "optimizers), no .item() or .cpu() between launches",
        meanwhile=short.on_host,
    )


def _pauses(gaps: _Gaps) -> Found:
    """Idle times of 1 ms and more before an op that was launched too late; cost as for launch gaps.

    ``longest_at_ns``: when the longest begins, since the trace's origin.
    """
    long = gaps.of(gaps.whole >= PAUSE_NS)
    return Found(
        "host-pauses",
        "The host leaves the GPU without work",
        int(long.idle.sum()),
        long.ranks,
        {"n_gaps": len(long.op), **long.longest},
        "look at what the host does in the longest: start-up and compilation (leave them out: --window, step ranges), "
        "data loading, checkpoints, logging, .item() and .cpu()",
        meanwhile=long.on_host,
    )


def _queued(gaps: _Gaps) -> Found:
    """Idle times before ops whose launch had begun before; cost as for launch gaps.

    Why they wait is not in the trace. ``longest_at_ns``: when the longest begins, since the trace's origin.
    """
    return Found(
        "queued-idle",
        "The GPU idles though work was launched",
        int(gaps.idle.sum()),
        gaps.ranks,
        {"n_gaps": len(gaps.op), "median_ns": gaps.median_ns, **gaps.longest},
        "short ones, which a GPU needs from one kernel to the next: fewer and larger kernels, CUDA graphs; long ones: "
        "look at what the op waits for (an event, another stream, memory), and at its launch call, which takes long "
        "where a kernel is loaded at its first use (warm up, or CUDA_MODULE_LOADING=EAGER)",
        gaps.op,
        gaps.idle,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Gaps:
    """Idle times before ops of which it is known when they were launched."""

    rank: Int64
    op: Int64  # position of the op in trace.ops
    launch: Int64
    thread: Int64  # that launched it
    start: Int64
    whole: Int64  # ns, as long as nothing ran
    idle: Int64  # ns of it that count

    def of(self, some: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> _Gaps:
        some = some & (self.idle > 0)
        return _Gaps(*(getattr(self, column)[some] for column in self.__slots__))

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(np.unique(self.rank).tolist())

    @property
    def median_ns(self) -> int | None:
        return int(np.median(self.whole)) if len(self.op) else None

    @property
    def longest(self) -> dict[str, Figure]:
        """How long the longest is, when it begins since the trace's origin, and on which rank."""
        columns = {"longest_ns": self.whole, "longest_at_ns": self.start, "longest_rank": self.rank}
        if not len(self.op):
            return dict.fromkeys(columns)
        at = int(np.argmax(self.whole))
        return {name: int(column[at]) for name, column in columns.items()}

    @property
    def on_host(self) -> Meanwhile:
        """When the host did something else: until it launched the op."""
        return Meanwhile(self.rank, self.thread, self.start, np.minimum(self.start + self.whole, self.launch))


def _gaps(facts: Facts) -> _Gaps:
    none = np.empty(0, np.int64)
    columns: list[tuple[Int64, ...]] = [(none,) * len(_Gaps.__slots__)]
    idle = facts.column("idle_ns")
    for rank, first, ops, window in facts.of_ranks():
        launch, thread = ops["launch"].to_numpy(), ops["thread"].to_numpy()
        if not facts.on_gpus or not idle[rank] or not len(launch) or (launch == NA).all():
            continue
        begin = ops["start"].to_numpy()
        busy = union(begin, ops["end"].to_numpy())
        start, end = busy.end[:-1], busy.start[1:]
        after = np.searchsorted(begin, end)
        known = launch[after] != NA
        start, end, after = start[known], end[known], after[known]
        counts = subtract(window, facts.trace.stalls.get(rank, EMPTY) | facts.trace.graphs.get(rank, EMPTY))
        columns.append(
            (
                np.full(len(start), rank),
                first + after,
                launch[after],
                thread[after],
                start,
                end - start,
                covered(counts, start, end),
            )
        )
    return _Gaps(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def exposed_copies(facts: Facts) -> Iterator[Found]:
    """Copies and memsets of a GPU while it neither computes nor communicates. Cost: exposed memory."""
    exposed = facts.column("exposed_memory_ns")
    if not facts.on_gpus or not any(exposed.values()):
        return
    by_name: Counter[str] = Counter()
    ops, weight = [], []
    for _, first, mine, window in facts.of_ranks():
        alone = subtract(window, running(mine, *COMPUTE, Kind.COMM))
        at = np.flatnonzero(of_kind(mine, Kind.MEMORY))
        start, end, name = (mine[c].to_numpy()[at] for c in ("start", "end", "name"))
        ns = covered(alone, start, end)
        ops.append(first + at)
        weight.append(ns)
        for code in np.unique(name).tolist():
            by_name[str(facts.trace.names["string"].iloc[code])] += int(ns[name == code].sum())
    yield Found(
        "exposed-copies",
        "Copies that nothing hides",
        sum(exposed.values()),
        tuple(rank for rank, ns in exposed.items() if ns),
        {"copies": [name for name, ns in by_name.most_common() if ns]},
        "pinned memory and non_blocking=True on a stream of their own, the next batch prefetched; keep on the GPU what "
        "goes to and fro; avoid contiguous(), cat, padding",
        np.concatenate(ops),
        np.concatenate(weight),
    )
