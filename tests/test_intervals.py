"""Interval algebra against a counter that walks every instant."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlapscope.intervals import (
    EMPTY,
    Spans,
    around,
    claim,
    covered,
    held,
    innermost,
    intersect,
    measure,
    meets,
    outermost,
    span,
    subtract,
    union,
)

Pairs = list[tuple[int, int]]

pairs = st.lists(
    st.tuples(st.integers(-20, 40), st.integers(0, 15)).map(lambda t: (t[0], t[0] + t[1])), max_size=12
)


def arrays(some: Pairs) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(some, np.int64).reshape(-1, 2)
    return both[:, 0].copy(), both[:, 1].copy()


def instants(some: Pairs) -> set[int]:
    return {t for start, end in some for t in range(start, end)}


def of(spans: Spans) -> set[int]:
    return instants(list(zip(spans.start.tolist(), spans.end.tolist(), strict=True)))


def make(some: Pairs) -> Spans:
    return union(*arrays(some))


def assert_canonical(spans: Spans) -> None:
    assert spans.start.dtype == spans.end.dtype == np.int64
    assert (spans.end > spans.start).all()
    assert (spans.start[1:] > spans.end[:-1]).all()


@pytest.mark.parametrize(
    ("some", "expected"),
    [
        ([], []),
        ([(3, 3)], []),
        ([(0, 5), (5, 9)], [(0, 9)]),
        ([(0, 5), (6, 9)], [(0, 5), (6, 9)]),
        ([(6, 9), (0, 5), (1, 2)], [(0, 5), (6, 9)]),
        ([(0, 10), (2, 3), (9, 12)], [(0, 12)]),
    ],
)
def test_union_of_a_few(some: Pairs, expected: Pairs) -> None:
    spans = make(some)
    assert list(zip(spans.start.tolist(), spans.end.tolist(), strict=True)) == expected


def test_span_without_length_is_empty() -> None:
    assert span(4, 4) == EMPTY
    assert span(5, 4) == EMPTY
    assert measure(span(4, 9)) == 5


@given(pairs)
def test_union_holds_each_instant_once(some: Pairs) -> None:
    spans = make(some)
    assert_canonical(spans)
    assert of(spans) == instants(some)
    assert measure(spans) == len(instants(some))


@given(pairs, st.randoms(use_true_random=False))
def test_order_does_not_matter(some: Pairs, random: object) -> None:
    shuffled = some.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert make(shuffled) == make(some)


@given(pairs, pairs)
def test_set_operations(a: Pairs, b: Pairs) -> None:
    left, right = make(a), make(b)
    for result, expected in (
        (intersect(left, right), instants(a) & instants(b)),
        (subtract(left, right), instants(a) - instants(b)),
        (left | right, instants(a) | instants(b)),
    ):
        assert_canonical(result)
        assert of(result) == expected


@given(pairs, pairs, st.booleans())
def test_covered_measures_each_interval(a: Pairs, b: Pairs, in_order: bool) -> None:
    b = sorted(b) if in_order else b
    common = [len(instants(a) & set(range(s, e))) for s, e in b]
    assert covered(make(a), *arrays(b)).tolist() == common
    assert meets(make(a), *arrays(b)).tolist() == [n > 0 for n in common]


@given(pairs, st.data())
def test_claim_gives_each_instant_to_the_first_starter(some: Pairs, data: st.DataObject) -> None:
    ties = data.draw(st.lists(st.integers(0, 3), min_size=len(some), max_size=len(some)))
    start, end = arrays(some)
    own_start, own_end = claim(start, end, np.array(ties, np.int64))
    owned = [set(range(s, e)) for s, e in zip(own_start.tolist(), own_end.tolist(), strict=True)]
    expected: list[set[int]] = [set() for _ in some]
    for t in instants(some):
        running = [i for i, (s, e) in enumerate(some) if s <= t < e]
        expected[min(running, key=lambda i: (some[i][0], ties[i], i))].add(t)
    assert owned == expected


def nested(low: int, high: int, depth: int) -> st.SearchStrategy[Pairs]:
    """Calls of one thread: intervals that nest or follow each other, never cross."""
    if depth == 0 or high - low < 2:
        return st.just([])

    def with_children(bounds: tuple[int, int]) -> st.SearchStrategy[Pairs]:
        start, end = sorted(bounds)
        return st.tuples(nested(start, end, depth - 1), nested(end, high, depth - 1)).map(
            lambda both: [(start, end), *both[0], *both[1]]
        )

    return st.tuples(st.integers(low, high), st.integers(low, high)).flatmap(with_children)


@given(nested(0, 40, 4))
def test_outermost_keeps_what_no_other_holds(some: Pairs) -> None:
    keep = outermost(*arrays(some))
    for i, (s, e) in enumerate(some):
        if s == e:
            continue  # an empty call has no place of its own
        inside = any(
            (a <= s and e <= b) and ((a, b) != (s, e) or j < i) for j, (a, b) in enumerate(some) if j != i
        )
        assert keep[i] == (not inside)


def test_large_times_stay_exact() -> None:
    epoch = 1_711_964_646_000_000_123
    a = span(epoch, epoch + 10)
    assert covered(a, np.array([epoch + 3]), np.array([epoch + 4])).tolist() == [1]
    assert measure(intersect(a, span(epoch + 9, epoch + 20))) == 1


@given(pairs, st.lists(st.integers(-25, 60), max_size=12))
def test_innermost_is_the_last_to_begin_of_those_that_hold_the_instant(some: Pairs, at: list[int]) -> None:
    """Nested or not."""
    found = innermost(*arrays(some), np.array(at, np.int64)).tolist()
    for instant, position in zip(at, found, strict=True):
        holding = [pair for pair in some if pair[0] <= instant < pair[1]]
        assert (position >= 0) == bool(holding)
        if holding:
            assert some[position] == max(holding, key=lambda pair: (pair[0], -pair[1]))


def test_innermost_takes_no_step_for_each_sibling() -> None:
    """A hundred thousand ranges side by side in one, and an instant after the last of them."""
    n = 100_000
    start = np.concatenate([[-1], 10 * np.arange(n)])
    end = np.concatenate([[10 * n + 1], 10 * np.arange(n) + 9])
    assert innermost(start, end, np.array([10 * n, 10 * n + 1, 15, 19])).tolist() == [0, -1, 2, 0]


def test_what_each_range_holds_of_its_own() -> None:
    """One with two inside, the second of which has one inside; one apart; an empty one."""
    start, end = np.array([0, 10, 30, 35, 200, 50]), np.array([100, 20, 60, 40, 210, 50])
    pieces = np.stack(held(start, end), axis=1).tolist()
    assert pieces == [
        [0, 10, 0],
        [10, 20, 1],
        [20, 30, 0],
        [30, 35, 2],
        [35, 40, 3],
        [40, 60, 2],
        [60, 100, 0],
        [200, 210, 4],
    ]


@given(pairs)
def test_what_ranges_hold_is_their_union_shared_out_to_the_innermost(some: Pairs) -> None:
    start, end = arrays(some)
    at, until, owner = held(start, end)
    assert union(at, until) == union(start, end)
    assert bool(np.all(at[1:] >= until[:-1]))
    assert innermost(start, end, at).tolist() == innermost(start, end, until - 1).tolist() == owner.tolist()


def test_around_is_half_open() -> None:
    start, end = np.array([5, 0, 7, 7]), np.array([7, 5, 9, 7])
    assert around(start, end, np.array([7, 5])).tolist() == [True, False, True, False]
    assert around(start, end, np.array([], np.int64)).tolist() == [False] * 4
