"""Running and comparing from Python, as the commands ``run``, ``scale`` and ``compare`` do it.

::

    run = osc.run("block", tp=2, hidden=256, link="100MB/s,1ms")
    osc.overlap(run.trace()).ranks

Options are those of the commands, with ``_`` for ``-``, and errors name them as the commands do. Ranks are processes
of their own: nothing of a notebook reaches them, and an interrupt (Ctrl-C, or the kernel's) ends all of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import capture, run_file
from .files import write_text
from .progress import progress
from .run_file import SCALE_FILE
from .sides import Reading, differences, one_side

if TYPE_CHECKING:
    from .analysis.scaling import Scaling
    from .capture import RunDir
    from .formats.raw import Progress
    from .report import scaling
    from .report.compare import Document
    from .trace import Trace

__all__ = ["Run", "Sweep", "accounted", "compare", "run", "scale"]

Place = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Run:
    """A run that has ended; where a path is taken, it stands for its directory.

    Attributes
    ----------
    path : Path
        With ``trace.sqlite`` and ``run.json``.
    """

    path: Path

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    @property
    def manifest(self) -> Mapping[str, Any]:
        """What run.json says: what ran, where, with which versions, and how each rank ended."""
        return run_file.read(self.path) or {}

    def trace(self) -> Trace:
        """Read its trace. Raises InputError where there is none."""
        from .formats import load

        with progress() as tell:
            return load(self.path, progress=tell)


@dataclass(frozen=True, slots=True)
class Sweep:
    """The same work on several numbers of ranks.

    Attributes
    ----------
    path : Path
        With a run directory for each size and ``scale.json``.
    runs : tuple of Run
        By number of ranks, ascending.
    scaling : Scaling
        A step's time on each beside the ideal, and where the difference comes from.
    warnings : tuple of str
        All that a reader must know before trusting a figure.
    """

    path: Path
    runs: tuple[Run, ...]
    scaling: Scaling
    warnings: tuple[str, ...]

    def __fspath__(self) -> str:
        return os.fspath(self.path)


def run(
    workload: str = "block",
    *,
    tp: int = 2,
    steps: int | None = None,
    warmup: int | None = None,
    device: str = "auto",
    recorder: str = "auto",
    link: str | None = None,
    output: Place | None = None,
    force: bool = False,
    keep_json: bool = False,
    timeout: float = 300.0,
    **options: Any,
) -> Run:
    """Run a workload on `tp` ranks and record all of them, as ``overlapscope run`` does.

    Parameters
    ----------
    workload : str
        What to run: ``overlapscope workloads`` lists what there is.
    tp : int
        Ranks to split every layer over.
    steps, warmup : int, optional
        Steps to measure, and before those; by default as the workload says.
    device : {"auto", "cpu", "cuda"}
    recorder : {"auto", "torch", "nsys"}
    link : str, optional
        A link to pretend between processes on a CPU: ``"nvlink4"``, or a speed and a latency, ``"100MB/s,1ms"``.
    output : path, optional
        Its directory; by default ``runs/<workload>-tp<N>-<UTC time>``.
    force : bool
        Replace the run in `output`.
    keep_json : bool
        Keep the ranks' PyTorch profiles.
    timeout : float
        Give up when no rank has said anything for so many seconds.
    **options
        Those of the workload: ``hidden=256, sequence_parallel=True, schedule="ring"``.

    Returns
    -------
    Run

    Raises
    ------
    OptionError
        What is asked for cannot be; nothing was started.
    RunError
        A rank failed, or the run was interrupted; what was recorded is in the directory that the message names.
    """
    asked = capture.Request(
        workload=workload,
        tp=_plain(tp),
        options={name: _plain(value) for name, value in options.items()},
        steps=_plain(steps),
        warmup=_plain(warmup),
        device=device,
        recorder=recorder,
        link=link,
        output=None if output is None else Path(output),
        force=force,
        keep_json=keep_json,
        timeout=timeout,
    )
    with progress() as tell:
        return Run(capture.run(asked, tell).path)


def scale(
    workload: str = "block",
    *,
    tp: Sequence[int] = (1, 2),
    output: Place | None = None,
    force: bool = False,
    **same: Any,
) -> Sweep:
    """Run the same work on several numbers of ranks, as ``overlapscope scale`` does.

    Parameters
    ----------
    workload : str
        One that the ranks share out: block, mlp, column-linear, row-linear.
    tp : sequence of int
        Numbers of ranks; the smallest is the base.
    output : path, optional
        Its directory; a sweep that was interrupted goes on. By default ``runs/scale-<workload>-<UTC time>``.
    force : bool
        Run again what is there but was run with other options.
    **same
        All else as in :func:`run`.

    Returns
    -------
    Sweep

    Raises
    ------
    OptionError
        What is asked for cannot be, or what is there was run otherwise.
    RunError
        A rank failed, or the sweep was interrupted.
    """
    own = ("steps", "warmup", "device", "recorder", "link", "keep_json", "timeout")
    settings = {name: same.pop(name) for name in own if name in same}
    folder = capture.default_path(f"scale-{workload}") if output is None else Path(output)
    with progress() as tell:
        plain, settings = ({name: _plain(value) for name, value in some.items()} for some in (same, settings))
        asked = capture.Request(workload=workload, options=plain, **settings)
        found = capture.sweep(asked, [_plain(n) for n in tp], folder, tell, force=force)
        document = accounted(found, folder, str(folder), tell)
    runs = tuple(Run(one.path) for one in found)
    return Sweep(folder, runs, document.scaling, document.warnings)


def _plain(value: Any) -> Any:
    """Python's own number for one of NumPy's, which no JSON takes."""
    return value.item() if isinstance(value, np.generic) else value


def accounted(
    runs: Sequence[RunDir], folder: Path | None, title: str, tell: Progress, notes: Sequence[str] = ()
) -> scaling.Document:
    """Read and measure the runs of a sweep, and leave ``scale.json`` in its directory, where it has one."""
    from .formats import load
    from .report import scaling

    measured = []
    for one in runs:
        tell(f"reading {one.path.name}")
        path = str(one.path)
        if folder is not None:  # so that a sweep can be moved
            path = Path(os.path.relpath(one.path, folder)).as_posix()
        measured.append(scaling.measure(path, one.read_manifest() or {}, load(one.path)))
    document = scaling.build(title, measured, notes)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / SCALE_FILE, scaling.json_text(document), force=True)
    return document


def compare(
    a: Place,
    b: Place,
    *,
    compute_only: Place | None = None,
    window: str | None = None,
    ranks: Sequence[int] | None = None,
    step_pattern: str | None = None,
    rules: Place | None = None,
    align: str = "collectives",
) -> Document:
    """Lay two runs side by side, as ``overlapscope compare`` does.

    Parameters
    ----------
    a, b : path or Run
        The baseline, and what is compared with it: a trace, a run, a folder of several runs.
    compute_only : path or Run, optional
        A run of the un-split GEMMs alone; by default the compute time of `a` stands for it.
    window, ranks, step_pattern, align
        As in `overlapscope.timeline`.
    rules : path, optional
        Rules of your own (TOML) for what a kernel is.

    Returns
    -------
    Document
        ``table`` has a row a figure, ``comparison`` all that was found, ``warnings`` what to know before trusting it;
        printed, it is the command's report.

    Raises
    ------
    InputError
        A trace cannot be read, or the two cannot be compared.
    OptionError
        The window cannot be used, or a rank is not in a trace.
    """
    from .report import compare as laid

    sides = [one_side(Path(side)) for side in (a, b)]
    alone = one_side(Path(compute_only)) if compute_only is not None else []
    with progress() as tell:
        own = None if rules is None else Path(rules)
        reading = Reading.by(own, tell, align, window=window, ranks=ranks, step_pattern=step_pattern)
        first, second = (reading.runs(side) for side in sides)
        return laid.build(first, second, reading.runs(alone), differences(first, second))
