"""The directory a run leaves: ``trace.sqlite`` and ``run.json``, and while it works a folder of its own."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from .. import run_file
from ..errors import OptionError

__all__ = ["REPORT", "SCHEMA_VERSION", "RunDir"]

SCHEMA_VERSION = 1
"""Of run.json. A field that goes or changes its meaning raises it; a new field does not."""

LOCK = "lock"
REPORT = "nsys"
"""Name of nsys's recording, without ending."""
RECORDINGS = (f"{REPORT}.nsys-rep", f"{REPORT}.qdstrm")


class RunDir:
    """The output directory of one run.

    Attributes
    ----------
    path, trace, manifest : Path
        The directory, its ``trace.sqlite`` and its ``run.json``.
    work : Path
        Folder for what is needed while the run lasts.
    json : Path
        Folder of the ranks' profiles, where they are kept.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trace = path / run_file.TRACE_FILE
        self.manifest = path / run_file.RUN_FILE
        self.work = path / ".capture"
        self.json = path / "kineto"
        self._lock: int | None = None

    @classmethod
    def prepare(cls, path: Path, *, force: bool) -> RunDir:
        """Make the directory. An existing one must be empty, or with `force` a run's, which is cleared.

        It is this process's until :meth:`close`, or its end.

        Raises
        ------
        OptionError
            It holds something, another run is at work in it, or it cannot be made.
        """
        run = cls(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            # A work folder alone is what a run leaves that was killed before it could write its first word.
            holds_something = any(entry != run.work for entry in path.iterdir())
            if holds_something:
                run._refuse_what_is_no_run(force)
            run.work.mkdir(mode=0o700, exist_ok=True)
            run._take()
            run._clear()
        except OSError as error:
            raise OptionError(f"cannot be made or written ({error.strerror})", "give another", path) from None
        return run

    @classmethod
    def prepare_node(cls, path: Path, node: int, nodes: int, *, force: bool) -> RunDir:
        """The same for one of several nodes, which may share the disk or not: ``<path>/node<k>``.

        Node 0 comes first, and clears what earlier runs have left there.
        """
        if nodes == 1:
            return cls.prepare(path, force=force)
        if node == 0 and path.is_dir() and any(path.iterdir()):
            left = [cls(folder) for folder in path.glob("node*")]
            if cls(path).read_manifest() is not None or not any(run.read_manifest() for run in left):
                left = [cls(path)]
            for run in left:
                cls.prepare(run.path, force=force).close()
        return cls.prepare(path / f"node{node}", force=force)

    def write_manifest(self, data: dict[str, Any]) -> None:
        """Replace run.json in one go."""
        part = self.path / ".run.json.part"
        part.write_text(json.dumps({"schema_version": SCHEMA_VERSION, **data}, indent=2) + "\n")
        part.replace(self.manifest)

    def part(self) -> Path:
        """Where nsys writes the trace before it takes its name."""
        return self.work / "trace.sqlite"

    def profiles(self) -> list[Path]:
        """The ranks' profiles, in the order of the ranks."""
        return sorted(self.work.glob("rank*.json"), key=lambda file: int(file.stem.removeprefix("rank")))

    def keep_recording(self) -> Path | None:
        """Keep what nsys itself has written, which could not be made a trace. Returns the file, if there is one."""
        for name in RECORDINGS:
            if (self.work / name).is_file():
                return (self.work / name).replace(self.path / name)
        return None

    def keep_json(self) -> None:
        """Compress the ranks' profiles into a folder of their own."""
        self.json.mkdir(exist_ok=True)
        for file in self.profiles():
            # Level 1: a third larger than level 9, and many times as fast.
            with (
                file.open("rb") as plain,
                gzip.open(self.json / f"{file.name}.gz", "wb", compresslevel=1) as packed,
            ):
                shutil.copyfileobj(plain, packed, 1 << 20)

    def close(self) -> None:
        """Remove the work folder, and let go of the directory."""
        shutil.rmtree(self.work, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _refuse_what_is_no_run(self, force: bool) -> None:
        if not force:
            raise OptionError("is not empty", "give another, or --force to replace a run", self.path)
        if self.read_manifest() is None:
            raise OptionError("is not empty and not a run (no run.json of one)", "give another", self.path)

    def _take(self) -> None:
        """Lock the work folder. The system lets go of a lock when its process ends, however it does."""
        self._lock = os.open(self.work / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise OptionError(
                "another run is at work in it", "let it end, or give another", self.path
            ) from None
        except OSError:  # a file system without locks, as of some clusters: nobody can be kept out
            return

    def _clear(self) -> None:
        """Remove what a run leaves, and only that; a user's notes beside it stay."""
        for entry in self.work.iterdir():
            if entry.name != LOCK:
                entry.unlink()
        shutil.rmtree(self.json, ignore_errors=True)
        for file in (self.trace, self.manifest, *(self.path / name for name in RECORDINGS)):
            file.unlink(missing_ok=True)

    def read_manifest(self) -> dict[str, Any] | None:
        """What run.json says; None where there is none of a run."""
        return run_file.read(self.path)


def default_path(name: str) -> Path:
    """``runs/<name>-<UTC time>``, with a number behind it where that exists."""
    stem = f"{name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    path, count = Path("runs") / stem, 1
    while os.path.lexists(path):
        count += 1
        path = Path("runs") / f"{stem}-{count}"
    return path
