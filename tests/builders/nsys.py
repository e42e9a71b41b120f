"""Writes a handmade trace as the SQLite export of Nsight Systems, in the schema of a chosen version."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

from . import Device, Process, TraceBuilder
from .nsys_nvtx import HOST_OP_DOMAIN, nvtx_rows
from .nsys_rows import CONTEXT, Row, Rows, global_id, gpu_rows, host_rows, overhead_rows
from .nsys_schema import STYLES, Column, enums

__all__ = ["HOST_OP_DOMAIN", "STYLES", "global_id", "write"]

_NULL_STREAM = 7  # PyTorch's compute stream, as CUPTI numbers it
_SYSTEM_CLOCK = 10**12  # the machine's own clock at time 0: any value but 0
_ALWAYS = (
    "StringIds",
    "ANALYSIS_FILE",
    "ProcessStreams",
    "TARGET_INFO_SYSTEM_ENV",
    "TARGET_INFO_SESSION_START_TIME",
    "ANALYSIS_DETAILS",
    "PROCESSES",
)


def write(
    trace: TraceBuilder,
    path: Path,
    *,
    style: str = "3.25",
    eager: bool | None = None,
    seed: int | None = None,
    gpu_info: bool = True,
    graph_mode: str = "Graph",
    nccl_payload: str | None = "json",
    backtraces: bool = False,
) -> Path:
    """Write the trace to `path` and return it.

    Parameters
    ----------
    style : str
        A key of `STYLES`: 2.9, 3.0, 3.13, 3.16, 3.17, 3.24, 3.25 or 3.27.
    eager : bool, optional
        Whether empty tables exist too (and ENUM tables are empty); by default the style's own habit.
    seed : int, optional
        Shuffle the rows of every table, whose order is not guaranteed.
    gpu_info : bool
        Whether the tables that name GPUs, contexts and streams exist.
    graph_mode : str
        What the capture options say of CUDA graphs, Graph or Node (3.16 on).
    nccl_payload : {"json", "blobs", None}
        How the payloads of NCCL's ranges were exported: as JSON text, as blobs, not at all (3.25 on).
    backtraces : bool
        Record each call a second time under the same correlation id, as 2.9 does with CUDA backtraces.
    """
    chosen = STYLES[style]
    rows = Rows(chosen)
    for process in trace.processes:
        host_rows(rows, process, backtraces)
        nvtx_rows(rows, process, nccl_payload)
        for device in process.devices:
            gpu_rows(rows, device, backtraces)
    overhead_rows(rows, trace)
    _session_rows(rows, trace)
    _meta_rows(rows, graph_mode)
    if gpu_info:
        _gpu_info_rows(rows, trace)
    rows.close()
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        _store(connection, rows, chosen.eager if eager is None else eager, seed)
    return path


def _store(connection: sqlite3.Connection, rows: Rows, eager: bool, seed: int | None) -> None:
    for table, columns in rows.known.items():
        content = rows.tables.get(table, [])
        if content or eager or table in _ALWAYS:
            if seed is not None:
                random.Random(seed).shuffle(content)
            _table(connection, table, columns, content)
    for table, (columns, values) in enums(rows.style.version).items():
        labels = [dict(zip(("id", "name", "label"), v, strict=True)) for v in values]
        _table(connection, table, columns, [] if eager else labels)


def _table(connection: sqlite3.Connection, table: str, columns: list[Column], rows: list[Row]) -> None:
    """Make and fill a table. A value whose column this version lacks is left out, as the tool itself does."""
    connection.execute(f"CREATE TABLE {table} ({', '.join(c.ddl for c in columns)})")
    marks = ", ".join("?" * len(columns))
    values = [tuple(r.get(c.name) for c in columns) for r in rows]
    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", values)


def _session_rows(rows: Rows, trace: TraceBuilder) -> None:
    utc = datetime.fromtimestamp(trace.epoch // 10**9, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    clock = {"utcEpochNs": trace.epoch, "utcTime": utc, "localTime": utc, "systemClockNs": _SYSTEM_CLOCK}
    rows.add("TARGET_INFO_SESSION_START_TIME", **clock)
    ends = (r["end"] for table in rows.tables.values() for r in table if r.get("end") is not None)
    span = max(ends, default=0)
    whole = {"startTime": _SYSTEM_CLOCK, "stopTime": _SYSTEM_CLOCK + span, "duration": span}
    rows.add("ANALYSIS_DETAILS", globalVid=1 << 48, **whole)


def _meta_rows(rows: Rows, graph_mode: str) -> None:
    major, minor, micro = rows.style.schema.split(".")
    exported = {
        "EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems",
        "EXPORT_PRODUCT_VERSION": rows.style.product,
        "EXPORT_PRODUCT_DATE": ".".join(rows.style.product.split(".")[:2]),
        "EXPORT_SCHEMA_VERSION": rows.style.schema,
        "EXPORT_SCHEMA_VERSION_MAJOR": major,
        "EXPORT_SCHEMA_VERSION_MINOR": minor,
        "EXPORT_SCHEMA_VERSION_MICRO": micro,
        "EXPORT_PLATFORM": "linux-desktop",
        "EXPORT_ARCH": "x64",
    }
    for name, value in exported.items():
        rows.add("EXPORT_META_DATA", name=name, value=value)
        rows.add("META_DATA_EXPORT", name=name, value=value)
    captured = [("CAPTURE_EVENT_TYPE", "NvtxEvents"), ("CAPTURE_EVENT_TYPE", "Cuda")]
    if rows.style.version >= (3, 16):
        # 3.25 says it of the session, those before of the process.
        owner = "" if rows.style.version >= (3, 25) else "PROCESS_0:"
        captured.append((f"{owner}CUDA_GRAPH_TRACE_OPTIONS:MODE", graph_mode))
    for name, value in captured:
        rows.add("META_DATA_CAPTURE", name=name, value=value)


def _gpu_info_rows(rows: Rows, trace: TraceBuilder) -> None:
    listed: set[int] = set()
    for process in trace.processes:
        for device in process.devices:
            if device.gpu not in listed:
                listed.add(device.gpu)
                rows.add("TARGET_INFO_GPU", **_gpu(device))
            seen = {"gpuId": device.gpu, "cudaId": device.index, "pid": process.pid, "uuid": _uuid(device)}
            rows.add("TARGET_INFO_CUDA_DEVICE", **seen, numMultiprocessors=132)
            _context_rows(rows, process, device)


def _context_rows(rows: Rows, process: Process, device: Device) -> None:
    owner = {"hwId": process.hardware, "vmId": process.vm, "processId": process.pid, "contextId": CONTEXT}
    at = {**owner, "deviceId": device.index}
    rows.add("TARGET_INFO_CUDA_CONTEXT_INFO", **at, nullStreamId=_NULL_STREAM, isGreenContext=0)
    rows.add("TARGET_INFO_CUDA_NULL_STREAM", **at, streamId=_NULL_STREAM)
    for stream in sorted({o.stream for o in device.ops}):
        flag = 3 if stream == _NULL_STREAM else 2  # null stream; non-blocking
        rows.add("TARGET_INFO_CUDA_STREAM", **owner, streamId=stream, priority=0, flag=flag)


def _gpu(device: Device) -> Row:
    return {
        "vmId": device.process.vm << 48,
        "id": device.gpu,
        "name": device.name,
        "busLocation": f"0000:{device.gpu + 1:02x}:00.0",
        "isDiscrete": 1,
        "totalMemory": 84942979072,
        "smCount": 132,
        "pwGpuId": device.gpu,
        "uuid": _uuid(device),
        "cuDevice": device.gpu,
        "computeMajor": 9,
        "computeMinor": 0,
    }


def _uuid(device: Device) -> str:
    return f"00000000-0000-0000-0000-{device.gpu:012d}"
