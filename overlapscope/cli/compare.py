"""``overlapscope compare``: two runs, or several of each, side by side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..sides import one_side
from . import pages
from .options import Align, Force, Html, Output, Ranks, Rules, StepPattern, Window, keep_inputs
from .output import Format, put

if TYPE_CHECKING:
    from ..report.compare import Document

__all__ = ["Side", "compare"]

Side = "a trace, a run directory, a folder of several runs, or several with commas between them"


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", show_default=False, help=f"The baseline: {Side}.")],
    b: Annotated[Path, typer.Argument(metavar="B", show_default=False, help="What is compared with it.")],
    compute_only: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="RUN", help="A run of the un-split GEMMs alone, for ECT. Default: the compute time of A."
        ),
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="How to lay the comparison out.")] = Format.TEXT,
    output: Output = None,
    window: Window = None,
    rank: Ranks = None,
    step_pattern: StepPattern = None,
    rules: Rules = None,
    align: Align = "collectives",
    html: Html = None,
    force: Force = False,
) -> None:
    """Compare two runs, figure by figure: what changed, and what of it the spread of their steps does not explain."""
    from .. import runs
    from ..files import check
    from ..report import compare as laid
    from ..report import compare_text

    given = [a, b] if compute_only is None else [a, b, compute_only]
    read = [path for side in given for path in one_side(side)]
    for written in (output, html):
        keep_inputs(written, read, rules)
    if output is not None:
        check(output, force=force)
    pages.check(html, force=force, output=output)
    document = runs.compare(
        a,
        b,
        compute_only=compute_only,
        window=window,
        ranks=rank,
        step_pattern=step_pattern,
        rules=rules,
        align=align,
    )
    if html is not None:
        pages.write(pages.comparison(document), html, force=force)
    layouts: dict[Format, Callable[[Document], str | bytes]] = {
        Format.TEXT: compare_text.render,
        Format.JSON: laid.json_text,
        Format.CSV: laid.csv,
        Format.MD: compare_text.markdown,
        Format.PARQUET: laid.parquet,
    }
    put(layouts[format](document), output, force=force)
