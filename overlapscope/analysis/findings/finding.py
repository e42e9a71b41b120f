"""What a finding is, what the rules look at, and how a cost becomes one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from ...classify import Kind
from ...intervals import Int64, Spans, covered, held, union
from ...trace import Trace
from ..contention import Contention
from ..overlap import Overlap
from ..paths import RangeTree, paths, range_tree
from ..selection import of_kind, touching
from ..steps import Steps
from ..stragglers import last_to_come

__all__ = ["THRESHOLD", "Facts", "Figure", "Finding", "Found", "Meanwhile", "judge"]

THRESHOLD = Fraction(1, 50)
"""Of the step: what costs less is within what steps vary by anyway, and nobody's first thing to do."""

MOST_OPS = 100_000
"""Ops looked up in the program for one finding, those that cost most: to look up all of a large trace takes seconds."""

NO_OPS = np.empty(0, np.int64)

Figure = int | float | str | None | list[str]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that costs time, what shows it, and what to try.

    Costs of several findings do not add up: they may be about the same time.

    Attributes
    ----------
    id : str
        Of the rule that found it, such as ``launch-gaps``.
    title : str
    cost_ns : Fraction
        ns a step (a window, where there are no steps), mean of the ranks; each rule defines it.
    share : float
        Of the step.
    ranks : tuple of int
        Those in which it is seen.
    range : tuple of str, or None
        The range of the program in which most of it was launched, outermost first; None where it is not known.
    evidence : mapping of str to int, float, str, list of str or None
        Figures; ``_ns``: integer ns a step, mean of the ranks named, unless the rule says otherwise.
    advice : str
        What to try.
    """

    id: str
    title: str
    cost_ns: Fraction
    share: float
    ranks: tuple[int, ...]
    range: tuple[str, ...] | None
    evidence: Mapping[str, Figure]
    advice: str


class Meanwhile(NamedTuple):
    """Times, disjoint on each rank, in which a host thread did something else: arrays of one length, ns."""

    rank: Int64
    thread: Int64
    start: Int64
    end: Int64


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a rule found, whatever it costs.

    `total` is the cost in ns over all ranks and steps. Of `ops`, positions in ``trace.ops`` with the ns that each
    costs, the range of the program is looked up in which they were launched; where the host is to blame,
    `meanwhile` says when, and the range is the one that it was in.
    """

    id: str
    title: str
    total: int | Fraction
    ranks: tuple[int, ...]
    evidence: Mapping[str, Figure]
    advice: str
    ops: Int64 = field(default_factory=lambda: NO_OPS)
    weight: Int64 = field(default_factory=lambda: NO_OPS)
    meanwhile: Meanwhile | None = None


