"""What one rank does in a transformer block: FLOPs and bytes of each operation, and the bytes it holds.

Of ``tokens = seq · batch`` rows, h wide, with a = h / heads a head and t ranks (bfloat16, 2 bytes an element)::

    norm ─ QKV (column) ─ rotary ─ attention ─ O (row) ─ residual ─ norm ─ up (column) ─ act ─ down (row) ─ residual

A GEMM moves each of its three matrices once. Elementwise operations are counted as kernels of their own that read and
write whole arrays:

==========  =======================  ================================  ===================================
operation   elements                 forward                           backward
==========  =======================  ================================  ===================================
norm        rows · h                 reads x, writes y: 2              reads x, dy, writes dx: 3
residual    rows · h                 reads two, writes one: 3          the same sum of gradients: 3
rotary      tokens · (h + k) / t     reads and writes q and k: 2       2
GELU        tokens · f / t           2                                 3
SwiGLU      tokens · f / t           reads gate, up, writes one: 3     reads three, writes two: 5
==========  =======================  ================================  ===================================

rows are the tokens, or with sequence parallelism tokens / t. Rotary and SwiGLU are of "llama", GELU of "gpt".
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import OptionError

__all__ = ["ELEMENT", "Linear", "Op", "Shape"]

ELEMENT = 2  # bytes of a bfloat16


@dataclass(frozen=True, slots=True)
class Op:
    """One kernel. ``unit`` is gemm, attention, or memory where nothing but bytes counts."""

    flops: float
    bytes: float
    unit: str = "gemm"


@dataclass(frozen=True, slots=True)
class Linear:
    """One rank's part of a linear layer: (rows, inputs) to (rows, outputs). Rows may be a part of all."""

    name: str
    column: bool
    inputs: float
    outputs: float

    def product(self, rows: float) -> Op:
        """The GEMM of the forward pass, and the one of the input's gradient, which is as large."""
        k, n = self.inputs, self.outputs
        return Op(2 * rows * k * n, ELEMENT * (rows * k + k * n + rows * n))

    def outer(self, rows: float, *, accumulate: bool = False) -> Op:
        """The GEMM of the weight's gradient; added to what is there, it reads that, too."""
        k, n = self.inputs, self.outputs
        moved = rows * k + rows * n + k * n * (2 if accumulate else 1)
        return Op(2 * rows * k * n, ELEMENT * moved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A stack of blocks, as :class:`workloads.BlockConfig` has it.

    Attributes
    ----------
    hidden, heads, kv_heads, ffn : int
        Width of the residual stream; heads of queries; heads of keys and values; width of the MLP.
    arch : str
        "llama" (RMSNorm, rotary, SwiGLU, no biases) or "gpt" (LayerNorm, GELU, biases).
    seq, batch, layers : int
    """

    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    arch: str
    seq: int
    batch: int
    layers: int

    @property
    def tokens(self) -> int:
        """Rows of the residual stream."""
        return self.seq * self.batch

    @property
    def activation(self) -> int:
        """V: bytes of the residual stream."""
        return ELEMENT * self.tokens * self.hidden

    @property
    def gated(self) -> bool:
        """The MLP has a gate beside the up projection."""
        return self.arch == "llama"

    def check(self, tp: int) -> None:
        """Raise OptionError unless `tp` ranks can share the heads of keys and values.

        More ranks than these heads each hold a copy of one: several ranks the same.
        """
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            what = f"{self.kv_heads} do not divide heads {self.heads}"
            raise OptionError(what, "give a divisor of it", "--kv-heads")
        if self.kv_heads % tp and tp % self.kv_heads:
            what = f"{tp} ranks neither divide nor multiply kv_heads {self.kv_heads}"
            raise OptionError(what, "give a divisor or a multiple of it", "--tp")

    def kv_width(self, tp: int) -> float:
        """Width of a rank's keys; its values are as wide."""
        return max(self.kv_heads // tp, 1) * self.hidden / self.heads

    def linears(self, tp: int) -> list[Linear]:
        """A rank's four linear layers; gate and up are one."""
        h, f = self.hidden, self.ffn / tp
        return [
            Linear("attn.qkv", True, h, h / tp + 2 * self.kv_width(tp)),
            Linear("attn.out", False, h / tp, h),
            Linear("mlp.up", True, h, 2 * f if self.gated else f),
            Linear("mlp.down", False, f, h),
        ]

    def attention(self, tp: int, times: float = 1.0, *, backward: bool = False) -> Op:
        """Causal attention that keeps no scores: half of 4 · seq² · h FLOPs a sequence, `times` as many backward.

        Forward q, k, v are read and the output is written; backward those four and its gradient are read, and three
        gradients written.
        """
        q, kv = self.hidden / tp, self.kv_width(tp)
        flops = 2 * self.batch * self.seq**2 * q * times
        moved = (4 * q + 4 * kv) if backward else (2 * q + 2 * kv)
        return Op(flops, ELEMENT * self.tokens * moved, "attention")

    def elementwise(self, tp: int, *, sequence_parallel: bool, backward: bool) -> list[Op]:
        """Norms, residuals, activation and rotary embedding, each a kernel: see the table above."""
        stream = self.activation / (tp if sequence_parallel else 1)
        wide = ELEMENT * self.tokens * self.ffn / tp
        turned = ELEMENT * self.tokens * (self.hidden / tp + self.kv_width(tp))
        moved = [3 * stream if backward else 2 * stream] * 2 + [3 * stream] * 2
        if self.gated:
            moved += [(5 if backward else 3) * wide, 2 * turned]
        else:
            moved += [(3 if backward else 2) * wide]
        return [Op(0, size, "memory") for size in moved]

    @property
    def whole(self) -> int:
        """Parameters of a block that every rank holds whole: norms, and the row layers' biases."""
        return (2 if self.gated else 6) * self.hidden

    def parameters(self, tp: int) -> float:
        """One rank's, of all blocks."""
        linears = self.linears(tp)
        biases = 0.0 if self.gated else sum(linear.outputs for linear in linears if linear.column)
        return self.layers * (sum(linear.inputs * linear.outputs for linear in linears) + biases + self.whole)

    def saved(self, tp: int, *, sequence_parallel: bool) -> float:
        """Bytes of one block that a rank keeps for the backward pass.

        Both norms' inputs and outputs; queries, keys, values and attention's output; what goes into and comes out of
        the activation (Korthikanti et al. 2022, without dropout and scores).
        """
        norms = 4 * self.hidden / (tp if sequence_parallel else 1)
        attention = 2 * self.hidden / tp + 2 * self.kv_width(tp)
        return ELEMENT * self.tokens * (norms + attention + (3 if self.gated else 2) * self.ffn / tp)

    def memory(self, tp: int, *, sequence_parallel: bool, forward_only: bool, state_bytes: float) -> float:
        """Bytes a rank holds at least: weights and, with a backward pass, gradients, optimizer state, what is kept."""
        parameters = self.parameters(tp)
        kept = self.saved(tp, sequence_parallel=sequence_parallel)
        if forward_only:
            return parameters * ELEMENT + kept
        return parameters * (2 * ELEMENT + state_bytes) + self.layers * kept
