"""The report in a terminal: what was captured, a headline, where the time went, and what to mistrust."""

from __future__ import annotations

import io

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..analysis.bandwidth import Bandwidth
from . import bandwidth, breakdown, findings, parts
from .document import Document
from .grid import Grid
from .opening import headline, setting
from .words import escape

__all__ = ["render"]

WIDTH = 80
"""Columns; what a terminal has at least, and what a mail or an issue shows without wrapping."""

MOST_RANKS = 16
MOST_UNKNOWN = 8
MOST_WAITED_FOR = 8
MOST_SIZES = 8
"""Rows shown; the rest is counted, and the JSON has it."""

LABEL = 11  # columns of the labels on the left

HEADED = box.Box("    \n    \n ── \n    \n    \n ── \n    \n    \n")
"""A rule under the head and between sections, nothing else."""


def render(document: Document, *, colour: bool = False) -> str:
    """The report as text of 80 columns, with ANSI colour if asked for."""
    console = Console(
        file=io.StringIO(),
        width=WIDTH,
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )
    _captured(console, document)
    console.print()
    first, *rest = headline(document)
    console.print(Text(first, style="bold"))
    for line in rest:
        console.print(Text(line))
    if document.by is not None:
        _breakdown(console, breakdown.full(document))
    elif document.bandwidth is not None:
        _sizes(console, document.bandwidth)
        _unknown(console, document)
    else:
        _ranks(console, document)
        _bounds(console, document)
        _sentences(console, document)
        _collectives(console, document)
        _waited_for(console, document)
        _by_size(console, document)
        _breakdown(console, breakdown.brief(document))
        _unknown(console, document)
        _findings(console, document)
    _warnings(console, document)
    written = console.file
    assert isinstance(written, io.StringIO)
    return _without_double_gaps(written.getvalue())


def _without_double_gaps(text: str) -> str:
    """Tables bring empty lines of their own; one between two parts is enough."""
    lines: list[str] = []
    for line in text.splitlines():
        line = line.rstrip()
        if line or (lines and lines[-1]):
            lines.append(line)
    return "\n".join(lines).rstrip() + "\n"


# -- what was captured ---------------------------------------------------------------------------------------


def _captured(console: Console, document: Document) -> None:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=LABEL, no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for label, text in setting(document):
        table.add_row(label, Text(escape(text)))
    console.print(table)


# -- tables --------------------------------------------------------------------------------------------------


def _table(console: Console, grid: Grid, most: int | None = None, *, wrap: bool = True) -> None:
    """A grid; of more rows than `most` the first ones. `wrap`: whether words may take several lines."""
    console.print()
    console.print(Text(grid.title, style="bold"))
    table = Table(box=HEADED, padding=(0, 1, 0, 0), pad_edge=False)
    for at, column in enumerate(grid.head):
        table.add_column(column, justify="right" if at else "left", no_wrap=at > 0 or not wrap)
    for row in grid.rows[:most]:
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
    for at, row in enumerate(grid.foot):
        # "share" sums up what stands above it, the mean as well as a single rank.
        if at < len(grid.foot) - 1:
            table.add_section()
        table.add_row(*map(Text, row))
    console.print(table)


def _sizes(console: Console, found: Bandwidth) -> None:
    for title, head, rows in bandwidth.tables(found):
        console.print()
        console.print(Text(title, style="bold"))
        console.print()
        console.print(Text(bandwidth.laid_out(head, rows, WIDTH), no_wrap=True, overflow="ignore"))


def _more(console: Console, grid: Grid, most: int, words: str) -> None:
    if len(grid.rows) > most:
        console.print(Text(f"{len(grid.rows) - most} more{words}", style="dim"))


def _ranks(console: Console, document: Document) -> None:
    grid = parts.ranks(document)
    _table(console, grid, MOST_RANKS)
    _more(console, grid, MOST_RANKS, " ranks: --format csv lists all")
    console.print()
    console.print(Text(parts.kinds(document)))


def _bounds(console: Console, document: Document) -> None:
    """What could be gained at most, all else as recorded; nothing where nothing is exposed."""
    bounds = parts.bounds(document)
    if not bounds:
        return
    console.print()
    console.print(Text(parts.BOUNDS, style="bold"))
    for ideal, gain in bounds:
        console.print(Text(f"  {ideal:<40}{gain}"))


def _sentences(console: Console, document: Document) -> None:
    said = breakdown.sentences(document)
    if said:
        console.print()
    for sentence in said:
        console.print(Text(sentence))


def _collectives(console: Console, document: Document) -> None:
    grid = parts.collectives(document)
    if grid is not None:
        _table(console, grid)


def _waited_for(console: Console, document: Document) -> None:
    """By whom the others were kept waiting; nothing where nobody was."""
    grid = parts.waited_for(document)
    if grid is None:
        return
    _table(console, grid, MOST_WAITED_FOR)
    _more(console, grid, MOST_WAITED_FOR, " ranks: the JSON lists all")


def _by_size(console: Console, document: Document) -> None:
    """What the collectives take, size by size; nothing where no bytes are known."""
    shown = bandwidth.by_size(document.rates)
    if shown is None:
        return
    grid = Grid(*shown)
    _table(console, grid, MOST_SIZES)
    _more(console, grid, MOST_SIZES, " sizes, of less time: the JSON lists all")
    for line in bandwidth.slow(document.rates):
        console.print(Text(line))


def _breakdown(console: Console, shown: Grid | None) -> None:
    if shown is None:
        return
    _table(console, shown, wrap=False)
    if shown.note is not None:
        console.print(Text(shown.note, style="dim"))


def _unknown(console: Console, document: Document) -> None:
    grid = parts.unknown(document)
    if grid is None:
        return
    _table(console, grid, MOST_UNKNOWN)
    _more(console, grid, MOST_UNKNOWN, ": overlapscope kernels lists all")


def _findings(console: Console, document: Document) -> None:
    """What costs time, worst first: cost and title, what shows it, what to try."""
    console.print()
    said = findings.told(document)
    if isinstance(said, str):
        console.print(Text(said))
        return
    console.print(Text("Findings, worst first; they share time, so costs do not add up", style="bold"))
    table = Table.grid(padding=(0, 1))
    for place, finding in enumerate(said, 1):
        table.add_row("", "")
        table.add_row(f"{place}.", Text(f"{finding.cost}: {finding.title}", style="bold", overflow="fold"))
        table.add_row("", Text(finding.evidence, overflow="fold"))
        table.add_row("", Text(f"Try: {finding.advice}.", overflow="fold"))
    console.print(table)


def _warnings(console: Console, document: Document) -> None:
    if not document.warnings:
        return
    console.print()
    console.print(Text("Good to know", style="bold yellow"))
    table = Table.grid(padding=(0, 1))
    for warning in document.warnings:
        table.add_row("-", Text(escape(warning), overflow="fold"))
    console.print(table)
