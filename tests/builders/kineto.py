"""Writes one process of a handmade trace as PyTorch's profiler does: Chrome trace JSON, one file a process.

Layouts known from real files: ``2022`` and ``2023`` (whole microseconds since 1970; the arrows differ),
``2024`` (a base time, given after the events; trailing zeros of a time cut) and ``2026`` (a base time, given
before them; three digits).

The profiler knows no NVTX: a range becomes an annotation without domain, category and payload; marks and
NCCL's own ranges are left out.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import Collective, Device, Process
from .kineto_text import Clock, Event, dump
from .model import Call, Op, Range

__all__ = ["LAYOUTS", "write"]

_CBID = {
    "cudaLaunchKernel": 211,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaEventSynchronize": 137,
    "cudaStreamWaitEvent": 147,
    "cudaStreamSynchronize": 131,
    "cudaDeviceSynchronize": 165,
}
_SYNC_NAMES = {
    "event": "Event Sync",
    "stream_wait": "Stream Wait Event",
    "stream": "Stream Sync",
    "context": "Context Sync",
}
_COPY_ENDS = {"H": None, "D": "Device", "P": "Device"}


@dataclass(frozen=True)
class Layout:
    """How a time of PyTorch's profiler wrote its file."""

    fraction: str  # digits of a microsecond: three, cut (no trailing zeros), none
    base_ns: int  # subtracted from every time; 0: there is none
    base_first: bool  # whether it stands before the events
    flow: tuple[str, str]  # category and name of the arrows from launch to kernel
    distributed_groups: bool  # whether distributedInfo lists process groups


_BASE = 1_711_964_646_000_000_000
LAYOUTS = {
    "2022": Layout("none", 0, False, ("async_cpu_to_gpu", "async_gpu"), False),
    "2023": Layout("none", 0, False, ("ac2g", "ac2g"), False),
    "2024": Layout("cut", _BASE, False, ("ac2g", "ac2g"), True),
    "2026": Layout("three", _BASE, True, ("ac2g", "ac2g"), True),
}


def write(
    process: Process,
    path: Path,
    *,
    layout: str = "2026",
    fraction: str | None = None,
    base_ns: int | None = None,
    distributed: bool = True,
    times: str = "number",
    nccl_args: bool = True,
    sync_events: bool = False,
    flows: bool = True,
    pretty: bool = True,
    key_order: str = "layout",
    seed: int | None = None,
) -> Path:
    """Write the file to `path`, gzipped where that ends in .gz, and return it.

    Parameters
    ----------
    layout : str
        A key of `LAYOUTS`: 2022, 2023, 2024 or 2026.
    fraction : {"three", "cut", "none"}, optional
        Digits after a microsecond; "none" refuses a time that is not a whole one.
    base_ns : int, optional
        ``baseTimeNanoseconds``, the layout's own by default; 0 leaves it out and writes times since 1970.
    distributed : bool
        Whether distributedInfo is there (it needs a rank).
    times : {"number", "string"}
        How ts and dur are written.
    nccl_args : bool
        Whether kernels carry what their `Collective` says.
    sync_events : bool
        Write waits on their streams too, as category cuda_sync; the host call is always there.
    flows : bool
        Whether arrows lead from launches to what they launched.
    pretty : bool
        Many lines, or the one line that other tools rewrite to.
    key_order : {"layout", "sorted", "reversed"}
        Order of the keys of an event.
    seed : int, optional
        Shuffle the events.
    """
    chosen = LAYOUTS[layout]
    base = chosen.base_ns if base_ns is None else base_ns
    clock = Clock(process.trace.epoch - base, fraction or chosen.fraction, times == "string")
    events = list(_events(process, clock, chosen, nccl_args, sync_events, flows))
    if seed is not None:
        random.Random(seed).shuffle(events)
    if key_order != "layout":
        events = [dict(sorted(e.items(), reverse=key_order == "reversed")) for e in events]
    text = dump(_document(process, chosen, events, base, distributed, path.name), pretty)
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode())
    return path


def _document(
    process: Process, layout: Layout, events: list[Event], base: int, distributed: bool, name: str
) -> dict[str, Any]:
    head: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [_properties(d) for d in process.devices]}
    if distributed and process.rank is not None:
        head["distributedInfo"] = _distributed(process, layout)
    head["record_shapes"] = 1
    clock = {"displayTimeUnit": "ms", "baseTimeNanoseconds": base} if base else {}
    if layout.base_first:
        return {**head, **clock, "traceEvents": events, "traceName": name}
    return {**head, "traceEvents": events, "traceName": name, **clock}


