"""What names a trace holds, what the rules made of each, and how much time stands behind it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ..intervals import covered
from ..trace import Trace
from .window import Windows

__all__ = ["TALLY_COLUMNS", "tally", "unclassified"]

TALLY_COLUMNS = ("name", "kind", "collective", "library", "fused_comm", "rule", "count", "sum_ns")


def tally(trace: Trace, windows: Windows | None = None) -> pd.DataFrame:
    """One row a distinct name: name, kind, collective, library, fused_comm, rule, count, sum_ns.

    Ordered by time. ``sum_ns`` adds up durations over all ranks, clipped to the windows where given (names
    overlap in time, so these do not add up to a rank's time). Names without an op in the windows are left out.
    """
    n = len(trace.names)
    count, total = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for rank in trace.ranks["rank"].tolist():
        ops = trace.of_rank(rank)
        start, end, name = (ops[c].to_numpy() for c in ("start", "end", "name"))
        duration = end - start
        if windows is not None and windows.mode != "whole":
            duration = covered(windows.of_rank[rank], start, end)
            touched = duration > 0
            name, duration = name[touched], duration[touched]
        count += np.bincount(name, minlength=n)
        np.add.at(total, name, duration)
    table = trace.names.rename(columns={"string": "name"}).assign(count=count, sum_ns=total)
    table = table[table["count"] > 0].sort_values(
        ["sum_ns", "name"], ascending=[False, True], ignore_index=True
    )
    return table[list(TALLY_COLUMNS)]


def unclassified(names: pd.DataFrame) -> pd.DataFrame:
    """The rows of a tally that no rule knew; their ops count as plain compute."""
    return names[names["rule"].isna()].reset_index(drop=True)
