"""Reading an export into a `RawTrace`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ...classify import Collective
from ...intervals import Spans, union
from ...trace import LIMIT, NA, Dropped, Source
from ..raw import FROM_NAME, Names, RawTrace
from .export import HOW_TO_TRACE_GRAPHS, Export, no_ops
from .ops import UNNAMED, Found, Units, gpu_ops, host_ops, join_launches
from .ranges import Nvtx, read_ranges, read_ranks
from .schema import EXTRA_TABLE, GRAPH_TABLE, KERNEL_TABLE, OVERHEAD_TABLES, PROVENANCE_KEY, process_of

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
        if found is None:
            raise no_ops(export)
        ranges = read_ranges(export, nvtx)
        if lanes == "gpu":
            join_launches(export, found, units)
        _add_recorded(export, found, units)
        ranks = read_ranks(export, nvtx)
        trace = RawTrace(
            source=_source(export),
            lanes=lanes,
            units=units.listed(_gpu_names(export), ranks.of_process),
            names=names,
            ops=found.ops,
            shapes=found.shapes,
            ranges=ranges,
            origin_ns=_session_start(export),
            overhead=_overhead(export),
            world_size=ranks.world_size,
            ranks_from=ranks.source,
            warnings=_graph_warning(export) + _kernel_warnings(export, found, names, lanes),
        )
        _add_provenance(export, trace)
        return trace


def _graph_warning(export: Export) -> list[str]:
    launches = export.count(GRAPH_TABLE)
    if not launches:
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
            numbers = " AND ".join(f"typeof({c}) = 'integer'" for c in ("start", "end", "globalTid"))
            sql = f"SELECT start, end, globalTid FROM {table} WHERE {numbers}"
            for start, end, tid in export.rows(sql):
                found.setdefault(process_of(tid), []).append((start, end))
    return {key: union(*np.array(pairs, np.int64).T) for key, pairs in found.items()}


def _add_recorded(export: Export, found: Found, units: Units) -> None:
    """What `write` keeps beside nsys's own tables: collective, bytes and group size of single ops."""
    if not export.has(EXTRA_TABLE):
        return
    shape_sql = "shape" if export.has(EXTRA_TABLE, "shape") else "NULL"
    rows = export.rows(f"SELECT globalPid, id, collective, bytes, groupSize, {shape_sql} FROM {EXTRA_TABLE}")
    shapes: dict[str, int] = {name: code for code, name in enumerate(found.shapes)}
    recorded = {(process, at): rest for process, at, *rest in rows}
    ops, process = found.ops, units.processes()[found.ops.unit]
    for i, key in enumerate(zip(process.tolist(), found.ids.tolist(), strict=True)):
        if key in recorded:
            collective, nbytes, group, shape = recorded[key]
            ops.collective[i] = COLLECTIVES.index(collective) if collective in COLLECTIVES else FROM_NAME
            ops.bytes[i] = NA if nbytes is None else nbytes
            ops.group[i] = -1 if group is None else group
            if shape is not None:
                ops.shape[i] = shapes.setdefault(str(shape), len(shapes))
    found.shapes = list(shapes)


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
    trace.ranks_from = said["ranks_from"]
    trace.clock = said["clock"]
    trace.world_size = said["world_size"]
    trace.command = said["command"]
    trace.link = said["link"]
    trace.dropped += dropped
    trace.warnings += said["warnings"]
