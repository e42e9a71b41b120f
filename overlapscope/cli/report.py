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
from .peak import peak_of

if TYPE_CHECKING:
    from ..report.document import Document

__all__ = ["Format", "report", "show"]


class By(str, Enum):
    RANGE = "range"
    STREAM = "stream"
    COLLECTIVE = "collective"
    STEP = "step"
    RANK = "rank"


class Format(str, Enum):
    TEXT = "text"
    JSON = "json"
    CSV = "csv"
    MD = "md"


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
    link: Link = None,
    force: Force = False,
) -> None:
    """Show how much communication hid under compute, rank by rank, exact to the nanosecond."""
    from .. import formats
    from ..analysis.matching import ALIGN
    from ..report import document

    if align not in ALIGN:
        raise OptionError(f"{align!r} is not known", f"choose from {', '.join(ALIGN)}", "--align")
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
    _write(built, format, output, force)


def show(path: Path) -> None:
    """Print the report of a trace or run directory as text."""
    from .. import formats
    from ..report import document

    trace = formats.load(path)
    _write(document.build(trace, peak=peak_of(trace)), Format.TEXT, None, False)


def _write(built: Document, format: Format, output: Path | None, force: bool) -> None:
    from ..files import write_text

    if output is not None:
        write_text(output, _laid_out(built, format, colour=False), force=force)
        return
    colour = sys.stdout.isatty() and format is Format.TEXT and not _no_colour()
    sys.stdout.write(_laid_out(built, format, colour=colour))


def _no_colour() -> bool:
    import os

    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def _laid_out(built: Document, format: Format, *, colour: bool) -> str:
    if format is not Format.TEXT:
        from ..report import export

        layout = {Format.JSON: export.json_text, Format.CSV: export.csv, Format.MD: export.markdown}[format]
        return layout(built)
    from ..report import text

    return text.render(built, colour=colour)
