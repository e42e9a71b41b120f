"""run.json: what ran, where, and how it ended.

It can be handed on: no host name, no user name, no absolute path.
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from .. import __version__
from ..errors import RunError
from .events import Event
from .failure import statuses
from .machine import Machine, installed
from .nsys import Nsys
from .plan import Plan

__all__ = ["Manifest", "without_paths"]


class Manifest:
    """The contents of run.json, filled as the run goes on."""

    def __init__(self, plan: Plan, machine: Machine, nsys: Nsys | None) -> None:
        self._began = time.monotonic()
        used = machine.gpus[: plan.tp] if plan.device == "cuda" else ()
        self.data: dict[str, Any] = {
            "complete": False,
            "why": "running, or ended without a word",
            "command": plan.command,
            "workload": plan.workload,
            "options": plan.options,
            "seed": plan.options.get("seed"),
            "tp": plan.tp,
            "steps": plan.steps,
            "warmup": plan.warmup,
            "backend": plan.backend,
            "device": plan.device,
            "recorder": plan.recorder,
            "recorder_why": plan.recorder_why,
            "threads_per_rank": plan.threads,
            "link": plan.link,
            "start_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "duration_s": None,
            "versions": {
                "overlapscope": __version__,
                "python": platform.python_version(),
                "torch": installed("torch"),
                "nvtx": installed("nvtx"),
                "nsys": nsys.version if nsys else None,
                "cuda": None,
                "nccl": None,
            },
            "hardware": {
                "system": f"{platform.system()} {platform.machine()}",
                "cpu": machine.cpu,
                "cores": machine.cores,
                "memory_bytes": machine.memory,
                "gpus": [asdict(gpu) for gpu in used],
            },
            "ranks": [],
        }

    def end(self, ranks: Iterable[int], events: Sequence[Event], error: BaseException | None) -> None:
        """Say how it ended, for the ranks that ran here."""
        self.data["complete"] = error is None
        self.data["why"] = None if error is None else without_paths(str(error) or type(error).__name__)
        if isinstance(error, RunError) and error.detail:
            self.data["detail"] = without_paths(error.detail)
        self.data["duration_s"] = round(time.monotonic() - self._began, 3)
        self.data["ranks"] = statuses(events, ranks)
        self.data["phases_s"] = _phases(events)
        for event in events:
            if event.kind == "measured":
                self.data |= event.fields
            if event.kind == "imported":
                self.data["versions"] |= event.fields["versions"]
                self.data["ranks_start_by"] = event.fields["start"]
                self.data["ranks_start_why"] = event.fields["why"]


def unfinished(why: str) -> str:
    """What every report of a run that was cut short says first."""
    return f"the run did not finish ({why}): its figures are of what was recorded until then"


def without_paths(text: str) -> str:
    """The text with every absolute path cut to its last two parts."""
    return re.sub(r"(?<![\w.:/])/(?:[^\s/\"':,()]+/)+(?=[^\s/\"':,()]+/)", "", text)


def _phases(events: Sequence[Event]) -> dict[str, float]:
    """How long the launcher and the slowest rank took for each part of the run, in s."""
    last = {
        kind: [e.time for e in events if e.kind == kind] for kind in ("imported", "ready", "done", "ended")
    }
    if not events:
        return {}
    phases, before = {}, min(event.time for event in events)
    for kind, name in (
        ("imported", "import"),
        ("ready", "start"),
        ("done", "iterations"),
        ("ended", "write"),
    ):
        if last[kind]:
            after = max(last[kind])
            phases[name] = round(after - before, 3)
            before = after
    return phases
