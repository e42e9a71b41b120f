"""``overlapscope kernels``: every distinct name, what it was taken for, and by which rule."""

from __future__ import annotations

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
from .output import Format, put

__all__ = ["kernels"]


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
    from ..report import names, tables
    from ..report.document import only

    keep_inputs(output, paths, rules)
    with progress() as tell:
        trace = formats.load(paths, classifier=classifier(rules), progress=tell)
        trace = only(trace, rank)
        table = tally(trace, windows(trace, window, step_pattern))
    written = names.text(table, full=full) if format is Format.TEXT else tables.laid_out(table, format.value)
    put(written, output, force=force)
