"""What NCCL itself tells of its collectives: NVTX ranges round its calls, with communicator and bytes.

Each call of the API is a push/pop range in the domain "NCCL". Its payload stands as JSON in newer exports, else as
a blob (``nsys export --include-blobs=true``): 32 bytes of nsys's, then the communicator and the bytes, 64 bits
each. A kernel belongs to the call in which it was launched; calls between ncclGroupStart and ncclGroupEnd are
launched by the latter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from ...intervals import innermost
from ...trace import NA
from .export import Export
from .ops import Found, Units
from .ranges import Nvtx, message_sql
from .schema import EVENT_PUSH_POP, NVTX_TABLE, process_of, thread_of

__all__ = ["add_nccl"]

DOMAIN = "NCCL"
COMMUNICATOR, SIZE, RANKS = "NCCL communicator ID", "Message size [bytes]", "No. of ranks"
BLOB_HEADER = 32

GROUP_START, GROUP_END = "ncclGroupStart", "ncclGroupEnd"
# Of these NCCL's message is the share of one rank; a trace's bytes are of the whole array.
OF_ONE_RANK = ("ncclAllGather", "ncclReduceScatter", "ncclAlltoAll")
COLLECTIVES = (
    *OF_ONE_RANK,
    "ncclAllReduce",
    "ncclBroadcast",
    "ncclBcast",
    "ncclReduce",
    "ncclSend",
    "ncclRecv",
)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of NCCL's API on a thread of a process."""

    at: tuple[int, int]
    start: int
    end: int
    name: str
    communicator: int
    bytes: int | None
    ranks: int | None  # of the communicator, where the call makes one


def add_nccl(export: Export, found: Found, units: Units, nvtx: Nvtx) -> list[str]:
    """Fill in communicator, group size and bytes of the kernels that NCCL launched.

    Returns what names each communicator, the same in every file of the program.
    """
    calls = _calls(export, nvtx)
    sizes = {call.communicator: call.ranks for call in calls if call.ranks is not None}
    told = [call for call in calls if call.name in (*COLLECTIVES, GROUP_START, GROUP_END)]
    numbers: dict[int, int] = {}
    ops, process = found.ops, process_of(units.processes())[found.ops.unit]
    ops.writable("communicator", "group", "bytes")
    for at, on_thread in groupby(told, key=lambda call: call.at):
        launching = _launching(on_thread)
        here = np.flatnonzero((process == at[0]) & (ops.thread == at[1]) & (ops.launch != NA))
        start, end = (np.array([getattr(c, side) for c in launching], np.int64) for side in ("start", "end"))
        inside = innermost(start, end, ops.launch[here])
        for op, place in zip(here[inside >= 0].tolist(), inside[inside >= 0].tolist(), strict=True):
            call = launching[place]
            ranks = sizes.get(call.communicator)
            ops.communicator[op] = numbers.setdefault(call.communicator, len(numbers))
            ops.group[op] = -1 if ranks is None else ranks
            if call.bytes is not None and ops.bytes[op] == NA:
                ops.bytes[op] = _whole_array(call, ranks)
    return [f"nccl {communicator:#x}" for communicator in numbers]


def _launching(calls: Iterable[_Call]) -> list[_Call]:
    """The calls that launch, each with what it launches; those of a group are launched by its end."""
    launching: list[_Call] = []
    group: list[_Call] | None = None
    depth = 0
    for call in calls:
        if call.name == GROUP_START:
            group = [] if depth == 0 else group
            depth += 1
        elif call.name == GROUP_END:
            depth = max(depth - 1, 0)
            if depth == 0 and group and len({c.communicator for c in group}) == 1:
                # Of several in one kernel the bytes of each are known, but not of the kernel.
                size = group[0].bytes if len(group) == 1 else None
                launching.append(replace(group[0], start=call.start, end=call.end, bytes=size))
            group = group if depth else None
        elif depth:
            assert group is not None
            group.append(call)
        else:
            launching.append(call)
    return launching


def _whole_array(call: _Call, ranks: int | None) -> int:
    assert call.bytes is not None
    if call.name not in OF_ONE_RANK:
        return call.bytes
    return NA if ranks is None else call.bytes * ranks


def _calls(export: Export, nvtx: Nvtx) -> list[_Call]:
    """Every call with a payload that could be read, and the ends of groups; by thread, in order."""
    domains = {key for key, name in nvtx.domains.items() if name == DOMAIN}
    payloads = [c for c in ("jsonText", "jsonTextId", "binaryData") if export.has(NVTX_TABLE, c)]
    if not domains or not payloads:
        return []
    by_id = "(SELECT value FROM StringIds WHERE id = jsonTextId)"
    columns = {"jsonText": "jsonText", "jsonTextId": by_id, "binaryData": "binaryData"}
    numbers = ", ".join(str(number) for _, number in domains)
    text = ", ".join([*(columns[c] for c in payloads if c != "binaryData"), "NULL", "NULL"])
    blob = "binaryData" if "binaryData" in payloads else "NULL"
    rows = export.rows(
        f"SELECT globalTid, start, end, domainId, {message_sql(export)},"
        f" COALESCE({text}), {blob} FROM {NVTX_TABLE}"
        f" WHERE eventType = {EVENT_PUSH_POP} AND domainId IN ({numbers}) AND typeof(start) = 'integer'"
        " AND typeof(end) = 'integer' AND typeof(globalTid) = 'integer' ORDER BY globalTid, start"
    )
    calls = []
    for tid, start, end, domain, name, said, packed in rows:
        if (process_of(tid), domain) not in domains:
            continue
        communicator, size, ranks = _json(said) if said is not None else _blob(packed)
        if communicator is not None or name in (GROUP_START, GROUP_END):
            at = (process_of(tid), int(thread_of(tid)))
            calls.append(_Call(at, start, end, name, communicator or 0, size, ranks))
    return calls


def _json(text: object) -> tuple[int | None, int | None, int | None]:
    try:
        said = json.loads(str(text))
    except ValueError:
        return None, None, None
    if not isinstance(said, dict):
        return None, None, None
    communicator, size, ranks = (said.get(key) for key in (COMMUNICATOR, SIZE, RANKS))
    return _number(communicator, 64), _number(size, 62), _number(ranks, 24)


def _blob(packed: object) -> tuple[int | None, int | None, int | None]:
    if not isinstance(packed, bytes) or len(packed) < BLOB_HEADER + 16:
        return None, None, None
    communicator, size = (
        int.from_bytes(packed[at : at + 8], "little") for at in (BLOB_HEADER, BLOB_HEADER + 8)
    )
    return communicator, _number(size, 62), None


def _number(value: object, bits: int) -> int | None:
    """A plain number that is not negative and not absurd."""
    return value if isinstance(value, int) and 0 <= value < 1 << bits else None
