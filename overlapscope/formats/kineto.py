"""PyTorch profiler traces (Kineto): Chrome-trace JSON, plain or gzipped.

Event times are decimal microseconds in the text; they are read from the text itself, since a double cannot
hold every nanosecond of them. ``ts`` counts from ``baseTimeNanoseconds`` (absent in older files: the epoch).
"""

from __future__ import annotations

import decimal
import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..classify import Classifier, Collective, Kind, Verdict
from ..errors import InputError, NotATraceError
from ..intervals import Int64, Spans, covered, outermost, union
from ..trace import NA, Dropped, Source
from .raw import Names, RawOps, RawRanges, RawTrace, Unit

__all__ = ["read"]

# Categories as PyTorch 1.8 to 2.x writes them, lower-cased.
KERNEL = {"kernel"}
MEMORY = {"gpu_memcpy", "memcpy", "gpu_memset", "memset"}
LAUNCH = {
    "cuda_runtime",
    "cuda_driver",
    "runtime",
    "driver",
    "hip_runtime",
    "xpu_runtime",
    "privateuse1_runtime",
}
HOST = {"cpu_op", "operator"}
ANNOTATION = {"user_annotation"}
OVERHEAD = {"overhead"}

COLLECTIVES = [c.value for c in Collective]

# Bytes of an element, by the names PyTorch records ("dtype" of a collective, "Input type" of an operator).
ELEMENT_BYTES = {
    **dict.fromkeys(("byte", "char", "bool", "unsigned char", "signed char", "int8_t", "uint8_t"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("half", "bfloat16", "short", "c10::half", "c10::bfloat16", "short int"), 2),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("double", "long", "long int"), 8),
}
# Collectives whose input is already the whole array; for the others the input is a shard of unknown number.
WHOLE_INPUT = {Collective.ALL_REDUCE, Collective.BROADCAST, Collective.REDUCE, Collective.REDUCE_SCATTER}


ABSENT = msgspec.Raw(b"")


class _Args(msgspec.Struct, gc=False):
    device: Any = None
    stream: Any = None
    correlation: Any = None
    bytes: Any = None
    collective: Any = msgspec.field(default=None, name="Collective name")
    elements_in: Any = msgspec.field(default=None, name="In msg nelems")
    elements_out: Any = msgspec.field(default=None, name="Out msg nelems")
    dtype: Any = None
    group: Any = msgspec.field(default=None, name="Group size")
    input_dims: msgspec.Raw = msgspec.field(default=ABSENT, name="Input Dims")
    input_type: msgspec.Raw = msgspec.field(default=ABSENT, name="Input type")


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str | None = None
    name: Any = ""
    ts: msgspec.Raw = ABSENT
    dur: msgspec.Raw = ABSENT
    pid: Any = None
    tid: Any = None
    args: _Args | None = None


class _File(msgspec.Struct, gc=False):
    events: list[_Event] = msgspec.field(name="traceEvents")
    base_ns: int = msgspec.field(default=0, name="baseTimeNanoseconds")
    distributed: dict[str, Any] | None = msgspec.field(default=None, name="distributedInfo")
    devices: list[dict[str, Any]] | None = msgspec.field(default=None, name="deviceProperties")
    schema: Any = msgspec.field(default=None, name="schemaVersion")


def read(path: Path, classifier: Classifier) -> RawTrace:
    """Read one file.

    A file without GPU activity is read for its host lanes: the operators that compute, and gloo's collectives.

    Raises
    ------
    InputError
        Cut off, not a trace, without ops, or with GPU work that was not recorded.
    """
    file = _decode(path)
    events = _Events(file.events)
    reader = _Reader(path, file, events, classifier)
    trace = reader.gpu() if any(events.sample(KERNEL | MEMORY)) else reader.host()
    trace.dropped += events.dropped.values()
    return trace


