"""What a workload can be told, and what it costs in memory. Imports no torch."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["DTYPES", "SCHEDULES", "BlockConfig", "Config", "ConfigError", "WrongError", "among"]

DTYPES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
"""Element types by PyTorch's name, with their bytes."""

DTYPE_ALIASES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}
DTYPE_ALIASES |= {"half": "float16", "float": "float32", "double": "float64"}
"""What else people call them."""

SCHEDULES = ("serial", "pipelined", "ring", "symm_mem")
"""See :mod:`workloads.schedules`."""

CHUNKS = 4
"""Of the pipelined schedule: 1 of 4 parts stays exposed; more make the GEMMs small and the latencies many."""


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

    STEPS: ClassVar[int] = 3
    WARMUP: ClassVar[int] = 1
    """Iterations that are measured, and run before those, unless the user says otherwise."""
    SPLIT: ClassVar[bool] = True
    """Whether the ranks share out one work, which each has less of the more there are."""
    LARGE: ClassVar[tuple[str, ...]] = ("hidden", "ffn", "seq", "batch", "layers")
    """Options that decide what memory it takes, as far as it has them."""

    @classmethod
    def of(cls, device: str, **given: Any) -> Self:
        """The options that were given (not None), and for the rest what suits the device, "cpu" or "cuda"."""
        return cls(**{name: value for name, value in given.items() if value is not None})

    def check(self, tp: int, device: str = "cpu") -> None:
        """Raise :class:`ConfigError` unless `tp` ranks can run this on such a device."""
        among("dtype", self.dtype, DTYPES)

    def memory(self, tp: int, device: str) -> int:
        """Bytes one of `tp` ranks allocates at its peak, without the process itself."""
        raise NotImplementedError

    def operators(self, tp: int) -> int:
        """About how many operators a profiler sees in one iteration on one of `tp` ranks."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class BlockConfig(Config):
    """A stack of transformer blocks: pre-norm, causal attention, GELU, `ffn` wide.

    Attributes
    ----------
    hidden, heads, ffn : int
        Width of the residual stream, attention heads, width of the MLP.
    seq, batch, layers : int
        Tokens a sequence, sequences, blocks.
    forward_only : bool
        Leave the backward pass out.
    sequence_parallel : bool
        Norms and residuals on this rank's part of the sequence.
    schedule : str
        One of :data:`SCHEDULES`.
    chunks : int or None
        Of the pipelined schedule.
    overlap_backward : bool
        A column layer's collectives run under the GEMMs of its backward pass.
    """

    hidden: int
    heads: int
    ffn: int
    seq: int
    batch: int
    layers: int = 1
    forward_only: bool = False
    sequence_parallel: bool = False
    schedule: str = "serial"
    chunks: int | None = None
    overlap_backward: bool = True

    @classmethod
    def of(cls, device: str, **given: Any) -> Self:
        """The options that were given (not None), and for the rest what suits the device, "cpu" or "cuda".

        On a CPU the GEMMs are large enough to be seen, and eight ranks on two cores stay within seconds; on a
        GPU the shape is that of a 7-billion-parameter model's layer.
        """
        usual: dict[str, Any] = {"hidden": 512, "heads": 8, "seq": 256, "batch": 2, "dtype": "float32"}
        if device == "cuda":
            usual = {"hidden": 4096, "heads": 32, "seq": 2048, "batch": 1, "dtype": "bfloat16"}
        options = usual | {name: value for name, value in given.items() if value is not None}
        options.setdefault("ffn", 4 * options["hidden"])
        if options.get("schedule") == "pipelined":
            options.setdefault("chunks", CHUNKS)
        return cls(**options)

    def check(self, tp: int, device: str = "cpu") -> None:
        """Raise :class:`ConfigError` unless `tp` ranks can hold equal parts of this block, and run it so."""
        super().check(tp, device)
        for name in ("hidden", "heads", "ffn", "seq", "batch", "layers"):
            if getattr(self, name) < 1:
                raise ConfigError(name, f"is {getattr(self, name)}", "give 1 or more")
        if self.hidden % self.heads:
            other = _no_multiple("hidden", self.hidden, self.heads, "heads")
            what = f"{self.heads} do not divide hidden {self.hidden}"
            raise ConfigError("heads", what, "give a divisor of it", other)
        for name, width in (("heads", self.heads), ("ffn", self.ffn)):
            if width % tp:
                what = f"{tp} ranks do not divide {name} {width}"
                other = _no_multiple(name, width, tp, "ranks")
                raise ConfigError("tp", what, f"give a divisor of {width}", other)

        self._check_schedule(tp, device)

    def _check_schedule(self, tp: int, device: str) -> None:
        among("schedule", self.schedule, SCHEDULES)
        if self.sequence_parallel and self.seq % tp:
            what = f"{tp} ranks do not divide {self.seq} tokens"
            raise ConfigError("seq", what, f"give {_nearest(self.seq, tp)}")
        if self.schedule in ("ring", "symm_mem") and not self.sequence_parallel:
            what = f"{self.schedule} passes parts of the sequence, which each rank has whole"
            raise ConfigError("schedule", what, "add --sequence-parallel, or give pipelined")
        if self.schedule == "symm_mem" and device != "cuda":
            raise ConfigError("schedule", "symm_mem needs CUDA and access between the GPUs", "give ring")
        if self.schedule != "pipelined":
            if self.chunks is not None:
                remedy = "add --schedule pipelined, or leave it out"
                raise ConfigError("chunks", f"{self.schedule} has none", remedy)
            return
        rows = self.seq // tp if self.sequence_parallel else self.seq
        if self.chunks is None or self.chunks < 1:
            raise ConfigError("chunks", f"is {self.chunks}", "give 1 or more")
        if self.chunks > rows:
            whose = "a rank's part of the sequence" if self.sequence_parallel else "the sequence"
            raise ConfigError("chunks", f"{self.chunks} of {rows} tokens, {whose}", f"give at most {rows}")

    def operators(self, tp: int) -> int:
        """About how many operators a profiler sees in one iteration on one of `tp` ranks.

        Counted: 200 forward, 550 in all; of a chunk 26, or 130 with its gather and scatter; 200 for the gathers
        and scatters or, in a ring, for each of its steps.
        """
        a_block = 200 if self.forward_only else 550
        if self.sequence_parallel:
            a_block += 200 * (tp - 1 if self.schedule == "ring" else 1)
        if self.chunks is not None:
            a_block += self.chunks * (130 if self.sequence_parallel else 26)
        return self.layers * a_block

    def saved(self, tp: int) -> int:
        """Bytes that one block on one of `tp` ranks keeps for its backward pass, by the formula.

        Both norms' inputs and outputs (4 h a token), whole or, with sequence parallelism, of the rank's rows;
        queries, keys, values and attention's output (4 h / tp); GELU's input and output (2 f / tp). This is
        Korthikanti et al. 2022, s b h (10 + 24/t) and s b h 34/t at 16 bit, without what this block has not:
        dropout masks and attention scores. What norms and attention keep of each row, a few numbers, is left out.
        """
        h, f = self.hidden, self.ffn
        norms = 4 * h // tp if self.sequence_parallel else 4 * h
        return DTYPES[self.dtype] * self.seq * self.batch * (norms + (4 * h + 2 * f) // tp)

    def memory(self, tp: int, device: str) -> int:
        """Bytes one of `tp` ranks allocates at its peak, without the process itself.

        Weights and their gradients, what autograd saves, the gradients in flight in one block, and, while
        the weights are cut, the largest full matrix in float32.
        """
        size = DTYPES[self.dtype]
        h, f, tokens = self.hidden, self.ffn, self.seq * self.batch
        weights = self.layers * size * ((4 * h * h + 2 * h * f + 3 * h + f) // tp + 6 * h)
        drawn = 4 * h * max(3 * h, f)
        saved = replace(self, sequence_parallel=False).saved(tp)
        # Attention without a fused kernel keeps the scores, their softmax and their gradient.
        fused = device == "cpu" or self.dtype in ("bfloat16", "float16", "float32")
        scores = 0 if fused else 3 * size * self.batch * (self.heads // tp) * self.seq**2
        # One block's own: residual stream and gradient, twice each; the widest output and its gradient.
        flight = size * tokens * (4 * h + 2 * max(3 * h, f) // tp) + scores
        kept = 1 if self.forward_only else self.layers
        return weights * (1 if self.forward_only else 2) + kept * (saved + scores) + max(flight, drawn)


def _no_multiple(option: str, value: int, of: int, what: str) -> ConfigError:
    return ConfigError(option, f"{value} is no multiple of {of} {what}", f"give {_nearest(value, of)}")


def _nearest(value: int, of: int) -> str:
    """The multiples on both sides, as words."""
    below, above = value // of * of, -(-value // of) * of
    return f"{below} or {above}" if below else f"{above}"
