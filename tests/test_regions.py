"""Whose time it is: paths of ranges, streams; what adds up, what is attributed once, and what cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import overlapscope as osc
from builders import TraceBuilder, kineto, nsys
from made import made
from overlapscope.analysis.regions import REGION_COLUMNS, STREAM_COLUMNS
from overlapscope.intervals import enclosing, union, unions

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
FIGURES = ("n_ops", "compute_ns", "comm_ns", "overlap_ns", "exposed_comm_ns")


def rows(table: pd.DataFrame, rank: int = 0) -> dict[Any, tuple[int, ...]]:
    mine = table[table["rank"] == rank]
    keys = ["/".join(p) or place for p, place in zip(mine["path"], mine["place"], strict=True)]
    return dict(zip(keys, mine[list(FIGURES)].itertuples(index=False, name=None), strict=True))


def two_steps(tmp_path: Path) -> osc.Trace:
    """Per step, at 1000·i: attn [0, 40), its all-reduce [30, 60), mlp [50, 80), its own [90, 100)."""
    t = TraceBuilder()
    p = t.process(pid=7, rank=0)
    g = p.device(0)
    for i in range(2):
        at = 1000 * i
        p.range(f"step {i}", at, at + 100, domain="overlapscope", category="step")
        p.range("layer 0", at + 1, at + 90, domain="overlapscope", category="layer")
        p.range("attn.out", at + 2, at + 40, domain="overlapscope", category="sharded")
        p.range(
            "attn.out.all_reduce", at + 10, at + 50, domain="overlapscope", category="comm", kind="start_end"
        )
        p.range("mlp", at + 42, at + 80)
        p.nccl("ncclAllReduce", at + 60, at + 70, nsys_payload())
        for name, start, end, launch, stream in (
            (GEMM, 0, 40, 5, 7),
            (ALL_REDUCE, 30, 60, 12, 20),
            (GEMM, 50, 80, 45, 7),  # while the range of the all-reduce is still open
            (ALL_REDUCE, 90, 100, 65, 20),
        ):
            g.kernel(name, at + start, at + end, stream=stream, launch=(at + launch, at + launch + 1))
    g.kernel(GEMM, 1100, 1110, stream=7, launch=(1095, 1096))  # in the step, in no range
    return osc.load(nsys.write(t, tmp_path / "t.sqlite"))


def nsys_payload() -> Any:
    from builders import Nccl

    return Nccl(comm=1, nbytes=8)


def test_one_row_for_the_same_place_in_every_step(tmp_path: Path) -> None:
    """Nested; neither steps nor NCCL's own names are levels; nothing but the collective is in its range."""
    trace = two_steps(tmp_path)
    table = osc.by_range(trace)
    assert rows(table) == {
        "layer 0": (8, 140, 80, 40, 40),
        "layer 0/attn.out": (4, 80, 60, 40, 20),
        "layer 0/attn.out/attn.out.all_reduce": (2, 0, 60, 40, 20),
        "layer 0/mlp": (4, 60, 20, 0, 20),
        "outside": (1, 10, 0, 0, 0),
    }
    assert osc.overlap(trace).ranks["exposed_comm_ns"].tolist() == [40]


def test_figures_are_clipped_to_the_window(tmp_path: Path) -> None:
    trace = two_steps(tmp_path)
    assert rows(osc.by_range(trace, osc.overlap(trace, "35:55"))) == {
        "layer 0": (3, 10, 20, 10, 10),
        "layer 0/attn.out": (2, 5, 20, 10, 10),
        "layer 0/attn.out/attn.out.all_reduce": (1, 0, 20, 10, 10),
        "layer 0/mlp": (1, 5, 0, 0, 0),
    }


