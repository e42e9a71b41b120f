"""``overlapscope report``: read traces, measure, show."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..errors import OptionError
from .options import (
    Align,
    Figures,
    Force,
    Link,
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
from .peak import peak_of

if TYPE_CHECKING:
    from ..report.document import Document

__all__ = ["report", "show"]


class By(str, Enum):
    RANGE = "range"
    STREAM = "stream"
    COLLECTIVE = "collective"
    STEP = "step"
    RANK = "rank"


def report(
    paths: Paths,
    format: Annotated[Format, typer.Option("--format", help="How to lay the report out.")] = Format.TEXT,
    output: Output = None,
    by: Annotated[
        Optional[list[By]],  # noqa: UP045 typer reads it at run time, on 3.10 too
        typer.Option("--by", help="Break down by this, with every row; JSON gets it as by_range and so on."),
    ] = None,
    window: Window = None,
    rank: Ranks = None,
    step_pattern: StepPattern = None,
    rules: Rules = None,
    align: Align = "collectives",
    figures: Figures = None,
    link: Link = None,
    force: Force = False,
) -> None:
    """Show how much communication hid under compute, rank by rank, exact to the nanosecond."""
    from .. import formats
    from ..analysis.matching import check_align
    from ..report import document

    check_align(align)
    if by is not None and len(by) > 1:
        what = f"is given as {' and '.join(one.value for one in by)}, and a report breaks down by one thing"
        raise OptionError(what, "give one", "--by")
    keep_inputs(output, paths)
    with progress() as tell:
        trace = formats.load(
            paths, classifier=classifier(rules), progress=tell, session_clock=align != "none"
        )
        tell("measuring")
        built = document.build(
            trace,
            window=window,
            ranks=rank,
            step_pattern=step_pattern,
            by=by[0].value if by else None,
            align=align,
            peak=peak_of(trace, link),
        )
        if figures is not None:
            from ..figures import of_report, save

            tell("drawing")
            save(of_report(built), figures, force=force)
    _write(built, format, output, force)


def show(path: Path) -> None:
    """Print the report of a trace or run directory as text."""
    from .. import formats
    from ..report import document

    trace = formats.load(path)
    _write(document.build(trace, peak=peak_of(trace)), Format.TEXT, None, False)


def _write(built: Document, format: Format, output: Path | None, force: bool) -> None:
    colour = output is None and sys.stdout.isatty() and format is Format.TEXT and not _no_colour()
    put(_laid_out(built, format, colour=colour), output, force=force)


def _no_colour() -> bool:
    import os

    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def _laid_out(built: Document, format: Format, *, colour: bool) -> str | bytes:
    from ..report import export, tables, text

    if format is Format.TEXT:
        return text.render(built, colour=colour)
    if format in (Format.CSV, Format.PARQUET):
        return tables.laid_out(export.table(built), format.value)
    return export.json_text(built) if format is Format.JSON else export.markdown(built)
