"""The events of a file, decoded no further than needed, and their numbers as exact columns."""

from __future__ import annotations

import decimal
import gzip
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError, NotATraceError
from ...intervals import Int64
from ...trace import LIMIT, NA, Dropped, Source
from ..raw import ungzipping, within

__all__ = [
    "ABSENT",
    "NO_ARGS",
    "Args",
    "Event",
    "Events",
    "File",
    "ShapedArgs",
    "TimeError",
    "decode",
    "integers",
    "nanoseconds",
    "optional",
    "spans",
    "whole",
]

ABSENT = msgspec.Raw(b"")


class Args(msgspec.Struct, frozen=True, gc=False):
    """The arguments of an event that anything here asks for; files mix types freely."""

    device: Any = None
    stream: Any = None
    correlation: Any = None
    bytes: Any = None
    collective: Any = msgspec.field(default=None, name="Collective name")
    elements_in: Any = msgspec.field(default=None, name="In msg nelems")
    elements_out: Any = msgspec.field(default=None, name="Out msg nelems")
    dtype: Any = None
    group: Any = msgspec.field(default=None, name="Group size")
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    sequence: Any = msgspec.field(default=None, name="Seq")
    grid: msgspec.Raw = ABSENT
    block: msgspec.Raw = ABSENT


class ShapedArgs(Args, frozen=True, gc=False):
    """With the shapes of operators: half as much again to decode, so only where there is no GPU work."""

    input_dims: msgspec.Raw = msgspec.field(default=ABSENT, name="Input Dims")
    input_type: msgspec.Raw = msgspec.field(default=ABSENT, name="Input type")


NO_ARGS = Args()

# PyTorch's annotation of a call, and what it writes beside the kernel since 2.3.
NCCL_CALL, COLLECTIVE_ARGS = b'"nccl:', b'"Collective name"'


class Event(msgspec.Struct, gc=False):
    """One event; its times stay text until they are wanted."""

    ph: str = ""
    cat: str | None = None
    name: Any = ""
    ts: msgspec.Raw = ABSENT
    dur: msgspec.Raw = ABSENT
    pid: Any = None
    tid: Any = None
    args: Args | None = NO_ARGS


class ShapedEvent(Event, gc=False):
    """One event with shapes."""

    args: ShapedArgs | None = None


class File(msgspec.Struct, gc=False):
    """A whole file."""

    events: list[Event] = msgspec.field(name="traceEvents")
    base_ns: int = msgspec.field(default=0, name="baseTimeNanoseconds")
    distributed: dict[str, Any] = msgspec.field(default_factory=dict, name="distributedInfo")
    devices: list[dict[str, Any]] = msgspec.field(default_factory=list, name="deviceProperties")
    schema: Any = msgspec.field(default=None, name="schemaVersion")
    markers: Any = msgspec.field(default=None, name="overlapscope")  # see overlapscope.markers
    path: str = ""

    @property
    def source(self) -> Source:
        schema = None if self.schema is None else str(self.schema)
        return Source(self.path, "kineto", "PyTorch profiler", schema)

    @property
    def roles(self) -> dict[str, str]:
        """Role by name of the ranges that the program marked."""
        roles = self.markers.get("roles") if isinstance(self.markers, dict) else None
        return {str(k): str(v) for k, v in roles.items()} if isinstance(roles, dict) else {}

    @property
    def backend(self) -> str:
        """The process group's backend, "nccl" also where it was not recorded: then the calls tell."""
        return str(self.distributed.get("backend", "nccl"))


class ShapedFile(File, gc=False):
    """A whole file with shapes."""

    events: list[ShapedEvent] = msgspec.field(name="traceEvents")  # type: ignore[assignment]


def decode(path: Path, *, shapes: bool = False) -> File:
    """Decode a file, with the shapes of inputs if asked for, or if only they tell the bytes of NCCL's collectives.

    Raises
    ------
    InputError
        Cut off, damaged, or JSON of another kind.
    """
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        with ungzipping(path):
            data = gzip.decompress(data)
    data = data.removeprefix(b"\xef\xbb\xbf")  # a byte order mark, which some editors leave
    # In this order: files of today hold the second near their start, and the search ends there.
    shapes = shapes or (COLLECTIVE_ARGS not in data and NCCL_CALL in data)
    try:
        if data[:4096].lstrip()[:1] == b"[":  # Chrome's bare list of events
            event = ShapedEvent if shapes else Event
            file = File(events=msgspec.json.decode(data, type=list[event]))  # type: ignore[valid-type]
        else:
            file = msgspec.json.decode(data, type=ShapedFile if shapes else File)
    except msgspec.ValidationError as error:
        raise NotATraceError(
            f"JSON, but not a profiler trace ({error})",
            "give a file written by torch.profiler's export_chrome_trace",
            path,
        ) from error
    except RecursionError as error:
        raise InputError("not a profiler trace (it is nested too deeply)", "record it again", path) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        cut = "truncated" in str(error)
        what = "the JSON is cut off" if cut else f"not valid JSON ({error})"
        raise InputError(what, "copy or record it again", path) from error
    file.path = str(path)
    if abs(file.base_ns) >= LIMIT:
        raise InputError(
            "not a profiler trace (baseTimeNanoseconds is out of range)", "record it again", path
        )
    return file


