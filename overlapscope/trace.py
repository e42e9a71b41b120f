"""The one model every reader fills and every analysis reads.

Times are int64 nanoseconds since the trace's origin (`Provenance.origin_ns`): for nsys the session start, which
is what its own window shows; for PyTorch the first op or range of the earliest file. An integer that is not known is
:data:`NA`, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from .classify import Collective, Kind
from .intervals import Spans

__all__ = [
    "LANE_COLUMNS",
    "LIMIT",
    "NA",
    "NAME_COLUMNS",
    "NOT_ALIGNED",
    "OP_COLUMNS",
    "RANGE_COLUMNS",
    "RANK_COLUMNS",
    "Dropped",
    "Provenance",
    "Source",
    "Trace",
]

NA = int(np.iinfo(np.int64).min)
"""Stands for "not recorded" in the integer columns of a trace."""

LIMIT = 2**62
"""Times from here on (146 years, in ns) leave no room for a sum in 64 bits; readers refuse them."""

NOT_ALIGNED = "not aligned"
"""How `Provenance.clock` begins where the files' clocks could not be brought together."""

KIND_DTYPE = pd.CategoricalDtype([k.value for k in Kind])
COLLECTIVE_DTYPE = pd.CategoricalDtype([c.value for c in Collective])

OP_COLUMNS: dict[str, str] = {
    "start": "int64",  # ns since origin
    "end": "int64",
    "rank": "int32",
    "lane": "int32",  # row of `lanes`
    "name": "int32",  # row of `names`
    "kind": "category",  # KIND_DTYPE
    "collective": "category",  # COLLECTIVE_DTYPE; missing unless kind is comm
    "launch": "int64",  # ns since origin of the launching host call, or NA
    "thread": "int64",  # OS thread that launched it, or NA
    "bytes": "int64",  # bytes moved (memory) or of the whole array (comm), or NA
    "group": "int32",  # number of ranks in the communicator, or -1
    "communicator": "int32",  # the same number on every rank of a communicator, or -1
    "sequence": "int32",  # the collective's number on its communicator, or -1
    "shape": "int32",  # row of `shapes`, or -1
}
"""Columns of `Trace.ops`, sorted by (rank, start)."""

RANGE_COLUMNS: dict[str, str] = {
    "start": "int64",
    "end": "int64",  # NA where the range was never closed
    "rank": "int32",
    "thread": "int64",
    "name": "category",
    "domain": "category",  # "" is NVTX's default domain
    "role": "category",  # the NVTX category: step, warmup, layer, sharded, replicated, comm, ...; "" where none
}
"""Columns of `Trace.ranges`, sorted by (rank, start)."""

NAME_COLUMNS: tuple[str, ...] = ("string", "short", "kind", "collective", "library", "fused_comm", "rule")
LANE_COLUMNS: tuple[str, ...] = ("rank", "device", "stream", "label")
RANK_COLUMNS: tuple[str, ...] = ("rank", "device", "pid", "gpu", "source", "clock")


