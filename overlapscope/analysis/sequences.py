"""Where each rank's collectives lie in the sequence that all ranks of a communicator share.

By recorded numbers where they say it all, else by order. A recording that began later, or was cut, misses some at
its edges: then the sequences are laid over each other where kinds and bytes agree and the ends keep one distance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..classify import Collective
from ..intervals import Int64
from ..trace import NA
from .clocks import mad

__all__ = ["TOGETHER", "places"]

# Codes of the collectives that cannot end on one rank before all have begun. A broadcast's root may be done with it,
# and a send, while the others have not come yet.
TOGETHER = tuple(
    list(Collective).index(collective)
    for collective in (
        *(Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER),
        *(Collective.ALL_TO_ALL, Collective.BARRIER),
    )
)

# A sequence is looked for so far beyond where the counts alone would put it.
SLACK = 2

# More than that missing at the edges is another recording.
MOST_MISSING = 4096

# Places to try are narrowed down to so many by looking at so many collectives, evenly spaced, in each: to look at
# all in thousands of places takes minutes.
LIKELY, SAMPLE = 16, 128

# The distances of the ends must deviate that much less in one place than in any other to tell it from them, and by
# more than clocks and kernels jitter (ns).
DECISIVE, JITTER = 4, 2_000


def places(some: pd.DataFrame) -> tuple[dict[int, Int64], str | None]:
    """Each rank's places in the sequence, or why they cannot be told."""
    by_rank = {int(rank): rows for rank, rows in some.groupby("rank", sort=True)}
    if _numbered(some):
        return {rank: rows["sequence"].to_numpy(np.int64) for rank, rows in by_rank.items()}, None
    longest = max(by_rank, key=lambda rank: len(by_rank[rank]))
    whole = _Sequence.of(by_rank[longest])
    places = {}
    for rank, rows in by_rank.items():
        shift, trouble = whole.shift(_Sequence.of(rows)) if rank != longest else (0, None)
        if trouble is not None:
            return (
                {},
                f"rank {rank} has {len(rows):,} of them and rank {longest} {len(whole.end):,}: {trouble}",
            )
        places[rank] = np.arange(len(rows), dtype=np.int64) + shift
    return places, None


def _numbered(some: pd.DataFrame) -> bool:
    """Whether recorded numbers say it all: each once a rank, and of one kind on all of them.

    PyTorch numbers sends apart from collectives, and gives all of a coalesced group one number.
    """
    if not (some["sequence"] >= 0).all() or some.duplicated(["rank", "sequence"]).any():
        return False
    return bool((some.groupby("sequence")["collective"].nunique() == 1).all())


@dataclass(frozen=True, slots=True, eq=False)
class _Sequence:
    """The collectives of one rank on one communicator, in order: what they are, and when they ended."""

    token: Int64  # same collective and bytes, same token
    end: Int64
    together: npt.NDArray[np.bool_]  # whether its end tells when it ended elsewhere

    @classmethod
    def of(cls, rows: pd.DataFrame) -> _Sequence:
        collective = rows["collective"].to_numpy(np.int64)
        nbytes = rows["bytes"].to_numpy()
        together = np.isin(collective, TOGETHER)
        return cls(
            np.where(nbytes == NA, -1, nbytes) * len(Collective) + collective,
            rows["end"].to_numpy(),
            together,
        )

    def shift(self, other: _Sequence) -> tuple[int, str | None]:
        """Where in this sequence another, no longer one, begins; or why that cannot be told."""
        missing = len(self.end) - len(other.end)
        if missing > MOST_MISSING:
            return 0, "too many are missing"
        tried = [
            (deviation, shift)
            for shift in self._likely(other, np.arange(-SLACK, missing + SLACK + 1)).tolist()
            if (deviation := self._deviation(other, shift)) is not None
        ]
        if not tried:
            return 0, "they are not the same in any order"
        tried.sort(key=lambda one: (one[0], abs(one[1])))
        best, shift = tried[0]
        if missing == 0:
            # Nothing says that any is missing, so the order holds unless the ends speak plainly against it.
            plain = next((deviation for deviation, s in tried if s == 0), None)
            if plain is not None:
                return (shift if _decides(best, plain) else 0), None
        if len(tried) > 1 and not _decides(best, tried[1][0]):
            return 0, "nothing tells which are missing"
        return shift, None

    def _likely(self, other: _Sequence, shifts: Int64) -> Int64:
        """Those of many places where the ends of a sample keep their distance best."""
        inner = np.arange(SLACK, len(other.end) - SLACK)
        inner = inner[other.together[inner]]
        if len(shifts) <= LIKELY or len(inner) < LIKELY:
            return shifts
        at = inner[np.linspace(0, len(inner) - 1, min(SAMPLE, len(inner))).astype(np.int64)]
        mine = shifts[:, None] + at
        distance = other.end[at] - self.end[mine]
        deviation = np.median(np.abs(distance - np.median(distance, axis=1, keepdims=True)), axis=1)
        fits = np.all(_same(self.token[mine], other.token[at]), axis=1)
        best = np.argsort(np.where(fits, deviation, np.inf), kind="stable")[:LIKELY]
        return np.asarray(shifts[best[fits[best]]], np.int64)

    def _deviation(self, other: _Sequence, shift: int) -> float | None:
        """How much the distance of the ends varies if the other begins at `shift`; None where they do not fit."""
        first, last = max(shift, 0), min(shift + len(other.end), len(self.end))
        n = last - first
        # An overlap of less than half would fit by chance.
        if 2 * n <= len(other.end) and n < len(other.end):
            return None
        mine, its = slice(first, last), slice(first - shift, last - shift)
        if not _same(self.token[mine], other.token[its]).all():
            return None
        both = self.together[mine] & other.together[its]
        if np.count_nonzero(both) < 2:
            return float("inf")
        return float(mad((other.end[its] - self.end[mine])[both]))


def _same(one: Int64, other: Int64) -> npt.NDArray[np.bool_]:
    """Which of two sequences are the same collective, and of the same bytes where both are known."""
    n = len(Collective)
    unknown = (one < 0) | (other < 0)
    return np.asarray(np.where(unknown, one % n == other % n, one == other), np.bool_)


def _decides(best: float, other: float) -> bool:
    return best * DECISIVE < other and other - best > JITTER
