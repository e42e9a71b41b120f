"""Programs to measure, by name. Listing them and checking their options imports no torch.

A workload is a :class:`Workload`: the configuration it takes (:mod:`workloads.config`) and the module that
builds the program, which is imported, and torch with it, only by :meth:`Workload.build`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from .config import BlockConfig, ConfigError
from .link import Link

if TYPE_CHECKING:
    import torch

    from .collectives import Ranks

__all__ = ["WORKLOADS", "BlockConfig", "ConfigError", "Link", "Program", "Workload"]


class Program(Protocol):
    """A workload that is ready to run on one rank."""

    def step(self) -> None:
        """Run one iteration. Nothing of it is pending on the host when it returns."""

    def measure(self) -> dict[str, Any]:
        """What is to be known beside the recording: entries of run.json. Called once, before the first step."""


@dataclass(frozen=True, slots=True)
class Workload:
    """An entry of the registry."""

    name: str
    summary: str
    config: type[BlockConfig]
    module: str

    def build(self, config: BlockConfig, ranks: Ranks, device: torch.device) -> Program:
        """This rank's share of the program, allocated on `device`."""
        program: Program = import_module(f".{self.module}", __name__).build(config, ranks, device)
        return program


WORKLOADS: Mapping[str, Workload] = {
    w.name: w
    for w in [
        Workload("block", "a tensor-parallel transformer block, forward and backward", BlockConfig, "block"),
    ]
}
