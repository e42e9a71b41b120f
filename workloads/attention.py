"""Causal attention over some of the heads, with shared keys and values, and rotary position embedding."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from .block_config import BlockConfig
from .draw import Draw

__all__ = ["Core", "attend", "rotary_table", "rotate"]

THETA = 500000.0
"""Base of the rotary embedding's wavelengths in Llama 3 (arXiv:2407.21783)."""


class Core(nn.Module):
    """Attention between the QKV and the O layer, of one of `tp` ranks.

    The tables of the rotary embedding are buffers, not saved for the backward pass by each block.
    """

    def __init__(self, config: BlockConfig, tp: int, draw: Draw) -> None:
        super().__init__()
        self.widths = [width // tp for width in config.qkv()]
        self.size = config.hidden // config.heads
        self.rotary = config.rotary
        if config.rotary:
            cos, sin = rotary_table(config, draw.dtype, draw.device)
            self.cos = nn.Buffer(cos, persistent=False)
            self.sin = nn.Buffer(sin, persistent=False)

    def forward(self, qkv: Tensor) -> Tensor:
        """(seq, batch, this rank's queries, keys and values) to (seq, batch, its heads · size)."""
        q, k, v = (x.view(*x.shape[:-1], -1, self.size) for x in torch.split(qkv, self.widths, dim=-1))
        if self.rotary:
            q, k = rotate(q, self.cos, self.sin), rotate(k, self.cos, self.sin)
            v = v.clone()  # else it would keep all of qkv, whose queries and keys nobody needs any more
        y = attend(*(x.permute(1, 2, 0, 3) for x in (q, k, v)))
        return y.permute(2, 0, 1, 3).flatten(2)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Each (batch, heads, seq, size); those of keys and values may be fewer."""
    shared = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=shared)


@lru_cache(maxsize=1)
def rotary_table(config: BlockConfig, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each (seq, 1, 1, size / 2), of token · θ^(-2 i / size) (Su et al. 2021).

    All blocks have the same two.
    """
    seq, size = config.seq, config.hidden // config.heads
    frequency = THETA ** -(torch.arange(0, size, 2, dtype=torch.float64, device=device) / size)
    angle = torch.outer(torch.arange(seq, dtype=torch.float64, device=device), frequency)[:, None, None]
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair of neighbours in the last dimension by its angle."""
    a, b = x.view(*x.shape[:-1], -1, 2).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)
