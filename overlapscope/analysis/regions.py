"""Whose time it is: compute and communication by range of the program, and by stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..classify import Kind
from ..intervals import Int64, Spans, covered, intersect, union, unions
from ..trace import NA, Trace
from .overlap import Overlap, overlap
from .paths import OUTSIDE, UNKNOWN, Paths, paths
from .selection import COMPUTE, of_kind, running, touching

__all__ = ["REGION_COLUMNS", "STREAM_COLUMNS", "by_range", "by_stream"]

FIGURES: dict[str, str] = {
    "n_ops": "int64",
    "n_comm": "int64",
    "compute_ns": "int64",
    "comm_ns": "int64",
    "memory_ns": "int64",
    "overlap_ns": "int64",
    "exposed_comm_ns": "int64",
}
FEW_ROWS = 16  # a pass over a rank's ops for each costs less than sorting them

REGION_COLUMNS: dict[str, str] = {"rank": "int64", "path": "object", "place": "object", **FIGURES}
STREAM_COLUMNS: dict[str, str] = {"rank": "int64", "device": "Int64", "stream": "int64", **FIGURES}


def by_range(trace: Trace, result: Overlap | None = None, step_pattern: str | None = None) -> pd.DataFrame:
    """Compute and communication of what was launched in each range of the program or in a range inside it.

    Parameters
    ----------
    trace : Trace
    result : Overlap, optional
        What `overlap` found, with its windows; of the default window where left out.
    step_pattern : str, optional
        Names of step ranges, as in `windows`: steps are no level of a path.

    Returns
    -------
    DataFrame
        One row per rank and path that an op of the window was launched in, in the order of the program, each
        above those inside it. ``path``: tuple of names, outermost first. ``place``: "range"; "outside" for what
        was launched in no range, "unknown" where the trace does not say where an op was launched (both with an
        empty path). ``n_ops`` and ``n_comm`` count ops that touch the window. In ns inside it: ``compute_ns``,
        ``comm_ns``, ``memory_ns`` in which at least one op of the row computes, communicates, copies;
        ``overlap_ns``, the part of ``comm_ns`` in which anything on the rank computes; ``exposed_comm_ns``, the
        exposed time of the row's own communication (of several at once, of the one that started first).
        ``exposed_comm_ns`` over the rows with ``len(path) <= 1`` adds up to the rank's exactly; the other times
        of rows may lie beside one another.

    Raises
    ------
    OptionError
        The pattern is not a regular expression.
    """
    result = overlap(trace) if result is None else result
    tree = paths(trace, step_pattern)
    places = [("range", path) for path in tree.names] + [("outside", ()), ("unknown", ())]
    parts = []
    for rank, ops in _ops_of_ranks(trace, result).items():
        op, row = _with_those_around(tree, tree.of_op[ops.position])
        table = _figures(ops, op, row, len(places))
        at = np.flatnonzero(table["n_ops"])
        top = np.array([len(path) <= 1 for _, path in places], np.bool_)
        _assert_shared_out(result, rank, int(table["exposed_comm_ns"][top].sum()))
        head = {"rank": rank, "path": [places[i][1] for i in at], "place": [places[i][0] for i in at]}
        parts.append(pd.DataFrame({**head, **{c: v[at] for c, v in table.items()}}))
    return pd.concat(parts, ignore_index=True).astype(REGION_COLUMNS)


def by_stream(trace: Trace, result: Overlap | None = None) -> pd.DataFrame:
    """Compute and communication on each stream, on a CPU run on each thread: one row per lane that has any.

    ``rank``, ``device`` (missing on a CPU run), ``stream``, and the figures of `by_range`. ``exposed_comm_ns``
    adds up to the rank's exactly.
    """
    result = overlap(trace) if result is None else result
    parts = []
    for rank, ops in _ops_of_ranks(trace, result).items():
        table = _figures(ops, np.arange(len(ops.position)), ops.lane, len(trace.lanes))
        _assert_shared_out(result, rank, int(table["exposed_comm_ns"].sum()))
        at = np.flatnonzero(table["n_ops"])
        device, stream = (trace.lanes[c].to_numpy()[at] for c in ("device", "stream"))
        head = {"rank": rank, "device": pd.array(device, "Int64"), "stream": stream}
        head["device"][device == NA] = pd.NA
        parts.append(pd.DataFrame({**head, **{c: v[at] for c, v in table.items()}}))
    return pd.concat(parts, ignore_index=True).astype(STREAM_COLUMNS)


@dataclass(frozen=True, slots=True, eq=False)
class _Ops:
    """The ops of a rank that touch its window."""

    position: Int64  # in trace.ops
    start: Int64
    end: Int64
    lane: Int64
    compute: npt.NDArray[np.bool_]
    comm: npt.NDArray[np.bool_]
    memory: npt.NDArray[np.bool_]
    exposed: Int64  # ns of each, 0 where it is no communication
    window: Spans
    all_compute: Spans  # of the rank, inside the window


def _ops_of_ranks(trace: Trace, result: Overlap) -> Mapping[int, _Ops]:
    ranks = trace.ops["rank"].to_numpy()
    found = {}
    for rank, window in result.windows.of_rank.items():
        ops = trace.of_rank(rank)
        inside = touching(window, ops["start"].to_numpy(), ops["end"].to_numpy())
        start, end, lane = (ops[c].to_numpy()[inside] for c in ("start", "end", "lane"))
        comm = of_kind(ops, Kind.COMM)[inside]
        exposed = np.zeros(len(start), np.int64)
        mine = (result.instances["rank"] == rank).to_numpy()
        assert np.array_equal(result.instances["start"].to_numpy()[mine], start[comm]), (
            f"rank {rank}: the instances are not the communication ops of the window"
        )
        exposed[comm] = result.instances["exposed_ns"].to_numpy()[mine]
        found[rank] = _Ops(
            position=int(np.searchsorted(ranks, rank)) + np.flatnonzero(inside),
            start=start,
            end=end,
            lane=lane.astype(np.int64),
            compute=of_kind(ops, *COMPUTE)[inside],
            comm=comm,
            memory=of_kind(ops, Kind.MEMORY)[inside],
            exposed=exposed,
            window=window,
            all_compute=intersect(running(ops, *COMPUTE), window),
        )
    return found


def _with_those_around(tree: Paths, node: Int64) -> tuple[Int64, Int64]:
    """Each op with its own path and with every one around it: (position of the op, row)."""
    op = np.arange(len(node))
    row = np.select([node == OUTSIDE, node == UNKNOWN], [len(tree.names), len(tree.names) + 1], node)
    above = np.append(tree.parent, [-1, -1])  # the last two: of OUTSIDE and UNKNOWN
    ops, rows = [op], [row]
    while True:
        inside = above[node] >= 0
        op, node = op[inside], above[node[inside]]
        if not len(op):
            return np.concatenate(ops), np.concatenate(rows)
        ops.append(op)
        rows.append(node)


def _figures(ops: _Ops, op: Int64, row: Int64, n_rows: int) -> dict[str, Int64]:
    """The columns of `FIGURES`, of `n_rows` rows; an op counts in every row that it is paired with."""

    def add_up(rows: Int64, values: Int64) -> Int64:
        total = np.zeros(n_rows, np.int64)
        np.add.at(total, rows, values)
        return total

    def together(kind: npt.NDArray[np.bool_]) -> tuple[Int64, Int64, Int64]:
        mine = kind[op]
        some, rows = op[mine], row[mine]
        return _unions(rows, ops.start[some], ops.end[some])

    compute, comm, memory = (together(kind) for kind in (ops.compute, ops.comm, ops.memory))
    return {
        "n_ops": np.bincount(row, minlength=n_rows),
        "n_comm": np.bincount(row[ops.comm[op]], minlength=n_rows),
        "compute_ns": add_up(compute[0], covered(ops.window, *compute[1:])),
        "comm_ns": add_up(comm[0], covered(ops.window, *comm[1:])),
        "memory_ns": add_up(memory[0], covered(ops.window, *memory[1:])),
        "overlap_ns": add_up(comm[0], covered(ops.all_compute, *comm[1:])),
        "exposed_comm_ns": add_up(row, ops.exposed[op]),
    }


def _unions(row: Int64, start: Int64, end: Int64) -> tuple[Int64, Int64, Int64]:
    """`unions`; of few rows one after the other, since ops come sorted and a union is then linear."""
    distinct = np.flatnonzero(np.bincount(row)) if len(row) else row
    if len(distinct) > FEW_ROWS:
        return unions(row, start, end)
    found = [union(start[mine], end[mine]) for mine in (row == r for r in distinct.tolist())]
    rows = np.repeat(distinct, [len(spans) for spans in found])
    none = np.empty(0, np.int64)
    return (
        rows,
        np.concatenate([none, *(spans.start for spans in found)]),
        np.concatenate([none, *(spans.end for spans in found)]),
    )


def _assert_shared_out(result: Overlap, rank: int, exposed: int) -> None:
    (whole,) = result.ranks.loc[result.ranks["rank"] == rank, "exposed_comm_ns"]
    assert exposed == whole, f"rank {rank}: rows expose {exposed} ns, the rank {whole}"
