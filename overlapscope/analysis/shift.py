"""Whether two samples differ by more than their spread explains, and by how much.

The test is Mann and Whitney's (1947), two-sided and exact for small samples: it asks nothing of the shape of the
distribution, which for times of steps has a long tail. The interval of the shift is what the same test does not
reject (Hodges and Lehmann 1963; Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 4.2 and 4.3), so
that both always say the same. Ties count against a difference, which keeps the level.

Values of a sample are taken to be independent of one another and the two distributions to differ by a shift.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

__all__ = ["ALPHA", "Shift", "enough", "shift"]

ALPHA = 0.05
"""A difference is told where one as large comes by chance no more often than that."""

MOST_EXACT = 1_000_000
"""Above so many steps of the exact count (100 values beside 100) the normal approximation is used: its error is
below a thousandth there, and the count would take longer than a second."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Two samples beside each other. What does not exist is None.

    Attributes
    ----------
    a, b : float or None
        Medians.
    n_a, n_b : int
        Values.
    low, high : float or None
        Interval of the shift from `a` to `b`, of confidence 1 − :data:`ALPHA`; None where there are too few values.
    p : float or None
        How often a difference as large comes by chance alone.
    """

    a: float | None
    b: float | None
    n_a: int
    n_b: int
    low: float | None = None
    high: float | None = None
    p: float | None = None

    @property
    def change(self) -> float | None:
        """b − a, of the medians."""
        return None if self.a is None or self.b is None else self.b - self.a

    @property
    def verdict(self) -> str | None:
        """ "less", "more", "untold": the spread explains the difference, "few": too few values for any verdict.

        None where one of the medians does not exist.
        """
        if self.change is None:
            return None
        if self.low is None or self.high is None:
            return "few"
        return "less" if self.high < 0 else "more" if self.low > 0 else "untold"

    def relative(self, figure: float | None) -> float | None:
        """A difference as a share of `a`; None where that is 0."""
        return None if figure is None or not self.a else figure / self.a


def shift(a: Sequence[float], b: Sequence[float]) -> Shift:
    """Compare two samples. ``shift(b, a)`` is the same with every sign turned."""
    n, m = len(a), len(b)
    medians = (float(np.median(a)) if n else None, float(np.median(b)) if m else None)
    extreme = _most_extreme(n, m)
    if extreme is None:
        return Shift(*medians, n, m)
    apart = np.sort(np.subtract.outer(np.asarray(b, float), np.asarray(a, float)), axis=None)
    # Pairs that are equal count as on the side that speaks against a difference.
    against = min(np.count_nonzero(apart >= 0), np.count_nonzero(apart <= 0))
    p = min(1.0, 2 * _at_most(int(against), n, m))
    return Shift(*medians, n, m, float(apart[extreme]), float(apart[-1 - extreme]), p)


def enough(n: int, m: int) -> bool:
    """Whether samples of these sizes can tell any difference: 4 beside 4 can, 3 beside 3 cannot."""
    return _most_extreme(n, m) is not None


@lru_cache
def _most_extreme(n: int, m: int) -> int | None:
    """The greatest number of pairs on the wrong side with which a difference is told, None if even 0 is too many."""
    if not n or not m or 2 * _at_most(0, n, m) > ALPHA:
        return None
    least, beyond = 0, n * m // 2 + 1
    while beyond - least > 1:
        middle = (least + beyond) // 2
        least, beyond = (middle, beyond) if 2 * _at_most(middle, n, m) <= ALPHA else (least, middle)
    return least


def _at_most(u: int, n: int, m: int) -> float:
    """P(U ≤ u) of the Mann–Whitney statistic where the distributions are the same."""
    if min(n, m) * n * m <= MOST_EXACT:
        total, below = _counts(n, m)
        return below[min(u, n * m)] / total
    spread = math.sqrt(n * m * (n + m + 1) / 12)
    return NormalDist(n * m / 2, spread).cdf(u + 0.5)  # half a step: U is whole


@lru_cache
def _counts(n: int, m: int) -> tuple[int, tuple[int, ...]]:
    """Of the orders of n and m values all, and those with at most 0, 1, 2, ... pairs on the wrong side.

    Their generating function is the Gaussian binomial Π (1 − q^(m+i)) / (1 − q^i), i = 1 to n.
    """
    n, m = min(n, m), max(n, m)
    size = n * m + 1
    counts = [1] + [0] * (size - 1)
    for i in range(1, n + 1):
        for u in range(size - 1, m + i - 1, -1):
            counts[u] -= counts[u - m - i]
        for u in range(i, size):
            counts[u] += counts[u - i]
    below = []
    so_far = 0
    for count in counts:
        so_far += count
        below.append(so_far)
    return so_far, tuple(below)
