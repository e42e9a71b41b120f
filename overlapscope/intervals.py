"""Interval algebra on integer nanoseconds. Knows nothing of GPUs.

Every interval is half-open, ``[start, end)``, in int64. A :class:`Spans` is a *set* of instants written as
sorted, disjoint, non-touching, non-empty intervals; raw intervals (two arrays that may overlap, in any order)
become one through :func:`union`. All of it is vectorised and, on sorted input, linear.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal

import numpy as np
import numpy.typing as npt

__all__ = [
    "EMPTY",
    "Int64",
    "Spans",
    "around",
    "claim",
    "covered",
    "enclosing",
    "held",
    "innermost",
    "intersect",
    "measure",
    "meets",
    "nesting",
    "outermost",
    "shift",
    "span",
    "stacked",
    "subtract",
    "union",
    "unions",
]

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """A set of instants: sorted, disjoint, non-touching, non-empty ``[start[i], end[i])``."""

    start: Int64
    end: Int64

    def __len__(self) -> int:
        return len(self.start)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Spans):
            return NotImplemented
        return bool(np.array_equal(self.start, other.start) and np.array_equal(self.end, other.end))

    __hash__ = None  # type: ignore[assignment]

    def __and__(self, other: Spans) -> Spans:
        return intersect(self, other)

    def __or__(self, other: Spans) -> Spans:
        return union(np.concatenate([self.start, other.start]), np.concatenate([self.end, other.end]))

    def __sub__(self, other: Spans) -> Spans:
        return subtract(self, other)


_NONE = np.empty(0, np.int64)
EMPTY = Spans(_NONE, _NONE)


def span(start: int, end: int) -> Spans:
    """The one interval ``[start, end)``; empty where ``end <= start``."""
    if end <= start:
        return EMPTY
    return Spans(np.array([start], np.int64), np.array([end], np.int64))


def shift(a: Spans, by: int) -> Spans:
    """The same set `by` ns later."""
    return Spans(a.start + by, a.end + by)


def union(start: Int64, end: Int64) -> Spans:
    """The set of instants that at least one ``[start[i], end[i])`` holds. Any order; empty ones vanish."""
    if len(start) == 0:
        return EMPTY
    solid = end > start
    if not solid.all():
        start, end = start[solid], end[solid]
        if len(start) == 0:
            return EMPTY
    start, end = _by_start(start, end)
    reach = np.maximum.accumulate(end)
    # An interval opens a new span where it starts after everything before it has ended.
    opens = np.empty(len(start), np.bool_)
    opens[0] = True
    np.greater(start[1:], reach[:-1], out=opens[1:])
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(start)) - 1
    return Spans(start[first], reach[last])


def unions(group: Int64, start: Int64, end: Int64) -> tuple[Int64, Int64, Int64]:
    """The `union` of each group's intervals, all groups at once: (group, start, end), by group and start.

    Groups are numbered from 0. Any order.
    """
    if len(start) == 0:
        return _NONE, _NONE, _NONE
    # One axis on which the groups' times follow each other. Places of times, not times: those would not fit.
    times, place = np.unique(np.concatenate([start, end]), return_inverse=True)
    width = len(times) + 1  # one place more than needed, so that two groups never touch
    first, last = group * width + place.reshape(2, -1)
    found = union(first, last)
    return found.start // width, times[found.start % width], times[found.end % width]


def intersect(a: Spans, b: Spans) -> Spans:
    """The instants in both."""
    if len(a) == 0 or len(b) == 0:
        return EMPTY
    # Each span of `a` meets a run of consecutive spans of `b`; lay the pairs out flat.
    first = _places(b.end, a.start, "right")
    last = _places(b.start, a.end, "left")
    count = np.maximum(last - first, 0)
    left = np.repeat(np.arange(len(a)), count)
    if len(left) == 0:
        return EMPTY
    offset = np.arange(len(left)) - np.repeat(np.cumsum(count) - count, count)
    right = first[left] + offset
    return Spans(np.maximum(a.start[left], b.start[right]), np.minimum(a.end[left], b.end[right]))


def subtract(a: Spans, b: Spans) -> Spans:
    """The instants in `a` and not in `b`."""
    if len(a) == 0 or len(b) == 0:
        return a
    lo, hi = int(min(a.start[0], b.start[0])), int(max(a.end[-1], b.end[-1]))
    gaps_start = np.concatenate([[lo], b.end])
    gaps_end = np.concatenate([b.start, [hi]])
    solid = gaps_end > gaps_start
    return intersect(a, Spans(gaps_start[solid], gaps_end[solid]))


def measure(a: Spans) -> int:
    """How long the set is, in ns."""
    return int(np.sum(a.end - a.start)) if len(a) else 0


def covered(a: Spans, start: Int64, end: Int64) -> Int64:
    """For each ``[start[i], end[i])`` the length of its part that lies in `a`, in ns. Any order."""
    return np.asarray(np.maximum(_before(a, end) - _before(a, start), 0), np.int64)


def meets(a: Spans, start: Int64, end: Int64) -> npt.NDArray[np.bool_]:
    """Mask of the ``[start[i], end[i])`` of which a part lies in `a`. Any order; empty ones have none."""
    if len(a) == 0:
        return np.zeros(len(start), np.bool_)
    # The first span that ends after the start: does it begin before the end?
    first = _places(a.end, start, "right")
    begins = np.append(a.start, np.iinfo(np.int64).max)[first]
    return np.asarray((begins < end) & (start < end), np.bool_)


def claim(start: Int64, end: Int64, tie: Int64) -> tuple[Int64, Int64]:
    """Give each instant to exactly one interval: the one that started first (same start: the lower `tie`).

    What an interval owns is one piece, since whatever hides its head started earlier: it runs from the latest
    end among those before it to its own end. The pieces are disjoint and their union is the union of all.

    Returns
    -------
    (own_start, own_end)
        In the order of the input; an interval that owns nothing has ``own_start == own_end``.
    """
    if len(start) == 0:
        return _NONE, _NONE
    order = np.lexsort((np.arange(len(start)), tie, start))
    reach = np.maximum.accumulate(end[order])
    own_start = start[order].copy()
    np.maximum(own_start[1:], reach[:-1], out=own_start[1:])
    np.minimum(own_start, end[order], out=own_start)
    back = np.empty(len(start), np.int64)
    back[order] = own_start
    return back, end


def outermost(start: Int64, end: Int64) -> npt.NDArray[np.bool_]:
    """Mask of the intervals that lie in no other one, of intervals that nest (calls of one thread). Any order.

    Of equal intervals the first is the outermost.
    """
    keep = np.ones(len(start), np.bool_)
    if len(start) == 0:
        return keep
    order = np.lexsort((np.arange(len(start)), -end, start))
    reach = np.maximum.accumulate(end[order])
    inside = end[order][1:] <= reach[:-1]
    # An empty interval at the very end of an earlier one stands beside it, not in it.
    inside &= start[order][1:] < reach[:-1]
    keep[order[1:]] = ~inside
    return keep


def nesting(start: Int64, end: Int64) -> Int64:
    """For each interval the lowest row on which it and those before it nest: apart, or one inside the other. Any order.

    All of a program's calls lie on row 0; what begins inside another interval and outlasts it goes on a row of its
    own. Of equal intervals the first holds the second.
    """
    row = np.zeros(len(start), np.int64)
    order = np.lexsort((-end, start))
    start, end = start[order], end[order]
    if not np.any(start[1:] < np.maximum.accumulate(end)[:-1]):  # one after the other
        return row
    rows: list[list[int]] = []  # of each, the ends of what is open, outermost first
    for i, first, last in zip(order.tolist(), start.tolist(), end.tolist(), strict=True):
        for open_ends in rows:
            while open_ends and open_ends[-1] <= first:
                open_ends.pop()
            if not open_ends or last <= open_ends[-1]:
                break
        else:
            rows.append(open_ends := [])
        open_ends.append(last)
        row[i] = next(k for k, ends in enumerate(rows) if ends is open_ends)
    return row


def around(start: Int64, end: Int64, instant: Int64) -> npt.NDArray[np.bool_]:
    """Mask of the intervals that hold one of the instants at least. Any order."""
    instant = np.sort(instant)
    return np.searchsorted(instant, end) > np.searchsorted(instant, start)


def innermost(start: Int64, end: Int64, instant: Int64) -> Int64:
    """For each instant the interval that holds it and began last (of those that began together, the one that
    ends first): its position, or -1 where none holds it. Any order; where intervals nest it is the innermost.

    A step of the search goes from an interval to the nearest one before it that ends later, so it takes no more
    steps than intervals nest, however many stand side by side.
    """
    if len(start) == 0:
        return np.full(len(instant), -1, np.int64)
    order = np.lexsort((-end, start))
    start, end = start[order], end[order]
    outer = _encloses(end)
    at = np.searchsorted(start, instant, side="right") - 1
    astray = np.flatnonzero(at >= 0)
    while len(astray):
        astray = astray[end[at[astray]] <= instant[astray]]
        at[astray] = outer[at[astray]]
        astray = astray[at[astray] >= 0]
    return np.asarray(np.where(at >= 0, order[at], -1), np.int64)


def held(start: Int64, end: Int64) -> tuple[Int64, Int64, Int64]:
    """The time that each interval holds as the :func:`innermost`: what its inner ones leave of it.

    Returns
    -------
    (start, end, owner)
        Disjoint pieces in order, with the position of the interval that each belongs to. Pieces that touch have
        different owners.
    """
    edges = np.unique(np.concatenate([start, end]))
    if len(edges) < 2:
        return _NONE, _NONE, _NONE
    owner = innermost(start, end, edges[:-1])
    first = np.flatnonzero(np.concatenate([[True], owner[1:] != owner[:-1]]))
    last = np.append(first[1:], len(owner))
    some = owner[first] >= 0
    return edges[first][some], edges[last][some], owner[first][some]


def enclosing(start: Int64, end: Int64) -> Int64:
    """For each interval the innermost other one that holds all of it, as a position, or -1. Any order.

    Of equal intervals the earlier in the input encloses the later. None may be empty.
    """
    order = np.lexsort((np.arange(len(start)), -end, start))
    outer = _encloses(end[order])
    found = np.full(len(start), -1, np.int64)
    inside = outer >= 0
    found[order[inside]] = order[outer[inside]]
    return found


def stacked(start: Int64, end: Int64) -> Int64:
    """For each interval the lowest row on which nothing that began before it still runs. Any order.

    The intervals of a row are disjoint. Of those that begin together the longest comes first, so that intervals
    that nest lie by depth.
    """
    row = np.zeros(len(start), np.int64)
    if len(start) == 0:
        return row
    order = np.lexsort((-end, start))
    start, end = start[order], end[order]
    meets = np.concatenate([[False], start[1:] < np.maximum.accumulate(end)[:-1], [False]])
    # The first that others meet stays on row 0, too, but takes it.
    crowded = np.flatnonzero(meets[:-1] | meets[1:])
    busy: list[tuple[int, int]] = []  # (end, row)
    free: list[int] = []
    rows = 0
    taken = np.empty(len(crowded), np.int64)
    for i, (first, last) in enumerate(zip(start[crowded].tolist(), end[crowded].tolist(), strict=True)):
        while busy and busy[0][0] <= first:
            heappush(free, heappop(busy)[1])
        if not free:
            free.append(rows)
            rows += 1
        taken[i] = heappop(free)
        heappush(busy, (last, int(taken[i])))
    row[order[crowded]] = taken
    return row


def _encloses(end: Int64) -> Int64:
    """For each interval, by start, the nearest one before it that ends no earlier, or -1."""
    outer = np.arange(len(end), dtype=np.int64) - 1
    shorter = np.flatnonzero(outer >= 0)
    while len(shorter):
        # What lies between an interval and its candidate ends earlier than the interval. If the candidate
        # does, too, that holds up to the candidate's own candidate: steps double.
        shorter = shorter[end[outer[shorter]] < end[shorter]]
        outer[shorter] = outer[outer[shorter]]
        shorter = shorter[outer[shorter] >= 0]
    return outer


def _before(a: Spans, instant: Int64) -> Int64:
    """Length of the part of `a` that lies before each instant."""
    if len(a) == 0:
        return np.zeros(len(instant), np.int64)
    index = _places(a.start, instant, "right")
    total = np.concatenate([[0], np.cumsum(a.end - a.start)])
    # Of the last span begun, take back what lies after the instant; before the first there is none.
    last_end = np.concatenate([a.start[:1], a.end])[index]
    beyond = np.where(index > 0, np.maximum(last_end - instant, 0), 0)
    return np.asarray(total[index] - beyond, np.int64)


def _places(edges: Int64, instants: Int64, side: Literal["left", "right"]) -> Int64:
    """``np.searchsorted(edges, instants, side)``; where there are more instants, and in order, in linear time."""
    if len(edges) >= len(instants) or np.any(instants[1:] < instants[:-1]):
        return np.asarray(np.searchsorted(edges, instants, side), np.int64)
    # The other way round: each edge's place among the instants; between two edges the answer stays the same.
    cuts = np.searchsorted(instants, edges, "left" if side == "right" else "right")
    return np.repeat(np.arange(len(edges) + 1), np.diff(cuts, prepend=0, append=len(instants)))


def _by_start(start: Int64, end: Int64) -> tuple[Int64, Int64]:
    if np.all(start[1:] >= start[:-1]):
        return start, end
    order = np.argsort(start, kind="stable")
    return start[order], end[order]
