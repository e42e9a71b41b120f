"""Ranks that come late: one that the others wait for, or all of them in turn."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pandas as pd

from ...intervals import Int64
from .finding import Facts, Figure, Found

__all__ = ["skew", "straggler"]

MORE_THAN_ITS_PART = Fraction(3, 2)
"""A rank is a straggler if it causes half as much again of the waiting that single ranks cause as it would if all did
alike: of two ranks three quarters, of eight a fifth. Less is one of many that are late in turn."""

VISIBLE = Fraction(1, 2)
"""What a rank does longer than the others is shown as the reason if it makes up half of its lateness."""


def straggler(facts: Facts) -> Iterator[Found]:
    """A rank that the others wait for.

    Cost: exposed waiting of the others that would have gone had the rank come with the last but one, in collectives
    to which it alone came last (``own_ns`` of `last_to_come`).
    """
    late = facts.late
    for rank, own in _stragglers(late, facts.ranks).items():
        mine = late[late["rank"] == rank]
        later = facts.each(int(mine["late_ns"].sum()), [rank])
        reason, evidence = _reason(facts, rank, later)
        yield Found(
            "straggler",
            f"Rank {rank} keeps the others waiting",
            own,
            (rank,),
            {
                "last": len(mine),
                "collectives": _in_collectives(facts, rank),
                "late_ns": later,
                "late_each_ns": round(mine["late_ns"].mean()),
                "reason": reason,
                **evidence,
            },
            ADVICE[reason] if facts.on_gpus else ON_A_CPU,
            *_ops(facts, mine["match"], mine["own_ns"], rank),
        )


ADVICE = {
    "compute": "as much work as the others have; else compare its clocks (nvidia-smi -q -d CLOCK,PERFORMANCE): power "
    "or thermal throttling, another process on its GPU",
    "idle": "look at what its host does meanwhile: data loading, logging, checkpoints, garbage collection, cores far "
    "from its GPU (NUMA) or shared with others",
    "memory": "look at the copies that it alone makes: data loading, logging, offloading",
    None: "compare what it does before those collectives with another rank (report --rank, --by range), and its clocks "
    "(nvidia-smi -q -d CLOCK,PERFORMANCE)",
}

ON_A_CPU = "as much work as the others have, and cores of its own, whatever else runs on them moved away"


def skew(facts: Facts) -> Iterator[Found]:
    """Waiting that no single rank is to blame for: several come late together, or one after another in turn.

    Cost: exposed waiting in collectives to which one rank alone came last, less the cost of the stragglers that are
    findings of their own.
    """
    late = facts.late
    told = [rank for rank, own in _stragglers(late, facts.ranks).items() if facts.tells(own)]
    named = late["rank"].isin(told)
    rest = late["cost_ns"] - late["own_ns"].where(named, 0)
    left = late[rest > 0]
    yield Found(
        "skew",
        "Ranks come late, together or in turn",
        int(rest.sum()),
        tuple(sorted(set(left["rank"].tolist()))),
        {"n_collectives": len(left), "beside": [str(rank) for rank in told]},
        "fewer collectives (larger buckets), even work a rank, host threads bound to cores near their GPU, garbage "
        "collection at the same step on all ranks",
        *_ops(facts, left["match"], rest[rest > 0]),
    )


def _stragglers(late: pd.DataFrame, ranks: tuple[int, ...]) -> dict[int, int]:
    """What each rank alone costs the others, of those that cost more than their part."""
    own = late.groupby("rank")["own_ns"].sum()
    total = int(own.sum())
    return {
        int(rank): int(ns)
        for rank, ns in own.items()
        if total and int(ns) * len(ranks) >= MORE_THAN_ITS_PART * total
    }


def _in_collectives(facts: Facts, rank: int) -> int:
    table = facts.stragglers
    return int(table.loc[table["rank"] == rank, "collectives"].sum())


def _reason(facts: Facts, rank: int, late_ns: int) -> tuple[str | None, dict[str, Figure]]:
    """What the rank spends more time on than the mean of the others: the reason, if it explains half of that."""
    others = [other for other in facts.ranks if other != rank]
    mine, theirs = {}, {}
    for what, column in (("compute", "compute_ns"), ("memory", "exposed_memory_ns"), ("idle", "idle_ns")):
        values = facts.column(column)
        mine[what] = facts.each(values[rank], [rank])
        theirs[what] = facts.each(sum(values[other] for other in others), others) if others else mine[what]
    most = max(mine, key=lambda what: mine[what] - theirs[what])
    longer = mine[most] - theirs[most]
    if not late_ns or longer <= 0:
        return None, {}
    shown: dict[str, Figure] = {"most": most, "own_ns": mine[most], "others_ns": theirs[most]}
    return most if longer >= VISIBLE * late_ns else None, shown


def _ops(
    facts: Facts, match: pd.Series[int], cost: pd.Series[int], rank: int | None = None
) -> tuple[Int64, Int64]:
    """The ops of some collectives, of one rank or of all, with what each collective costs."""
    comm = facts.overlap.instances
    some = comm["match"].isin(match)
    if rank is not None:
        some &= comm["rank"] == rank
    of = dict(zip(match.tolist(), cost.tolist(), strict=True))
    mine = some.to_numpy(bool)
    return facts.comm_ops[mine], comm.loc[mine, "match"].map(of).to_numpy(np.int64)
