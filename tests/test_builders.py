"""The builders write what real tools write: compared with real files, then read back without the product."""

from __future__ import annotations

import gzip
import json
import sqlite3
import struct
import subprocess
import sys
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest

from builders import Collective, Nccl, TraceBuilder, kineto, nsys, short_name

ROOT = Path(__file__).resolve().parents[1]
TRACES = ROOT.parent / "shared" / "traces"
SAMPLES = {
    "2.9": "cuda-mpi-schema2.9",
    "3.13": "cuda-mpi-schema3.13",
    "3.16": "nvfuser-schema3.16",
    "3.17": "lm-1gpu-schema3.17",
    "3.24": "graph-trace-schema3.24",
    "3.25": "pp-2rank-h100-schema3.25",
    "3.27": "ddp-2rank-rtx3090-schema3.27",
}
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
COMM = 13429301450432826988  # beyond int64, as real communicator ids are


def everything() -> TraceBuilder:
    """A trace with at least one row in every table that the builder fills."""
    trace = TraceBuilder(epoch=1_711_968_000_000_000_000)
    for rank in range(2):
        process = trace.process(pid=4242 + rank, rank=rank)
        gpu = process.device(rank)
        gpu.kernel(GEMM, 0, 40_000, stream=7)
        comm = Collective("allreduce", 1024, ranks=(0, 1), seq=3)
        gpu.kernel(ALL_REDUCE, 30_000, 60_001, stream=20, launch=(25_000, 28_500), thread=11, collective=comm)
        gpu.memcpy("HtoD", 60_000, 65_000, stream=9, host="Pinned", nbytes=4096)
        gpu.memcpy("PtoP", 60_000, 65_000, stream=10, src=0, dst=1)
        gpu.memset(0, 5_000, stream=7, launch=(-9_000, -8_000))
        gpu.graph(70_000, 90_000, stream=7, launch=(65_000, 66_000))
        process.sync("stream", 1_000, 3_000, stream=7)
        process.sync("context", 2_000, 4_000)
        process.range("step 0", 0, 100_000, domain="training", category="step", payload=5)
        process.range("load", -5_000, 8_000, kind="start_end", end_thread=77, payload=0.5)
        process.range("tail", 90_000, None, registered=True)
        process.mark("here", 5_000, domain="training")
        process.nccl("ncclAllReduce", 25_000, 28_000, Nccl(COMM, 2048, "Sum"), thread=11)
        process.op("aten::mm", 0, 10_000, dims=[[1, 2], [2, 3]])
    trace.overhead(0, 5_000)
    trace.overhead(6_000, 7_000, cupti=8)
    return trace


def pytorch() -> TraceBuilder:
    """A trace that PyTorch's profiler could have written."""
    trace = TraceBuilder(epoch=1_711_968_000_000_000_000)
    process = trace.process(pid=4242, rank=3, world=8)
    gpu = process.device(3)
    gpu.kernel(GEMM, 1_000, 41_001, stream=7, launch=(500, 900), grid=(8, 4, 1), block=(256, 1, 1))
    comm = Collective("allreduce", 1024, ranks=(2, 3), group="5", seq=3)
    gpu.kernel(ALL_REDUCE, 30_000, 60_120, stream=20, collective=comm)
    gpu.memcpy("HtoD", 60_000, 65_000, stream=9, host="Pinned", nbytes=4096)
    gpu.memcpy("PtoP", 60_000, 65_000, stream=10, src=3, dst=1)
    gpu.memset(70_000, 75_000, stream=7)
    gpu.annotation("step 0", 1_000, 75_000, stream=7)
    process.sync("stream_wait", 2_000, 3_000, stream=7)
    process.range("step 0", 0, 80_000)
    process.op("aten::mm", 100, 1_000, dims=[[1, 2], [2, 3]], thread=12)
    process.op("gloo:all_reduce", 100, 1_000, thread=13)
    return trace


def sample(style: str) -> Path:
    path = TRACES / "nsys" / f"{SAMPLES[style]}.sqlite"
    if not path.exists():
        pytest.skip("the real traces are not here")
    return path


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        return connection.execute(query).fetchall()


