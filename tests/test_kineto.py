"""PyTorch profiler traces in the layouts of several versions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import overlapscope as osc
from builders import Collective, TraceBuilder, kineto
from overlapscope.formats.kineto.events import nanoseconds

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)"


def a_rank() -> TraceBuilder:
    t = TraceBuilder()
    p = t.process(pid=100, rank=3, world=8)
    p.range("ProfilerStep#2", 0, 1_000_000)
    p.range("nccl:all_to_all", 30_000, 40_000)
    p.sync("stream", 0, 900_000, stream=7)
    g = p.device(3, "NVIDIA H100 80GB HBM3")
    g.annotation("ProfilerStep#2", 100_000, 900_000, stream=7)
    g.kernel(GEMM, 100_123, 200_456, stream=7, launch=(10_000, 12_000))
    message = Collective("allreduce", 1000, ranks=range(8))
    g.kernel(ALL_REDUCE, 150_001, 300_002, stream=20, launch=(20_000, 22_000), collective=message)
    g.kernel(SEND_RECV, 310_000, 320_000, stream=21, launch=(35_000, 36_000))
    g.memcpy("HtoD", 330_000, 340_000, stream=9, nbytes=4096, launch=(45_000, 46_000))
    g.memset(400_000, 410_000, stream=7, nbytes=64)
    return t


OPTIONS: list[dict[str, Any]] = [
    {},
    {"times": "string"},
    {"base_ns": 0},
    {"flows": False, "sync_events": True, "pretty": False},
    {"key_order": "reversed"},
    {"seed": 5},
]


@pytest.mark.parametrize("name", ["rank3.json", "rank3.json.gz", "a trace without suffix"])
@pytest.mark.parametrize(
    "options", OPTIONS, ids=lambda o: ",".join(f"{k}={v}" for k, v in o.items()) or "plain"
)
def test_every_layout_gives_the_same_figures(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    trace = osc.load(kineto.write(a_rank().rank(3), tmp_path / name, **options))
    (row,) = osc.overlap(trace, "whole").ranks.to_dict("records")
    figures = {
        "rank": 3,
        "device": 3,
        "pid": 100,
        "window_ns": 410_000 - 100_123,
        "compute_ns": 100_333,
        "comm_ns": 150_001 + 10_000,
        "overlap_ns": 200_456 - 150_001,
        "memory_ns": 20_000,
        "n_comm": 2,
        "n_gemm": 1,
        "n_ops": 5,
    }
    assert {k: row[k] for k in figures} == figures
    assert trace.ops["collective"].dropna().tolist() == ["all_reduce", "all_to_all"]
    assert trace.ops["bytes"].tolist() == [osc.NA, 2000, osc.NA, 4096, 64]
    assert trace.ops["group"].tolist() == [-1, 8, -1, -1, -1]
    assert trace.provenance.world_size == 8
    assert trace.ranks["gpu"].tolist() == ["NVIDIA H100 80GB HBM3"]


def test_step_window_by_launch(tmp_path: Path) -> None:
    result = osc.overlap(osc.load(kineto.write(a_rank().rank(3), tmp_path / "r.json")))
    assert result.windows.steps == ("ProfilerStep#2",)
    assert result.ranks.loc[0, "window_ns"] == 410_000 - 100_123


# -- exact times ---------------------------------------------------------------------------------------------


def exact(*texts: str) -> list[int]:
    return nanoseconds([msgspec.Raw(t.encode()) for t in texts]).tolist()


def test_times_a_double_cannot_hold() -> None:
    """As doubles these round to ...898.12988 and the like: 0.1 µs off."""
    assert exact("1682725898129911.001", "1711964646458676.999") == [1682725898129911001, 1711964646458676999]


def test_ways_to_write_a_time() -> None:
    assert exact("5", "5.0", "0.001", "-2.5", "1e3", "1.5E2") == [5000, 5000, 1, -2500, 1_000_000, 150_000]
    assert exact('"12.345"', "7") == [12345, 7000]
    assert exact("1.2345", "1.2355") == [1234, 1236]  # half to even below the nanosecond


@given(st.integers(-(10**18), 2 * 10**18))
def test_every_nanosecond_survives(ns: int) -> None:
    sign = "-" if ns < 0 else ""
    assert exact(f"{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03d}") == [ns]


@pytest.mark.parametrize(
    "text", ["null", "true", '"soon"', '""', "NaN", "[1]", "9" * 40, "1e400", "9223372036854775", "-1e30"]
)
def test_a_time_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    event = f'{{"ph": "X", "cat": "kernel", "name": "k", "ts": {text}, "dur": 1, "pid": 0, "tid": 7}}'
    path.write_text(f'{{"traceEvents": [{event}]}}')
    with pytest.raises(osc.InputError, match=r"r\.json: "):
        osc.load(path)


@pytest.mark.parametrize("value", ["[1]", "1e30", "9" * 30, "true", "null", '"x"', "{}", "-5"])
@pytest.mark.parametrize("key", ["device", "stream", "correlation", "bytes"])
def test_arguments_of_any_type(tmp_path: Path, key: str, value: str) -> None:
    """An odd argument is not recorded; it neither fails nor changes a figure."""
    path = tmp_path / "r.json"
    events = [
        f'{{"ph": "X", "cat": "{cat}", "name": "{cat}", "ts": {ts}, "dur": 2, "pid": 0, "tid": 7, "args": {{{args}}}}}'
        for cat, ts, args in (
            ("kernel", 1, f'"{key}": {value}'),
            ("gpu_memcpy", 3, f'"{key}": {value}'),
            ("cuda_runtime", 0, f'"{key}": {value}'),
        )
    ]
    path.write_text(f'{{"traceEvents": [{", ".join(events)}]}}')
    result = osc.overlap(osc.load(path))
    assert result.ranks[["compute_ns", "memory_ns"]].sum().tolist() == [2000, 2000]


# -- ranks and files -----------------------------------------------------------------------------------------


def gemm_of(tmp_path: Path, name: str, *, rank: int | None, pid: int = 1, end: int = 100) -> Path:
    t = TraceBuilder()
    p = t.process(pid=pid, rank=rank, world=2)
    p.device(0).kernel(GEMM, 0, end, stream=7, launch=(0, 1))
    return kineto.write(p, tmp_path / name, distributed=rank is not None)


def test_natural_order_where_no_rank_is_recorded(tmp_path: Path) -> None:
    for rank in (10, 2, 1):
        gemm_of(tmp_path, f"rank{rank}.json", rank=None, pid=50 - rank, end=100 + rank)
    trace = osc.load(tmp_path)
    assert osc.overlap(trace).ranks["compute_ns"].tolist() == [101, 102, 110]
    assert trace.provenance.ranks_from.startswith("not recorded: numbered by files in natural order")


def test_two_files_for_one_rank_are_refused_naming_both(tmp_path: Path) -> None:
    a, b = (gemm_of(tmp_path, f"{n}.json", rank=1) for n in "ab")
    with pytest.raises(osc.InputError, match=r"b\.json: says it is rank 1, and so does .*a\.json"):
        osc.load([a, b])


def test_one_file_given_twice_is_refused(tmp_path: Path) -> None:
    a = gemm_of(tmp_path, "a.json", rank=1)
    with pytest.raises(osc.InputError, match="is given twice"):
        osc.load([a, tmp_path / "." / "a.json"])


def test_strangers_in_a_folder_are_counted(tmp_path: Path) -> None:
    gemm_of(tmp_path, "rank0.json", rank=0)
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    (tmp_path / "notes.txt").write_text("notes")
    trace = osc.load(tmp_path)
    (dropped,) = trace.provenance.dropped
    assert dropped.count == 1
    assert "config.json" in dropped.what


def test_host_and_gpu_ranks_do_not_mix(tmp_path: Path) -> None:
    gemm_of(tmp_path, "rank0.json", rank=0)
    t = TraceBuilder()
    p = t.process(pid=2, rank=1, world=2, backend="gloo")
    p.op("aten::mm", 0, 10)
    kineto.write(p, tmp_path / "rank1.json")
    with pytest.raises(osc.InputError, match=r"rank1\.json: holds no GPU work, while .*rank0\.json does"):
        osc.load(tmp_path)


@pytest.mark.parametrize("lead", [b"\xef\xbb\xbf", b"\n" * 1000])
def test_what_may_stand_before_the_json(tmp_path: Path, lead: bytes) -> None:
    path = gemm_of(tmp_path, "r.json", rank=0)
    path.write_bytes(lead + path.read_bytes())
    assert len(osc.load(path).ops) == 1


def test_a_bare_list_of_events(tmp_path: Path) -> None:
    path = gemm_of(tmp_path, "r.json", rank=0)
    path.write_text(json.dumps(json.loads(path.read_text())["traceEvents"]))
    assert len(osc.load(path).ops) == 1


# -- CPU runs ------------------------------------------------------------------------------------------------


def test_host_ops_are_leaves_and_outermost(tmp_path: Path) -> None:
    """linear wraps the GEMM, views are no work, what lies inside a GEMM is part of it, gloo runs beside."""
    t = TraceBuilder()
    p = t.process(pid=1, rank=0, world=2, backend="gloo")
    p.op("aten::linear", 0, 100)
    p.op("aten::t", 1, 5)
    p.op("aten::addmm", 10, 90)
    p.op("aten::copy_", 20, 30)
    p.op("aten::gelu", 100, 130)
    p.op("aten::layer_norm", 130, 160)
    p.op("aten::native_layer_norm", 132, 158)
    p.op("aten::empty", 133, 134)
    p.op("autograd::engine::evaluate_function: MmBackward0", 160, 200)
    p.op("MmBackward0", 161, 199)
    p.op("aten::mm", 165, 195)
    p.op("c10d::allreduce_", 50, 55)
    p.op("gloo:all_reduce", 50, 150, thread=9, dims=[[10, 20]])
    p.op("gloo:all_reduce", 60, 170, thread=9, dims=[[5]])
    trace = osc.load(kineto.write(p, tmp_path / "r.json"))
    names = trace.names["string"].to_numpy()[trace.ops["name"].to_numpy()]
    assert list(zip(names, trace.ops["start"], trace.ops["end"], trace.ops["kind"], strict=True)) == [
        ("aten::addmm", 0, 80, "gemm"),  # time 0 is the first op
        ("gloo:all_reduce", 40, 140, "comm"),
        ("gloo:all_reduce", 50, 160, "comm"),
        ("aten::gelu", 90, 120, "compute"),
        ("aten::native_layer_norm", 122, 148, "compute"),
        ("aten::mm", 155, 185, "gemm"),
    ]
    assert trace.ops["bytes"].tolist() == [osc.NA, 800, 20, osc.NA, osc.NA, osc.NA]
    (row,) = osc.overlap(trace, "whole").ranks.to_dict("records")
    assert (row["comm_ns"], row["overlap_ns"], row["idle_ns"]) == (120, 40 + 30 + 26 + 5, 0)
    assert trace.provenance.lanes == "host"


def test_an_operator_around_a_wait_or_around_python_is_a_wrapper(tmp_path: Path) -> None:
    """As DTensor records: the outer add waits for its input's collective and adds by another add inside it."""
    t = TraceBuilder()
    p = t.process(pid=1, rank=0, world=2, backend="gloo")
    p.op("aten::mm", 0, 100)
    p.op("PythonSubclass", 10, 95)
    p.op("aten::mm", 40, 90)
    p.op("gloo:all_reduce", 110, 300, thread=9, dims=[[10, 20]])
    p.op("aten::add", 120, 330)
    p.op("_c10d_functional::wait_tensor", 130, 300)
    p.op("aten::add", 310, 325)
    p.op("aten::mul", 330, 340)  # begins where a wrapper ends
    p.op("aten::mul", 130, 290, thread=5)  # of another thread, which does not wait
    trace = osc.load(kineto.write(p, tmp_path / "r.json"))
    names = trace.names["string"].to_numpy()[trace.ops["name"].to_numpy()]
    assert list(zip(names, trace.ops["start"], trace.ops["end"], strict=True)) == [
        ("aten::mm", 0, 50),  # time 0 is the first op
        ("gloo:all_reduce", 70, 260),
        ("aten::mul", 90, 250),
        ("aten::add", 270, 285),
        ("aten::mul", 290, 300),
    ]


