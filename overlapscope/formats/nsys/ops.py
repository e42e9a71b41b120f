"""Kernels, copies and sets of an export, with the calls that launched them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...errors import InputError
from ...intervals import Int64
from ..raw import COPY_KINDS, MEMSET_NAME, Names, RawOps, Unit, copy_name, missing, shape_name
from .export import Export, codes_of
from .ranges import Nvtx, message_sql
from .schema import (
    EXTRA_TABLE,
    HOST_DEVICE,
    KERNEL_TABLE,
    MEMCPY_TABLE,
    MEMSET_TABLE,
    NVTX_TABLE,
    OP_ROLE,
    RUNTIME_TABLE,
    SHAPE_COLUMNS,
    pid_of,
    process_of,
    thread_of,
)

__all__ = ["Found", "Kept", "Units", "gpu_ops", "host_ops", "join_launches"]

UNNAMED = "(unnamed kernel)"

MOST_DEVICES = 1 << 10
"""No machine has more; a greater number is damage, and would become a rank of its own."""

SHAPE_SQL = "(gridX << 32) | (gridY << 16) | gridZ, (blockX << 18) | (blockY << 7) | blockZ"
"""A grid fits 63 bits and a block 29: two columns cost half of what the six cost that they pack."""

Int32 = npt.NDArray[np.int32]


class Kept(NamedTuple):
    """What a file that `write` made says of a unit."""

    order: int
    pid: int | None
    gpu: str | None
    clock: int


class Units:
    """Process-device pairs under codes. The low 24 bits of a globalPid are zero: the key keeps the device there."""

    def __init__(self) -> None:
        self.keys: dict[int, int] = {}
        self.unplaced = 0  # ops left out, since no device that can be one stands with them

    def placed(self, columns: list[Int64]) -> list[Int64]:
        """The rows of ops (start, end, device, ...) that say on which device they ran; the others are counted."""
        if not columns:
            return columns
        known = (columns[2] >= 0) & (columns[2] < MOST_DEVICES)
        self.unplaced += int(np.count_nonzero(~known))
        return columns if known.all() else [column[known] for column in columns]

    def codes(self, keys: Int64) -> Int32:
        return codes_of(keys, lambda key: self.keys.setdefault(key, len(self.keys)))

    def processes(self) -> Int64:
        """globalPid of each unit."""
        return np.array([key & ~0xFFFFFF for key in self.keys], np.int64)

    def listed(
        self, gpus: dict[tuple[int | None, int], str], ranks: dict[int, int], kept: dict[int, Kept]
    ) -> list[Unit]:
        processes = self.processes().tolist()
        units = []
        for key, process in zip(self.keys, processes, strict=True):
            pid, device = pid_of(key), key & 0xFFFFFF
            gpu = gpus.get((pid, device), gpus.get((None, device)))
            # A recorded rank names a process: it is a rank only where the process drives one device.
            rank = ranks.get(process_of(key)) if processes.count(process) == 1 else None
            # Files without a globalPid have 0 there, which is no process.
            device_or_none = None if device == HOST_DEVICE else device
            unit = Unit(pid or None, process_of(key), device_or_none, gpu, rank)
            units.append(replace(unit, **kept[key]._asdict()) if key in kept else unit)
        return units


@dataclass(slots=True)
class Found:
    """Ops with the ids by which other tables speak of them: correlation ids, on host lanes range ids."""

    ops: RawOps
    ids: Int64
    shapes: list[str] = field(default_factory=list)


def gpu_ops(export: Export, names: Names, units: Units) -> Found | None:
    """All GPU activity of the file, or None where there is none."""
    tables = (_kernels, _copies, _sets)
    parts = [found for found in (read(export, names, units) for read in tables) if found is not None]
    if len(parts) < 2:
        return parts[0] if parts else None
    columns = []
    for column in RawOps.__slots__:
        columns.append(np.concatenate([getattr(part.ops, column) for part in parts]))
        for part in parts:  # let go of the pieces: the peak is one column, not a table
            setattr(part.ops, column, columns[-1][:0])
    # Only kernels, the first part, have shapes.
    return Found(RawOps(*columns), np.concatenate([part.ids for part in parts]), parts[0].shapes)


def _kernels(export: Export, names: Names, units: Units) -> Found | None:
    table, needed = KERNEL_TABLE, ("start", "end", "deviceId", "streamId")
    if table not in export.columns:
        return None
    if not export.has(table, *needed):
        lacking = ", ".join(column for column in needed if not export.has(table, column))
        raise InputError(f"its kernel table lacks {lacking}", "export it again", export.path)
    # Correlation ids are a fifth of the volume; without these tables nothing asks for them.
    with_ids = export.has(RUNTIME_TABLE) or export.has(EXTRA_TABLE)
    shape_sql = SHAPE_SQL if export.has(table, *SHAPE_COLUMNS) else "-1, -1"
    sql = (
        f"SELECT start, end, deviceId, streamId, {export.column(table, 'globalPid', 0)},"
        f" {export.column(table, 'demangledName', -1)}, {export.column(table, 'shortName', -1)}, {shape_sql}"
        f"{', ' + export.column(table, 'correlationId') if with_ids else ''} FROM {table}"
    )
    pairs: dict[int, int] = {}
    batches: list[list[Int64 | Int32]] = []
    for batch in export.batches(sql):
        batch = units.placed(batch)
        start, end, device, stream, pid, demangled, short, grid, block, *ids = batch
        # Ids of StringIds fit 32 bits: one key holds the pair.
        pair = codes_of(
            (demangled << 32) | (short & 0xFFFFFFFF), lambda key: pairs.setdefault(key, len(pairs))
        )
        lane = [units.codes(pid + device), stream.astype(np.int32)]
        batches.append([start, end, *lane, pair, grid, block.astype(np.int32), *ids])
    if not any(len(batch[0]) for batch in batches):
        return None
    start, end, unit, stream32, pair, grid, block, *ids = (_whole(batches, i) for i in range(len(batches[0])))
    ops = RawOps.of(start, end, unit, stream32, _kernel_names(export, names, list(pairs))[pair])
    ops.shape, shapes = _shapes(grid, block)
    return Found(ops, ids[0] if ids else missing(len(ops)), shapes)


def _shapes(grid: Int64, block: Int64) -> tuple[Int32, list[str]]:
    """Code of each kernel's grid and block, as `SHAPE_SQL` packs them, and what the codes stand for."""
    which, grids = pd.factorize(grid)
    codes, pairs = pd.factorize((which << 32) | block)
    codes = codes.astype(np.int32)
    codes[(grid < 0) | (block < 0)] = -1
    named = []
    for pair in pairs.tolist():
        g, b = int(grids[pair >> 32]), pair & 0xFFFFFFFF
        named.append(shape_name((g >> 32, g >> 16 & 0xFFFF, g & 0xFFFF), (b >> 18, b >> 7 & 0x7FF, b & 0x7F)))
    return codes, named


