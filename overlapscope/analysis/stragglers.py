"""Who was waited for: in each collective the rank that came last, and what that cost the others."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .overlap import Overlap

__all__ = ["LAST_COLUMNS", "STRAGGLER_COLUMNS", "last_to_come", "stragglers"]

STRAGGLER_COLUMNS: dict[str, str] = {
    "rank": "int64",
    "collectives": "int64",
    "last": "int64",
    "late_ns": "int64",
    "cost_ns": "int64",
}
LAST_COLUMNS: dict[str, str] = {
    "match": "int64",
    "rank": "int64",
    "late_ns": "int64",
    "cost_ns": "int64",
    "own_ns": "int64",
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
    some, late = _whole(result), last_to_come(result)
    rows = []
    for rank, mine in some.groupby("rank", sort=True):
        last = late[late["rank"] == rank]
        rows.append((rank, len(mine), len(last), int(np.sum(last["late_ns"])), int(np.sum(last["cost_ns"]))))
    return pd.DataFrame(rows, columns=list(STRAGGLER_COLUMNS)).astype(STRAGGLER_COLUMNS)


def last_to_come(result: Overlap) -> pd.DataFrame:
    """The collectives that `stragglers` counts as waited for, one row each.

    Returns
    -------
    DataFrame
        ``match``; ``rank`` that came last; ``late_ns``, how much later than the last but one; ``cost_ns``, exposed
        time that all others waited, summed over them; ``own_ns``, what of it would have gone had the rank come with
        the last but one: of each other rank no more than ``late_ns``.
    """
    some = _whole(result)
    waits = some.sort_values(["match", "wait_ns"], kind="stable")
    place = waits.groupby("match").cumcount().to_numpy()
    first, second = waits[place == 0].set_index("match"), waits[place == 1].set_index("match")["wait_ns"]
    late = second.reindex(first.index)
    alone = ((first["wait_ns"] == 0) & (late > 0)).to_numpy()
    late = late[alone].astype("int64")
    waited = some["exposed_wait_ns"]
    own = np.minimum(waited, some["match"].map(late).fillna(0))
    sums = some.assign(own=own).groupby("match")[["exposed_wait_ns", "own"]].sum().reindex(late.index)
    table = (
        first[alone].assign(late_ns=late, cost_ns=sums["exposed_wait_ns"], own_ns=sums["own"]).reset_index()
    )
    return table[list(LAST_COLUMNS)].astype(LAST_COLUMNS)


def _whole(result: Overlap) -> pd.DataFrame:
    """The instances of collectives of which all ranks that are asked about are known, and none is cut."""
    comm = result.instances
    whole = comm["duration_ns"] == comm["end"] - comm["start"]
    known = (comm["match"].notna() & comm["wait_ns"].notna() & whole).to_numpy()
    some = comm.loc[known, ["match", "rank", "wait_ns", "exposed_wait_ns"]].astype("int64")
    # All ranks that are asked about, or none: with one cut away the last may be missing.
    members = comm.groupby("match")["rank"].transform("size")[known].to_numpy()
    return some[some.groupby("match")["rank"].transform("size").to_numpy() == members]
