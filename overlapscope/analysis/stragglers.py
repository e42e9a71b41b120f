"""Who was waited for: in each collective the rank that came last, and what that cost the others."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .overlap import Overlap

__all__ = ["STRAGGLER_COLUMNS", "stragglers"]

STRAGGLER_COLUMNS: dict[str, str] = {
    "rank": "int64",
    "collectives": "int64",
    "last": "int64",
    "late_ns": "int64",
    "cost_ns": "int64",
}


def stragglers(result: Overlap) -> pd.DataFrame:
    """How often each rank came last to a collective, by how much, and what that cost.

    Collectives that a window's edge cuts, or of which waiting cannot be told from transfer, are left out; where
    several ranks came last together nobody did.

    Returns
    -------
    DataFrame
        One row per rank that is in any: ``collectives``, in how many of them it was ``last``, ``late_ns`` how
        much later than the last but one, and ``cost_ns`` the exposed time that all others waited meanwhile, both
        summed.
    """
    comm = result.instances
    whole = comm["duration_ns"] == comm["end"] - comm["start"]
    known = (comm["match"].notna() & comm["wait_ns"].notna() & whole).to_numpy()
    some = comm.loc[known, ["match", "rank", "wait_ns", "exposed_wait_ns"]].astype("int64")
    # All ranks that are asked about, or none: with one cut away the last may be missing.
    by_match = some.groupby("match")
    members = comm.groupby("match")["rank"].transform("size")[known].to_numpy()
    some = some[by_match["rank"].transform("size").to_numpy() == members]
    rows = []
    waits = some.sort_values(["match", "wait_ns"], kind="stable")
    place = waits.groupby("match").cumcount().to_numpy()
    first, second = waits[place == 0].set_index("match"), waits[place == 1].set_index("match")["wait_ns"]
    first = first.assign(
        late=second.reindex(first.index), cost=some.groupby("match")["exposed_wait_ns"].sum()
    )
    alone = first[(first["wait_ns"] == 0) & (first["late"] > 0)]
    for rank, mine in some.groupby("rank", sort=True):
        last = alone[alone["rank"] == rank]
        rows.append((rank, len(mine), len(last), int(np.sum(last["late"])), int(np.sum(last["cost"]))))
    return pd.DataFrame(rows, columns=list(STRAGGLER_COLUMNS)).astype(STRAGGLER_COLUMNS)
