"""``overlapscope export``: traces for other people's viewers."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from .options import (
    Align,
    Force,
    Paths,
    Ranks,
    Rules,
    StepPattern,
    Window,
    classifier,
    keep_inputs,
    progress,
)
from .output import told

__all__ = ["export"]


class Target(str, Enum):
    PERFETTO = "perfetto"


def export(
    paths: Paths,
    to: Annotated[Target, typer.Option("--to", help="For ui.perfetto.dev: Chrome trace JSON.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="The file to write, gzipped if it ends in .gz."),
    ],
    window: Window = None,
    rank: Ranks = None,
    step_pattern: StepPattern = None,
    rules: Rules = None,
    align: Align = "collectives",
    force: Force = False,
) -> None:
    """Write all ops and ranges, each rank's exposed communication on a track of its own."""
    from .. import formats
    from ..analysis.matching import check_align
    from ..formats import perfetto
    from ..report import document, tracks

    check_align(align)
    keep_inputs(output, paths, rules)
    with progress() as tell:
        trace = formats.load(
            paths, classifier=classifier(rules), progress=tell, session_clock=align != "none"
        )
        tell("measuring")
        built = document.build(trace, window=window, ranks=rank, step_pattern=step_pattern, align=align)
        tell(f"writing {output.name}")
        n = perfetto.write(built.trace, output, force=force, **tracks.of(built))
    told(output, f"{output}: {n:,} events of {len(built.trace.ranks)} ranks; open it at ui.perfetto.dev")
