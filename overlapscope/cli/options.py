"""Options that several commands share, and what stands behind them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

if TYPE_CHECKING:
    from ..classify import Classifier
    from ..formats.raw import Progress

__all__ = ["Force", "Output", "Paths", "Rules", "classifier", "progress"]

Paths = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH...",
        show_default=False,
        help="nsys SQLite export, PyTorch profiler JSON (also .gz), folder of rank files, or run directory.",
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
Force = Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")]


def classifier(rules: Path | None) -> Classifier:
    """The rules to classify by."""
    from ..classify import Classifier

    return Classifier.default() if rules is None else Classifier.with_rules(rules)


@contextmanager
def progress() -> Iterator[Progress]:
    """Tells what is being done, on stderr and only where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    from ..report.words import escape

    console = Console(stderr=True)
    with console.status("starting") as status:
        yield lambda text: status.update(escape(text).replace("[", "\\["))
