"""Options that several commands share, and what stands behind them."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ..progress import progress

if TYPE_CHECKING:
    from ..capture import World
    from ..classify import Classifier

__all__ = [
    "Align",
    "Figures",
    "Force",
    "Html",
    "Link",
    "Output",
    "Paths",
    "Ranks",
    "Rules",
    "StepPattern",
    "Window",
    "borrowing",
    "classifier",
    "keep_inputs",
    "one_voice",
    "parameters",
    "progress",
    "silence",
]

Paths = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH...",
        show_default=False,
        help="nsys export (.sqlite, .nsys-rep), PyTorch profiler JSON (.gz too), folder of rank files, run directory.",
    ),
]
# typer reads Optional at run time, on 3.10 too.
Rules = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--rules", metavar="FILE", help="Rules of your own (TOML), tried before the built-in ones."),
]
Output = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--output", "-o", metavar="FILE", help="Write here instead of to the terminal."),
]
Window = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="whole|steps|START:END",
        help="What to analyse; START:END takes units (1.5ms:20ms). Default: steps if there are any, else whole.",
    ),
]
Ranks = Annotated[
    Optional[list[int]],  # noqa: UP045
    typer.Option("--rank", metavar="N", help="Only this rank; may be repeated."),
]
StepPattern = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="REGEX",
        help="Names of your step ranges. Default: ProfilerStep#N, step N, iteration N, and the role step.",
    ),
]
Align = Annotated[
    str,
    typer.Option(
        "--align",
        metavar="HOW",
        help="Clocks of several files: collectives (their ends, after the wall clock), session (the wall clock "
        "alone) or none.",
    ),
]
Figures = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--figures",
        metavar="DIR",
        help="Also draw figures there, as PNG, SVG and PDF (needs kaleido and Chromium).",
    ),
]
Link = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--link",
        metavar="NAME|SPEED",
        help="The link between the ranks, to set rates beside: nvlink4, pcie5, 450GB/s. Default: of the GPUs' names.",
    ),
]
Html = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--html",
        metavar="FILE",
        help="Also write it as a page for a browser, one file that needs no network.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")]


Command = Callable[..., Any]

SILENCE_S = 1.0  # once one process fails launchers end all others, the one that speaks too


def borrowing(source: Command, *, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Give a command another function's options, by keyword, where it says ``**options``.

    typer reads a command's signature; this is the only place where one is made rather than written.
    """

    def lend(command: Command) -> Command:
        own = [p for p in parameters(command) if p.kind is not p.VAR_KEYWORD]
        lent = [p for p in parameters(source) if p.name not in without]
        keywords = [p.replace(kind=p.KEYWORD_ONLY) for p in own + lent]
        command.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in keywords}
        return command

    return lend


def parameters(function: Command) -> list[inspect.Parameter]:
    """A command's parameters, with annotations evaluated.

    Not that of the result: what it names is imported when the command runs.
    """
    places = function.__globals__
    return [
        p.replace(annotation=eval(p.annotation, places))
        for p in inspect.signature(function).parameters.values()
    ]


def classifier(rules: Path | None) -> Classifier:
    """The rules to classify by."""
    from ..classify import Classifier

    return Classifier.of(rules)


def keep_inputs(output: Path | None, paths: Iterable[Path], rules: Path | None = None) -> None:
    """Refuse to write over what is read, a run directory's files among it, and each node's. Raises OptionError."""
    from ..errors import OptionError

    try:
        if output is None or not output.is_file():
            return
    except OSError:  # a name too long for any file, which is told where it is written to
        return
    read = [
        p
        for path in paths
        for p in ([path, *path.glob("*"), *path.glob("node*/*")] if path.is_dir() else [path])
    ]
    read += [] if rules is None else [rules]
    if any(path.exists() and output.samefile(path) for path in read):
        raise OptionError("is one of the files to read", "name another file", output)


def silence() -> None:
    """What a process that says nothing does: wait until the one that speaks has spoken, or the launcher ends all."""
    from ..errors import Interrupted

    with suppress(Interrupted):
        time.sleep(SILENCE_S)


@contextmanager
def one_voice(world: World) -> Iterator[None]:
    """What goes wrong for several processes of a node is said by one of them; the exit code is that of all."""
    from ..capture import is_mine
    from ..errors import OverlapscopeError

    try:
        yield
    except OverlapscopeError as error:
        if error.told_elsewhere or not is_mine(world, str(error)):
            silence()
            raise typer.Exit(error.exit_code) from None
        if not (world.speaks or (error.about or "").startswith("rank ")):
            error.owned_by(f"rank {world.rank}")
        raise
