"""The identity T = compute + exposed communication + exposed memory + idle, per rank and per collective.

All of it is defined in integer nanoseconds on unions of intervals, never on sums of durations: kernels of one
stream may overlap, and several streams do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..classify import Kind
from ..intervals import Int64, Spans, claim, covered, intersect, measure, subtract, union
from ..trace import NA, Trace
from .matching import Matching, Places, match
from .selection import COMPUTE, running, touching
from .window import Windows, windows

__all__ = ["COLLECTIVE_COLUMNS", "INSTANCE_COLUMNS", "RANK_COLUMNS", "Overlap", "overlap", "owned"]

RANK_COLUMNS: dict[str, str] = {
    "rank": "int64",
    "device": "Int64",
    "pid": "Int64",
    "window_ns": "int64",
    "compute_ns": "int64",
    "gemm_ns": "Int64",
    "attention_ns": "Int64",
    "comm_ns": "int64",
    "memory_ns": "int64",
    "overlap_ns": "int64",
    "gemm_overlap_ns": "Int64",
    "exposed_comm_ns": "int64",
    "exposed_wait_ns": "Int64",
    "exposed_wire_ns": "Int64",
    "exposed_unsplit_ns": "int64",
    "exposed_memory_ns": "int64",
    "idle_ns": "int64",
    "overlap_ratio": "Float64",
    "gemm_overlap_ratio": "Float64",
    "n_comm": "int64",
    "n_gemm": "Int64",
    "n_ops": "int64",
}
OF_KINDS = ("gemm_ns", "attention_ns", "gemm_overlap_ns", "gemm_overlap_ratio", "n_gemm")
"""Those that do not exist where the kinds of compute are not known."""

COLLECTIVE_COLUMNS: dict[str, str] = {
    "rank": "int64",
    "collective": "object",
    "count": "int64",
    "union_ns": "int64",
    "sum_ns": "int64",
    "overlap_ns": "int64",
    "exposed_ns": "int64",
    "exposed_wait_ns": "Int64",
    "exposed_wire_ns": "Int64",
    "exposed_unsplit_ns": "int64",
    "bytes": "Int64",
}
INSTANCE_COLUMNS: dict[str, str] = {
    "rank": "int64",
    "collective": "object",
    "name": "object",
    "lane": "object",
    "start": "int64",
    "end": "int64",
    "duration_ns": "int64",
    "overlap_ns": "int64",
    "exposed_ns": "int64",
    "match": "Int64",
    "wait_ns": "Int64",
    "transfer_ns": "Int64",
    "exposed_wait_ns": "Int64",
    "exposed_wire_ns": "Int64",
    "bytes": "Int64",
}


@dataclass(frozen=True, slots=True, eq=False)
class Overlap:
    """What `overlap` found. Every time is integer ns inside the window; what does not exist is missing.

    With G, C, M, X the unions of a rank's gemm, compute (gemm, attention and all other kernels), communication
    and memory ops over all its lanes, clipped to its window of length T:

    Attributes
    ----------
    ranks : DataFrame
        One row per rank. ``window_ns`` T, ``compute_ns`` of C, ``gemm_ns`` of G, ``attention_ns``, ``comm_ns`` of
        M, ``memory_ns`` of X, ``overlap_ns`` of M and C at once, ``gemm_overlap_ns`` of M and G at once,
        ``exposed_comm_ns`` of M without C, ``exposed_memory_ns`` of X without C and M, ``idle_ns`` of none.
        T = compute + exposed_comm + exposed_memory + idle, exactly. Of exposed_comm, ``exposed_wait_ns`` is before
        the last rank had begun, ``exposed_wire_ns`` after (both missing where that is known of no op), and
        ``exposed_unsplit_ns`` of ops of which it is not known; the three add up to it. ``overlap_ratio`` and
        ``gemm_overlap_ratio`` are over comm_ns, missing where that is 0. ``n_comm``, ``n_gemm``, ``n_ops`` count
        ops that touch the window.
    collectives : DataFrame
        One row per rank and collective: ``count``, ``union_ns`` (time at least one runs), ``sum_ns`` (durations
        added up), ``overlap_ns`` (of the union, under compute), ``exposed_ns``, ``bytes`` (missing unless
        recorded for every instance), and the three parts of ``exposed_ns``, which adds up to the rank's
        ``exposed_comm_ns`` exactly.
    instances : DataFrame
        One row per communication op that touches the window: ``collective``, ``name``, ``lane``, ``start`` and
        ``end`` (whole, ns since the trace's origin), ``duration_ns`` and ``overlap_ns`` inside the window,
        ``exposed_ns``, ``match`` (number of the collective, the same on every rank; missing where it could not be
        matched), ``wait_ns`` (until the last rank began) and ``transfer_ns`` (from then to its end), both of the
        whole op, and the parts of its exposed time before and after that, missing where not known; ``bytes``. An
        instant at which several run belongs to the one that started first (same
        start: the lower lane), so the exposed times add up exactly, too.
    windows : Windows
        The analysed time of each rank.
    matching : Matching
        Which ops are one collective, how the ranks' clocks were aligned for it, and what could not be matched.
    """

    ranks: pd.DataFrame
    collectives: pd.DataFrame
    instances: pd.DataFrame
    windows: Windows
    matching: Matching


def overlap(trace: Trace, window: str | Windows | None = None, matching: Matching | None = None) -> Overlap:
    """Measure how communication and compute share the time of every rank.

    Parameters
    ----------
    trace : Trace
    window : str or Windows, optional
        "whole", "steps", "START:END" or what `windows` made; see there for the default.
    matching : Matching, optional
        What `match` found; by default it is called.

    Returns
    -------
    Overlap
        Tables per rank, per collective and per communication op.

    Raises
    ------
    OptionError
        The window cannot be read or lies outside the trace.
    """
    chosen = window if isinstance(window, Windows) else windows(trace, window)
    matching = matching or match(trace)
    place = matching.places(len(trace.ops))
    rows, instances, collectives = [], [], []
    for rank, device, pid in trace.ranks[["rank", "device", "pid"]].itertuples(index=False):
        figures, comm, by_collective = _of_rank(trace, int(rank), chosen.of_rank[rank], place)
        rows.append({"rank": rank, "device": _known(device), "pid": _known(pid), **figures})
        instances.append(comm)
        collectives += by_collective
    ranks = pd.DataFrame(rows, columns=list(RANK_COLUMNS)).astype(RANK_COLUMNS)
    table = pd.concat(instances, ignore_index=True).astype(INSTANCE_COLUMNS)
    shared = pd.DataFrame(collectives, columns=list(COLLECTIVE_COLUMNS)).astype(COLLECTIVE_COLUMNS)
    return Overlap(ranks, shared, table, chosen, matching)


def _of_rank(
    trace: Trace, rank: int, window: Spans, place: Places
) -> tuple[dict[str, int | float | None], pd.DataFrame, list[dict[str, object]]]:
    """A rank's figures, its instances, and its rows per collective."""
    ops = trace.of_rank(rank)
    start, end = ops["start"].to_numpy(), ops["end"].to_numpy()
    kind = ops["kind"].cat.codes.to_numpy()
    code = {k: i for i, k in enumerate(Kind)}

    def spans(*wanted: Kind) -> Spans:
        return running(ops, *wanted) & window

    G, A, C = spans(Kind.GEMM), spans(Kind.ATTENTION), spans(*COMPUTE)
    M, X = spans(Kind.COMM), spans(Kind.MEMORY)
    T = measure(window)
    busy = C | M
    figures: dict[str, int | float | None] = {
        "window_ns": T,
        "compute_ns": measure(C),
        "gemm_ns": measure(G),
        "attention_ns": measure(A),
        "comm_ns": measure(M),
        "memory_ns": measure(X),
        "overlap_ns": measure(M & C),
        "gemm_overlap_ns": measure(M & G),
        "exposed_comm_ns": measure(M - C),
        "exposed_memory_ns": measure(X - busy),
        "idle_ns": T - measure(busy | X),
    }
    parts = sum(
        int(figures[f"{part}_ns"] or 0) for part in ("compute", "exposed_comm", "exposed_memory", "idle")
    )
    assert parts == T, f"rank {rank}: the parts add up to {parts} ns, the window is {T} ns"
    figures["overlap_ratio"] = _ratio(figures["overlap_ns"], figures["comm_ns"])
    figures["gemm_overlap_ratio"] = _ratio(figures["gemm_overlap_ns"], figures["comm_ns"])
    inside = touching(window, start, end)
    figures["n_comm"] = int(np.count_nonzero(inside & (kind == code[Kind.COMM])))
    figures["n_gemm"] = int(np.count_nonzero(inside & (kind == code[Kind.GEMM])))
    figures["n_ops"] = int(np.count_nonzero(inside))
    if trace.provenance.from_ranges:
        figures |= dict.fromkeys(OF_KINDS)
    comm = _instances(trace, ops[inside & (kind == code[Kind.COMM])], window, C, place)
    figures |= _parts(comm)
    assert int(comm["exposed_ns"].sum()) == figures["exposed_comm_ns"], (
        f"rank {rank}: exposed time is not shared out"
    )
    return figures, comm, _by_collective(comm, window, C)


def _instances(
    trace: Trace, comm: pd.DataFrame, window: Spans, compute: Spans, place: Places
) -> pd.DataFrame:
    start, end, lane = (comm[c].to_numpy() for c in ("start", "end", "lane"))
    own = owned(comm, place)
    idle = subtract(window, compute)
    exposed = covered(idle, own.start, own.end)
    number, latest = (column[comm.index.to_numpy()] for column in (place.match, place.latest))
    known = own.known
    wait = covered(idle, own.start, own.begun)
    nbytes = comm["bytes"]
    return pd.DataFrame(
        {
            "rank": comm["rank"].astype("int64"),
            "collective": comm["collective"].astype(object),
            "name": trace.names["string"].to_numpy()[comm["name"].to_numpy()],
            "lane": trace.lanes["label"].to_numpy()[lane],
            "start": start,
            "end": end,
            "duration_ns": covered(window, start, end),
            "overlap_ns": covered(compute, start, end),
            "exposed_ns": exposed,
            "match": _where(number >= 0, number),
            "wait_ns": _where(known, latest - start),
            "transfer_ns": _where(known, end - latest),
            "exposed_wait_ns": _where(known, wait),
            "exposed_wire_ns": _where(known, exposed - wait),
            "bytes": nbytes.astype("Int64").mask(nbytes == NA),
        }
    )


class Owned(NamedTuple):
    """The time that belongs to each of a rank's communication ops alone; the pieces are disjoint.

    In it every rank has begun from ``begun`` on; ``known`` says of which ops that is known (else ``begun`` is
    ``start``).
    """

    start: Int64
    end: Int64
    begun: Int64
    known: npt.NDArray[np.bool_]


def owned(comm: pd.DataFrame, place: Places) -> Owned:
    """Share the time of communication ops out: an instant belongs to the one that started first."""
    start, end, lane = (comm[c].to_numpy() for c in ("start", "end", "lane"))
    # Same start: the lower lane. Same lane, too: the longer one, so that the order of the input never decides.
    order = np.lexsort((comm["collective"].cat.codes, -end, lane))
    tie = np.empty(len(order), np.int64)
    tie[order] = np.arange(len(order))
    own_start, own_end = claim(start, end, tie)
    latest = place.latest[comm.index.to_numpy()]
    known = latest != NA
    begun = np.where(known, np.clip(latest, own_start, own_end), own_start)
    return Owned(own_start, own_end, begun, known)


def _by_collective(comm: pd.DataFrame, window: Spans, compute: Spans) -> list[dict[str, object]]:
    """One row per collective of a rank's instances."""
    rows: list[dict[str, object]] = []
    for collective, some in comm.groupby("collective", sort=True):
        M = intersect(union(some["start"].to_numpy(), some["end"].to_numpy()), window)
        rows.append(
            {
                "rank": some["rank"].iloc[0],
                "collective": collective,
                "count": len(some),
                "union_ns": measure(M),
                "sum_ns": int(some["duration_ns"].sum()),
                "overlap_ns": measure(M & compute),
                "exposed_ns": int(some["exposed_ns"].sum()),
                **_parts(some),
                # Half-known bytes would make a bandwidth too low: all instances or none.
                "bytes": None if some["bytes"].isna().any() else int(some["bytes"].sum()),
            }
        )
    return rows


def _parts(instances: pd.DataFrame) -> dict[str, int | None]:
    """Exposed time while waiting for the last rank, on the wire, and of which that is not known."""
    known = instances["exposed_wait_ns"].notna()
    split = instances[known]
    return {
        "exposed_wait_ns": int(split["exposed_wait_ns"].sum()) if len(split) else None,
        "exposed_wire_ns": int(split["exposed_wire_ns"].sum()) if len(split) else None,
        "exposed_unsplit_ns": int(instances.loc[~known, "exposed_ns"].sum()),
    }


def _where(known: npt.NDArray[np.bool_], values: Int64) -> pd.arrays.IntegerArray:
    return pd.arrays.IntegerArray(np.where(known, values, 0), ~known)


def _ratio(part: int | float | None, whole: int | float | None) -> float | None:
    return None if not whole or part is None else part / whole


def _known(value: int) -> int | None:
    return None if value == NA else int(value)
