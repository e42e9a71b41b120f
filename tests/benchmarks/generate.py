"""Large traces for the benchmarks: the same bytes for the same arguments.

``python generate.py nsys PATH`` and ``python generate.py kineto PATH`` write one; the benchmarks call it so,
in a process of its own, because the memory of a process counts as its children's too.
"""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernel_names import COLLECTIVES, COMPUTE, GEMMS, SMALL

from builders import TraceBuilder, nsys, short_name

Int64 = npt.NDArray[np.int64]

NAMES = (*GEMMS, *COMPUTE, *SMALL, *COLLECTIVES)
_COMPUTE_STREAM, _COMM_STREAM = 7, 20
_PER_COLLECTIVE = 12  # compute kernels between two collectives, about a sublayer of a transformer
_PER_STEP = 2600  # kernels of a step; the host is late after each
# Mean duration in us and its spread (sigma of the logarithm), by the name's group.
_DURATIONS = ((GEMMS, 160.0, 0.6), (COMPUTE, 90.0, 0.8), (SMALL, 6.0, 0.7), (COLLECTIVES, 400.0, 0.5))
_BATCH = 200_000


@dataclass(frozen=True)
class Timeline:
    """Kernels of one rank in the order of their launch; times in ns."""

    name: Int64  # position in NAMES
    stream: Int64
    start: Int64
    end: Int64
    grid: Int64
    block: Int64


def timeline(kernels: int, seed: int) -> Timeline:
    """A training run's kernels: layers of compute on one stream, collectives beside them on another."""
    random = np.random.default_rng(seed)
    comm = np.arange(kernels) % (_PER_COLLECTIVE + 1) == _PER_COLLECTIVE
    name = _pattern(random, kernels, comm)
    duration = _durations(random, name)
    start = np.zeros(kernels, np.int64)
    gap = random.exponential(1500, kernels).astype(np.int64) + 700
    gap[_PER_STEP::_PER_STEP] += 400_000
    gap[:: 4 * (_PER_COLLECTIVE + 1)] += 350_000  # every fourth collective is waited for
    busy = ~comm
    start[busy] = np.cumsum(duration[busy] + gap[busy]) - duration[busy]
    ready = np.maximum.accumulate(np.where(busy, start + duration, 0))[comm] + 2000
    start[comm] = _queue(ready, duration[comm])
    grid = random.integers(1, 4096, kernels)
    block = random.choice([128, 256, 384, 512], kernels)
    stream = np.where(comm, _COMM_STREAM, _COMPUTE_STREAM)
    return Timeline(name, stream, start, start + duration, grid, block)


def _pattern(random: np.random.Generator, kernels: int, comm: npt.NDArray[np.bool_]) -> Int64:
    """The same few hundred names over and over, as layers repeat."""
    heavy, small = len(GEMMS) + len(COMPUTE), len(SMALL)
    light = random.random(240) < 0.55
    cycle = np.where(light, heavy + random.integers(0, small, 240), random.integers(0, heavy, 240))
    name = cycle[np.arange(kernels) % 240]
    first = heavy + small
    # All-reduce as often as the three others together.
    order = first + np.array([0, 1, 0, 2, 0, 3])
    name[comm] = order[np.arange(int(comm.sum())) % len(order)]
    return name.astype(np.int64)


def _durations(random: np.random.Generator, name: Int64) -> Int64:
    mean = np.concatenate([np.full(len(g), m) for g, m, _ in _DURATIONS])
    sigma = np.concatenate([np.full(len(g), s) for g, _, s in _DURATIONS])
    return (1000 * mean[name] * random.lognormal(-0.1, sigma[name])).astype(np.int64) + 900


def _queue(ready: Int64, duration: Int64) -> Int64:
    """Starts on a stream that runs one at a time: not before it is ready, nor before the last has ended."""
    done = np.cumsum(duration)
    return np.maximum.accumulate(ready - (done - duration)) + done - duration


def nsys_4m(path: Path, kernels: int = 4_000_000, devices: int = 8) -> Path:
    """An nsys export, schema 3.25: one process a GPU, kernels and what names them, no host calls, no NVTX."""
    trace = TraceBuilder()
    for rank in range(devices):
        gpu = trace.process(pid=5000 + rank, rank=rank).device(rank)
        for stream in (_COMPUTE_STREAM, _COMM_STREAM):
            gpu.kernel("placeholder", 0, 1, stream=stream)
    part = path.with_suffix(".part")
    nsys.write(trace, part, style="3.25")
    with closing(sqlite3.connect(part, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        connection.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
        strings = _strings(connection)
        insert, pids = _insert(connection), [nsys.global_id(p) for p in trace.processes]
        for batch in _batches(kernels, devices, pids, strings):
            connection.executemany(insert, batch)
        connection.execute("COMMIT")
    return part.replace(path)


def _strings(connection: sqlite3.Connection) -> dict[str, int]:
    strings = {t: i for i, t in enumerate(dict.fromkeys([*NAMES, *map(short_name, NAMES)]), 1000)}
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, t) for t, i in strings.items()])
    return strings


