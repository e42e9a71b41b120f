"""Rows of an nsys export: a gatherer, and what GPUs and host threads did."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from . import Device, Process, TraceBuilder
from .model import COPY_KINDS, SYNC_KINDS, Call, Op
from .nsys_schema import Style, tables

__all__ = ["CONTEXT", "Row", "Rows", "global_id", "gpu_rows", "host_rows", "overhead_rows"]

Row = dict[str, Any]

CONTEXT = 1
_NO_STREAM = 0xFFFFFFFF  # CUPTI_SYNCHRONIZATION_INVALID_VALUE
_MEMORY = {"Pageable": 0, "Pinned": 1, "Device": 2}
_CLASS_RUNTIME, _CLASS_BACKTRACE, _CLASS_OVERHEAD = 0, 67, 103
# The versioned entry points that CUPTI reports.
_ENTRY = {
    "cudaLaunchKernel": "cudaLaunchKernel_v7000",
    "cudaMemcpyAsync": "cudaMemcpyAsync_v3020",
    "cudaMemsetAsync": "cudaMemsetAsync_v3020",
    "cudaGraphLaunch": "cudaGraphLaunch_v10000",
    "cudaEventSynchronize": "cudaEventSynchronize_v3020",
    "cudaStreamWaitEvent": "cudaStreamWaitEvent_v3020",
    "cudaStreamSynchronize": "cudaStreamSynchronize_v3020",
    "cudaDeviceSynchronize": "cudaDeviceSynchronize_v3020",
}


class Rows:
    """The rows of every table, and the strings they refer to."""

    def __init__(self, style: Style) -> None:
        self.style = style
        self.known = tables(style.version)
        self.tables: dict[str, list[Row]] = defaultdict(list)
        self._strings: dict[str, int] = {}
        self.string("[Unknown]")

    def add(self, table: str, **values: Any) -> None:
        """A row of a table that this version has; of another, nothing."""
        if table in self.known:
            self.tables[table].append(values)

    def string(self, text: str) -> int:
        """The id of a string in StringIds."""
        return self._strings.setdefault(text, len(self._strings))

    def close(self) -> None:
        """Write the strings down; nothing may be added after it."""
        self.tables["StringIds"] = [{"id": i, "value": s} for s, i in self._strings.items()]


def global_id(process: Process, thread: int = 0) -> int:
    """globalTid, or with thread 0 globalPid: hardware 8 bits, VM 8, pid 24, tid 24; signed, as in SQLite."""
    low = (process.pid & 0xFFFFFF) << 24 | thread & 0xFFFFFF
    packed = process.hardware << 56 | process.vm << 48 | low
    return packed - (1 << 64) if packed >= 1 << 63 else packed


def gpu_rows(rows: Rows, device: Device, backtraces: bool) -> None:
    """What one GPU did, and the calls that launched it."""
    for op in device.ops:
        if op.launch:
            _call(rows, device.process, op.launch, backtraces)
        base = {"start": op.start, "end": op.end}
        base |= _place(rows, device.process, op.device, op.stream, op.correlation)
        if op.what == "kernel":
            rows.add("CUPTI_ACTIVITY_KIND_KERNEL", **base, **_kernel(rows, op))
        elif op.what == "memcpy":
            rows.add("CUPTI_ACTIVITY_KIND_MEMCPY", **base, **_memcpy(op))
        elif op.what == "memset":
            rows.add("CUPTI_ACTIVITY_KIND_MEMSET", **base, value=0, bytes=op.nbytes, memKind=2)
        else:
            rows.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **base, graphId=1, graphExecId=2)


def host_rows(rows: Rows, process: Process, backtraces: bool) -> None:
    """A process's name, threads, calls and waits."""
    rows.add("PROCESSES", globalPid=global_id(process), pid=process.pid, name=process.name)
    for thread in process.threads():
        name = rows.string(process.name if thread == process.pid else f"thread {thread}")
        rows.add("ThreadNames", nameId=name, priority=20, globalTid=global_id(process, thread))
    for call in process.calls:
        _call(rows, process, call, backtraces)
    for sync in process.syncs:
        stream = _NO_STREAM if sync.stream is None else sync.stream
        rows.add(
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
            start=sync.start,
            end=sync.end,
            **_place(rows, process, sync.device, stream, sync.call.correlation),
            syncType=SYNC_KINDS[sync.kind],
            eventId=1 if sync.kind in ("event", "stream_wait") else _NO_STREAM,
            eventSyncId=0 if rows.style.version >= (3, 24) else None,
        )


