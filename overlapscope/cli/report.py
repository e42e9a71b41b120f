"""``overlapscope report``: read traces, measure, show."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..errors import OptionError
from . import pages
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
from .output import ReportFormat, put, refuse_terminal
from .peak import peak_of

if TYPE_CHECKING:
    from ..report.document import Document

__all__ = ["report", "show"]


class Table(str, Enum):
    """As `overlapscope.report.export.TABLES` has them; it is not asked, since that takes pandas."""

    RANKS = "ranks"
    COLLECTIVES = "collectives"
    INSTANCES = "instances"
    STRAGGLERS = "stragglers"
    BOUNDS = "bounds"
    BANDWIDTH = "bandwidth"
    GROUPS = "groups"
    CONTENTION = "contention"
    RANGES = "ranges"
    STREAMS = "streams"
    STEPS = "steps"
    NAMES = "names"
    FINDINGS = "findings"


class By(str, Enum):
    RANGE = "range"
    STREAM = "stream"
    COLLECTIVE = "collective"
    STEP = "step"
    RANK = "rank"


def report(
    paths: Paths,
    format: Annotated[
        ReportFormat, typer.Option("--format", help="How to lay the report out.")
    ] = ReportFormat.TEXT,
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
    table: Annotated[
        Optional[Table],  # noqa: UP045
        typer.Option(
            "--table",
            metavar="NAME",
            help="One table alone, with every row, for CSV, JSON, Markdown and Parquet: "
            + ", ".join(table.value for table in Table)
            + ".",
        ),
    ] = None,
    figures: Figures = None,
    link: Link = None,
    timeline: Annotated[
        bool, typer.Option("--timeline/--no-timeline", help="Whether the timeline is in the HTML page.")
    ] = True,
    force: Force = False,
) -> None:
    """Show how much communication hid under compute, rank by rank, exact to the nanosecond."""
    from .. import formats
    from ..analysis.matching import check_align
    from ..files import check
    from ..report import document
    from ..report.export import TABLES
    from ..report.tables import FORMATS, laid_out

    check_align(align)
    if by is not None and len(by) > 1:
        what = f"is given as {' and '.join(one.value for one in by)}, and a report breaks down by one thing"
        raise OptionError(what, "give one", "--by")
    keep_inputs(output, paths, rules)
    if table is not None and by is not None:
        raise OptionError("is given beside --by, and both name a table", "give one", "--table")
    if table is not None and format.value not in FORMATS:
        raise OptionError("is for programs", "give --format csv, json, md or parquet, too", "--table")
    refuse_terminal(format.value, output)
    if output is not None:
        check(output, force=force)
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
        if format is ReportFormat.HTML:
            tell("writing")
            pages.write(pages.report(built, timeline=timeline), output, force=force)
            return
        if table is not None:
            put(laid_out(TABLES[table.value](built), format.value), output, force=force)
            return
    show(built, format, output, force=force)


def show(
    built: Document,
    format: ReportFormat = ReportFormat.TEXT,
    output: Path | None = None,
    *,
    force: bool = False,
) -> None:
    """Lay a report out in any way but as a page, and write or print it."""
    colour = output is None and sys.stdout.isatty() and format is ReportFormat.TEXT and not _no_colour()
    put(_laid_out(built, format, colour=colour), output, force=force)


def _no_colour() -> bool:
    import os

    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def _laid_out(built: Document, format: ReportFormat, *, colour: bool) -> str | bytes:
    from ..report import export, markdown_text, tables, text

    if format is ReportFormat.TEXT:
        return text.render(built, colour=colour)
    if format in (ReportFormat.CSV, ReportFormat.PARQUET):
        return tables.laid_out(export.table(built), format.value)
    return export.json_text(built) if format is ReportFormat.JSON else markdown_text.render(built)
