"""What overlap costs: compute slows down while communication runs beside it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..classify import Kind
from ..intervals import Int64, Spans, covered, measure
from ..trace import Trace
from .selection import COMPUTE, of_kind, running
from .window import Windows, windows

__all__ = ["KERNEL_COLUMNS", "Contention", "contention"]

FEWEST = 3
"""Instances on either side from which on a median says something."""

KERNEL_COLUMNS: dict[str, str] = {
    "rank": "int64",
    "name": "object",
    "shape": "object",
    "n_overlapped": "int64",
    "n_alone": "int64",
    "overlapped_ns": "float64",
    "alone_ns": "float64",
    "slowdown": "float64",
    "contention_ns": "float64",
}


@dataclass(frozen=True, slots=True, eq=False)
class Contention:
    """What `contention` found.

    Attributes
    ----------
    kernels : DataFrame
        One row per rank and kind of op (name and shape) with at least 3 instances that overlap communication for
        90 % of their time or more, and 3 for 10 % or less: how many, the median duration of each
        (``overlapped_ns``, ``alone_ns``: whole or half ns), ``slowdown`` = overlapped / alone − 1, and
        ``contention_ns``, what the overlapped instances lasted beyond the median alone, added up. Negative where
        they were faster. The largest contention first.
    n_overlapped, n_measured : int
        Instances that overlap communication for 90 % or more, and those of them in `kernels`.
    hidden_ns : int
        Communication under compute, all ranks together.
    total_ns : Fraction or None
        The kernels' contention added up; None where none could be measured.
    slowdown : float or None
        `total_ns` over what the measured instances would have taken alone.
    net_gain_ns : Fraction or None
        hidden − contention. Where not all overlapped instances could be measured, it is too high by what the
        others lost.
    """

    kernels: pd.DataFrame
    n_overlapped: int
    n_measured: int
    hidden_ns: int
    total_ns: Fraction | None
    slowdown: float | None
    net_gain_ns: Fraction | None


def contention(trace: Trace, window: str | Windows | None = None) -> Contention:
    """Compare ops that ran under communication with ops alike that did not.

    Ops are alike that have one name and one shape (a kernel's grid and block; on a CPU run the recorded input
    dimensions; where none was recorded, the name alone) on one rank: two GPUs differ without contention, too.
    Those that a window's edge cuts are left out, since they were not seen whole.

    Parameters
    ----------
    trace : Trace
    window : str or Windows, optional
        As in `overlap`.

    Raises
    ------
    OptionError
        The window cannot be read or lies outside the trace.
    """
    chosen = window if isinstance(window, Windows) else windows(trace, window)
    found = [_of_rank(trace, rank, spans, chosen.mode == "whole") for rank, spans in chosen.of_rank.items()]
    table = pd.concat([kinds for kinds, _, _ in found], ignore_index=True)
    hidden = sum(hidden for _, hidden, _ in found)
    total = Fraction(int(table["twice_contention"].sum()), 2) if len(table) else None
    alone = int((table["n_overlapped"] * table["twice_alone"]).sum())
    return Contention(
        kernels=_kernels(trace, table),
        n_overlapped=sum(count for _, _, count in found),
        n_measured=int(table["n_overlapped"].sum()),
        hidden_ns=hidden,
        total_ns=total,
        slowdown=None if total is None else float(2 * total / alone),
        net_gain_ns=None if total is None else hidden - total,
    )


def _of_rank(trace: Trace, rank: int, window: Spans, all_inside: bool) -> tuple[pd.DataFrame, int, int]:
    """Its kinds of op that can be compared, its hidden communication in ns, its overlapped instances."""
    ops = trace.of_rank(rank)
    M, C = running(ops, Kind.COMM), running(ops, *COMPUTE)
    hidden = measure(M & C & window)
    start, end = ops["start"].to_numpy(), ops["end"].to_numpy()
    uncut = (
        of_kind(ops, *COMPUTE) & (end > start) & (hidden > 0)
    )  # what is never under it need not be looked at
    if hidden and not all_inside:
        uncut &= covered(window, start, end) == end - start
    whole = np.flatnonzero(uncut)
    duration = end[whole] - start[whole]
    beside = covered(M, start[whole], end[whole])
    overlapped, alone = 10 * beside >= 9 * duration, 10 * beside <= duration
    name = ops["name"].to_numpy()[whole]
    # Few names run on either side often enough; only of those the shapes are worth sorting out.
    some = np.flatnonzero(_often(name, overlapped, alone)[name] & (overlapped | alone))
    shape = ops["shape"].to_numpy()[whole[some]]
    alike, pairs = pd.factorize((name[some].astype(np.int64) << 32) | (shape.astype(np.int64) & 0xFFFFFFFF))
    kinds = np.flatnonzero(_often(alike, overlapped[some], alone[some]))
    table = _compare(duration[some], overlapped[some], alike, kinds)
    table = table.assign(
        rank=rank, name=pairs[kinds] >> 32, shape=(pairs[kinds] & 0xFFFFFFFF).astype(np.int32)
    )
    return table, hidden, int(np.count_nonzero(overlapped))


def _often(
    code: Int64 | npt.NDArray[np.int32], overlapped: npt.NDArray[np.bool_], alone: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Which codes have enough instances on either side."""
    n = int(code.max(initial=-1)) + 1
    sides = [np.bincount(code[side], minlength=n) for side in (overlapped, alone)]
    return np.asarray(np.minimum(*sides) >= FEWEST, np.bool_)


