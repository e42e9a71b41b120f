"""What records inside a rank."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Nothing", "Recorder", "TorchRecorder", "WriteError"]


class WriteError(Exception):
    """What was recorded could not be written."""


class Recorder(Protocol):
    """Records from start to finish."""

    def start(self) -> None:
        """Begin."""

    def finish(self) -> Path | None:
        """End, and write what there is. Returns the file, or None where there is none. Raises WriteError."""


class Nothing:
    """Where something outside records: nsys."""

    def start(self) -> None:
        """Nothing to begin."""

    def finish(self) -> Path | None:
        """Nothing to write."""
        return None


class TorchRecorder:
    """torch.profiler, with shapes, so that a collective's bytes are known."""

    def __init__(self, path: Path, device: str) -> None:
        self.path, self.device = path, device
        self.profile: Any = None

    def start(self) -> None:
        """Begin."""
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        if self.device == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self.profile = profile(activities=activities, record_shapes=True)
        self.profile.start()

    def finish(self) -> Path | None:
        """End, and write the profile. Raises WriteError."""
        if self.profile is None:
            return None
        profile, self.profile = self.profile, None
        profile.stop()
        # A rank that is killed here leaves no half a file. Plain JSON: torch would gzip it line by line, which
        # takes twenty times as long as all the rest.
        part = self.path.with_name(f"part-{self.path.name}")
        try:
            with _inside(part.parent):  # Kineto writes the path into the JSON as it is, quotes and all
                profile.export_chrome_trace(part.name)
            part.replace(self.path)
        except FileNotFoundError:  # Kineto says nothing, and leaves nothing
            raise WriteError("the disk is full, or files may not be so large: see df, ulimit -f") from None
        except OSError as error:
            raise WriteError(error.strerror or str(error)) from None
        return self.path


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """As `contextlib.chdir`, which Python 3.10 has not; where one is may have been removed meanwhile."""
    before = os.open(".", os.O_RDONLY)
    os.chdir(folder)
    try:
        yield
    finally:
        os.fchdir(before)
        os.close(before)
