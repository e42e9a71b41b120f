"""What the collectives of a program take, size by size, and which bandwidth that is beside the link's peak.

The arithmetic is that of a sweep (:mod:`overlapscope.analysis.bandwidth`); what belongs together is what was
matched over the ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..trace import NA, Trace
from .bandwidth import figures, inside, transfers, within
from .matching import Matching
from .window import Windows

__all__ = ["RATE_COLUMNS", "Peak", "Rates", "rates"]

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
    notes : tuple of str
        What was left out and why.
    """

    table: pd.DataFrame
    notes: tuple[str, ...] = ()

    @classmethod
    def none(cls) -> Rates:
        """Without a row."""
        return cls(pd.DataFrame(columns=list(RATE_COLUMNS)).astype(RATE_COLUMNS))


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
    rows = []
    for (collective, nbytes, ranks), some in exchanges.groupby(KEY, sort=True):
        among = ops["communicator"].isin(some["communicator"]) & (ops["collective"] == collective)
        rows.append(
            {
                "collective": collective,
                "bytes": nbytes,
                "ranks": ranks,
                "exchanges": len(some),
                "sum_ns": int(some["time"].sum()),
                **figures(collective, nbytes, ranks, np.sort(some["time"].to_numpy())),
                "peak_gbs": None if peak is None else _of_all(peak, trace, ops[among]),
            }
        )
    table = pd.DataFrame(rows, columns=list(RATE_COLUMNS)).astype(RATE_COLUMNS)
    note = f"bandwidth is without {cut:,} collectives, which not every rank has whole inside the window"
    return Rates(table, (note,) if cut else ())


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


def _of_all(peak: Peak, trace: Trace, ops: pd.DataFrame) -> float | None:
    """The peak between the ranks of each communicator; None where it is not known of one."""
    known = [
        peak.among(trace.ranks[trace.ranks["rank"].isin(ranks.unique())])
        for _, ranks in ops.groupby("communicator")["rank"]
    ]
    return None if None in known else peak.gbs


def _one_node(ranks: pd.DataFrame) -> bool:
    """Whether these GPUs are known to be of one machine.

    One clock is one machine's. Else launchers number the ranks of a node one after another, each with the device
    of its place in it: then rank less device is the node's first rank.
    """
    if ranks["clock"].nunique() == 1:
        return True
    return bool((ranks["device"] != NA).all() and (ranks["rank"] - ranks["device"]).nunique() == 1)
