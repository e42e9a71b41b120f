"""The exact rank test: tables of the literature, every order of small samples, and what must hold of any."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlapscope.analysis import shift as module
from overlapscope.analysis.shift import ALPHA, enough, shift

values = st.lists(st.integers(-50, 50).map(float), min_size=1, max_size=9)


@pytest.mark.parametrize(
    ("n", "m", "critical"),
    # Two-sided, 5 %: Siegel, Nonparametric Statistics (1956), table K; Zar, Biostatistical Analysis, table B.11.
    [
        (4, 4, 0),
        (3, 5, 0),
        (5, 5, 2),
        (6, 6, 5),
        (7, 7, 8),
        (8, 8, 13),
        (9, 10, 20),
        (10, 10, 23),
        (20, 20, 127),
    ],
)
def test_critical_values_are_those_of_the_tables(n: int, m: int, critical: int) -> None:
    assert module._most_extreme(n, m) == module._most_extreme(m, n) == critical


@pytest.mark.parametrize(("n", "m"), [(0, 9), (1, 1), (2, 7), (3, 3), (3, 4), (1, 38)])
def test_samples_that_can_tell_nothing(n: int, m: int) -> None:
    assert not enough(n, m)
    found = shift([1.0] * n, [1000.0] * m)
    assert (found.low, found.high, found.p) == (None, None, None)
    assert found.verdict == ("few" if n else None)


@pytest.mark.parametrize(("n", "m"), [(4, 4), (3, 5), (2, 8), (1, 39), (100, 100), (500, 500)])
def test_samples_that_can(n: int, m: int) -> None:
    assert enough(n, m)
    assert shift([1.0] * n, [2.0] * m).verdict == "more"


def test_a_difference_by_hand() -> None:
    """Five beside five, all lower: 2 of the 252 orders are as extreme. 2 pairs may be on the wrong side (table)."""
    found = shift([1000.0, 1001, 1002, 1003, 1004], [800.0] * 5)
    assert (found.a, found.b, found.change, found.p) == (1002, 800, -202, 2 / 252)
    assert (found.low, found.high, found.verdict) == (-204, -200, "less")
    assert found.relative(found.change) == -202 / 1002


def test_of_all_orders_of_the_same_values_no_more_than_the_level_are_told() -> None:
    """Every split of ten values in two: 8 of 252 are beyond the critical value, and they alone are told."""
    everything = set(range(10))
    verdicts = [
        shift([float(v) for v in some], [float(v) for v in everything - set(some)]).verdict
        for some in combinations(range(10), 5)
    ]
    assert verdicts.count("less") == verdicts.count("more") == 4
    assert ALPHA >= 8 / 252


@pytest.mark.parametrize("pool", [[0, 0, 0, 0, 1, 1, 1, 2, 2, 3], [5] * 10, [0] * 5 + [1] * 5])
def test_ties_never_raise_the_level(pool: list[int]) -> None:
    told = 0
    splits = list(combinations(range(10), 5))
    for some in splits:
        other = [float(pool[i]) for i in range(10) if i not in some]
        told += shift([float(pool[i]) for i in some], other).verdict in ("less", "more")
    assert told / len(splits) <= ALPHA


@pytest.mark.parametrize("draw", ["lognormal", "exponential", "normal"])
def test_the_same_distribution_is_told_apart_at_the_level(draw: str) -> None:
    """4,000 pairs of samples of 8: the exact level is 2 · P(U ≤ 13) = 4.99 %, three standard errors are 1.0 %."""
    random = np.random.default_rng(1)
    n = 4000
    told = sum(
        shift(getattr(random, draw)(size=8).tolist(), getattr(random, draw)(size=8).tolist()).verdict
        != "untold"
        for _ in range(n)
    )
    assert 0.04 <= told / n <= 0.06


def test_a_real_shift_is_found_and_lies_in_the_interval() -> None:
    """Ten per cent more, at a spread of three: always told; the interval holds it as often as it says."""
    random = np.random.default_rng(2)
    told = inside = 0
    for _ in range(1000):
        found = shift(random.normal(100, 3, 10).tolist(), random.normal(110, 3, 10).tolist())
        told += found.verdict == "more"
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= 10 <= found.high
    assert told >= 999
    assert 0.93 <= inside / 1000 <= 0.98


@given(values, values)
def test_the_other_way_round_every_sign_turns(a: list[float], b: list[float]) -> None:
    one, other = shift(a, b), shift(b, a)
    assert one.change is not None
    assert (other.change, other.p) == (-one.change, one.p)
    if one.low is not None and one.high is not None:
        assert (other.low, other.high) == (-one.high, -one.low)
    turned = {"less": "more", "more": "less"}
    assert other.verdict == turned.get(str(one.verdict), one.verdict)


@given(values)
def test_a_sample_beside_itself_is_never_told(a: list[float]) -> None:
    found = shift(a, a)
    assert found.change == 0
    assert found.verdict == ("untold" if enough(len(a), len(a)) else "few")


@given(values, values, st.integers(-120, 120))
def test_the_interval_holds_the_shifts_that_the_test_does_not_reject(
    a: list[float], b: list[float], by: int
) -> None:
    found = shift(a, b)
    moved = shift(a, [value - by for value in b])
    if found.low is None or found.high is None:
        assert moved.verdict == "few"
        return
    assert (moved.verdict == "untold") == (found.low <= by <= found.high)
    assert moved.p is not None
    assert (moved.verdict == "untold") == (moved.p > ALPHA)


def test_the_approximation_is_near_the_exact_count(monkeypatch: pytest.MonkeyPatch) -> None:
    places = range(800, 1300, 25)
    exact = [module._at_most(u, 50, 50) for u in places]
    monkeypatch.setattr(module, "MOST_EXACT", 0)
    near = [module._at_most(u, 50, 50) for u in places]
    assert exact != near
    assert max(abs(a - b) for a, b in zip(exact, near, strict=True)) < 0.001
