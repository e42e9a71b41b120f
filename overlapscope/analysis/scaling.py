"""Strong scaling: T(N) beside the ideal T(1)/N, and where the difference comes from, exactly.

With ranks averaged a step takes ``T = Σ c_g − concurrency + exposed_comm + exposed_memory + idle``, where c_g is
the time in which at least one compute op of group g runs, and the concurrency ``Σ c_g − |C|`` is compute that
overlaps compute. Every part is linear, so what T(N) exceeds T(1)/N by is the sum of what its parts exceed theirs
by. Where collectives could be matched exposed communication is split further, in waiting for late ranks and transfer.
All of it is computed in fractions of integer nanoseconds; the sums are asserted, not hoped for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

import numpy as np

from ..classify import Kind
from ..errors import InputError
from ..intervals import Int64, covered, intersect, measure, union
from ..markers import DOMAIN
from ..trace import NA, Trace
from .attribution import launched_in
from .overlap import overlap
from .window import windows

__all__ = [
    "EXPOSED",
    "TERMS",
    "Account",
    "Part",
    "Pop",
    "Scaling",
    "Size",
    "account",
    "parts_of_ops",
    "scaling",
]

TERMS = ("sharded", "replicated", "unmarked", "concurrency", "exposed_comm", "exposed_memory", "idle")
"""What a step consists of. The first two have a part for each group; compute in no group is unmarked."""

EXPOSED = ("wait", "wire", "unsplit")
"""What exposed communication consists of: before the last rank had begun, after, and where that is not known."""

WORK = TERMS[:2]
COMPUTE = (Kind.GEMM.value, Kind.ATTENTION.value, Kind.COMPUTE.value)


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """One term of a step: of `sharded` and `replicated` there is one a group, whose name is its range's."""

    term: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class Account:
    """Where the time of one run's steps went.

    Attributes
    ----------
    size : int
        Ranks the work was split over.
    ranks, steps : int
        Ranks in the trace, and steps in each one's window.
    window_ns : int
        Analysed time, added up over ranks.
    parts_ns : mapping of Part to int
        Added up over ranks; concurrency counts negative, so that these add up to ``window_ns``.
    compute_ns : tuple of int
        Each rank's \\|C\\|, the time in which at least one compute op runs.
    unlaunched : int
        Compute ops of the window without a record of their launch: they are unmarked for that reason alone.
    exposed_ns : mapping of str to int
        Of :data:`EXPOSED`, added up over ranks: these add up to the part exposed_comm.
    """

    size: int
    ranks: int
    steps: int
    window_ns: int
    parts_ns: Mapping[Part, int]
    compute_ns: tuple[int, ...]
    unlaunched: int = 0
    exposed_ns: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        total = sum(self.parts_ns.values())
        assert total == self.window_ns, f"the parts add up to {total} ns, the windows to {self.window_ns} ns"
        exposed, split = self.parts_ns.get(Part("exposed_comm"), 0), sum(self.exposed_ns.values())
        assert split == exposed, f"of {exposed} ns exposed communication the parts add up to {split} ns"

    @property
    def time(self) -> Fraction:
        """T: ns a step, mean of the ranks."""
        return self.each(self.window_ns)

    def each(self, total: int) -> Fraction:
        """A sum over ranks and steps as the mean of both."""
        return Fraction(total, self.ranks * self.steps)


@dataclass(frozen=True, slots=True)
class Pop:
    """The efficiency hierarchy of POP (pop-coe.eu); useful time is \\|C\\|. None where nothing is
    computed, here or in the base. T is the ranks' mean, as everywhere, so that the products are exact.

    Attributes
    ----------
    load_balance : float
        mean(useful) / max(useful)
    communication_efficiency : float
        max(useful) / T
    parallel_efficiency : float
        Their product, mean(useful) / T.
    computation_scaling : float
        Σ useful of the base / Σ useful
    global_efficiency : float
        parallel_efficiency × computation_scaling
    """

    load_balance: float | None
    communication_efficiency: float | None
    parallel_efficiency: float | None
    computation_scaling: float | None
    global_efficiency: float | None


@dataclass(frozen=True, slots=True)
class Size:
    """One number of ranks beside the base.

    Attributes
    ----------
    account : Account
    time, ideal, loss : Fraction
        ns a step: T(N), T(B)·B/N with B the base's size (T(1)/N where that is 1), and the difference.
    losses : mapping of Part to Fraction
        What each part contributes to the loss, in ns; they add up to it exactly. Negative where it gains.
    exposed : mapping of str to Fraction
        Of :data:`EXPOSED`: what the loss to exposed_comm consists of, exactly.
    speedup : float
        T(B) / T(N)
    efficiency : float
        T(B)·B / (N·T(N))
    pop : Pop
    """

    account: Account
    time: Fraction
    ideal: Fraction
    loss: Fraction
    losses: Mapping[Part, Fraction]
    exposed: Mapping[str, Fraction]
    speedup: float
    efficiency: float
    pop: Pop

    def term(self, name: str) -> Fraction:
        """The loss of one of :data:`TERMS`, over all its groups."""
        return sum((loss for part, loss in self.losses.items() if part.term == name), Fraction(0))


@dataclass(frozen=True, slots=True)
class Scaling:
    """All sizes, ascending. The first is the base."""

    sizes: tuple[Size, ...]

    @property
    def base(self) -> Account:
        """What the others are compared with: the smallest size."""
        return self.sizes[0].account


