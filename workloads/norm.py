"""Norms of rows: LayerNorm where there is a bias, RMSNorm where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

__all__ = ["EPSILON", "Norm", "rms_norm"]

EPSILON = 1e-5
"""Added to the variance or mean square, as PyTorch's LayerNorm and Llama 3 do."""


class Norm(nn.Module):
    """Of the last dimension."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = None if bias is None else nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) to the same."""
        if self.bias is None:
            return rms_norm(x, self.weight)
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, EPSILON)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """``x / sqrt(mean(x²) + EPSILON) · weight``, of which nothing but `x` and a number a row is kept.

    On a GPU it is PyTorch's, in one kernel. On a CPU PyTorch makes it of several operators and keeps the
    normed rows as well, in float32 at least, which no program that is to be measured would.
    """
    if x.is_cuda:
        return F.rms_norm(x, weight.shape, weight, EPSILON)
    return _rms_norm(x, weight)


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        wide = _wide(x)
        scale = wide.square().mean(-1, keepdim=True).add_(EPSILON).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        return (wide * scale).to(x.dtype) * weight

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, weight, scale = ctx.saved_tensors
        grad, normed = _wide(grads[0]), _wide(x) * scale
        weight_grad = (grad * normed).flatten(0, -2).sum(0)
        grad = grad * weight
        along = (grad * normed).mean(-1, keepdim=True)
        return ((grad - normed * along) * scale).to(x.dtype), weight_grad.to(weight.dtype)


_rms_norm: Callable[[Tensor, Tensor], Tensor] = _RmsNorm.apply


def _wide(x: Tensor) -> Tensor:
    """In float32 at least: half precision is too coarse for a sum of squares."""
    return x if x.dtype == torch.float64 else x.float()
