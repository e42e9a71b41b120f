"""``overlapscope timeline``: one page for a browser, with every op of every rank."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from .options import Align, Force, Paths, Ranks, Rules, StepPattern, Window, classifier, keep_inputs, progress
from .output import told

__all__ = ["timeline"]


def timeline(
    paths: Paths,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Write the page here.")
    ] = Path("timeline.html"),
    window: Window = None,
    rank: Ranks = None,
    max_lanes: Annotated[
        Optional[int],  # noqa: UP045 typer reads it at run time, on 3.10 too
        typer.Option(
            min=1, metavar="N", help="Draw at most so many lanes, each rank's busiest. Default: 400."
        ),
    ] = None,
    step_pattern: StepPattern = None,
    rules: Rules = None,
    align: Align = "collectives",
    force: Force = False,
) -> None:
    """Write a page with the timeline of all ranks, where exposed communication stands out."""
    from .. import formats
    from ..files import replacing
    from ..report import timeline as drawn

    keep_inputs(output, paths, rules)
    with progress() as tell, replacing(output, force=force) as beside:
        trace = formats.load(
            paths, classifier=classifier(rules), progress=tell, session_clock=align != "none"
        )
        tell("measuring")
        made = drawn.timeline(
            trace,
            window,
            ranks=rank,
            step_pattern=step_pattern,
            align=align,
            max_lanes=max_lanes or drawn.MOST_LANES,
        )
        tell("writing")
        beside.write_text(made.html(), encoding="utf-8")
    told(output, str(output))
