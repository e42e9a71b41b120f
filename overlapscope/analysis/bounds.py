"""What could be gained at most, were one thing ideal: the recorded run replayed without what it cost.

===========  ===============================================  =============================================
ideal        what is taken away on each rank                  why a run that attains it gains no more
===========  ===============================================  =============================================
no_skew      exposed waiting for ranks that come late         the exchange itself has to be made
fast_link    all exposed communication                        exchanges take no time at all, and the waiting
                                                              in them, which might stay, is counted as gain
all_hidden   the lesser of that and of compute that has no    an instant of compute hides one instant, and
             communication beside it                          communication hides under nothing else
===========  ===============================================  =============================================

Upper bounds as long as all else is as recorded: the ranks' compute, exposed memory and idle time add up to what they
were, however they are shared out. Who changes that can gain more: a rank that is late because it is slow, and is made
as fast as the others; a GEMM that communication beside it slowed down.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

__all__ = ["IDEALS", "Bound", "bounds"]

IDEALS = ("no_skew", "fast_link", "all_hidden")


@dataclass(frozen=True, slots=True)
class Bound:
    """What one ideal could gain at most.

    Attributes
    ----------
    ideal : str
        One of :data:`IDEALS`.
    window_ns : int
        Analysed time, added up over ranks.
    ranks : tuple of (int, int or None)
        Each rank and its gain at most, in ns; None where it is not known.
    """

    ideal: str
    window_ns: int
    ranks: tuple[tuple[int, int | None], ...]

    @property
    def gain_ns(self) -> int | None:
        """Over all ranks; None unless known for every one."""
        gains = [gain for _, gain in self.ranks if gain is not None]
        return sum(gains) if len(gains) == len(self.ranks) else None

    @property
    def ratio(self) -> float | None:
        """Of the time; None where there is none, or the gain is not known."""
        return None if self.gain_ns is None or not self.window_ns else self.gain_ns / self.window_ns

    @property
    def speedup(self) -> float | None:
        """T / (T − gain); None where that is not known, or nothing would be left."""
        left = None if self.gain_ns is None else self.window_ns - self.gain_ns
        return None if not left else self.window_ns / left


def bounds(ranks: pd.DataFrame) -> dict[str, Bound]:
    """The gain of each ideal at most.

    Parameters
    ----------
    ranks : DataFrame
        ``Overlap.ranks``. Without ``exposed_wait_ns`` (Int64, missing where not known) nothing is known of skew.

    Returns
    -------
    dict of str to Bound
        In the order of :data:`IDEALS`.
    """
    free = ranks["compute_ns"] - ranks["overlap_ns"]
    exposed = ranks["exposed_comm_ns"]
    wait = ranks.get("exposed_wait_ns", pd.Series(pd.NA, ranks.index, dtype="Int64"))
    gains = {
        "no_skew": wait.astype("Int64"),
        "fast_link": exposed,
        "all_hidden": exposed.where(exposed < free, free),
    }
    total = int(ranks["window_ns"].sum())
    numbers = ranks["rank"].tolist()
    found = {}
    for ideal in IDEALS:
        each = [None if pd.isna(gain) else int(gain) for gain in gains[ideal]]
        found[ideal] = Bound(ideal, total, tuple(zip(numbers, each, strict=True)))
    return found
