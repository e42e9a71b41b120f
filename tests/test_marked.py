"""Reports from NVTX ranges alone: handmade exports without a GPU in them, and the figures worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import overlapscope as osc
from builders import Process, TraceBuilder, nsys
from overlapscope.formats.nsys import write
from overlapscope.report import document, export, text

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
KINDS = ["gemm_ns", "attention_ns", "gemm_overlap_ns", "n_gemm"]
PARTS = ["window_ns", "compute_ns", "exposed_comm_ns", "exposed_memory_ns", "idle_ns"]
SHARED = ["comm_ns", "overlap_ns", "n_comm", "n_ops"]


def marked(process: Process, name: str, start: int, end: int | None, role: str, **more: object) -> None:
    process.range(name, start, end, domain="overlapscope", category=role, registered=True, **more)  # type: ignore[arg-type]


def one_rank(t: TraceBuilder, rank: int = 0, world: int = 1, late: int = 0) -> Process:
    """A step of 680 ns: three ranges, a collective under way in the second, 20 ns of nothing before the third."""
    p = t.process(pid=7 + rank)
    marked(p, f"rank {rank} of {world}", 0, 0, "rank")
    marked(p, "step 0", 50, 1000, "step")
    marked(p, "mlp.up", 100, 300, "sharded")
    marked(p, "mlp.down", 300, 700, "sharded")
    marked(p, "mlp.down.all_reduce", 400, 650 + late, "comm", kind="start_end", payload=4096)
    marked(p, "mlp.down.all_reduce.call", 400, 410, "wait")
    marked(p, "mlp.down.all_reduce.wait", 500, 650 + late, "wait")
    marked(p, "mlp.norm", 720, 780, "replicated")
    return p


@pytest.mark.parametrize("style", ["2.9", "3.0", "3.13", "3.25", "3.27"])
@pytest.mark.parametrize("seed", [None, 3], ids=["ordered", "shuffled"])
def test_time_in_ranges_is_compute_except_where_they_wait(
    tmp_path: Path, style: str, seed: int | None
) -> None:
    t = TraceBuilder()
    one_rank(t)
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite", style=style, seed=seed))
    result = osc.overlap(trace)
    assert result.windows.steps == ("step 0",)
    # Compute 200, then 100 + 90 + 50 of the second, then 60; the collective of 250 has 90 of that beside it.
    assert result.ranks[PARTS].to_numpy().tolist() == [[680, 500, 160, 0, 20]]
    assert result.ranks[SHARED].to_numpy().tolist() == [[250, 90, 1, 6]]
    assert result.collectives[["collective", "count", "bytes", "exposed_ns"]].to_numpy().tolist() == [
        ["all_reduce", 1, 4096, 160]
    ]
    assert result.instances[["name", "start", "end"]].to_numpy().tolist() == [
        ["comm:mlp.down.all_reduce", 400, 650]
    ]
    names = trace.names["string"].to_numpy()[trace.ops["name"].to_numpy()]
    computing = (trace.ops["kind"] == "compute").to_numpy()
    pieces = trace.ops.loc[computing, ["start", "end"]].to_numpy().tolist()
    assert list(zip(names[computing], pieces, strict=True)) == [
        ("sharded:mlp.up", [100, 300]),
        ("sharded:mlp.down", [300, 400]),
        ("sharded:mlp.down", [410, 500]),
        ("sharded:mlp.down", [650, 700]),
        ("replicated:mlp.norm", [720, 780]),
    ]
    assert (trace.provenance.lanes, trace.provenance.from_ranges) == ("host", True)


def test_chunks_that_travel_while_the_next_is_multiplied(tmp_path: Path) -> None:
    """Exchanges that overlap each other and the compute between them, in one layer's range."""
    t = TraceBuilder()
    p = t.process(pid=7)
    marked(p, "down", 0, 420, "sharded")
    for number, (call, wait, end) in enumerate([(100, 210, 320), (200, 330, 400)]):
        marked(p, "down.all_reduce", call, end, "comm", kind="start_end", payload=8 << number)
        marked(p, "down.all_reduce.wait", wait, end, "wait")
    figures = osc.overlap(osc.load(nsys.write(t, tmp_path / "t.sqlite")), "whole")
    # Compute [0,210), [320,330), [400,420); communication [100,400).
    assert figures.ranks[PARTS].to_numpy().tolist() == [[420, 240, 180, 0, 0]]
    assert figures.ranks[SHARED].to_numpy().tolist() == [[300, 120, 2, 5]]
    assert figures.collectives[["sum_ns", "union_ns", "bytes"]].to_numpy().tolist() == [[420, 300, 24]]


