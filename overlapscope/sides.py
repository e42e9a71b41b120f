"""What a comparison reads: a side is one run or several of the same work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import InputError

if TYPE_CHECKING:
    from .classify import Classifier
    from .formats.raw import Progress
    from .report.compare import Run
    from .report.likeness import Difference
    from .trace import Trace

__all__ = ["Reading", "differences", "one_side"]

INSIGNIFICANT = ("steps", "warmup")
"""Of how a run was made: how much of it was recorded, which is no part of what a step is."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How traces are read and which of their time is measured: the options that all sides share."""

    classifier: Classifier
    tell: Progress
    window: str | None = None
    ranks: Sequence[int] | None = None
    step_pattern: str | None = None
    align: str = "collectives"

    @classmethod
    def by(cls, rules: Path | None, tell: Progress, align: str, **options: Any) -> Reading:
        """From options as they were given. Raises OptionError and RulesError."""
        from .analysis.matching import check_align
        from .classify import Classifier

        check_align(align)
        return cls(Classifier.of(rules), tell, align=align, **options)

    def runs(self, paths: Iterable[Path]) -> list[Run]:
        """Read and measure every run."""
        return [self.measured(path, self.trace(path)) for path in paths]

    def trace(self, path: Path) -> Trace:
        """Read one run."""
        from . import formats

        together = self.align != "none"
        return formats.load(path, classifier=self.classifier, progress=self.tell, session_clock=together)

    def measured(self, path: Path, trace: Trace) -> Run:
        """Measure one run that was read."""
        from .report import compare

        self.tell(f"measuring {path.name}")
        return compare.measure(str(path), _manifest(path), trace, **self.of_time)

    @property
    def of_time(self) -> dict[str, Any]:
        """Which time of a trace is measured, as `report` has it."""
        return {
            "window": self.window,
            "ranks": self.ranks,
            "step_pattern": self.step_pattern,
            "align": self.align,
        }


def one_side(path: Path) -> list[Path]:
    """The runs of a side: a path, paths with commas between them, or those that a folder holds.

    Raises
    ------
    InputError
        None is given, one is given twice or cannot be told to be alike, or they are not alike, as those of a sweep over
        numbers of ranks.
    """
    from .capture import differences
    from .report.likeness import other_work

    runs = [run for one in _given(path) for run in _in_folder(one)]
    for at, run in enumerate(runs):
        # One run twice would be two samples that agree to the nanosecond.
        if run.resolve() in [other.resolve() for other in runs[:at]]:
            raise InputError("is given twice", "give each run once", run)
    told = [(run, _manifest(run)) for run in runs]
    first = told[0][1]
    for run, manifest in told[1:]:
        if first is None or manifest is None:
            continue
        found = list(differences(first, manifest, INSIGNIFICANT))
        unlike = other_work([d for d in found if d[0] != "tp"])
        unlike += [
            f"{n} {one or 'none'} and {other or 'none'}"
            for n, one, other in found
            if n in ("tp", "schedule", "chunks", "link")
        ]
        if unlike:
            what = f"holds runs that are not alike ({runs[0].name} and {run.name}: {', '.join(unlike)})"
            raise InputError(what, "name one of them", path)
    return runs


def _given(path: Path) -> list[Path]:
    """A path, or those with commas between them."""
    with suppress(OSError):  # a name too long to be one, as several together may be
        if "," not in str(path) or path.exists():
            return [path]
    given = [Path(one) for one in str(path).split(",") if one]
    if not given:
        raise InputError("names no run", "give a trace, a run directory or a folder of them", path)
    return given


def _in_folder(path: Path) -> list[Path]:
    """The runs in a folder of run directories; a run on several nodes is one."""
    if not path.is_dir() or _manifest(path) is not None:
        return [path]
    runs = []
    for folder in sorted(path.iterdir()):
        if _manifest(folder) is not None:
            runs.append(folder)
        elif _is_run(folder):
            raise InputError(
                "its run.json cannot be read", "take the run out of the folder, or make it again", folder
            )
    return runs or [path]


def _is_run(path: Path) -> bool:
    """Whether a folder holds the two files of a run, in whatever state."""
    from . import run_file

    return all((path / name).is_file() for name in (run_file.RUN_FILE, run_file.TRACE_FILE))


def _manifest(path: Path) -> dict[str, Any] | None:
    """What run.json says, of a run on several nodes that of the first."""
    from . import run_file

    return run_file.read(path) or run_file.read(path / "node0")


def differences(a: Sequence[Run], b: Sequence[Run]) -> list[Difference]:
    """In what the two sides were made differently, by their run.json; nothing where one has none."""
    from . import capture

    one, other = a[0].manifest, b[0].manifest
    return [] if one is None or other is None else list(capture.differences(one, other, INSIGNIFICANT))
