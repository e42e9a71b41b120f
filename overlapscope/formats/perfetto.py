"""Writes Chrome's trace JSON, which ui.perfetto.dev, chrome://tracing and Perfetto's trace processor read.

A process is a rank, a thread a track: exposed communication, the analysed window, steps, each lane of the GPU, each
host thread's ranges. ``ts`` and ``dur`` are µs, written digit by digit from integer ns and never through a float.
Layout: "Trace Event Format" of the Chromium project (X: complete events, M: metadata).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd

from ..files import replacing
from ..intervals import Int64, nesting
from ..trace import NA, Trace

__all__ = ["EXPOSED", "write"]

EXPOSED = "exposed communication"
"""The name of each rank's track of it."""

STATE_WORDS = {"wait": "waiting for a late rank", "wire": "transfer", "unsplit": "waiting or transfer"}

ARGUMENTS = ("bytes", "match", "overlap_ns", "exposed_ns", "wait_ns", "transfer_ns")
"""What is told of a communication op beside its collective, where it is known."""

AT_ONCE = 65_536  # events laid out before they are written: 20 MB


@dataclass(frozen=True, slots=True)
class _Track:
    """Events of one kind on one rank, in any order. Those that do not nest are shared out to several threads.

    ``heads`` are the beginnings of events, up to what is their own; ``head`` says which one each has. ``own`` gives
    the arguments of one event as JSON, "" for none.
    """

    rank: int
    label: str
    start: Int64
    end: Int64
    heads: list[str]
    head: Int64
    own: Mapping[int, str]


def write(
    trace: Trace,
    path: Path,
    *,
    instances: pd.DataFrame,
    pieces: pd.DataFrame,
    windows: pd.DataFrame,
    steps: pd.DataFrame,
    offsets: Mapping[int, int] | None = None,
    about: Mapping[str, str] | None = None,
    force: bool = False,
) -> int:
    """Write all ranks of a trace; gzipped where the name ends in ``.gz``.

    Parameters
    ----------
    trace : Trace
    path : Path
    instances : DataFrame
        What is told of communication ops: ``op`` (row of ``trace.ops``) and :data:`ARGUMENTS`.
    pieces : DataFrame
        Exposed communication: ``rank``, ``op``, ``state``, ``start``, ``end``, disjoint on each rank.
    windows, steps : DataFrame
        The analysed time and the program's steps: ``rank``, ``start``, ``end``; steps have a ``name``, too.
    offsets : mapping of int to int, optional
        ns by which each rank's clock is ahead: taken off all its times.
    about : mapping of str to str, optional
        Goes into ``otherData``.
    force : bool
        Replace the file if it exists.

    Returns
    -------
    int
        How many events were written, metadata not counted.

    Raises
    ------
    OptionError
        The file exists and `force` is not set, or its folder is missing.
    """
    ranks = trace.ranks["rank"].tolist()
    offsets = {rank: (offsets or {}).get(rank, 0) for rank in ranks}
    told = _arguments(trace, instances)
    about = dict(about or {})
    first = _first([trace.ops, trace.ranges, windows, steps], offsets)
    if first < 0:  # Perfetto drops what begins before 0
        offsets = {rank: offset + first for rank, offset in offsets.items()}
        about["zero"] = f"times count from {-first:,} ns before the trace's origin"
    if unclosed := int((trace.ranges["end"] == NA).sum()):
        about["left out"] = f"{unclosed} ranges that were never closed"
    n = 0
    with replacing(path, force=force) as beside, _opened(beside, gzipped=path.suffix == ".gz") as file:
        file.write(f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":[')
        thread = (
            max(ranks) + 2
        )  # threads' numbers are not those of processes: Perfetto takes such for main threads
        comma = ""
        for rank in ranks:
            file.write(comma + ",\n".join(_process(trace, rank)))
            comma = ",\n"
            for place, track in enumerate(_tracks(trace, rank, told, pieces, windows, steps)):
                rows = nesting(track.start, track.end)
                for row in range(int(rows.max(initial=0)) + 1):
                    label = track.label if row == 0 else f"{track.label} ({row + 1})"
                    file.write(comma + ",\n".join(_thread(rank, thread, label, place)))
                    n += _write_events(file, track, np.flatnonzero(rows == row), thread, offsets[rank])
                    thread += 1
        file.write("]}\n")
    return n


def _first(tables: Iterable[pd.DataFrame], offsets: Mapping[int, int]) -> int:
    """When the first of all begins, on the one clock that the offsets lead to."""
    firsts = [table.groupby("rank")["start"].min() for table in tables]
    return min(int(start) - offsets.get(int(rank), 0) for first in firsts for rank, start in first.items())


@contextmanager
def _opened(path: Path, *, gzipped: bool) -> Iterator[TextIO]:
    if not gzipped:
        with path.open("w", encoding="ascii") as file:
            yield file
        return
    # Without name and time, so that the same trace gives the same bytes.
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        TextIOWrapper(packed, "ascii") as file,
    ):
        yield file


# -- tracks --------------------------------------------------------------------------------------------------


def _tracks(
    trace: Trace,
    rank: int,
    told: Mapping[int, str],
    pieces: pd.DataFrame,
    windows: pd.DataFrame,
    steps: pd.DataFrame,
) -> Iterator[_Track]:
    yield _exposed(trace, rank, pieces[pieces["rank"] == rank])
    mine = windows[windows["rank"] == rank]
    yield _named(rank, "analysed window", mine.assign(name="analysed", cat="window"))
    mine = steps[steps["rank"] == rank]
    if len(mine):
        yield _named(rank, "steps", mine.assign(cat="step"))
    ops = trace.of_rank(rank)
    for lane, some in ops.groupby("lane", sort=True):
        yield _lane(trace, rank, trace.lanes["label"].iloc[int(str(lane))], some, told)
    ranges = trace.ranges[(trace.ranges["rank"] == rank) & (trace.ranges["end"] != NA)]
    for thread, mine in ranges.groupby("thread", sort=True):
        label = "ranges" if thread == NA else f"ranges of thread {thread}"
        yield _named(rank, label, mine.assign(cat=mine["domain"]), role=mine["role"])


