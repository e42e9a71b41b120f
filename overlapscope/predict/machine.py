"""What a GPU and its links do a second: every constant with its source and the option that overrides it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from ..errors import OptionError
from .gpus import LINK_SEEN, Gpu
from .work import Op

if TYPE_CHECKING:
    from workloads import Link

__all__ = ["OVERRIDES", "Constant", "Machine", "Route", "machine", "overridden", "route"]

GIVEN = "given"


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


MOST = 1e12  # beyond any machine, and far from what a float cannot hold
LEAST = 1e-6  # of what is divided by

OVERRIDES: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("gpu_flops", "gpu_bandwidth", "gpu_memory"), (LEAST, MOST)),
    **dict.fromkeys(
        ("gemm_efficiency", "attention_efficiency", "memory_efficiency", "bus_efficiency"), (LEAST, 1)
    ),
    **dict.fromkeys(("launch", "attention_backward", "state_bytes"), (0, MOST)),
    "domain": (1, MOST),
}
"""Options that override a constant, with the least and the most that make sense."""


USUAL: Mapping[str, Constant] = {
    "gemm_efficiency": Constant(
        "GEMM efficiency",
        0.75,
        "of peak",
        "70 to 80 % reported for Llama 70B and 405B shapes (CUTLASS Distributed GEMM)",
        "--gemm-efficiency",
    ),
    "attention_efficiency": Constant(
        "attention efficiency",
        0.6,
        "of peak",
        "FlashAttention-2 on A100: 50 to 73 % (Dao 2023); FlashAttention-3 on H100: up to 75 % (Shah et al. 2024)",
        "--attention-efficiency",
    ),
    "memory_efficiency": Constant(
        "memory efficiency",
        0.9,
        "of HBM",
        "an assumption: streaming kernels come near, none reaches, the datasheet's rate",
        "--memory-efficiency",
    ),
    "launch": Constant(
        "launch of a kernel",
        0.9,
        "µs",
        "3.8 µs a kernel that runs 2.9 µs, launched ahead, on V100 (NVIDIA, Getting Started with CUDA Graphs)",
        "--launch",
    ),
    "attention_backward": Constant(
        "attention backward",
        2.5,
        "× forward",
        "five matrix products for two (Dao 2023)",
        "--attention-backward",
    ),
    "state_bytes": Constant(
        "optimizer state",
        0,
        "B/weight",
        "the step has no optimizer; Adam in mixed precision holds 12 (Rajbhandari et al. 2020)",
        "--state-bytes",
    ),
}


def machine(gpu: Gpu, given: Mapping[str, float | None]) -> Machine:
    """A GPU with the constants of its datasheet and of the literature, or those that were given.

    Raises
    ------
    OptionError
        One of these makes no sense.
    """
    constants = {
        "flops": Constant("bfloat16 peak", gpu.flops, "TFLOP/s", gpu.source, "--gpu-flops"),
        "bandwidth": Constant("HBM bandwidth", gpu.bandwidth, "GB/s", gpu.source, "--gpu-bandwidth"),
        "memory": Constant("HBM capacity", gpu.memory, "GB", gpu.source, "--gpu-memory"),
        **USUAL,
    }
    return Machine(**{name: overridden(constant, given) for name, constant in constants.items()})


def route(
    name: str,
    link: Link,
    *,
    known: bool,
    beyond: bool = False,
    domain: Constant | None = None,
    given: Mapping[str, float | None],
) -> Route:
    """A link, at the share of its peak that is reached.

    Parameters
    ----------
    name : str
    link : Link
    known : bool
        `name` is a name of :data:`workloads.link.LINKS`, and not a speed.
    beyond : bool
        It is what ``--beyond`` names; then what that says is all that overrides its constants.
    domain : Constant or None
        How many GPUs it joins.
    given : mapping

    Raises
    ------
    OptionError
        The bus efficiency that was given makes no sense.
    """
    option = "--beyond" if beyond else "--link"
    if not known:
        share, why = 1.0, "the speed that was given counts"
    elif name in LINK_SEEN:
        seen, words = LINK_SEEN[name]
        share, why = seen / (link.beta / 1e9), f"all_reduce_perf (nccl-tests): {words}"
    else:
        share, why = 1.0, "no measurement at hand: the peak is taken"
    reached = Constant("bus efficiency", share, "of the link", why, option if beyond else "--bus-efficiency")
    if not beyond:
        reached = overridden(reached, given)
    constants = [
        Constant("link speed", link.beta / 1e9, "GB/s", f"{name}: peak a GPU, each way", option),
        Constant("link latency", link.alpha * 1e6, "µs", f"{name}: NCCL's tuning.cc, ring, LL", option),
        reached,
    ]
    if not known:
        constants[:2] = [replace(constant, source=GIVEN) for constant in constants[:2]]
    if domain is not None:
        constants.append(domain)
    size = None if domain is None else int(domain.value)
    return Route(name, replace(link, beta=link.beta * reached.value), size, tuple(constants))


def overridden(constant: Constant, given: Mapping[str, float | None]) -> Constant:
    """The constant, or what its option says. Raises OptionError where that makes no sense."""
    name = constant.option.removeprefix("--").replace("-", "_")
    value = given.get(name)
    if value is None:
        return constant
    least, most = OVERRIDES[name]
    if not least <= value <= most:  # so that NaN is refused, too
        raise OptionError(f"is {value:g}", f"give a number from {least:g} to {most:g}", constant.option)
    return replace(constant, value=value, source=GIVEN)
