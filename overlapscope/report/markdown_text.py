"""A report in Markdown, for a pull request: what the terminal shows, in tables that a browser lays out."""

from __future__ import annotations

from . import bandwidth, breakdown, findings, parts
from .document import Document
from .grid import Grid
from .markdown import inline, table
from .opening import headline, setting

__all__ = ["render"]

MOST_ROWS = 32
"""Of a table: a comment with more is folded away by GitHub, and CSV and JSON have them all."""


def render(document: Document) -> str:
    """The report, or what it is broken down by with every row."""
    captured = [f"- {label}: {inline(words)}" for label, words in setting(document)]
    warnings = [f"- {inline(words)}" for words in document.warnings]
    if document.by is not None:
        shown = breakdown.full(document)
        lines = [f"**{inline(shown.title)}**", "", *captured, *_rows(shown, None), ""]
        return "\n".join([*lines, *warnings]).rstrip() + "\n"
    first, *others = headline(document)
    lines = [f"**{inline(first)}**", *map(inline, others), "", *captured]
    lines += _sizes(document) if document.bandwidth is not None else _where_time_went(document)
    lines += ["", "Good to know:", "", *warnings] if warnings else []
    return "\n".join(lines) + "\n"


def _where_time_went(document: Document) -> list[str]:
    lines = [*_grid(parts.ranks(document)), "", inline(parts.kinds(document))]
    if gains := parts.bounds(document):
        lines += ["", f"{parts.BOUNDS}", "", *(f"- {inline(ideal)}: {gain}" for ideal, gain in gains)]
    lines += _paragraph(breakdown.sentences(document))
    by_size = bandwidth.by_size(document.rates)
    lines += _grid(parts.collectives(document)) + _grid(parts.waited_for(document))
    lines += _grid(None if by_size is None else Grid(*by_size))
    lines += _paragraph(bandwidth.slow(document.rates))
    return lines + _grid(breakdown.brief(document)) + _grid(parts.unknown(document)) + _findings(document)


def _sizes(document: Document) -> list[str]:
    assert document.bandwidth is not None
    return [line for one in bandwidth.tables(document.bandwidth) for line in _grid(Grid(*one), None)]


def _grid(grid: Grid | None, most: int | None = MOST_ROWS) -> list[str]:
    return [] if grid is None else ["", f"{inline(grid.title)}:", *_rows(grid, most)]


def _rows(grid: Grid, most: int | None) -> list[str]:
    """The table, at most so many rows of it, and its note."""
    # Spaces at the start of a cell are lost in HTML; these are not.
    cells = [
        [inline(c).replace("  ", "&nbsp;&nbsp;") for c in row] for row in (*grid.rows[:most], *grid.foot)
    ]
    left = 0 if most is None else max(len(grid.rows) - most, 0)
    notes = [
        *([f"{left} more rows: --format csv, json"] if left else []),
        *([grid.note] if grid.note else []),
    ]
    return ["", *table([head.replace("\n", " ") for head in grid.head], cells), *_paragraph(notes)]


def _paragraph(sentences: list[str]) -> list[str]:
    return ["", *map(inline, sentences)] if sentences else []


def _findings(document: Document) -> list[str]:
    said = findings.told(document)
    if isinstance(said, str):
        return ["", said]
    return ["", "Findings, worst first:", ""] + [
        f"{number}. **{inline(f'{f.cost}: {f.title}')}**. {inline(f.evidence)} Try: {inline(f.advice)}."
        for number, f in enumerate(said, 1)
    ]
