"""The list of op names and what the rules made of them."""

from __future__ import annotations

import pandas as pd

from .export import records
from .words import escape, scale, shortened

__all__ = ["text"]

UNKNOWN = "(no rule)"
NAME_WIDTH = 76  # what an 80-column line holds of a name


def text(table: pd.DataFrame, *, full: bool = False) -> str:
    """Two lines a name: figures and verdict, then the name, cut to the line unless `full`."""
    unit = scale(table["sum_ns"].max() if len(table) else 0)
    lines = [f"{'sum (' + unit[1] + ')':>14} {'count':>10}  {'kind':<9} {'collective':<14} rule"]
    names = [escape(name) for name in table["name"]]
    for row, name in zip(records(table), names, strict=True):
        figures = f"{row['sum_ns'] / unit[0]:>14,.3f} {row['count']:>10,}"
        fused = " (communicates too)" if row["fused_comm"] else ""
        collective = row["collective"] or ""
        verdict = f"{row['kind']:<9} {collective:<14} {row['rule'] or UNKNOWN}{fused}"
        lines += [f"{figures}  {verdict}", f"    {name if full else shortened(name, NAME_WIDTH)}"]
    return (
        "\n".join([*lines, "", *_closing(table, cut=not full and any(len(n) > NAME_WIDTH for n in names))])
        + "\n"
    )


def _closing(table: pd.DataFrame, *, cut: bool) -> list[str]:
    unknown = int(table["rule"].isna().sum())
    told = f"{len(table):,} names; " + (
        f"no rule knows {unknown:,} of them, which count as compute (--rules takes rules of your own)."
        if unknown
        else "a rule knows every one."
    )
    return [told, *["Long names are cut in the middle; --full shows them whole."] * cut]