def test_ops_without_a_launch_record_are_kept_and_counted(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process(pid=7, rank=0)
    p.range("up", 0, 100)
    g = p.device(0)
    g.kernel(GEMM, 0, 10, stream=7, launch=(1, 2))
    g.kernel(ALL_REDUCE, 20, 30, stream=20)
    g.kernel(GEMM, 40, 50, stream=7, launch=(200, 201))
    table = osc.by_range(osc.load(nsys.write(t, tmp_path / "t.sqlite")))
    assert rows(table) == {"up": (1, 10, 0, 0, 0), "outside": (1, 10, 0, 0, 0), "unknown": (1, 0, 10, 0, 10)}


def test_two_processes_with_the_same_correlation_ids_and_threads(tmp_path: Path) -> None:
    """Joined without the process, every kernel would stand in both ranks' ranges."""
    t = TraceBuilder()
    for rank in (0, 1):
        p = t.process(pid=7 + rank, rank=rank)
        p.range(f"only on {rank}", 0, 100, thread=99)
        for i in range(3):
            at = 10 * i
            p.device(rank).kernel(GEMM, at, at + 5 + rank, stream=7, launch=(i, i + 1), thread=99)
    table = osc.by_range(osc.load(nsys.write(t, tmp_path / "t.sqlite")))
    assert rows(table, 0) == {"only on 0": (3, 15, 0, 0, 0)}
    assert rows(table, 1) == {"only on 1": (3, 18, 0, 0, 0)}


def gloo_run(tmp_path: Path, *, marked: bool) -> osc.Trace:
    """Two all-reduces queued at once on gloo's threads, as the marks tell: the first for `a`, the second for `b`."""
    t = TraceBuilder()
    p = t.process(pid=7, rank=0, world=1, backend="gloo")
    p.op("aten::mm", 0, 10)
    for name, start, end in (("a", 10, 60), ("b", 12, 90)):
        p.range(name, start - 1 if name == "a" else start, end + 1)
    if marked:
        p.range("a.all_reduce", 10, 60)
        p.range("b.all_reduce", 13, 90)
    p.op("gloo:all_reduce", 20, 50, thread=50)
    p.op("gloo:all_reduce", 55, 85, thread=50)
    p.op("gloo:barrier", 95, 99, thread=51)
    path = kineto.write(p, tmp_path / "rank0.json")
    roles = '"overlapscope": {"roles": {"a.all_reduce": "comm", "b.all_reduce": "comm"}}, '
    path.write_text(path.read_text().replace("{", "{" + roles, 1))
    return osc.load(path)


def test_gloos_collectives_belong_to_the_ranges_that_wait_for_them(tmp_path: Path) -> None:
    """The second begins while both ranges are open, after the first was served: it is the second's."""
    trace = gloo_run(tmp_path, marked=True)
    found = rows(osc.by_range(trace))
    comm = {path: figures for path, figures in found.items() if figures[2]}
    assert comm == {
        "a": (1, 0, 30, 0, 30),
        "a/a.all_reduce": (1, 0, 30, 0, 30),
        "b": (1, 0, 30, 0, 30),
        "b/b.all_reduce": (1, 0, 30, 0, 30),
        "unknown": (1, 0, 4, 0, 4),
    }


def test_unmarked_collectives_of_gloo_are_not_guessed_at(tmp_path: Path) -> None:
    found = rows(osc.by_range(gloo_run(tmp_path, marked=False)))
    assert found["unknown"] == (3, 0, 64, 0, 64)
    assert "a" not in found


def test_our_own_block_has_each_all_reduce_under_its_layer() -> None:
    trace = osc.load(Path(__file__).parent / "data" / "cpu-block-tp2")
    table = osc.by_range(trace)
    for name in ("attn.o", "mlp.down"):
        mine = table[table["path"].map(lambda p, n=name: p[-2:] == (n, f"{n}.all_reduce"))]
        assert mine["path"].tolist() == [("forward", "layer 0", name, f"{name}.all_reduce")] * 2
        assert mine["n_comm"].tolist() == [2, 2]  # one a step
    assert (table["place"] == "range").all()


def test_by_stream(tmp_path: Path) -> None:
    table = osc.by_stream(two_steps(tmp_path))
    figures = ["stream", *FIGURES, "memory_ns"]
    assert table[figures].to_numpy().tolist() == [[7, 5, 150, 0, 0, 0, 0], [20, 4, 0, 80, 40, 40, 0]]
    assert list(table.columns) == list(STREAM_COLUMNS)


def test_columns_and_a_trace_without_ranges(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.process(pid=7, rank=0).device(0).kernel(GEMM, 0, 10, stream=7)
    table = osc.by_range(osc.load(nsys.write(t, tmp_path / "t.sqlite")))
    assert list(table.columns) == list(REGION_COLUMNS)
    assert rows(table) == {"unknown": (1, 10, 0, 0, 0)}


# -- properties ----------------------------------------------------------------------------------------------

KINDS = ["gemm", "comm", "memory"]
some_ops = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 10), st.sampled_from(KINDS), st.integers(-1, 25)),
    min_size=1,
    max_size=12,
)
some_ranges = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 12), st.sampled_from("abc")), max_size=8)


def build(ops: list[Any], ranges: list[Any]) -> osc.Trace:
    return made(
        [
            {"rank": 0, "start": s, "end": s + n, "kind": k} | ({} if at < 0 else {"launch": at, "thread": 1})
            for s, n, k, at in ops
        ],
        [{"rank": 0, "thread": 1, "start": s, "end": s + n, "name": name} for s, n, name in ranges],
        ranks=1,
    )


