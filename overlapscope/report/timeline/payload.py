"""A timeline as bytes: what the script in a page or in a notebook takes, and nothing else.

gzip of ``magic``, the length of the header (uint32, little endian), the header (JSON, UTF-8), and the columns. A
column holds n non-negative integers of ``width`` bytes, all lowest bytes first, then all second ones, and so on,
which gzip shrinks to a fraction; the header says at which byte after itself it begins.

A lane's columns are ``gap`` (from the end of the op before, of the first from 0), ``duration``, both ns, and numbers
of names and paths. A rank's states are ``code`` (see states.py). Times are ns since the header's ``zero``, and
JavaScript holds them as float64: integers up to 2^53 ns, 104 days, are exact, and longer timelines are refused.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...analysis.paths import OUTSIDE, Paths, paths
from ...analysis.selection import of_kind, touching
from ...classify import Kind
from ...errors import OptionError
from ...intervals import Int64, Spans, shift
from ...trace import NA, Trace
from ..colours import COLOURS
from ..document import Document
from ..export import records
from ..opening import headline, setting
from ..words import escape, shortened
from .lanes import STATES, Lane, Lanes, Strip, lanes
from .states import coded

__all__ = ["MAGIC", "payload", "zero_of"]

MAGIC = b"OSTL\x01"
EXACT = 2**53
LONGEST_NAME = 4096  # characters of a name that are kept; the longest of any trace known to us has 1,956
LEVEL = 6  # of gzip; 9 takes three times as long for 1 % less
FIGURES = (
    "window_ns",
    "compute_ns",
    "exposed_comm_ns",
    "exposed_memory_ns",
    "idle_ns",
    "comm_ns",
    "overlap_ns",
)


class _Columns:
    """Gathers columns, and says where each lies."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, values: npt.NDArray[Any]) -> list[int]:
        """[offset, width, n] of integers >= 0."""
        number = values.astype("<u8")
        width = max(1, (int(number.max(initial=0)).bit_length() + 7) // 8)
        packed = number.view(np.uint8).reshape(-1, 8)[:, :width].T.tobytes()
        place = [self.size, width, len(number)]
        self.parts.append(packed)
        self.size += len(packed)
        return place

    def times(self, start: Int64, end: Int64, zero: int) -> dict[str, Any]:
        """Intervals in order, none beginning before the one before it has ended."""
        if not len(start):
            return {"first": 0, "gap": self.add(start), "duration": self.add(start)}
        gap = start.copy()
        gap[1:] -= end[:-1]
        gap[0] = 0
        return {"first": int(start[0]) - zero, "gap": self.add(gap), "duration": self.add(end - start)}


def payload(document: Document, *, most_lanes: int) -> bytes:
    """The timeline of a trace, with the figures of its report.

    Raises
    ------
    OptionError
        It is longer than 104 days, or begins as long after the trace's origin.
    """
    trace, step_pattern = document.trace, document.step_pattern
    drawn = lanes(trace, document.overlap, most=most_lanes, step_pattern=step_pattern)
    zero = zero_of(drawn)
    columns = _Columns()
    names, name_of_op = _names(trace)
    tree = paths(trace, step_pattern)
    details = _details(trace, document)
    header = {
        "zero": str(zero),
        "start": drawn.start - zero,
        "end": drawn.end - zero,
        "host": trace.provenance.lanes == "host",
        "headline": headline(document),
        "setting": [[label, escape(words)] for label, words in setting(document)],
        "warnings": [escape(words) for words in (*drawn.left_out, *_of_zero(zero), *document.warnings)],
        "kinds": [kind.value for kind in Kind],
        "states": list(STATES),
        "colours": {key: [c.words, c.light, c.dark, c.light_text, c.dark_text] for key, c in COLOURS.items()},
        "names": names,
        "range_names": [_kept(str(name)) for name in trace.ranges["name"].cat.categories],
        "paths": _path_words(tree),
        "ranks": _ranks(trace, document, zero),
        "steps": [
            [step.rank, _kept(step.name), step.start - zero, step.end - zero, step.warmup]
            for step in drawn.steps
        ],
        "strips": [_strip(columns, strip, drawn.lanes, zero) for strip in drawn.strips],
        "lanes": [
            _range_lane(columns, trace, lane, zero)
            if lane.ranges
            else _op_lane(columns, trace, lane, zero, name_of_op, tree, details)
            for lane in drawn.lanes
        ],
    }
    said = json.dumps(header, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    whole = b"".join([MAGIC, len(said).to_bytes(4, "little"), said, *columns.parts])
    return gzip.compress(whole, LEVEL, mtime=0)


def zero_of(drawn: Lanes) -> int:
    """What times are counted from: the trace's origin, unless that is too far away for exact numbers.

    Raises OptionError where the timeline is too long to be exact.
    """
    if drawn.end - drawn.start >= EXACT // 4:
        raise OptionError(
            "a timeline of more than 26 days cannot be drawn", "name a shorter piece", "--window"
        )
    return 0 if max(abs(drawn.start), abs(drawn.end)) < EXACT // 4 else drawn.start


def _of_zero(zero: int) -> list[str]:
    return [f"times count from {zero:,} ns after the trace's origin"] if zero else []


def _kept(name: str) -> str:
    return shortened(escape(name), LONGEST_NAME)


def _names(trace: Trace) -> tuple[list[list[Any]], Int64]:
    """[name, short name or null, kind, collective or null] of each distinct one, and each op's position in it."""
    ops = trace.ops
    kind, collective = (ops[c].cat.codes.to_numpy().astype(np.int64) for c in ("kind", "collective"))
    key = (ops["name"].to_numpy().astype(np.int64) * 64 + kind) * 64 + collective + 1
    distinct, position = np.unique(key, return_inverse=True)
    strings, short = trace.names["string"].to_numpy(), trace.names["short"].to_numpy()
    collectives = ops["collective"].cat.categories
    rows: list[list[Any]] = []
    for value in distinct.tolist():
        name, of_kind, of_collective = value // 4096, value // 64 % 64, value % 64 - 1
        brief = short[name] if isinstance(short[name], str) and short[name] != strings[name] else None
        rows.append(
            [
                _kept(strings[name]),
                None if brief is None else _kept(brief),
                of_kind,
                collectives[of_collective] if of_collective >= 0 else None,
            ]
        )
    return rows, np.asarray(position, np.int64)


def _path_words(tree: Paths) -> list[str]:
    return [shortened(" › ".join(escape(name) for name in path), LONGEST_NAME) for path in tree.names]


def _details(trace: Trace, document: Document) -> dict[str, Int64]:
    """Of each op what is known of few: 0 where it is not, else one more than it is."""
    nbytes = trace.ops["bytes"].to_numpy()
    found = {"bytes": np.where(nbytes == NA, 0, nbytes + 1)}
    comm = np.concatenate(
        [_instances_of(trace, rank, window) for rank, window in document.overlap.windows.of_rank.items()]
    )
    for column in ("exposed_wait_ns", "wait_ns", "match"):
        known = document.overlap.instances[column]
        found[column] = np.zeros(len(trace.ops), np.int64)
        found[column][comm] = (known + 1).fillna(0).to_numpy(np.int64)
    return found


def _instances_of(trace: Trace, rank: int, window: Spans) -> Int64:
    """Positions of the ops that are a rank's rows of `Overlap.instances`."""
    ops = trace.of_rank(rank)
    inside = touching(window, ops["start"].to_numpy(), ops["end"].to_numpy())
    return np.asarray(ops.index.to_numpy()[inside & of_kind(ops, Kind.COMM)], np.int64)


def _ranks(trace: Trace, document: Document, zero: int) -> list[dict[str, Any]]:
    """Each rank's figures, as the JSON report has them, and when they count."""
    late = document.stragglers.set_index("rank")["cost_ns"]
    ahead = document.overlap.matching.clocks.ahead(document.overlap.windows.of_rank)
    gpus = dict(zip(trace.ranks["rank"].tolist(), trace.ranks["gpu"], strict=True))
    rows = []
    for row in records(document.overlap.ranks):
        window = shift(document.overlap.windows.of_rank[row["rank"]], -ahead[row["rank"]])
        gpu = gpus[row["rank"]]
        rows.append(
            {
                "rank": row["rank"],
                "gpu": _kept(gpu) if isinstance(gpu, str) else None,
                "windows": [
                    [int(a) - zero, int(b) - zero] for a, b in zip(window.start, window.end, strict=True)
                ],
                "cost_ns": int(late[row["rank"]]) if row["rank"] in late.index else None,
                **{figure: row[figure] for figure in FIGURES},
            }
        )
    return rows


def _strip(columns: _Columns, strip: Strip, drawn: Sequence[Lane], zero: int) -> dict[str, Any]:
    extra, code = coded(strip, [lane for lane in drawn if lane.rank == strip.rank and not lane.ranges])
    return {"rank": strip.rank, "extra": columns.times(extra, extra, zero), "code": columns.add(code)}


def _range_lane(columns: _Columns, trace: Trace, lane: Lane, zero: int) -> dict[str, Any]:
    name = trace.ranges["name"].cat.codes.to_numpy()[lane.position]
    return {
        "rank": lane.rank,
        "label": escape(lane.label),
        "ranges": True,
        "row": lane.row,
        **columns.times(lane.start, lane.end, zero),
        "name": columns.add(name),
    }


def _op_lane(
    columns: _Columns,
    trace: Trace,
    lane: Lane,
    zero: int,
    name_of_op: Int64,
    tree: Paths,
    details: dict[str, Int64],
) -> dict[str, Any]:
    at = lane.position
    written: dict[str, Any] = {
        "rank": lane.rank,
        "label": escape(lane.label),
        "ranges": False,
        "row": lane.row,
        **columns.times(lane.start, lane.end, zero),
        "name": columns.add(name_of_op[at]),
    }
    if len(tree.names):
        written["path"] = columns.add(np.maximum(tree.of_op[at], OUTSIDE) + 1)
    for column, values in details.items():
        if values[at].any():
            written[column] = columns.add(values[at])
    return written
