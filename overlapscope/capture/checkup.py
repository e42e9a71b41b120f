"""What `run` finds on this machine, and what it would choose; asked of the same code that `run` asks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import OptionError
from . import nsys as nsight
from .launch import environment
from .machine import Machine, inspect, installed
from .nsys import Nsys
from .plan import Plan, Request, make

__all__ = ["Checkup", "checkup", "links"]

PROBE_S = 120.0  # importing torch from a cold disk takes tens of seconds
SMI_S = 20.0  # nvidia-smi wakes a sleeping driver
ON_A_CPU = 2  # ranks planned for without a GPU: the fewest that communicate


@dataclass(frozen=True, slots=True)
class Checkup:
    """What was found.

    Attributes
    ----------
    machine : Machine
        As `run` plans with it; its GPUs are those that this PyTorch could use.
    torch : mapping
        What :mod:`.probe` printed: torch, cuda_build, gloo, nccl, gpus; ``error`` is None where all went well.
    driver_gpus : tuple of str or None
        Names that nvidia-smi lists; None without nvidia-smi.
    links : tuple of tuple of str or None
        How GPU i reaches GPU j in nvidia-smi's words (NV18, PIX, ...); None without nvidia-smi.
    nsys : Nsys or None
    nvtx : str or None
        Version of the Python package; None where it is not installed.
    connections : str or None
        CUDA_DEVICE_MAX_CONNECTIONS here.
    plan : Plan or None
        What `run` would do with its defaults on all GPUs, or on 2 ranks without any.
    refused : str or None
        Why it would do nothing.
    connections_in_run : str or None
        CUDA_DEVICE_MAX_CONNECTIONS of the ranks it would start.
    nsys_traps : tuple of str
        What is wrong with this nsys, or with it and this nvtx together.
    """

    machine: Machine
    torch: Mapping[str, Any]
    driver_gpus: tuple[str, ...] | None
    links: tuple[tuple[str, ...], ...] | None
    nsys: Nsys | None
    nvtx: str | None
    connections: str | None
    plan: Plan | None
    refused: str | None
    connections_in_run: str | None
    nsys_traps: tuple[str, ...] = ()

    @property
    def broken(self) -> str | None:
        """Why `run` cannot work here; None where it can."""
        if self.torch["error"] is not None:
            return f"torch: {self.torch['error']}"
        if self.plan is None:
            return self.refused
        backend = self.plan.backend
        return None if self.torch[backend] else f"this PyTorch has no {backend}"


def checkup() -> Checkup:
    """Look at everything that `run` depends on. Imports no torch here, and raises nothing."""
    machine, nsys, nvtx = inspect(), nsight.find(), installed("nvtx")
    plan, refused = _plan(machine, nsys)
    names = _smi("--query-gpu=name", "--format=csv,noheader")
    topology = _smi("topo", "-m")
    return Checkup(
        machine=machine,
        torch=_probe(),
        driver_gpus=None if names is None else tuple(names.splitlines()),
        links=None if topology is None else links(topology),
        nsys=nsys,
        nvtx=nvtx,
        connections=os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS"),
        plan=plan,
        refused=refused,
        connections_in_run=None
        if plan is None
        else environment(plan, os.environ).get("CUDA_DEVICE_MAX_CONNECTIONS"),
        nsys_traps=() if nsys is None else tuple(nsight.traps(nsys, nvtx)),
    )


def _plan(machine: Machine, nsys: Nsys | None) -> tuple[Plan | None, str | None]:
    gpus = len(machine.gpus)
    # The defaults' heads are a power of two, which is all that other numbers of ranks would fail at.
    tp = 1 << (gpus.bit_length() - 1) if gpus else ON_A_CPU
    try:
        if nsys is not None and gpus:  # without a GPU it is not asked
            nsys.check()
        return make(Request(workload="block", tp=tp), machine, nsys), None
    except OptionError as error:
        return None, str(error)


def _probe() -> dict[str, Any]:
    program = Path(__file__).with_name("probe.py")
    answer, error = _ask([sys.executable, str(program)], PROBE_S)
    try:
        found: dict[str, Any] = json.loads((answer or "").splitlines()[-1])
    except (ValueError, IndexError):
        return {"error": error or "importing it ends the process without a word"}
    return found


def _smi(*arguments: str) -> str | None:
    """What nvidia-smi prints; None where there is none or it fails, as without a driver."""
    path = shutil.which("nvidia-smi")
    return None if path is None else _ask([path, *arguments], SMI_S)[0]


def _ask(command: Sequence[str], timeout: float) -> tuple[str | None, str | None]:
    """What a program prints, or why there is nothing."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer within {timeout:g} s"
    except OSError as error:
        return None, error.strerror or str(error)
    if done.returncode == 0:
        return done.stdout, None
    last = done.stderr.strip().splitlines()
    return None, last[-1] if last else f"ended with exit code {done.returncode}"


def links(topology: str) -> tuple[tuple[str, ...], ...]:
    """The GPU rows and columns of what ``nvidia-smi topo -m`` prints."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", topology)  # it underlines its head even in a file
    rows = [line.split() for line in plain.splitlines() if re.match(r"GPU\d+\s+\S", line)]
    return tuple(tuple(row[1 : 1 + len(rows)]) for row in rows)