_VARYING = (
    "start",
    "end",
    "deviceId",
    "streamId",
    "correlationId",
    "globalPid",
    "demangledName",
    "shortName",
    "mangledName",
    "gridX",
    "blockX",
    "gridId",
)
_SAME = {
    "contextId": "1",
    "greenContextId": "0",
    "launchType": "1",
    "cacheConfig": "1",
    "registersPerThread": "96",
    "localMemoryTotal": "250871808",
    "sharedMemoryExecuted": "32768",
    "graphNodeId": "NULL",
    "qmdBulkReleaseDone": "NULL",
    "qmdPreexitDone": "NULL",
    "qmdLastCtaDone": "NULL",
    "graphId": "NULL",
    "sharedMemoryRequestedPercentage": "NULL",
    "tensorSizeMinusOneElements": "'[]'",
    **dict.fromkeys(("gridY", "gridZ", "blockY", "blockZ"), "1"),
}


def _insert(connection: sqlite3.Connection) -> str:
    """One INSERT of a kernel; what never changes stands in it, the rest is bound."""
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    columns = [str(r[1]) for r in connection.execute(f"PRAGMA table_info({table})")]
    values = (f"?{_VARYING.index(c) + 1}" if c in _VARYING else _SAME.get(c, "0") for c in columns)
    return f"INSERT INTO {table} VALUES ({', '.join(values)})"


