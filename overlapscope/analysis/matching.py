"""Which op of each rank is the same collective.

On one communicator every rank issues the same collectives in the same order, so the k-th of one rank is the k-th
of every other. Where the trace records communicators (and numbers on them) that is all; where it does not, the
order of each kind of collective stands for it (:mod:`~overlapscope.analysis.sequences`).

What cannot be trusted is not matched, and the reason is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..classify import Collective
from ..errors import OptionError
from ..intervals import Int64
from ..trace import NA, Trace
from .clocks import ONE_CLOCK, Clock, Clocks, fit
from .sequences import TOGETHER
from .sequences import places as places_of

__all__ = ["ALIGN", "Matching", "Refused", "check_align", "match"]

ALIGN = ("collectives", "session", "none")
"""What brings the clocks of several files together: the ends of collectives, the recorded wall clock, nothing."""

# Of a kind of collective so many may end on one rank before they begin on another and the match still be trusted:
# a clock that was read coarsely, or set by ends that jitter, does that to short ones.
ASTRAY = 0.1

UNALIGNED = "the clocks of their files are not aligned"

APART = "they end on one rank before they begin on another"

# Ends of one collective lie within a quarter of its transfer in the traces at hand (NVLink and PCIe, 10 µs to 1 ms).
LOOSE = 0.5

# On a CPU a collective ends when its thread is scheduled, milliseconds apart: there only a distance of that many
# spreads is a clock's and not the scheduler's.
ON_A_CPU = 10


@dataclass(frozen=True, slots=True)
class Refused:
    """Collectives that were not matched, or of which waiting cannot be told from transfer."""

    count: int  # ops, over all ranks
    what: str
    why: str


@dataclass(frozen=True, slots=True, eq=False)
class Matching:
    """What belongs together.

    Attributes
    ----------
    ops : DataFrame
        One row per matched op: ``op`` (row of ``trace.ops``), ``rank``, ``match`` (number of the collective),
        ``start`` and ``end`` (ns, on the common clock), ``latest`` (when the last rank began, ns on the op's own
        clock; NA where waiting and transfer cannot be told apart), ``last`` (whether this rank was it).
    clocks : Clocks
    refused : tuple of Refused
    """

    ops: pd.DataFrame
    clocks: Clocks
    refused: tuple[Refused, ...] = ()

    def places(self, n_ops: int) -> Places:
        """Match and latest start of every op of a trace of so many."""
        places = Places(np.full(n_ops, -1, np.int64), np.full(n_ops, NA, np.int64))
        rows = self.ops["op"].to_numpy()
        places.match[rows], places.latest[rows] = self.ops["match"].to_numpy(), self.ops["latest"].to_numpy()
        return places

    def only(self, kept: npt.NDArray[np.bool_]) -> Matching:
        """The same for a trace of which some ops were kept."""
        rows = self.ops[kept[self.ops["op"].to_numpy()]]
        number = np.cumsum(kept) - 1
        return replace(self, ops=rows.assign(op=number[rows["op"].to_numpy()]))


class Places(NamedTuple):
    """For every op of a trace the number of its collective (-1: none) and when its last rank began (or NA)."""

    match: Int64
    latest: Int64


class _Key(NamedTuple):
    """A sequence that all its ranks share: a communicator, or where none is recorded a kind of collective."""

    communicator: int
    collective: str

    def __str__(self) -> str:
        return self.collective or "collective"


def check_align(align: str) -> None:
    """Raise OptionError unless it is one of :data:`ALIGN`; for who would rather know before a trace is read."""
    if align not in ALIGN:
        raise OptionError(f"{align!r} is not known", f"choose from {', '.join(ALIGN)}", "--align")


def match(trace: Trace, align: str = "collectives") -> Matching:
    """Match the collectives of a trace over its ranks.

    Parameters
    ----------
    trace : Trace
    align : str
        One of :data:`ALIGN`. With "collectives", clocks of several files are corrected by the median distance of
        matched ends, and by a drift where that is plain. The trace's own times stay as they are.

    Raises
    ------
    OptionError
        `align` is none of them.
    """
    check_align(align)
    comm = _comm(trace)
    groups, refused = _groups(trace, comm)
    comm = comm[groups >= 0].assign(match=groups[groups >= 0])
    clocks = _clocks(trace, comm, align)
    table, doubtful = _on_one_clock(trace, comm, clocks)
    return Matching(table, clocks, (*refused, *doubtful))


def _comm(trace: Trace) -> pd.DataFrame:
    """The communication ops that could be matched, in the order in which each rank issued them."""
    ops = trace.ops
    at = np.flatnonzero((ops["kind"] == "comm").to_numpy())
    columns = ["rank", "start", "end", "launch", "bytes", "group", "communicator", "sequence"]
    comm = ops[columns].iloc[at].assign(op=at, collective=ops["collective"].cat.codes.to_numpy()[at])
    comm["issued"] = comm["launch"].where(comm["launch"] != NA, comm["start"])
    order = np.lexsort((comm["start"], comm["issued"], comm["rank"]))
    return comm.iloc[order].reset_index(drop=True)


# -- groups --------------------------------------------------------------------------------------------------


def _groups(trace: Trace, comm: pd.DataFrame) -> tuple[Int64, list[Refused]]:
    """The number of the collective that each op is part of, -1 where there is none."""
    number = np.full(len(comm), -1, np.int64)
    refused: list[Refused] = []
    n_ranks = max(len(trace.ranks), trace.provenance.world_size or 0)
    if n_ranks < 2:
        return number, refused
    rank, taken = comm["rank"].to_numpy(), 0
    for key, rows in _keys(comm):
        some = comm.iloc[rows]
        why = _incomplete(key, some, len(trace.ranks), n_ranks)
        places, trouble = ({}, why) if why else places_of(some)
        if trouble is not None:
            refused.append(Refused(len(some), str(key), trouble))
            continue
        place = np.concatenate([places[r] for r in sorted(places)])  # rows are by rank
        place -= place.min()
        everywhere = np.bincount(place)[place] == len(np.unique(rank[rows]))
        number[rows[everywhere]] = place[everywhere] + taken
        taken += int(place.max()) + 1
        if not everywhere.all():
            lacking = int(np.count_nonzero(~everywhere))
            refused.append(Refused(lacking, str(key), "not every rank recorded them: they lie at an edge"))
    return number, refused


def _keys(comm: pd.DataFrame) -> Iterator[tuple[_Key, Int64]]:
    """Every sequence, with the rows of its ops in order."""
    known = (comm["communicator"] >= 0).to_numpy()
    names = [c.value for c in Collective]
    for which, by in ((known, "communicator"), (~known, "collective")):
        rows = np.flatnonzero(which)
        for value, inside in comm.iloc[rows].groupby(by, sort=True).indices.items():
            key = _Key(int(value), "") if by == "communicator" else _Key(-1, names[int(value)])
            yield key, rows[np.sort(inside)]


def _incomplete(key: _Key, some: pd.DataFrame, in_trace: int, n_ranks: int) -> str | None:
    """Why a match would miss ranks: then the last to come may not be among those that are there."""
    here = some["rank"].nunique()
    sizes = some["group"][some["group"] >= 0].unique()
    if len(sizes) == 1 and (key.communicator >= 0 or sizes[0] == here):
        size = int(sizes[0])
        return (
            None
            if size == here
            else f"only {here} of the {size} ranks of their communicator are in the trace"
        )
    if in_trace < n_ranks:
        return f"only {in_trace} of {n_ranks} ranks are in the trace"
    if key.communicator < 0 and here < in_trace:
        return f"only {here} of {in_trace} ranks have them, and their communicator is not recorded"
    return "the trace holds one rank of their communicator" if here < 2 else None


# -- clocks --------------------------------------------------------------------------------------------------


def _clocks(trace: Trace, comm: pd.DataFrame, align: str) -> Clocks:
    ranks = trace.ranks
    clock_of = dict(zip(ranks["rank"].tolist(), ranks["clock"].tolist(), strict=True))
    distinct = list(dict.fromkeys(clock_of.values()))
    if len(distinct) == 1 or align != "collectives":
        return Clocks()
    together = comm["collective"].isin(TOGETHER)
    ends = comm[together].assign(clock=comm["rank"].map(clock_of))
    # Of several ranks on one clock the last to end: nearest to the one instant at which it is over.
    table = ends.groupby(["match", "clock"])["end"].max().unstack()
    found = fit(distinct, list(_pairs(table))) if len(table) else {distinct[0]: ONE_CLOCK}
    if trace.provenance.lanes == "host":
        plain = {c for c, fitted in found.items() if abs(fitted.offset) > ON_A_CPU * (fitted.spread or 0)}
        if not plain:
            return Clocks()
        found = {c: fitted if c in plain else ONE_CLOCK for c, fitted in found.items()}
    if len(found) == 1:
        return Clocks(how="too few collectives are matched to align the clocks by")
    lost = [rank for rank, clock in clock_of.items() if clock not in found]
    how = _told({rank: found[clock] for rank, clock in clock_of.items() if clock in found})
    if lost:
        how += f"; not of rank {', '.join(map(str, lost[:8]))}, which have too few in common with the others"
    return Clocks({rank: found.get(clock, ONE_CLOCK) for rank, clock in clock_of.items()}, how)


def _pairs(table: pd.DataFrame) -> Iterator[tuple[int, int, Int64, Int64]]:
    """Of every clock with every other the ends they have in common; only with the first where all have all."""
    clocks = list(table.columns)
    complete = table.notna().all(axis=None)
    for i, a in enumerate(clocks):
        for b in clocks[i + 1 :]:
            both = table[[a, b]].dropna().astype("int64").sort_values(a)
            yield int(a), int(b), both[a].to_numpy(), both[b].to_numpy()
        if complete:
            return


def _told(of_rank: Mapping[int, Clock]) -> str:
    fitted = [clock for clock in of_rank.values() if clock.spread is not None]
    least, most = min(c.offset for c in fitted), max(c.offset for c in fitted)
    spread = max(c.spread or 0 for c in fitted)
    text = f"then by the ends of matched collectives, offsets {least / 1e3:,.1f} to {most / 1e3:,.1f} µs"
    drifts = [abs(c.drift) for c in fitted if c.drift]
    if drifts:
        text += f", drift up to {max(drifts) * 1e6:.1f} µs a second on {len(drifts)} ranks"
    return f"{text}, spread (median absolute deviation) up to {spread / 1e3:,.1f} µs"


def _on_one_clock(trace: Trace, comm: pd.DataFrame, clocks: Clocks) -> tuple[pd.DataFrame, list[Refused]]:
    """Matched ops on the common clock, with when the last rank began; and of which that cannot be told."""
    rank = comm["rank"].to_numpy()
    start, end = comm["start"].to_numpy().copy(), comm["end"].to_numpy().copy()
    for one in np.unique(rank):
        here = rank == one
        start[here], end[here] = clocks[one].common(start[here]), clocks[one].common(end[here])
    table = comm[["op", "rank", "match"]].assign(start=start, end=end)
    by_match = table.groupby("match")
    latest, first_end, last_end, size = (
        by_match[column].transform(how).to_numpy()
        for column, how in (("start", "max"), ("end", "min"), ("end", "max"), ("rank", "size"))
    )
    doubts = pd.Series("", index=table.index, dtype=object)
    for code, rows in comm.groupby("collective").indices.items():
        collective = list(Collective)[int(code)]
        apart = first_end[rows] < latest[rows]
        unrecorded = trace.provenance.lanes == "gpu" and (comm["communicator"].to_numpy()[rows] < 0).all()
        if collective is Collective.SEND_RECV and (size[rows] > 2).any():
            doubts.iloc[rows[size[rows] > 2]] = "which ranks exchange is not recorded"
        elif apart.mean() > ASTRAY:
            doubts.iloc[rows] = APART
        elif unrecorded and _loose(last_end[rows] - first_end[rows], first_end[rows] - latest[rows]):
            doubts.iloc[rows] = "they end too far apart to be sure of one communicator, and none is recorded"
        else:
            doubts.iloc[rows[apart]] = APART
    if not (trace.provenance.one_clock or clocks.of_rank):
        clock = comm["rank"].map(trace.ranks.set_index("rank")["clock"])
        doubts[(clock.groupby(comm["match"]).transform("nunique") > 1).to_numpy()] = UNALIGNED
    own = latest.copy()
    for one in np.unique(rank):
        here = rank == one
        # Rounding must not put the beginning of the last rank before its own, nor let it wait for itself.
        begun = comm["start"].to_numpy()[here]
        was_last = start[here] == latest[here]
        own[here] = np.where(was_last, begun, np.maximum(clocks[one].own(latest[here]), begun))
    refused = (doubts != "").to_numpy()
    table["latest"] = np.where(refused, NA, own)
    name_of = np.array([c.value for c in Collective], object)
    names = name_of[comm["collective"].to_numpy()[refused]]
    told = doubts[refused].to_frame("why").assign(what=names).groupby(["what", "why"]).size()
    return table, [Refused(int(count), what, why) for (what, why), count in told.items()]


def _loose(spread: Int64, transfer: Int64) -> bool:
    return bool(np.median(spread) > LOOSE * np.median(transfer))
