"""Reading a file into a `RawTrace`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from ...classify import Classifier
from ...errors import InputError
from ...intervals import union
from ...markers import DOMAIN
from ..raw import RawRanges, RawTrace, Unit
from .events import Event, Events, File, TimeError, decode, integers, optional, spans
from .gpu import LAUNCH, read_gpu
from .host import ANNOTATION, OPERATOR, read_host

__all__ = ["read"]

OVERHEAD = {"overhead"}
MOST_RANKS = 10**9  # what exceeds it is no rank


def read(path: Path, classifier: Classifier) -> RawTrace:
    """Read one file.

    A file without GPU activity is read for its host lanes: the operators that compute, and gloo's collectives.

    Raises
    ------
    InputError
        Cut off, not a trace, without ops, or with GPU work that was not recorded.
    """
    file = decode(path)
    events = Events(file.events)
    rank = optional(file.distributed.get("rank"))
    unit = Unit(pid=_pid(events), rank=rank if rank is not None and 0 <= rank < MOST_RANKS else None)
    try:
        trace = read_gpu(file, events, classifier, unit)
        if trace is None:
            del file, events  # a file is never held twice
            file = decode(path, shapes=True)
            events = Events(file.events)
            trace = read_host(file, events, classifier, unit)
        ops = set(trace.names.pairs)
        annotations = [e for e in events.of(ANNOTATION) if (str(e.name), None) not in ops]
        trace.ranges = _ranges(annotations, file.roles)
        overhead = events.of(OVERHEAD)
        trace.overhead = {unit.process: union(*spans(overhead))} if overhead else {}
    except TimeError as error:
        raise InputError(f"not a profiler trace ({error})", "record it again", path) from error
    trace.link = next((n.removeprefix("link ") for n, role in file.roles.items() if role == "link"), None)
    trace.world_size = optional(file.distributed.get("world_size"))
    trace.ranks_from = "recorded by PyTorch (distributedInfo)" if unit.rank is not None else None
    trace.dropped += events.dropped.values()
    _count_from_first(trace, file)
    return trace


def _pid(events: Events) -> int | None:
    """The process, as the host events name it; GPU events carry the device in its place."""
    pids = Counter(e.pid for e in events.sample(LAUNCH | OPERATOR | ANNOTATION) if isinstance(e.pid, int))
    return pids.most_common(1)[0][0] if pids else None


def _ranges(events: list[Event], roles: dict[str, str]) -> RawRanges:
    start, end = spans(events)
    names = [str(e.name) for e in events]
    return RawRanges(
        start=start,
        end=end,
        process=np.zeros(len(events), np.int64),
        thread=integers([e.tid for e in events]),
        name=names,
        domain=[DOMAIN if name in roles else "" for name in names],
        role=[roles.get(name, "") for name in names],
    )


def _count_from_first(trace: RawTrace, file: File) -> None:
    """Count times from the file's first op or range, so that they are small; the wall clock is kept."""
    first = min(int(table.start.min()) for table in (trace.ops, trace.ranges) if len(table))
    trace.origin_ns = file.base_ns + first
    trace.shift(-first)
