"""Layers, their input and the gradient that reaches them from above: one iteration, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from overlapscope import markers

from .activations import saved_bytes, variants
from .collectives import Ranks, Wire
from .draw import Draw
from .layer_config import LayerConfig
from .marked import marked
from .norm import Norm
from .parallel import Layout, RowParallelLinear
from .schedules import schedule

__all__ = ["LayerProgram"]

Own = TypeVar("Own", bound=LayerConfig)


class LayerProgram(Generic[Own]):
    """Layers one after another; each workload has its own, derived from this.

    Activations are (seq, batch, width): the sequence first, so that a slice of it is contiguous.
    """

    def __init__(self, config: Own, ranks: Ranks, device: torch.device) -> None:
        draw = Draw(config.seed, getattr(torch, config.dtype), device)
        self.config, self.device = config, device
        self.layout = Layout(ranks, schedule(config), config.sequence_parallel, config.overlap_backward)
        self.blocks = nn.ModuleList(self.layer(draw) for _ in range(config.depth))
        inputs, outputs = config.ends()
        self.x = self.enter(draw(config.seq, config.batch, inputs)).requires_grad_(not config.forward_only)
        # A gradient as a loss further up would send it. That of a plain sum is one expanded constant.
        self.grad = self.leave(draw(config.seq, config.batch, outputs))

    def layer(self, draw: Draw) -> nn.Module:
        """The next layer, this rank's share of it."""
        raise NotImplementedError

    def enter(self, full: Tensor) -> Tensor:
        """This rank's part of the full input: all of it, or its rows."""
        return self.layout.own(full)

    def leave(self, full: Tensor) -> Tensor:
        """This rank's part of the full output."""
        return self.layout.own(full)

    def forward(self) -> Tensor:
        """The last layer's output."""
        y = self.x
        for i, block in enumerate(self.blocks):
            y = marked(f"layer {i}", "layer", block, y)
        return y

    def step(self) -> None:
        """Forward, and unless told otherwise backward; gradients are fresh each step."""
        self.blocks.zero_grad()
        self.x.grad = None
        forward_only = self.config.forward_only
        with markers.range("forward", "phase"), torch.set_grad_enabled(not forward_only):
            y = self.forward()
        if not forward_only:
            with markers.range("backward", "phase"):
                torch.autograd.backward(y, self.grad)
            self.finish_gradients()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def finish_gradients(self) -> None:
        """With sequence parallelism, add up the gradients of what is whole on every rank: norms, row biases.

        Each rank has those of its rows. One all-reduce for all of them, once a step, as Megatron-LM does.
        """
        if not self.layout.sequence_parallel or self.layout.ranks.size == 1:
            return
        grads = [p.grad for p in self.whole_parameters() if p.grad is not None]
        if not grads:
            return
        with markers.range("gradients", "phase"):
            flat = torch.cat([grad.flatten() for grad in grads])
            summed = Wire(self.layout.ranks, "gradients").all_reduce(flat).wait()
            for grad, part in zip(grads, torch.split(summed, [g.numel() for g in grads]), strict=True):
                grad.copy_(part.view_as(grad))

    def measure(self) -> dict[str, Any]:
        """What a layer keeps for its backward pass, with and without sequence parallelism. All ranks together."""
        if self.config.forward_only:
            return {}
        ranks, rows = self.layout.ranks, []
        for name, config in variants(self.config, ranks.size).items():
            one = type(self)(config, replace(ranks, link=None), self.device)
            rows.append(
                {
                    "layout": name,
                    "measured_bytes": saved_bytes(one.blocks[0], one.x),
                    "formula_bytes": config.saved(ranks.size),
                }
            )
        return {"saved_activations": rows}

    def whole_parameters(self) -> Iterator[nn.Parameter]:
        """Those that every rank holds whole."""
        for module in self.blocks.modules():
            if isinstance(module, Norm):
                yield from module.parameters()
            elif isinstance(module, RowParallelLinear) and module.bias is not None:
                yield module.bias
