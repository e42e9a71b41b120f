"""``overlapscope doctor``: what this machine has, what `run` would choose here, and why."""

from __future__ import annotations

import json
import os
import platform
import sys
import textwrap
from collections import Counter
from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import __version__
from ..errors import OptionError, RunError
from .options import progress

if TYPE_CHECKING:
    from ..capture.checkup import Checkup

__all__ = ["as_dict", "doctor", "render"]

SCHEMA_VERSION = 1
WIDTH = 80
LABEL = 12  # columns of the labels on the left

CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
WHY_CONNECTIONS = (
    "1 makes kernels start in the order of their launches (before Blackwell), so that a collective gets its SMs "
    "before the GEMM it should hide under"
)


class Format(str, Enum):
    TEXT = "text"
    JSON = "json"


def doctor(
    format: Annotated[Format, typer.Option("--format", help="How to lay the findings out.")] = Format.TEXT,
) -> None:
    """Show GPUs, P2P links, nsys, nvtx, NCCL and torch as found here, and what run would choose and why.

    Exits with 1 if run could not work here: torch cannot be imported, or the defaults do not fit the machine.
    """
    from ..capture.checkup import checkup

    with progress() as tell:
        tell("asking PyTorch and the driver")
        found = checkup()
    if format is Format.JSON:
        sys.stdout.write(json.dumps(as_dict(found), indent=2, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(render(found))
    if found.broken is not None:
        sys.stdout.flush()
        raise RunError(f"run cannot work here: {found.broken}")


def as_dict(found: Checkup) -> dict[str, Any]:
    """The findings for a program; what there is none of is null."""
    plan, machine = found.plan, found.machine
    return {
        "schema_version": SCHEMA_VERSION,
        "overlapscope": __version__,
        "python": platform.python_version(),
        "machine": asdict(machine),
        "torch": dict(found.torch),
        "driver_gpus": found.driver_gpus,
        "links": found.links,
        "nsys": None if found.nsys is None else {"version": found.nsys.version, "path": found.nsys.path},
        "nsys_traps": list(found.nsys_traps),
        "nvtx": found.nvtx,
        "cuda_device_max_connections": {"here": found.connections, "in_run": found.connections_in_run},
        "run": None
        if plan is None
        else {
            "tp": plan.tp,
            "device": plan.device,
            "backend": plan.backend,
            "recorder": plan.recorder,
            "recorder_why": plan.recorder_why,
            "threads_per_rank": plan.threads,
        },
        "launcher": _launcher(),
        "broken": found.broken,
    }


def render(found: Checkup) -> str:
    """The findings as text of at most 80 columns."""
    machine = found.machine
    lines = [f"overlapscope {__version__} on Python {platform.python_version()}, {platform.system()}", ""]
    memory = f"{machine.memory / 1e9:.1f} GB memory, {machine.available / 1e9:.1f} GB available"
    lines += _said("machine", f"{machine.cpu}, {machine.cores} cores, {memory}")
    lines += _said("torch", _torch(found))
    lines += _said("backends", _backends(found))
    lines += _said("GPUs", _gpus(found))
    lines += _said("P2P", _peers(found))
    lines += _said("nsys", _nsys(found))
    lines += _said(
        "nvtx", found.nvtx or "not installed: nsys would record no ranges of ours; pip install nvtx"
    )
    launcher = _launcher()
    if launcher is not None:
        lines += _said("launcher", launcher)
    lines += ["", CONNECTIONS, *_said("", _connections(found)), "", "overlapscope run would choose"]
    for label, text in _choice(found):
        lines += _said(label, text)
    return "\n".join(lines) + "\n"


def _launcher() -> str | None:
    """Whose ranks `run` would join; None where it would start its own."""
    from ..capture import find

    try:
        world = find(os.environ)
    except OptionError as error:
        return f"run would refuse to join: {error}"
    if world is None:
        return None
    return f"{world.launcher} started this as rank {world.rank} of {world.size}, which run would join"


def _said(label: str, text: str) -> list[str]:
    from ..report.words import escape

    head, gap = f"{label:<{LABEL}}", " " * LABEL
    return textwrap.wrap(
        escape(text), WIDTH, initial_indent=head, subsequent_indent=gap, break_on_hyphens=False
    )


def _torch(found: Checkup) -> str:
    torch = found.torch
    if "torch" not in torch:
        return f"cannot be imported ({torch['error']}): run needs it; reading traces does not"
    built = f"built for CUDA {torch['cuda_build']}" if torch["cuda_build"] else "built without CUDA"
    trouble = "" if torch["error"] is None else f"; it fails with {torch['error']}"
    return f"{torch['torch']}, {built}{trouble}"


def _backends(found: Checkup) -> str:
    nccl = found.torch.get("nccl")
    return "; ".join(
        [
            f"NCCL {nccl}" if nccl else "no NCCL: no runs on GPUs",
            "gloo" if found.torch.get("gloo") else "no gloo: no runs on a CPU",
        ]
    )


def _gpus(found: Checkup) -> str:
    gpus, listed = found.machine.gpus, found.driver_gpus
    if gpus:
        kinds = Counter(f"{gpu.name} ({gpu.memory / 1e9:.1f} GB)" for gpu in gpus)
        text = ", ".join(f"{count} × {kind}" for kind, count in kinds.items())
        seen = len(found.torch.get("gpus", gpus))
        return text if seen == len(gpus) else f"{text}; PyTorch sees {seen} of them"
    if "torch" not in found.torch:
        why = "it cannot be imported"
    else:
        why = "the driver offers none" if found.torch["cuda_build"] else "it is built without CUDA"
    text = f"none that PyTorch can use: {why}"
    if listed:
        text += (
            f"; nvidia-smi lists {len(listed)} ({listed[0]}): install PyTorch for CUDA, or mend the driver"
        )
    return text


def _peers(found: Checkup) -> str:
    peers = [gpu["peers"] for gpu in found.torch.get("gpus", [])]
    if len(peers) < 2:
        return "nothing to reach with fewer than two GPUs"
    missing = [f"{j}–{i}" for i in range(len(peers)) for j in range(i) if j not in peers[i]]
    text = "every GPU reaches every other" if not missing else f"no access between GPUs {', '.join(missing)}"
    if found.links is None:
        return f"{text}; links not known without nvidia-smi"
    kinds = Counter(row[j] for i, row in enumerate(found.links) for j in range(min(i, len(row))))
    return f"{text}; links: {', '.join(f'{count} × {kind}' for kind, count in kinds.items())}"


def _nsys(found: Checkup) -> str:
    if found.nsys is not None:
        return "; ".join([f"{found.nsys.version} ({found.nsys.path})", *found.nsys_traps])
    return (
        "not on PATH: runs on GPUs are recorded by torch.profiler, and .nsys-rep files cannot be read (their "
        "SQLite exports can)"
    )


def _connections(found: Checkup) -> str:
    here = "not set" if found.connections is None else f"{found.connections} here"
    if found.plan is None or found.plan.device == "cpu":
        return f"{here}; it counts on GPUs only, where run sets 1 unless it is set"
    return f"{here}, {found.connections_in_run} in the ranks of a run; {WHY_CONNECTIONS}"


def _choice(found: Checkup) -> list[tuple[str, str]]:
    plan = found.plan
    if plan is None:
        return [("nothing", f"it would refuse: {found.refused}")]
    gpus = len(found.machine.gpus)
    why = f"{gpus} GPUs that PyTorch can use" if gpus else "no GPU that PyTorch can use"
    recorder = "nsys" if plan.recorder == "nsys" else "torch.profiler"
    return [
        ("device", f"{plan.device} ({why})"),
        ("backend", plan.backend),
        ("recorder", f"{recorder} ({plan.recorder_why})"),
        ("threads", f"{plan.threads} a rank, of {plan.tp} ranks on {found.machine.cores} cores"),
    ]