def _compare(duration: Int64, overlapped: npt.NDArray[np.bool_], alike: Int64, kinds: Int64) -> pd.DataFrame:
    """One row for each of some kinds of op, in doubled ns, so that every median is whole."""
    place = np.full(int(alike.max(initial=-1)) + 1, -1, np.int64)
    place[kinds] = np.arange(len(kinds))
    row = place[alike]
    wanted = row >= 0
    twice, count = {}, {}
    for side, some in (("overlapped", overlapped & wanted), ("alone", ~overlapped & wanted)):
        twice[side], count[side] = _medians(duration[some], row[some], len(kinds))
    total = np.zeros(len(kinds), np.int64)
    np.add.at(total, row[overlapped & wanted], duration[overlapped & wanted])
    return pd.DataFrame(
        {
            "n_overlapped": count["overlapped"],
            "n_alone": count["alone"],
            "twice_overlapped": twice["overlapped"],
            "twice_alone": twice["alone"],
            "twice_contention": 2 * total - count["overlapped"] * twice["alone"],
        }
    )


def _medians(duration: Int64, row: Int64, n: int) -> tuple[Int64, Int64]:
    """Twice the median duration of each row, and how many there are of it: at least one."""
    count = np.bincount(row, minlength=n)
    begin = np.cumsum(count) - count
    ordered = _by_row(duration, row)
    return ordered[begin + (count - 1) // 2] + ordered[begin + count // 2], count


def _by_row(duration: Int64, row: Int64) -> Int64:
    """Durations by row, then by length."""
    bits = int(duration.max(initial=0)).bit_length()
    if bits + int(row.max(initial=0)).bit_length() < 64:  # one key: sorted in a sixth of the time
        return np.asarray(np.sort(row << bits | duration) & ((1 << bits) - 1), np.int64)
    return duration[np.lexsort((duration, row))]


def _kernels(trace: Trace, table: pd.DataFrame) -> pd.DataFrame:
    shapes = np.array([*trace.shapes, None], object)
    figures = table.assign(
        name=trace.names["string"].to_numpy()[table["name"]],
        shape=shapes[table["shape"]],
        overlapped_ns=table["twice_overlapped"] / 2,
        alone_ns=table["twice_alone"] / 2,
        slowdown=table["twice_overlapped"] / table["twice_alone"] - 1,
        contention_ns=table["twice_contention"] / 2,
    )
    order = ["contention_ns", "rank", "name", "shape"]
    figures = figures.sort_values(order, ascending=[False, True, True, True], ignore_index=True)
    return figures[list(KERNEL_COLUMNS)].astype(KERNEL_COLUMNS)
