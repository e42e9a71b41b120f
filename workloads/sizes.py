"""The sizes of a sweep over one collective, and what such a sweep can be told. Imports no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from .config import DTYPES, Config, ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "AllGatherConfig",
    "AllReduceConfig",
    "AllToAllConfig",
    "CollectiveConfig",
    "ReduceScatterConfig",
    "SendRecvConfig",
    "parse",
]

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
UNITS |= {"K": 2**10, "M": 2**20, "G": 2**30}
"""KB, MB and GB are decimal, as in GB/s; a bare K, M or G is binary, as in the options of nccl-tests."""

MOST = 64
"""Sizes of one sweep: more than doubling from 1 byte to all there is needs, and a table that is still read."""

EXAMPLE = "give such as 8B:256MB:x2, 1MB:8MB:+1MB or 1KB,1MB"


def parse(text: str) -> list[int]:
    """Sizes in bytes, ascending, each once.

    Parameters
    ----------
    text : str
        Sizes and ranges between commas. A range is ``START:STOP:xF`` (times F) or ``START:STOP:+SIZE``; STOP is
        its last size whether or not the steps meet it, so that no sweep ends far below what was asked for.

    Raises
    ------
    ConfigError
        It is none, holds a size of 0, a range that runs backwards or does not grow, or too many sizes.
    """
    sizes: set[int] = set()
    for part in text.split(","):
        words = part.strip().split(":")
        if len(words) == 1:
            sizes.add(_size(words[0], text))
        elif len(words) == 3:
            sizes.update(_range(words[0], words[1], words[2], text))
        else:
            raise _unreadable(text)
        if len(sizes) > MOST:
            raise ConfigError("sizes", f"{text!r} is more than {MOST} sizes", "take larger steps")
    return sorted(sizes)


def _range(first: str, last: str, step: str, text: str) -> list[int]:
    start, stop = _size(first, text), _size(last, text)
    if stop < start:
        raise ConfigError("sizes", f"{first}:{last} runs backwards", f"give {last}:{first}")
    by = step.strip()
    if by[:1] == "x" and by[1:].isascii() and by[1:].isdecimal() and len(by) < 20:
        factor, term = int(by[1:]), 0
        if factor < 2:
            raise ConfigError("sizes", f"{by} does not grow", "give x2 or more")
    elif by[:1] == "+":
        factor, term = 1, _size(by[1:], text)
    else:
        raise ConfigError("sizes", f"cannot read the step {step!r}", "give a factor, x2, or a size, +1MB")
    sizes: list[int] = []
    while start < stop and len(sizes) <= MOST:  # one too many is enough to be refused
        sizes.append(start)
        start = start * factor + term
    return [*sizes, stop]


def _size(word: str, text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,15})\s*([A-Za-z]*)", word.strip())
    if match is None:
        raise _unreadable(text)
    number, unit = match.groups()
    if unit.upper() not in UNITS:
        raise ConfigError("sizes", f"{unit!r} is no unit", "there are B, KB, MB, GB and KiB, MiB, GiB")
    if int(number) == 0:
        raise ConfigError("sizes", f"{word.strip()!r} is nothing to send", "give 1 B or more")
    return int(number) * UNITS[unit.upper()]


def _unreadable(text: str) -> ConfigError:
    return ConfigError("sizes", f"cannot read {text!r}", EXAMPLE)


@dataclass(frozen=True, kw_only=True)
class CollectiveConfig(Config):
    """A sweep of one collective over sizes; the one is :attr:`COLLECTIVE`, which each class derived from this sets.

    Attributes
    ----------
    sizes : str
        As :func:`parse` reads them: bytes of the whole array (of all_gather its result, of reduce_scatter its
        input, of all_to_all either), of the message for send_recv. That is what nccl-tests calls size.
    """

    sizes: str

    STEPS: ClassVar[int] = 20
    WARMUP: ClassVar[int] = 5  # as nccl-tests has both
    SPLIT: ClassVar[bool] = False
    LARGE: ClassVar[tuple[str, ...]] = ("sizes",)
    COLLECTIVE: ClassVar[str]
    SHARED: ClassVar[bool] = True
    """Whether every rank has, or gets, an equal part of the array, so that there must be such parts."""

    @classmethod
    def of(cls, device: str, **given: Any) -> Self:
        """On a CPU the sizes that take seconds; on a GPU those that show where a link is full."""
        usual = {"sizes": "8B:256MiB:x2" if device == "cuda" else "8B:16MiB:x8"}
        return super().of(device, **usual | {k: v for k, v in given.items() if v is not None})

    def check(self, tp: int, device: str = "cpu") -> None:
        """Raise :class:`ConfigError` unless `tp` ranks can exchange these sizes."""
        super().check(tp, device)
        parse(self.sizes)
        # Of one rank NCCL makes a copy where the result has a place of its own; PyTorch sends nothing to itself.
        copies = device == "cuda" and self.COLLECTIVE not in ("all_reduce", "send_recv")
        if tp == 1 and not copies:
            raise ConfigError("tp", "1 rank has nobody to exchange with", "give 2 or more")

    def bytes(self, tp: int) -> list[int]:
        """The sizes that `tp` ranks exchange: those asked for, rounded to whole elements for each rank.

        Rounded down; what would be nothing then becomes one element for each; sizes that become the same are one.
        """
        unit = DTYPES[self.dtype] * (tp if self.SHARED else 1)
        return sorted({max(size // unit * unit, unit) for size in parse(self.sizes)})

    def notes(self, tp: int) -> list[str]:
        """What a reader of the table must know: which sizes were rounded, and how many became equal to another."""
        asked, unit = parse(self.sizes), DTYPES[self.dtype] * (tp if self.SHARED else 1)
        rounded = sum(size % unit != 0 for size in asked)
        if not rounded:
            return []
        whose = f"one {self.dtype} for each of {tp} ranks" if self.SHARED else f"one {self.dtype}"
        lost = len(asked) - len(self.bytes(tp))
        equal = (
            f"; {lost} became equal to another and {'is' if lost == 1 else 'are'} left out" if lost else ""
        )
        return [
            f"{rounded} of {len(asked)} sizes were rounded to whole multiples of {unit} B, {whose}{equal}"
        ]

    def memory(self, tp: int, device: str) -> int:
        """The buffers to send from and to receive in, and the largest of what comes beside them.

        That is what is filled in to be checked; what the result should be, and which elements differ; on a CPU
        the copy in which gloo adds up what it scatters.
        """
        whole = self.bytes(tp)[-1]
        send, receive = self.buffers(whole, tp)
        beside = max(send, receive + receive // DTYPES[self.dtype], whole if device == "cpu" else 0)
        return send + (0 if self.COLLECTIVE == "all_reduce" else receive) + beside

    def buffers(self, size: int, tp: int) -> tuple[int, int]:
        """Bytes that a rank sends from and receives in, of a whole array of `size`."""
        part = size // tp
        return {"all_gather": (part, size), "reduce_scatter": (size, part)}.get(self.COLLECTIVE, (size, size))

    def operators(self, tp: int) -> int:
        """About how many operators a profiler sees in one iteration: counted, with the barrier, 30 an exchange."""
        return 30 * len(self.bytes(tp))


class AllReduceConfig(CollectiveConfig):
    """The sum of all ranks' arrays, in place."""

    COLLECTIVE = "all_reduce"
    SHARED = False


class AllGatherConfig(CollectiveConfig):
    """All ranks' parts, on every rank."""

    COLLECTIVE = "all_gather"


class ReduceScatterConfig(CollectiveConfig):
    """Each rank's part of the sum."""

    COLLECTIVE = "reduce_scatter"


class AllToAllConfig(CollectiveConfig):
    """A part from every rank to every rank."""

    COLLECTIVE = "all_to_all"


class SendRecvConfig(CollectiveConfig):
    """A message to the right neighbour of a ring, one from the left."""

    COLLECTIVE = "send_recv"
    SHARED = False