def overhead_rows(rows: Rows, trace: TraceBuilder) -> None:
    """The profiler's own time; before 3.24 CUPTI's is not apart."""
    for overhead in trace.overheads:
        row = {
            "start": overhead.start,
            "end": overhead.end,
            "globalTid": global_id(overhead.process, overhead.thread),
            "nameId": rows.string(overhead.name),
            "returnValue": 0,
            "overheadType": overhead.cupti or 0,
        }
        if overhead.cupti is None or rows.style.version < (3, 24):
            rows.add("PROFILER_OVERHEAD", **row)
        else:
            rows.add("CUPTI_ACTIVITY_KIND_OVERHEAD", **row, eventClass=_CLASS_OVERHEAD, correlationId=0)


def _place(rows: Rows, process: Process, device: int, stream: int, correlation: int) -> Row:
    return {
        "deviceId": device,
        "contextId": CONTEXT,
        "greenContextId": None if rows.style.version < (3, 16) else 0,
        "streamId": stream,
        "correlationId": correlation,
        "globalPid": global_id(process),
    }


def _call(rows: Rows, process: Process, call: Call, backtraces: bool) -> None:
    row = {
        "start": call.start,
        "end": call.end,
        "globalTid": global_id(process, call.thread),
        "correlationId": call.correlation,
        "returnValue": 0,
    }
    entry = rows.string(_ENTRY.get(call.name, call.name))
    rows.add("CUPTI_ACTIVITY_KIND_RUNTIME", **row, eventClass=_CLASS_RUNTIME, nameId=entry)
    if backtraces:
        row |= {"nameId": rows.string(call.name), "eventClass": _CLASS_BACKTRACE, "callchainId": 1}
        rows.add("CUPTI_ACTIVITY_KIND_RUNTIME", **row)


def _kernel(rows: Rows, op: Op) -> Row:
    mangled = f"_Z{len(op.short)}{op.short}v" if "(" in op.name else op.name
    return {
        "demangledName": rows.string(op.name),
        "shortName": rows.string(op.short),
        "mangledName": rows.string(mangled),
        "launchType": 1,
        "cacheConfig": 1,
        "registersPerThread": 32,
        **dict(zip(("gridX", "gridY", "gridZ"), op.grid, strict=True)),
        **dict(zip(("blockX", "blockY", "blockZ"), op.block, strict=True)),
        **dict.fromkeys(("staticSharedMemory", "dynamicSharedMemory", "localMemoryPerThread"), 0),
        "localMemoryTotal": 127401984,
        "gridId": op.correlation,
        "sharedMemoryExecuted": 32768,
        "sharedMemoryLimitConfig": 0,
        "graphNodeId": op.graph_node,
        **dict.fromkeys(("clusterX", "clusterY", "clusterZ", "clusterSchedulingPolicy"), 0),
        **dict.fromkeys(("maxPotentialClusterSize", "maxActiveClusters"), 0),
        "tensorSizeMinusOneElements": "[]",
    }


def _memcpy(op: Op) -> Row:
    source, target = (_MEMORY[op.host] if end == "H" else 2 for end in (op.copy[0], op.copy[-1]))
    peer = CONTEXT if op.copy == "PtoP" else None
    return {
        "bytes": op.nbytes,
        "copyKind": COPY_KINDS[op.copy],
        "srcKind": source,
        "dstKind": target,
        "srcDeviceId": op.src,
        "srcContextId": peer,
        "dstDeviceId": op.dst,
        "dstContextId": peer,
        "copyCount": 1,
    }
