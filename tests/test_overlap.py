"""The figures: the worked examples, the identity against a counter of instants, and what clips and ties do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import overlapscope as osc
from builders import TraceBuilder, kineto, nsys
from overlapscope.analysis.overlap import COLLECTIVE_COLUMNS, INSTANCE_COLUMNS, RANK_COLUMNS
from overlapscope.trace import LANE_COLUMNS, NA, Provenance, Source, collectives, empty_ranges, kinds

KINDS = [k.value for k in osc.Kind]
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>>(int)"


def worked_example() -> TraceBuilder:
    t = TraceBuilder()
    g = t.process(pid=4242, rank=0).device(0)
    g.kernel(GEMM, 0, 40, stream=7)
    g.kernel(ALL_REDUCE, 30, 60, stream=20)
    g.kernel(ELEMENTWISE, 50, 55, stream=7)
    g.kernel(GEMM, 70, 90, stream=7)
    g.kernel(ALL_REDUCE, 85, 95, stream=20)
    g.kernel(ALL_REDUCE, 88, 92, stream=21)
    g.memcpy("HtoD", 60, 65, stream=9)
    return t


@pytest.mark.parametrize("window", ["0:100", "0ns:0.1us"])
def test_worked_example_of_one_rank(tmp_path: Path, window: str) -> None:
    trace = osc.load(nsys.write(worked_example(), tmp_path / "t.sqlite"))
    result = osc.overlap(trace, window)
    (row,) = result.ranks.to_dict("records")
    assert row == {
        "rank": 0,
        "device": 0,
        "pid": 4242,
        "window_ns": 100,
        "compute_ns": 65,
        "gemm_ns": 60,
        "attention_ns": 0,
        "comm_ns": 40,
        "memory_ns": 5,
        "overlap_ns": 20,
        "gemm_overlap_ns": 15,
        "exposed_comm_ns": 20,
        "exposed_wait_ns": None,
        "exposed_wire_ns": None,
        "exposed_unsplit_ns": 20,
        "exposed_memory_ns": 5,
        "idle_ns": 10,
        "overlap_ratio": 0.5,
        "gemm_overlap_ratio": 0.375,
        "n_comm": 3,
        "n_gemm": 2,
        "n_ops": 7,
    }
    assert result.instances["exposed_ns"].tolist() == [15, 5, 0]
    assert result.instances["overlap_ns"].tolist() == [15, 5, 2]


def test_worked_example_of_two_ranks(tmp_path: Path) -> None:
    """An all-reduce from 100 and 140 to 170, rank 0 idle meanwhile: all 70 of it is exposed there."""
    t = TraceBuilder()
    for rank, start in ((0, 100), (1, 140)):
        g = t.process(pid=10 + rank, rank=rank).device(rank)
        g.kernel(GEMM, 0, start if rank else 60, stream=7)
        g.kernel(ALL_REDUCE, start, 170, stream=20)
    result = osc.overlap(osc.load(nsys.write(t, tmp_path / "t.sqlite")), "whole")
    assert result.ranks["exposed_comm_ns"].tolist() == [70, 30]
    assert result.ranks["idle_ns"].tolist() == [40, 0]
    assert result.instances[["start", "end"]].to_numpy().tolist() == [[100, 170], [140, 170]]


def test_columns_are_pinned(tmp_path: Path) -> None:
    result = osc.overlap(osc.load(nsys.write(worked_example(), tmp_path / "t.sqlite")))
    for table, columns in (
        (result.ranks, RANK_COLUMNS),
        (result.collectives, COLLECTIVE_COLUMNS),
        (result.instances, INSTANCE_COLUMNS),
    ):
        assert {c: str(d) for c, d in table.dtypes.items()} == columns
    assert list(RANK_COLUMNS) == [
        "rank",
        "device",
        "pid",
        "window_ns",
        "compute_ns",
        "gemm_ns",
        "attention_ns",
        "comm_ns",
        "memory_ns",
        "overlap_ns",
        "gemm_overlap_ns",
        "exposed_comm_ns",
        "exposed_wait_ns",
        "exposed_wire_ns",
        "exposed_unsplit_ns",
        "exposed_memory_ns",
        "idle_ns",
        "overlap_ratio",
        "gemm_overlap_ratio",
        "n_comm",
        "n_gemm",
        "n_ops",
    ]
    assert list(COLLECTIVE_COLUMNS) == [
        "rank",
        "collective",
        "count",
        "union_ns",
        "sum_ns",
        "overlap_ns",
        "exposed_ns",
        "exposed_wait_ns",
        "exposed_wire_ns",
        "exposed_unsplit_ns",
        "bytes",
    ]


def test_no_communication_is_an_answer(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.process(pid=1).device(0).kernel(GEMM, 0, 40, stream=7)
    result = osc.overlap(osc.load(nsys.write(t, tmp_path / "t.sqlite")))
    assert result.ranks["overlap_ratio"].isna().tolist() == [True]
    assert result.ranks.loc[0, ["comm_ns", "exposed_comm_ns"]].tolist() == [0, 0]
    assert len(result.collectives) == 0
    assert {c: str(d) for c, d in result.collectives.dtypes.items()} == COLLECTIVE_COLUMNS


def test_ops_that_straddle_the_window_are_clipped(tmp_path: Path) -> None:
    """A communication of 80 that lies around a window of 10 fills it; it does not vanish."""
    t = TraceBuilder()
    g = t.process(pid=1).device(0)
    g.kernel(GEMM, 0, 20, stream=7)
    g.kernel(ALL_REDUCE, 10, 90, stream=20)
    result = osc.overlap(osc.load(nsys.write(t, tmp_path / "t.sqlite")), "40:50")
    assert result.ranks.loc[0, ["comm_ns", "exposed_comm_ns", "n_ops"]].tolist() == [10, 10, 1]
    assert result.instances.loc[0, ["start", "end", "duration_ns"]].tolist() == [10, 90, 10]


def test_a_copy_between_devices_is_communication(tmp_path: Path) -> None:
    t = TraceBuilder()
    g = t.process(pid=1).device(0)
    g.kernel(GEMM, 0, 20, stream=7)
    g.memcpy("PtoP", 10, 30, stream=9, src=0, dst=1, nbytes=4096)
    g.memcpy("DtoD", 30, 40, stream=9)
    result = osc.overlap(osc.load(nsys.write(t, tmp_path / "t.sqlite")))
    assert result.ranks.loc[0, ["comm_ns", "memory_ns", "overlap_ns"]].tolist() == [20, 10, 10]
    assert result.collectives.loc[0, ["collective", "count", "bytes"]].tolist() == ["send_recv", 1, 4096]


def test_two_processes_that_call_their_gpu_0_are_two_ranks(tmp_path: Path) -> None:
    """Merged, the all-reduce of one would seem hidden under the GEMM of the other."""
    t = TraceBuilder()
    t.process(pid=1).device(0).kernel(GEMM, 0, 100, stream=7)
    t.process(pid=2).device(0).kernel(ALL_REDUCE, 0, 100, stream=7)
    result = osc.overlap(osc.load(nsys.write(t, tmp_path / "t.sqlite")))
    assert result.ranks["pid"].tolist() == [1, 2]
    assert result.ranks["overlap_ns"].tolist() == [0, 0]
    assert result.ranks["exposed_comm_ns"].tolist() == [0, 100]


def test_half_known_bytes_are_not_known(tmp_path: Path) -> None:
    t = TraceBuilder()
    g = t.process(pid=1, rank=0, world=1).device(0)
    g.kernel(ALL_REDUCE, 0, 10, stream=20)
    result = osc.overlap(osc.load(kineto.write(t.rank(0), tmp_path / "r.json")))
    assert result.collectives.loc[0, "bytes"] is pd.NA


# -- properties ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Op:
    start: int
    end: int
    kind: int
    lane: int


ops_of_a_rank = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 15), st.integers(0, 4), st.integers(0, 2)).map(
        lambda t: Op(t[0], t[0] + t[1], t[2], t[3])
    ),
    min_size=1,
    max_size=14,
)


def trace_of(ranks: list[list[Op]]) -> osc.Trace:
    rows = [(rank, op) for rank, ops in enumerate(ranks) for op in sorted(ops, key=lambda o: o.start)]
    n = len(rows)
    kind = np.array([op.kind for _, op in rows], np.int8)
    comm = KINDS.index("comm")
    ops = pd.DataFrame(
        {
            "start": np.array([op.start for _, op in rows], np.int64),
            "end": np.array([op.end for _, op in rows], np.int64),
            "rank": np.array([rank for rank, _ in rows], np.int32),
            "lane": np.array([3 * rank + op.lane for rank, op in rows], np.int32),
            "name": kind.astype(np.int32),
            "kind": kinds(kind),
            "collective": collectives(np.where(kind == comm, 0, -1)),
            "launch": np.full(n, NA),
            "thread": np.full(n, NA),
            "bytes": np.full(n, NA),
            "group": np.full(n, -1, np.int32),
            "communicator": np.full(n, -1, np.int32),
            "sequence": np.full(n, -1, np.int32),
            "shape": np.full(n, -1, np.int32),
        }
    )
    names = pd.DataFrame([(k, None, k, None, None, False, None) for k in KINDS], columns=list(_NAME_COLUMNS))
    lanes = pd.DataFrame(
        [(rank, 0, s, f"stream {s}") for rank in range(len(ranks)) for s in range(3)],
        columns=list(LANE_COLUMNS),
    )
    listed = pd.DataFrame(
        [(rank, 0, rank, None, "made", 0) for rank in range(len(ranks))],
        columns=["rank", "device", "pid", "gpu", "source", "clock"],
    )
    return osc.Trace(ops, empty_ranges(), names, lanes, listed, Provenance((Source("made", "nsys", "test"),)))


_NAME_COLUMNS = ("string", "short", "kind", "collective", "library", "fused_comm", "rule")


def count_instants(ops: list[Op], lo: int, hi: int) -> dict[str, int]:
    """The same figures by walking every instant of the window."""
    found = dict.fromkeys(("compute", "gemm", "attention", "comm", "memory", "overlap", "gemm_overlap"), 0)
    found |= dict.fromkeys(("exposed_comm", "exposed_memory", "idle"), 0)
    for t in range(lo, hi):
        on = {KINDS[op.kind] for op in ops if op.start <= t < op.end}
        compute, comm = bool(on & {"gemm", "attention", "compute"}), "comm" in on
        found["compute"] += compute
        found["comm"] += comm
        for kind in ("gemm", "attention", "memory"):
            found[kind] += kind in on
        found["overlap"] += compute and comm
        found["gemm_overlap"] += "gemm" in on and comm
        found["exposed_comm"] += comm and not compute
        found["exposed_memory"] += "memory" in on and not comm and not compute
        found["idle"] += not on
    return found


@given(st.lists(ops_of_a_rank, min_size=1, max_size=3), st.integers(-5, 70), st.integers(1, 60))
def test_figures_against_a_counter_of_instants(ranks: list[list[Op]], lo: int, length: int) -> None:
    hi = lo + length
    trace = trace_of(ranks)
    first, last = trace.span
    if hi <= first or lo >= last:
        with pytest.raises(osc.OptionError, match="outside"):
            osc.overlap(trace, f"{lo}:{hi}")
        return
    result = osc.overlap(trace, f"{lo}:{hi}")
    for row, ops in zip(result.ranks.to_dict("records"), ranks, strict=True):
        expected = count_instants(ops, lo, hi)
        assert {k: row[f"{k}_ns"] for k in expected} == expected
        parts = [row[f"{p}_ns"] for p in ("compute", "exposed_comm", "exposed_memory", "idle")]
        assert min(parts) >= 0
        assert sum(parts) == row["window_ns"] == length
        mine = result.instances[result.instances["rank"] == row["rank"]]
        assert mine["exposed_ns"].sum() == row["exposed_comm_ns"]
        by_kind = result.collectives[result.collectives["rank"] == row["rank"]]
        assert by_kind["exposed_ns"].sum() == row["exposed_comm_ns"]
        assert by_kind["union_ns"].sum() == row["comm_ns"]  # one kind of collective here


@given(ops_of_a_rank)
def test_whole_window_is_first_start_to_last_end(ops: list[Op]) -> None:
    result = osc.overlap(trace_of([ops]), "whole")
    lo, hi = min(op.start for op in ops), max(op.end for op in ops)
    row = result.ranks.to_dict("records")[0]
    assert row["window_ns"] == hi - lo
    assert row["n_ops"] == len(ops) or lo == hi
    expected = count_instants(ops, lo, hi)
    assert {k: row[f"{k}_ns"] for k in expected} == expected


@given(ops_of_a_rank, st.randoms(use_true_random=False))
def test_order_of_input_does_not_matter(ops: list[Op], random: object) -> None:
    shuffled = ops.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    a, b = osc.overlap(trace_of([ops])), osc.overlap(trace_of([shuffled]))
    pd.testing.assert_frame_equal(a.ranks, b.ranks)
    pd.testing.assert_frame_equal(a.collectives, b.collectives)


def test_instances_of_one_start_and_lane_share_the_same_way_in_any_order(tmp_path: Path) -> None:
    """On the lower stream the longer of two that start together owns the time, whichever row came first."""
    gather = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
    for order in (1, -1):
        t = TraceBuilder()
        g = t.process(pid=1).device(0)
        for name, end in ((ALL_REDUCE, 10), (gather, 30))[::order]:
            g.kernel(name, 0, end, stream=20)
        g.kernel(ALL_REDUCE, 0, 40, stream=21)
        trace = osc.load(nsys.write(t, tmp_path / f"{order}.sqlite"))
        exposed = osc.overlap(trace).collectives.set_index("collective")["exposed_ns"].to_dict()
        assert exposed == {"all_gather": 30, "all_reduce": 10}
