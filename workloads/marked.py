"""Ranges that follow a computation into its backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from overlapscope import markers

__all__ = ["marked"]


def marked(name: str, role: str, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """``function(*inputs)`` inside the range `name`, and its backward inside ``<name>.grad``.

    Autograd runs a chain's backward in the reverse of its order, so an identity on either side of the chain
    meets the gradient as it enters and as it leaves.
    """
    if not (torch.is_grad_enabled() and any(x.requires_grad for x in inputs)):
        with markers.range(name, role):
            return function(*inputs)
    backward = markers.range(f"{name}.grad", role)
    through = _last(backward, *inputs)
    with markers.range(name, role):
        inside = function(*through)
    return _first(backward, inside)


class _First(torch.autograd.Function):
    """Identity whose backward opens the range."""

    @staticmethod
    def forward(ctx: Any, backward: markers.Range, x: Tensor) -> Tensor:
        ctx.range = backward
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ctx.range.__enter__()
        return None, *grads


class _Last(torch.autograd.Function):
    """Identity whose backward closes it."""

    @staticmethod
    def forward(ctx: Any, backward: markers.Range, *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.range = backward
        return tuple(x.view_as(x) for x in inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ctx.range.__exit__(None, None, None)
        return None, *grads


_first: Callable[..., Tensor] = _First.apply
_last: Callable[..., tuple[Tensor, ...]] = _Last.apply
