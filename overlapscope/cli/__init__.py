"""The command line: it parses, calls, writes. One file a command; errors become one line and an exit code here.

No command's heavy imports happen before it runs: ``--help`` and ``--version`` need neither pandas nor torch.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

from .. import __version__
from ..errors import Interrupted, OverlapscopeError, RunError
from ..interrupts import raised
from .check import check
from .compare import compare
from .convert import convert
from .doctor import doctor
from .export import export
from .kernels import kernels
from .options import silence
from .predict import predict
from .report import report
from .run import run
from .scale import scale
from .timeline import timeline
from .workloads import workloads

if TYPE_CHECKING:
    from ..capture import World

__all__ = ["app", "main"]

# What the parser raises on a wrong call. typer brings its own copy of click from 0.29 on, the plain one before;
# the class it does export leads to both.
ParserError: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="overlapscope",
    help="How much communication hides under compute, what stays exposed, and why.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(f"overlapscope {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    pass


app.command("run")(run)
app.command("workloads")(workloads)
app.command("scale")(scale)
app.command("report")(report)
app.command("timeline")(timeline)
app.command("compare")(compare)
app.command("check")(check)
app.command("convert")(convert)
app.command("export")(export)
app.command("kernels")(kernels)
app.command("predict")(predict)
app.command("doctor")(doctor)


def main(arguments: list[str] | None = None) -> None:
    """Entry point. Exits 0, 1 for work that failed, 2 for a mistake of the user's, 128 + its number for a signal."""
    _ready_streams()
    with raised():
        code = _run(sys.argv[1:] if arguments is None else arguments)
    sys.exit(code)


def _ready_streams() -> None:
    """Make closed streams harmless, and characters that a terminal's encoding lacks readable escapes."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (as long as the process lives)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # Without a locale Python would write bytes of paths as they are, which no JSON holds.
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")


def _run(arguments: list[str]) -> int:
    try:
        code = app(arguments or ["--help"], prog_name="overlapscope", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except Interrupted as end:
        world = _world()  # launchers end all processes of a node, which say so once
        return end.exit_code if world is not None and not world.speaks else _say(str(end), end.exit_code)
    except OverlapscopeError as error:
        code = _say(str(error), error.exit_code)
        if isinstance(error, RunError) and error.detail:
            print(error.detail.rstrip(), file=sys.stderr)
        return code
    except BrokenPipeError:  # the reader went away (head, less)
        _let_go_of_output()
        return 0
    except OSError as error:
        if os.environ.get("OVERLAPSCOPE_DEBUG"):
            raise
        _let_go_of_output()
        return _say(f"cannot read or write ({error.strerror or error})", 1)
    except MemoryError:
        return _say("out of memory: the trace is larger than this machine holds", 1)
    except ParserError as error:
        return _wrong_call(error)
    except Exception as error:
        if os.environ.get("OVERLAPSCOPE_DEBUG"):
            raise
        return _say(
            f"a defect in overlapscope ({type(error).__name__}: {error}); "
            "please report it with the output under OVERLAPSCOPE_DEBUG=1",
            1,
        )


def _let_go_of_output() -> None:
    """Point standard output elsewhere if it takes nothing more, so that Python's own flush at the exit succeeds."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _wrong_call(error: Exception) -> int:
    """A call that the parser refused: one line, and where the options are told."""
    context = getattr(error, "ctx", None)
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    command = context.command_path if context is not None else "overlapscope"
    who = _speaker(message)
    if who is None:
        silence()
        return 2
    return _say(f"{who}{message.rstrip('.')}; see {command} --help", 2)


def _speaker(message: str) -> str | None:
    """What to write before a message; None where another process that a launcher has started here says it."""
    from ..capture import is_mine

    world = _world()
    if world is None:
        return ""
    if not is_mine(world, message):
        return None
    return "" if world.speaks else f"rank {world.rank}: "


def _world() -> World | None:
    """Among whom a launcher has started this process; None where none has, or it cannot be told."""
    from ..capture import find

    try:
        return find(os.environ)
    except OverlapscopeError:
        return None


def _say(message: str, code: int) -> int:
    from ..report.words import escape

    with suppress(OSError):  # the terminal is gone, and that may be what is to be said
        print(f"overlapscope: {escape(' '.join(message.split()))}", file=sys.stderr)
    return code
