"""Reading an export into a `RawTrace`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ...classify import Collective
from ...intervals import Spans, union
from ...trace import LIMIT, NA, Dropped, Source
from ..raw import FROM_NAME, Names, RawRanges, RawTrace
from .export import HOW_TO_TRACE_GRAPHS, Export, no_ops
from .marked import marked_ops
from .nccl import add_nccl
from .ops import UNNAMED, Found, Kept, Units, gpu_ops, host_ops, join_launches
from .ranges import Nvtx, count_unplaced, read_ranges, read_ranks
from .schema import (
    EXTRA_TABLE,
    GRAPH_TABLE,
    HOST_DEVICE,
    KERNEL_TABLE,
    LINK_ROLE,
    OVERHEAD_TABLES,
    PROVENANCE_KEY,
    RANK_TABLE,
    RUN_KEY,
    process_of,
)

__all__ = ["read"]

COLLECTIVES = [c.value for c in Collective]


def read(path: Path) -> RawTrace:
    """Read one export.

    Raises
    ------
    InputError
        Not an nsys export, empty, cut off, locked, partial (no kernel table), or without ops.
    """
    with Export(path) as export:
        nvtx = Nvtx.of(export)
        names, units = Names(), Units()
        found = gpu_ops(export, names, units)
        lanes = "gpu" if found is not None else "host"
        if found is None:
            found = host_ops(export, nvtx, names, units)
        from_ranges = found is None
        if found is None:
            found = marked_ops(export, nvtx, names, units)
        if found is None:
            raise no_ops(export)
        ranges = read_ranges(export, nvtx)
        if lanes == "gpu":
            join_launches(export, found, units)
        communicators = add_nccl(export, found, units, nvtx)
        _add_recorded(export, found, units, communicators)
        ranks = read_ranks(export, nvtx)
        kept = _kept_ranks(export)
        units.codes(np.array(list(kept), np.int64))  # of a rank of which no op is left, too
        trace = RawTrace(
            source=_source(export),
            lanes=lanes,
            units=units.listed(_gpu_names(export), ranks.of_process, kept),
            names=names,
            ops=found.ops,
            communicators=communicators,
            shapes=found.shapes,
            ranges=ranges,
            origin_ns=_session_start(export),
            overhead=_overhead(export),
            graphs=_graphs(export),
            world_size=ranks.world_size,
            ranks_from=ranks.source,
            link=_link(ranges),
            from_ranges=from_ranges,
            warnings=_graph_warning(export) + _kernel_warnings(export, found, names, lanes),
        )
        trace.dropped += _dropped(export, units)
        _add_provenance(export, trace)
        _add_run(export, trace)
        return trace


def _link(ranges: RawRanges) -> str | None:
    """The paced link that the program's marker tells of."""
    told = (name for name, role in zip(ranges.name, ranges.role, strict=True) if role == LINK_ROLE)
    return next((name.removeprefix("link ") for name in told), None)


def _dropped(export: Export, units: Units) -> list[Dropped]:
    """What the file does not place."""
    found = (
        (units.unplaced, "ops", "no device that can be one stands with them"),
        (count_unplaced(export), "NVTX ranges", "their start or their thread is not recorded"),
    )
    return [Dropped(*each) for each in found if each[0]]


def _graph_warning(export: Export) -> list[str]:
    launches = export.count(GRAPH_TABLE)
    if not launches or PROVENANCE_KEY in _metadata(export):  # a file that `write` made says it itself
        return []
    return [
        f"{launches} CUDA graph launches were traced as a whole: the kernels inside are unknown, and their "
        f"compute, communication and overlap are missing from every figure; {HOW_TO_TRACE_GRAPHS}"
    ]


def _kernel_warnings(export: Export, found: Found, names: Names, lanes: str) -> list[str]:
    """Where no communication may only mean that the file does not tell."""
    said = []
    if lanes == "gpu" and KERNEL_TABLE not in export.columns:
        said.append("the file has no kernel table: only copies are in these figures")
    unnamed = names.pairs.get((UNNAMED, None))
    count = 0 if unnamed is None else int((found.ops.name == unnamed).sum())
    if count:
        said.append(f"{count:,} kernels have no name in this file: they count as compute, whatever they are")
    return said


