"""The nsys export schema: names of tables and the numbers in them, for reading and writing alike."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

KERNEL_TABLE = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY_TABLE = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET_TABLE = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH_TABLE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME_TABLE = "CUPTI_ACTIVITY_KIND_RUNTIME"
NVTX_TABLE = "NVTX_EVENTS"
OVERHEAD_TABLES = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")
ACTIVITY_TABLES = (KERNEL_TABLE, MEMCPY_TABLE, MEMSET_TABLE, GRAPH_TABLE, NVTX_TABLE, RUNTIME_TABLE)
"""What a program did; nsys makes no table of which there is nothing."""
METADATA_TABLES = ("EXPORT_META_DATA", "META_DATA_EXPORT", "META_DATA_CAPTURE")

EXTRA_TABLE = "OVERLAPSCOPE_OPS"
"""Our own table beside nsys's: (globalPid, id, collective, bytes, groupSize, communicator, sequence, shape); id is
the correlation id of a kernel or the rangeId of a host op. It keeps what PyTorch records with an op and nsys has no
column for."""

RANK_TABLE = "OVERLAPSCOPE_RANKS"
"""Our own, too: (rank, globalPid, deviceId, pid, gpu), what `Trace.ranks` says of each. A globalPid has room for pids
of 24 bits, and none to say that the pid is not known."""

SHAPE_COLUMNS = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")

PROVENANCE_KEY = "OVERLAPSCOPE_PROVENANCE"
"""In META_DATA_EXPORT of a file we wrote: JSON of where its content came from."""

RUN_KEY = "OVERLAPSCOPE_RUN"
"""In the metadata of an export that `run` recorded with nsys: JSON of its command and of what is to be known of it."""

# NVTX_EVENTS.eventType
EVENT_CATEGORY = 33
EVENT_MARK = 34
EVENT_PUSH_POP = 59
EVENT_START_END = 60
EVENT_DOMAIN = 75

# Roles of the marker convention (see overlapscope.markers; in NVTX_EVENTS the category is the role).
RANK_ROLE = "rank"
LINK_ROLE = "link"
OP_ROLE = "op"  # not a program's to use: an op of a CPU run, in a file that we wrote

HOST_DEVICE = 0xFFFFFF
"""In the low bits of a unit's key: no device, the process's own threads."""

Ids = TypeVar("Ids", int, npt.NDArray[np.int64])


PIDS = 1 << 24
HOSTS = 1 << 7
"""Pids a globalPid has room for, and hosts, since SQLite's integers have a sign."""


def process_of(global_id: Ids) -> Ids:
    """The process of a globalTid or globalPid (hardware 8 bits, VM 8, pid 24, tid 24), machine included."""
    return global_id >> 24


def pid_of(global_id: int) -> int:
    """The operating system's number of that process."""
    return (global_id >> 24) & 0xFFFFFF


def thread_of(global_tid: Ids) -> Ids:
    """The operating system's number of a thread."""
    return global_tid & 0xFFFFFF


def global_pid(pid: int, machine: int = 0) -> int:
    """The globalPid of a process; VM 1 is what nsys writes where there is no VM."""
    return (machine << 56) | (1 << 48) | ((pid & 0xFFFFFF) << 24)
