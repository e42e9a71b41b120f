"""Random numbers that are the same for every number of ranks and every implementation."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["Draw"]


class Draw:
    """Random full tensors, the same on every rank and in every dtype (drawn in float32, then rounded)."""

    def __init__(self, seed: int, dtype: torch.dtype, device: torch.device) -> None:
        self.generator = torch.Generator(device).manual_seed(seed)
        self.dtype, self.device = dtype, device

    def __call__(self, *shape: int, scale: float = 1.0, mean: float = 0.0) -> Tensor:
        """Normally distributed values."""
        values = torch.randn(shape, generator=self.generator, device=self.device)
        return values.mul_(scale).add_(mean).to(self.dtype)

    def linear(self, inputs: int, outputs: int, *, biased: bool = True) -> tuple[Tensor, Tensor | None]:
        """A weight (outputs, inputs) and a bias. 1/sqrt(inputs) keeps the size of activations whatever the width.

        Biases are drawn, too, so that none can be wrong unseen; norms likewise.
        """
        return self(outputs, inputs, scale=inputs**-0.5), self(outputs, scale=0.1) if biased else None

    def norm(self, width: int, *, biased: bool = True) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of a norm."""
        return self(width, scale=0.1, mean=1.0), self(width, scale=0.1) if biased else None
