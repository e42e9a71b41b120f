"""Kineto to SQLite and back: the same figures, to the nanosecond."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import overlapscope as osc
from builders import Collective, TraceBuilder, kineto, nsys
from made import made
from overlapscope.formats import nsys as nsys_format
from overlapscope.intervals import span

NAMES = [
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)",
    "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>(Flash_fwd_params)",
    "a kernel \u202e'nobody' \"knows\"; DROP TABLE StringIds --",
]


def assert_same(a: osc.Trace, b: osc.Trace) -> None:
    """Same ops, ranges, ranks and figures; names and lanes may be numbered otherwise."""

    def spelled(trace: osc.Trace) -> pd.DataFrame:
        ops = trace.ops.drop(columns=["lane", "name"])
        code, lane = trace.ops["name"].to_numpy(), trace.ops["lane"].to_numpy()
        ops["string"] = trace.names["string"].to_numpy()[code]
        ops["stream"] = trace.lanes["stream"].to_numpy()[lane]
        return ops.sort_values(["rank", "start", "end", "stream", "string"], ignore_index=True)

    pd.testing.assert_frame_equal(spelled(a), spelled(b))
    pd.testing.assert_frame_equal(a.ranges.astype(str), b.ranges.astype(str))
    pd.testing.assert_frame_equal(a.ranks.drop(columns="source"), b.ranks.drop(columns="source"))
    assert (a.stalls, a.graphs) == (b.stalls, b.graphs)
    assert a.provenance.origin_ns == b.provenance.origin_ns
    assert a.provenance.world_size == b.provenance.world_size
    assert a.provenance.ranks_from == b.provenance.ranks_from
    assert a.provenance.ranks_recorded == b.provenance.ranks_recorded
    assert a.provenance.clock == b.provenance.clock
    for window in ("whole", None):
        x, y = osc.overlap(a, window), osc.overlap(b, window)
        pd.testing.assert_frame_equal(x.ranks, y.ranks)
        pd.testing.assert_frame_equal(x.collectives, y.collectives)


def round_trip(trace: osc.Trace, tmp_path: Path) -> osc.Trace:
    path = tmp_path / "trace.sqlite"
    nsys_format.write(trace, path, force=True)
    return osc.load(path)


def rank(t: TraceBuilder, number: int, tmp_path: Path) -> Path:
    return kineto.write(t.rank(number), tmp_path / f"rank{number}.json.gz")


def test_two_ranks_with_everything(tmp_path: Path) -> None:
    t = TraceBuilder()
    for number in range(2):
        p = t.process(pid=100 + number, rank=number, world=2)
        p.range("ProfilerStep#1", 0, 900_000)
        p.range("nccl:all_to_all", 20_000, 25_000, thread=9)
        g = p.device(number)
        g.kernel(NAMES[0], 100_001, 200_002, stream=7, launch=(10_000, 12_000))
        message = Collective("reduce_scatter_tensor_coalesced", 4096, 2048)
        g.kernel(NAMES[1], 150_003, 300_004, stream=20, launch=(15_000, 16_000), collective=message)
        g.kernel(NAMES[2], 310_000, 320_000, stream=21, launch=(21_000, 22_000), thread=9)
        g.kernel(NAMES[4], 330_000, 340_000, stream=7)
        g.memcpy("DtoH", 350_000, 360_000, stream=9, nbytes=64)
        g.memcpy("PtoP", 360_000, 370_000, stream=9, nbytes=128, src=0, dst=1)
        g.memset(380_000, 390_000, stream=7, nbytes=32)
    trace = osc.load([rank(t, n, tmp_path) for n in range(2)])
    assert trace.ops["collective"].dropna().tolist() == ["reduce_scatter", "all_to_all", "send_recv"] * 2
    assert_same(trace, round_trip(trace, tmp_path))


def test_a_cpu_run(tmp_path: Path) -> None:
    t = TraceBuilder()
    for number in range(2):
        p = t.process(pid=100 + number, rank=number, world=2, backend="gloo")
        p.range("warmup 0", 0, 100_000)
        p.range("step 0", 100_000, 200_000)
        p.op("aten::mm", 110_000, 120_000)
        p.op("gloo:all_reduce", 115_000, 130_000, thread=9, dims=[[10, 20]])
    trace = osc.load([rank(t, n, tmp_path) for n in range(2)])
    again = round_trip(trace, tmp_path)
    assert again.provenance.lanes == "host"
    assert osc.windows(again).left_out == ("warmup 0",)
    assert_same(trace, again)


def test_a_file_of_nsys_itself(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process(pid=5, rank=0, world=1)
    p.mark("rank 0 of 1", 0, domain="overlapscope", category="rank")
    p.range("step 3", 0, 100, domain="overlapscope", category="step")
    p.range("open", 1, None)
    p.device(0).kernel(NAMES[0], 10, 20, stream=7, launch=(1, 2))
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    assert_same(trace, round_trip(trace, tmp_path))


def test_stalls_and_graphs_that_were_traced_as_a_whole(tmp_path: Path) -> None:
    """Two processes, one with two GPUs; the warnings are told once, with the numbers of the first file."""
    t = TraceBuilder()
    for pid in (7, 8):
        p = t.process(pid=pid)
        for device in range(2 if pid == 7 else 1):
            g = p.device(device)
            g.kernel(NAMES[0], 0, 100, stream=7)
            g.graph(100 + device, 300 + device, stream=7)
            g.graph(200, 310, stream=8)
            g.kernel(NAMES[0], 900, 1000, stream=7)
        t.overhead(400, 500 + pid, process=p)
        t.overhead(450, 600, process=p, cupti=8)
    a = osc.load(nsys.write(t, tmp_path / "a.sqlite", style="3.25"))
    nsys_format.write(a, tmp_path / "b.sqlite")
    b = osc.load(tmp_path / "b.sqlite")
    assert_same(a, b)
    assert a.stalls == dict.fromkeys(range(3), span(400, 600))
    assert a.graphs == {0: span(100, 310), 1: span(101, 310), 2: span(100, 310)}
    assert b.provenance.warnings == a.provenance.warnings
    assert [w.split(" ")[0] for w in b.provenance.warnings] == ["6", "the", "the", "the"]


def test_what_was_dropped_is_still_told(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process(pid=5, rank=0, world=4)
    p.device(0).kernel(NAMES[0], 10_000, 20_000, stream=7)
    folder = tmp_path / "ranks"
    folder.mkdir()
    kineto.write(p, folder / "rank0.json")
    (folder / "other.json").write_text("{}")
    trace = osc.load(folder)
    again = round_trip(trace, tmp_path)
    assert again.provenance.dropped == trace.provenance.dropped
    assert len(again.provenance.dropped) == 1


def test_the_same_pid_on_two_hosts_stays_two_processes(tmp_path: Path) -> None:
    paths = []
    for number in range(2):
        t = TraceBuilder()
        p = t.process(pid=7, rank=number, world=2)
        p.range("step 0", 0, 90_000)
        p.device(0).kernel(NAMES[0], 10_000, 20_000 + number, stream=7, launch=(1000, 2000))
        paths.append(rank(t, number, tmp_path))
    trace = osc.load(paths)
    assert_same(trace, round_trip(trace, tmp_path))


def test_the_file_is_what_other_nsys_tools_expect(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process(pid=7, rank=0, world=1)
    p.device(0).kernel(NAMES[0], 10_000, 20_000, stream=7, launch=(1000, 2000))
    trace = osc.load(rank(t, 0, tmp_path))
    round_trip(trace, tmp_path)
    with sqlite3.connect(tmp_path / "trace.sqlite") as db:
        # The query of nsys's own cuda_gpu_kern_sum, and the documented join to the launching call.
        rows = db.execute(
            "SELECT s.value, k.end - k.start, (k.globalPid >> 24) & 0xFFFFFF, r.start"
            " FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName"
            " JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId"
            " AND r.globalTid >> 24 = k.globalPid >> 24"
        ).fetchall()
    db.close()
    assert rows == [(NAMES[0], 10_000, 7, -9_000)]  # time 0 is the first op


def test_an_existing_file_is_not_overwritten_unasked(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.process(pid=7, rank=0).device(0).kernel(NAMES[0], 0, 10, stream=7)
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    target = tmp_path / "mine.sqlite"
    target.write_text("precious")
    with pytest.raises(osc.OptionError, match=r"mine\.sqlite: exists already; .*--force"):
        nsys_format.write(trace, target)
    assert target.read_text() == "precious"
    with pytest.raises(osc.OptionError, match="its folder does not exist"):
        nsys_format.write(trace, tmp_path / "no" / "where.sqlite")
    nsys_format.write(trace, target, force=True)
    assert len(osc.load(target).ops) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.sqlite", "t.sqlite"]


ops = st.lists(
    st.tuples(
        st.integers(0, 1), st.integers(0, 500), st.integers(0, 90), st.sampled_from(NAMES), st.integers(7, 9)
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ops)
def test_any_kernels_survive(tmp_path: Path, some: list[tuple[int, int, int, str, int]]) -> None:
    t = TraceBuilder()
    used = sorted({number for number, *_ in some})
    devices = {n: t.process(pid=100 + n, rank=n, world=2).device(n) for n in used}
    for number, start, length, name, stream in some:
        devices[number].kernel(name, start, start + length, stream=stream, launch=(start - 5, start - 3))
    trace = osc.load([rank(t, n, tmp_path) for n in used])
    assert_same(trace, round_trip(trace, tmp_path))


def test_a_pid_of_any_size_and_one_that_is_not_known(tmp_path: Path) -> None:
    paths = []
    for number, pid in enumerate((2**24, 2**24 + 2**25, 5)):
        p = TraceBuilder().process(pid=pid, rank=number, world=3)
        p.range("step 0", 0, 90_000, thread=9)
        p.device(0).kernel(NAMES[0], 10_000, 20_000 + number, stream=7, launch=(1000, 2000), thread=9)
        paths.append(kineto.write(p, tmp_path / f"rank{number}.json"))
    trace = osc.load(paths)
    ranks = trace.ranks.assign(pid=[2**24, 2**24 + 2**25, osc.NA])
    trace = replace(trace, ranks=ranks)
    again = round_trip(trace, tmp_path)
    assert again.ranks["pid"].tolist() == [2**24, 2**24 + 2**25, osc.NA]
    assert_same(trace, again)


def test_one_pid_on_more_hosts_than_a_global_pid_has_room_for(tmp_path: Path) -> None:
    names = [{"rank": number, "start": number, "end": number + 5, "kind": "gemm"} for number in range(300)]
    trace = made(names, ranks=300)
    sources = [f"host{number}" for number in range(300)]
    trace = replace(trace, ranks=trace.ranks.assign(pid=7, source=sources, gpu=sources))
    again = round_trip(trace, tmp_path)
    assert again.ranks["pid"].tolist() == [7] * 300
    assert again.ranks["gpu"].tolist() == sources  # each its own, though all are device 0 of process 7
    assert again.ops["start"].tolist() == list(range(300))


def test_ranks_that_were_numbered_by_order_are_so_still(tmp_path: Path) -> None:
    paths = []
    for number, pid in enumerate((200, 100)):
        t = TraceBuilder()
        for device in range(2):
            t.process(pid=pid).device(device).kernel(NAMES[0], 10 + number, 20 + device, stream=7)
        paths.append(nsys.write(t, tmp_path / f"node{number}.sqlite"))
    trace = osc.load(paths)
    assert trace.ranks["pid"].tolist() == [200, 200, 100, 100]
    again = round_trip(trace, tmp_path)
    assert again.provenance.ranks_from.startswith("not recorded: numbered by files in natural order")
    assert_same(trace, again)
    # Nobody recorded them, so two such files do not both claim rank 0.
    nsys_format.write(again, tmp_path / "other.sqlite")
    both = osc.load([tmp_path / "trace.sqlite", tmp_path / "other.sqlite"])
    assert both.ranks["pid"].tolist() == [200, 200, 100, 100] * 2
    assert both.provenance.ranks_from.startswith("not recorded")


def test_a_range_of_a_process_with_two_gpus_does_not_multiply(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process(pid=5)
    p.range("step 0", 0, 100)
    for device in range(2):
        p.device(device).kernel(NAMES[0], 10, 20, stream=7, launch=(1, 2))
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    assert len(trace.ranges) == 2
    assert_same(trace, round_trip(trace, tmp_path))


@pytest.mark.parametrize("column", ["rank", "globalPid", "deviceId", "pid", "gpu"])
@pytest.mark.parametrize("value", ["NULL", "'abc'", "x'00ff'", "2.5", "-1", "9223372036854775807"])
def test_a_table_of_ranks_that_is_damaged_does_no_harm(tmp_path: Path, column: str, value: str) -> None:
    p = TraceBuilder().process(pid=7, rank=0, world=1)
    p.device(0).kernel(NAMES[0], 10_000, 20_000, stream=7, launch=(1000, 2000))
    round_trip(osc.load(kineto.write(p, tmp_path / "rank0.json")), tmp_path)
    with sqlite3.connect(tmp_path / "trace.sqlite") as db:
        db.execute(f"UPDATE OVERLAPSCOPE_RANKS SET {column} = {value}")
    db.close()
    assert len(osc.load(tmp_path / "trace.sqlite").ops) == 1


@pytest.mark.parametrize("style", ["3.0", "3.25"])
def test_an_export_can_say_which_run_it_is_of(tmp_path: Path, style: str) -> None:
    """nsys writes no such thing; `run` adds it to what it has exported."""
    t = TraceBuilder()
    t.process(pid=1).device(0).kernel(NAMES[0], 0, 40, stream=7)
    path = nsys.write(t, tmp_path / "t.sqlite", style=style)
    assert osc.load(path).provenance.command is None
    nsys_format.annotate(path, "overlapscope run --tp 2", ["cut short"])
    told = osc.load(path).provenance
    assert told.command == "overlapscope run --tp 2"
    assert told.warnings == ("cut short",)
