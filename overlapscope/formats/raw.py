"""What one file holds, in its own clock, before ranks are numbered and names are classified.

Every reader fills this; `assemble` makes one `Trace` of all of them.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..intervals import Int64, Spans, shift
from ..trace import LIMIT, NA, Dropped, Source

__all__ = [
    "COPY_KINDS",
    "FROM_NAME",
    "MEMSET_NAME",
    "Names",
    "Progress",
    "RawOps",
    "RawRanges",
    "RawTrace",
    "Unit",
    "copy_name",
    "missing",
    "shape_name",
    "shape_numbers",
    "ungzipping",
    "within",
]

Int32 = npt.NDArray[np.int32]
Int8 = npt.NDArray[np.int8]

Progress = Callable[[str], None]
"""Told in a few words what is being done, before it is done."""

FROM_NAME = -1
"""In `RawOps.collective`: nothing recorded, take what the name says."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What may become a rank: a process-device pair, on a CPU run a process."""

    pid: int | None
    process: int = 0  # the file's own key of the process, by which ranges and overhead find their unit
    device: int | None = None
    gpu: str | None = None
    rank: int | None = None  # only where the file records it
    clock: int = 0  # units of a file with one number were recorded by one clock
    order: int = 0  # in a file that was converted: the rank it was given there


# CUPTI's copyKind: H host, D device, A array, P peer.
COPY_KINDS = {"Unknown": 0, "HtoD": 1, "DtoH": 2, "HtoA": 3, "AtoH": 4, "AtoA": 5, "AtoD": 6, "DtoA": 7}
COPY_KINDS |= {"DtoD": 8, "HtoH": 9, "PtoP": 10}

MEMSET_NAME = "Memset"


def copy_name(kind: str) -> str:
    """The one name of a copy of a kind (HtoD, DtoH, DtoD, PtoP, ...), whatever a profiler calls it."""
    return f"Memcpy {kind}"


class Names:
    """Interns (demangled, short) names: each distinct pair gets one code."""

    def __init__(self) -> None:
        self.pairs: dict[tuple[str, str | None], int] = {}

    def code(self, string: str, short: str | None = None) -> int:
        return self.pairs.setdefault((string, short), len(self.pairs))

    def __len__(self) -> int:
        return len(self.pairs)


def shape_name(grid: Sequence[int], block: Sequence[int]) -> str:
    """How `Trace.shapes` writes a kernel's grid and block."""
    return f"{'x'.join(map(str, grid))} {'x'.join(map(str, block))}"


def shape_numbers(name: str) -> list[int]:
    """The six numbers in what `shape_name` wrote."""
    return [int(n) for n in name.replace(" ", "x").split("x")]


def within(times: Int64) -> bool:
    """Whether every time leaves room for sums in 64 bits."""
    return bool(np.all((times > -LIMIT) & (times < LIMIT)))


@contextmanager
def ungzipping(path: Path) -> Iterator[None]:
    """Say of a damaged gzip stream what is wrong, as InputError."""
    try:
        yield
    except EOFError as error:
        what = "the gzip stream ends early, the file was cut off"
        raise InputError(what, "copy or record it again", path) from error
    except (zlib.error, gzip.BadGzipFile) as error:
        what = f"is not readable as gzip ({error})"
        raise InputError(what, "copy or record it again", path) from error


def missing(count: int) -> Int64:
    """An integer column of which nothing is known. It takes no memory, and cannot be written to."""
    return np.broadcast_to(np.int64(NA), count)


@dataclass(slots=True)
class RawOps:
    """Columns of equal length, in any order."""

    start: Int64
    end: Int64
    unit: Int32
    stream: Int64  # stream, on host lanes the thread
    name: Int32
    launch: Int64
    thread: Int64
    bytes: Int64
    group: Int32
    communicator: Int32  # row of `RawTrace.communicators`, or -1
    sequence: Int32  # number on it, or -1
    collective: Int8  # position in Collective where recorded, else FROM_NAME
    shape: Int32  # position in RawTrace.shapes, -1 where not recorded

    def __len__(self) -> int:
        return len(self.start)

    def writable(self, *columns: str) -> None:
        """Make columns of which nothing was known ready to be filled in."""
        for column in columns:
            values = getattr(self, column)
            if not values.flags.writeable:
                setattr(self, column, values.copy())

    def drop(self, keep: npt.NDArray[np.bool_]) -> None:
        """Keep the ops of the mask only."""
        for column in self.__slots__:
            setattr(self, column, getattr(self, column)[keep])

    @classmethod
    def of(cls, start: Int64, end: Int64, unit: Int32, stream: Int64, name: Int32) -> RawOps:
        """Ops of which only the necessary is known; the other columns take no memory until they are `writable`."""
        n = len(start)
        no_code = np.broadcast_to(np.int32(-1), n)
        return cls(
            start=start,
            end=end,
            unit=unit,
            stream=stream,
            name=name,
            launch=missing(n),
            thread=missing(n),
            bytes=missing(n),
            group=no_code,
            communicator=no_code,
            sequence=no_code,
            collective=np.broadcast_to(np.int8(FROM_NAME), n),
            shape=no_code,
        )


@dataclass(slots=True)
class RawRanges:
    """Ranges of processes; `process` is the key of `Unit.process`."""

    start: Int64 = field(default_factory=lambda: missing(0))
    end: Int64 = field(default_factory=lambda: missing(0))
    process: Int64 = field(default_factory=lambda: missing(0))
    thread: Int64 = field(default_factory=lambda: missing(0))
    name: list[str] = field(default_factory=list)
    domain: list[str] = field(default_factory=list)
    role: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.start)


@dataclass(slots=True)
class RawTrace:
    """One file. `origin_ns` is the wall clock of its time 0, in ns since the epoch, or None."""

    source: Source
    lanes: str
    units: list[Unit]
    names: Names
    ops: RawOps
    communicators: list[str] = field(
        default_factory=list
    )  # what names each of them in every file of the capture
    shapes: list[str] = field(default_factory=list)  # see `Trace.shapes`
    ranges: RawRanges = field(default_factory=RawRanges)
    origin_ns: int | None = None
    overhead: dict[int, Spans] = field(
        default_factory=dict
    )  # by process: when the profiler itself stalled it
    graphs: dict[tuple[int, int], Spans] = field(
        default_factory=dict
    )  # by process and device: when a CUDA graph that was traced as a whole ran
    world_size: int | None = None
    ranks_from: str | None = None  # how `Unit.rank` was recorded
    numbered: str | None = (
        None  # in a file that was converted: how `Unit.order` was found, where no rank was recorded
    )
    clock: str | None = None  # how the clocks of what was converted into this file were brought together
    command: str | None = None
    link: str | None = None
    from_ranges: bool = False
    dropped: list[Dropped] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def shift(self, by: int) -> None:
        """Count every time of the file from `by` ns earlier; what is not known stays so."""
        for table, columns in ((self.ops, ("start", "end", "launch")), (self.ranges, ("start", "end"))):
            for column in columns:
                values = getattr(table, column)
                if (values != NA).any():
                    values[values != NA] += by
        self.overhead = {key: shift(spans, by) for key, spans in self.overhead.items()}
        self.graphs = {key: shift(spans, by) for key, spans in self.graphs.items()}
