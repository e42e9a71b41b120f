"""A comparison of runs on several numbers of ranks, as a page."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import plotly.graph_objects as go

from ...analysis.scaling import Account, Size
from .. import scaling_text as text
from ..grid import Grid
from ..scaling import Document
from ..words import Figure, count, duration, escape, number, percent, scale
from .blocks import Bar, Bars, Facts, Notes, Page, Part, Section, Table, Tile
from .report import chart, section

__all__ = ["of_scaling"]


def of_scaling(document: Document, figure: go.Figure) -> Page:
    """The page of a scaling report; `figure` draws it."""
    account = text.account(document, document.scaling.sizes)
    rows = account.rows[1:]  # the page rules off a table's head itself
    table = Table(Grid(account.title, account.head, rows), fixed=True)
    sections = [section("scaling", account, [chart("scaling", figure), table], "Scaling")]
    sections.append(
        Section(
            "sizes",
            "Each number of ranks",
            [_bars(document), Table(_sizes(document), frozenset({1}))],
            "mean of its steps and ranks",
            "Sizes",
        )
    )
    marked = text.groups(document)
    if marked is not None:
        sections.append(section("groups", marked, [Table(marked, frozenset({1}))], "Marked work"))
    sections.append(
        Section("captured", "What was measured", [Facts(text.setting(document))], short="Measured")
    )
    if document.warnings:
        sections.append(Section("notes", "Good to know", [Notes(document.warnings)]))
    return Page(
        title=f"{escape(document.title)} – overlapscope scaling",
        what="strong scaling",
        of=document.title,
        headline=text.headline(document.scaling),
        tiles=_tiles(document),
        sections=sections,
    )


def _tiles(document: Document) -> list[Tile]:
    last, base = document.scaling.sizes[-1], document.scaling.base.size
    tiles = [
        Tile(
            Figure(f"{last.speedup:.2f}×", last.speedup), f"as fast on {last.account.size} ranks as on {base}"
        ),
        Tile(percent(last.efficiency, 1), "efficiency"),
        Tile(duration(float(last.time)), "a step takes", f"ideal {duration(float(last.ideal))}"),
    ]
    if last.loss > 0:
        worst = max(text.WORDS, key=last.term)
        tiles.append(
            Tile(duration(float(last.loss)), "lost a step", f"most to {text.WORDS[worst]}", "exposed")
        )
    return tiles


PARTS = (
    ("busy", "compute", ("sharded", "replicated", "unmarked", "concurrency")),
    ("exposed", "exposed communication", ("exposed_comm",)),
    ("memory", "exposed memory", ("exposed_memory",)),
    ("idle", "idle", ("idle",)),
)


def _bars(document: Document) -> Bars:
    """A step on each number of ranks, in its parts, to one scale."""
    sizes = document.scaling.sizes
    longest = max(size.time for size in sizes)
    unit = scale(float(longest))
    bars = [
        Bar(
            f"tp {size.account.size}",
            [
                Part(
                    "wire" if key == "exposed" else key,
                    words,
                    float(100 * ns / longest),
                    number(float(ns), unit),
                )
                for key, words, ns in _parts(size.account)
                if ns > 0
            ],
            [number(float(size.time), unit), number(float(size.ideal), unit)],
        )
        for size in sizes
    ]
    return Bars("A step on each number of ranks", [f"a step ({unit[1]})", "ideal"], bars)


def _parts(run: Account) -> list[tuple[str, str, Fraction]]:
    return [
        (
            key,
            words,
            sum((run.each(ns) for part, ns in run.parts_ns.items() if part.term in terms), Fraction(0)),
        )
        for key, words, terms in PARTS
    ]


def _sizes(document: Document) -> Grid:
    """A line of each run."""
    sizes = document.scaling.sizes
    unit = scale(float(max(size.time for size in sizes)))
    head = [
        "ranks",
        "run",
        "steps",
        f"a step ({unit[1]})",
        "ideal",
        "loss",
        "speed-up",
        "efficiency",
        "parallel efficiency",
    ]
    rows = [
        [count(size.account.size), run.path, count(run.account.steps), *_figures(size, unit)]
        for size, run in zip(sizes, document.runs, strict=True)
    ]
    return Grid("Each number of ranks", head, rows)


def _figures(size: Size, unit: tuple[int, str]) -> Sequence[str]:
    times = (number(float(ns), unit) for ns in (size.time, size.ideal, size.loss))
    return [
        *times,
        Figure(f"{size.speedup:.2f}x", size.speedup),
        percent(size.efficiency, 1),
        "n/a" if size.pop.parallel_efficiency is None else percent(size.pop.parallel_efficiency, 1),
    ]
