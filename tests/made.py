"""A `Trace` straight from rows, for properties that hold whatever a file's format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from overlapscope import Kind, Provenance, Trace
from overlapscope.trace import (
    COLLECTIVE_DTYPE,
    KIND_DTYPE,
    LANE_COLUMNS,
    NA,
    NAME_COLUMNS,
    OP_COLUMNS,
    RANGE_COLUMNS,
    RANK_COLUMNS,
    Source,
)

__all__ = ["made"]

Row = Mapping[str, Any]
NAMES = [(k.value, None, k.value, None, None, False, "made") for k in Kind]


def made(ops: Sequence[Row], ranges: Sequence[Row] = (), ranks: int = 2) -> Trace:
    """Ops (rank, start, end, kind; launch and thread if known) and ranges (rank, thread, start, end, name; role)."""
    usual = {
        "lane": 0,
        "launch": NA,
        "thread": NA,
        "bytes": NA,
        "group": -1,
        "communicator": -1,
        "sequence": -1,
        "collective": None,
        "shape": -1,
    }
    rows = [{**usual, "name": [k.value for k in Kind].index(op["kind"]), **op} for op in ops]
    for row in rows:
        row["lane"] = row["rank"]
        if row["kind"] == "comm" and row["collective"] is None:
            row["collective"] = "other"
    table = pd.DataFrame(rows, columns=list(OP_COLUMNS))
    table = table.sort_values(["rank", "start"], kind="stable", ignore_index=True)
    table = table.astype({**OP_COLUMNS, "kind": KIND_DTYPE, "collective": COLLECTIVE_DTYPE})
    told = pd.DataFrame(
        [{"domain": "overlapscope", "role": "", **row} for row in ranges], columns=list(RANGE_COLUMNS)
    )
    told = told.sort_values(["rank", "start"], kind="stable", ignore_index=True).astype(RANGE_COLUMNS)
    return Trace(
        table,
        told,
        pd.DataFrame(NAMES, columns=list(NAME_COLUMNS)),
        pd.DataFrame([(r, 0, 7, "stream 7") for r in range(ranks)], columns=list(LANE_COLUMNS)),
        pd.DataFrame([(r, 0, r, None, "made", 0) for r in range(ranks)], columns=list(RANK_COLUMNS)),
        Provenance((Source("made", "nsys", "test"),)),
    )
