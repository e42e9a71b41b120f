"""``overlapscope kernels``: every distinct name, what it was taken for, and by which rule."""

from __future__ import annotations

import sys
from enum import Enum
from typing import Annotated

import typer

from .options import (
    Force,
    Output,
    Paths,
    Ranks,
    Rules,
    StepPattern,
    Window,
    classifier,
    keep_inputs,
    progress,
)

__all__ = ["kernels"]


class Format(str, Enum):
    TEXT = "text"
    JSON = "json"
    CSV = "csv"


def kernels(
    paths: Paths,
    format: Annotated[Format, typer.Option("--format", help="How to lay the list out.")] = Format.TEXT,
    full: Annotated[bool, typer.Option("--full", help="Whole names in the text, however long.")] = False,
    output: Output = None,
    window: Window = None,
    rank: Ranks = None,
    step_pattern: StepPattern = None,
    rules: Rules = None,
    force: Force = False,
) -> None:
    """List each distinct kernel name with its kind, collective, deciding rule, count and time.

    Counts and times cover what the report covers: the same window, all ranks together.
    """
    from .. import formats
    from ..analysis.names import tally
    from ..analysis.window import windows
    from ..files import write_text
    from ..report import names
    from ..report.document import only

    keep_inputs(output, paths)
    with progress() as tell:
        trace = formats.load(paths, classifier=classifier(rules), progress=tell)
        trace = only(trace, rank)
        table = tally(trace, windows(trace, window, step_pattern))
    if format is Format.TEXT:
        written = names.text(table, full=full)
    else:
        written = names.json_text(table) if format is Format.JSON else names.csv(table)
    if output is None:
        sys.stdout.write(written)
    else:
        write_text(output, written, force=force)
