"""Nsight Systems: finding it, its command line, its export."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import RunError

__all__ = ["Nsys", "export", "export_command", "find", "profile_command"]

# What to ask for, in nsys's words. Kernels inside CUDA graphs one by one: their overlap cannot be known
# otherwise. No sampling and no context switches: they cost time and are not read.
PROFILE = ("--trace=cuda,nvtx", "--cuda-graph-trace=node", "--sample=none", "--cpuctxsw=none")
# NCCL's own ranges carry communicator and bytes in blobs, which are left out by default.
EXPORT = ("--include-blobs=true",)


@dataclass(frozen=True, slots=True)
class Nsys:
    """An installed nsys and the options it says it knows."""

    path: str
    version: str
    profile_options: frozenset[str]
    export_options: frozenset[str]


def find() -> Nsys | None:
    """The nsys on PATH, or None."""
    path = shutil.which("nsys")
    if path is None:
        return None
    version = re.search(r"\d+\.\d+(\.\d+)*", _ask(path, "--version"))
    return Nsys(
        path,
        version[0] if version else "of unknown version",
        _options(_ask(path, "profile", "--help")),
        _options(_ask(path, "export", "--help")),
    )


def profile_command(nsys: Nsys, report: Path, program: Sequence[str]) -> list[str]:
    """The command that runs `program` under nsys and leaves ``<report>.nsys-rep``."""
    wanted = [option for option in PROFILE if _name(option) in nsys.profile_options]
    return [nsys.path, "profile", *wanted, "--force-overwrite=true", "-o", str(report), *program]


def export_command(nsys: Nsys, report: Path, database: Path) -> list[str]:
    """The command that makes ``<report>.nsys-rep`` an SQLite file."""
    wanted = [option for option in EXPORT if _name(option) in nsys.export_options]
    source = report.with_name(f"{report.name}.nsys-rep")
    return [
        *(nsys.path, "export", "--type", "sqlite", *wanted),
        *("--force-overwrite=true", "-o", str(database), str(source)),
    ]


def export(nsys: Nsys, report: Path, database: Path) -> None:
    """Make the report an SQLite file.

    Raises
    ------
    RunError
        nsys failed; its own message is the detail.
    """
    done = subprocess.run(export_command(nsys, report, database), capture_output=True, text=True, check=False)
    if done.returncode != 0 or not database.is_file():
        raise RunError(
            "could not export what it recorded",
            about=f"nsys {nsys.version}",
            detail=done.stdout + done.stderr,
        )


def _ask(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def _options(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"--[a-z][a-z-]*[a-z]", text))


def _name(option: str) -> str:
    return option.split("=", 1)[0]
