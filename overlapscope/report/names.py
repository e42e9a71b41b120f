"""The list of op names and what the rules made of them."""

from __future__ import annotations

import json

import pandas as pd

from .export import records
from .words import escape, scale

__all__ = ["csv", "json_text", "text"]

UNKNOWN = "(no rule)"


def text(table: pd.DataFrame) -> str:
    """Two lines a name: figures and verdict, then the name in full, so that a rule can be written for it."""
    unit = scale(table["sum_ns"].max() if len(table) else 0)
    width = max([len(str(r)) for r in table["rule"].dropna()] + [len(UNKNOWN)])
    lines = [
        f"{'sum (' + unit[1] + ')':>14} {'count':>10}  {'kind':<9} {'collective':<14} {'rule':<{width}}".rstrip()
    ]
    for row in records(table):
        figures = f"{row['sum_ns'] / unit[0]:>14,.3f} {row['count']:>10,}"
        fused = " (communicates too)" if row["fused_comm"] else ""
        lines.append(
            f"{figures}  {row['kind']:<9} {row['collective'] or '':<14} {row['rule'] or UNKNOWN}{fused}".rstrip()
        )
        lines.append(f"    {escape(row['name'])}")
    unknown = table[table["rule"].isna()]
    lines.append("")
    lines.append(
        f"{len(table):,} names; no rule knows {len(unknown):,} of them, which count as compute."
        + (" Write rules for them: see the README, --rules." if len(unknown) else "")
    )
    return "\n".join(lines) + "\n"


def json_text(table: pd.DataFrame) -> str:
    """A list of objects: name, kind, collective, library, fused_comm, rule (null: none), count, sum_ns."""
    return json.dumps(records(table), indent=2, ensure_ascii=False) + "\n"


def csv(table: pd.DataFrame) -> str:
    """One row a name."""
    return str(table.to_csv(index=False))
