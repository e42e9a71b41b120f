"""Writing a `Trace` in the nsys schema, so that one reader, and any other nsys tool, reads every capture."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

from ... import __version__
from ...classify import Kind
from ...errors import InputError, OptionError
from ...files import replacing
from ...markers import DOMAIN
from ...trace import NA, Trace
from ..raw import COPY_KINDS, MEMSET_NAME, copy_name, shape_numbers
from .export import Export
from .schema import (
    ACTIVITY_TABLES,
    EVENT_CATEGORY,
    EVENT_DOMAIN,
    EVENT_MARK,
    EVENT_PUSH_POP,
    EXTRA_TABLE,
    GRAPH_TABLE,
    HOSTS,
    KERNEL_TABLE,
    MEMCPY_TABLE,
    MEMSET_TABLE,
    METADATA_TABLES,
    NVTX_TABLE,
    OP_ROLE,
    OVERHEAD_TABLES,
    PIDS,
    PROVENANCE_KEY,
    RANK_ROLE,
    RANK_TABLE,
    RUN_KEY,
    RUNTIME_TABLE,
    SHAPE_COLUMNS,
    global_pid,
    pid_of,
)

__all__ = ["annotate", "write"]

SCHEMA_VERSION = "3.25.0"
"""The nsys schema whose column names are used."""

COPY_KIND_OF_NAME = {copy_name(kind): number for kind, number in COPY_KINDS.items()}

TABLES: dict[str, dict[str, type]] = {
    "StringIds": {"id": int, "value": str},
    "META_DATA_EXPORT": {"name": str, "value": str},
    "TARGET_INFO_SESSION_START_TIME": {"utcEpochNs": int, "utcTime": str, "localTime": str},
    "TARGET_INFO_GPU": {"vmId": int, "id": int, "name": str, "cuDevice": int},
    "TARGET_INFO_CUDA_DEVICE": {"gpuId": int, "cudaId": int, "pid": int},
    "PROCESSES": {"globalPid": int, "pid": int, "name": str},
    KERNEL_TABLE: dict.fromkeys(
        (
            "start",
            "end",
            "deviceId",
            "contextId",
            "streamId",
            "correlationId",
            "globalPid",
            "demangledName",
            "shortName",
            *SHAPE_COLUMNS,
        ),
        int,
    ),
    MEMCPY_TABLE: dict.fromkeys(
        (
            "start",
            "end",
            "deviceId",
            "contextId",
            "streamId",
            "correlationId",
            "globalPid",
            "bytes",
            "copyKind",
        ),
        int,
    ),
    MEMSET_TABLE: dict.fromkeys(
        ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "value", "bytes"),
        int,
    ),
    RUNTIME_TABLE: dict.fromkeys(
        ("start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue"), int
    ),
    NVTX_TABLE: {
        **dict.fromkeys(("start", "end", "eventType", "rangeId", "category", "color"), int),
        "text": str,
        **dict.fromkeys(
            ("globalTid", "endGlobalTid", "textId", "domainId", "uint64Value", "int64Value"), int
        ),
    },
    GRAPH_TABLE: dict.fromkeys(
        (
            "start",
            "end",
            "deviceId",
            "contextId",
            "streamId",
            "correlationId",
            "globalPid",
            "graphId",
            "graphExecId",
        ),
        int,
    ),
    OVERHEAD_TABLES[0]: dict.fromkeys(("start", "end", "globalTid", "nameId", "overheadType"), int),
    EXTRA_TABLE: {
        "globalPid": int,
        "id": int,
        "collective": str,
        "bytes": int,
        "groupSize": int,
        "communicator": str,
        "sequence": int,
        "shape": str,
    },
    RANK_TABLE: {"rank": int, "globalPid": int, "deviceId": int, "pid": int, "gpu": str, "clock": int},
}


def write(trace: Trace, path: Path, *, force: bool = False) -> None:
    """Write all ranks to one SQLite file.

    Reading it back gives the same ops, ranges, ranks and figures, to the nanosecond. A launch is written as
    a runtime call without length, since only its start is kept.

    Raises
    ------
    OptionError
        The file exists and `force` is not set, or cannot be written.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OptionError("is no regular file", "name a file", path)
    import sqlite_utils  # not above: commands that only read need not wait for it

    with replacing(path, force=force) as beside:
        beside.unlink(missing_ok=True)
        database = sqlite_utils.Database(beside)
        try:
            writer = _Writer(trace)
            rows = writer.tables()
            for table, columns in TABLES.items():
                if table not in rows:
                    continue
                database.table(table).create(columns, pk="id" if table == "StringIds" else None)
                marks = ",".join("?" * len(columns))
                with database.conn:
                    database.conn.executemany(f"INSERT INTO {table} VALUES ({marks})", rows[table])
        finally:
            database.close()


