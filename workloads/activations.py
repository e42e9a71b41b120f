"""What autograd keeps of a block between the two passes, counted byte by byte."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from .config import BlockConfig

__all__ = ["saved_bytes", "variants"]


def saved_bytes(module: nn.Module, x: Tensor) -> int:
    """Bytes of all storages that ``module(x)`` saves for its backward pass, each once, without parameters."""
    parameters = {p.untyped_storage().data_ptr() for p in module.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}  # held, so that no address is given out twice

    def keep(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        storages[storage.data_ptr()] = storage
        return saved

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
        module(x)
    return sum(s.nbytes() for address, s in storages.items() if address not in parameters)


def variants(config: BlockConfig, tp: int) -> dict[str, BlockConfig]:
    """One block with and without sequence parallelism, as far as `tp` ranks can hold it; the rest is alike."""
    one = replace(config, layers=1, schedule="serial", chunks=None)
    both = {"TP": replace(one, sequence_parallel=False)}
    if config.seq % tp == 0:
        both["TP + SP"] = replace(one, sequence_parallel=True)
    return both
