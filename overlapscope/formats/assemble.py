"""One `Trace` of the files that were read: ranks numbered, clocks shifted, names classified, ops sorted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ..classify import Classifier, Kind, Verdict
from ..errors import InputError
from ..intervals import Spans, intersect, measure, span
from ..trace import (
    NAME_COLUMNS,
    RANGE_COLUMNS,
    Dropped,
    Provenance,
    Trace,
    empty_ranges,
)
from .op_table import Int32, Ops, build, communicators, refine_collectives
from .ranks import RankOf, bring_clocks_together, number_ranks
from .raw import RawTrace, within

__all__ = ["assemble"]

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
    ranks, rank_of, ranks_from, recorded = number_ranks(files)
    origin, clock = bring_clocks_together(files, session_clock)
    names, name_of = _merge_names(files)
    verdicts = [classifier.host(n) if host else classifier.kernel(n, short) for n, short in names]
    shapes, shape_of = _merge_shapes(files)
    stalls = _stalls(files, rank_of)
    ops, lanes = build(files, rank_of, name_of, shape_of, verdicts)
    ranges = _ranges(files, rank_of)
    refine_collectives(ops, ranges, verdicts, classifier)
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
        communicators=tuple(communicators(files)),
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


def _overhead_warnings(stalls: Mapping[int, Spans], ops: Ops) -> list[str]:
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
