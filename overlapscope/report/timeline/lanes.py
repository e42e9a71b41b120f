"""What a timeline shows, before it is drawn: lanes on which nothing overlaps, and a rank's state over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from ...analysis.matching import Places
from ...analysis.overlap import Overlap, owned
from ...analysis.selection import COMPUTE, of_kind, running, touching
from ...analysis.window import find_steps, step_bounds
from ...classify import Kind
from ...errors import OptionError
from ...intervals import EMPTY, Int64, Spans, intersect, measure, shift, span, stacked
from ...trace import NA, Trace

__all__ = ["STATES", "Lane", "Lanes", "Step", "Strip", "lanes"]

STATES = ("compute", "overlapped", "exposed_comm", "exposed_memory", "idle")
"""What a rank does at an instant; each instant of its window has one state."""


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """Ops of a stream, or ranges of a thread: sorted, none beginning before the one before it has ended."""

    rank: int
    label: str
    ranges: bool
    row: int  # of those that a stream or thread needs for what runs at once
    position: Int64  # in `Trace.ops` or `Trace.ranges`
    start: Int64
    end: Int64
    exposed: Spans = field(
        default_factory=lambda: EMPTY
    )  # when its communication is exposed, each piece inside one op

    def earlier(self, by: int) -> Lane:
        """The same, by so many ns earlier."""
        return replace(self, start=self.start - by, end=self.end - by, exposed=shift(self.exposed, -by))


@dataclass(frozen=True, slots=True, eq=False)
class Strip:
    """A rank's state over its window: pieces in order, as positions in :data:`STATES`."""

    rank: int
    start: Int64
    end: Int64
    state: Int64

    def earlier(self, by: int) -> Strip:
        """The same, by so many ns earlier."""
        return replace(self, start=self.start - by, end=self.end - by)

    def total(self, state: str) -> int:
        """How long the rank is in a state, ns."""
        mine = self.state == STATES.index(state)
        return int((self.end[mine] - self.start[mine]).sum())


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a rank, from the first op launched inside it to the last one's end, ns."""

    rank: int
    name: str
    start: int
    end: int
    warmup: bool


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """All that is drawn, between the first window's start and the last one's end.

    Times are those of one clock: what a rank's own is ahead in the middle of its window is taken off.

    Attributes
    ----------
    start, end : int
        That time, ns since the trace's origin. What straddles it keeps its own start and end.
    lanes : tuple of Lane
        By rank: ranges by depth, then streams, compute above communication above copies.
    strips : tuple of Strip
        One per rank.
    steps : tuple of Step
        By rank and start, warm-up among them.
    left_out : tuple of str
        What is not drawn and why, in words.
    """

    start: int
    end: int
    lanes: tuple[Lane, ...]
    strips: tuple[Strip, ...]
    steps: tuple[Step, ...]
    left_out: tuple[str, ...] = ()


def lanes(trace: Trace, result: Overlap, *, most: int, step_pattern: str | None = None) -> Lanes:
    """Lay a trace out in lanes.

    Parameters
    ----------
    trace : Trace
    result : Overlap
        What `overlap` found of it, with its windows.
    most : int
        How many lanes there may be, strips not counted. Each rank loses the least busy first.
    """
    of_rank = result.windows.of_rank
    ahead = result.matching.clocks.ahead(of_rank)
    solid = [shift(window, -ahead[rank]) for rank, window in of_rank.items() if len(window)]
    if not solid:
        raise OptionError("holds nothing to draw: no op in it lasts", "name another piece", "the window")
    whole = span(min(int(w.start[0]) for w in solid), max(int(w.end[-1]) for w in solid))
    place = result.matching.places(len(trace.ops))
    found, strips = [], []
    for rank in trace.ranks["rank"].tolist():
        window, ops, by = of_rank[rank], trace.of_rank(rank), ahead[rank]
        own = shift(whole, by)  # on the rank's own clock
        strips.append(_strip(rank, ops, window).earlier(by))
        drawn = [
            *_range_lanes(trace, rank, own),
            *_op_lanes(trace, ops, rank, own, window - running(ops, *COMPUTE), place),
        ]
        found += [lane.earlier(by) for lane in drawn]
    kept = _busiest(found, most)
    said = _left_out(trace, found, kept)
    steps = tuple(_steps(trace, whole, ahead, step_pattern))
    return Lanes(int(whole.start[0]), int(whole.end[0]), kept, tuple(strips), steps, said)


def _strip(rank: int, ops: pd.DataFrame, window: Spans) -> Strip:
    C, M, X = (running(ops, *kinds) & window for kinds in (COMPUTE, [Kind.COMM], [Kind.MEMORY]))
    parts = (C - M, C & M, M - C, X - (C | M), window - (C | M | X))
    start, end = (np.concatenate([getattr(p, side) for p in parts]) for side in ("start", "end"))
    state = np.repeat(np.arange(len(parts)), [len(p) for p in parts])
    order = np.argsort(start)
    strip = Strip(rank, start[order], end[order], state[order])
    assert int((end - start).sum()) == measure(window), f"rank {rank}: its states do not fill its window"
    return strip


