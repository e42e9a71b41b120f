"""What a workload can be told, and what it costs in memory. Imports no torch."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["DTYPES", "Config", "ConfigError", "among"]

DTYPES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
"""Element types by PyTorch's name, with their bytes."""


class ConfigError(ValueError):
    """An option, or options together, that make no sense; ``option`` is its name."""

    def __init__(self, option: str, what: str, remedy: str) -> None:
        self.option, self.what, self.remedy = option, what, remedy
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

    STEPS: ClassVar[int] = 3
    WARMUP: ClassVar[int] = 1
    """Iterations that are measured, and run before those, unless the user says otherwise."""

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
