"""T(N) beside T(1)/N: a worked example, the sum of the terms, and what cannot be compared."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import overlapscope as osc
from builders import TraceBuilder, nsys
from made import made
from overlapscope.analysis.scaling import EXPOSED, TERMS, Account, Part, Pop, account, scaling
from scaled import GEMM, one_rank, two_ranks


def one(tmp_path: Path) -> Account:
    return account(osc.load(one_rank(tmp_path / "one.sqlite")))


def two(tmp_path: Path) -> Account:
    return account(osc.load(two_ranks(tmp_path / "two.sqlite")))


def test_the_account_of_one_run(tmp_path: Path) -> None:
    run = one(tmp_path)
    assert (run.size, run.ranks, run.steps, run.window_ns, run.compute_ns) == (1, 1, 1, 500, (470,))
    assert run.parts_ns == {
        Part("sharded", "up"): 420,
        Part("sharded", "gelu"): 70,
        Part("replicated", "norm"): 40,
        Part("unmarked"): 10,
        Part("concurrency"): -70,
        Part("exposed_comm"): 0,
        Part("exposed_memory"): 10,
        Part("idle"): 20,
    }


def test_the_loss_of_two_ranks_term_by_term(tmp_path: Path) -> None:
    """T(1) = 500, T(2) = (300 + 301) / 2."""
    result = scaling([two(tmp_path), one(tmp_path)])
    first, second = result.sizes
    assert result.base is first.account
    assert (first.time, first.loss, first.speedup, first.efficiency) == (500, 0, 1.0, 1.0)
    assert set(first.losses.values()) == {0}
    half = Fraction(1, 2)
    assert (second.time, second.ideal, second.loss) == (300 + half, 250, 50 + half)
    assert second.losses == {
        Part("sharded", "gelu"): -35,
        Part("sharded", "up"): 215 - 210,
        Part("replicated", "norm"): 20 + half,
        Part("unmarked"): -5,
        Part("concurrency"): 35,
        Part("exposed_comm"): 45,
        Part("exposed_memory"): -5,
        Part("idle"): -10,
    }
    assert second.exposed == {"wait": 0, "wire": 45, "unsplit": 0}
    assert [second.term(t) for t in TERMS] == [-30, 20 + half, -5, 35, 45, -5, -10]
    assert (second.speedup, second.efficiency) == (500 / 300.5, 250 / 300.5)


def test_pop_metrics(tmp_path: Path) -> None:
    """Useful time 470 on one rank; 260 and 251 on two."""
    first, second = scaling([one(tmp_path), two(tmp_path)]).sizes
    assert first.pop == Pop(1.0, 0.94, 0.94, 1.0, 0.94)
    assert second.pop == Pop(
        load_balance=255.5 / 260,
        communication_efficiency=260 / 300.5,
        parallel_efficiency=255.5 / 300.5,
        computation_scaling=470 / 511,
        global_efficiency=pytest.approx(470 / 601, rel=1e-15),  # type: ignore[arg-type]
    )


def test_another_base_than_one() -> None:
    """T(2) = 100 and T(8) = 40: four times the ranks are two and a half times as fast."""
    small, large = (plain(size, window) for size, window in ((2, 200), (8, 320)))
    result = scaling([small, large])
    size = result.sizes[1]
    assert (size.time, size.ideal, size.loss) == (40, 25, 15)
    assert (size.speedup, size.efficiency) == (2.5, 0.625)


def plain(size: int, window: int, steps: int = 1) -> Account:
    """A run that is nothing but one GEMM."""
    each = (window // size,) * size
    return Account(size, size, steps, window, {Part("sharded", "up"): window}, each)


def test_steps_count_by_themselves() -> None:
    """Three times the steps in three times the time is no loss."""
    size = scaling([plain(1, 60, 1), plain(2, 180, 3)]).sizes[1]
    assert (size.time, size.loss, size.pop.computation_scaling) == (30, 0, 1.0)


def test_no_compute_has_no_pop_metrics() -> None:
    idle = [Account(n, n, 1, 10 * n, {Part("idle"): 10 * n}, (0,) * n) for n in (1, 2)]
    size = scaling(idle).sizes[1]
    assert size.pop == Pop(None, None, None, None, None)
    assert (size.time, size.loss) == (10, 5)


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    with pytest.raises(osc.InputError, match="two runs have 2 ranks; give one run for each size"):
        scaling([plain(2, 10), plain(2, 12)])
    with pytest.raises(osc.InputError, match="the steps on 1 ranks take no time"):
        scaling([plain(1, 0)])
    t = TraceBuilder()
    t.process(pid=7, rank=0).device(0).kernel(GEMM, 0, 10, stream=7)
    with pytest.raises(osc.OptionError, match="the trace has no step ranges"):
        account(osc.load(nsys.write(t, tmp_path / "t.sqlite")))


def test_ranks_with_different_numbers_of_steps() -> None:
    ops = [op(0, 1, 2), op(1, 1, 2), op(1, 11, 12)]
    steps = [step(0, 0), step(1, 0), step(1, 1)]
    with pytest.raises(osc.InputError, match="rank 0 has 1 steps, and rank 1 has 2"):
        account(made(ops, steps))


def test_exposed_communication_in_three_parts() -> None:
    """T(1) = 100 with 10 of the wire. On two ranks 60 and 66: 7 and 9 waiting, 4 transfer, 5 of either."""
    run = {Part("sharded", "up"): 101, Part("exposed_comm"): 25}
    one = Account(1, 1, 1, 100, {Part("idle"): 90, Part("exposed_comm"): 10}, (0,), exposed_ns={"wire": 10})
    two = Account(2, 2, 1, 126, run, (50, 51), exposed_ns={"wait": 16, "wire": 4, "unsplit": 5})
    size = scaling([one, two]).sizes[1]
    assert size.exposed == {"wait": 8, "wire": 2 - 5, "unsplit": Fraction(5, 2)}
    assert sum(size.exposed.values()) == size.term("exposed_comm") == Fraction(15, 2)
    with pytest.raises(AssertionError, match="of 25 ns exposed communication the parts add up to 24 ns"):
        Account(2, 2, 1, 126, run, (50, 51), exposed_ns={"wait": 16, "wire": 8})


def test_waiting_is_told_from_transfer_and_what_is_neither_stays() -> None:
    """Rank 1 comes 3 later to an all-reduce; the root of a broadcast is done before rank 1 begins."""
    ops = [
        {**op(rank, start, end, "comm"), "collective": kind}
        for rank, start, end, kind in [
            (0, 1, 6, "all_reduce"),
            (1, 4, 6, "all_reduce"),
            (0, 6, 7, "broadcast"),
            (1, 8, 9, "broadcast"),
        ]
    ]
    run = account(made(ops, [step(0, 0), step(1, 0)]))
    assert run.exposed_ns == {"wait": 3, "wire": 4, "unsplit": 2}


def test_an_account_that_does_not_add_up_is_refused() -> None:
    with pytest.raises(AssertionError, match="add up to 9 ns, the windows to 10 ns"):
        Account(1, 1, 1, 10, {Part("idle"): 9}, (0,))


def test_compute_without_a_launch_record_is_counted() -> None:
    ops = [{**op(0, 1, 3), "launch": osc.NA}, op(0, 3, 5), {**op(0, 30, 40), "launch": osc.NA}]
    run = account(made(ops, [step(0, 0)], ranks=1))
    assert run.unlaunched == 1  # the other lies outside the step
    assert run.parts_ns[Part("unmarked")] == 4


# -- properties ----------------------------------------------------------------------------------------------


def op(rank: int, start: int, end: int, kind: str = "gemm", launch: int | None = None) -> dict[str, Any]:
    return {
        "rank": rank,
        "start": start,
        "end": end,
        "kind": kind,
        "thread": 1,
        "launch": start if launch is None else launch,
    }


def step(rank: int, index: int) -> dict[str, Any]:
    """Steps of 10 ns on the host."""
    name = f"step {index}"
    return {
        "rank": rank,
        "thread": 1,
        "start": 10 * index,
        "end": 10 * index + 10,
        "name": name,
        "role": "step",
    }


KINDS = [k.value for k in osc.Kind]
ROLES = {"up": "sharded", "down": "sharded", "norm": "replicated", "wait": "comm"}


@st.composite
def traces(draw: st.DrawFn) -> osc.Trace:
    """1 to 3 ranks, 1 or 2 steps, ops that overlap each other and the edges, ranges that need not nest."""
    ranks, steps = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    host = st.integers(0, 10 * steps - 1)
    ops = [op(rank, 10 * i + 1, 10 * i + 2, "gemm") for rank in range(ranks) for i in range(steps)]
    ranges = [step(rank, i) for rank in range(ranks) for i in range(steps)]
    for rank in range(ranks):
        for _ in range(draw(st.integers(0, 8))):
            at, late, length = draw(host), draw(st.integers(0, 15)), draw(st.integers(0, 9))
            ops.append(op(rank, at + late, at + late + length, draw(st.sampled_from(KINDS)), at))
        for _ in range(draw(st.integers(0, 5))):
            name, at = draw(st.sampled_from(list(ROLES))), draw(host)
            end = at + draw(st.integers(0, 9))
            ranges.append(
                {"rank": rank, "thread": 1, "start": at, "end": end, "name": name, "role": ROLES[name]}
            )
    return made(ops, ranges, ranks)


def counted(trace: osc.Trace) -> dict[Part, int]:
    """The parts that compute can be in, by walking every instant of every rank."""
    window = osc.windows(trace, "steps")
    ranges = trace.ranges[trace.ranges["role"].isin(["sharded", "replicated"])].to_dict("records")
    found: dict[Part, int] = {}
    for rank, spans in window.of_rank.items():
        groups: dict[Part, set[int]] = {}
        for row in trace.of_rank(rank).to_dict("records"):
            if row["kind"] in ("comm", "memory"):
                continue
            holding = [r for r in ranges if r["rank"] == rank and r["start"] <= row["launch"] < r["end"]]
            part = Part("unmarked")
            if holding:
                last = max(holding, key=lambda r: (r["start"], -r["end"]))
                part = Part(last["role"], last["name"])
            groups.setdefault(part, set()).update(range(row["start"], row["end"]))
        inside = {t for a, b in zip(spans.start, spans.end, strict=True) for t in range(a, b)}
        for part, instants in groups.items():
            found[part] = found.get(part, 0) + len(instants & inside)
    return found


@settings(deadline=None, max_examples=60)  # some 20 ms of pandas each, more on a busy machine
@given(traces())
def test_compute_by_group_against_a_counter_of_instants(trace: osc.Trace) -> None:
    """Where two ranges begin and end together either may be meant; then only their sum is certain."""
    run, expected = account(trace), counted(trace)
    marked = trace.ranges[trace.ranges["role"].isin(["sharded", "replicated"])]
    compute = {p: ns for p, ns in run.parts_ns.items() if p.term in TERMS[:3] and ns}
    if not marked.duplicated(["rank", "start", "end"]).any():
        assert compute == {p: ns for p, ns in expected.items() if ns}
    assert sum(compute.values()) + run.parts_ns[Part("concurrency")] == sum(run.compute_ns)


@settings(deadline=None, max_examples=40)
@given(st.lists(traces(), min_size=2, max_size=3, unique_by=lambda t: len(t.ranks)))
def test_the_terms_add_up_exactly(some: list[osc.Trace]) -> None:
    result = scaling([account(t) for t in some])
    base = result.sizes[0]
    for size in result.sizes:
        n = size.account.size
        assert size.loss == size.time - base.time * base.account.size / n
        assert sum(size.losses.values()) == size.loss
        assert sum(size.term(t) for t in TERMS) == size.loss
        assert tuple(size.exposed) == EXPOSED
        assert sum(size.exposed.values()) == size.term("exposed_comm")
        figures = osc.overlap(some[[len(t.ranks) for t in some].index(n)], "steps").ranks
        each = size.account.ranks * size.account.steps
        assert size.time == Fraction(int(figures["window_ns"].sum()), each)
        assert size.account.each(size.account.parts_ns[Part("idle")]) == Fraction(
            int(figures["idle_ns"].sum()), each
        )
