"""NVTX of an export: ranges, domains, roles, and what the program tells of its ranks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from ...markers import DOMAIN
from ..raw import RawRanges
from .export import Export
from .schema import (
    EVENT_CATEGORY,
    EVENT_DOMAIN,
    EVENT_PUSH_POP,
    EVENT_START_END,
    NVTX_TABLE,
    OP_ROLE,
    RANK_ROLE,
    process_of,
    thread_of,
)

__all__ = ["Nvtx", "count_unplaced", "message_sql", "read_ranges", "read_ranks"]


@dataclass(slots=True)
class Nvtx:
    """How the file's processes number their domains and categories; keys start with globalTid >> 24."""

    domains: dict[tuple[int, int], str] = field(default_factory=dict)
    roles: dict[tuple[int, int, int], str] = field(default_factory=dict)

    @classmethod
    def of(cls, export: Export) -> Nvtx:
        if not export.has(NVTX_TABLE, "start", "end", "eventType", "globalTid", "domainId"):
            return cls()
        rows = export.rows(
            f"SELECT eventType, globalTid >> 24, {export.integer(NVTX_TABLE, 'domainId', 0)},"
            f" {export.integer(NVTX_TABLE, 'category', 0)}, {message_sql(export)}"
            f" FROM {NVTX_TABLE} WHERE eventType IN ({EVENT_DOMAIN}, {EVENT_CATEGORY})"
            " AND typeof(globalTid) = 'integer'"
        )
        return cls(
            {(process, d): text for event, process, d, _, text in rows if event == EVENT_DOMAIN},
            {(process, d, c): text for event, process, d, c, text in rows if event == EVENT_CATEGORY},
        )

    def marked(self, role: str) -> list[tuple[int, int, int]]:
        """The (process, domain, category) under which our markers give a role."""
        return [
            key for key, name in self.roles.items() if name == role and self.domains.get(key[:2]) == DOMAIN
        ]


@dataclass(slots=True)
class Ranks:
    """What the file says of its processes' ranks."""

    of_process: dict[int, int] = field(default_factory=dict)
    world_size: int | None = None
    source: str | None = None


def message_sql(export: Export) -> str:
    """SQL for an NVTX event's message: inline, or by string id."""
    strings = export.has(NVTX_TABLE, "textId") and export.has("StringIds", "id", "value")
    by_id = "(SELECT value FROM StringIds WHERE id = textId)" if strings else "NULL"
    inline = "text" if export.has(NVTX_TABLE, "text") else "NULL"
    return f"CAST(COALESCE({inline}, {by_id}, '') AS TEXT)"


def read_ranges(export: Export, nvtx: Nvtx) -> RawRanges:
    """Push/pop and start/end ranges of every domain, without those that are ops of a host run."""
    if not export.has(NVTX_TABLE, "start", "end", "eventType", "globalTid"):
        return RawRanges()
    rows = export.rows(
        f"SELECT start, {export.integer(NVTX_TABLE, 'end')}, globalTid,"
        f" {export.integer(NVTX_TABLE, 'domainId', 0)}, {export.integer(NVTX_TABLE, 'category', 0)},"
        f" {message_sql(export)} FROM {NVTX_TABLE}"
        f" WHERE eventType IN ({EVENT_PUSH_POP}, {EVENT_START_END})"
        " AND typeof(start) = 'integer' AND typeof(globalTid) = 'integer'"
    )
    ops = set(nvtx.marked(OP_ROLE))
    rows = [row for row in rows if (process_of(row[2]), row[3], row[4]) not in ops] if ops else rows
    if not rows:
        return RawRanges()
    frame = pd.DataFrame(rows, columns=["start", "end", "tid", "domain", "category", "message"])
    tid = frame["tid"].to_numpy(np.int64)
    process = process_of(tid).tolist()
    domain, category = frame["domain"].tolist(), frame["category"].tolist()
    return RawRanges(
        start=frame["start"].to_numpy(np.int64).copy(),
        end=frame["end"].to_numpy(np.int64).copy(),
        process=process_of(tid),
        thread=thread_of(tid),
        name=frame["message"].tolist(),
        domain=[nvtx.domains.get(key, "") for key in zip(process, domain, strict=True)],
        role=[nvtx.roles.get(key, "") for key in zip(process, domain, category, strict=True)],
    )


def count_unplaced(export: Export) -> int:
    """How many ranges `read_ranges` cannot tell the start or the thread of."""
    if not export.has(NVTX_TABLE, "start", "end", "eventType", "globalTid"):
        return 0
    sql = (
        f"SELECT count(*) FROM {NVTX_TABLE} WHERE eventType IN ({EVENT_PUSH_POP}, {EVENT_START_END})"
        " AND NOT (typeof(start) = 'integer' AND typeof(globalTid) = 'integer')"
    )
    return int(export.rows(sql)[0][0])


def read_ranks(export: Export, nvtx: Nvtx) -> Ranks:
    """Ranks the program itself told: our marker ("rank 3 of 8"), else nsys's own note of an MPI rank."""
    if not export.has(NVTX_TABLE, "eventType", "globalTid"):
        return Ranks()
    marked = set(nvtx.marked(RANK_ROLE))
    category = export.integer(NVTX_TABLE, "category", 0)
    of_ranks = ", ".join(str(number) for _, _, number in marked) or "NULL"
    rows = export.rows(
        f"SELECT globalTid, {export.integer(NVTX_TABLE, 'domainId', 0)}, {category}, {message_sql(export)}"
        f" FROM {NVTX_TABLE} WHERE typeof(globalTid) = 'integer'"
        f" AND eventType NOT IN ({EVENT_DOMAIN}, {EVENT_CATEGORY})"
        f" AND (eventType NOT IN ({EVENT_PUSH_POP}, {EVENT_START_END}) OR {category} IN ({of_ranks}))"
    )
    told, mpi = Ranks(source="recorded by the program's marker"), Ranks(source="recorded by nsys (MPI rank)")
    for tid, domain, number, message in rows:
        words = message.split()
        if (process_of(tid), domain, number) in marked:
            if len(words) == 4 and _is_rank(words[1]) and _is_rank(words[3]):
                told.of_process[process_of(tid)] = int(words[1])
                told.world_size = int(words[3])
        elif message.startswith("MPI Rank ") and len(words) == 3 and _is_rank(words[2]):
            mpi.of_process[process_of(tid)] = int(words[2])
    if told.of_process:
        return told
    return mpi if mpi.of_process else Ranks()


def _is_rank(word: str) -> bool:
    """Decimal, and no more than any job has."""
    return word.isdecimal() and len(word) <= 9
