"""What is planted in a simulated program of 64 ranks is found again, and nothing where nothing is planted."""

from __future__ import annotations

import numpy as np
import pytest

from overlapscope.analysis.matching import match
from overlapscope.analysis.rates import Peak
from overlapscope.report import bandwidth, document
from simulated import NODES, PER_NODE, Plants, Simulated, simulate

US = 1_000
CLOCK = 2 * US
"""Tolerance of what two clocks tell: ends of one all-reduce lie ± 1 µs about its true end."""

LATE = {13: {3: 300 * US, 4: 300 * US, 10: 300 * US}, 50: {7: 500 * US, 21: 500 * US}}
PLANTED = Plants(LATE, slow_nodes=(5,), contention=0.15, offset=3_000 * US, drift=10e-6)
SLOW = tuple(range(5 * PER_NODE, 6 * PER_NODE))


@pytest.fixture(scope="module")
def planted() -> Simulated:
    return simulate(PLANTED)


@pytest.fixture(scope="module")
def report(planted: Simulated) -> document.Document:
    return document.build(planted.trace, peak=Peak(200.0, "as given"))


@pytest.fixture(scope="module")
def sound() -> Simulated:
    return simulate(Plants({}))


def test_clocks(planted: Simulated) -> None:
    """Offset and drift of each node beside the first, wherever in the three seconds one looks."""
    found = match(planted.trace).clocks
    assert np.abs(planted.offset[1:]).min() > 100 * US
    ops, true = planted.trace.ops, planted.true.ops
    for node in range(NODES):
        clock, here = found[PER_NODE * node], (ops["rank"] == PER_NODE * node).to_numpy()
        for column in ("start", "end"):
            off = clock.common(ops.loc[here, column].to_numpy()) - true.loc[here, column].to_numpy()
            assert np.abs(off).max() <= CLOCK
        assert abs(clock.drift - planted.drift[node]) < 0.5e-6
        assert (clock.spread or 0) <= CLOCK


def test_every_collective_is_matched(planted: Simulated, report: document.Document) -> None:
    comm = report.overlap.instances
    assert report.overlap.matching.refused == ()
    sizes = comm.groupby("match").size()
    assert set(sizes) == {PER_NODE}
    assert len(sizes) == (planted.trace.ops["kind"] == "comm").sum() / PER_NODE


def test_waiting_and_transfer_of_every_rank(planted: Simulated, report: document.Document) -> None:
    """On one node exactly: it has one clock. Of exchanges between nodes none waits exposed, and each one's transfer
    is off by no more than clocks are."""
    ranks = report.overlap.ranks
    between = int((report.overlap.instances["rank"] == 0).sum()) // 5
    assert np.abs(ranks["exposed_wait_ns"].to_numpy(np.int64) - planted.wait).max() <= 2 * US  # drift
    assert np.abs(ranks["exposed_wire_ns"].to_numpy(np.int64) - planted.wire).max() <= between * CLOCK
    assert ranks["exposed_unsplit_ns"].sum() == 0


def test_who_was_waited_for(report: document.Document) -> None:
    """The two late ranks cost seven others what they were late; no other rank comes near."""
    cost = report.stragglers.set_index("rank")["cost_ns"].sort_values(ascending=False)
    assert set(cost.index[:2]) == set(LATE)
    for rank, steps in LATE.items():
        # All GEMMs jitter by up to 2 µs, and the last of eight to be done is waited for in 120 exchanges.
        assert abs(cost[rank] - 7 * sum(steps.values())) < 7 * 2 * US * 120
    assert cost.iloc[2] < 7 * 2 * US * 120 < cost.iloc[1] / 3


def test_the_slow_link(report: document.Document) -> None:
    """175 GB/s of an all-reduce of 10 MB in 100 µs over eight ranks, half of that on the slow node."""
    groups = report.rates.groups.set_index("ranks")["busbw_gbs"].astype(float)
    nodes = [tuple(range(PER_NODE * node, PER_NODE * (node + 1))) for node in range(NODES)]
    for ranks in nodes:
        assert groups[ranks] == pytest.approx(87.5 if ranks == SLOW else 175.0, rel=0.01)
    between = groups.drop(nodes)
    assert len(between) == PER_NODE
    assert between.to_numpy() == pytest.approx(8.75, rel=0.01)
    (line,) = bandwidth.slow(report.rates)
    assert line.startswith(
        f"Slow: all_reduce of 10.0 MB between ranks {', '.join(map(str, SLOW))} takes 200."
    )


def test_contention(planted: Simulated, sound: Simulated) -> None:
    contention = pytest.importorskip("overlapscope.analysis.contention").contention
    assert contention(planted.trace).slowdown == pytest.approx(0.15, abs=0.005)
    assert contention(sound.trace).slowdown == pytest.approx(0, abs=0.005)


def test_where_nothing_is_planted_nothing_is_found(sound: Simulated) -> None:
    found = document.build(sound.trace, peak=Peak(200.0, "as given"))
    ranks = found.overlap.ranks
    assert np.abs(ranks["exposed_wait_ns"].to_numpy(np.int64) - sound.wait).max() <= 2 * US
    # No rank stands out: every one waits and is waited for by the jitter of the GEMMs alone.
    assert found.stragglers["cost_ns"].max() < 7 * 2 * US * 120
    assert found.stragglers["last"].max() < 0.5 * found.stragglers["collectives"].min()
    assert bandwidth.slow(found.rates) == []
    assert (
        found.rates.groups["time_ns"].groupby(found.rates.groups["time_ns"] > 1_000 * US).nunique().max() > 1
    )
    for rank in range(0, NODES * PER_NODE, PER_NODE):
        clock = found.overlap.matching.clocks[rank]
        assert (abs(clock.offset) <= CLOCK, clock.drift) == (True, 0.0)
