"""Running a workload and recording it. Nothing here imports torch; the processes it starts do."""

from .launch import run
from .plan import DEVICES, RECORDERS, Plan, Request
from .rundir import RunDir

__all__ = ["DEVICES", "RECORDERS", "Plan", "Request", "RunDir", "run"]
