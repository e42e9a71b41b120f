"""What a workload can be told, and what it costs in memory. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["DTYPES", "BlockConfig", "ConfigError"]

DTYPES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
"""Element types by PyTorch's name, with their bytes."""


class ConfigError(ValueError):
    """An option, or options together, that make no sense; ``option`` is its name."""

    def __init__(self, option: str, what: str, remedy: str) -> None:
        self.option, self.what, self.remedy = option, what, remedy
        super().__init__(f"{option}: {what}; {remedy}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockConfig:
    """A stack of transformer blocks: pre-norm, causal attention, GELU, `ffn` wide.

    Attributes
    ----------
    hidden, heads, ffn : int
        Width of the residual stream, attention heads, width of the MLP.
    seq, batch, layers : int
        Tokens a sequence, sequences, blocks.
    dtype : str
        A key of :data:`DTYPES`.
    forward_only : bool
        Leave the backward pass out.
    seed : int
        Weights, input and upstream gradient follow from it, the same for every number of ranks.
    """

    hidden: int
    heads: int
    ffn: int
    seq: int
    batch: int
    layers: int = 1
    dtype: str = "float32"
    forward_only: bool = False
    seed: int = 0

    @classmethod
    def of(cls, device: str, **given: Any) -> BlockConfig:
        """The options that were given (not None), and for the rest what suits the device, "cpu" or "cuda".

        On a CPU the GEMMs are large enough to be seen, and eight ranks on two cores stay within seconds; on a
        GPU the shape is that of a 7-billion-parameter model's layer.
        """
        usual: dict[str, Any] = {"hidden": 512, "heads": 8, "seq": 256, "batch": 2, "dtype": "float32"}
        if device == "cuda":
            usual = {"hidden": 4096, "heads": 32, "seq": 2048, "batch": 1, "dtype": "bfloat16"}
        options = usual | {name: value for name, value in given.items() if value is not None}
        options.setdefault("ffn", 4 * options["hidden"])
        return cls(**options)

    def check(self, tp: int) -> None:
        """Raise :class:`ConfigError` unless `tp` ranks can hold equal parts of this block."""
        for name in ("hidden", "heads", "ffn", "seq", "batch", "layers"):
            if getattr(self, name) < 1:
                raise ConfigError(name, f"is {getattr(self, name)}", "give 1 or more")
        if self.dtype not in DTYPES:
            raise ConfigError("dtype", f"{self.dtype!r} is not known", f"choose from {', '.join(DTYPES)}")
        if self.hidden % self.heads:
            raise ConfigError(
                "heads", f"{self.heads} do not divide hidden {self.hidden}", "give a divisor of it"
            )
        for name, width in (("heads", self.heads), ("ffn", self.ffn)):
            if width % tp:
                raise ConfigError(
                    "tp", f"{tp} ranks do not divide {name} {width}", f"give a divisor of {width}"
                )

    def operators(self) -> int:
        """About how many operators a profiler sees in one iteration (counted: 200 forward, 550 in all)."""
        return self.layers * (200 if self.forward_only else 550)

    def memory(self, tp: int, device: str) -> int:
        """Bytes one of `tp` ranks allocates at its peak, without the process itself.

        Weights and their gradients, what autograd saves, the gradients in flight in one block, and, while
        the weights are cut, the largest full matrix in float32.
        """
        size = DTYPES[self.dtype]
        h, f, tokens = self.hidden, self.ffn, self.seq * self.batch
        weights = self.layers * size * ((4 * h * h + 2 * h * f + 3 * h + f) // tp + 6 * h)
        drawn = 4 * h * max(3 * h, f)
        # Saved by a block: both norms' inputs and outputs (4 h), q, k, v and attention's output (4 h / tp),
        # GELU's input and output (2 f / tp).
        saved = size * tokens * (4 * h + (4 * h + 2 * f) // tp)
        # Attention without a fused kernel keeps the scores, their softmax and their gradient.
        fused = device == "cpu" or self.dtype in ("bfloat16", "float16", "float32")
        scores = 0 if fused else 3 * size * self.batch * (self.heads // tp) * self.seq**2
        # One block's own: residual stream and gradient, twice each; the widest output and its gradient.
        flight = size * tokens * (4 * h + 2 * max(3 * h, f) // tp) + scores
        kept = 1 if self.forward_only else self.layers
        return weights * (1 if self.forward_only else 2) + kept * (saved + scores) + max(flight, drawn)