def test_nccl_without_gpu_work_was_not_recorded(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process(pid=1, rank=0)
    p.op("aten::mm", 0, 10)
    p.range("nccl:all_reduce", 10, 12)
    with pytest.raises(osc.InputError, match=r"the GPU was not recorded; record with activities="):
        osc.load(kineto.write(p, tmp_path / "r.json"))


# -- files that are none -------------------------------------------------------------------------------------

BAD: dict[str, tuple[bytes, str]] = {
    "cut.json": (b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "na', "the JSON is cut off"),
    "other.json": (b'{"lr": 0.1}', "JSON, but not a profiler trace"),
    "broken.json": (b'{"traceEvents": [}]}', "not valid JSON"),
    "empty.json": (b"", "is empty"),
    "text.json": (b"hello", "is neither an nsys SQLite export nor a PyTorch profiler JSON"),
    "none.json": (b'{"traceEvents": []}', "holds no ops"),
    "cut.json.gz": (gzip.compress(b'{"traceEvents": []}' * 100)[:40], "the gzip stream ends early"),
    "bad.json.gz": (b"\x1f\x8b" + b"\xff" * 30, "gzip"),
    "deep.json": (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b', "traceEvents": []}', "nested too deeply"),
    "utf16.json": ('{"traceEvents": []}'.encode("utf-16"), "is neither"),
    "textual.json.gz": (gzip.compress(b"hello"), "is neither"),
}


@pytest.mark.parametrize("name", BAD)
def test_files_that_are_no_trace(tmp_path: Path, name: str) -> None:
    content, said = BAD[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(osc.InputError) as caught:
        osc.load(path)
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)
    assert caught.value.remedy
    assert "\n" not in str(caught.value)
