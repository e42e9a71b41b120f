"""How the clocks of several recordings run beside one another, from collectives that end together.

An all-reduce cannot end on one rank before it has begun on all of them, and ends on all within microseconds; so
the ends of matched collectives are one instant told by several clocks. Starts are not: a late rank starts late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..intervals import Int64, Spans

__all__ = ["ONE_CLOCK", "Clock", "Clocks", "fit", "mad"]

LEAST = 3
"""Ends that two clocks must have in common: of two, neither can be told to be the odd one."""

LEAST_FOR_DRIFT = 24
"""Ends from which a drift is looked for: eight in each third of the time."""

DRIFT_GAIN = 2
"""A drift is believed where it makes the spread at most half; quartz clocks differ by up to 50 µs a second."""


@dataclass(frozen=True, slots=True)
class Clock:
    """One recording's clock beside the reference's: its time t is t - offset - drift * (t - since) there.

    Attributes
    ----------
    offset : int
        ns that it is ahead, at its time `since`.
    drift : float
        ns that it gains in one ns.
    since : int
        ns on this clock.
    spread : int or None
        Median absolute deviation of the ends that it was fitted to, ns; None where nothing was fitted.
    ends : int
        How many those were.
    """

    offset: int = 0
    drift: float = 0.0
    since: int = 0
    spread: int | None = None
    ends: int = 0

    def common(self, time: Int64) -> Int64:
        """Its times on the reference clock, ns."""
        return time - self.ahead(time)

    def own(self, time: Int64) -> Int64:
        """Times of the reference clock on this one, ns; what :meth:`common` maps back, to the ns or two."""
        return time + self.ahead(time + self.offset)

    def ahead(self, time: Int64) -> Int64:
        """ns that it is ahead at its own times."""
        if not self.drift:
            return np.full_like(time, self.offset)
        gained = np.rint((time - self.since) * self.drift).astype(np.int64)
        return np.asarray(self.offset + gained, np.int64)


ONE_CLOCK = Clock()


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clock of every rank, and how that was found, in words."""

    of_rank: Mapping[int, Clock] = field(default_factory=dict)
    how: str = ""

    def __getitem__(self, rank: int) -> Clock:
        return self.of_rank.get(rank, ONE_CLOCK)

    def ahead(self, windows: Mapping[int, Spans]) -> dict[int, int]:
        """By rank the ns that its clock is ahead in the middle of its window.

        What is drawn is moved by that as a whole: to take a drift off would change how long ops last.
        """
        middle = {
            rank: (int(w.start[0]) + int(w.end[-1])) // 2 if len(w) else 0 for rank, w in windows.items()
        }
        return {rank: int(self[rank].ahead(np.array([at]))[0]) for rank, at in middle.items()}


def fit(clock: Sequence[int], ends: Sequence[tuple[int, int, Int64, Int64]]) -> dict[int, Clock]:
    """Clocks beside the first one, from instants that pairs of them tell together.

    Parameters
    ----------
    clock : sequence of int
        The clocks there are; the first is the reference.
    ends : sequence of (clock, clock, times, times)
        The same instants on two clocks, ns, in order.

    Returns
    -------
    dict of int to Clock
        Without those that have too little in common with any other. Each is fitted to the one it has most
        instants in common with, among those already reached.
    """
    found = {clock[0]: ONE_CLOCK}
    links = [(len(x), a, b, x, y) for a, b, x, y in ends if len(x) >= LEAST]
    links += [(n, b, a, y, x) for n, a, b, x, y in links]
    links.sort(key=lambda link: -link[0])
    while True:
        link = next(((a, b, x, y) for _, a, b, x, y in links if a in found and b not in found), None)
        if link is None:
            return found
        a, b, x, y = link
        found[b] = _fitted(found[a].common(x), y)


def _fitted(reference: Int64, own: Int64) -> Clock:
    ahead = own - reference
    offset = int(np.median(ahead))
    flat = mad(ahead)
    clock = Clock(offset, 0.0, int(own[0]), flat, len(own))
    if len(own) < LEAST_FOR_DRIFT:
        return clock
    # Tukey's resistant line: through the medians of the first and the last third.
    third = len(own) // 3
    early, late = (np.median(part) for part in (own[:third], own[-third:]))
    if late <= early:
        return clock
    rise = np.median(ahead[-third:]) - np.median(ahead[:third])
    drift = float(rise / (late - early))
    since = int(early)
    rest = ahead - np.rint((own - since) * drift).astype(np.int64)
    spread = mad(rest)
    if spread * DRIFT_GAIN > flat:
        return clock
    return Clock(int(np.median(rest)), drift, since, spread, len(own))


def mad(values: Int64) -> int:
    """Median absolute deviation from the median, ns."""
    return int(np.median(np.abs(values - int(np.median(values)))))