def test_a_backward_on_a_thread_of_its_own_and_a_collective_that_ends_elsewhere(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process(pid=7)
    marked(p, "qkv.grad", 100, 400, "sharded", thread=8)
    marked(p, "qkv.dgrad", 110, 200, "sharded", thread=8)
    marked(p, "qkv.grad.reduce_scatter", 210, 350, "comm", kind="start_end", thread=8, end_thread=7)
    marked(p, "qkv.wgrad", 220, 300, "sharded", thread=8)
    marked(p, "qkv.grad.reduce_scatter.wait", 300, 350, "wait", thread=7)
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    figures = osc.overlap(trace, "whole")
    # The wait is the other thread's, so this one computes all the time.
    assert figures.ranks[PARTS].to_numpy().tolist() == [[300, 300, 0, 0, 0]]
    assert figures.collectives[["collective", "bytes"]].isna().to_numpy().tolist() == [[False, True]]
    groups = {"sharded:qkv.grad": 130, "sharded:qkv.dgrad": 90, "sharded:qkv.wgrad": 80}
    names = pd.Series(trace.names["string"].to_numpy()[trace.ops["name"].to_numpy()])
    lengths = (trace.ops["end"] - trace.ops["start"]).groupby(names).sum().to_dict()
    assert {name: lengths[name] for name in groups} == groups


def test_a_program_of_ones_own(tmp_path: Path) -> None:
    """Collectives that block are ordinary ranges; what is neither sharded nor waiting says nothing of time."""
    t = TraceBuilder()
    p = t.process(pid=7)
    marked(p, "train", 0, 300, "layer")
    marked(p, "forward", 0, 100, "replicated")
    marked(p, "loss", 50, 90, "my own role")
    marked(p, "gradients.allreduce", 120, 200, "comm", payload=64)
    marked(p, "exchange", 200, 230, "comm")
    marked(p, "never closed", 240, None, "sharded")
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    figures = osc.overlap(trace, "whole")
    assert figures.ranks[PARTS].to_numpy().tolist() == [[230, 100, 110, 0, 20]]
    assert figures.collectives["collective"].tolist() == ["all_reduce", "other"]


def test_steps_and_ranks_are_those_of_the_markers(tmp_path: Path) -> None:
    t = TraceBuilder()
    one_rank(t, rank=1, world=2, late=40)
    one_rank(t, rank=0, world=2)
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    assert trace.ranks[["rank", "pid"]].to_numpy().tolist() == [[0, 7], [1, 8]]
    assert trace.provenance.ranks_from == "recorded by the program's marker"
    assert osc.overlap(trace).ranks[PARTS].to_numpy().tolist() == [
        [680, 500, 160, 0, 20],
        [680, 460, 200, 0, 20],
    ]
    sizes = osc.account(trace)
    assert {part.group: ns for part, ns in sizes.parts_ns.items() if part.group} == {
        "mlp.up": 400,
        "mlp.down": 440,
        "mlp.norm": 120,
    }


def test_the_report_says_what_it_was_made_from_and_what_that_means(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = one_rank(t)
    marked(p, "link 50 GB/s, 5 us", 1, 1, "link")
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    built = document.build(trace)
    said = " ".join(text.render(built).split())
    assert "made from the program's NVTX ranges alone" in said
    assert "from its call to the end of its wait" in said
    assert "outside marked ranges counts as idle" in said
    assert "Compute: of what kind is not known." in said
    assert "GEMM," not in said
    assert "paced: 50 GB/s, 5 us" in said
    data = json.loads(export.json_text(built))
    assert data["provenance"]["from_ranges"] is True
    assert [data["ranks"][0][column] for column in [*KINDS, "gemm_overlap_ratio"]] == [None] * 5
    assert data["unclassified"] == []


def test_converted_it_stays_what_it_is(tmp_path: Path) -> None:
    t = TraceBuilder()
    one_rank(t, rank=1, world=2)
    one_rank(t, rank=0, world=2)
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    write(trace, tmp_path / "again.sqlite")
    again = osc.load(tmp_path / "again.sqlite")
    assert again.provenance.from_ranges
    first, second = osc.overlap(trace), osc.overlap(again)
    for table in ("ranks", "collectives", "instances"):
        pd.testing.assert_frame_equal(getattr(first, table), getattr(second, table))


def test_where_there_are_kernels_ranges_are_no_ops(tmp_path: Path) -> None:
    t = TraceBuilder()
    one_rank(t).device(0).kernel(GEMM, 200, 210, stream=7, launch=(110, 112))
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    assert len(trace.ops) == 1
    assert (trace.provenance.lanes, trace.provenance.from_ranges) == ("gpu", False)
    assert osc.overlap(trace, "whole").ranks[[*PARTS, *KINDS]].to_numpy().tolist() == [
        [10, 10, 0, 0, 0, 10, 0, 0, 1]
    ]


def test_where_a_gpu_s_work_is_missing_ranges_do_not_stand_in_for_it(tmp_path: Path) -> None:
    """What a program does on the host while a GPU computes is not compute."""
    t = TraceBuilder()
    one_rank(t).call("cudaLaunchKernel", 110, 112)
    with pytest.raises(osc.InputError, match="CUDA was not traced, or the export was interrupted"):
        osc.load(nsys.write(t, tmp_path / "calls.sqlite"))
    t = TraceBuilder()
    one_rank(t).device(0).graph(0, 10, stream=7)
    with pytest.raises(osc.InputError, match="only CUDA graphs traced as a whole"):
        osc.load(nsys.write(t, tmp_path / "graph.sqlite"))


def test_ranges_without_roles_are_refused_as_ever(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process(pid=7)
    p.range("step 0", 0, 100)
    p.range("mlp.up", 10, 50, domain="overlapscope")
    p.range("mlp.up", 10, 50, domain="somebody's", category="sharded")
    marked(p, "rank 0 of 1", 0, 0, "rank")
    marked(p, "waits", 60, 70, "wait")
    with pytest.raises(osc.InputError, match="without a kernel table"):
        osc.load(nsys.write(t, tmp_path / "t.sqlite"))
