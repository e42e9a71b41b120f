"""GPUs as their vendor describes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["GPUS", "LINK_SEEN", "Gpu", "by_name"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU by its datasheet.

    Attributes
    ----------
    title : str
    flops : float
        Peak dense bfloat16 rate of the tensor cores, TFLOP/s (1e12). Datasheets print the sparse one, twice that.
    bandwidth, memory : float
        Of its HBM, GB/s and GB (1e9).
    link : str
        What joins it to others, a name of ``workloads.link.LINKS``.
    domain : int
        GPUs that this link joins directly.
    source : str
    named : str
        Regular expression of what its driver calls it. Not of its PCIe cards, whose link is another.
    """

    title: str
    flops: float
    bandwidth: float
    memory: float
    link: str
    domain: int
    source: str
    named: str


GPUS: Mapping[str, Gpu] = {
    "a100": Gpu(
        "A100 SXM", 312, 2039, 80, "nvlink3", 8, "NVIDIA A100 80GB datasheet, SXM", r"A100-SXM4?-\d+GB"
    ),
    "h100": Gpu(
        "H100 SXM",
        989.4,
        3350,
        80,
        "nvlink4",
        8,
        "NVIDIA H100 datasheet and architecture paper, SXM5, dense",
        r"H100 \d+GB HBM\w+",
    ),
    "h200": Gpu("H200 SXM", 989.4, 4800, 141, "nvlink4", 8, "NVIDIA H200 datasheet, SXM, dense", "H200"),
    "b200": Gpu(
        "B200 (HGX)",
        2250,
        7700,
        180,
        "nvlink5",
        8,
        "NVIDIA HGX B200 datasheet, an eighth of it, dense",
        "B200",
    ),
    "gb200": Gpu(
        "GB200 NVL72",
        2500,
        8000,
        186,
        "nvlink5",
        72,
        "NVIDIA GB200 NVL72 datasheet, a 72nd of it, dense",
        "GB200",
    ),
}

LINK_SEEN: Mapping[str, tuple[float, str]] = {
    "nvlink3": (220, "200 to 240 of 300 GB/s"),
    "nvlink4": (370, "about 370 of 450 GB/s by rings; NVLS, in the switch, shows about 480"),
    "nvlink5": (840, "835 to 847 of 900 GB/s, at 4 to 8 GB"),
    "hdr": (24, "24 of 25 GB/s, one NIC"),
    "ndr": (47, "46 to 48 of 50 GB/s, one NIC"),
}
"""Bus bandwidth in GB/s that all_reduce_perf (nccl-tests) is seen to reach with large messages, and in words."""


def by_name(name: str) -> Gpu | None:
    """The GPU that its driver calls so (``NVIDIA A100-SXM4-80GB``); None where it is none of :data:`GPUS`."""
    return next((gpu for gpu in GPUS.values() if re.fullmatch(rf"(?:NVIDIA )?{gpu.named}", name)), None)
