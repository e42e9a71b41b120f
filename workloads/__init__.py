"""Programs to measure, by name. Listing them and checking their options imports no torch.

A workload is a :class:`Workload`: the configuration it takes (:mod:`workloads.config`) and the module that
builds the program, which is imported, and torch with it, only by :meth:`Workload.build`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from .block_config import BlockConfig, MlpConfig
from .config import Config, ConfigError, WrongError
from .layer_config import ColumnConfig, RowConfig
from .link import Link
from .sizes import (
    AllGatherConfig,
    AllReduceConfig,
    AllToAllConfig,
    ReduceScatterConfig,
    SendRecvConfig,
)

if TYPE_CHECKING:
    import torch

    from .collectives import Ranks

__all__ = ["WORKLOADS", "BlockConfig", "Config", "ConfigError", "Link", "Program", "Workload", "WrongError"]


class Program(Protocol):
    """A workload that is ready to run on one rank."""

    def step(self) -> None:
        """Run one iteration. Nothing of it is pending on the host when it returns."""

    def measure(self) -> dict[str, Any]:
        """What is to be known beside the recording: entries of run.json. Called once, before the first step.

        Sentences under ``notes`` stand in every report.

        Raises
        ------
        WrongError
            The program was checked, and gives a wrong result.
        """


@dataclass(frozen=True, slots=True)
class Workload:
    """An entry of the registry."""

    name: str
    summary: str
    config: type[Config]
    module: str

    @property
    def options(self) -> list[str]:
        """Names of what it can be told."""
        return [*self.config.SHORT, *(field.name for field in fields(self.config))]

    def configure(self, device: str, **given: Any) -> Config:
        """Its configuration for a device, "cpu" or "cuda", from the options that were given (not None).

        Raises
        ------
        ConfigError
            One of them is not of this workload.
        """
        for name, value in given.items():
            if value is not None and name not in self.options:
                own = ", ".join(f"--{option.replace('_', '-')}" for option in self.options)
                raise ConfigError(name, f"is not an option of {self.name}", f"leave it out; there are {own}")
        return self.config.of(device, **{name: given[name] for name in self.options if name in given})

    def build(self, config: Config, ranks: Ranks, device: torch.device) -> Program:
        """This rank's share of the program, allocated on `device`."""
        program: Program = import_module(f".{self.module}", __name__).build(config, ranks, device)
        return program


WORKLOADS: Mapping[str, Workload] = {
    w.name: w
    for w in [
        Workload("block", "a tensor-parallel transformer block, forward and backward", BlockConfig, "block"),
        Workload("mlp", "its MLP alone: column, activation, row", MlpConfig, "mlp"),
        Workload("column-linear", "a column layer alone, hidden to ffn", ColumnConfig, "linear"),
        Workload("row-linear", "a row layer alone, ffn to hidden", RowConfig, "linear"),
        Workload(
            "all-reduce", "sweep of sizes: the sum of all ranks' arrays, in place", AllReduceConfig, "sweep"
        ),
        Workload("all-gather", "sweep of sizes: all ranks' parts to every rank", AllGatherConfig, "sweep"),
        Workload(
            "reduce-scatter", "sweep of sizes: a part of the sum to each rank", ReduceScatterConfig, "sweep"
        ),
        Workload(
            "all-to-all", "sweep of sizes: a part from every rank to every rank", AllToAllConfig, "sweep"
        ),
        Workload(
            "send-recv", "sweep of sizes: a message to the next rank of a ring", SendRecvConfig, "sweep"
        ),
    ]
}