def _exposed(trace: Trace, rank: int, pieces: pd.DataFrame) -> _Track:
    """One event a piece, named by its collective and what the rank did."""
    collective = trace.ops["collective"].astype(object).to_numpy()[pieces["op"].to_numpy()]
    words = [f"{c}: {STATE_WORDS[s]}" for c, s in zip(collective, pieces["state"], strict=True)]
    return _named(rank, EXPOSED, pieces.assign(name=words, cat="exposed"))


def _named(rank: int, label: str, table: pd.DataFrame, role: pd.Series[str] | None = None) -> _Track:
    """A track of a table's rows, by ``name`` and ``cat``."""
    key = pd.MultiIndex.from_arrays(
        [
            table["name"].astype(str),
            table["cat"].astype(str),
            pd.Series("", table.index) if role is None else role.astype(str),
        ]
    )
    code, distinct = pd.factorize(key)
    heads = [_head(name, cat, {"role": role} if role else {}) for name, cat, role in distinct.tolist()]
    start, end = (table[c].to_numpy(np.int64) for c in ("start", "end"))
    return _Track(rank, label, start, end, heads, np.asarray(code, np.int64), {})


def _lane(trace: Trace, rank: int, label: str, ops: pd.DataFrame, told: Mapping[int, str]) -> _Track:
    """A GPU's stream or, on a CPU run, a thread."""
    kinds = ops["kind"].cat
    pair = ops["name"].to_numpy().astype(np.int64) * len(kinds.categories) + kinds.codes.to_numpy()
    pairs, head = np.unique(pair, return_inverse=True)
    strings = trace.names["string"].to_numpy()
    heads = [
        _head(strings[p // len(kinds.categories)], str(kinds.categories[p % len(kinds.categories)]))
        for p in pairs.tolist()
    ]
    own = {place: told[op] for place, op in enumerate(ops.index.tolist()) if op in told}
    start, end = (ops[c].to_numpy() for c in ("start", "end"))
    return _Track(rank, label, start, end, heads, np.asarray(head, np.int64), own)


def _arguments(trace: Trace, instances: pd.DataFrame) -> dict[int, str]:
    """The arguments of communication ops, as JSON, by row of ``trace.ops``."""
    collective = trace.ops["collective"].astype(object).to_numpy()[instances["op"].to_numpy()]
    columns = [instances[name].astype(object).where(instances[name].notna(), None) for name in ARGUMENTS]
    found = {}
    for op, what, *values in zip(instances["op"].tolist(), collective, *columns, strict=True):
        known = {name: int(v) for name, v in zip(ARGUMENTS, values, strict=True) if v is not None}
        found[op] = json.dumps({"collective": what, **known}, separators=(",", ":"))
    return found


# -- events --------------------------------------------------------------------------------------------------


def _process(trace: Trace, rank: int) -> list[str]:
    (gpu,) = trace.ranks.loc[trace.ranks["rank"] == rank, "gpu"]
    name = f"rank {rank} · {gpu}" if isinstance(gpu, str) else f"rank {rank}"
    return [
        _metadata("process_name", rank, 0, {"name": name}),
        _metadata("process_sort_index", rank, 0, {"sort_index": rank}),
    ]


def _thread(rank: int, thread: int, label: str, place: int) -> list[str]:
    return [
        _metadata("thread_name", rank, thread, {"name": label}),
        _metadata("thread_sort_index", rank, thread, {"sort_index": place}),
    ]


def _metadata(what: str, rank: int, thread: int, arguments: Mapping[str, Any]) -> str:
    event = {"ph": "M", "name": what, "pid": _pid(rank), "tid": thread, "ts": 0, "args": arguments}
    return json.dumps(event, separators=(",", ":"))


def _pid(rank: int) -> int:
    """Not 0, which is the idle process of Linux to Perfetto."""
    return rank + 1


def _head(name: str, cat: str, arguments: Mapping[str, str] | None = None) -> str:
    # Names are hostile text: all but printable ASCII becomes an escape.
    args = f',"args":{json.dumps(dict(arguments), separators=(",", ":"))}' if arguments else ""
    return f'{{"ph":"X","name":{json.dumps(name)},"cat":{json.dumps(cat)}{args}'


def _write_events(file: TextIO, track: _Track, rows: Int64, thread: int, offset: int) -> int:
    """A thread's events by start, the outer of those that begin together first."""
    rows = rows[np.lexsort((-track.end[rows], track.start[rows]))]
    where = f'"pid":{_pid(track.rank)},"tid":{thread}}}'
    for first in range(0, len(rows), AT_ONCE):
        some = rows[first : first + AT_ONCE]
        columns: Iterable[tuple[int, int, int, int]] = zip(
            some.tolist(),
            track.head[some].tolist(),
            (track.start[some] - offset).tolist(),
            (track.end[some] - track.start[some]).tolist(),
            strict=True,
        )
        for row, head, start, length in columns:
            own = track.own.get(row)
            args = f',"args":{own}' if own else ""
            file.write(f',\n{track.heads[head]},"ts":{_us(start)},"dur":{_us(length)}{args},{where}')
    return len(rows)


def _us(ns: int) -> str:
    """ns as µs, exactly."""
    whole, rest = divmod(abs(ns), 1000)
    return f"{'-' * (ns < 0)}{whole}.{rest:03d}"
