"""One `Trace` of the files that were read: ranks numbered, clocks shifted, names classified, ops sorted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..classify import Classifier, Collective, Kind, Verdict
from ..errors import InputError
from ..intervals import Int64, Spans, intersect, measure, shift, span
from ..trace import (
    LANE_COLUMNS,
    NA,
    NAME_COLUMNS,
    NOT_ALIGNED,
    RANGE_COLUMNS,
    RANK_COLUMNS,
    Dropped,
    Provenance,
    Trace,
    collectives,
    empty_ranges,
    kinds,
)
from .raw import FROM_NAME, RawTrace, Unit, within

__all__ = ["assemble"]

Int32 = npt.NDArray[np.int32]
Int8 = npt.NDArray[np.int8]

KIND_CODE = {kind: code for code, kind in enumerate(Kind)}
COLLECTIVE_CODE = {collective: code for code, collective in enumerate(Collective)}

# A kernel's name tells these only vaguely (NCCL runs all-to-all as send/recv); what the program recorded wins.
VAGUE = [COLLECTIVE_CODE[Collective.OTHER], COLLECTIVE_CODE[Collective.SEND_RECV]]

# From this share on, the profiler's own stalls are a visible part of what looks like idle time.
OVERHEAD_SHARE = 0.05


def assemble(files: Sequence[RawTrace], classifier: Classifier, *, session_clock: bool = True) -> Trace:
    """Bring the files together; `files` are in natural order of their paths.

    With `session_clock` their clocks are brought together by the wall clock that each records.

    Raises
    ------
    InputError
        Two files claim one rank, or some have GPU work and others none.
    """
    for file in files:
        _drop_backward(file)
    host = _one_kind_of_lanes(files)
    ranks, rank_of, ranks_from, recorded = _number_ranks(files)
    origin, clock = _bring_clocks_together(files, session_clock)
    names, name_of = _merge_names(files)
    verdicts = [classifier.host(n) if host else classifier.kernel(n, short) for n, short in names]
    shapes, shape_of = _merge_shapes(files)
    stalls = _stalls(files, rank_of)
    ops, lanes = _ops(files, rank_of, name_of, shape_of, verdicts)
    ranges = _ranges(files, rank_of)
    _refine_collectives(ops, ranges, verdicts, classifier)
    provenance = Provenance(
        sources=tuple(file.source for file in files),
        lanes=files[0].lanes,
        ranks_from=ranks_from,
        ranks_recorded=recorded,
        clock=clock,
        origin_ns=origin,
        world_size=max((f.world_size for f in files if f.world_size is not None), default=None),
        command=next((f.command for f in files if f.command is not None), None),
        link=next((f.link for f in files if f.link is not None), None),
        from_ranges=any(f.from_ranges for f in files),
        dropped=_merge_dropped(files),
        warnings=tuple(
            dict.fromkeys(
                [w for f in files for w in _named(f, len(files))]
                + _overhead_warnings(stalls, ops)
                + _idle_rules(classifier, verdicts)
            )
        ),
    )
    return Trace(
        ops.frame(),
        ranges,
        _name_table(names, verdicts),
        lanes,
        ranks,
        provenance,
        communicators=tuple(_communicators(files)),
        shapes=shapes,
        stalls=stalls,
        graphs=_graphs(files, rank_of),
    )


def _drop_backward(file: RawTrace) -> None:
    for times in (file.ops.start, file.ops.end):
        if not within(times):
            raise InputError(
                "holds a time that is out of range: it is damaged",
                "export or record it again",
                file.source.path,
            )
    backward = file.ops.end < file.ops.start
    if backward.any():
        file.dropped.append(Dropped(int(backward.sum()), "ops", "they end before they start"))
        file.ops.drop(~backward)
    if not len(file.ops):
        raise InputError("holds no ops that could be used", "record it again", file.source.path)


# -- ranks and clocks ----------------------------------------------------------------------------------------


def _one_kind_of_lanes(files: Sequence[RawTrace]) -> bool:
    gpu = [f for f in files if f.lanes == "gpu"]
    host = [f for f in files if f.lanes == "host"]
    if gpu and host:
        raise InputError(
            f"holds no GPU work, while {gpu[0].source.path} does; the two cannot be compared",
            "leave it out, or record all ranks alike",
            host[0].source.path,
        )
    return bool(host)


RankOf = dict[tuple[int, int], int]
"""Rank by (file, unit)."""


def _number_ranks(files: Sequence[RawTrace]) -> tuple[pd.DataFrame, RankOf, str, bool]:
    """Recorded ranks where every unit has one; else the order of (file, process, device). And which of the two."""
    listed = [(f, u, unit) for f, file in enumerate(files) for u, unit in enumerate(file.units)]
    recorded = all(unit.rank is not None for _, _, unit in listed)
    if recorded:
        rank_of = {(f, u): int(unit.rank or 0) for f, u, unit in listed}
        how = "; ".join(dict.fromkeys(file.ranks_from or "" for file in files))
        _refuse_one_rank_twice(files, listed)
    else:
        listed.sort(
            key=lambda item: (
                item[0],
                item[2].order,
                item[2].pid or 0,
                item[2].process,
                -1 if item[2].device is None else item[2].device,
            )
        )
        rank_of = {(f, u): rank for rank, (f, u, _) in enumerate(listed)}
        known = sum(unit.rank is not None for _, _, unit in listed)
        order = (
            "files in natural order, then process, then device" if len(files) > 1 else "process, then device"
        )
        how = f"not recorded: numbered by {order}"
        if len(files) == 1 and files[0].numbered is not None:
            how = files[0].numbered
        elif known:
            how = f"recorded for {known} of {len(listed)} only, so all are numbered by {order}"
    rows = sorted(
        (
            rank_of[f, u],
            NA if unit.device is None else unit.device,
            NA if unit.pid is None else unit.pid,
            unit.gpu,
            files[f].source.path,
            f << 32 | unit.clock,
        )
        for f, u, unit in listed
    )
    # As objects, since a path that is not UTF-8 is no text to pandas.
    ranks = pd.DataFrame(rows, columns=list(RANK_COLUMNS), dtype=object)
    ranks["clock"] = pd.factorize(ranks["clock"])[0]
    return ranks.astype(dict.fromkeys(("rank", "device", "pid"), "int64")), rank_of, how, recorded


def _refuse_one_rank_twice(files: Sequence[RawTrace], listed: list[tuple[int, int, Unit]]) -> None:
    seen: dict[int, str] = {}
    for f, _, unit in listed:
        path = files[f].source.path
        assert unit.rank is not None
        if unit.rank in seen:
            raise InputError(
                f"says it is rank {unit.rank}, and so does {seen[unit.rank]}",
                "give one file per rank",
                path,
            )
        seen[unit.rank] = path


def _bring_clocks_together(files: Sequence[RawTrace], session_clock: bool) -> tuple[int | None, str]:
    """Shift every file to the earliest one's time 0, by their wall clocks."""
    if len(files) == 1:
        return files[0].origin_ns, files[0].clock or "one file, one clock"
    if not session_clock:
        return None, f"{NOT_ALIGNED}, as asked for: each file's own; times of ranks do not compare"
    origins = [f.origin_ns for f in files]
    known = [o for o in origins if o is not None]
    if len(known) < len(files):
        return None, f"{NOT_ALIGNED}: not every file records its wall clock; times of ranks do not compare"
    first = min(known)
    for file, origin in zip(files, known, strict=True):
        _shift(file, origin - first)
    return first, "by each file's recorded wall clock"