def _whole(batches: list[list[Int64 | Int32]], index: int) -> npt.NDArray:  # type: ignore[type-arg]
    """One column of all batches, letting go of the pieces: the peak is one column, not a table."""
    whole = np.concatenate([batch[index] for batch in batches])
    for batch in batches:
        batch[index] = batch[index][:0].copy()
    return whole


def _kernel_names(export: Export, names: Names, pairs: list[int]) -> Int32:
    ids = [(key >> 32 & 0xFFFFFFFF, key & 0xFFFFFFFF) for key in pairs]
    strings = _strings(export, {i for pair in ids for i in pair})
    codes = []
    for demangled, short in ids:
        name = strings.get(demangled) or strings.get(short) or UNNAMED
        codes.append(names.code(name, strings.get(short)))
    return np.array(codes, np.int32)


def _strings(export: Export, ids: set[int]) -> dict[int, str]:
    """Values of some string ids; a file can hold millions of others."""
    found: dict[int, str] = {}
    if not export.has("StringIds", "id", "value"):
        return found
    wanted = sorted(i for i in ids if i != 0xFFFFFFFF)  # that is -1: no name
    for at in range(0, len(wanted), 500):
        some = ",".join(map(str, wanted[at : at + 500]))
        found.update(export.rows(f"SELECT id, CAST(value AS TEXT) FROM StringIds WHERE id IN ({some})"))
    return found


