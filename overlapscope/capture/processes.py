"""Processes that do not outlive who started them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress

__all__ = ["alive", "ask_to_end", "die_with", "send", "single_threaded", "touched_gpu"]

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its `parent` dies, even by ``kill -9``. Linux only."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it died before it could be watched
        os.kill(os.getpid(), signal.SIGKILL)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has died and that nobody has waited for does not."""
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except ProcessLookupError:
        return False
    except OSError:  # another user's, or no /proc here
        return True


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process, if it is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def ask_to_end(pid: int) -> None:
    """SIGTERM; and SIGCONT, since a process that was stopped hears nothing else."""
    send(pid, signal.SIGTERM)
    send(pid, signal.SIGCONT)


def single_threaded() -> bool:
    """Whether this process has no thread beside this one, so that a fork copies all of it."""
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def touched_gpu() -> bool:
    """Whether this process holds a GPU's device file open; a process forked from it could not use the GPU."""
    folder = "/proc/self/fd"
    return os.path.isdir(folder) and any(_target(fd).startswith("/dev/nvidia") for fd in os.listdir(folder))


def _target(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:  # the listing's own, closed by now
        return ""