@dataclass(frozen=True, eq=False)
class Facts:
    """What was measured, for all rules."""

    trace: Trace
    overlap: Overlap
    stragglers: pd.DataFrame
    contention: Contention
    steps: Steps
    peak_gbs: float | None = None
    step_pattern: str | None = None

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(self.overlap.windows.of_rank)

    @property
    def on_gpus(self) -> bool:
        """Whether lanes are streams; on a CPU run they are threads, and what is said of streams means nothing."""
        return self.trace.provenance.lanes == "gpu"

    @cached_property
    def window_ns(self) -> int:
        """Added up over ranks."""
        return int(self.overlap.ranks["window_ns"].sum())

    def tells(self, total: int | Fraction) -> bool:
        """Whether a cost, in ns over all ranks and steps, is enough for a finding."""
        return bool(self.window_ns) and total >= THRESHOLD * self.window_ns

    def n_steps(self, ranks: Iterable[int] | None = None) -> int:
        """Steps of these ranks together, of all by default; where there are none, one window a rank."""
        some = self.ranks if ranks is None else tuple(ranks)
        return sum(self.overlap.windows.n_steps.get(rank, 0) for rank in some) or len(some)

    def each(self, total: int | Fraction, ranks: Iterable[int] | None = None) -> int:
        """A sum over some ranks and their steps as the mean of both, in whole ns."""
        return round(Fraction(total) / self.n_steps(ranks))

    def column(self, name: str) -> dict[int, int]:
        """A column of ``Overlap.ranks`` by rank; what is missing counts as 0."""
        table = self.overlap.ranks
        values = table[name].astype("Int64").fillna(0).astype("int64")
        return dict(zip(table["rank"].tolist(), values.tolist(), strict=True))

    def of_ranks(self) -> Iterator[tuple[int, int, pd.DataFrame, Spans]]:
        """Each rank: its number, where in ``trace.ops`` its ops begin, these, its window."""
        column = self.trace.ops["rank"].to_numpy()
        for rank, window in self.overlap.windows.of_rank.items():
            yield rank, int(np.searchsorted(column, rank)), self.trace.of_rank(rank), window

    @cached_property
    def tree(self) -> RangeTree:
        """The paths of the program's ranges."""
        return range_tree(self.trace, self.step_pattern)

    @cached_property
    def late(self) -> pd.DataFrame:
        """The collectives that were waited for, see `last_to_come`."""
        return last_to_come(self.overlap)

    @cached_property
    def comm_ops(self) -> Int64:
        """Position in ``trace.ops`` of each row of ``Overlap.instances``."""
        found = []
        for _, first, ops, window in self.of_ranks():
            at = np.flatnonzero(of_kind(ops, Kind.COMM))
            start, end = (ops[c].to_numpy()[at] for c in ("start", "end"))
            found.append(first + at[touching(window, start, end)])
        positions = np.concatenate([NO_OPS, *found])
        assert len(positions) == len(self.overlap.instances), (
            "the instances are not the window's communication"
        )
        return positions


def judge(facts: Facts, found: Found) -> Finding | None:
    """A finding, if it costs enough."""
    total = Fraction(found.total)
    if not facts.tells(total):
        return None
    return Finding(
        id=found.id,
        title=found.title,
        cost_ns=total / facts.n_steps(),
        share=float(total / facts.window_ns),
        ranks=found.ranks,
        range=_where(facts, found),
        evidence=found.evidence,
        advice=found.advice,
    )


def _where(facts: Facts, found: Found) -> tuple[str, ...] | None:
    """The path in which most of the cost was launched; None where most of it was launched in no known range."""
    if not len(facts.trace.ranges):
        return None
    if found.meanwhile is not None:
        return _meanwhile_in(facts, found.meanwhile)
    if not len(found.ops):
        return None
    some = np.argsort(-found.weight, kind="stable")[:MOST_OPS]
    some = some[np.argsort(found.ops[some], kind="stable")]
    ops = facts.trace.ops.iloc[found.ops[some]].reset_index(drop=True)
    tree = paths(replace(facts.trace, ops=ops), facts.step_pattern, facts.tree)
    # OUTSIDE and UNKNOWN, -1 and -2, at the end.
    weights = np.zeros(len(tree.names) + 2, np.int64)
    np.add.at(weights, tree.of_op, found.weight[some])
    best = int(np.argmax(weights))
    return tree.names[best] if best < len(tree.names) else None


def _meanwhile_in(facts: Facts, times: Meanwhile) -> tuple[str, ...] | None:
    """The path that host threads were in for most of some times, as the innermost; None where that is none."""
    ranges = facts.trace.ranges
    tree = facts.tree
    # What is open while the program goes on with other things says nothing of where it is.
    levels = tree.level & ~tree.comm_only
    inside = np.zeros(len(tree.names) + 1, np.int64)  # at the end what is in none
    inside[-1] = int((times.end - times.start).sum())
    for rank, thread in np.unique(np.stack([times.rank, times.thread], 1), axis=0).tolist():
        mine = (times.rank == rank) & (times.thread == thread)
        here = np.flatnonzero(
            levels & (ranges["rank"] == rank).to_numpy() & (ranges["thread"] == thread).to_numpy()
        )
        start, end, owner = held(*(ranges[side].to_numpy()[here] for side in ("start", "end")))
        ns = covered(union(times.start[mine], times.end[mine]), start, end)
        np.add.at(inside, tree.of_range[here[owner]], ns)
        inside[-1] -= ns.sum()
    best = int(np.argmax(inside))
    return tree.names[best] if best < len(tree.names) else None