def account(trace: Trace, step_pattern: str | None = None) -> Account:
    """Account for the time of a trace's steps, warm-up left out.

    A compute op belongs to the innermost range of role `sharded` or `replicated` in which it was launched.

    Raises
    ------
    OptionError
        The trace has no steps.
    InputError
        Its ranks have different numbers of steps.
    """
    window = windows(trace, "steps", step_pattern)
    steps = _steps_of_a_rank(window.n_steps)
    figures = overlap(trace, window).ranks
    parts, of_op = parts_of_ops(trace)
    compute = trace.ops["kind"].isin(COMPUTE).to_numpy()
    total: Counter[Part] = Counter()
    unlaunched = 0
    for rank, spans in window.of_rank.items():
        here = slice(*np.searchsorted(trace.ops["rank"].to_numpy(), [rank, rank + 1]))
        start, end, launch = (
            trace.ops[c].to_numpy()[here][compute[here]] for c in ("start", "end", "launch")
        )
        code = of_op[here][compute[here]]
        for part in np.unique(code):
            mine = code == part
            total[parts[part]] += measure(intersect(union(start[mine], end[mine]), spans))
        unlaunched += int(np.count_nonzero(covered(spans, start, end)[launch == NA]))
    # The groups' time beyond the union of all is time in which several compute at once.
    total[Part("concurrency")] = int(figures["compute_ns"].sum()) - sum(total.values())
    for term in TERMS[4:]:
        total[Part(term)] = int(figures[f"{term}_ns"].sum())
    return Account(
        size=trace.provenance.world_size or len(trace.ranks),
        ranks=len(trace.ranks),
        steps=steps,
        window_ns=int(figures["window_ns"].sum()),
        parts_ns=dict(total),
        compute_ns=tuple(int(c) for c in figures["compute_ns"]),
        unlaunched=unlaunched,
        exposed_ns={part: int(figures[f"exposed_{part}_ns"].sum()) for part in EXPOSED},
    )


def scaling(accounts: Sequence[Account]) -> Scaling:
    """Compare runs of the same work split over different numbers of ranks; the smallest is the base.

    Whether it is the same work, no trace can say: that is for the caller to know.

    Raises
    ------
    InputError
        Two runs have the same number of ranks, or a run's steps take no time.
    """
    ordered = sorted(accounts, key=lambda a: a.size)
    for one, other in pairwise(ordered):
        if one.size == other.size:
            raise InputError(f"two runs have {one.size} ranks", "give one run for each size")
    for one in ordered:
        if not one.window_ns:
            raise InputError(f"the steps on {one.size} ranks take no time", "measure steps that do work")
    return Scaling(tuple(_size(one, ordered[0]) for one in ordered))


def _size(run: Account, base: Account) -> Size:
    share = Fraction(base.size, run.size)
    time, ideal = run.time, base.time * share
    parts = sorted({*run.parts_ns, *base.parts_ns}, key=lambda p: (TERMS.index(p.term), p.group))
    losses = {p: run.each(run.parts_ns.get(p, 0)) - base.each(base.parts_ns.get(p, 0)) * share for p in parts}
    assert sum(losses.values()) == time - ideal, "the terms do not add up to T(N) - T(1)/N"
    exposed = {
        part: run.each(run.exposed_ns.get(part, 0)) - base.each(base.exposed_ns.get(part, 0)) * share
        for part in EXPOSED
    }
    assert sum(exposed.values()) == losses.get(Part("exposed_comm"), 0), "waiting and wire do not add up"
    return Size(
        account=run,
        time=time,
        ideal=ideal,
        loss=time - ideal,
        losses=losses,
        exposed=exposed,
        speedup=float(base.time / time),
        efficiency=float(ideal / time),
        pop=_pop(run, base),
    )


def _pop(run: Account, base: Account) -> Pop:
    """Of sums over steps, since a rank's useful time is the sum over its steps."""
    useful, most = sum(run.compute_ns), max(run.compute_ns)
    if not useful or not any(base.compute_ns):
        return Pop(None, None, None, None, None)
    balance = Fraction(useful, run.ranks * most)
    communication = Fraction(most, run.steps) / run.time
    # The mean over the ranks that were recorded times their number: a trace may hold some of the ranks only.
    work = run.each(useful) * run.size
    computation = base.each(sum(base.compute_ns)) * base.size / work
    parallel = balance * communication
    figures = (balance, communication, parallel, computation, parallel * computation)
    return Pop(*map(float, figures))


def parts_of_ops(trace: Trace) -> tuple[list[Part], Int64]:
    """The parts that compute can belong to, and the position of each op's among them."""
    ranges = trace.ranges
    marked = ((ranges["domain"] == DOMAIN) & ranges["role"].isin(WORK)).to_numpy()
    roles, names = ranges["role"].cat, ranges["name"].cat
    n = len(names.categories)
    # One number for each pair of role and name.
    pair = roles.codes.to_numpy().astype(np.int64) * n + names.codes.to_numpy()
    pairs, place = np.unique(pair[marked], return_inverse=True)
    parts = [Part(str(roles.categories[p // n]), str(names.categories[p % n])) for p in pairs.tolist()]
    of_range = np.zeros(len(ranges) + 1, np.int64)  # the last is that of position -1: no range
    of_range[:-1][marked] = place + 1
    return [Part("unmarked"), *parts], of_range[launched_in(trace, marked)]


def _steps_of_a_rank(count: Mapping[int, int]) -> int:
    few, many = min(count, key=count.__getitem__), max(count, key=count.__getitem__)
    if count[few] != count[many]:
        raise InputError(
            f"rank {few} has {count[few]} steps, and rank {many} has {count[many]}",
            "compare runs in which every rank finished",
        )
    return count[few]
