"""``overlapscope convert``: any traces to one file in the nsys schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import OptionError
from .options import Force, Paths, progress

__all__ = ["convert"]


def convert(
    paths: Paths,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The SQLite file to write.")],
    force: Force = False,
) -> None:
    """Write all ranks to one SQLite file in the nsys schema; reports from it are the same to the nanosecond."""
    from .. import formats
    from ..formats import nsys

    if output.exists() and any(path.exists() and output.samefile(path) for path in paths):
        raise OptionError("is one of the files to convert", "name another file", output)
    with progress() as tell:
        trace = formats.load(paths, progress=tell)
        tell(f"writing {output.name}")
        nsys.write(trace, output, force=force)
    typer.echo(
        f"{output}: {len(trace.ops):,} ops and {len(trace.ranges):,} ranges of {len(trace.ranks)} ranks"
    )
