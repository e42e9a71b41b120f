"""Rows of an nsys export: NVTX ranges, domains, categories, and the payloads of NCCL's own ranges."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

from . import Process
from .model import Nccl, Range
from .nsys_rows import Row, Rows, global_id

__all__ = ["HOST_OP_DOMAIN", "nvtx_rows"]

HOST_OP_DOMAIN = "overlapscope"
"""Where a CPU run's operators are recorded."""

_CATEGORY, _MARK, _PUSH_POP, _START_END, _DOMAIN, _DOMAIN_END = 33, 34, 59, 60, 75, 76
_EVENT_TYPES = {"push_pop": _PUSH_POP, "start_end": _START_END, "mark": _MARK}


@dataclass(frozen=True)
class _Field:
    """A field of a payload after the communicator; `type` is nsys's number of its C type."""

    label: str
    offset: int
    code: str  # of struct
    type: int
    attribute: str  # of Nccl


_UINT64, _INT, _SIZE, _REDUCTION = 18, 5, 22, (1 << 24) + 20  # the last is an enum that NCCL registers
_BYTES = _Field("Message size [bytes]", 8, "Q", _SIZE, "nbytes")
_REDUCE = _Field("Reduction operation", 16, "I", _REDUCTION, "op")
_ROOT = _Field("Root", 16, "I", _INT, "root")
_PEER = _Field("Peer rank", 16, "I", _INT, "peer")
_INIT = (
    _Field("No. of ranks", 8, "I", _INT, "ranks"),
    _Field("Rank", 12, "I", _INT, "rank"),
    _Field("CUDA device", 16, "I", _INT, "device"),
)
# NCCL's payload schemas: number above 2^24, size in bytes, fields.
_SCHEMAS: dict[str, tuple[int, int, tuple[_Field, ...]]] = {
    "ncclCommInitRank": (2, 24, _INIT),
    "ncclAllGather": (4, 16, (_BYTES,)),
    "ncclAllReduce": (5, 24, (_BYTES, _REDUCE)),
    "ncclBroadcast": (6, 24, (_BYTES, _ROOT)),
    "ncclReduceScatter": (7, 24, (_BYTES, _REDUCE)),
    "ncclSend": (9, 24, (_BYTES, _PEER)),
    "ncclRecv": (10, 24, (_BYTES, _PEER)),
    "ncclCommInitRankConfig": (11, 24, _INIT),
    "ncclCommFinalize": (14, 8, ()),
}
_REDUCTIONS = ("Sum", "Prod", "Max", "Min", "Avg")


def nvtx_rows(rows: Rows, process: Process, nccl_payload: str | None) -> None:
    """Domains and categories are created where first used, so their numbers are a process's own."""
    domains: dict[str, int] = {}
    categories: dict[tuple[int, str], int] = {}
    host = [
        Range(o.name, o.start, o.end, o.thread, HOST_OP_DOMAIN, None, "push_pop", None, None, True)
        for o in process.host_ops
    ]
    ranges = sorted(process.ranges + host, key=lambda r: r.start)
    for order, range_ in enumerate(ranges, 1):
        domain = _domain(rows, process, range_, domains)
        category = _category(rows, process, range_, domain, categories)
        row = _range(rows, process, range_, order) | {"domainId": domain, "category": category}
        if isinstance(range_.payload, Nccl) and nccl_payload is not None:
            row |= _payload(rows, range_.name, range_.payload, domain, nccl_payload)
        rows.add("NVTX_EVENTS", **row)
    if rows.style.version < (3, 13):  # nsys 2022 records the domains' ends too
        born = {
            "start": max((r.end or r.start for r in ranges), default=0),
            "globalTid": global_id(process, process.pid),
        }
        for number in domains.values():
            rows.add("NVTX_EVENTS", **born, eventType=_DOMAIN_END, domainId=number)


def _domain(rows: Rows, process: Process, range_: Range, domains: dict[str, int]) -> int:
    if range_.domain is None:
        return 0
    if range_.domain not in domains:
        domains[range_.domain] = len(domains) + 1
        born = {"start": range_.start, "globalTid": global_id(process, range_.thread)}
        rows.add("NVTX_EVENTS", **born, eventType=_DOMAIN, text=range_.domain, domainId=len(domains))
    return domains[range_.domain]


def _category(
    rows: Rows, process: Process, range_: Range, domain: int, categories: dict[tuple[int, str], int]
) -> int | None:
    if range_.category is None:
        return None
    key = (domain, range_.category)
    if key not in categories:
        categories[key] = 1 + sum(d == domain for d, _ in categories)
        born = {"start": range_.start, "globalTid": global_id(process, range_.thread)}
        named = {"text": range_.category, "category": categories[key], "domainId": domain}
        rows.add("NVTX_EVENTS", **born, eventType=_CATEGORY, **named)
    return categories[key]


def _range(rows: Rows, process: Process, range_: Range, order: int) -> Row:
    crosses = range_.kind == "start_end"
    end_thread = range_.thread if range_.end_thread is None else range_.end_thread
    row: Row = {
        "start": range_.start,
        "end": range_.end,
        "eventType": _EVENT_TYPES[range_.kind],
        "rangeId": order if crosses else None,
        "text": None if range_.registered else range_.name,
        "textId": rows.string(range_.name) if range_.registered else None,
        "globalTid": global_id(process, range_.thread),
        "endGlobalTid": global_id(process, end_thread) if crosses and range_.end is not None else None,
    }
    if isinstance(range_.payload, int):
        row["int64Value"] = range_.payload
    elif isinstance(range_.payload, float):
        row["doubleValue"] = range_.payload
    return row


def _payload(rows: Rows, call: str, payload: Nccl, domain: int, how: str) -> Row:
    """NCCL's payload as JSON text or as a blob, and its schema."""
    if "NVTX_PAYLOAD_SCHEMAS" not in rows.known:
        return {}
    number, size, fields = _SCHEMAS[call]
    schema = (1 << 24) + number
    _payload_schema(rows, domain, schema, size, fields)
    if how == "json":
        said = {f.label: getattr(payload, f.attribute) for f in fields}
        return {"jsonText": json.dumps({"NCCL communicator ID": payload.comm, **said}, separators=(",", ":"))}
    body = bytearray(size)
    struct.pack_into("<Q", body, 0, payload.comm)
    for f in fields:
        value = getattr(payload, f.attribute) or 0
        struct.pack_into(
            "<" + f.code, body, f.offset, _REDUCTIONS.index(value) if f is _REDUCE and value else value
        )
    # Domain, schema, size of the payload and of all, each in 64 bits or padded to them.
    return {"binaryData": struct.pack("<QQQQ", domain, schema, size, 32 + size) + bytes(body)}


def _payload_schema(rows: Rows, domain: int, schema: int, size: int, fields: tuple[_Field, ...]) -> None:
    key = {"domainId": domain, "schemaId": schema}
    if any(key.items() <= r.items() for r in rows.tables["NVTX_PAYLOAD_SCHEMAS"]):
        return
    rows.add("NVTX_PAYLOAD_SCHEMAS", **key, type=1, numEntries=1 + len(fields), payloadSize=size)
    entries = [("NCCL communicator ID", _UINT64, None), *((f.label, f.type, f.offset) for f in fields)]
    for index, (label, type_, offset) in enumerate(entries):
        values = {"idx": index, "type": type_, "name": label, "offset": offset}
        rows.add("NVTX_PAYLOAD_SCHEMA_ENTRIES", **key, **values)
