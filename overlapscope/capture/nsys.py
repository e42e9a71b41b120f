"""Nsight Systems: finding it, its command line, its report and the export of it.

A whole run is recorded, from the ranks' start to their end, and the report looks at its steps. nsys could begin and
end with a range of the program (``--capture-range=nvtx``), but one for all ranks: it ends with the first rank that
does, and cuts the others' steps short (seen with 2022.4.2: 195 of 200 ms of a last step). And where nsys does not see
the range, it records nothing at all.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import OptionError, RunError

__all__ = ["Nsys", "export", "export_command", "find", "profile_command", "traps"]

# What to ask for, in nsys's words. Kernels inside CUDA graphs one by one: their overlap cannot be known
# otherwise. On a CPU ranges alone. No sampling and no context switches: they cost time and are not read.
TRACE = {"cuda": ("--trace=cuda,nvtx", "--cuda-graph-trace=node"), "cpu": ("--trace=nvtx",)}
PROFILE = ("--sample=none", "--cpuctxsw=none")
# nvtx 0.2.12 and newer asks a tool whether it wants a domain. nsys 2022.4.2 does not answer, and gets nothing (tried
# with nvtx 0.2.11 to 0.2.17); of newer ones none is known not to.
ASKS, ANSWERS = (0, 2, 12), (2023,)
# NCCL's own ranges carry communicator and bytes in blobs, which are left out by default.
EXPORT = ("--include-blobs=true",)


@dataclass(frozen=True, slots=True)
class Nsys:
    """An installed nsys and the options it says it knows."""

    path: str
    version: str
    profile_options: frozenset[str]
    export_options: frozenset[str]

    def check(self) -> None:
        """Raise OptionError if it does not run: the help of one that runs tells some options."""
        if not self.profile_options:
            raise OptionError(
                f"{self.path} does not run", "mend that installation, or give torch", "--recorder"
            )


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


def traps(nsys: Nsys, nvtx: str | None) -> list[str]:
    """What is wrong with an nsys, or with it and the Python package nvtx together, each with its remedy."""
    if not nsys.profile_options:
        return ["it does not run: mend that installation, or take it off PATH"]
    found = []
    if nvtx is not None and _numbers(nsys.version) < ANSWERS and _numbers(nvtx) >= ASKS:
        found.append(
            f"it is older than what nvtx {nvtx} asks a tool: of Python's ranges it records those of "
            "overlapscope.markers only; for all of them pip install 'nvtx==0.2.11', or install a newer nsys"
        )
    if next(_importers(Path(nsys.path)), None) is None:
        found.append(
            "its QdstrmImporter is not installed: where nsys needs it, runs are lost; install it whole"
        )
    return found


def profile_command(nsys: Nsys, report: Path, program: Sequence[str], device: str) -> list[str]:
    """The command that runs `program` on a device ("cuda", "cpu") under nsys and leaves ``<report>.nsys-rep``."""
    wanted = [option for option in (*TRACE[device], *PROFILE) if _name(option) in nsys.profile_options]
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
        nsys failed, and its own message is the detail; or a step of it is not installed.
    """
    if not report.with_name(f"{report.name}.nsys-rep").exists() and _raw(report).exists():
        _import(nsys, report)
    done = _run(export_command(nsys, report, database), dict(os.environ))
    if done.returncode != 0 or not database.is_file():
        raise RunError(
            "could not export what it recorded",
            about=f"nsys {nsys.version}",
            detail=done.stdout + done.stderr,
        )


def _raw(report: Path) -> Path:
    """What nsys leaves where it did not find its importer."""
    return report.with_name(f"{report.name}.qdstrm")


def _import(nsys: Nsys, report: Path) -> None:
    """Make a report of what was recorded, which is a step that nsys itself takes where it finds its importer."""
    importer = next(_importers(Path(nsys.path)), None)
    if importer is None:
        raise RunError(
            "left its raw recording, since its importer is not installed",
            "install all of Nsight Systems, QdstrmImporter among it",
            f"nsys {nsys.version}",
        )
    rep = report.with_name(f"{report.name}.nsys-rep")
    command = [str(importer), "-i", str(_raw(report)), "-o", str(rep)]
    done = _run(command, {**os.environ, "LD_LIBRARY_PATH": str(importer.parent)})
    if done.returncode != 0 or not rep.is_file():
        rep.unlink(missing_ok=True)  # half of one
        detail = done.stdout + done.stderr
        raise RunError("could not import what it recorded", about=f"nsys {nsys.version}", detail=detail)


def _run(command: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a step to its end. In a session of its own: a terminal's Ctrl-C reaches this process alone."""
    try:
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            start_new_session=True,
        )
    except OSError as error:
        return subprocess.CompletedProcess(command, 1, "", f"{command[0]}: {error.strerror or error}\n")


def _importers(nsys: Path) -> Iterator[Path]:
    """The importers beside an nsys, or beside anything that it is a link to.

    NVIDIA's installer puts the folders ``host-…`` and ``target-…`` side by side, and nsys goes by that. Debian
    splits them over two places, and one of its links on the way to nsys stands beside the first.
    """
    while True:
        for folder in (nsys.parent, nsys.parent.parent):
            yield from sorted(folder.glob("host-linux-*/QdstrmImporter"))
        if not nsys.is_symlink():
            return
        nsys = nsys.parent.resolve() / nsys.readlink()


def _ask(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def _options(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"--[a-z][a-z-]*[a-z]", text))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def _name(option: str) -> str:
    return option.split("=", 1)[0]