class Events:
    """The complete events of a file, by category; those without a time are left out and counted."""

    def __init__(self, events: list[Event]) -> None:
        self.dropped: dict[str, Dropped] = {}
        self._by_category: defaultdict[str | None, list[Event]] = defaultdict(list)
        by_category = self._by_category
        begun: Counter[str | None] = Counter()
        for event in events:
            if event.ph == "X":
                by_category[event.cat].append(event)
            elif event.ph == "B":
                begun[event.cat] += 1
        # PyTorch writes complete events; other writers' begin and end pairs are not put together.
        for category, count in begun.items():
            what = f"{category} events"
            self.dropped[f"begun {category}"] = Dropped(count, what, "they are begin and end pairs")

    def of(self, categories: set[str]) -> list[Event]:
        """All events of some categories, whatever their case."""
        found: list[Event] = []
        for category, events in self._by_category.items():
            if category is not None and category.lower() in categories:
                timed = [e for e in events if e.ts is not ABSENT and e.dur is not ABSENT]
                found += timed
                if len(timed) < len(events):
                    without = len(events) - len(timed)
                    self.dropped[category] = Dropped(without, f"{category} events", "they carry no time")
        return found

    def untimed(self, categories: set[str]) -> list[Event]:
        """All events of some categories, also those without a time."""
        some = [e for c, e in self._by_category.items() if c is not None and c.lower() in categories]
        return [event for events in some for event in events]

    def sample(self, categories: set[str]) -> Iterator[Event]:
        """The first few events of each category."""
        for category, events in self._by_category.items():
            if category is not None and category.lower() in categories:
                yield from events[:100]


def integers(values: list[Any], default: int = NA, instead: list[Any] | None = None) -> Int64:
    """Integers of the file as a column, also where they are written as text.

    Where a value is none, the one at its place in `instead` is taken, else the default.
    """
    with suppress(ValueError):  # lists among them
        column = np.array(values)
        if column.dtype == np.int64 and column.ndim == 1:  # no text, None or list
            return column
    others = [default] * len(values) if instead is None else [whole(other, default) for other in instead]
    return np.array([whole(v, other) for v, other in zip(values, others, strict=True)], np.int64)


def whole(value: Any, default: int) -> int:
    """An integer of the file, also where it is written as text; else the default, also where 64 bits do not hold it."""
    try:
        number = int(value) if isinstance(value, int | str) and len(str(value)) < 20 else default
    except ValueError:
        return default
    return number if -LIMIT < number < LIMIT else default


def optional(value: Any) -> int | None:
    """Like `whole`, None where there is none."""
    number = whole(value, NA)
    return None if number == NA else number


class TimeError(ValueError):
    """A time that is no number."""


def spans(events: Sequence[Event]) -> tuple[Int64, Int64]:
    """Start and end of each event in ns. Raises `TimeError`."""
    start = nanoseconds([e.ts for e in events])
    return start, start + nanoseconds([e.dur for e in events])


def nanoseconds(texts: Sequence[msgspec.Raw]) -> Int64:
    """Decimal microseconds, as they stand in the file, to integer ns, exactly.

    Digits below the nanosecond (no known profiler writes them) are rounded half to even.

    Raises
    ------
    TimeError
        A text is not a number.
    """
    if not len(texts):
        return np.empty(0, np.int64)
    try:
        # One text, split by Arrow: half the time of a Python object each.
        joined = pc.cast(pa.array([b"\n".join(texts)], pa.large_binary()), pa.large_string())
        exact = pc.cast(pc.split_pattern(joined, "\n").values, pa.decimal128(22, 3))
    except pa.ArrowInvalid:
        exact = ()
    if len(exact) != len(texts):  # in quotes, finer than a nanosecond, or no number at all
        times = [_exact(bytes(text).decode("ascii", "replace").strip('"')) for text in texts]
        return _in_range(np.array(times, np.int64))
    # A decimal128 is a 128-bit integer of thousandths; times fit its low half.
    halves = np.frombuffer(exact.buffers()[1], np.int64)[: 2 * len(texts)]
    low, high = halves[::2], halves[1::2]
    if bool((high != low >> 63).any()):
        raise TimeError("a time is out of range")
    return _in_range(low)


def _in_range(times: Int64) -> Int64:
    """A copy, if every time leaves room for sums in 64 bits."""
    if not within(times):
        raise TimeError("a time is out of range")
    return np.array(times, np.int64)


def _exact(text: str) -> int:
    try:
        number = decimal.Decimal(text) * 1000
        if abs(number) >= LIMIT:
            raise TimeError("a time is out of range")
        return int(number.to_integral_value(decimal.ROUND_HALF_EVEN))
    except (decimal.InvalidOperation, OverflowError) as error:
        raise TimeError(f"a time reads {text[:40]!r}") from error
