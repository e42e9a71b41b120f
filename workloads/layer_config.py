"""What a workload of layers can be told, and what it costs in memory: in general, and of one column or row layer."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from .config import DTYPES, Config, ConfigError, among, divisors, multiples, no_multiple
from .presets import PRESETS, USUAL

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["SCHEDULES", "ColumnConfig", "LayerConfig", "RowConfig"]

SCHEDULES = ("serial", "pipelined", "ring", "symm_mem")
"""See :mod:`workloads.schedules`."""

CHUNKS = 4
"""Of the pipelined schedule: 1 of 4 parts stays exposed; more make the GEMMs small and the latencies many."""


@dataclass(frozen=True, kw_only=True)
class LayerConfig(Config):
    """Layers between a hidden width and an inner one, split over the ranks along the inner one.

    Attributes
    ----------
    hidden, ffn : int
        Width of the residual stream and of the MLP.
    seq, batch : int
        Tokens a sequence, sequences.
    forward_only : bool
        Leave the backward pass out.
    sequence_parallel : bool
        What is not split along the inner width is split along the sequence.
    schedule : str
        One of :data:`SCHEDULES`.
    chunks : int or None
        Of the pipelined schedule.
    overlap_backward : bool
        A column layer's collectives run under the GEMMs of its backward pass.
    """

    hidden: int
    ffn: int
    seq: int
    batch: int
    forward_only: bool = False
    sequence_parallel: bool = False
    schedule: str = "serial"
    chunks: int | None = None
    overlap_backward: bool = True

    SHORT: ClassVar[tuple[str, ...]] = ("preset",)
    SIZES: ClassVar[tuple[str, ...]] = ("hidden", "ffn", "seq", "batch")
    """Fields that are 1 or more."""

    @classmethod
    def of(cls, device: str, preset: str | None = None, **given: Any) -> Self:
        """The options that were given (not None), for the rest the preset's, else what suits the device.

        Raises
        ------
        ConfigError
            There is no such preset.
        """
        if preset is not None:
            among("preset", preset, PRESETS)
        own = {field.name for field in fields(cls)}
        shape = USUAL[device] if preset is None else PRESETS[preset]
        options = {name: value for name, value in shape.items() if name in own}
        options["dtype"] = "bfloat16" if device == "cuda" else "float32"
        options |= {name: value for name, value in given.items() if value is not None}
        options.setdefault("ffn", 4 * options["hidden"])
        if options.get("schedule") == "pipelined":
            options.setdefault("chunks", CHUNKS)
        return cls(**options)

    @property
    def depth(self) -> int:
        """Layers one after another."""
        return 1

    def single(self) -> Self:
        """The same with one layer and the plainest schedule."""
        return replace(self, schedule="serial", chunks=None)

    @property
    def tokens(self) -> int:
        """Tokens at once."""
        return self.seq * self.batch

    def rows(self, tp: int) -> int:
        """Ranks that what is not split along the inner width is split over."""
        return tp if self.sequence_parallel else 1

    def weights(self, tp: int) -> int:
        """Elements of one layer's weights on one of `tp` ranks."""
        raise NotImplementedError

    def largest(self) -> int:
        """Elements of the largest full matrix."""
        return self.hidden * self.ffn

    def widest(self) -> int:
        """Outputs of the widest column layer, or inputs of the widest row layer, over all ranks."""
        return self.ffn

    def saved(self, tp: int) -> int:
        """Bytes that one layer on one of `tp` ranks keeps for its backward pass, by the formula."""
        raise NotImplementedError

    def scores(self, tp: int, device: str) -> int:
        """Bytes of attention scores, their softmax and their gradient, where these are kept."""
        return 0

    def memory(self, tp: int, device: str) -> int:
        """Bytes one of `tp` ranks allocates at its peak, without the process itself.

        Weights and their gradients, what autograd saves, the gradients in flight in one layer, and before these
        what there is while weights and input are cut (:meth:`drawn`).
        """
        size = DTYPES[self.dtype]
        weights = self.depth * size * self.weights(tp)
        saved = replace(self, sequence_parallel=False).saved(tp)
        scores = self.scores(tp, device)
        # One layer's own: residual stream and gradient, twice each; the widest output and its gradient.
        flight = size * self.tokens * (4 * self.hidden + 2 * self.widest() // tp) + scores
        kept = 1 if self.forward_only else self.depth
        return weights * (1 if self.forward_only else 2) + kept * (saved + scores) + max(flight, self.drawn())

    def drawn(self) -> int:
        """Bytes of what is cut at once: the largest full array, in float32 and in its own type."""
        size = DTYPES[self.dtype]
        return (4 + size * (size != 4)) * max(self.largest(), self.tokens * max(self.ends()))

    def ends(self) -> tuple[int, int]:
        """Width of the input and of the output, over all ranks."""
        return self.hidden, self.hidden

    def check(self, tp: int, device: str = "cpu") -> None:
        """Raise :class:`ConfigError` unless `tp` ranks can hold equal parts of this, and run it so."""
        super().check(tp, device)
        for name in self.SIZES:
            if getattr(self, name) < 1:
                raise ConfigError(name, f"is {getattr(self, name)}", "give 1 or more")
        self.check_split(tp)
        self.check_schedule(tp, device)

    def check_split(self, tp: int) -> None:
        """Raise :class:`ConfigError` unless the ranks get equal parts of the inner width."""
        if self.ffn % tp:
            what, other = (
                f"{tp} ranks do not divide ffn {self.ffn}",
                no_multiple("ffn", self.ffn, tp, "ranks"),
            )
            raise ConfigError("tp", what, f"give {divisors(self.ffn, tp)}", other)

    def check_schedule(self, tp: int, device: str) -> None:
        """Raise :class:`ConfigError` unless the schedule is one that can be run so."""
        among("schedule", self.schedule, SCHEDULES)
        if self.sequence_parallel and self.seq % tp:
            what = f"{tp} ranks do not divide {self.seq} tokens"
            raise ConfigError("seq", what, f"give {multiples(self.seq, tp)}")
        if self.schedule in ("ring", "symm_mem") and not self.sequence_parallel:
            what = f"{self.schedule} passes parts of the sequence, which each rank has whole"
            raise ConfigError("schedule", what, "add --sequence-parallel, or give pipelined")
        if self.schedule == "symm_mem" and device != "cuda":
            raise ConfigError("schedule", "symm_mem needs CUDA and access between the GPUs", "give ring")
        if self.schedule == "symm_mem" and tp == 1:
            raise ConfigError("schedule", "symm_mem needs two GPUs or more, and --tp is 1", "give serial")
        self._check_chunks(tp)

    def _check_chunks(self, tp: int) -> None:
        if self.schedule != "pipelined":
            if self.chunks is not None:
                remedy = "add --schedule pipelined, or leave it out"
                raise ConfigError("chunks", f"{self.schedule} has none", remedy)
            return
        rows = self.seq // self.rows(tp)
        if self.chunks is None or self.chunks < 1:
            raise ConfigError("chunks", f"is {self.chunks}", "give 1 or more")
        if self.chunks > rows:
            whose = "a rank's part of the sequence" if self.sequence_parallel else "the sequence"
            raise ConfigError("chunks", f"{self.chunks} of {rows} tokens, {whose}", f"give at most {rows}")

    def operators_beside(self, tp: int, pairs: int) -> int:
        """Operators of `pairs` of a column and a row layer beside those of the serial schedule.

        Counted: of a chunk 13, or 65 with its gather and scatter; 100 for the gathers and scatters or, in a
        ring, for each of its steps.
        """
        more = 0
        if self.sequence_parallel:
            more += 100 * (tp - 1 if self.schedule == "ring" else 1)
        if self.chunks is not None:
            more += self.chunks * (65 if self.sequence_parallel else 13)
        return pairs * more


@dataclass(frozen=True, kw_only=True)
class ColumnConfig(LayerConfig):
    """One column layer with a bias, from `hidden` to `ffn`."""

    def ends(self) -> tuple[int, int]:
        """Width of the input and of the output, over all ranks."""
        return self.hidden, self.ffn

    def weights(self, tp: int) -> int:
        """Elements of the layer's weights on one of `tp` ranks."""
        return (self.hidden + 1) * self.ffn // tp

    def saved(self, tp: int) -> int:
        """Bytes that it keeps for its backward pass: its input, whole or this rank's rows."""
        return DTYPES[self.dtype] * self.tokens * self.hidden // self.rows(tp)

    def operators(self, tp: int) -> int:
        """About how many operators a profiler sees in one iteration on one of `tp` ranks."""
        return (20 if self.forward_only else 80) + self.operators_beside(tp, 1)

    def check_schedule(self, tp: int, device: str) -> None:
        """Raise :class:`ConfigError` unless the schedule is one that can be run so, and does something."""
        super().check_schedule(tp, device)
        if self.schedule == "pipelined" and not self.sequence_parallel:
            what = "pipelined cuts a column layer's all-gather, which only sequence parallelism has"
            raise ConfigError("schedule", what, "add --sequence-parallel, or give serial")


@dataclass(frozen=True, kw_only=True)
class RowConfig(LayerConfig):
    """One row layer with a bias, from `ffn`, of which a rank has its part, to `hidden`."""

    def ends(self) -> tuple[int, int]:
        """Width of the input and of the output, over all ranks."""
        return self.ffn, self.hidden

    def weights(self, tp: int) -> int:
        """Elements of the layer's weights on one of `tp` ranks."""
        return self.hidden * self.ffn // tp + self.hidden

    def saved(self, tp: int) -> int:
        """Bytes that it keeps for its backward pass: its part of the input."""
        return DTYPES[self.dtype] * self.tokens * self.ffn // tp

    def operators(self, tp: int) -> int:
        """About how many operators a profiler sees in one iteration on one of `tp` ranks."""
        return (20 if self.forward_only else 80) + self.operators_beside(tp, 1)
