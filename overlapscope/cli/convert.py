"""``overlapscope convert``: any traces to one file in the nsys schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Force, Paths, keep_inputs, progress

__all__ = ["convert"]


def convert(
    paths: Paths,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The SQLite file to write.")],
    force: Force = False,
) -> None:
    """Write all ranks to one SQLite file in the nsys schema; reports from it are the same to the nanosecond."""
    from .. import formats
    from ..formats import nsys

    keep_inputs(output, paths)
    with progress() as tell:
        trace = formats.load(paths, progress=tell)
        tell(f"writing {output.name}")
        nsys.write(trace, output, force=force)
    typer.echo(
        f"{output}: {len(trace.ops):,} ops and {len(trace.ranges):,} ranges of {len(trace.ranks)} ranks"
    )