def _decode(path: Path) -> _File:
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except EOFError as error:
        raise InputError(
            "the gzip stream ends early, the file was cut off", "copy or record it again", path
        ) from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"not readable as gzip ({error})", "copy or record it again", path) from error
    try:
        if data[:64].lstrip()[:1] == b"[":  # Chrome's bare list of events
            return _File(events=msgspec.json.decode(data, type=list[_Event]))
        return msgspec.json.decode(data, type=_File)
    except msgspec.ValidationError as error:
        raise NotATraceError(
            f"JSON, but not a profiler trace ({error})",
            "give a file written by torch.profiler's export_chrome_trace",
            path,
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        cut = "truncated" in str(error)
        what = "the JSON is cut off" if cut else f"not valid JSON ({error})"
        raise InputError(what, "copy or record it again", path) from error


class _Events:
    """The complete events of a file, by category; those without a time are left out and counted."""

    def __init__(self, events: list[_Event]) -> None:
        self.dropped: dict[str, Dropped] = {}
        self._by_category: dict[str | None, list[_Event]] = {}
        by_category = self._by_category
        for event in events:
            if event.ph == "X":
                some = by_category.get(event.cat)
                if some is None:
                    by_category[event.cat] = [event]
                else:
                    some.append(event)

    def of(self, categories: set[str]) -> list[_Event]:
        found: list[_Event] = []
        for category, events in self._by_category.items():
            if category is not None and category.lower() in categories:
                timed = [e for e in events if e.ts is not ABSENT and e.dur is not ABSENT]
                found += timed
                if len(timed) < len(events):
                    without = len(events) - len(timed)
                    self.dropped[category] = Dropped(without, f"{category} events", "they carry no time")
        return found

    def sample(self, categories: set[str]) -> Iterator[_Event]:
        """The first few events of each category."""
        for category, events in self._by_category.items():
            if category is not None and category.lower() in categories:
                yield from events[:100]


class _Reader:
    def __init__(self, path: Path, file: _File, events: _Events, classifier: Classifier) -> None:
        self.path, self.file, self.events, self.classifier = path, file, events, classifier
        self.distributed = file.distributed or {}

    # -- the two kinds of trace ------------------------------------------------------------------------

    def gpu(self) -> RawTrace:
        kernels, memory = self.events.of(KERNEL), self.events.of(MEMORY)
        activities = kernels + memory
        names, codes = Names(), []
        codes += [names.code(str(e.name)) for e in kernels]
        codes += [names.code(canonical_memory_name(str(e.name))) for e in memory]
        devices = [_whole(e.args.device if e.args else None, _whole(e.pid, 0)) for e in activities]
        units, unit = self._units(devices)
        start, end = self._times(activities)
        ops = RawOps.of(
            start,
            end,
            unit,
            np.array(
                [_whole(e.args.stream if e.args else None, _whole(e.tid, 0)) for e in activities], np.int64
            ),
            np.array(codes, np.int32),
        )
        self._launches(ops, activities)
        ops.bytes = np.array([_whole(e.args.bytes if e.args else None, NA) for e in activities], np.int64)
        self._collective_args(ops, kernels)
        return self._finish("gpu", units, names, ops, self.events.of(ANNOTATION))

    def host(self) -> RawTrace:
        annotations = self.events.of(ANNOTATION)
        verdict = _cached(self.classifier.host)
        comm = [e for e in annotations if verdict(str(e.name)).kind is Kind.COMM]
        if not comm and any(str(e.name).startswith("nccl:") for e in annotations):
            raise InputError(
                "holds NCCL calls but no GPU work: the GPU was not recorded",
                "record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
                self.path,
            )
        activities = comm + self._computing(self.events.of(HOST), verdict)
        if not activities:
            raise InputError("holds no ops: no GPU work and no host operators", "record again", self.path)
        names = Names()
        start, end = self._times(activities)
        thread = np.array([_whole(e.tid, 0) for e in activities], np.int64)
        ops = RawOps.of(
            start,
            end,
            np.zeros(len(activities), np.int32),
            thread,
            np.array([names.code(str(e.name)) for e in activities], np.int32),
        )
        ops.launch, ops.thread = start.copy(), thread.copy()
        for i, event in enumerate(comm):
            ops.bytes[i] = _input_bytes(event, verdict(str(event.name)).collective)
        unit = Unit(pid=self._pid(), rank=self._rank())
        taken = set(map(id, comm))
        ranges = [e for e in annotations if id(e) not in taken]
        return self._finish("host", [unit], names, ops, ranges)

    def _computing(self, operators: list[_Event], verdict: Callable[[str], Verdict]) -> list[_Event]:
        """The operators that are ops: leaf GEMMs and attention, and the outermost of the rest that compute.

        An operator around a GEMM is its wrapper, one inside it its part; neither is an op of its own.
        """
        kinds = [verdict(str(e.name)).kind for e in operators]
        operators = [e for e, kind in zip(operators, kinds, strict=True) if kind is not None]
        leaf = np.array([k in (Kind.GEMM, Kind.ATTENTION) for k in kinds if k is not None], np.bool_)
        start, end = self._times(operators)
        thread = np.array([_whole(e.tid, 0) for e in operators], np.int64)
        keep = np.zeros(len(operators), np.bool_)
        for tid in np.unique(thread):
            here = thread == tid
            of_leaf, rest = np.flatnonzero(here & leaf), np.flatnonzero(here & ~leaf)
            keep[of_leaf[outermost(start[of_leaf], end[of_leaf])]] = True
            taken = union(start[of_leaf], end[of_leaf])
            # One nanosecond at least, so that an empty operator inside a GEMM counts as inside.
            rest = rest[covered(taken, start[rest], np.maximum(end[rest], start[rest] + 1)) == 0]
            keep[rest[outermost(start[rest], end[rest])]] = True
        return [operators[i] for i in np.flatnonzero(keep)]

    # -- parts -----------------------------------------------------------------------------------------

    def _finish(
        self, lanes: str, units: list[Unit], names: Names, ops: RawOps, ranges: list[_Event]
    ) -> RawTrace:
        raw_ranges = self._ranges(ranges)
        overhead = self.events.of(OVERHEAD)
        trace = RawTrace(
            source=Source(str(self.path), "kineto", "PyTorch profiler", _text(self.file.schema)),
            lanes=lanes,
            units=units,
            names=names,
            ops=ops,
            ranges=raw_ranges,
            overhead={0: union(*self._times(overhead))} if overhead else {},
            world_size=_optional(self.distributed.get("world_size")),
            ranks_from="recorded by PyTorch (distributedInfo)" if self._rank() is not None else None,
        )
        _rebase(trace, self.file.base_ns)
        return trace

    def _units(self, devices: list[int]) -> tuple[list[Unit], npt.NDArray[np.int32]]:
        distinct, unit = np.unique(np.array(devices, np.int64), return_inverse=True)
        # A recorded rank names the process; it names a rank only where the process drives one device.
        rank = self._rank() if len(distinct) == 1 else None
        gpus = {_optional(d.get("id")): _text(d.get("name")) for d in self.file.devices or ()}
        pid = self._pid()
        units = [Unit(pid=pid, device=int(d), gpu=gpus.get(int(d)), rank=rank) for d in distinct]
        return units, unit.astype(np.int32)

    def _rank(self) -> int | None:
        return _optional(self.distributed.get("rank"))

    def _pid(self) -> int | None:
        """The process, as the host events name it; GPU events carry the device in its place."""
        pids = Counter(
            e.pid for e in self.events.sample(LAUNCH | HOST | ANNOTATION) if isinstance(e.pid, int)
        )
        return pids.most_common(1)[0][0] if pids else None

    def _times(self, events: Sequence[_Event]) -> tuple[Int64, Int64]:
        try:
            start = nanoseconds([e.ts for e in events])
            return start, start + nanoseconds([e.dur for e in events])
        except ValueError as error:
            raise InputError(f"not a profiler trace ({error})", "record it again", self.path) from error

    def _launches(self, ops: RawOps, activities: list[_Event]) -> None:
        """Join each activity to the host call that launched it, by correlation id (unique in a process)."""
        calls = [e for e in self.events.of(LAUNCH) if e.args is not None]
        if not calls:
            return
        ids = np.array([_whole(e.args.correlation, NA) for e in calls if e.args is not None], np.int64)
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        wanted = np.array([_whole(e.args.correlation if e.args else None, NA) for e in activities], np.int64)
        at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
        known = (ids[at] == wanted) & (wanted > 0)  # 0 is CUPTI's "no correlation"
        launching = [calls[i] for i in order[at[known]]]
        ops.launch[known] = self._times(launching)[0]
        ops.thread[known] = [_whole(e.tid, NA) for e in launching]

    def _collective_args(self, ops: RawOps, kernels: list[_Event]) -> None:
        """Collective, bytes and group size where PyTorch recorded them with the kernel."""
        for i, event in enumerate(kernels):
            args = event.args
            if args is None or args.collective is None:
                continue
            collective = self.classifier.annotation(str(args.collective))
            if collective is not None:
                ops.collective[i] = COLLECTIVES.index(collective.value)
            ops.group[i] = _whole(args.group, -1)
            elements = max(_whole(args.elements_in, -1), _whole(args.elements_out, -1))
            size = ELEMENT_BYTES.get(str(args.dtype).lower())
            if elements >= 0 and size is not None:
                ops.bytes[i] = elements * size

    def _ranges(self, events: list[_Event]) -> RawRanges:
        start, end = self._times(events)
        return RawRanges(
            start=start,
            end=end,
            process=np.zeros(len(events), np.int64),
            thread=np.array([_whole(e.tid, NA) for e in events], np.int64),
            name=[str(e.name) for e in events],
            domain=[""] * len(events),
            role=[""] * len(events),
        )


def nanoseconds(texts: Sequence[msgspec.Raw]) -> Int64:
    """Decimal microseconds, as they stand in the file, to integer ns, exactly.

    Digits below the nanosecond (no known profiler writes them) are rounded half to even.

    Raises
    ------
    ValueError
        A text is not a number.
    """
    written = [bytes(text) for text in texts]
    try:
        exact = pc.cast(pc.cast(pa.array(written, pa.binary()), pa.string()), pa.decimal128(22, 3))
    except pa.ArrowInvalid:  # in quotes, finer than a nanosecond, or no number at all
        return np.array([_exact(text.decode("ascii", "replace").strip('"')) for text in written], np.int64)
    # A decimal128 is a 128-bit integer of thousandths; times fit its low half.
    halves = np.frombuffer(exact.buffers()[1], np.int64)
    return np.array(halves[: 2 * len(written) : 2], np.int64)


def _exact(text: str) -> int:
    try:
        return int((decimal.Decimal(text) * 1000).to_integral_value(decimal.ROUND_HALF_EVEN))
    except (decimal.InvalidOperation, ValueError, OverflowError) as error:
        raise ValueError(f"a time reads {text[:40]!r}") from error


def canonical_memory_name(name: str) -> str:
    """``Memcpy HtoD (Pinned -> Device)`` to ``Memcpy HtoD``; ``Memset (Device)`` to ``Memset``."""
    return name.split("(", 1)[0].strip()


def _rebase(trace: RawTrace, base_ns: int) -> None:
    """Count times from the file's first op or range: what Perfetto shows as 0."""
    firsts = [column.min() for column in (trace.ops.start, trace.ranges.start) if len(column)]
    first = int(min(firsts))
    trace.origin_ns = base_ns + first
    for table, columns in ((trace.ops, ("start", "end", "launch")), (trace.ranges, ("start", "end"))):
        for column in columns:
            values = getattr(table, column)
            values[values != NA] -= first
    trace.overhead = {key: Spans(s.start - first, s.end - first) for key, s in trace.overhead.items()}


def _input_bytes(event: _Event, collective: Collective | None) -> int:
    """Bytes of the whole array from the recorded input, where the input is the whole array."""
    args = event.args
    if args is None or collective not in WHOLE_INPUT or args.input_dims is ABSENT:
        return NA
    try:
        dims = msgspec.json.decode(args.input_dims)
        types = msgspec.json.decode(args.input_type)
        size = sum(
            int(np.prod(d, dtype=np.int64)) * ELEMENT_BYTES[t.lower()]
            for d, t in zip(dims, types, strict=True)
        )
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
        return NA
    return size


def _whole(value: Any, default: int) -> int:
    """An integer of the file, also where it was written as text; else the default."""
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            return default
    return default


def _optional(value: Any) -> int | None:
    number = _whole(value, NA)
    return None if number == NA else number


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _cached(verdict: Callable[[str], Verdict]) -> Callable[[str], Verdict]:
    known: dict[str, Verdict] = {}

    def look_up(name: str) -> Verdict:
        found = known.get(name)
        if found is None:
            found = known[name] = verdict(name)
        return found

    return look_up
