"""Which ops are one collective, when its last rank came, and what brings the clocks of several files together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import overlapscope as osc
from builders import Collective, Nccl, TraceBuilder, kineto, nsys
from made import made
from overlapscope.analysis.matching import match
from overlapscope.analysis.stragglers import stragglers
from overlapscope.formats.nsys import write
from overlapscope.trace import NA, Trace

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
BROADCAST = "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
US, MS = 1_000, 1_000_000


def comm(rank: int, start: int, end: int, collective: str = "all_reduce", **more: int) -> dict[str, object]:
    return {"rank": rank, "start": start, "end": end, "kind": "comm", "collective": collective, **more}


def of_collectives(
    starts: Sequence[Sequence[int]], transfer: int = 30, collective: str = "all_reduce"
) -> list[dict[str, object]]:
    """One collective a row, its start on every rank; all end `transfer` after the last start."""
    return [
        comm(rank, start, max(row) + transfer, collective) for row in starts for rank, start in enumerate(row)
    ]


def on_clocks(trace: Trace, clocks: Sequence[int]) -> Trace:
    return replace(trace, ranks=trace.ranks.assign(clock=list(clocks)))


def shifted(trace: Trace, rank: int, by: int, drift: float = 0.0) -> Trace:
    """The trace as another clock of one rank would have recorded it."""
    ops = trace.ops.copy()
    here = ops["rank"] == rank
    for column in ("start", "end"):
        times = ops.loc[here, column].to_numpy()
        ops.loc[here, column] = times + by + np.rint(times * drift).astype(np.int64)
    return replace(trace, ops=ops)


def test_worked_example_of_two_ranks(tmp_path: Path) -> None:
    """METRICS: starts at 100 and 140, ends at 170 on both."""
    t = TraceBuilder()
    for rank, start in ((0, 100), (1, 140)):
        t.process(pid=10 + rank, rank=rank).device(rank).kernel(ALL_REDUCE, start, 170, stream=20)
    result = osc.overlap(osc.load(nsys.write(t, tmp_path / "t.sqlite")), "whole")
    assert result.instances["wait_ns"].tolist() == [40, 0]
    assert result.instances["transfer_ns"].tolist() == [30, 30]
    assert result.ranks["exposed_wait_ns"].tolist() == [40, 0]
    assert result.ranks["exposed_wire_ns"].tolist() == [30, 30]
    assert result.ranks["exposed_unsplit_ns"].tolist() == [0, 0]
    assert result.collectives[["exposed_wait_ns", "exposed_wire_ns"]].to_numpy().tolist() == [
        [40, 30],
        [0, 30],
    ]
    assert stragglers(result).to_dict("records") == [
        {"rank": 0, "collectives": 1, "last": 0, "late_ns": 0, "cost_ns": 0},
        {"rank": 1, "collectives": 1, "last": 1, "late_ns": 40, "cost_ns": 40},
    ]


def test_only_exposed_waiting_counts_as_such() -> None:
    """Rank 0 computes until 20 after its all-reduce began, and from 10 before it ends."""
    ops = [*of_collectives([(100, 140)]), {"rank": 0, "start": 0, "end": 120, "kind": "gemm"}]
    ops.append({"rank": 0, "start": 160, "end": 180, "kind": "gemm"})
    result = osc.overlap(made(ops), "whole")
    assert result.ranks["exposed_wait_ns"].tolist() == [20, 0]
    assert result.ranks["exposed_wire_ns"].tolist() == [20, 30]


def test_a_cut_window_cuts_both_parts() -> None:
    result = osc.overlap(made(of_collectives([(100, 140)])), "120:150")
    assert result.ranks["exposed_wait_ns"].tolist() == [20, 0]
    assert result.ranks["exposed_wire_ns"].tolist() == [10, 10]
    assert result.instances["wait_ns"].tolist() == [40, 0]
    assert stragglers(result).empty


STARTS = [(1_000 * i, 1_000 * i + (7 * i) % 50, 1_000 * i + (11 * i) % 80) for i in range(40)]


def parts(trace: Trace, align: str = "collectives") -> list[list[int]]:
    result = osc.overlap(trace, "whole", match(trace, align))
    return result.ranks[["exposed_wait_ns", "exposed_wire_ns"]].astype("int64").to_numpy().tolist()


def test_a_shifted_clock_changes_nothing() -> None:
    trace = made(of_collectives(STARTS), ranks=3)
    moved = on_clocks(shifted(trace, 1, 5 * MS), [0, 1, 2])
    assert parts(moved) == parts(trace)
    found = match(moved)
    assert [found.clocks[rank].offset for rank in range(3)] == [0, 5 * MS, 0]
    assert found.clocks[1].spread == 0
    assert "offsets 0.0 to 5,000.0 µs" in found.clocks.how
    assert stragglers(osc.overlap(moved)).equals(stragglers(osc.overlap(trace)))
    # Uncorrected, rank 1 would be the one that all wait for, 5 ms each.
    assert {r.what for r in match(moved, "session").refused} == {"all_reduce"}


def test_a_drifting_clock_changes_little() -> None:
    """50 µs a second over two seconds: 100 µs at the end, and no figure is 2 µs off."""
    rng = np.random.default_rng(1)
    begin = np.arange(400) * 5 * MS
    starts = begin[:, None] + rng.integers(0, 200 * US, (400, 3))
    trace = made(of_collectives(starts.tolist(), transfer=100 * US), ranks=3)
    moved = on_clocks(shifted(trace, 2, 5 * MS, drift=50e-6), [0, 1, 2])
    true, found = (osc.overlap(t, "whole").instances for t in (trace, moved))
    for column in ("wait_ns", "transfer_ns"):
        assert (true[column] - found[column]).abs().max() <= 2 * US
    assert match(moved).clocks[2].drift == pytest.approx(50e-6, rel=1e-3)
    assert "drift up to 50.0 µs a second on 1 ranks" in match(moved).clocks.how


def test_clocks_that_share_no_collective_with_the_first_are_reached_by_others() -> None:
    """Ranks 0, 1 and ranks 1, 2 have communicators of their own; 2 is aligned by way of 1."""
    ops = []
    for i in range(10):
        late = i % 3
        ops += [comm(r, 1_000 * i + late * (r == 1), 1_000 * i + 90, communicator=0, group=2) for r in (0, 1)]
        ops += [comm(r, 1_000 * i + 500, 1_000 * i + 590, communicator=1, group=2) for r in (1, 2)]
    trace = made(ops, ranks=3)
    moved = on_clocks(shifted(shifted(trace, 1, 3_000), 2, -70_000), [0, 1, 2])
    found = match(moved)
    assert [found.clocks[r].offset for r in range(3)] == [0, 3_000, -70_000]
    assert parts(moved) == parts(trace)


def test_missing_at_the_edges_does_not_shift_the_rest() -> None:
    """Rank 1 began to record two collectives later, and rank 0 stopped one earlier."""
    rng = np.random.default_rng(2)
    begin = np.cumsum(rng.integers(300 * US, 900 * US, 30))
    starts = begin[:, None] + rng.integers(0, 50 * US, (30, 2))
    rows = of_collectives(starts.tolist(), transfer=20 * US)
    kept = [row for i, row in enumerate(rows) if not (row["rank"] == 1 and i < 4) and i != 58]
    whole, cut = osc.overlap(made(rows)), osc.overlap(made(kept))
    middle = cut.instances[cut.instances["match"].notna()]
    assert len(middle) == 2 * 27
    for rank in (0, 1):
        expected = whole.instances[whole.instances["rank"] == rank]["wait_ns"].tolist()[2:29]
        assert middle[middle["rank"] == rank]["wait_ns"].tolist() == expected
    (refused,) = cut.matching.refused
    assert (refused.count, refused.what) == (3, "all_reduce")
    assert "at an edge" in refused.why


def test_many_may_be_missing() -> None:
    """Rank 1 began 700 collectives later, of 1000; which they were is found among 705 places."""
    rng = np.random.default_rng(5)
    begin = np.cumsum(rng.integers(300 * US, 900 * US, 1000))
    starts = begin[:, None] + rng.integers(0, 50 * US, (1000, 2))
    rows = of_collectives(starts.tolist(), transfer=20 * US)
    found = osc.overlap(made(rows[::2] + rows[1401::2]))
    waits = np.maximum(starts[700:, 1] - starts[700:, 0], 0)
    whole = found.instances[found.instances["match"].notna()]
    assert whole[whole["rank"] == 0]["wait_ns"].tolist() == waits.tolist()
    assert found.matching.refused[0].count == 700


def test_equal_counts_may_still_be_shifted() -> None:
    """Each rank lacks one at another edge: the order alone would pair strangers, the ends say so."""
    rng = np.random.default_rng(3)
    begin = np.cumsum(rng.integers(300 * US, 900 * US, 30))
    starts = begin[:, None] + rng.integers(0, 50 * US, (30, 2))
    rows = of_collectives(starts.tolist(), transfer=20 * US)
    kept = [row for i, row in enumerate(rows) if i not in (0, 59)]
    waits = osc.overlap(made(kept)).instances["wait_ns"].dropna()
    assert waits.max() < 50 * US


def test_what_is_missing_may_be_told_by_bytes() -> None:
    """The ends of two collectives tell nothing; but only one place has the same bytes in the same order."""
    rows = [comm(0, 1_000 * i, 1_000 * i + 90, bytes=size) for i, size in enumerate((8, 16, 32, 64))]
    rows += [comm(1, 1_000 * i, 1_000 * i + 90, bytes=size) for i, size in ((1, 16), (2, 32), (3, 64))]
    result = osc.overlap(made(rows))
    assert result.instances.groupby("match")["bytes"].nunique().tolist() == [1, 1, 1]


def test_nothing_tells_which_are_missing() -> None:
    """Perfectly regular, one missing: it may be the first or the last."""
    rows = of_collectives([(1_000 * i, 1_000 * i) for i in range(20)])
    result = osc.overlap(made(rows[:-1]))
    assert result.instances["match"].isna().all()
    assert result.ranks["exposed_wait_ns"].isna().all()
    assert result.ranks["exposed_unsplit_ns"].tolist() == result.ranks["exposed_comm_ns"].tolist()
    assert (
        "rank 1 has 19 of them and rank 0 20: nothing tells which are missing"
        in result.matching.refused[0].why
    )


def test_broadcasts_end_at_the_root_before_others_begin() -> None:
    """Matched by order, but waiting and transfer are not made up; the all-reduce beside them keeps its own."""
    rows = [comm(0, 1_000 * i, 1_000 * i + 10, "broadcast") for i in range(10)]
    rows += [comm(1, 1_000 * i + 50, 1_000 * i + 60, "broadcast") for i in range(10)]
    result = osc.overlap(made(rows + of_collectives([(20_000, 20_040)])))
    broadcasts = result.instances["collective"] == "broadcast"
    assert result.instances["match"].notna().all()
    assert result.instances.loc[broadcasts, "wait_ns"].isna().all()
    assert result.instances.loc[~broadcasts, "wait_ns"].tolist() == [40, 0]
    assert result.ranks["exposed_wait_ns"].tolist() == [40, 0]
    assert result.ranks["exposed_unsplit_ns"].tolist() == [100, 100]


def test_part_of_the_ranks_is_no_match() -> None:
    """Two of three: the one that came last may be the one that is not here."""
    trace = made(of_collectives([(100, 140)]))
    part = replace(trace, provenance=replace(trace.provenance, world_size=3))
    found = match(part)
    assert found.ops.empty
    assert found.refused[0].why == "only 2 of 3 ranks are in the trace"


def test_a_communicator_that_is_whole_is_matched_in_part_of_a_world() -> None:
    rows = [{**row, "communicator": 0, "group": 2} for row in of_collectives([(100, 140)])]
    trace = made(rows)
    part = replace(trace, provenance=replace(trace.provenance, world_size=16))
    assert len(match(part).ops) == 2
    four = made([{**row, "group": 4} for row in rows])
    assert match(four).refused[0].why == "only 2 of the 4 ranks of their communicator are in the trace"


def test_sends_among_several_ranks_are_not_split() -> None:
    found = match(made(of_collectives([(0, 5, 9)], collective="send_recv"), ranks=3))
    assert (found.ops["latest"] == NA).all()
    assert found.refused[0].why == "which ranks exchange is not recorded"
    pair = match(made(of_collectives([(0, 5)], collective="send_recv")))
    assert pair.ops["latest"].tolist() == [5, 5]


@pytest.mark.parametrize("payload", ["json", "blobs"])
def test_tensor_parallel_beside_data_parallel(tmp_path: Path, payload: str) -> None:
    """Ranks 0, 1 and 2, 3 are TP groups, 0, 2 and 1, 3 DP groups; NCCL's ranges tell the communicators."""
    t = TraceBuilder()
    for rank in range(4):
        p = t.process(pid=10 + rank, rank=rank)
        g = p.device(rank)
        for i in range(5):
            for group, at in ((rank // 2, 0), (2 + rank % 2, 500)):
                begin = 1_000 * i + at + 10 * rank
                p.nccl("ncclAllReduce", begin - 9, begin - 1, Nccl(comm=70 + group, nbytes=4096, op="Sum"))
                end = 1_000 * i + at + 10 * max(r for r in range(4) if group in (r // 2, 2 + r % 2)) + 30
                g.kernel(ALL_REDUCE, begin, end, stream=20 + at, launch=(begin - 5, begin - 3))
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite", nccl_payload=payload))
    result = osc.overlap(trace, "whole")
    by_match = result.instances.groupby("match")
    assert by_match.size().tolist() == [2] * 20
    assert set(map(tuple, by_match["rank"].agg(list))) == {(0, 1), (2, 3), (0, 2), (1, 3)}
    assert result.instances["bytes"].tolist() == [4096] * 40
    waits = result.instances.groupby("rank")["wait_ns"].agg(lambda w: sorted(set(w)))
    assert waits.tolist() == [[10, 20], [0, 20], [0, 10], [0]]
    # Without the payload nothing tells the groups apart: nothing is matched.
    alone = osc.load(nsys.write(t, tmp_path / "u.sqlite", nccl_payload=None))
    assert (osc.overlap(alone).instances["wait_ns"].isna()).all()


def test_nccl_says_what_a_group_of_calls_launches(tmp_path: Path) -> None:
    """The kernel is launched by ncclGroupEnd; an all-gather's message is one rank's share."""
    t = TraceBuilder()
    for rank in range(2):
        p = t.process(pid=10 + rank, rank=rank)
        g = p.device(rank)
        p.nccl("ncclCommInitRank", 0, 1, Nccl(comm=7, ranks=2, rank=rank, device=rank))
        p.range("ncclGroupStart", 10, 11, domain="NCCL")
        p.nccl("ncclAllGather", 12, 13, Nccl(comm=7, nbytes=1000))
        p.range("ncclGroupEnd", 14, 20, domain="NCCL")
        g.kernel(ALL_GATHER, 30, 60, stream=20, launch=(15, 16))
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    assert trace.ops["bytes"].tolist() == [2000, 2000]
    assert trace.ops["group"].tolist() == [2, 2]
    assert trace.ops["communicator"].tolist() == [0, 0]


def test_recorded_groups_and_numbers_survive_a_conversion(tmp_path: Path) -> None:
    """PyTorch's group and sequence; rank 1 lacks the first two, and numbers alone say which."""
    files = []
    for rank in range(2):
        t = TraceBuilder()
        g = t.process(pid=10 + rank, rank=rank, world=2).device(0)
        for i in range(2 * rank, 20):
            said = Collective("allreduce", 64, group="tp", seq=i)
            g.kernel(ALL_REDUCE, 1_000 * i + 7 * rank, 1_000 * i + 90, stream=20, collective=said)
        files.append(kineto.write(t.rank(rank), tmp_path / f"rank{rank}.json"))
    trace = osc.load(files)
    result = osc.overlap(trace)
    assert result.instances["match"].dropna().nunique() == 18
    assert result.ranks["exposed_wait_ns"].tolist() == [7 * 18, 0]
    write(trace, tmp_path / "all.sqlite")
    again = osc.load(tmp_path / "all.sqlite")
    assert again.communicators == trace.communicators
    for column in ("communicator", "sequence", "group"):
        assert again.ops[column].tolist() == trace.ops[column].tolist()
    assert again.ranks["clock"].tolist() == trace.ranks["clock"].tolist() == [0, 1]
    assert osc.overlap(again).ranks.drop(columns="pid").equals(result.ranks.drop(columns="pid"))


@given(
    st.lists(st.lists(st.integers(0, 400), min_size=3, max_size=3), min_size=1, max_size=12),
    st.integers(1, 200),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12_000), st.integers(1, 900)), max_size=12),
)
def test_properties(late: list[list[int]], transfer: int, compute: list[tuple[int, int, int]]) -> None:
    """Waits are not negative and somebody never waits; the parts add up exactly on every rank."""
    starts = [[1_000 * i + by for by in row] for i, row in enumerate(late)]
    ops = of_collectives(starts, transfer)
    ops += [{"rank": r, "start": a, "end": a + n, "kind": "gemm"} for r, a, n in compute]
    result = osc.overlap(made(ops, ranks=3), "whole")
    comm = result.instances
    assert (comm["wait_ns"] >= 0).all()
    assert (comm.groupby("match")["wait_ns"].min() == 0).all()
    assert (comm["transfer_ns"] == transfer).all()
    assert (comm["exposed_wait_ns"] + comm["exposed_wire_ns"] == comm["exposed_ns"]).all()
    ranks = result.ranks
    split = ranks["exposed_wait_ns"] + ranks["exposed_wire_ns"] + ranks["exposed_unsplit_ns"]
    assert (split == ranks["exposed_comm_ns"]).all()


@given(st.integers(-10 * MS, 10 * MS), st.integers(-10 * MS, 10 * MS))
def test_invariance_under_clock_shift(one: int, two: int) -> None:
    trace = made(of_collectives(STARTS), ranks=3)
    moved = on_clocks(shifted(shifted(trace, 1, one), 2, two), [0, 1, 2])
    assert parts(moved) == parts(trace)


def test_unknown_alignment_is_refused() -> None:
    with pytest.raises(osc.OptionError, match="choose from collectives, session, none"):
        match(made(of_collectives([(0, 1)])), "median")
