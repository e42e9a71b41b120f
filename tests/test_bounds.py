"""Upper bounds of the gain: by hand, and what must hold whatever the ranks did."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from made import made
from overlapscope import overlap
from overlapscope.analysis.bounds import IDEALS, bounds


def ranks(*rows: tuple[int, int, int, int], **more: list[int | None]) -> pd.DataFrame:
    """Rows of (window, compute, overlap, exposed)."""
    names = ["window_ns", "compute_ns", "overlap_ns", "exposed_comm_ns"]
    table = pd.DataFrame(rows, columns=names).assign(rank=range(len(rows)))
    return table.assign(**{name: pd.array(values, dtype="Int64") for name, values in more.items()})


def test_by_hand() -> None:
    """Rank 0 hides 20 and exposes 40 beside 10 of free compute; rank 1 exposes 5 beside 50."""
    table = ranks((100, 30, 20, 40), (100, 50, 0, 5), exposed_wait_ns=[25, 0])
    found = bounds(table)
    assert tuple(found) == IDEALS
    assert found["no_skew"].ranks == ((0, 25), (1, 0))
    assert found["fast_link"].ranks == ((0, 40), (1, 5))
    assert found["all_hidden"].ranks == ((0, 10), (1, 5))
    assert [bound.gain_ns for bound in found.values()] == [25, 45, 15]
    assert [bound.ratio for bound in found.values()] == [25 / 200, 45 / 200, 15 / 200]
    assert found["fast_link"].speedup == 200 / 155


@pytest.mark.parametrize("wait", [{}, {"exposed_wait_ns": [25, None]}])
def test_skew_that_is_not_known(wait: dict[str, list[int | None]]) -> None:
    """Not recorded at all, or not for every rank."""
    bound = bounds(ranks((100, 30, 20, 40), (100, 50, 0, 5), **wait))["no_skew"]
    assert bound.ranks == ((0, 25 if wait else None), (1, None))
    assert (bound.gain_ns, bound.ratio, bound.speedup) == (None, None, None)


def test_nothing_but_communication_leaves_no_time() -> None:
    bound = bounds(ranks((100, 0, 0, 100)))["fast_link"]
    assert (bound.gain_ns, bound.ratio, bound.speedup) == (100, 1.0, None)


def test_no_time_at_all() -> None:
    bound = bounds(ranks((0, 0, 0, 0)))["all_hidden"]
    assert (bound.gain_ns, bound.ratio, bound.speedup) == (0, None, None)


span = st.tuples(st.integers(0, 60), st.integers(0, 30)).map(lambda s: (s[0], s[0] + s[1]))
ops = st.lists(
    st.tuples(st.integers(0, 1), span, st.sampled_from(["gemm", "comm", "memory"])), min_size=1, max_size=12
)


@given(ops)
def test_against_a_counter_of_instants(some: list[tuple[int, tuple[int, int], str]]) -> None:
    rows = [{"rank": r, "start": a, "end": b, "kind": kind} for r, (a, b), kind in some]
    found = bounds(overlap(made(rows), "whole").ranks)
    for rank in range(2):
        instants = {
            kind: {t for r, (a, b), k in some if (r, k) == (rank, kind) for t in range(a, b)}
            for kind in ("gemm", "comm")
        }
        exposed, free = instants["comm"] - instants["gemm"], instants["gemm"] - instants["comm"]
        assert found["fast_link"].ranks[rank] == (rank, len(exposed))
        assert found["all_hidden"].ranks[rank] == (rank, min(len(exposed), len(free)))