def annotate(path: Path, command: str, warnings: Sequence[str]) -> None:
    """Say in an export of nsys's which run it is of: the command, and what a reader must know.

    Raises
    ------
    InputError
        It is damaged, or holds nothing that a program did.
    """
    import sqlite3

    import sqlite_utils

    with Export(path) as export:
        if not any(name in export.columns for name in ACTIVITY_TABLES):
            raise InputError("holds nothing that the program did", "record it again", path)
    database = sqlite_utils.Database(path)
    try:
        there = [name for name in METADATA_TABLES if name in export.columns]
        told = json.dumps({"command": command, "warnings": list(warnings)})
        database.table(*there[:1] or METADATA_TABLES[1:2]).insert({"name": RUN_KEY, "value": told})
    except sqlite3.Error as error:
        raise InputError(f"cannot be written ({error})", None, path) from error
    finally:
        database.close()


class _Writer:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.strings: dict[str, int] = {}
        self.process = _processes(trace.ranks)  # globalPid by rank

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings) + 1)

    def tables(self) -> dict[str, list[tuple]]:  # type: ignore[type-arg]
        gpu = self.trace.provenance.lanes == "gpu"
        rows = self._activities() if gpu else {}
        rows[NVTX_TABLE] = self._nvtx(host_ops=not gpu)
        rows[EXTRA_TABLE] = self._extras()
        rows |= self._unseen()
        rows |= self._targets()
        rows["StringIds"] = [(number, text) for text, number in self.strings.items()]
        # Empty tables are not made, as nsys does; readers count on StringIds.
        return {table: content for table, content in rows.items() if content or table == "StringIds"}

    def _ops(self) -> pd.DataFrame:
        """Ops with what every table needs: an id that is unique in the file, and plain Python integers."""
        ops, lanes = self.trace.ops, self.trace.lanes
        lane = ops["lane"].to_numpy()
        return ops.assign(
            id=np.arange(1, len(ops) + 1),
            device=lanes["device"].to_numpy()[lane],
            stream=lanes["stream"].to_numpy()[lane],
            pid=ops["rank"].map(self.process),
            string=self.trace.names["string"].to_numpy()[ops["name"].to_numpy()],
        )

    def _activities(self) -> dict[str, list[tuple]]:  # type: ignore[type-arg]
        ops = self._ops()
        copy = ops["string"].map(COPY_KIND_OF_NAME)
        is_set = ops["string"] == MEMSET_NAME
        common = ["start", "end", "device", "context", "stream", "id", "pid"]
        ops = ops.assign(context=1, zero=0, kind_number=copy.fillna(0).astype("int64"))
        ops["nbytes"] = ops["bytes"].where(ops["bytes"] != NA, 0)
        kernels = ops[copy.isna() & ~is_set]
        names = self.trace.names
        demangled = np.array([self.string(s) for s in names["string"]], np.int64)
        short = np.array(
            [self.string(s if h is None else h) for s, h in zip(names["string"], names["short"], strict=True)]
        )
        code = kernels["name"].to_numpy()
        shapes = np.array([*map(shape_numbers, self.trace.shapes), [None] * 6], object)
        kernels = kernels.assign(**dict(zip(SHAPE_COLUMNS, shapes[kernels["shape"]].T, strict=True)))
        launched = ops[ops["launch"] != NA]
        return {
            KERNEL_TABLE: _rows(
                kernels.assign(demangled=demangled[code], short=short[code]),
                [*common, "demangled", "short", *SHAPE_COLUMNS],
            ),
            MEMCPY_TABLE: _rows(ops[copy.notna()], [*common, "nbytes", "kind_number"]),
            MEMSET_TABLE: _rows(ops[is_set], [*common, "zero", "nbytes"]),
            RUNTIME_TABLE: self._calls(launched),
        }

    def _calls(self, launched: pd.DataFrame) -> list[tuple]:  # type: ignore[type-arg]
        name = self.string("(launch)")
        thread = launched["thread"].where(launched["thread"] != NA, 0) & 0xFFFFFF
        calls = launched.assign(event_class=0, tid=launched["pid"] | thread, call=name, result=0)
        return _rows(calls, ["launch", "launch", "event_class", "tid", "id", "call", "result"])

    def _nvtx(self, *, host_ops: bool) -> list[tuple]:  # type: ignore[type-arg]
        """Domains, roles and ranks first, then the ranges and, on a CPU run, the ops themselves."""
        rows: list[tuple] = []  # type: ignore[type-arg]
        ids = _DomainIds()
        ranges = self.trace.ranges
        # A range stands with every rank of its process, and belongs there once.
        first = {process: rank for rank, process in reversed(self.process.items())}
        for start, end, rank, thread, name, domain, role in ranges.itertuples(index=False):
            process = self.process[rank]
            if first[process] != rank:
                continue
            number, category = ids.of(process, domain, role)
            tid = process | (max(thread, 0) & 0xFFFFFF)
            rows.append(
                _event(start, None if end == NA else end, EVENT_PUSH_POP, name, tid, number, category)
            )
        if host_ops:
            ops = self._ops()
            for op in ops.itertuples(index=False):
                number, category = ids.of(op.pid, DOMAIN, OP_ROLE)
                payload = None if op.bytes == NA else int(op.bytes)
                tid = op.pid | (int(op.stream) & 0xFFFFFF)
                rows.append(
                    _event(
                        op.start,
                        op.end,
                        EVENT_PUSH_POP,
                        op.string,
                        tid,
                        number,
                        category,
                        int(op.id),
                        payload,
                    )
                )
        for rank, process in self.process.items() if self.trace.provenance.ranks_recorded else ():
            number, category = ids.of(process, DOMAIN, RANK_ROLE)
            text = f"rank {rank} of {self.trace.provenance.world_size or len(self.process)}"
            rows.append(_event(0, None, EVENT_MARK, text, process, number, category))
        return [*ids.rows(), *rows]

    def _extras(self) -> list[tuple]:  # type: ignore[type-arg]
        ops = self._ops()
        told = (ops["kind"] == Kind.COMM.value) & ~ops["string"].isin(COPY_KIND_OF_NAME)
        host = self.trace.provenance.lanes == "host"  # a kernel's shape has columns of its own
        shapes = [*self.trace.shapes, None]
        return [
            (
                op.pid,
                op.id,
                op.collective,
                None if op.bytes == NA else op.bytes,
                None if op.group < 0 else op.group,
                None if op.communicator < 0 else self.trace.communicators[op.communicator],
                None if op.sequence < 0 else op.sequence,
                shapes[op.shape] if host else None,
            )
            for op in ops[told | (host & (ops["shape"] >= 0))].itertuples(index=False)
        ]

    def _unseen(self) -> dict[str, list[tuple]]:  # type: ignore[type-arg]
        """Stalls of the profiler, once a process, and graphs of which nothing but their time is known."""
        name = self.string("profiler overhead") if self.trace.stalls else 0
        stalls = {self.process[rank]: spans for rank, spans in self.trace.stalls.items()}
        device = dict(zip(self.trace.ranks["rank"], self.trace.ranks["device"].tolist(), strict=True))
        return {
            OVERHEAD_TABLES[0]: [
                (start, end, process, name, 0)
                for process, spans in stalls.items()
                for start, end in zip(spans.start.tolist(), spans.end.tolist(), strict=True)
            ],
            GRAPH_TABLE: [
                (start, end, device[rank], 1, 0, 0, self.process[rank], 0, 0)
                for rank, spans in self.trace.graphs.items()
                for start, end in zip(spans.start.tolist(), spans.end.tolist(), strict=True)
            ],
        }

    def _targets(self) -> dict[str, list[tuple]]:  # type: ignore[type-arg]
        ranks, provenance = self.trace.ranks, self.trace.provenance
        gpus, devices, processes, told_ranks = [], [], {}, []
        columns = (ranks[name].tolist() for name in ("rank", "device", "pid", "gpu", "clock"))
        for at, (rank, device, pid, gpu, clock) in enumerate(zip(*columns, strict=True)):
            process, pid, device = self.process[rank], _known(pid), _known(device)
            processes[process] = (process, pid, f"rank {rank}")
            told_ranks.append((rank, process, device, pid, gpu, clock))
            if gpu is not None:
                gpus.append((0, at, gpu, device))
                devices.append((at, device, pid_of(process)))
        told = {
            "tool": "; ".join(dict.fromkeys(s.tool for s in provenance.sources)),
            "ranks_from": provenance.ranks_from,
            "ranks_recorded": provenance.ranks_recorded,
            "clock": provenance.clock,
            "world_size": provenance.world_size,
            "command": provenance.command,
            "link": provenance.link,
            "from_ranges": provenance.from_ranges,
            "dropped": [asdict(d) for d in provenance.dropped],
            "warnings": list(provenance.warnings),
        }
        meta = [
            ("EXPORT_PRODUCT_NAME", "overlapscope"),
            ("EXPORT_PRODUCT_VERSION", __version__),
            ("EXPORT_SCHEMA_VERSION", SCHEMA_VERSION),
            (PROVENANCE_KEY, json.dumps(told)),
        ]
        origin = provenance.origin_ns
        return {
            "META_DATA_EXPORT": meta,
            "TARGET_INFO_SESSION_START_TIME": [] if origin is None else [(origin, None, None)],
            "TARGET_INFO_GPU": gpus,
            "TARGET_INFO_CUDA_DEVICE": devices,
            "PROCESSES": list(processes.values()),
            RANK_TABLE: told_ranks,
        }