def schema(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Per table: name, type, NOT NULL and key of its columns, in their order."""
    names = [str(n) for (n,) in rows(path, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    query = "SELECT name, type, \"notnull\", pk FROM pragma_table_info('{}')"
    return {name: rows(path, query.format(name)) for name in names}


# -- nsys: tables ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", SAMPLES)
@pytest.mark.parametrize("eager", [None, True])
def test_tables_are_those_of_the_real_file(tmp_path: Path, style: str, eager: bool | None) -> None:
    real = schema(sample(style))
    built = schema(nsys.write(everything(), tmp_path / "t.sqlite", style=style, eager=eager))
    shared = built.keys() & real.keys()
    assert {t: built[t] for t in shared} == {t: real[t] for t in shared}
    core = {"StringIds", "PROCESSES", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"}
    assert core <= shared
    # What this sample happens to lack is drawn from another real file.
    others = [schema(sample(s)) for s in SAMPLES]
    for table in built.keys() - real.keys():
        assert built[table] in [o.get(table) for o in others], table


def test_an_eager_old_export_holds_empty_tables(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.process(pid=1).device(0).kernel(GEMM, 0, 1, stream=7)
    old = nsys.write(trace, tmp_path / "old.sqlite", style="2.9")
    assert rows(old, "SELECT count(*) FROM NVTX_EVENTS") == [(0,)]
    assert rows(old, "SELECT count(*) FROM OSRT_API") == [(0,)]
    assert not [t for t in schema(old) if t.startswith(("ENUM_", "META_DATA", "CUPTI_ACTIVITY_KIND_GRAPH"))]
    lazy = schema(nsys.write(trace, tmp_path / "lazy.sqlite", style="3.25"))
    assert not {"NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_RUNTIME"} & lazy.keys()
    assert {"CUPTI_ACTIVITY_KIND_KERNEL", "META_DATA_EXPORT", "META_DATA_CAPTURE"} <= lazy.keys()


def test_schema_3_0_is_that_of_nsys_2022_4(tmp_path: Path) -> None:
    """No sample of 3.0 is kept; these are the facts of an export made with nsys 2022.4.2 itself."""
    path = nsys.write(everything(), tmp_path / "t.sqlite", style="3.0")
    built = schema(path)
    assert {"EXPORT_META_DATA", "ENUM_CUDA_KRENEL_LAUNCH_TYPE"} <= built.keys()
    absent = {"META_DATA_EXPORT", "META_DATA_CAPTURE", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"}
    assert not absent & built.keys()
    kernel = [c[0] for c in built["CUPTI_ACTIVITY_KIND_KERNEL"]]
    assert kernel[2:7] == ["deviceId", "contextId", "streamId", "correlationId", "globalPid"]
    assert [c[0] for c in built["NVTX_EVENTS"]][-2:] == ["jsonTextId", "jsonText"]
    assert built["CUPTI_ACTIVITY_KIND_MEMCPY"][-1][0] == "virtualAddress"
    version = "SELECT value FROM EXPORT_META_DATA WHERE name = 'EXPORT_SCHEMA_VERSION'"
    assert rows(path, version) == [("3.0.0",)]
    assert rows(path, "SELECT count(*) FROM NVTX_EVENTS WHERE eventType = 76") == [(6,)]
    emptied = nsys.write(everything(), tmp_path / "eager.sqlite", style="3.0", eager=True)
    assert rows(emptied, "SELECT * FROM ENUM_CUDA_MEMCPY_OPER") == []


# -- nsys: rows --------------------------------------------------------------------------------------------


def test_global_ids_are_packed_as_in_a_real_file() -> None:
    """Both numbers stand in the 2.9 sample: process 1230493, its thread 1230499."""
    process = TraceBuilder().process(pid=1230493)
    assert nsys.global_id(process) == 302119223558144
    assert nsys.global_id(process, 1230499) == 302119224788643
    far = TraceBuilder().process(pid=1, hardware=255)
    assert nsys.global_id(far) == -(1 << 56) + (1 << 48) + (1 << 24)


@pytest.mark.parametrize("style", nsys.STYLES)
def test_gpu_rows_come_back(tmp_path: Path, style: str) -> None:
    path = nsys.write(everything(), tmp_path / "t.sqlite", style=style)
    pids = [(1 << 48) + (p << 24) for p in (4242, 4243)]
    kernels = (
        "SELECT start, end, deviceId, streamId, correlationId, globalPid, d.value, s.value "
        "FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds d ON d.id = demangledName "
        "JOIN StringIds s ON s.id = shortName ORDER BY globalPid, start"
    )
    short = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    assert rows(path, kernels) == [
        kernel
        for device, pid in enumerate(pids)
        for kernel in (
            (0, 40_000, device, 7, 1, pid, GEMM, GEMM),
            (30_000, 60_001, device, 20, 2, pid, ALL_REDUCE, short),
        )
    ]
    copies = (
        "SELECT copyKind, srcKind, dstKind, srcDeviceId, dstDeviceId, bytes FROM CUPTI_ACTIVITY_KIND_MEMCPY"
    )
    assert rows(path, copies) == [(1, 1, 2, None, None, 4096), (10, 2, 2, 0, 1, 1024)] * 2
    assert rows(path, "SELECT bytes, streamId FROM CUPTI_ACTIVITY_KIND_MEMSET") == [(1024, 7)] * 2
    launches = (
        "SELECT r.start, r.end, r.globalTid & 0xFFFFFF FROM CUPTI_ACTIVITY_KIND_RUNTIME r "
        "JOIN CUPTI_ACTIVITY_KIND_KERNEL k ON k.correlationId = r.correlationId "
        "AND k.globalPid >> 24 = r.globalTid >> 24"
    )
    assert rows(path, launches) == [(25_000, 28_500, 11)] * 2
    waits = "SELECT syncType, streamId, start FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION ORDER BY 1, globalPid"
    assert rows(path, waits) == [(3, 7, 1_000)] * 2 + [(4, 0xFFFFFFFF, 2_000)] * 2
    if "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" in schema(path):
        assert rows(path, "SELECT start, end FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE") == [(70_000, 90_000)] * 2


def test_without_its_process_a_join_counts_kernels_twice(tmp_path: Path) -> None:
    """Correlation ids of two processes collide, as they do in real files."""
    path = nsys.write(everything(), tmp_path / "t.sqlite")
    tables = "CUPTI_ACTIVITY_KIND_KERNEL JOIN CUPTI_ACTIVITY_KIND_RUNTIME"
    assert rows(path, f"SELECT count(*) FROM {tables} USING (correlationId)") == [(4,)]


def test_backtraces_repeat_each_call(tmp_path: Path) -> None:
    path = nsys.write(everything(), tmp_path / "t.sqlite", style="2.9", backtraces=True)
    launch = (
        "SELECT eventClass, value FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId "
        "WHERE correlationId = 2 AND globalTid >> 24 = 4242 + (1 << 24) ORDER BY 1"
    )
    assert rows(path, launch) == [(0, "cudaLaunchKernel_v7000"), (67, "cudaLaunchKernel")]


def test_nvtx_rows_come_back(tmp_path: Path) -> None:
    path = nsys.write(everything(), tmp_path / "t.sqlite", style="3.27")
    columns = (
        "eventType, start, end, text, category, domainId, endGlobalTid & 0xFFFFFF, int64Value, doubleValue"
    )
    query = f"SELECT {columns} FROM NVTX_EVENTS WHERE globalTid >> 24 = 4242 + (1 << 24) AND text IS NOT NULL"
    assert sorted(rows(path, query), key=str) == sorted(
        [
            (60, -5_000, 8_000, "load", None, 0, 77, None, 0.5),
            (75, 0, None, "training", None, 1, None, None, None),
            (33, 0, None, "step", 1, 1, None, None, None),
            (59, 0, 100_000, "step 0", 1, 1, None, 5, None),
            (75, 0, None, "overlapscope", None, 2, None, None, None),
            (34, 5_000, None, "here", None, 1, None, None, None),
            (75, 25_000, None, "NCCL", None, 3, None, None, None),
        ],
        key=str,
    )
    registered = (
        "SELECT value, start, end FROM NVTX_EVENTS JOIN StringIds ON id = textId "
        "WHERE globalTid >> 24 = 4242 + (1 << 24) ORDER BY start"
    )
    assert rows(path, registered) == [
        ("aten::mm", 0, 10_000),
        ("ncclAllReduce", 25_000, 28_000),
        ("tail", 90_000, None),
    ]


def test_nccl_payloads_as_text_as_blob_and_not_at_all(tmp_path: Path) -> None:
    query = "SELECT jsonText, binaryData FROM NVTX_EVENTS WHERE domainId = 3 AND eventType = 59 LIMIT 1"
    said = f'{{"NCCL communicator ID":{COMM},"Message size [bytes]":2048,"Reduction operation":"Sum"}}'
    path = nsys.write(everything(), tmp_path / "t.sqlite")
    assert rows(path, query) == [(said, None)]
    fields = "SELECT DISTINCT schemaId, idx, name, offset FROM NVTX_PAYLOAD_SCHEMA_ENTRIES ORDER BY idx"
    assert rows(path, fields) == [
        (16777221, 0, "NCCL communicator ID", None),
        (16777221, 1, "Message size [bytes]", 8),
        (16777221, 2, "Reduction operation", 16),
    ]
    blob = struct.pack("<QQQQ", 3, 16777221, 24, 56) + struct.pack("<QQII", COMM, 2048, 0, 0)
    path = nsys.write(everything(), tmp_path / "t.sqlite", nccl_payload="blobs")
    assert rows(path, query) == [(None, blob)]
    path = nsys.write(everything(), tmp_path / "t.sqlite", nccl_payload=None)
    assert rows(path, query) == [(None, None)]
    assert "NVTX_PAYLOAD_SCHEMAS" not in schema(path)


def test_who_and_when(tmp_path: Path) -> None:
    path = nsys.write(everything(), tmp_path / "t.sqlite", style="3.27", graph_mode="Node")
    start = "SELECT utcEpochNs, utcTime FROM TARGET_INFO_SESSION_START_TIME"
    assert rows(path, start) == [(1_711_968_000_000_000_000, "2024-04-01T10:40:00")]
    devices = "SELECT gpuId, cudaId, pid FROM TARGET_INFO_CUDA_DEVICE"
    assert rows(path, devices) == [(0, 0, 4242), (1, 1, 4243)]
    assert rows(path, "SELECT DISTINCT name FROM TARGET_INFO_GPU") == [("NVIDIA H100 80GB HBM3",)]
    mode = "SELECT value FROM META_DATA_CAPTURE WHERE name = 'CUDA_GRAPH_TRACE_OPTIONS:MODE'"
    assert rows(path, mode) == [("Node",)]
    assert rows(path, "SELECT start, end FROM PROFILER_OVERHEAD") == [(0, 5_000)]
    overhead = "SELECT start, end, overheadType FROM CUPTI_ACTIVITY_KIND_OVERHEAD"
    assert rows(path, overhead) == [(6_000, 7_000, 8)]
    anonymous = schema(nsys.write(everything(), tmp_path / "t.sqlite", gpu_info=False))
    assert not [t for t in anonymous if t.startswith(("TARGET_INFO_GPU", "TARGET_INFO_CUDA"))]


def test_a_seed_changes_the_order_of_rows_and_nothing_else(tmp_path: Path) -> None:
    plain = nsys.write(everything(), tmp_path / "a.sqlite")
    mixed = nsys.write(everything(), tmp_path / "b.sqlite", seed=1)
    again = nsys.write(everything(), tmp_path / "c.sqlite", seed=1)
    for table in schema(plain):
        query = f"SELECT * FROM {table}"
        assert rows(mixed, query) == rows(again, query)
        assert sorted(rows(mixed, query), key=str) == sorted(rows(plain, query), key=str)
    order = "SELECT start FROM CUPTI_ACTIVITY_KIND_RUNTIME"
    assert rows(mixed, order) != rows(plain, order)


@pytest.mark.parametrize("style", SAMPLES)
def test_short_names_are_cut_as_in_real_files(style: str) -> None:
    query = (
        "SELECT DISTINCT d.value, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL "
        "JOIN StringIds d ON d.id = demangledName JOIN StringIds s ON s.id = shortName"
    )
    # nsys 2026 shortens some further, to "ampere_bf16_s16816gemm_bf16_12_3...".
    names = {str(d): str(s) for d, s in rows(sample(style), query) if not str(s).endswith("...")}
    assert names
    assert {d: short_name(d) for d in names} == names


# -- Kineto ------------------------------------------------------------------------------------------------


def events(path: Path) -> list[dict[str, object]]:
    """The events, with every number that has a point as Decimal: exactly what is written."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    document = json.loads(raw, parse_float=Decimal)
    return list(document["traceEvents"])


def one(found: list[dict[str, object]], name: str, category: str) -> dict[str, object]:
    (event,) = [e for e in found if e.get("name") == name and e.get("cat") == category]
    return event


def test_kineto_times_are_exact(tmp_path: Path) -> None:
    """41.001 us from 1 us after 1 711 968 000 s, beside a base of 1 711 964 646 s."""
    path = kineto.write(pytorch().rank(3), tmp_path / "rank3.json")
    gemm = one(events(path), GEMM, "kernel")
    assert (gemm["ts"], gemm["dur"]) == (Decimal("3354000001.000"), Decimal("40.001"))
    assert '"ts": 3354000001.000' in path.read_text()
    cut = kineto.write(pytorch().rank(3), tmp_path / "cut.json", layout="2024")
    assert '"ts": 3354000001,' in cut.read_text()
    assert '"dur": 30.12,' in cut.read_text()
    whole = kineto.write(pytorch().rank(3), tmp_path / "whole.json", base_ns=0, times="string")
    gemm = one(events(whole), GEMM, "kernel")
    assert (gemm["ts"], gemm["dur"]) == ("1711968000000001.000", "40.001")
    assert "baseTimeNanoseconds" not in json.loads(whole.read_text())
    with pytest.raises(ValueError, match="whole microsecond"):
        kineto.write(pytorch().rank(3), tmp_path / "no.json", layout="2022")


def test_kineto_events_come_back(tmp_path: Path) -> None:
    path = kineto.write(pytorch().rank(3), tmp_path / "rank3.json.gz", sync_events=True, pretty=False)
    found = events(path)
    gemm = one(found, GEMM, "kernel")
    assert (gemm["pid"], gemm["tid"]) == (3, 7)
    args = gemm["args"]
    assert isinstance(args, dict)
    picked = {k: args[k] for k in ("device", "stream", "correlation", "grid", "block")}
    assert picked == {"device": 3, "stream": 7, "correlation": 1, "grid": [8, 4, 1], "block": [256, 1, 1]}
    launch = one(found, "cudaLaunchKernel", "cuda_runtime")
    assert (launch["pid"], launch["tid"], launch["ts"]) == (4242, 4242, Decimal("3354000000.500"))
    flows = [(e["ph"], e["id"], e["pid"], e["tid"]) for e in found if e.get("cat") == "ac2g"]
    assert flows == [("s", 1, 4242, 4242), ("f", 1, 3, 7)]
    nccl = one(found, ALL_REDUCE, "kernel")["args"]
    assert isinstance(nccl, dict)
    assert (nccl["In msg nelems"], nccl["Group size"], nccl["Process Group Ranks"]) == (1024, 2, "[2, 3]")
    peer = one(found, "Memcpy PtoP (Device -> Device)", "gpu_memcpy")["args"]
    assert isinstance(peer, dict)
    assert "device" not in peer
    assert (peer["fromDevice"], peer["inDevice"], peer["toDevice"]) == (3, 3, 1)
    assert one(found, "Memcpy HtoD (Pinned -> Device)", "gpu_memcpy")["tid"] == 9
    assert one(found, "Memset (Device)", "gpu_memset")["tid"] == 7
    assert one(found, "Stream Wait Event", "cuda_sync")["tid"] == 7
    assert one(found, "cudaStreamWaitEvent", "cuda_runtime")["pid"] == 4242
    assert one(found, "step 0", "user_annotation")["pid"] == 4242
    assert one(found, "step 0", "gpu_user_annotation")["tid"] == 7
    assert one(found, "aten::mm", "cpu_op")["tid"] == 12
    assert one(found, "gloo:all_reduce", "user_annotation")["tid"] == 13


def test_kineto_options_change_the_writing_and_not_the_events(tmp_path: Path) -> None:
    process = pytorch().rank(3)
    plain = events(kineto.write(process, tmp_path / "a.json"))
    other = kineto.write(process, tmp_path / "b.json", key_order="reversed", pretty=False, seed=1)
    found = events(other)
    assert "\n" not in other.read_text()
    assert next(iter(found[0])) == "ts"
    assert found != plain
    assert sorted(found, key=lambda e: json.dumps(e, sort_keys=True, default=str)) == sorted(
        plain, key=lambda e: json.dumps(e, sort_keys=True, default=str)
    )
    bare = json.loads(kineto.write(process, tmp_path / "c.json", distributed=False, flows=False).read_text())
    assert "distributedInfo" not in bare
    assert not [e for e in bare["traceEvents"] if e["ph"] in "sf"]
    told = json.loads((tmp_path / "a.json").read_text())["distributedInfo"]
    assert (told["rank"], told["world_size"], told["backend"]) == (3, 8, "nccl")


@pytest.mark.parametrize(
    ("layout", "file"),
    [
        ("2022", "resnet-1of2-v100.json.gz"),
        ("2022", "resnet-1of8-a100.json.gz"),
        ("2023", "megatron-tp8-a100/rank0.json.gz"),
        ("2023", "dlrm-8rank-v100/rank0.json.gz"),
        ("2024", "nccl-args-a100.json.gz"),
    ],
)
def test_kineto_events_have_the_keys_of_the_real_file(tmp_path: Path, layout: str, file: str) -> None:
    real_path = TRACES / "kineto" / file
    if not real_path.exists():
        pytest.skip("the real traces are not here")
    path = kineto.write(pytorch().rank(3), tmp_path / "t.json", layout=layout, fraction="three")
    real, built = json.loads(gzip.decompress(real_path.read_bytes())), json.loads(path.read_text())
    top = [k for k in built if k in real]
    assert top == [k for k in real if k in top]
    assert {"traceEvents", "distributedInfo", "schemaVersion"} <= set(top)
    assert ("baseTimeNanoseconds" in built) == ("baseTimeNanoseconds" in real)
    assert built["distributedInfo"].keys() <= real["distributedInfo"].keys()
    compared = set()
    for event in built["traceEvents"]:
        kind = (event["ph"], event.get("cat"))
        alike = [e for e in real["traceEvents"] if (e["ph"], e.get("cat")) == kind]
        if not alike or "PtoP" in event["name"]:
            continue
        compared.add(kind)
        # The keys of the profiler's own events changed their order in 2026.
        order = list if kind[0] == "X" and kind[1] != "Trace" else sorted
        assert order(event) in [order(e) for e in alike]
        # What is recorded on request, or by later versions only.
        options = {"Record function id", "Ev Idx", "Input type", "Input Dims", "Seq", *_NCCL_ARGS}
        assert event.get("args", {}).keys() - options <= {k for e in alike for k in e.get("args", {})}
    flow = "async_cpu_to_gpu" if layout == "2022" else "ac2g"
    assert {("X", "kernel"), ("X", "gpu_memcpy"), ("X", "cuda_runtime"), ("X", "cpu_op")} <= compared
    assert {("X", "user_annotation"), ("X", "Trace"), ("s", flow), ("f", flow), ("M", None)} <= compared


_NCCL_ARGS = {
    "Collective name",
    "In msg nelems",
    "Out msg nelems",
    "Group size",
    "dtype",
    "In split size",
    "Out split size",
    "Process Group Name",
    "Process Group Description",
    "Process Group Ranks",
}


def test_nccl_arguments_are_those_of_the_real_file(tmp_path: Path) -> None:
    real_path = TRACES / "kineto" / "nccl-args-a100.json.gz"
    if not real_path.exists():
        pytest.skip("the real traces are not here")
    real = next(e for e in events(real_path) if "ncclKernel_AllReduce" in str(e.get("name")))["args"]
    assert isinstance(real, dict)
    assert set(list(real)[-10:]) == _NCCL_ARGS
    values = [real[k] for k in ("In msg nelems", "dtype", "Process Group Name", "Process Group Ranks")]
    trace = TraceBuilder()
    gpu = trace.process(pid=1, rank=0).device(0)
    gpu.kernel(ALL_REDUCE, 0, 1, stream=7, collective=Collective("allreduce", 6637568, dtype="Float"))
    path = kineto.write(trace.rank(0), tmp_path / "t.json")
    args = one(events(path), ALL_REDUCE, "kernel")["args"]
    assert isinstance(args, dict)
    assert list(args)[-10:] == list(real)[-10:]
    built = [args[k] for k in ("In msg nelems", "dtype", "Process Group Name", "Process Group Ranks")]
    assert [type(v) for v in built] == [type(v) for v in values]
    assert (args["Process Group Ranks"], real["Process Group Ranks"]) == ("[0, 1]", "[0, 1]")


PROFILED = """
import sys, torch
from torch.profiler import ProfilerActivity, profile, record_function
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as p, record_function("step 0"):
    torch.ones(4, 4) @ torch.ones(4, 4)
p.export_chrome_trace(sys.argv[1])
"""


@pytest.mark.real
def test_layout_2026_is_that_of_the_installed_pytorch(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", PROFILED, tmp_path / "real.json"], check=True, capture_output=True)
    real = json.loads((tmp_path / "real.json").read_text())
    trace = TraceBuilder()
    process = trace.process(pid=1, rank=0)
    process.range("step 0", 0, 100)
    process.op("aten::mm", 10, 90, dims=[[4, 4], [4, 4]])
    built = json.loads(kineto.write(trace.rank(0), tmp_path / "built.json").read_text())
    top = [k for k in built if k in real]
    assert top == [k for k in real if k in top]
    assert {"baseTimeNanoseconds", "traceEvents", "traceName"} <= set(top)
    for phase, category, name in (
        ("X", "user_annotation", "step 0"),
        ("X", "cpu_op", "aten::mm"),
        ("X", "Trace", "PyTorch Profiler (0)"),
        ("M", None, "process_labels"),
        ("i", None, "Record Window End"),
    ):
        (ours,), (theirs,) = (
            [e for e in d["traceEvents"] if (e["ph"], e.get("cat"), e["name"]) == (phase, category, name)]
            for d in (built, real)
        )
        assert list(ours) == list(theirs)
        assert ours.get("args", {}).keys() <= theirs.get("args", {}).keys()


# -- both --------------------------------------------------------------------------------------------------


def test_what_a_tool_cannot_record_is_refused(tmp_path: Path) -> None:
    trace = TraceBuilder()
    process = trace.process(pid=1, rank=0)
    gpu = process.device(0)
    gpu.graph(0, 10, stream=7)
    with pytest.raises(ValueError, match="no row for a whole graph"):
        kineto.write(process, tmp_path / "t.json")
    gpu.ops.clear()
    process.range("open", 0, None)
    with pytest.raises(ValueError, match="never closed"):
        kineto.write(process, tmp_path / "t.json")


def test_the_builders_do_not_lean_on_the_product() -> None:
    code = "import sys; import builders.nsys, builders.kineto; sys.exit('overlapscope' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)