def _range_lanes(trace: Trace, rank: int, whole: Spans) -> Iterator[Lane]:
    """Ranges by thread and depth; one that was never closed is none."""
    ranges = trace.ranges
    mine = ((ranges["rank"] == rank) & (ranges["end"] != NA)).to_numpy()
    position = np.flatnonzero(mine)
    start, end = (ranges[c].to_numpy()[position] for c in ("start", "end"))
    inside = touching(whole, start, end)
    position, start, end = position[inside], start[inside], end[inside]
    threads, first = np.unique(ranges["thread"].to_numpy()[position], return_index=True)
    for thread in threads[np.argsort(first)].tolist():
        some = np.flatnonzero(ranges["thread"].to_numpy()[position] == thread)
        label = "ranges" if len(threads) == 1 or thread == NA else f"ranges, thread {thread}"
        yield from _rows(Lane(rank, label, True, 0, position[some], start[some], end[some]))


def _op_lanes(
    trace: Trace, ops: pd.DataFrame, rank: int, whole: Spans, uncovered: Spans, place: Places
) -> Iterator[Lane]:
    """A rank's streams: compute, then communication, then copies, each by number."""
    start, end, lane = (ops[c].to_numpy() for c in ("start", "end", "lane"))
    own_start, own_end = start.copy(), start.copy()
    comm = of_kind(ops, Kind.COMM)
    own_start[comm], own_end[comm], *_ = owned(ops[comm], place)
    inside = touching(whole, start, end)
    streams = []
    for number in np.unique(lane[inside]).tolist():
        some = np.flatnonzero(inside & (lane == number))
        position = ops.index.to_numpy()[some]
        label = str(trace.lanes["label"].iloc[number])
        streams.append(
            (_order_of(ops.iloc[some]), number, Lane(rank, label, False, 0, position, start[some], end[some]))
        )
    first = int(ops.index[0]) if len(ops) else 0
    for *_, stream in sorted(streams, key=lambda s: s[:2]):
        for row in _rows(stream):
            at = row.position - first
            owns = own_end[at] > own_start[at]
            pieces = intersect(Spans(own_start[at][owns], own_end[at][owns]), uncovered)
            yield replace(row, exposed=pieces)


def _order_of(ops: pd.DataFrame) -> int:
    """Where a stream stands: above all others if anything computes on it, then if anything communicates."""
    order = (COMPUTE, (Kind.COMM,), (Kind.MEMORY,))
    return next(i for i, kinds in enumerate(order) if of_kind(ops, *kinds).any())


def _rows(lane: Lane) -> Iterator[Lane]:
    """A stream's or thread's lanes: as many as it has at once."""
    row = stacked(lane.start, lane.end)
    order = np.lexsort((lane.end, lane.start, row))
    for number, some in enumerate(np.split(order, np.flatnonzero(np.diff(row[order])) + 1)):
        if len(some):
            columns = {c: getattr(lane, c)[some] for c in ("position", "start", "end")}
            yield replace(lane, row=number, **columns)


def _busiest(found: list[Lane], most: int) -> tuple[Lane, ...]:
    """At most so many lanes: of every rank streams by their time, then ranges from the outermost."""
    if len(found) <= most:
        return tuple(found)
    place: dict[int, int] = {}
    by_worth = sorted(
        range(len(found)),
        key=lambda i: (found[i].ranges, found[i].row if found[i].ranges else -_time(found[i])),
    )
    keys = []
    for i in by_worth:
        nth = place[found[i].rank] = place.get(found[i].rank, -1) + 1
        keys.append((nth, found[i].rank, i))
    return tuple(found[i] for i in sorted(i for _, _, i in sorted(keys)[:most]))


def _time(lane: Lane) -> int:
    return int((lane.end - lane.start).sum())


def _left_out(trace: Trace, found: list[Lane], kept: tuple[Lane, ...]) -> tuple[str, ...]:
    said = []
    drawn = {id(lane) for lane in kept}
    dropped = [lane for lane in found if id(lane) not in drawn]
    if dropped:
        n = sum(len(lane.position) for lane in dropped)
        said.append(
            f"{len(dropped):,} of {len(found):,} lanes are not drawn ({n:,} ops and ranges, of each rank the least "
            "busy lanes; --max-lanes draws more); states and figures count them"
        )
    never = int((trace.ranges["end"] == NA).sum())
    if never:
        said.append(f"{never:,} ranges were never closed and are not drawn")
    return tuple(said)


def _steps(trace: Trace, whole: Spans, ahead: Mapping[int, int], pattern: str | None) -> Iterator[Step]:
    found = find_steps(trace, pattern)
    for rank in trace.ranks["rank"].tolist():
        mine = found[found["rank"] == rank]
        which, start, end = step_bounds(trace.of_rank(rank), mine)
        by = ahead[rank]
        start, end = start - by, end - by
        seen = touching(whole, start, end)
        for i, a, b in zip(which[seen].tolist(), start[seen].tolist(), end[seen].tolist(), strict=True):
            yield Step(rank, str(mine["name"].iloc[i]), a, b, bool(mine["warmup"].iloc[i]))