def _shift(file: RawTrace, by: int) -> None:
    for table, columns in ((file.ops, ("start", "end", "launch")), (file.ranges, ("start", "end"))):
        for column in columns:
            values = getattr(table, column)
            values[values != NA] += by
    file.overhead = {key: shift(spans, by) for key, spans in file.overhead.items()}
    file.graphs = {key: shift(spans, by) for key, spans in file.graphs.items()}


# -- names ---------------------------------------------------------------------------------------------------


def _merge_names(files: Sequence[RawTrace]) -> tuple[list[tuple[str, str | None]], list[Int32]]:
    merged: dict[tuple[str, str | None], int] = {}
    maps = [
        np.array([merged.setdefault(pair, len(merged)) for pair in file.names.pairs], np.int32)
        for file in files
    ]
    return list(merged), maps


def _merge_shapes(files: Sequence[RawTrace]) -> tuple[tuple[str, ...], list[Int32]]:
    """All shapes, and for each file the position of each of its own among them; the last is that of -1."""
    merged: dict[str, int] = {}
    maps = [
        np.array([*(merged.setdefault(s, len(merged)) for s in file.shapes), -1], np.int32) for file in files
    ]
    return tuple(merged), maps


def _name_table(names: list[tuple[str, str | None]], verdicts: list[Verdict]) -> pd.DataFrame:
    rows = [
        (
            string,
            short,
            (v.kind or Kind.COMPUTE).value,
            v.collective and v.collective.value,
            v.library,
            v.fused_comm,
            v.rule,
        )
        for (string, short), v in zip(names, verdicts, strict=True)
    ]
    return pd.DataFrame(rows, columns=list(NAME_COLUMNS)).astype(
        {c: object for c in NAME_COLUMNS if c != "fused_comm"}
    )


