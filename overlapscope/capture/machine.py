"""What this machine has: cores, memory, GPUs. Imports no torch, asks the GPU's driver only when told to."""

from __future__ import annotations

import ctypes
import os
import re
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

__all__ = ["Gpu", "Machine", "inspect", "installed"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU this process may use."""

    name: str
    memory: int  # bytes


@dataclass(frozen=True, slots=True)
class Machine:
    """What a run is planned for."""

    cpu: str
    cores: int  # that this process may use
    memory: int  # bytes, in all
    available: int  # bytes that can still be allocated
    gpus: tuple[Gpu, ...] = ()


def inspect(*, gpus: bool = True) -> Machine:
    """This machine now."""
    total, free = _memory()
    return Machine(_cpu_model(), _cores(), total, free, _gpus() if gpus else ())


def _cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _read("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0] != "max":
        cores = min(cores, max(1, round(int(quota[0]) / int(quota[1]))))
    return cores


def _cpu_model() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return found[1].strip() if found else os.uname().machine


def _memory() -> tuple[int, int]:
    """Total and available bytes, of the machine or, where that is less, of the container."""
    meminfo = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _read("/proc/meminfo"), re.MULTILINE))
    if not meminfo:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return pages, pages
    total, free = int(meminfo["MemTotal"]) * 1024, int(meminfo["MemAvailable"]) * 1024
    for limit, used, cache in _cgroup_memory():
        total, free = min(total, limit), min(free, max(limit - (used - cache), 0))
    return total, free


def _cgroup_memory() -> list[tuple[int, int, int]]:
    """(limit, used, page cache that can be dropped) of this process's control group and those above it."""
    own = re.search(r"^0::(/.*)$", _read("/proc/self/cgroup"), re.MULTILINE)
    root = Path("/sys/fs/cgroup")
    folder = root / own[1].lstrip("/") if own else root
    found = []
    for place in [folder, *folder.parents]:
        limit = _read(place / "memory.max").strip()
        if limit.isdigit():
            cache = re.search(r"^inactive_file (\d+)$", _read(place / "memory.stat"), re.MULTILINE)
            used = int(_read(place / "memory.current") or 0)
            found.append((int(limit), used, int(cache[1]) if cache else 0))
        if place == root:
            break
    return found


def _gpus() -> tuple[Gpu, ...]:
    """What the driver offers, if this PyTorch could use it; CUDA_VISIBLE_DEVICES counts.

    The driver is asked in this process, which never forks ranks: a forked process cannot use a driver that
    its parent has initialised.
    """
    if not _torch_has_cuda():
        return ()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ()
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()
    found = []
    for index in range(count.value):
        device, name, memory = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
        if driver.cuDeviceGet(ctypes.byref(device), index) != 0:
            continue
        driver.cuDeviceGetName(name, len(name), device)
        driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
        found.append(Gpu(name.value.decode(errors="replace"), memory.value))
    return tuple(found)


def _torch_has_cuda() -> bool:
    """Whether the installed PyTorch was built for CUDA, from its version file: importing it takes seconds."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    return (
        re.search(r"^cuda\b.*=\s*['\"]", _read(Path(spec.origin).parent / "version.py"), re.MULTILINE)
        is not None
    )


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def installed(package: str) -> str | None:
    """The version of a Python package, or None where it is not installed. Imports nothing."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
