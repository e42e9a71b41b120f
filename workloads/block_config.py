"""What an MLP and a transformer block can be told, and what they cost in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from .config import DTYPES, ConfigError, among, divisors, no_multiple
from .layer_config import LayerConfig

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ARCHES", "IMPLS", "BlockConfig", "MlpConfig"]

ARCHES = ("gpt", "llama")
"""LayerNorm, GELU and biases; or RMSNorm, SwiGLU, rotary position embedding and no biases."""

IMPLS = ("megatron", "dtensor")
"""Ours (:mod:`workloads.parallel`), or PyTorch's ``parallelize_module`` (:mod:`workloads.dtensor`)."""


@dataclass(frozen=True, kw_only=True)
class MlpConfig(LayerConfig):
    """MLPs one after another: up, activation, down; neither norm nor residual.

    Attributes
    ----------
    layers : int
    arch : str
        One of :data:`ARCHES`.
    impl : str
        One of :data:`IMPLS`.
    """

    layers: int = 1
    arch: str = "gpt"
    impl: str = "megatron"

    SIZES: ClassVar[tuple[str, ...]] = (*LayerConfig.SIZES, "layers")

    @property
    def depth(self) -> int:
        """Layers one after another."""
        return self.layers

    def single(self) -> Self:
        """The same with one layer and the plainest schedule."""
        return replace(super().single(), layers=1)

    @property
    def gated(self) -> bool:
        """The MLP is SwiGLU, with a gate beside what goes up."""
        return self.arch == "llama"

    @property
    def biased(self) -> bool:
        """Linear layers have biases."""
        return self.arch == "gpt"

    @property
    def up(self) -> int:
        """Outputs of the MLP's column layer, over all ranks: with a gate, which is as wide, twice `ffn`."""
        return 2 * self.ffn if self.gated else self.ffn

    def widest(self) -> int:
        """Outputs of the widest column layer, over all ranks."""
        return self.up

    def largest(self) -> int:
        """Elements of the largest full matrix."""
        return self.hidden * self.widest()

    def weights(self, tp: int) -> int:
        """Elements of one layer's weights on one of `tp` ranks."""
        h, up, bias = self.hidden, self.up, self.biased
        return (h * (up + self.ffn) + bias * up) // tp + bias * h

    def inner(self) -> int:
        """Widths that an MLP keeps for its backward pass along its split width, over all ranks.

        GELU's input and output, 2 f; or SwiGLU's gate, what it gates, the gate's SiLU and the product, 4 f.
        """
        return (4 if self.gated else 2) * self.ffn

    def saved(self, tp: int) -> int:
        """Bytes that one layer on one of `tp` ranks keeps for its backward pass, by the formula.

        Its input, h a token, whole or this rank's rows; and :meth:`inner`.
        """
        return DTYPES[self.dtype] * self.tokens * (self.hidden // self.rows(tp) + self.inner() // tp)

    def operators(self, tp: int) -> int:
        """About how many operators a profiler sees in one iteration on one of `tp` ranks."""
        return self._operators(60 if self.forward_only else 200, tp, 1)

    def _operators(self, serial: int, tp: int, pairs: int) -> int:
        """Of all layers, from those of one in the serial schedule. On DTensor twice as many were counted."""
        twice = 2 if self.impl == "dtensor" else 1
        return self.layers * twice * (serial + self.operators_beside(tp, pairs))

    def drawn(self) -> int:
        """Bytes of what is cut at once; on DTensor that is a layer, made whole first."""
        whole = DTYPES[self.dtype] * self.weights(1) if self.impl == "dtensor" else 0
        return whole + super().drawn()

    def check_link(self) -> None:
        """Raise :class:`ConfigError` if a link cannot be pretended for its exchanges."""
        if self.impl == "dtensor":
            what = "paces the exchanges of --impl megatron, and dtensor's are PyTorch's own"
            raise ConfigError("link", what, "leave it out, or give --impl megatron")

    def check_schedule(self, tp: int, device: str) -> None:
        """Raise :class:`ConfigError` unless the schedule is one that can be run so."""
        among("arch", self.arch, ARCHES)
        among("impl", self.impl, IMPLS)
        if self.impl == "dtensor" and self.schedule in ("pipelined", "ring", "symm_mem"):
            what = f"{self.schedule} is of --impl megatron; dtensor's collectives are where PyTorch puts them"
            raise ConfigError("schedule", what, "give serial, or --impl megatron")
        if self.impl == "dtensor" and not self.overlap_backward:
            what = "is of --impl megatron; dtensor's collectives are where PyTorch puts them"
            raise ConfigError("no_overlap_backward", what, "leave it out, or give --impl megatron")
        super().check_schedule(tp, device)


@dataclass(frozen=True, kw_only=True)
class BlockConfig(MlpConfig):
    """A stack of transformer blocks: pre-norm, causal attention, an MLP `ffn` wide.

    Attributes
    ----------
    heads : int
        Attention heads.
    kv_heads : int or None
        Heads of keys and values, each shared by as many heads as equal; None, as many as `heads`.
    """

    heads: int
    kv_heads: int | None = None

    SIZES: ClassVar[tuple[str, ...]] = (*MlpConfig.SIZES, "heads")

    @classmethod
    def of(cls, device: str, preset: str | None = None, **given: Any) -> Self:
        """As :meth:`LayerConfig.of`; `kv_heads` is a number then."""
        config = super().of(device, preset, **given)
        return replace(config, kv_heads=config.pairs)

    @property
    def pairs(self) -> int:
        """Heads of keys and values."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def rotary(self) -> bool:
        """Queries and keys have a rotary position embedding."""
        return self.arch == "llama"

    def qkv(self) -> tuple[int, int, int]:
        """Widths of queries, keys and values, over all ranks."""
        size = self.hidden // self.heads
        return self.hidden, self.pairs * size, self.pairs * size

    def widest(self) -> int:
        """Outputs of the widest column layer, over all ranks."""
        return max(sum(self.qkv()), self.up)

    def weights(self, tp: int) -> int:
        """Elements of one block's weights on one of `tp` ranks."""
        h, qkv = self.hidden, sum(self.qkv())
        attention = (h * (qkv + h) + self.biased * qkv) // tp + self.biased * h
        norms = (4 if self.biased else 2) * h
        return super().weights(tp) + attention + norms

    def saved(self, tp: int) -> int:
        """Bytes that one block on one of `tp` ranks keeps for its backward pass, by the formula.

        Both norms' inputs and outputs (4 h a token), whole or, with sequence parallelism, of the rank's rows;
        queries, keys, values and attention's output (4 h / tp; keys and values less where heads share them);
        :meth:`inner` (2 f / tp with GELU, 4 f / tp with SwiGLU). This is Korthikanti et al. 2022,
        s b h (10 + 24/t) and s b h 34/t at 16 bit, without what this block has not: dropout masks and attention
        scores. What norms and attention keep of each row, a few numbers, is left out, as are the tables of the
        rotary embedding, which no layer has of its own.
        """
        h = self.hidden
        norms = 4 * h // self.rows(tp)
        return DTYPES[self.dtype] * self.tokens * (norms + (sum(self.qkv()) + h + self.inner()) // tp)

    def scores(self, tp: int, device: str) -> int:
        """Bytes of attention scores, their softmax and their gradient, where no fused kernel does without."""
        fused = ["bfloat16", "float16"]
        if self.pairs == self.heads:  # shared keys CUDA's kernel for float32 cannot have
            fused.append("float32")
        if device == "cpu" or self.dtype in fused:
            return 0
        return 3 * DTYPES[self.dtype] * self.batch * (self.heads // tp) * self.seq**2

    def operators(self, tp: int) -> int:
        """About how many operators a profiler sees in one iteration on one of `tp` ranks.

        Counted: 200 forward, 550 in all; 100 more with a rotary embedding.
        """
        serial = (200 if self.forward_only else 550) + 100 * self.rotary
        return self._operators(serial, tp, 2)

    def check_split(self, tp: int) -> None:
        """Raise :class:`ConfigError` unless the ranks get equal parts of the heads and of the MLP."""
        h, heads, pairs = self.hidden, self.heads, self.pairs
        if h % heads:
            other = no_multiple("hidden", h, heads, "heads")
            raise ConfigError(
                "heads", f"{heads} do not divide hidden {h}", f"give {divisors(h, heads)}", other
            )
        if pairs < 1 or heads % pairs:
            fewer = no_multiple("heads", heads, pairs, "kv_heads") if pairs > 0 else None
            what = f"{pairs} do not divide heads {heads}"
            raise ConfigError("kv_heads", what, f"give {divisors(heads, pairs)}", fewer)
        if self.arch == "llama" and h // heads % 2:
            what = f"{heads} of hidden {h} are {h // heads} wide, and rotary embedding turns pairs"
            raise ConfigError("heads", what, "give heads of an even width, or --arch gpt")
        if heads % tp:
            what, other = f"{tp} ranks do not divide heads {heads}", no_multiple("heads", heads, tp, "ranks")
            raise ConfigError("tp", what, f"give {divisors(heads, tp)}", other)
        if pairs % tp:
            what = f"{tp} ranks do not divide kv_heads {pairs}"
            raise ConfigError(
                "tp", what, f"give {divisors(pairs, tp)}, or --kv-heads {_multiple(heads, tp, pairs)}"
            )
        super().check_split(tp)


def _multiple(of: int, tp: int, near: int) -> int:
    """The divisor of `of` nearest to `near` that `tp`, another, divides."""
    return min((n for n in range(tp, of + 1, tp) if of % n == 0), key=lambda n: abs(n - near))
