"""``overlapscope scale``: the same work on several numbers of ranks; how fast, and what is lost where."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ..errors import InputError, OptionError
from . import pages
from .options import Figures, Html, borrowing, keep_inputs, one_voice, progress
from .output import Format, put
from .run import request

if TYPE_CHECKING:
    from ..capture import RunDir, World
    from ..report.scaling import Document

__all__ = ["scale"]


@borrowing(request, without={"tp", "output", "force"})
def scale(
    paths: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Argument(
            metavar="DIR...",
            show_default=False,
            help="Run nothing: compare these runs, or those of an earlier sweep.",
        ),
    ] = None,
    tp: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="N,N,...", help="Numbers of ranks; the smallest is the base: 1,2,4,8."),
    ] = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Sweep directory; one that was interrupted goes on. Default: runs/scale-<workload>-<UTC time>.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Run again what is there but was run with other options.")
    ] = False,
    format: Annotated[
        Format,
        typer.Option("--format", help="How to lay out what is shown; scale.json is written in any case."),
    ] = Format.TEXT,
    figures: Figures = None,
    html: Html = None,
    **options: Any,
) -> None:
    """Run the same work on several numbers of ranks and show speed-up, efficiency and where the loss comes from.

    The sweep directory gets a run directory for each size (tp1, tp2, ...) and scale.json.
    """
    from .. import capture, runs

    if paths:
        # What is run cannot be forced, and a page can be replaced.
        _only_runs(tp, force and html is None, options)
        folder, title = output or (paths[0] if len(paths) == 1 else None), ", ".join(map(str, paths))
        given = capture.found(paths)
        keep_inputs(html, [*paths, *(run.path for run in given)])
        pages.check(html, force=force, made=folder)
        found, notes = _complete(given)
    else:
        world = capture.find(os.environ)
        if world is not None:
            _refuse(world)
        sizes = _sizes(tp)
        folder = output or capture.default_path(f"scale-{options['workload']}")
        pages.check(html, force=force, made=folder)
        with progress() as tell:
            found = capture.sweep(request(tp=sizes[0], **options), sizes, folder, tell, force=force)
        title, notes = str(folder), []
    with progress() as tell:
        document = runs.accounted(found, folder, title, tell, notes)
    if figures is not None:
        from ..figures import save
        from ..figures import scaling as draw

        save({"scaling": draw(document.scaling)}, figures, force=True)
    if html is not None:
        pages.write(pages.scaling(document), html, force=force)
    put(_laid_out(document, format))


def _laid_out(document: Document, format: Format) -> str | bytes:
    from ..report import scaling, scaling_table, scaling_text, tables

    if format is Format.TEXT:
        return scaling_text.render(document)
    if format is Format.JSON:
        return scaling.json_text(document)
    return tables.laid_out(scaling_table.table(document), format.value)


def _refuse(world: World) -> None:
    """Each of the processes would run the whole sweep."""
    with one_voice(world):
        what = f"starts its ranks itself, and {world.launcher} started {world.size} processes that call it"
        raise OptionError(what, "call it once; or overlapscope run for each size, then scale DIR...", "scale")


LONG = 4000  # digits of what Python does not read as a number any more, about


def _sizes(tp: str | None) -> list[int]:
    if tp is None:
        raise OptionError("is missing", "give the numbers of ranks, such as --tp 1,2,4,8", "--tp")
    words = [word.strip() for word in tp.split(",")]
    if not all(word.isascii() and word.isdecimal() and len(word) < LONG and int(word) for word in words):
        raise OptionError(f"cannot read {tp!r}", "give numbers of ranks, such as 1,2,4,8", "--tp")
    return [int(word) for word in words]


def _only_runs(tp: str | None, force: bool, options: Mapping[str, Any]) -> None:
    """Refuse options of a run where nothing is run: they would be ignored."""
    usual = {name: p.default for name, p in inspect.signature(request).parameters.items()}
    given = [name for name, value in options.items() if value != usual[name]]
    given = ["tp"] * (tp is not None) + ["force"] * force + given
    if given:
        what = "says how to run, and directories of earlier runs are given"
        raise OptionError(what, "leave out the one or the others", f"--{given[0].replace('_', '-')}")


def _complete(runs: Sequence[RunDir]) -> tuple[list[RunDir], list[str]]:
    """The runs that have ended well, checked to be of the same work, and a note of the others."""
    from ..capture import difference
    from ..capture.plan import workloads

    told = [(run, run.read_manifest() or {}) for run in runs]
    whole = [(run, manifest) for run, manifest in told if manifest["complete"]]
    for run, manifest in whole:
        entry = workloads().get(manifest["workload"])
        if entry is not None and not entry.config.SPLIT:
            what = f"is of {entry.name}, which is no work that the ranks share out"
            raise InputError(what, "compare what overlapscope report says of each", run.path)
    for run, manifest in whole[1:]:
        differs = difference(whole[0][1], manifest, ignore={"tp", "threads_per_rank", "gpus"})
        if differs is not None:
            name, one, other = differs
            what = f"was run with {name} {other}, and {whole[0][0].path} with {one}"
            raise InputError(what, "compare runs of the same work", run.path)
    notes = [f"{run.path.name} did not finish and is left out" for run, m in told if not m["complete"]]
    return [run for run, _ in whole], notes
