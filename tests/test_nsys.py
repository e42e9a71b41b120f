"""nsys exports from 2019 to 2026, handmade in the style of each schema."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import overlapscope as osc
from builders import Nccl, TraceBuilder, nsys

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
STYLES = ["2.9", "3.0", "3.13", "3.17", "3.25", "3.27"]


def two_ranks() -> TraceBuilder:
    """Two processes that share correlation ids and both call their GPU 0."""
    t = TraceBuilder()
    for rank in range(2):
        p = t.process(pid=100 + rank, rank=rank, world=2)
        g = p.device(0, "NVIDIA H100 80GB HBM3", gpu=rank)
        p.range("step 0", 0, 1000, thread=100 + rank)
        p.sync("stream", 0, 900, stream=7)
        g.kernel(GEMM, 100, 200 + rank, stream=7, launch=(10, 12))
        g.kernel(ALL_REDUCE, 150, 300, stream=20, launch=(20, 22), thread=500 + rank)
        g.memcpy("HtoD", 290, 320, stream=9, nbytes=4096, launch=(30, 33))
        g.memset(400, 410, stream=7, nbytes=64, launch=(40, 41))
    return t


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("seed", [None, 3], ids=["ordered", "shuffled"])
def test_every_schema_gives_the_same_figures(tmp_path: Path, style: str, seed: int | None) -> None:
    trace = osc.load(nsys.write(two_ranks(), tmp_path / "t.sqlite", style=style, seed=seed))
    result = osc.overlap(trace, "whole")
    columns = [
        "pid",
        "device",
        "window_ns",
        "compute_ns",
        "comm_ns",
        "overlap_ns",
        "exposed_memory_ns",
        "n_ops",
    ]
    assert result.ranks[columns].to_numpy().tolist() == [
        [100, 0, 310, 100, 150, 50, 30, 4],
        [101, 0, 310, 101, 150, 51, 30, 4],
    ]
    assert trace.ops.loc[trace.ops["kind"] == "memory", "bytes"].tolist() == [4096, 64, 4096, 64]
    assert trace.ranges["name"].tolist() == ["step 0", "step 0"]
    assert trace.provenance.origin_ns == 1_711_968_000_000_000_000


@pytest.mark.parametrize("style", STYLES)
def test_launches_join_within_the_process(tmp_path: Path, style: str) -> None:
    """Both processes count their correlation ids from 1: joined without the process, launches would mix."""
    t = two_ranks()
    t.processes[1].devices[0].kernel(GEMM, 500, 510, stream=7)  # has no launch record
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite", style=style))
    assert trace.of_rank(0)["thread"].tolist() == [100, 500, 100, 100]
    assert trace.of_rank(1)["thread"].tolist() == [101, 501, 101, 101, osc.NA]
    assert trace.of_rank(1)["launch"].tolist() == [10, 20, 30, 40, osc.NA]


@pytest.mark.parametrize("style", STYLES)
def test_graph_level_rows_warn(tmp_path: Path, style: str) -> None:
    t = two_ranks()
    t.processes[0].devices[0].graph(600, 700, stream=7)
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite", style=style))
    told = [w for w in trace.provenance.warnings if "CUDA graph" in w]
    assert len(told) == (0 if style in ("2.9", "3.0") else 1)  # those schemas have no such table


def test_a_file_of_graphs_alone_says_how_to_capture(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.process(pid=1).device(0).graph(0, 10, stream=7)
    with pytest.raises(osc.InputError, match=r"only CUDA graphs traced as a whole.*--cuda-graph-trace=node"):
        osc.load(nsys.write(t, tmp_path / "t.sqlite"))


def test_rank_of_our_marker_wins_over_process_order(tmp_path: Path) -> None:
    t = TraceBuilder()
    for pid, rank in ((5, 1), (6, 0)):
        p = t.process(pid=pid)
        p.mark(f"rank {rank} of 2", 0, domain="overlapscope", category="rank")
        p.device(0).kernel(GEMM, 0, 10 + rank, stream=7)
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    assert trace.ranks[["rank", "pid"]].to_numpy().tolist() == [[0, 6], [1, 5]]
    assert trace.provenance.ranks_from == "recorded by the program's marker"
    assert trace.provenance.world_size == 2


def test_one_process_with_two_gpus_is_two_ranks(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process(pid=5, rank=3)
    p.range("step 0", 0, 100)
    for device in (0, 1):
        p.device(device).kernel(GEMM, 0, 10 + device, stream=7, launch=(1, 2))
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    assert trace.ranks[["rank", "device", "pid"]].to_numpy().tolist() == [[0, 0, 5], [1, 1, 5]]
    assert trace.ranges["rank"].tolist() == [0, 1]
    assert trace.provenance.ranks_from == "not recorded: numbered by process, then device"


def test_same_pid_on_two_machines_of_one_file(tmp_path: Path) -> None:
    """The upper bits of a globalPid tell the machine; the pid alone would merge them."""
    t = TraceBuilder()
    for hardware in (0, 1):
        p = t.process(pid=5, hardware=hardware)
        p.range("step 0", 0, 100)
        p.device(0).kernel(GEMM, 0, 10 + hardware, stream=7, launch=(1, 2))
    result = osc.overlap(osc.load(nsys.write(t, tmp_path / "t.sqlite")))
    assert result.ranks["compute_ns"].tolist() == [10, 11]


def test_range_kinds(tmp_path: Path) -> None:
    """Start/end ranges may end on another thread; an open one keeps no end; inline and registered names."""
    t = two_ranks()
    p = t.processes[0]
    p.range("across", 5, 50, kind="start_end", end_thread=777)
    p.range("open", 6, None)
    p.range("registered", 7, 8, registered=True)
    p.nccl("ncclAllReduce", 9, 12, Nccl(comm=1, nbytes=64))
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    mine = trace.ranges[trace.ranges["rank"] == 0].set_index("name")
    assert mine["end"].to_dict() == {
        "step 0": 1000,
        "across": 50,
        "open": osc.NA,
        "registered": 8,
        "ncclAllReduce": 12,
    }
    assert mine.loc["ncclAllReduce", "domain"] == "NCCL"


def test_demangled_name_decides_where_the_short_one_is_bare(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.process(pid=1).device(0).kernel(
        "void deep_ep::intranode::dispatch<8, 768>(int4*)", 0, 9, stream=7, short="dispatch"
    )
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    assert trace.ops["kind"].tolist() == ["comm"]
    assert trace.ops["collective"].tolist() == ["all_to_all"]


def test_copy_between_devices_recorded_as_device_to_device(tmp_path: Path) -> None:
    t = TraceBuilder()
    g = t.process(pid=1).device(0)
    g.kernel(GEMM, 0, 5, stream=7)
    g.memcpy("DtoD", 0, 9, stream=9, src=0, dst=0)
    g.memcpy("DtoD", 20, 29, stream=9, src=0, dst=1)
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    assert trace.ops.sort_values("start")["kind"].tolist()[-1] == "comm"
    assert (trace.ops["kind"] == "memory").sum() == 1


def test_profiler_stalls_warn_from_five_percent(tmp_path: Path) -> None:
    def warnings_with(stall: int) -> list[str]:
        t = TraceBuilder()
        p = t.process(pid=1)
        p.device(0).kernel(GEMM, 0, 100, stream=7)
        p.device(1)
        t.processes[0].devices[0].kernel(GEMM, 900, 1000, stream=7)
        t.overhead(300, 300 + stall, process=p)
        path = tmp_path / f"{stall}.sqlite"
        return [w for w in osc.load(nsys.write(t, path)).provenance.warnings if "profiler" in w]

    assert warnings_with(50) == []
    (told,) = warnings_with(51)
    assert told.startswith("the profiler itself was busy for 5 % of rank 0's time")


def test_wall_clocks_bring_two_sessions_together(tmp_path: Path) -> None:
    paths = []
    for rank, epoch in enumerate((1_711_968_000_000_000_000, 1_711_968_000_000_005_000)):
        t = TraceBuilder(epoch=epoch)
        p = t.process(pid=9)
        p.mark(f"rank {rank} of 2", 0, domain="overlapscope", category="rank")
        p.device(0).kernel(GEMM, 100, 200, stream=7)
        paths.append(nsys.write(t, tmp_path / f"{rank}.sqlite"))
    trace = osc.load(paths)
    assert trace.ops["start"].tolist() == [100, 5100]
    assert trace.provenance.clock == "by each file's recorded wall clock"


def test_missing_columns_and_tables_are_looked_up(tmp_path: Path) -> None:
    """The least an export can be: a kernel table and strings, without process, version or session."""
    path = tmp_path / "t.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        db.execute("INSERT INTO StringIds VALUES (1, ?)", (GEMM,))
        db.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (streamId INT, deviceId INT, end INT, start INT, shortName INT)"
        )
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (7, 2, 30, 10, 1)")
    db.close()
    trace = osc.load(path)
    assert trace.ops[["start", "end", "kind"]].to_numpy().tolist() == [[10, 30, "gemm"]]
    assert trace.ranks[["device", "pid"]].to_numpy().tolist() == [[2, osc.NA]]


def test_ops_that_end_before_they_start_are_counted_not_hidden(tmp_path: Path) -> None:
    t = TraceBuilder()
    g = t.process(pid=1).device(0)
    g.kernel(GEMM, 0, 10, stream=7)
    path = nsys.write(t, tmp_path / "t.sqlite")
    with sqlite3.connect(path) as db:
        db.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = -5")
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL")
        db.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 10 WHERE rowid = 2")
    db.close()
    trace = osc.load(path)
    assert len(trace.ops) == 1
    (dropped,) = trace.provenance.dropped
    assert (dropped.count, dropped.why) == (1, "they end before they start")