# -- ops -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Ops:
    start: Int64
    end: Int64
    rank: Int32
    lane: Int32
    name: Int32
    kind: Int8
    collective: Int8
    launch: Int64
    thread: Int64
    bytes: Int64
    group: Int32
    communicator: Int32
    sequence: Int32
    shape: Int32

    def frame(self) -> pd.DataFrame:
        columns = {column: getattr(self, column) for column in self.__slots__}
        columns["kind"] = kinds(self.kind)
        columns["collective"] = collectives(self.collective)
        return pd.DataFrame(columns, copy=False)


def _ops(
    files: Sequence[RawTrace],
    rank_of: RankOf,
    name_of: list[Int32],
    shape_of: list[Int32],
    verdicts: list[Verdict],
) -> tuple[_Ops, pd.DataFrame]:
    def joined(column: str) -> npt.NDArray:  # type: ignore[type-arg]
        parts = [getattr(file.ops, column) for file in files]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    rank = np.concatenate(
        [
            np.array([rank_of[f, u] for u in range(len(file.units))], np.int32)[file.ops.unit]
            for f, file in enumerate(files)
        ]
    )
    name = np.concatenate([name_of[f][file.ops.name] for f, file in enumerate(files)])
    numbers = _communicators(files)
    communicator = np.concatenate(
        [
            np.array([*(numbers[n] for n in file.communicators), -1], np.int32)[file.ops.communicator]
            for file in files
        ]
    )
    shape = np.concatenate([shape_of[f][file.ops.shape] for f, file in enumerate(files)])
    device = np.concatenate(
        [
            np.array([NA if u.device is None else u.device for u in file.units], np.int64)[file.ops.unit]
            for file in files
        ]
    )
    lane, lanes = _lanes(rank, device, joined("stream"), files[0].lanes)
    del device
    order = _order(rank, joined("start"))

    def sorted_(values: npt.NDArray) -> npt.NDArray:  # type: ignore[type-arg]
        if order is None or (values == values[0]).all():  # a column of which nothing is known is in any order
            return values
        return values[order]

    name = sorted_(name)
    kind_of = np.array([KIND_CODE[v.kind or Kind.COMPUTE] for v in verdicts], np.int8)
    collective_of = np.array(
        [-1 if v.collective is None else COLLECTIVE_CODE[v.collective] for v in verdicts], np.int8
    )
    collective = collective_of[name]
    recorded = sorted_(joined("collective"))
    told = (recorded != FROM_NAME) & (collective >= 0)
    collective[told] = recorded[told]
    ops = _Ops(
        start=sorted_(joined("start")),
        end=sorted_(joined("end")),
        rank=sorted_(rank),
        lane=sorted_(lane),
        name=name,
        kind=kind_of[name],
        collective=collective,
        launch=sorted_(joined("launch")),
        thread=sorted_(joined("thread")),
        bytes=sorted_(joined("bytes")),
        group=sorted_(joined("group")),
        communicator=sorted_(communicator),
        sequence=sorted_(joined("sequence")),
        shape=sorted_(shape),
    )
    return ops, lanes