def _properties(device: Device) -> dict[str, Any]:
    return {
        "id": device.index,
        "name": device.name,
        "totalGlobalMem": 84942979072,
        "computeMajor": 9,
        "computeMinor": 0,
        "numSms": 132,
    }


def _distributed(process: Process, layout: Layout) -> dict[str, Any]:
    world = process.world or sum(p.rank is not None for p in process.trace.processes)
    told: dict[str, Any] = {"backend": process.backend, "rank": process.rank, "world_size": world}
    if layout.distributed_groups:
        told["pg_count"] = 1
        group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": f"cuda:{process.backend}"}
        told["pg_config"] = [{**group, "pg_size": world, "ranks": list(range(world))}]
    return told


def _events(
    process: Process, clock: Clock, layout: Layout, nccl_args: bool, sync_events: bool, flows: bool
) -> Iterator[Event]:
    annotated = (r for r in process.ranges if r.kind != "mark" and r.domain != "NCCL")
    for number, range_ in enumerate(annotated):
        yield _annotation(process, clock, range_, number)
    yield from _host_ops(process, clock)
    for call in process.calls:
        yield _call(process, clock, call)
    for device in process.devices:
        for op in device.ops:
            yield _gpu_op(clock, op, nccl_args)
            if op.launch:
                yield _call(process, clock, op.launch)
                if flows:
                    yield from _flow(process, clock, layout, op, op.launch)
        for a in device.annotations:
            args = {"External id": 0}
            yield clock.event("gpu_user_annotation", a.name, a.start, a.end, a.device, a.stream, args)
    if sync_events:
        yield from _syncs(process, clock)
    yield from _metadata(process, clock)
    yield from _frame(process, clock)


def _annotation(process: Process, clock: Clock, range_: Range, number: int) -> Event:
    if range_.end is None:
        raise ValueError(f"{range_.name}: PyTorch's profiler writes no range that was never closed")
    args = {"External id": number, "Record function id": 0, "Ev Idx": number}
    where = (process.pid, range_.thread, args)
    return clock.event("user_annotation", range_.name, range_.start, range_.end, *where)


def _host_ops(process: Process, clock: Clock) -> Iterator[Event]:
    for number, op in enumerate(process.host_ops):
        args: Event = {"External id": number, "Record function id": 0, "Ev Idx": number}
        if op.dims is not None:
            args |= {"Input type": [op.dtype] * len(op.dims), "Input Dims": [list(d) for d in op.dims]}
        # gloo's work is recorded as an annotation on gloo's thread, whatever the user annotated.
        category = "user_annotation" if op.name.startswith("gloo:") else "cpu_op"
        yield clock.event(category, op.name, op.start, op.end, process.pid, op.thread, args)


def _call(process: Process, clock: Clock, call: Call) -> Event:
    args = {"External id": call.correlation, "cbid": _CBID.get(call.name, 0), "correlation": call.correlation}
    category = "cuda_driver" if call.name.startswith("cu") and call.name[2].isupper() else "cuda_runtime"
    return clock.event(category, call.name, call.start, call.end, process.pid, call.thread, args)


def _gpu_op(clock: Clock, op: Op, nccl_args: bool) -> Event:
    tail = {"stream": op.stream, "correlation": op.correlation}
    place: Event = {"External id": op.correlation, "device": op.device, "context": 1, **tail}
    where = (op.start, op.end, op.device, op.stream)
    if op.what == "kernel":
        shape = {"grid": list(op.grid), "block": list(op.block), "est. achieved occupancy %": 0}
        args = {**place, "registers per thread": 32, "shared memory": 0, "warps per SM": 0.037037, **shape}
        if op.collective and nccl_args:
            args |= _collective(op.collective)
        return clock.event("kernel", op.name, *where, args)
    moved = {"bytes": op.nbytes, "memory bandwidth (GB/s)": op.nbytes / max(op.end - op.start, 1)}
    if op.what == "memset":
        return clock.event("gpu_memset", "Memset (Device)", *where, {**place, **moved})
    if op.what == "graph":
        raise ValueError("PyTorch's profiler has no row for a whole graph; write its kernels")
    source, target = (_COPY_ENDS[end] or op.host for end in (op.copy[0], op.copy[-1]))
    if op.copy == "PtoP":  # no "device" here: the one it ran on is "inDevice"
        devices = {"fromDevice": op.src, "inDevice": op.device, "toDevice": op.dst}
        contexts = {"fromContext": 1, "inContext": 1, "toContext": 1}
        place = {"External id": op.correlation, **devices, **contexts, **tail}
    return clock.event("gpu_memcpy", f"Memcpy {op.copy} ({source} -> {target})", *where, {**place, **moved})


