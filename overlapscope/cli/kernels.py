"""``overlapscope kernels``: every distinct name, what it was taken for, and by which rule."""

from __future__ import annotations

import sys
from enum import Enum
from typing import Annotated

import typer

from .options import Force, Output, Paths, Rules, classifier, progress

__all__ = ["kernels"]


class Format(str, Enum):
    TEXT = "text"
    JSON = "json"
    CSV = "csv"


def kernels(
    paths: Paths,
    format: Annotated[Format, typer.Option("--format", help="How to lay the list out.")] = Format.TEXT,
    output: Output = None,
    rules: Rules = None,
    force: Force = False,
) -> None:
    """List each distinct kernel name with its kind, collective, deciding rule, count and time."""
    from .. import formats
    from ..analysis.names import tally
    from ..files import write_text
    from ..report import names

    with progress() as tell:
        trace = formats.load(paths, classifier=classifier(rules), progress=tell)
        table = tally(trace)
    layout = {Format.TEXT: names.text, Format.JSON: names.json_text, Format.CSV: names.csv}[format]
    written = layout(table)
    if output is None:
        sys.stdout.write(written)
    else:
        write_text(output, written, force=force)