class _DomainIds:
    """Numbers domains and categories per process, as NVTX does, and writes the events that name them."""

    def __init__(self) -> None:
        self.domains: dict[tuple[int, str], int] = {}
        self.categories: dict[tuple[int, str, str], int] = {}

    def of(self, process: int, domain: str, role: str) -> tuple[int, int | None]:
        # 0 is NVTX's default domain, which no event names.
        number = self.domains.setdefault((process, domain), len(self.domains) + 1) if domain else 0
        if not role:
            return number, None
        return number, self.categories.setdefault((process, domain, role), len(self.categories) + 1)

    def rows(self) -> Iterable[tuple]:  # type: ignore[type-arg]
        for (process, domain), number in self.domains.items():
            yield _event(0, None, EVENT_DOMAIN, domain, process, number, None)
        for (process, domain, role), number in self.categories.items():
            yield _event(
                0, None, EVENT_CATEGORY, role, process, self.domains.get((process, domain), 0), number
            )


def _event(
    start: int,
    end: int | None,
    event_type: int,
    text: str,
    tid: int,
    domain: int,
    category: int | None,
    range_id: int | None = None,
    payload: int | None = None,
) -> tuple:  # type: ignore[type-arg]
    return (start, end, event_type, range_id, category, None, text, tid, None, None, domain, payload, None)


def _processes(ranks: pd.DataFrame) -> dict[int, int]:
    """globalPid by rank. Ranks of one file with one pid are one process; two hosts may use a pid twice.

    A pid that is not known, or too large, or used by more hosts than there are numbers for gets any free number.
    """
    taken: dict[int, tuple[str, int, int | None]] = {}
    processes = {}
    free = itertools.count(1)
    for rank, pid, source in zip(ranks["rank"], ranks["pid"], ranks["source"], strict=True):
        who = (source, int(pid), int(rank) if pid == NA else None)
        hosts = range(HOSTS if 0 <= pid < PIDS else 0)
        numbers = itertools.chain((global_pid(int(pid), host) for host in hosts), map(global_pid, free))
        processes[int(rank)] = next(n for n in numbers if taken.setdefault(n, who) == who)
    return processes


def _known(value: int) -> int | None:
    return None if value == NA else int(value)


def _rows(frame: pd.DataFrame, columns: list[str]) -> list[tuple]:  # type: ignore[type-arg]
    return list(zip(*(frame[c].tolist() for c in columns), strict=True))
