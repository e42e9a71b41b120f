"""What a workload can be told, and what it costs in memory. Imports no torch."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["DTYPES", "Config", "ConfigError", "WrongError", "among", "divisors", "multiples", "no_multiple"]

DTYPES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
"""Element types by PyTorch's name, with their bytes."""

DTYPE_ALIASES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}
DTYPE_ALIASES |= {"half": "float16", "float": "float32", "double": "float64"}
"""What else people call them."""


class WrongError(Exception):
    """What ranks have computed together is wrong."""


class ConfigError(ValueError):
    """An option, or options together, that make no sense; ``option`` is its name.

    Of two that do not fit each other, ``other`` says the same of the second: for who gave only that one.
    """

    def __init__(self, option: str, what: str, remedy: str, other: ConfigError | None = None) -> None:
        self.option, self.what, self.remedy, self.other = option, what, remedy, other
        super().__init__(f"{option}: {what}; {remedy}")


def among(option: str, value: str, known: Iterable[str]) -> None:
    """Raise :class:`ConfigError`, with the nearest that there is, unless `value` is one of the `known`."""
    known = list(known)
    if value not in known:
        near = difflib.get_close_matches(value, known, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
        raise ConfigError(option, f"{value!r} is not known", remedy)


@dataclass(frozen=True, kw_only=True)
class Config:
    """What every workload can be told; each has its own, derived from this.

    Attributes
    ----------
    dtype : str
        A key of :data:`DTYPES`.
    seed : int
        All random numbers follow from it, the same for every number of ranks.
    """

    dtype: str = "float32"
    seed: int = 0

    STEPS: ClassVar[int] = 10  # from five on a report says which of them stand out
    WARMUP: ClassVar[int] = 3
    """Iterations that are measured, and run before those, unless the user says otherwise."""
    SPLIT: ClassVar[bool] = True
    """Whether the ranks share out one work, which each has less of the more there are."""
    LARGE: ClassVar[tuple[str, ...]] = ("hidden", "ffn", "seq", "batch", "layers")
    """Options that decide what memory it takes, as far as it has them."""

    SHORT: ClassVar[tuple[str, ...]] = ()
    """Options beside the fields, which :meth:`of` turns into some of those."""

    @classmethod
    def of(cls, device: str, **given: Any) -> Self:
        """The options that were given (not None), and for the rest what suits the device, "cpu" or "cuda"."""
        return cls(**{name: value for name, value in given.items() if value is not None})

    def check(self, tp: int, device: str = "cpu") -> None:
        """Raise :class:`ConfigError` unless `tp` ranks can run this on such a device."""
        among("dtype", self.dtype, DTYPES)

    def check_link(self) -> None:
        """Raise :class:`ConfigError` if a link cannot be pretended for its exchanges."""

    def memory(self, tp: int, device: str) -> int:
        """Bytes one of `tp` ranks allocates at its peak, without the process itself."""
        raise NotImplementedError

    def operators(self, tp: int) -> int:
        """About how many operators a profiler sees in one iteration on one of `tp` ranks."""
        raise NotImplementedError


def multiples(value: int, of: int) -> str:
    """The multiples on both sides, as words."""
    below, above = value // of * of, -(-value // of) * of
    return f"{below} or {above}" if below else f"{above}"


REACH = 1 << 20
"""How far a divisor is looked for: a tenth of a second."""


def divisors(of: int, near: int) -> str:
    """The divisors on both sides, as words."""
    nearest = min(near, of)
    down = range(nearest, max(nearest - REACH, 0), -1)
    up = range(max(near, 1), min(of, max(near, 1) + REACH) + 1)
    below = next((n for n in down if of % n == 0), 1 if down else None)
    above = next((n for n in up if of % n == 0), of if up else None)
    return " or ".join(str(n) for n in (below, above) if n is not None)


def no_multiple(option: str, value: int, of: int, what: str) -> ConfigError:
    """For who gave only `option` of two that do not fit each other."""
    return ConfigError(option, f"{value} is no multiple of {of} {what}", f"give {multiples(value, of)}")