def _copies(export: Export, names: Names, units: Units) -> Found | None:
    table = MEMCPY_TABLE
    if not export.has(table, "start", "end", "deviceId", "streamId", "copyKind"):
        return None
    columns = export.integers(
        f"SELECT start, end, deviceId, streamId, {export.column(table, 'globalPid', 0)},"
        f" {export.column(table, 'correlationId')}, {export.column(table, 'bytes')}, copyKind,"
        f" {export.column(table, 'srcDeviceId', -1)}, {export.column(table, 'dstDeviceId', -1)} FROM {table}"
    )
    columns = units.placed(columns)
    if not columns or not len(columns[0]):
        return None
    start, end, device, stream, pid, ids, nbytes, kind, source, target = columns
    # Unified addressing lets a copy between two GPUs be recorded as device-to-device.
    between = (kind == COPY_KINDS["DtoD"]) & (source >= 0) & (target >= 0) & (source != target)
    kind = np.where(between, COPY_KINDS["PtoP"], kind)
    label = {number: names.code(copy_name(name)) for name, number in COPY_KINDS.items()}
    name = codes_of(kind, lambda number: label.get(number, label[0]))
    ops = RawOps.of(start, end, units.codes(pid + device), stream, name)
    ops.bytes = nbytes
    return Found(ops, ids)


def _sets(export: Export, names: Names, units: Units) -> Found | None:
    table = MEMSET_TABLE
    if not export.has(table, "start", "end", "deviceId", "streamId"):
        return None
    columns = export.integers(
        f"SELECT start, end, deviceId, streamId, {export.column(table, 'globalPid', 0)},"
        f" {export.column(table, 'correlationId')}, {export.column(table, 'bytes')} FROM {table}"
    )
    columns = units.placed(columns)
    if not columns or not len(columns[0]):
        return None
    start, end, device, stream, pid, ids, nbytes = columns
    name = np.full(len(start), names.code(MEMSET_NAME), np.int32)
    ops = RawOps.of(start, end, units.codes(pid + device), stream, name)
    ops.bytes = nbytes
    return Found(ops, ids)


def host_ops(export: Export, nvtx: Nvtx, names: Names, units: Units) -> Found | None:
    """Ops of a run without GPU: the ranges that our recorder marked as ops."""
    marked = nvtx.marked(OP_ROLE)
    if not marked:
        return None
    where = " OR ".join(
        f"(globalTid >> 24 = {p} AND domainId = {d} AND category = {c})" for p, d, c in marked
    )
    rows = export.rows(
        f"SELECT start, end, globalTid, {export.integer(NVTX_TABLE, 'rangeId')},"
        f" {export.integer(NVTX_TABLE, 'uint64Value')}, {message_sql(export)}"
        f" FROM {NVTX_TABLE} WHERE typeof(start) = 'integer' AND typeof(end) = 'integer' AND ({where})"
    )
    if not rows:
        return None
    start, end, tid, ids, nbytes = (np.array([row[i] for row in rows], np.int64) for i in range(5))
    name = np.array([names.code(row[5]) for row in rows], np.int32)
    ops = RawOps.of(start, end, units.codes((tid & ~0xFFFFFF) | HOST_DEVICE), thread_of(tid), name)
    ops.bytes, ops.launch, ops.thread = nbytes, start.copy(), thread_of(tid)
    return Found(ops, ids)


def join_launches(export: Export, found: Found, units: Units) -> None:
    """Fill in when, and on which thread, each op was launched: same process, same correlation id."""
    if not export.has(RUNTIME_TABLE, "start", "globalTid", "correlationId"):
        return
    columns = export.integers(
        f"SELECT start, globalTid, correlationId FROM {RUNTIME_TABLE}"
        " WHERE correlationId > 0 AND globalTid IS NOT NULL"
    )
    if not columns or not len(columns[0]):
        return
    start, tid, call_ids = columns
    # Ids repeat between processes, so the process is part of the key; both fit one integer.
    processes = np.unique(np.concatenate([units.processes(), tid & ~0xFFFFFF]))
    key = (np.searchsorted(processes, tid & ~0xFFFFFF) << 40) | (call_ids & 0xFFFFFFFFFF)
    # A call traced with its backtrace stands several times under its id: the earliest is the call.
    order = np.lexsort((start, key))
    key = key[order]
    wanted = np.searchsorted(processes, units.processes())[found.ops.unit] << 40 | (found.ids & 0xFFFFFFFFFF)
    at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    # 0 stands for "no correlation" in files whose columns are default-filled.
    known = (key[at] == wanted) & (found.ids > 0)
    call = order[at[known]]
    found.ops.writable("launch", "thread")
    found.ops.launch[known] = start[call]
    found.ops.thread[known] = thread_of(tid[call])