def _collective(c: Collective) -> Event:
    args: Event = {
        "Collective name": c.name,
        "In msg nelems": c.in_elements,
        "Out msg nelems": c.in_elements if c.out_elements is None else c.out_elements,
        "Group size": len(c.ranks),
        "dtype": c.dtype,
        "In split size": "[]",
        "Out split size": "[]",
        "Process Group Name": c.group,
        "Process Group Description": c.description,
        "Process Group Ranks": f"[{', '.join(map(str, c.ranks))}]",
    }
    if c.peer is not None:
        args |= {"Src Rank": c.peer[0], "Dst Rank": c.peer[1]}
    if c.seq is not None:
        args["Seq"] = c.seq
    return args


def _flow(process: Process, clock: Clock, layout: Layout, op: Op, launch: Call) -> Iterator[Event]:
    category, name = layout.flow
    ends = (("s", process.pid, launch.thread, launch.start), ("f", op.device, op.stream, op.start))
    for phase, pid, tid, at in ends:
        event = {"ph": phase, "id": op.correlation, "pid": pid, "tid": tid, "ts": clock.at(at)}
        binds = {"bp": "e"} if phase == "f" or category == "async_cpu_to_gpu" else {}
        yield {**event, "cat": category, "name": name, **binds}


def _syncs(process: Process, clock: Clock) -> Iterator[Event]:
    for sync in process.syncs:
        stream = -1 if sync.stream is None else sync.stream
        args: Event = {"cuda_sync_kind": _SYNC_NAMES[sync.kind]}
        if sync.kind in ("event", "stream_wait"):
            args |= {"wait_on_stream": stream, "wait_on_cuda_event_record_corr_id": -1}
            args["wait_on_cuda_event_id"] = 1
        args |= {"stream": stream, "correlation": sync.call.correlation, "device": sync.device, "context": 1}
        where = (sync.device, stream, args)
        yield clock.event("cuda_sync", _SYNC_NAMES[sync.kind], sync.start, sync.end, *where)


def _metadata(process: Process, clock: Clock) -> Iterator[Event]:
    """Names of processes (GPUs are processes too, streams their threads)."""
    lanes = [(process.pid, t, f"thread {t} ({process.name})") for t in process.threads()]
    groups = [(process.pid, "CPU"), *((d.index, f"GPU {d.index}") for d in process.devices)]
    for device in process.devices:
        lanes += [(device.index, s, f"stream {s} ") for s in sorted({o.stream for o in device.ops})]
    for pid, label in groups:
        yield _meta(clock, "process_name", pid, 0, {"name": process.name})
        yield _meta(clock, "process_labels", pid, 0, {"labels": label})
        yield _meta(clock, "process_sort_index", pid, 0, {"sort_index": pid})
    for pid, tid, name in lanes:
        yield _meta(clock, "thread_name", pid, tid, {"name": name})
        yield _meta(clock, "thread_sort_index", pid, tid, {"sort_index": tid})


def _frame(process: Process, clock: Clock) -> Iterator[Event]:
    """The profiler's own window, on rows whose ids are words."""
    ends = [o.end for d in process.devices for o in d.ops] + [o.end for o in process.host_ops]
    last = max([*ends, *(r.end for r in process.ranges if r.end is not None)], default=0)
    where = {"pid": "Spans", "tid": "PyTorch Profiler"}
    head = {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", **where}
    yield {**head, "ts": clock.at(0), "dur": clock.span(last), "args": {"Op count": 0}}
    yield _meta(clock, "process_sort_index", "Spans", 0, {"sort_index": 536870912})
    instants = (("Iteration Start: PyTorch Profiler", "Traces", "Trace PyTorch Profiler", 0),)
    for name, pid, tid, at in (*instants, ("Record Window End", "", "", last)):
        yield {"ph": "i", "s": "g", "name": name, "pid": pid, "tid": tid, "ts": clock.at(at)}


def _meta(clock: Clock, name: str, pid: int | str, tid: int, args: Event) -> Event:
    return {"ph": "M", "name": name, "ts": clock.at(0), "pid": pid, "tid": tid, "args": args}
