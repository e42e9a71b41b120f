"""How work and an exchange share the time: what each schedule of :mod:`workloads.schedules` leaves exposed.

Exchange and work beside it are taken not to slow one another. Times are in one unit, whichever.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NOTHING", "Part", "alone", "pipelined", "ring", "serial", "under"]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a step.

    Attributes
    ----------
    compute, comm : float
        Time that work, and exchanges, take.
    exposed : float
        Time of exchanges with no work beside them; the piece takes compute + exposed.
    wire : float
        Bytes that a rank sends.
    """

    compute: float
    comm: float = 0.0
    exposed: float = 0.0
    wire: float = 0.0

    def __add__(self, other: Part) -> Part:
        return Part(
            self.compute + other.compute,
            self.comm + other.comm,
            self.exposed + other.exposed,
            self.wire + other.wire,
        )

    def __mul__(self, times: int) -> Part:
        return Part(self.compute * times, self.comm * times, self.exposed * times, self.wire * times)


NOTHING = Part(0.0)


def alone(work: float) -> Part:
    """Work that exchanges nothing."""
    return Part(work)


def serial(work: float, exchange: float, wire: float = 0.0) -> Part:
    """One after the other: T = work + exchange, all of it exposed."""
    return Part(work, exchange, exchange, wire)


def under(work: float, exchange: float, wire: float = 0.0) -> Part:
    """Both start together, independent of each other: T = max(work, exchange).

    So exposed = T − work = max(0, exchange − work).
    """
    return Part(work, exchange, max(0.0, exchange - work), wire)


def pipelined(work: float, exchange: float, chunks: int, wire: float = 0.0) -> Part:
    """`chunks` equal pieces through two stages, `work` and `exchange` being those of one piece, in either order.

    The first piece passes both stages, and each further one comes out a time of the slower stage later::

        T = work + exchange + (chunks − 1) · max(work, exchange)
        exposed = T − chunks · work = exchange + (chunks − 1) · max(0, exchange − work)

    Parameters
    ----------
    wire : float
        Bytes of one piece.
    """
    exposed = exchange + (chunks - 1) * max(0.0, exchange - work)
    return Part(chunks * work, chunks * exchange, exposed, chunks * wire)


def ring(work: float, hop: float, ranks: int, wire: float = 0.0, add: float = 0.0) -> Part:
    """`ranks` pieces of work and a hop beside all but one of them, both waited for before the next::

        T = ranks · work + (ranks − 1) · (max(0, hop − work) + add)

    A gather multiplies the shard at hand while the next travels, and the last while nothing does. A scatter multiplies
    its first piece while nothing travels; then, beside each hop of the partial sum, the next piece, which is added to
    what came in: `add`, which the following hop has to wait for.

    Parameters
    ----------
    work, hop, add : float
        Time of one piece, one hop, one addition.
    wire : float
        Bytes of one hop.
    """
    hops = ranks - 1
    return Part(ranks * work + hops * add, hops * hop, hops * max(0.0, hop - work), hops * wire)
