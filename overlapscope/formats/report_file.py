"""nsys's own report files (.nsys-rep): readable only by nsys itself, so they are exported through it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import InputError

__all__ = ["exported", "is_report"]

SUFFIXES = (".nsys-rep", ".qdrep")


def is_report(path: Path, head: bytes) -> bool:
    """Whether a file is an nsys report. The format has no published signature, so its name must tell."""
    return path.suffix in SUFFIXES and not head.lstrip().startswith((b"{", b"["))


@contextmanager
def exported(path: Path) -> Iterator[Path]:
    """A temporary SQLite export of a report.

    Raises
    ------
    InputError
        nsys is not installed, or refuses the file: its own words are passed on.
    """
    nsys = shutil.which("nsys")
    if nsys is None:
        raise InputError(
            "is an nsys report, and nsys is not on PATH to read it",
            "install Nsight Systems, or run nsys export --type sqlite where it is installed",
            path,
        )
    with tempfile.TemporaryDirectory(prefix="overlapscope-") as folder:
        target = Path(folder) / "export.sqlite"
        command = [
            nsys,
            "export",
            "--type",
            "sqlite",
            "--force-overwrite",
            "true",
            "-o",
            str(target),
            str(path),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        except OSError as error:
            what = f"is an nsys report, and {nsys} cannot be started ({error.strerror})"
            raise InputError(what, "mend that installation of Nsight Systems", path) from error
        if done.returncode != 0 or not target.exists():
            said = (
                " ".join((done.stderr + " " + done.stdout).split())[-300:] or f"exit code {done.returncode}"
            )
            raise InputError(
                f"nsys cannot export it (it says: {said})",
                "use the nsys that recorded it, or a newer one",
                path,
            )
        yield target
