"""Running a workload and recording it. Nothing here imports torch; the processes it starts do."""

from .launch import run
from .plan import DEVICES, RECORDERS, Plan, Request
from .rundir import RunDir, default_path
from .sweep import difference, found, sweep

__all__ = [
    "DEVICES",
    "RECORDERS",
    "Plan",
    "Request",
    "RunDir",
    "default_path",
    "difference",
    "found",
    "run",
    "sweep",
]