def _batches(
    kernels: int, devices: int, pids: list[int], strings: dict[str, int]
) -> Iterator[Iterator[tuple[int, ...]]]:
    """Rows in the order in which kernels ended, all ranks mixed."""
    each = [kernels // devices + (r < kernels % devices) for r in range(devices)]
    ranks = [timeline(n, seed) for seed, n in enumerate(each)]
    rank = np.repeat(np.arange(devices), each)
    name = np.concatenate([t.name for t in ranks])
    start, end = (np.concatenate([getattr(t, c) for t in ranks]) for c in ("start", "end"))
    correlation = np.concatenate([np.arange(1, n + 1) * 3 for n in each])
    full = np.array([strings[n] for n in NAMES])
    short = np.array([strings[short_name(n)] for n in NAMES])
    stream, grid, block = (
        np.concatenate([getattr(t, c) for t in ranks]) for c in ("stream", "grid", "block")
    )
    order = np.argsort(end, kind="stable")
    for at in range(0, kernels, _BATCH):
        i = order[at : at + _BATCH]
        names = full[name[i]]
        owners = (np.array(pids)[rank[i]], names, short[name[i]], names)
        lane = (start[i], end[i], rank[i], stream[i], correlation[i])
        yield zip(*(c.tolist() for c in (*lane, *owners, grid[i], block[i], correlation[i])), strict=True)


_KINETO_HEAD = """{{
  "schemaVersion": 1,
  "deviceProperties": [
    {{
      "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84942979072,
      "computeMajor": 9, "computeMinor": 0, "numSms": 132
    }}
  ],
  "distributedInfo": {{"backend": "nccl", "rank": 0, "world_size": 8, "pg_count": 1}},
  "traceEvents": [
"""
_KINETO_TAIL = """
  ],
  "traceName": "trace.json",
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1711964646000000000
}
"""
_HOST = """  {{
    "ph": "X", "cat": "cpu_op", "name": "{op}", "pid": 5000, "tid": 5000,
    "ts": {t0}, "dur": 52.113,
    "args": {{
      "External id": {id},"Record function id": 0, "Sequence number": {id}, "Fwd thread id": 0, "Ev Idx": {id}
    }}
  }},
  {{
    "ph": "X", "cat": "cpu_op", "name": "aten::reshape", "pid": 5000, "tid": 5000,
    "ts": {t1}, "dur": 4.207,
    "args": {{
      "External id": {id},"Record function id": 0, "Ev Idx": {id}
    }}
  }},
  {{
    "ph": "X", "cat": "cpu_op", "name": "aten::empty", "pid": 5000, "tid": 5000,
    "ts": {t2}, "dur": 3.001,
    "args": {{
      "External id": {id},"Record function id": 0, "Ev Idx": {id}
    }}
  }},
  {{
    "ph": "X", "cat": "cpu_op", "name": "{leaf}", "pid": 5000, "tid": 5000,
    "ts": {t3}, "dur": 31.777,
    "args": {{
      "External id": {id},"Record function id": 0, "Ev Idx": {id}
    }}
  }},
  {{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaEventQuery", "pid": 5000, "tid": 5000,
    "ts": {t4}, "dur": 1.284,
    "args": {{
      "External id": {id},      "cbid": 138, "correlation": {query}
    }}
  }},
  {{
    "ph": "f", "id": {query}, "pid": 5000, "tid": 5000, "ts": {t4},
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }},
  {{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 5000, "tid": 5000,
    "ts": {t5}, "dur": 5.402,
    "args": {{
      "External id": {id},      "cbid": 211, "correlation": {launch}
    }}
  }},
  {{
    "ph": "s", "id": {launch}, "pid": 5000, "tid": 5000, "ts": {t5},
    "cat": "ac2g", "name": "ac2g"
  }},
"""
_KERNEL = """  {{
    "ph": "X", "cat": "kernel", "name": {name}, "pid": 0, "tid": {stream},
    "ts": {start}, "dur": {duration},
    "args": {{
      "External id": {id},      "queued": 0, "device": 0, "context": 1,      "stream": {stream}, \
"correlation": {launch},      "registers per thread": 96,      "shared memory": 0, \
     "blocks per SM": 4.740741,      "warps per SM": 75.851852,      "grid": [{grid}, 1, 1], \
     "block": [{block}, 1, 1],      "est. achieved occupancy %": 75{collective}
    }}
  }},
  {{
    "ph": "f", "id": {launch}, "pid": 0, "tid": {stream}, "ts": {start},
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }},
"""
_COLLECTIVE = (
    ',      "Collective name": "allreduce", "In msg nelems": 6637568, "Out msg nelems": 6637568, '
    '"Group size": 8, "dtype": "BFloat16", "In split size": "[]", "Out split size": "[]", '
    '"Process Group Name": "0", "Process Group Description": "default_pg", '
    '"Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"'
)
_STEP = """  {{
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{number}", "pid": 5000, "tid": 5000,
    "ts": {start}, "dur": {duration},
    "args": {{
      "External id": {id},"Record function id": 0, "Ev Idx": {id}
    }}
  }},
"""
_END = '  {{\n    "name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": {at}\n  }}'
_OPS = ("aten::linear", "aten::add_", "aten::to", "aten::layer_norm", "aten::matmul", "aten::mul")
_LEAVES = ("aten::mm", "aten::add_", "aten::copy_", "aten::native_layer_norm", "aten::mm", "aten::mul")
# Events a kernel: four operators, two calls, three arrows and itself; of real files a tenth are kernels.
_PER_KERNEL = 10
_AHEAD = 100_000_000  # ns by which the host runs before the GPU


def kineto_850k(path: Path, events: int = 850_000) -> Path:
    """A file of PyTorch's profiler, one rank, in its text of 2024: operators, launches, arrows, steps."""
    kernels = (events - 1) // _PER_KERNEL
    steps = events - 1 - _PER_KERNEL * kernels
    t = timeline(kernels, seed=0)
    end = int(t.end.max())
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8") as out:
        out.write(_KINETO_HEAD.format())
        for first in range(0, kernels, 10_000):
            out.write("".join(_kineto_events(t, first, min(first + 10_000, kernels))))
        for number in range(steps):
            span = {"start": _us(number * end // steps - _AHEAD), "duration": _span(end // steps)}
            out.write(_STEP.format(number=number + 1, id=kernels + number, **span))
        out.write(_END.format(at=_us(end)))
        out.write(_KINETO_TAIL)
    return part.replace(path)


def _kineto_events(t: Timeline, first: int, last: int) -> Iterator[str]:
    names = [json.dumps(re.sub(r"\((int|bool|unsigned int|unsigned long)\)", "", n)) for n in NAMES]
    every = int(t.end.max()) // len(t.start)  # the host launches at a steady pace
    columns = (t.name, t.stream, t.start, t.end - t.start, t.grid, t.block)
    rows = zip(*(c[first:last].tolist() for c in columns), strict=True)
    for i, (name, stream, start, duration, grid, block) in enumerate(rows, first + 1):
        begin = i * every - _AHEAD
        times = {f"t{n}": _us(begin + at) for n, at in enumerate((0, 3_092, 9_809, 18_223, 29_036, 41_558))}
        op = {"op": _OPS[i % len(_OPS)], "leaf": _LEAVES[i % len(_LEAVES)]}
        yield _HOST.format(id=i, query=2 * i, launch=2 * i + 1, **op, **times)
        yield _KERNEL.format(
            name=names[name],
            stream=stream,
            start=_us(start),
            duration=_span(duration),
            id=i,
            launch=2 * i + 1,
            grid=grid,
            block=block,
            collective=_COLLECTIVE if NAMES[name] in COLLECTIVES else "",
        )


def _us(ns: int) -> str:
    """Microseconds with three digits, as PyTorch writes them; time 0 is an hour after the file's base."""
    return f"{ns // 1000 + 3_600_000_000}.{ns % 1000:03d}"


def _span(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


if __name__ == "__main__":
    make = nsys_4m if sys.argv[1] == "nsys" else kineto_850k
    make(Path(sys.argv[2]), *map(int, sys.argv[3:]))
