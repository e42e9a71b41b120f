"""Rates of collectives by size: of a sweep in the columns of nccl-tests, of another program beside its report."""

from __future__ import annotations

from fractions import Fraction

import pandas as pd

from ..analysis.bandwidth import Bandwidth
from ..analysis.rates import Rates
from .words import Figure, count, size

__all__ = ["by_size", "headline", "laid_out", "slow", "tables"]

SLOW = Fraction(5, 4)
"""Of the usual time: groups of GPUs on a healthy machine differ by a few percent, a lane that is down shows more."""

FEWEST = 3
"""Groups, and exchanges of each, from which on one can be told to be the odd one."""

FEW = 100
"""Of fewer exchanges the 99th percentile is the longest, which the head of the column says."""


def headline(found: Bandwidth) -> list[str]:
    """For each collective its best bus bandwidth and its time at the smallest size."""
    lines = []
    for collective, some in found.table.groupby("collective", sort=False):
        timed = some[some["time_ns"].notna()]
        who = f"{collective} over {_ranks(int(some['ranks'].iloc[0]))}"
        if not len(timed):
            lines.append(f"{who}: no time could be measured.")
            continue
        least = timed.iloc[0]
        text = f"{_time(least['time_ns'])} µs at {size(int(least['bytes']))}"
        if timed["busbw_gbs"].notna().any():
            best = timed.loc[timed["busbw_gbs"].astype(float).idxmax()]
            text = f"up to {_rate(best['busbw_gbs'])} GB/s busbw ({size(int(best['bytes']))}); {text}"
        lines.append(f"{who}: {text}.")
    return lines


def tables(found: Bandwidth) -> list[tuple[str, list[str], list[list[str]]]]:
    """For each collective a title, the heads of its columns and its rows."""
    return [
        (_title(str(collective), some), _head(some), [_row(row, some) for row in some.to_dict("records")])
        for collective, some in found.table.groupby("collective", sort=False)
    ]


def laid_out(head: list[str], rows: list[list[str]], width: int) -> str:
    """A table of at most `width` columns, if it can be: ten columns of digits leave little room for space."""
    heads = [list(line) for line in zip(*(f"\n{h}".split("\n")[-2:] for h in head), strict=True)]
    widths = [max(map(len, column)) for column in zip(*heads, *rows, strict=True)]
    gap = "  " if sum(widths) + 2 * len(widths) <= width else " "
    lines = [gap.join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in [*heads, *rows]]
    lines.insert(2, "─" * len(lines[0]))
    return "\n".join(f" {line}" for line in lines)


def by_size(found: Rates) -> tuple[str, list[str], list[list[str]]] | None:
    """A title, the heads of the columns and the rows, those that take most first; None where there are none."""
    table = found.table.sort_values("sum_ns", ascending=False, kind="stable")
    if not len(table):
        return None
    peak = bool(table["peak_gbs"].notna().any())
    head = ["collective", "size", "ranks", "count", "transfer\n(µs)", "algbw\n(GB/s)", "busbw\n(GB/s)"]
    rows = [
        [
            row["collective"],
            size(row["bytes"]),
            count(row["ranks"]),
            count(row["exchanges"]),
            _time(row["time_ns"]),
            _rate(row["algbw_gbs"]),
            _rate(row["busbw_gbs"]),
            *[_share(row["busbw_gbs"], row["peak_gbs"])] * peak,
        ]
        for row in table.to_dict("records")
    ]
    return "Bandwidth (median transfer of each size)", [*head, *["% of\npeak"] * peak], rows


def slow(found: Rates) -> list[str]:
    """Of each size the group of ranks that takes much longer than most, in a sentence."""
    lines = []
    # Groups alike: neighbours (tensor parallel) and ranks of several nodes (data parallel) have other links.
    apart = found.groups["ranks"].map(lambda ranks: tuple(rank - ranks[0] for rank in ranks))
    for (collective, nbytes, _), some in found.groups.groupby(["collective", "bytes", apart], sort=False):
        some = some[some["exchanges"] >= FEWEST]
        if len(some) < FEWEST:
            continue
        slowest, usual = some.loc[some["time_ns"].idxmax()], some["time_ns"].median()
        if slowest["time_ns"] > SLOW * usual:
            members = ", ".join(map(str, slowest["ranks"]))
            lines.append(
                f"Slow: {collective} of {size(nbytes)} between ranks {members} takes {_time(slowest['time_ns'])} µs, "
                f"and {_time(usual)} µs in most of the {len(some)} groups."
            )
    return lines


def _title(collective: str, some: pd.DataFrame) -> str:
    numbers = sorted({int(n) for n in some["exchanges"]})
    of = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
    return f"{collective} over {_ranks(int(some['ranks'].iloc[0]))}, median of {of} exchanges of each size"


def _head(some: pd.DataFrame) -> list[str]:
    late = "slowest" if int(some["exchanges"].max()) < FEW else "p99"
    head = ["size\n(B)", "count", "type", "redop", "time\n(µs)", f"{late}\n(µs)"]
    peak = ["% of\npeak"] if some["peak_gbs"].notna().any() else []
    return [*head, "algbw\n(GB/s)", "busbw\n(GB/s)", *peak, "#wrong"]


def _row(row: dict[str, object], some: pd.DataFrame) -> list[str]:
    cells = [_whole(row["bytes"]), _whole(row["count"]), str(row["dtype"]), str(row["redop"])]
    cells += [_time(row["time_ns"]), _time(row["p99_ns"]), _rate(row["algbw_gbs"]), _rate(row["busbw_gbs"])]
    if some["peak_gbs"].notna().any():
        cells.append(_share(row["busbw_gbs"], row["peak_gbs"]))
    return [*cells, _whole(row["wrong"])]


def _whole(n: object) -> Figure:
    return Figure(str(n), int(n))  # type: ignore[call-overload]


def _time(ns: object) -> Figure:
    """In µs, no wider than seven characters up to 10 s."""
    if pd.isna(ns):
        return Figure("n/a", None)
    us = int(ns) / 1000  # type: ignore[call-overload]
    return Figure(f"{us:.2f}" if us < 1e4 else f"{us:.1f}" if us < 1e5 else f"{us:.0f}", ns)  # type: ignore[arg-type]


def _rate(gbs: object) -> Figure:
    """In GB/s, six characters up to 999; what is not quite nothing does not read as nothing."""
    if pd.isna(gbs):
        return Figure("n/a", None)
    rate = float(gbs)  # type: ignore[arg-type]
    return Figure("<0.001" if 0 < rate < 0.0005 else f"{rate:.3f}" if rate < 1 else f"{rate:.2f}", rate)


def _share(gbs: object, peak: object) -> Figure:
    if pd.isna(gbs) or pd.isna(peak):
        return Figure("n/a", None)
    share = 100 * float(gbs) / float(peak)  # type: ignore[arg-type]
    return Figure("<0.1" if 0 < share < 0.05 else f"{share:.1f}", share)


def _ranks(n: int) -> str:
    return f"{n} rank{'s' * (n != 1)}"
