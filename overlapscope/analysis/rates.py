"""What the collectives of a program take, size by size, and which bandwidth that is beside the link's peak.

The arithmetic is that of a sweep (:mod:`overlapscope.analysis.bandwidth`); what belongs together is what was
matched over the ranks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..trace import NA, Trace
from .bandwidth import figures, inside, transfers, within
from .matching import Matching
from .window import Windows

__all__ = ["GROUP_COLUMNS", "RATE_COLUMNS", "Peak", "Rates", "rates"]

RATE_COLUMNS: dict[str, str] = {
    "collective": "object",
    "bytes": "int64",
    "ranks": "int64",
    "exchanges": "int64",
    "sum_ns": "int64",
    "time_ns": "int64",
    "p99_ns": "int64",
    "algbw_gbs": "Float64",
    "busbw_gbs": "Float64",
    "peak_gbs": "Float64",
}

GROUP_COLUMNS: dict[str, str] = {
    "collective": "object",
    "bytes": "int64",
    "ranks": "object",
    "exchanges": "int64",
    "time_ns": "int64",
    "busbw_gbs": "Float64",
}

KEY = ["collective", "bytes", "ranks"]


@dataclass(frozen=True, slots=True)
class Peak:
    """What a link can carry.

    Attributes
    ----------
    gbs : float
        GB/s (1e9 bytes) of each rank, each way.
    how : str
        How that is known, in words.
    within_node : bool
        It joins the GPUs of one node and no others.
    """

    gbs: float
    how: str
    within_node: bool = False

    def among(self, ranks: pd.DataFrame) -> float | None:
        """The same for these rows of ``trace.ranks``; None where it may not join all of them."""
        return self.gbs if not self.within_node or _one_node(ranks) else None


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """What :func:`rates` found.

    Attributes
    ----------
    table : DataFrame
        One row a collective, size (``bytes`` of the whole array) and number of ``ranks`` of its communicator.
        ``exchanges``: how many the figures are of; ``sum_ns``: their transfers added up; ``time_ns`` and
        ``p99_ns``: median and 99th percentile; ``algbw_gbs`` = bytes / time_ns, ``busbw_gbs`` = algbw ×
        :func:`overlapscope.analysis.bandwidth.bus_factor`; ``peak_gbs`` of the link. Rates are missing where no
        time passed, busbw where it is not defined, the peak where it is not known.
    groups : DataFrame
        The same of each communicator, where a row of `table` is of several: ``ranks`` are the ranks it joins.
    notes : tuple of str
        What was left out and why.
    """

    table: pd.DataFrame
    groups: pd.DataFrame
    notes: tuple[str, ...] = ()

    @classmethod
    def none(cls) -> Rates:
        """Without a row."""
        return cls(_frame([], RATE_COLUMNS), _frame([], GROUP_COLUMNS))


def rates(trace: Trace, matching: Matching, windows: Windows, peak: Peak | None = None) -> Rates:
    """Transfer and bandwidth of the collectives of which bytes are recorded and waiting is told from transfer.

    A collective is transferred from its latest start to its latest end over its ranks. One that a window's edge
    cuts on any rank is left out and counted.

    Parameters
    ----------
    trace : Trace
        All ranks.
    matching : Matching
        Of that trace. A matched collective is there on every rank of its communicator, so that these tell how
        many ranks that has.
    windows : Windows
        Of every rank.
    peak : Peak, optional
        What the link between the ranks can carry.
    """
    ops = _ops(trace, matching, windows)
    exchanges, cut = _exchanges(ops)
    rows, groups = [], []
    for key, some in exchanges.groupby(KEY, sort=True):
        members = _members(ops, some)
        alike = dict(zip(KEY, key, strict=True))
        rows.append(
            {
                **alike,
                "exchanges": len(some),
                "sum_ns": int(some["time"].sum()),
                **_figures(key, some),
                "peak_gbs": None if peak is None else _of_all(peak, trace, members.values()),
            }
        )
        for group, ranks in members.items() if len(members) > 1 else ():
            mine = some[some["communicator"] == group]
            groups.append({**alike, "ranks": ranks, "exchanges": len(mine), **_figures(key, mine)})
    note = f"bandwidth is without {cut:,} collectives, which not every rank has whole inside the window"
    return Rates(_frame(rows, RATE_COLUMNS), _frame(groups, GROUP_COLUMNS), (note,) if cut else ())


def _frame(rows: list[dict[str, object]], columns: dict[str, str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(columns)).astype(columns)


def _figures(key: tuple[str, int, int], some: pd.DataFrame) -> dict[str, int | float | None]:
    return figures(*key, np.sort(some["time"].to_numpy()))


def _ops(trace: Trace, matching: Matching, windows: Windows) -> pd.DataFrame:
    """The matched ops of which waiting is told from transfer; ``from`` and ``to`` are on the common clock."""
    known = matching.ops[(matching.ops["latest"] != NA).to_numpy()]
    columns = ["rank", "start", "end", "bytes", "communicator"]
    ops = trace.ops[[*columns, "collective"]].iloc[known["op"].to_numpy()].reset_index(drop=True)
    ops["collective"] = ops["collective"].astype(object)
    for own, column in (("instance", "match"), ("from", "start"), ("to", "end")):
        ops[own] = known[column].to_numpy()
    ops["whole"], ops["touched"] = inside(ops, windows), within(ops, windows) > 0
    return ops


def _exchanges(ops: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """One row a collective, with its time; and how many a window's edge cuts."""
    told = ops.groupby("instance").agg(
        collective=("collective", "first"),
        communicator=("communicator", "first"),
        bytes=("bytes", "min"),  # NA, the least, where a rank does not tell them
        most=("bytes", "max"),
        ranks=("rank", "size"),
        whole=("whole", "all"),
        touched=("touched", "any"),
    )
    told["time"] = transfers(ops[["instance", "from", "to"]].set_axis(["instance", "start", "end"], axis=1))
    told = told[(told["bytes"] > 0) & (told["bytes"] == told["most"])]
    return told[told["whole"]], int((told["touched"] & ~told["whole"]).sum())


def _members(ops: pd.DataFrame, some: pd.DataFrame) -> dict[int, tuple[int, ...]]:
    """The ranks of each communicator of some exchanges of one collective; -1 is the one where none is recorded."""
    of = ops[
        ops["communicator"].isin(some["communicator"]) & (ops["collective"] == some["collective"].iloc[0])
    ]
    return {int(c): tuple(np.unique(rank).tolist()) for c, rank in of.groupby("communicator")["rank"]}


def _of_all(peak: Peak, trace: Trace, groups: Iterable[tuple[int, ...]]) -> float | None:
    """The peak between the ranks of each group; None where it is not known of one."""
    known = [peak.among(trace.ranks[trace.ranks["rank"].isin(ranks)]) for ranks in groups]
    return None if None in known else peak.gbs


def _one_node(ranks: pd.DataFrame) -> bool:
    """Whether these GPUs are known to be of one machine.

    One clock is one machine's. Else launchers number the ranks of a node one after another, each with the device
    of its place in it: then rank less device is the node's first rank.
    """
    if ranks["clock"].nunique() == 1:
        return True
    return bool((ranks["device"] != NA).all() and (ranks["rank"] - ranks["device"]).nunique() == 1)
