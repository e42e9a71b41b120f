"""The ranges of a program as one tree of paths, and the path in which each op was launched."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..classify import Kind
from ..intervals import Int64, enclosing, innermost
from ..trace import NA, Trace
from .attribution import axis, launched_in
from .window import step_ranges

__all__ = ["OUTSIDE", "UNKNOWN", "Paths", "RangeTree", "paths", "range_tree"]

OUTSIDE, UNKNOWN = -1, -2
"""In `Paths.of_op`: launched in no range; no record of where it was launched."""

LIBRARIES = frozenset(
    [
        "CCCL",
        "MPI",
        "NCCL",
        "NVSHMEM",
        "cuBLAS",
        "cuBLASLt",
        "cuDNN",
        "cuFFT",
        "cuRAND",
        "cuSOLVER",
        "cuSPARSE",
    ]
)
"""NVTX domains in which libraries name their own calls: they say what is called, not what for."""

NO_PLACE = frozenset({"rank", "link"})
"""Roles of ranges that say something of the process, not where in the program it is."""

OF_A_CALL = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = .*", re.DOTALL)
"""What PyTorch's emit_nvtx adds to an operator's name, different at each call."""


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """A path is the names of the ranges around a place in the program, outermost first.

    Steps are no level of it, so that one path holds the same work of every step; nor are the ranges in which
    libraries (NCCL, cuBLAS, ...) name their own calls.

    Attributes
    ----------
    names : tuple of tuple of str
        The distinct paths: each before those below it, neighbours by when they first begin.
    parent : int64 array of shape (paths,)
        Position of the path one level up, -1 where there is none.
    of_op : int64 array of shape (ops,)
        Position of the path in which each op was launched, :data:`OUTSIDE` or :data:`UNKNOWN`.
    """

    names: tuple[tuple[str, ...], ...]
    parent: Int64
    of_op: Int64


@dataclass(frozen=True, slots=True, eq=False)
class RangeTree:
    """The paths that a trace's ranges make, whatever ops there are: `names` and `parent` as in `Paths`.

    `level` and `comm_only` are masks of the ranges that are a level of one, and of those of role ``comm``; `of_range`
    is the position of each range's own path, -1 where it is no level.
    """

    names: tuple[tuple[str, ...], ...]
    parent: Int64
    of_range: Int64
    level: npt.NDArray[np.bool_]
    comm_only: npt.NDArray[np.bool_]


def range_tree(trace: Trace, step_pattern: str | None = None) -> RangeTree:
    """Find the paths of all ranges. Raises OptionError where the pattern is not a regular expression."""
    ranges = trace.ranges
    ends = ranges["end"].to_numpy()
    said = np.logical_or(*step_ranges(trace, step_pattern))
    level = ~said & (ends != NA) & (ends > ranges["start"].to_numpy())
    level &= ~ranges["domain"].isin(LIBRARIES).to_numpy() & ~ranges["role"].isin(NO_PLACE).to_numpy()
    comm_only = (ranges["role"] == "comm").to_numpy()
    of_range, found, parent = _tree(trace, level, _parents(trace, level, comm_only))
    return RangeTree(found, parent, of_range, level, comm_only)


def paths(trace: Trace, step_pattern: str | None = None, tree: RangeTree | None = None) -> Paths:
    """Find every op's path, on the thread that launched it.

    A range of role `comm` is around a collective alone: it may still be open when the program launches what the
    collective is to run beside. So no other op and no other range is ever inside one.

    `tree` is what `range_tree` made of the trace's ranges, where that was asked already.

    Raises
    ------
    OptionError
        The pattern is not a regular expression.
    """
    ranges, ops = trace.ranges, trace.ops
    tree = range_tree(trace, step_pattern) if tree is None else tree
    level, comm_only, of_range = tree.level, tree.comm_only, tree.of_range
    inside = launched_in(trace, level & ~comm_only)
    comm = (ops["kind"] == Kind.COMM.value).to_numpy()
    if comm_only.any():
        inside[comm] = launched_in(trace, level)[comm]
    of_op = np.where(inside >= 0, of_range[inside], OUTSIDE) if len(ranges) else np.full(len(ops), OUTSIDE)
    untold = ((ops["launch"] == NA) | (ops["thread"] == NA)).to_numpy()
    if trace.provenance.lanes == "host":
        # What is recorded is the library's thread, on which the program has no ranges.
        untold = untold | (comm & (inside < 0) & ~_on_thread_with_ranges(trace))
    of_op[untold & (inside < 0)] = UNKNOWN
    return Paths(tree.names, tree.parent, np.asarray(of_op, np.int64))


def _parents(trace: Trace, level: npt.NDArray[np.bool_], leaf: npt.NDArray[np.bool_]) -> Int64:
    """For each range the one around it on its thread, of those that are a level and no leaf; -1 where there is none.

    It is the innermost one that holds all of the range; of a leaf, which may outlast it, all of its beginning.
    """
    parent = np.full(len(level), -1, np.int64)
    some = np.flatnonzero(level)
    if not len(some):
        return parent
    rank, thread, start, end = (trace.ranges[c].to_numpy()[some] for c in ("rank", "thread", "start", "end"))
    first, last = axis(np.tile(rank, 2), np.tile(thread, 2), np.concatenate([start, end])).reshape(2, -1)
    ends = leaf[some]
    inner, outer = np.flatnonzero(ends), np.flatnonzero(~ends)
    for mine, around in (
        (outer, enclosing(first[outer], last[outer])),
        (inner, innermost(first[outer], last[outer], first[inner])),
    ):
        found = around >= 0
        parent[some[mine[found]]] = some[outer[around[found]]]
    return parent


def _tree(
    trace: Trace, level: npt.NDArray[np.bool_], around: Int64
) -> tuple[Int64, tuple[tuple[str, ...], ...], Int64]:
    """The path of each range, all paths, and the parent of each."""
    categories = [OF_A_CALL.sub("", str(name)) for name in trace.ranges["name"].cat.categories]
    code, strings = pd.factorize(np.array(categories, object))
    name = code[trace.ranges["name"].cat.codes.to_numpy()] if len(categories) else code
    start = trace.ranges["start"].to_numpy()
    node = np.full(len(level), -1, np.int64)
    found: list[tuple[str, ...]] = []
    parents: list[int] = []
    left = np.flatnonzero(level)
    while len(left):  # a level of the tree at a time
        up = around[left]
        ready = (up < 0) | (node[up] >= 0)
        mine, above = left[ready], np.where(up >= 0, node[up], -1)[ready]
        keys, which = np.unique((above + 1) * len(strings) + name[mine], return_inverse=True)
        node[mine] = len(found) + which
        for key in keys.tolist():
            parent = key // len(strings) - 1
            found.append((*(found[parent] if parent >= 0 else ()), strings[key % len(strings)]))
            parents.append(parent)
        left = left[~ready]
    order = _in_order(found, parents, node, start)
    place = np.empty(len(order) + 1, np.int64)
    place[order] = np.arange(len(order))
    place[-1] = -1  # which is where position -1 looks
    parent_of = np.array(parents, np.int64)[order]
    return place[node], tuple(found[i] for i in order.tolist()), place[parent_of]


def _in_order(found: list[tuple[str, ...]], parents: list[int], node: Int64, start: Int64) -> Int64:
    """Positions of the paths: each before those below it, neighbours by when they first begin."""
    begin = np.full(len(found), np.iinfo(np.int64).max)
    np.minimum.at(begin, node[node >= 0], start[node >= 0])
    keys: list[tuple[tuple[int, str], ...]] = []
    for i, parent in enumerate(parents):
        keys.append((*(keys[parent] if parent >= 0 else ()), (int(begin[i]), found[i][-1])))
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)


def _on_thread_with_ranges(trace: Trace) -> npt.NDArray[np.bool_]:
    """Mask of the ops whose thread has ranges."""
    pairs = pd.MultiIndex.from_frame(trace.ranges[["rank", "thread"]]).unique()
    return np.asarray(pd.MultiIndex.from_frame(trace.ops[["rank", "thread"]]).isin(pairs), np.bool_)
