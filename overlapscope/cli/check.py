"""``overlapscope check``: does a trace keep its rules? For CI."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ..errors import InputError, OptionError, OverlapscopeError
from ..sides import Reading, differences, one_side
from .compare import Side
from .options import Align, Ranks, Rules, StepPattern, Window, progress

if TYPE_CHECKING:
    from ..report.check import Outcome

__all__ = ["check"]

PERCENT = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*%\s*", re.ASCII)


class Untold(str, Enum):
    FAIL = "fail"
    PASS = "pass"


class Format(str, Enum):
    TEXT = "text"
    JSON = "json"


def _limit(option: str, help: str) -> Any:
    return typer.Option(option, metavar="N%", help=help, show_default=False)


def check(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE", show_default=False, help=f"What is checked: {Side}.")
    ],
    max_exposed: Annotated[
        Optional[str],  # noqa: UP045
        _limit(
            "--max-exposed", "Exposed communication, of the step (of the window, where there are no steps)."
        ),
    ] = None,
    min_overlap: Annotated[
        Optional[str],  # noqa: UP045
        _limit("--min-overlap", "Communication hidden under compute, of all communication."),
    ] = None,
    max_wait: Annotated[
        Optional[str],  # noqa: UP045
        _limit("--max-wait", "Exposed waiting for ranks that came late, of the step."),
    ] = None,
    max_idle: Annotated[
        Optional[str],  # noqa: UP045
        _limit("--max-idle", "Time in which nothing runs, of the step."),
    ] = None,
    baseline: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="B", show_default=False, help=f"What --max-regression compares with: {Side}."),
    ] = None,
    max_regression: Annotated[
        Optional[str],  # noqa: UP045
        _limit("--max-regression", "How much longer than the baseline's the median step may be."),
    ] = None,
    untold: Annotated[
        Untold,
        typer.Option(
            "--untold", help="What a regression beyond its limit is that the spread of the steps may explain."
        ),
    ] = Untold.FAIL,
    format: Annotated[Format, typer.Option("--format", help="How to lay the outcome out.")] = Format.TEXT,
    window: Window = None,
    rank: Ranks = None,
    step_pattern: StepPattern = None,
    rules: Rules = None,
    align: Align = "collectives",
) -> None:
    """Check a trace against rules: one line a rule, exit code 0 if all are kept and 1 if not.

    A rule that cannot be evaluated is not kept. A step longer than its limit is a regression, also where the spread of
    the steps may explain it: more steps, or several runs a side, tell; --untold pass lets it pass until then.
    """
    from ..report import check as laid

    given = {
        "max-exposed": max_exposed,
        "min-overlap": min_overlap,
        "max-wait": max_wait,
        "max-idle": max_idle,
    }
    limits = {name: _percent(text, f"--{name}", 100) for name, text in given.items() if text is not None}
    longer = None if max_regression is None else _percent(max_regression, "--max-regression")
    _complete(limits, longer, baseline)
    with progress() as tell:
        reading = Reading.by(rules, tell, align, window=window, ranks=rank, step_pattern=step_pattern)
        outcomes, notes = _evaluated(
            reading, one_side(trace), limits, longer, baseline, untold is Untold.PASS
        )
    sys.stdout.write((laid.json_text if format is Format.JSON else laid.render)(outcomes, notes))
    failed = sum(not outcome.passed for outcome in outcomes)
    if failed:
        raise OverlapscopeError(f"{failed} of {len(outcomes)} rules not kept", None, "check")


def _evaluated(
    reading: Reading,
    paths: Sequence[Path],
    limits: Mapping[str, Fraction],
    longer: Fraction | None,
    baseline: Path | None,
    untold: bool,
) -> tuple[list[Outcome], list[str]]:
    """Every rule's outcome, and what must be known to trust them."""
    from ..analysis.compare import FEW_RUNS
    from ..report import check, document
    from ..report.compare import OF_THESE_RUNS, said_of
    from ..report.likeness import unlike

    read = [(path, reading.trace(path)) for path in paths]
    reading.tell("measuring")
    reports = [document.build(trace, **reading.of_time) for _, trace in read]
    for path, report in zip(paths, reports, strict=True):
        if report.bandwidth is not None:
            what = "is a sweep over sizes of collectives, which has no step to check"
            raise InputError(what, "see what overlapscope report says of it", path)
    outcomes = check.shares(reports, limits)
    notes = [
        note if len(reports) == 1 else f"{path}: {note}"
        for path, report in zip(paths, reports, strict=True)
        for note in report.warnings
    ]
    if longer is not None and baseline is not None:
        runs = [reading.measured(path, trace) for path, trace in read]
        base = reading.runs(one_side(baseline))
        found = differences(base, runs)
        outcomes.append(check.regression(base, runs, longer, found, untold=untold))
        told = [*unlike(base, runs, found, ("the baseline", "the trace")), *said_of("the baseline", base)]
        notes = [*told, *notes]
        if min(len(base), len(runs)) < FEW_RUNS:
            notes.insert(0, OF_THESE_RUNS)
    return outcomes, list(dict.fromkeys(notes))


def _complete(limits: Mapping[str, Fraction], longer: Fraction | None, baseline: Path | None) -> None:
    """Refuse a call that checks nothing, or half a rule."""
    if not limits and longer is None and baseline is None:
        what = "has no rule to check"
        raise OptionError(what, "give one, such as --max-exposed 5% or --min-overlap 80%", "check")
    if longer is not None and baseline is None:
        raise OptionError("has nothing to compare with", "give --baseline", "--max-regression")
    if baseline is not None and longer is None:
        raise OptionError("has no limit", "give --max-regression, such as 3%", "--baseline")


def _percent(text: str, option: str, most: int | None = None) -> Fraction:
    """A share from its percentage. A bare number is refused: 0.05 might be either."""
    match = PERCENT.fullmatch(text)
    if match is None:
        bare = PERCENT.fullmatch(f"{text}%")
        remedy = "give a percentage, such as 5%"
        if bare is not None:  # 0.05 may be either; 5 hardly is
            either = f"{float(bare[1]) * 100:.9g}% or " if float(bare[1]) < 1 else ""
            remedy = f"say {either}{text.strip()}%{', whichever is meant' if either else ' if that is meant'}"
        raise OptionError(
            f"cannot read {text!r}, which has no per cent sign" if bare else f"cannot read {text!r}",
            remedy,
            option,
        )
    share = Fraction(match[1]) / 100
    if most is not None and share * 100 > most:
        raise OptionError(f"{text} is more than all of it", f"give at most {most}%", option)
    return share