def _communicators(files: Sequence[RawTrace]) -> dict[str, int]:
    """The communicators of all files, numbered by what names them."""
    return {name: i for i, name in enumerate(dict.fromkeys(n for file in files for n in file.communicators))}


def _order(rank: Int32, start: Int64) -> Int64 | None:
    """Positions that sort by (rank, start), or None where nothing is to be done."""
    if bool(np.all((rank[1:] > rank[:-1]) | ((rank[1:] == rank[:-1]) & (start[1:] >= start[:-1])))):
        return None
    by_start = None if bool(np.all(start[1:] >= start[:-1])) else np.argsort(start, kind="stable")
    # numpy sorts 16-bit keys by radix, in linear time; a rank beyond that is not seen in practice.
    narrow = rank.astype(np.int16) if rank.max() < np.iinfo(np.int16).max else rank
    if by_start is None:
        return np.argsort(narrow, kind="stable")
    return by_start[np.argsort(narrow[by_start], kind="stable")]


def _lanes(rank: Int32, device: Int64, stream: npt.NDArray, kind: str) -> tuple[Int32, pd.DataFrame]:  # type: ignore[type-arg]
    """Number the lanes by (rank, device, stream), so that a lower lane is a lower stream."""
    pair, pairs = pd.factorize(rank.astype(np.int64) << 32 | (device & 0xFFFFFFFF))
    code, codes = pd.factorize((pair << 32) | (stream.astype(np.int64) & 0xFFFFFFFF))
    owner = pairs[codes >> 32]
    table = pd.DataFrame(
        {
            "rank": (owner >> 32).astype(np.int64),
            "device": np.where((owner & 0xFFFFFFFF) == (NA & 0xFFFFFFFF), NA, owner & 0xFFFFFFFF)
            if kind == "host"
            else owner & 0xFFFFFFFF,
            "stream": codes & 0xFFFFFFFF,
        }
    )
    order = np.lexsort((table["stream"], table["device"], table["rank"]))
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    table = table.iloc[order].reset_index(drop=True)
    word = "thread" if kind == "host" else "stream"
    table["label"] = [f"{word} {s}" for s in table["stream"]]
    return place[code], table[list(LANE_COLUMNS)]


def _refine_collectives(
    ops: _Ops, ranges: pd.DataFrame, verdicts: list[Verdict], classifier: Classifier
) -> None:
    """Where a kernel's name is vague, take the collective of the annotation it was launched in."""
    vague = np.flatnonzero(np.isin(ops.collective, VAGUE) & (ops.launch != NA))
    if not len(vague) or not len(ranges):
        return
    meaning = {
        name: COLLECTIVE_CODE[found]
        for name in ranges["name"].cat.categories
        # PyTorch's emit_nvtx adds to a name: "nccl:all_to_all, op_id = 990760".
        if (found := classifier.annotation(name.split(",", 1)[0])) is not None
        and COLLECTIVE_CODE[found] not in VAGUE
    }
    if not meaning:
        return
    telling = ranges[ranges["name"].isin(list(meaning)) & (ranges["end"] != NA)]
    for (rank, thread), group in telling.groupby(["rank", "thread"]):
        here = vague[(ops.rank[vague] == rank) & (ops.thread[vague] == thread)]
        start, end = group["start"].to_numpy(), group["end"].to_numpy()
        at = np.searchsorted(start, ops.launch[here], side="right") - 1
        inside = (at >= 0) & (ops.launch[here] < end[at])
        code = np.array([meaning[n] for n in group["name"]], np.int8)
        ops.collective[here[inside]] = code[at[inside]]


