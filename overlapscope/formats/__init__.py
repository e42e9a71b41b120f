"""All that knows a file's layout. What a file is, is found from its content, never from its name."""

from __future__ import annotations

import gzip
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..classify import Classifier
from ..errors import InputError, NotATraceError
from ..run_file import TRACE_FILE
from ..run_file import read as read_run_file
from ..trace import Dropped, Trace
from .assemble import assemble
from .raw import Progress, RawTrace, ungzipping
from .report_file import exported, is_report

__all__ = ["load"]


def load(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    classifier: Classifier | None = None,
    progress: Progress | None = None,
    session_clock: bool = True,
) -> Trace:
    """Read one trace from one or more files.

    Parameters
    ----------
    paths : path or sequence of paths
        nsys SQLite exports, ``.nsys-rep`` reports (exported through the installed nsys), PyTorch profiler JSON
        (plain or gzipped), run directories, or directories of rank files.
    classifier : Classifier, optional
        How names become kinds; the project's own rules by default.
    progress : callable, optional
        Told in words which file is being read.
    session_clock : bool
        Bring the clocks of several files together by the wall clock that each records; else every file begins
        at its own time 0.

    Returns
    -------
    Trace

    Raises
    ------
    InputError
        A file is missing, damaged, cut off, locked, or holds no ops; or two files claim one rank.
    """
    classifier = classifier or Classifier.default()
    given = [Path(p) for p in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    files: list[RawTrace] = []
    strangers: list[str] = []
    for path, in_directory in _expand(given):
        if progress is not None:
            progress(f"reading {path.name}")
        try:
            files.append(_read(path, classifier))
        except NotATraceError:
            if not in_directory:
                raise
            strangers.append(path.name)
    if not files:
        raise InputError("holds no trace files", "give a trace, or a folder of rank files", given[0])
    if progress is not None:
        progress("bringing ranks together")
    if strangers:
        some = ", ".join(strangers[:3]) + (", ..." if len(strangers) > 3 else "")
        files[0].dropped.append(
            Dropped(len(strangers), f"files of the folder ({some})", "they are no traces")
        )
    return assemble(files, classifier, session_clock=session_clock)


def _expand(given: list[Path]) -> list[tuple[Path, bool]]:
    """The files of all paths, each with whether it was found in a folder; refuses one file given twice."""
    found: list[tuple[Path, bool]] = []
    for path in given:
        try:
            exists = path.exists()
        except OSError as error:
            raise InputError(f"cannot be opened ({error.strerror})", "check the path", path) from error
        if not exists:
            raise InputError("does not exist", "check the path", path)
        found += [(p, True) for p in _directory(path)] if path.is_dir() else [(path, False)]
    seen: set[Path] = set()
    for path, _ in found:
        if path.resolve() in seen:
            raise InputError("is given twice", "give each file once", path)
        seen.add(path.resolve())
    return found


def _directory(folder: Path) -> list[Path]:
    """A run's trace, or its nodes'; else every file that may be one, in natural order (rank2 before rank10)."""
    nodes = [p for p in folder.glob("node*") if read_run_file(p) is not None]
    if nodes and read_run_file(folder) is None:  # a run on several nodes
        return [file for node in sorted(nodes, key=_natural) for file in _directory(node)]
    if read_run_file(folder) is not None:
        if not (folder / TRACE_FILE).is_file():
            raise InputError(
                f"is a run directory without {TRACE_FILE}: the run did not get far enough to capture",
                "run it again",
                folder,
            )
        return [folder / TRACE_FILE]
    try:
        files = sorted((p for p in folder.iterdir() if p.is_file()), key=_natural)
    except PermissionError as error:
        raise InputError("cannot be opened (permission denied)", "check the folder", folder) from error
    if files and all(p.suffix in (".parquet", ".arrow") for p in files):
        raise InputError(
            "is an nsys parquet export, which is not read", "export with nsys export --type sqlite", folder
        )
    exports = {p.stem for p in files if p.suffix == ".sqlite"}
    chosen = [
        p
        for p in files
        if p.name.endswith((".json", ".json.gz", ".sqlite"))
        or (p.suffix == ".nsys-rep" and p.stem not in exports)
    ]
    if not chosen:
        runs = sorted(p.name for p in folder.iterdir() if read_run_file(p) is not None)
        if runs:
            some = ", ".join(runs[:3]) + (", ..." if len(runs) > 3 else "")
            raise InputError(f"holds {len(runs)} run directories ({some})", "name one of them", folder)
        raise InputError(
            "holds no trace files (.sqlite, .json, .json.gz, .nsys-rep)", "name the files themselves", folder
        )
    return chosen


def _natural(path: Path) -> list[tuple[int, str]]:
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name) if part
    ]


def _read(path: Path, classifier: Classifier) -> RawTrace:
    kind = _sniff(path)
    # Imported here, since each brings libraries that a file of the other kind does not need.
    try:
        if kind == "json":
            from . import kineto

            return kineto.read(path, classifier)
        from . import nsys

        if kind == "sqlite":
            return nsys.read(path)
        with exported(path) as export:
            try:
                trace = nsys.read(export)
            except InputError as error:  # of the export, which nobody but us knows
                raise InputError(error.what, error.remedy, path) from error
        trace.source = replace(trace.source, path=str(path))
        return trace
    except PermissionError as error:
        raise InputError(
            "cannot be opened (permission denied)", "check the file's permissions", path
        ) from error


def _sniff(path: Path) -> str:
    """What a file is, by its first bytes."""
    try:
        if stat.S_ISFIFO(path.stat().st_mode):
            raise InputError("is a pipe, which can be read only once", "give a file", path)
        with path.open("rb") as file:
            head = file.read(4096)
        if not head:
            raise InputError("is empty", "record or export it again", path)
        if head.startswith(b"SQLite format 3\0"):
            return "sqlite"
        if is_report(path, head):
            return "report"
        if head.startswith(b"\x1f\x8b"):
            with ungzipping(path), gzip.open(path) as file:
                head = file.read(4096)
    except PermissionError as error:
        raise InputError(
            "cannot be opened (permission denied)", "check the file's permissions", path
        ) from error
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", "check the file", path) from error
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        return "json"
    raise NotATraceError(
        "is neither an nsys SQLite export nor a PyTorch profiler JSON",
        "give a .sqlite from nsys export or a trace from torch.profiler",
        path,
    )
