"""What autograd keeps of a layer between the two passes, counted byte by byte."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from .layer_config import LayerConfig

__all__ = ["saved_bytes", "variants"]

Own = TypeVar("Own", bound=LayerConfig)


def saved_bytes(module: nn.Module, x: Tensor) -> int:
    """Bytes of all storages that ``module(x)`` saves for its backward pass, each once.

    Without parameters and buffers, which are there anyway.
    """
    held = {p.untyped_storage().data_ptr() for p in (*module.parameters(), *module.buffers())}
    storages: dict[int, torch.UntypedStorage] = {}  # held, so that no address is given out twice

    def keep(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        storages[storage.data_ptr()] = storage
        return saved

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
        module(x)
    return sum(s.nbytes() for address, s in storages.items() if address not in held)


def variants(config: Own, tp: int) -> dict[str, Own]:
    """One layer with and without sequence parallelism, as far as `tp` ranks can hold it; the rest is alike."""
    one = config.single()
    both = {"TP": replace(one, sequence_parallel=False)}
    if config.seq % tp == 0:
        both["TP + SP"] = replace(one, sequence_parallel=True)
    return both
