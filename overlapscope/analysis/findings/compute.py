"""What compute itself loses: to communication beside it, and to work that every rank does in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from ...intervals import covered, union
from ..scaling import parts_of_ops
from ..selection import COMPUTE, of_kind
from .finding import Facts, Found

__all__ = ["contention_eats_the_gain", "replicated_work"]

EATEN = Fraction(1, 2)
"""Of what overlap hides: from half on the better part of the gain is gone, and tuning it comes before more of it."""


def contention_eats_the_gain(facts: Facts) -> Iterator[Found]:
    """Compute under communication is slowed down by half of what that hides, or more.

    Cost: the contention, what ops under communication lasted beyond the median of ops alike without it, summed.
    """
    found = facts.contention
    if found.total_ns is None or found.total_ns < EATEN * found.hidden_ns:
        return
    slowed = found.kernels[found.kernels["contention_ns"] > 0]
    yield Found(
        "contention",
        "Contention eats the gain of overlap",
        found.total_ns,
        tuple(sorted(set(slowed["rank"].tolist()))),
        {
            "hidden_ns": facts.each(found.hidden_ns),
            "contention_ns": facts.each(found.total_ns),
            "slowdown": found.slowdown,
            "n_measured": found.n_measured,
            "n_overlapped": found.n_overlapped,
            "kernel": str(slowed["name"].iloc[0]) if len(slowed) else None,
        },
        "leave compute more SMs and bandwidth: fewer NCCL channels (NCCL_MAX_CTAS, NCCL_MAX_NCHANNELS), copy engines "
        "or NVLS, GEMMs rather than memory-bound kernels under communication",
    )


def replicated_work(facts: Facts) -> Iterator[Found]:
    """Compute that every rank does in full, by the program's markers.

    Cost: per rank the time in which ops launched in ranges of role `replicated` run, times 1 − 1/N: what of it would
    go if it were shared out over the N ranks.
    """
    if not (facts.trace.ranges["role"] == "replicated").any():
        return
    n = facts.trace.provenance.world_size or len(facts.trace.ranks)
    parts, of_op = parts_of_ops(facts.trace)
    replicated = np.isin(of_op, [i for i, part in enumerate(parts) if part.term == "replicated"])
    by_group: Counter[str] = Counter()
    each, ops, weight = {}, [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for rank, first, mine, window in facts.of_ranks():
        at = np.flatnonzero(replicated[first : first + len(mine)] & of_kind(mine, *COMPUTE))
        start, end = (mine[c].to_numpy()[at] for c in ("start", "end"))
        spans = union(start, end)
        each[rank] = int(covered(window, spans.start, spans.end).sum())
        ops.append(first + at)
        weight.append(covered(window, start, end))
    at, ns = np.concatenate(ops), np.concatenate(weight)
    for code in np.unique(of_op[at]).tolist():
        by_group[parts[code].group] = int(ns[of_op[at] == code].sum())
    total = sum(each.values())
    yield Found(
        "replicated-work",
        "Work that every rank does in full",
        total * (1 - Fraction(1, n)),
        tuple(rank for rank, time in each.items() if time),
        {
            "replicated_ns": facts.each(total),
            "compute_ns": facts.each(sum(facts.column("compute_ns").values())),
            "world_size": n,
            "groups": [group for group, time in by_group.most_common() if time],
        },
        "sequence parallelism for norms, dropout and residuals (--sequence-parallel), embedding and loss split by "
        "vocabulary, fused kernels for what must stay whole",
        at,
        ns,
    )