def _metadata(export: Export) -> dict[str, str]:
    meta: dict[str, str] = {}
    for table in ("EXPORT_META_DATA", "META_DATA_EXPORT"):
        if export.has(table, "name", "value"):
            rows = export.rows(f"SELECT CAST(name AS TEXT), CAST(value AS TEXT) FROM {table}")
            meta.update((name, value) for name, value in rows if value is not None)
    return meta


def _source(export: Export) -> Source:
    meta = _metadata(export)
    product = meta.get("EXPORT_PRODUCT_NAME", "Nsight Systems").removeprefix("NVIDIA ")
    version = meta.get("EXPORT_PRODUCT_VERSION", "")
    return Source(str(export.path), "nsys", f"{product} {version}".strip(), meta.get("EXPORT_SCHEMA_VERSION"))


def _session_start(export: Export) -> int | None:
    if not export.has("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"):
        return None
    sql = "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME WHERE typeof(utcEpochNs) = 'integer'"
    rows = export.rows(sql)
    return int(rows[0][0]) if rows and abs(rows[0][0]) < LIMIT else None


def _gpu_names(export: Export) -> dict[tuple[int | None, int], str]:
    """GPU names by (pid, device as that process numbers it), by (None, device) where the file says no more."""
    if not export.has("TARGET_INFO_GPU", "id", "name"):
        return {}
    number = "cuDevice" if export.has("TARGET_INFO_GPU", "cuDevice") else "id"
    rows = export.rows(f"SELECT id, CAST(name AS TEXT), {number} FROM TARGET_INFO_GPU WHERE name IS NOT NULL")
    by_id = {gpu: name for gpu, name, _ in rows}
    found: dict[tuple[int | None, int], str] = {(None, device): name for _, name, device in rows}
    if export.has("TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid"):
        for gpu, device, pid in export.rows("SELECT gpuId, cudaId, pid FROM TARGET_INFO_CUDA_DEVICE"):
            if gpu in by_id:
                found[(pid, device)] = by_id[gpu]
    return found


def _overhead(export: Export) -> dict[int, Spans]:
    """When the profiler itself stalled each process."""
    found: dict[int, list[tuple[int, int]]] = {}
    for table in OVERHEAD_TABLES:
        if export.has(table, "start", "end", "globalTid"):
            sql = f"SELECT start, end, globalTid FROM {table} WHERE {_placed('start', 'end', 'globalTid')}"
            for start, end, tid in export.rows(sql):
                found.setdefault(process_of(tid), []).append((start, end))
    return {key: union(*np.array(pairs, np.int64).T) for key, pairs in found.items()}


def _graphs(export: Export) -> dict[tuple[int, int], Spans]:
    """When graphs that were traced as a whole ran, by process and device."""
    if not export.has(GRAPH_TABLE, "start", "end", "deviceId"):
        return {}
    process = export.integer(GRAPH_TABLE, "globalPid", 0)
    sql = f"SELECT start, end, {process}, deviceId FROM {GRAPH_TABLE} WHERE {_placed('start', 'end', 'deviceId')}"
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for start, end, pid, device in export.rows(sql):
        found.setdefault((process_of(pid), device), []).append((start, end))
    return {key: union(*np.array(pairs, np.int64).T) for key, pairs in found.items()}


def _placed(start: str, end: str, where: str) -> str:
    """SQL for rows whose times and place are usable numbers."""
    times = (f"typeof({c}) = 'integer' AND {c} > {-LIMIT} AND {c} < {LIMIT}" for c in (start, end))
    return f"{' AND '.join(times)} AND typeof({where}) = 'integer'"