# -- ranges and warnings -------------------------------------------------------------------------------------


def _ranges(files: Sequence[RawTrace], rank_of: RankOf) -> pd.DataFrame:
    parts = []
    for f, file in enumerate(files):
        raw = file.ranges
        if not len(raw):
            continue
        frame = pd.DataFrame(
            {
                "start": raw.start,
                "end": raw.end,
                "thread": raw.thread,
                "name": raw.name,
                "domain": raw.domain,
                "role": raw.role,
                "process": raw.process,
            }
        )
        # A range belongs to its process: to each rank that the process drives.
        owners = pd.DataFrame(
            [(unit.process, rank_of[f, u]) for u, unit in enumerate(file.units)], columns=["process", "rank"]
        )
        parts.append(frame.merge(owners, on="process"))
    if not parts:
        return empty_ranges()
    ranges = pd.concat(parts, ignore_index=True).sort_values(
        ["rank", "start"], kind="stable", ignore_index=True
    )
    ranges = ranges.astype({"rank": "int32", "name": "category", "domain": "category", "role": "category"})
    return ranges[list(RANGE_COLUMNS)]


def _named(file: RawTrace, count: int) -> list[str]:
    """A file's warnings, with its name where there are several."""
    return [f"{file.source.path}: {w}" if count > 1 else w for w in file.warnings]


def _merge_dropped(files: Sequence[RawTrace]) -> tuple[Dropped, ...]:
    total: Counter[tuple[str, str]] = Counter()
    for file in files:
        for dropped in file.dropped:
            total[dropped.what, dropped.why] += dropped.count
    return tuple(Dropped(count, what, why) for (what, why), count in total.items())


def _stalls(files: Sequence[RawTrace], rank_of: RankOf) -> dict[int, Spans]:
    """By rank, when the profiler stalled its process."""
    return {
        rank_of[f, u]: file.overhead[unit.process]
        for f, file in enumerate(files)
        for u, unit in enumerate(file.units)
        if unit.process in file.overhead
    }


def _graphs(files: Sequence[RawTrace], rank_of: RankOf) -> dict[int, Spans]:
    """By rank, when graphs ran that were traced as a whole."""
    return {
        rank_of[f, u]: file.graphs[unit.process, unit.device]
        for f, file in enumerate(files)
        for u, unit in enumerate(file.units)
        if unit.device is not None and (unit.process, unit.device) in file.graphs
    }


def _overhead_warnings(stalls: Mapping[int, Spans], ops: _Ops) -> list[str]:
    """Say where the profiler's own stalls (buffer flushes and the like) fill a visible part of a rank's time."""
    warnings = []
    for rank, spans in stalls.items():
        here = slice(*np.searchsorted(ops.rank, [rank, rank + 1]))
        if not len(ops.start[here]):
            continue
        whole = span(int(ops.start[here][0]), int(ops.end[here].max()))
        stalled = measure(intersect(spans, whole))
        if stalled > OVERHEAD_SHARE * measure(whole):
            warnings.append(
                f"the profiler itself was busy for {100 * stalled / measure(whole):.0f} % of rank {rank}'s "
                "time: some of what looks idle is its doing"
            )
    return warnings


def _idle_rules(classifier: Classifier, verdicts: list[Verdict]) -> list[str]:
    """Say if none of the user's own rules had a say: most likely a pattern is wrong."""
    own = {rule.id for rule in classifier.own}
    if not own or own & {verdict.rule for verdict in verdicts}:
        return []
    return [f"none of your {len(own)} rules matched a name in this trace"]
