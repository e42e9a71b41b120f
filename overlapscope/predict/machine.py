"""What a GPU and its links do a second: every constant with its source and the option that overrides it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Protocol

from ..errors import OptionError
from .gpus import LINK_SEEN, Gpu
from .work import Op

__all__ = ["OVERRIDES", "Constant", "Link", "Machine", "Route", "machine", "route"]

GIVEN = "given"


class Link(Protocol):
    """``workloads.link.Link``: α in s, β in bytes a second each way, NCCL's factors in :meth:`seconds`."""

    @property
    def alpha(self) -> float: ...

    @property
    def beta(self) -> float: ...

    def seconds(self, collective: str, size: int, ranks: int) -> float:
        """How long a collective of `size` bytes takes over `ranks`."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A number that the model takes for granted, in the unit in which people say it.

    ``option`` overrides it; ``source`` is "given" where that was done.
    """

    name: str
    value: float
    unit: str
    source: str
    option: str


@dataclass(frozen=True, slots=True)
class Machine:
    """A GPU: how fast it does an operation, and what it holds."""

    flops: Constant
    bandwidth: Constant
    memory: Constant
    gemm_efficiency: Constant
    attention_efficiency: Constant
    memory_efficiency: Constant
    launch: Constant
    attention_backward: Constant
    state_bytes: Constant

    @property
    def constants(self) -> list[Constant]:
        """All of them, in the order above."""
        return [getattr(self, field.name) for field in fields(self)]

    def seconds(self, op: Op) -> float:
        """Roofline: the longer of computing and moving, and the launch.

        max(FLOPs / (peak · efficiency), bytes / (HBM · efficiency)) + launch (Williams, Waterman, Patterson 2009).
        """
        efficiency = self.attention_efficiency if op.unit == "attention" else self.gemm_efficiency
        computing = op.flops / (self.flops.value * 1e12 * efficiency.value)
        moving = op.bytes / (self.bandwidth.value * 1e9 * self.memory_efficiency.value)
        return max(computing, moving) + self.launch.value / 1e6


@dataclass(frozen=True, slots=True)
class Route:
    """A link, and how many GPUs it joins.

    Attributes
    ----------
    name : str
        As it was asked for.
    link : Link
        Of the speed that is reached, not of the peak.
    domain : int or None
        GPUs that it joins; None where no limit is known.
    constants : tuple of Constant
    """

    name: str
    link: Link
    domain: int | None
    constants: tuple[Constant, ...]


OVERRIDES: Mapping[str, tuple[float, float]] = {
    # Least and most that make sense. What divides must not be 0, and nothing does better than its peak.
    "gpu_flops": (1e-6, math.inf),
    "gpu_bandwidth": (1e-6, math.inf),
    "gpu_memory": (1e-6, math.inf),
    "gemm_efficiency": (1e-6, 1),
    "attention_efficiency": (1e-6, 1),
    "memory_efficiency": (1e-6, 1),
    "bus_efficiency": (1e-6, 1),
    "launch": (0, math.inf),
    "attention_backward": (0, math.inf),
    "state_bytes": (0, math.inf),
    "domain": (1, math.inf),
}


def machine(gpu: Gpu, given: Mapping[str, float | None]) -> Machine:
    """A GPU with the constants of its datasheet and of the literature, or those that were given.

    Raises
    ------
    OptionError
        One of these makes no sense.
    """
    _check(given)

    def constant(name: str, usual: float, unit: str, source: str, option: str) -> Constant:
        return _given(Constant(name, usual, unit, source, f"--{option}"), given.get(option.replace("-", "_")))

    return Machine(
        constant("bfloat16 peak", gpu.flops, "TFLOP/s", gpu.source, "gpu-flops"),
        constant("HBM bandwidth", gpu.bandwidth, "GB/s", gpu.source, "gpu-bandwidth"),
        constant("HBM capacity", gpu.memory, "GB", gpu.source, "gpu-memory"),
        constant(
            "GEMM efficiency",
            0.75,
            "of peak",
            "70 to 80 % reported for Llama 70B and 405B shapes (CUTLASS Distributed GEMM)",
            "gemm-efficiency",
        ),
        constant(
            "attention efficiency",
            0.6,
            "of peak",
            "FlashAttention-2 on A100: 50 to 73 % (Dao 2023); FlashAttention-3 on H100: up to 75 % (Shah et al. 2024)",
            "attention-efficiency",
        ),
        constant(
            "memory efficiency",
            0.9,
            "of HBM",
            "an assumption: streaming kernels come near, none reaches, the datasheet's rate",
            "memory-efficiency",
        ),
        constant(
            "launch of a kernel",
            0.9,
            "µs",
            "3.8 µs a kernel that runs 2.9 µs, launched ahead, on V100 (NVIDIA, Getting Started with CUDA Graphs)",
            "launch",
        ),
        constant(
            "attention backward",
            2.5,
            "× forward",
            "five matrix products for two (Dao 2023)",
            "attention-backward",
        ),
        constant(
            "optimizer state",
            0,
            "B/weight",
            "the step has no optimizer; Adam in mixed precision holds 12 (Rajbhandari et al. 2020)",
            "state-bytes",
        ),
    )


def route(
    name: str, link: Link, known: bool, option: str, domain: int | None, given: Mapping[str, float | None]
) -> Route:
    """A link with the share of its peak that is reached.

    Parameters
    ----------
    name : str
    link : Link
        As :mod:`workloads.link` knows or reads it.
    known : bool
        `name` is one of its names, and not a speed.
    option : str
        What names it: ``--link`` or ``--beyond``.
    domain : int or None
    given : mapping
        Overrides; of the bus efficiency only for ``--link``.
    """
    _check(given)
    source = f"{name}: peak a GPU, each way" if known else GIVEN
    latency = "a ring's base and a hop, LL protocol (nccl/src/graph/tuning.cc)" if known else GIVEN
    seen = LINK_SEEN.get(name) if known else None
    share, why = (
        1.0,
        "no measurement at hand: the peak is taken" if known else "the speed given is what counts",
    )
    if seen is not None:
        share, why = seen[0] / (link.beta / 1e9), f"nccl-tests: {seen[1]}"
    reached = Constant(
        "bus efficiency", share, "of the link", why, "--bus-efficiency" if option == "--link" else option
    )
    if option == "--link":
        reached = _given(reached, given.get("bus_efficiency"))
    constants = [
        Constant("link speed", link.beta / 1e9, "GB/s", source, option),
        Constant("link latency", link.alpha * 1e6, "µs", latency, option),
        reached,
    ]
    if option == "--link" and domain is not None:
        of = f"{domain} GPUs are joined by {name}" if known else GIVEN
        limit = _given(Constant("link domain", domain, "GPUs", of, "--domain"), given.get("domain"))
        domain = int(limit.value)
        constants.append(limit)
    return Route(name, replace(link, beta=link.beta * reached.value), domain, tuple(constants))  # type: ignore[type-var]


def _given(constant: Constant, value: float | None) -> Constant:
    return constant if value is None else replace(constant, value=value, source=GIVEN)


def _check(given: Mapping[str, float | None]) -> None:
    for name, value in given.items():
        least, most = OVERRIDES[name]
        if value is None or (least <= value <= most and math.isfinite(value)):
            continue
        wanted = "0 or more" if least == 0 else "1 or more" if least == 1 else "more than 0"
        if most == 1:
            wanted += " and at most 1"
        raise OptionError(f"is {value:g}", f"give {wanted}", f"--{name.replace('_', '-')}")