def _add_recorded(export: Export, found: Found, units: Units, communicators: list[str]) -> None:
    """What `write` keeps beside nsys's own tables: collective, bytes and communicator of single ops."""
    if not export.has(EXTRA_TABLE):
        return
    on = "communicator, sequence" if export.has(EXTRA_TABLE, "communicator", "sequence") else "NULL, NULL"
    shape_sql = "shape" if export.has(EXTRA_TABLE, "shape") else "NULL"
    rows = export.rows(
        f"SELECT globalPid, id, collective, bytes, groupSize, {on}, {shape_sql} FROM {EXTRA_TABLE}"
    )
    numbers = {name: number for number, name in enumerate(communicators)}
    shapes = {name: code for code, name in enumerate(found.shapes)}
    recorded = {(process, at): rest for process, at, *rest in rows}
    ops, process = found.ops, units.processes()[found.ops.unit]
    ops.writable("collective", "bytes", "group", "sequence", "communicator", "shape")
    for i, key in enumerate(zip(process.tolist(), found.ids.tolist(), strict=True)):
        if key in recorded:
            collective, nbytes, group, communicator, sequence, shape = recorded[key]
            ops.collective[i] = COLLECTIVES.index(collective) if collective in COLLECTIVES else FROM_NAME
            ops.bytes[i] = NA if nbytes is None else nbytes
            ops.group[i] = -1 if group is None else group
            ops.sequence[i] = -1 if sequence is None else sequence
            if communicator is not None:
                ops.communicator[i] = numbers.setdefault(communicator, len(numbers))
            if shape is not None:
                ops.shape[i] = shapes.setdefault(str(shape), len(shapes))
    communicators[:] = numbers
    found.shapes = list(shapes)


def _kept_ranks(export: Export) -> dict[int, Kept]:
    """What `write` keeps of each rank, by the key of its unit."""
    if not export.has(RANK_TABLE, "rank", "globalPid", "deviceId", "pid", "gpu", "clock"):
        return {}
    device, pid = export.integer(RANK_TABLE, "deviceId", HOST_DEVICE), export.integer(RANK_TABLE, "pid")
    rows = export.rows(
        f"SELECT rank, globalPid, {device}, {pid}, CAST(gpu AS TEXT),"
        f" {export.integer(RANK_TABLE, 'clock', 0)} FROM {RANK_TABLE}"
        " WHERE typeof(rank) = 'integer' AND typeof(globalPid) = 'integer'"
    )
    return {
        process | (device & HOST_DEVICE): Kept(rank, None if pid == NA else pid, gpu, clock)
        for rank, process, device, pid, gpu, clock in rows
    }


def _add_run(export: Export, trace: RawTrace) -> None:
    """What `annotate` has said of the run."""
    told = _metadata(export).get(RUN_KEY)
    if told is None:
        return
    try:
        said = json.loads(told)
        trace.command = str(said["command"])
        trace.warnings += map(str, said["warnings"])
    except (ValueError, TypeError, KeyError) as error:
        raise export.failed(ValueError(f"malformed: {RUN_KEY} cannot be read")) from error


def _add_provenance(export: Export, trace: RawTrace) -> None:
    """A file that `write` made says itself where its content came from."""
    told = _metadata(export).get(PROVENANCE_KEY)
    if told is None:
        return
    try:
        said = json.loads(told)
        dropped = [Dropped(**each) for each in said["dropped"]]
        missing = {"tool", "ranks_from", "clock", "world_size", "command", "link", "warnings"} - said.keys()
    except (ValueError, TypeError, KeyError) as error:
        raise export.failed(ValueError(f"malformed: {PROVENANCE_KEY} cannot be read")) from error
    if missing:
        raise export.failed(ValueError(f"malformed: {PROVENANCE_KEY} lacks {', '.join(sorted(missing))}"))
    trace.source = Source(trace.source.path, "nsys", said["tool"], trace.source.schema)
    if said.get("ranks_recorded", True):
        trace.ranks_from = said["ranks_from"]
    else:
        trace.numbered = said["ranks_from"]
    trace.clock = said["clock"]
    trace.world_size = said["world_size"]
    trace.command = said["command"]
    trace.link = said["link"]
    trace.from_ranges = said.get("from_ranges", False)  # files of older versions have operators
    trace.dropped += dropped
    trace.warnings += said["warnings"]