@given(some_ops, some_ranges)
def test_top_level_shares_out_what_is_exposed_and_children_never_exceed_it(ops: Any, ranges: Any) -> None:
    trace = build(ops, ranges)
    result = osc.overlap(trace, "whole")
    table = osc.by_range(trace, result)
    top = table[table["path"].map(len) <= 1]
    assert top["exposed_comm_ns"].sum() == result.ranks["exposed_comm_ns"].sum()
    assert top["n_ops"].sum() == result.ranks["n_ops"].sum()
    assert osc.by_stream(trace, result)["exposed_comm_ns"].sum() == result.ranks["exposed_comm_ns"].sum()
    paths = table.set_index("path")
    for path, row in paths.iterrows():
        assert row["overlap_ns"] + row["exposed_comm_ns"] <= row["comm_ns"]
        inside = table[table["path"].map(lambda p, path=path: len(p) == len(path) + 1 and p[:-1] == path)]
        if path:
            assert inside["exposed_comm_ns"].sum() <= row["exposed_comm_ns"]
            assert inside["n_ops"].sum() <= row["n_ops"]


@given(some_ops, some_ranges, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(ops: Any, ranges: Any, random: Any) -> None:
    distinct = list(
        {(s, n): (s, n, name) for s, n, name in ranges}.values()
    )  # equal ranges nest by their order
    one = osc.by_range(build(ops, distinct))
    random.shuffle(ops)
    random.shuffle(distinct)
    other = osc.by_range(build(ops, distinct))
    by = ["place", "path"]
    columns = list(REGION_COLUMNS)
    assert (
        one[columns].sort_values(by)["compute_ns"].tolist()
        == other[columns].sort_values(by)["compute_ns"].tolist()
    )
    assert one.sort_values(by)["path"].tolist() == other.sort_values(by)["path"].tolist()
    assert one.sort_values(by)["comm_ns"].tolist() == other.sort_values(by)["comm_ns"].tolist()


intervals = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(0, 9)), max_size=12)


@given(intervals)
def test_unions_is_the_union_of_each_group(some: list[tuple[int, int, int]]) -> None:
    group, start, length = (np.array([x[i] for x in some], np.int64) for i in range(3))
    g, s, e = unions(group, start, start + length)
    for number in range(4):
        expected = union(start[group == number], (start + length)[group == number])
        assert s[g == number].tolist() == expected.start.tolist()
        assert e[g == number].tolist() == expected.end.tolist()


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), max_size=10))
def test_enclosing_against_looking_at_every_pair(some: list[tuple[int, int]]) -> None:
    start, length = (np.array([x[i] for x in some], np.int64) for i in range(2))
    end = start + length
    for i, found in enumerate(enclosing(start, end).tolist()):
        around = [
            j
            for j in range(len(some))
            if start[j] <= start[i] and end[i] <= end[j] and (start[j] < start[i] or end[i] < end[j] or j < i)
        ]
        assert (found >= 0) == bool(around)
        if around:
            assert found == max(around, key=lambda j: (start[j], -end[j], j))


# -- real traces ---------------------------------------------------------------------------------------------


def test_kernels_of_two_processes_are_attributed_once(shared_traces: Path) -> None:
    """31 kernels have no launch record; the ids of the two processes collide."""
    trace = osc.load(shared_traces / "nsys/pp-2rank-h100-schema3.25.sqlite")
    table = osc.by_range(trace)
    top = table[table["path"].map(len) <= 1]
    assert top["n_ops"].sum() == len(trace.ops)
    assert table.loc[table["place"] == "unknown", "n_ops"].sum() == 31
    assert table.loc[table["path"] == ("AllToAll4D", "c10d::alltoall_base_"), "n_comm"].tolist() == [32, 32]


def test_names_of_the_program_in_a_trace_of_others(shared_traces: Path) -> None:
    table = osc.by_range(osc.load(shared_traces / "nsys/ddp-2rank-rtx3090-schema3.27.sqlite"))
    block = ("distributed_training", "forward pass", "transformer block forward")
    assert table.loc[table["path"] == block, "n_ops"].tolist() == [720, 720]
    assert table.loc[table["path"] == (*block, "attention sublayer"), "n_ops"].tolist() == [516, 516]
    assert not table["path"].map(lambda p: "ncclAllReduce" in p).any()


@pytest.mark.parametrize("file", ["kineto/megatron-tp8-a100", "kineto/dlrm-8rank-v100"])
def test_steps_are_no_level(shared_traces: Path, file: str) -> None:
    table = osc.by_range(osc.load(shared_traces / file))
    assert not table["path"].map(lambda p: any(name.startswith("ProfilerStep") for name in p)).any()
