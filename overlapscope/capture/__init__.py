"""Running a workload and recording it. Nothing here imports torch; the processes it starts do."""

from .join import Joined, join
from .launch import run
from .plan import DEVICES, RECORDERS, Plan, Request
from .rundir import RunDir, default_path
from .sweep import difference, differences, found, sweep
from .voice import is_mine
from .world import LAUNCHES, World, find

__all__ = [
    "DEVICES",
    "LAUNCHES",
    "RECORDERS",
    "Joined",
    "Plan",
    "Request",
    "RunDir",
    "World",
    "default_path",
    "difference",
    "differences",
    "find",
    "found",
    "is_mine",
    "join",
    "run",
    "sweep",
]