@dataclass(frozen=True, slots=True)
class Source:
    """One file that was read."""

    path: str
    format: str  # "nsys" or "kineto"
    tool: str  # what recorded it, with its version where recorded
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """What a reader left out, so that a report can say it."""

    count: int
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a trace comes from and how what it says was determined."""

    sources: tuple[Source, ...]
    lanes: str = "gpu"  # or "host": a CPU run, analysed on its threads
    ranks_from: str = ""  # how ranks were determined, in words
    ranks_recorded: bool = True  # or numbered by order
    clock: str = ""  # how the files' clocks were brought together, in words
    origin_ns: int | None = None  # wall clock of time 0, ns since the epoch
    world_size: int | None = None
    command: str | None = None  # the `overlapscope run` that made it
    link: str | None = None  # the paced link of a `run`, None for a real one
    from_ranges: bool = False  # nothing but the program's own ranges was recorded: ops are made of them
    dropped: tuple[Dropped, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def one_clock(self) -> bool:
        """Whether times of different ranks compare."""
        return not self.clock.startswith(NOT_ALIGNED)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Trace:
    """Ops, ranges, names, lanes and ranks of one capture, from however many files.

    Times are integer ns since `provenance.origin_ns`. An integer that is not recorded is ``overlapscope.NA``
    (the least int64, never 0): leave it out before adding up, as in ``ops.bytes[ops.bytes != osc.NA].sum()``.

    Attributes
    ----------
    ops : DataFrame
        One row per op, by (rank, start). An op is a kernel, copy or memset of the GPU; on a CPU run an operator
        that computes or a collective. ``start``, ``end``, ``rank``; ``lane``: row of `lanes`; ``name``: row of
        `names`; ``kind``: gemm, attention, compute, comm or memory; ``collective``: of a comm op, else missing;
        ``launch``, ``thread``: when and on which OS thread the host launched it, or NA; ``bytes``: moved by a
        copy, or of the whole array of a collective, or NA; ``group``: ranks in the communicator, or -1;
        ``communicator``: its number, the same on all its ranks, or -1; ``sequence``: the collective's number on
        it, or -1; ``shape``: row of `shapes`, or -1.
    ranges : DataFrame
        One row per NVTX range or profiler annotation, by (rank, start): ``start``, ``end`` (NA: never closed),
        ``rank``, ``thread``, ``name``, ``domain`` ("": the default one), ``role`` (of the marker convention, see
        `overlapscope.markers`; "" where none).
    names : DataFrame
        One row per distinct op name: ``string`` (demangled), ``short``, and what the rules made of it: ``kind``,
        ``collective``, ``library``, ``fused_comm`` (it computes and communicates at once), ``rule`` (id of the
        rule that decided; missing where none knew the name: such ops count as compute).
    lanes : DataFrame
        One row per lane: ``rank``, ``device`` (NA on a CPU run), ``stream`` (thread on a CPU run), ``label``.
    ranks : DataFrame
        One row per rank, by rank: ``rank``, ``device``, ``pid`` (NA where unknown), ``gpu`` (name), ``source``,
        ``clock`` (ranks with one number were recorded by one clock).
    communicators : tuple of str
        What names each communicator, in every file of the program; ``ops.communicator`` is the place in it.
    provenance : Provenance
        Where all this comes from, how ranks and clocks were determined, what was dropped.
    shapes : tuple of str
        The distinct sizes of the work that ops do: a kernel's grid and block ("128x1x1 256x1x1"), the recorded
        input dimensions of an operator of a CPU run ("[[64, 32], [32, 16]]"). Ops of one name and one shape are
        alike.
    stalls : mapping of int to Spans
        By rank, when the profiler itself held up its process (buffer flushes and the like), as far as recorded.
    graphs : mapping of int to Spans
        By rank, when a CUDA graph that was traced as a whole ran: what ran inside is not known and in no op.
    """

    ops: pd.DataFrame
    ranges: pd.DataFrame
    names: pd.DataFrame
    lanes: pd.DataFrame
    ranks: pd.DataFrame
    provenance: Provenance
    communicators: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    stalls: Mapping[int, Spans] = field(default_factory=dict)
    graphs: Mapping[int, Spans] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_dtypes("ops", self.ops, OP_COLUMNS)
        _check_dtypes("ranges", self.ranges, RANGE_COLUMNS)
        _check_columns("names", self.names, NAME_COLUMNS)
        _check_columns("lanes", self.lanes, LANE_COLUMNS)
        _check_columns("ranks", self.ranks, RANK_COLUMNS)
        _check_ops(self)

    def __repr__(self) -> str:
        tools = ", ".join(dict.fromkeys(source.tool for source in self.provenance.sources))
        return f"Trace({len(self.ranks)} ranks, {len(self.ops):,} ops, {len(self.ranges):,} ranges; {tools})"

    def of_rank(self, rank: int) -> pd.DataFrame:
        """The ops of one rank, by start; a view, not a copy."""
        column = self.ops["rank"].to_numpy()
        return self.ops.iloc[slice(*np.searchsorted(column, [rank, rank + 1]))]

    @property
    def span(self) -> tuple[int, int]:
        """First op's start and last op's end over all ranks, ns since the origin."""
        return int(self.ops["start"].min()), int(self.ops["end"].max())


def empty_ranges() -> pd.DataFrame:
    """A range table without rows."""
    return pd.DataFrame({c: pd.Series([], dtype=t) for c, t in RANGE_COLUMNS.items()})


def kinds(codes: npt.NDArray[np.int8]) -> pd.Categorical:
    """Kind column from positions in `Kind`."""
    return pd.Categorical.from_codes(codes, dtype=KIND_DTYPE)


def collectives(codes: npt.NDArray[np.int8]) -> pd.Categorical:
    """Collective column from positions in `Collective`; -1 is missing."""
    return pd.Categorical.from_codes(codes, dtype=COLLECTIVE_DTYPE)


def _check_columns(table: str, frame: pd.DataFrame, columns: Sequence[str]) -> None:
    assert tuple(frame.columns) == tuple(columns), f"{table} has columns {list(frame.columns)}"


def _check_dtypes(table: str, frame: pd.DataFrame, columns: dict[str, str]) -> None:
    _check_columns(table, frame, tuple(columns))
    for column, dtype in columns.items():
        assert str(frame[column].dtype) == dtype, f"{table}.{column} is {frame[column].dtype}, not {dtype}"


def _check_ops(trace: Trace) -> None:
    """A reader's mistake stops here rather than in a figure."""
    ops = trace.ops
    start, end, rank = (ops[c].to_numpy() for c in ("start", "end", "rank"))
    assert len(ops), "a trace has at least one op; readers refuse an empty one"
    assert bool((end >= start).all()), "an op ends before it starts"
    assert bool((rank[1:] >= rank[:-1]).all()), "ops are not sorted by rank"
    ascending = (start[1:] >= start[:-1]) | (rank[1:] != rank[:-1])
    assert bool(ascending.all()), "ops of a rank are not sorted by start"
    for column, table in (("lane", trace.lanes), ("name", trace.names)):
        code = ops[column].to_numpy()
        assert code.min() >= 0, f"ops.{column} is negative"
        assert code.max() < len(table), f"ops.{column} points outside its table"
    shape = ops["shape"].to_numpy()
    assert shape.min() >= -1, "ops.shape is negative"
    assert shape.max() < len(trace.shapes), "ops.shape points outside its table"
    assert ops["kind"].dtype == KIND_DTYPE
    assert ops["collective"].dtype == COLLECTIVE_DTYPE
    listed = trace.ranks["rank"].to_numpy()
    assert bool((listed[1:] > listed[:-1]).all()), "ranks are not sorted and distinct"
    assert set(np.unique(rank)) <= set(listed), "an op belongs to a rank that is not listed"
