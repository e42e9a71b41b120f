"""The link that a run pretends to have: latency and bandwidth, and how long a collective takes on it.

A collective of S bytes over n ranks takes α + factor · S / β, with NCCL's busbw factors: what is sent in each
direction by each rank. Imports no torch.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from .config import ConfigError

__all__ = ["LINKS", "Link"]

LINKS = {
    "nvlink3": (300.0, 7.2),
    "nvlink4": (450.0, 7.2),
    "nvlink5": (900.0, 7.2),
    "hdr": (25.0, 9.3),
    "ndr": (50.0, 9.3),
    "xdr": (100.0, 9.3),
    "pcie4": (32.0, 7.6),
    "pcie5": (64.0, 7.6),
}
"""Peak GB/s a GPU and direction, and µs: NCCL's base latency of a ring (LL protocol) 6.6 µs and one hop more,
which is 0.6 over NVLink, 1.0 over PCIe and 2.7 over InfiniBand (nccl/src/graph/tuning.cc)."""

_SPEED = {"GB/s": 1e9, "MB/s": 1e6}
_TIME = {"ns": 1e9, "us": 1e6, "µs": 1e6, "ms": 1e3}  # a second holds so many
_SPEC = re.compile(
    rf"\s*([\d.]+)\s*({'|'.join(_SPEED)})\s*(?:,\s*([\d.]+)\s*({'|'.join(_TIME)})\s*)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Link:
    """A link between the ranks.

    Attributes
    ----------
    alpha : float
        Latency of a collective, s.
    beta : float
        Bytes a second, each way.
    """

    alpha: float
    beta: float

    @classmethod
    def parse(cls, text: str) -> Link:
        """A name of :data:`LINKS`, or a speed and a latency: ``50GB/s,5us``, ``200MB/s``.

        Raises
        ------
        ConfigError
            It is neither.
        """
        if text in LINKS:
            speed, latency = LINKS[text]
            return cls(latency / 1e6, speed * 1e9)
        match = _SPEC.fullmatch(text)
        try:
            beta = float(match[1]) * _of(_SPEED, match[2]) if match else 0.0
            alpha = float(match[3]) / _of(_TIME, match[4]) if match and match[3] else 0.0
        except ValueError:  # 1.2.3
            beta = 0.0
        if beta > 0:
            return cls(alpha, beta)
        near = difflib.get_close_matches(text.lower(), LINKS, n=1)
        example = "give a speed and a latency such as 50GB/s,5us, or one of " + ", ".join(LINKS)
        raise ConfigError("link", f"{text!r} is no link", f"did you mean {near[0]}?" if near else example)

    def __str__(self) -> str:
        """``50 GB/s, 5 us``, which :meth:`parse` reads again."""
        speed = f"{self.beta / 1e9:.12g} GB/s" if self.beta >= 1e9 else f"{self.beta / 1e6:.12g} MB/s"
        return f"{speed}, {self.alpha * 1e6:.12g} us"

    def seconds(self, collective: str, size: int, ranks: int) -> float:
        """How long a collective takes.

        Parameters
        ----------
        collective : str
            all_reduce, all_gather, reduce_scatter, all_to_all or send_recv.
        size : int
            Bytes of the whole array; of the message for send_recv.
        ranks : int
        """
        share = (ranks - 1) / ranks
        factor = {"all_reduce": 2 * share, "send_recv": 1.0}.get(collective, share)
        return self.alpha + factor * size / self.beta


def _of(units: dict[str, float], word: str) -> float:
    """The unit's value, whatever its case."""
    return next(value for unit, value in units.items() if unit.lower() == word.lower())
