"""The report of a trace as a page: what is exposed, who is late, what to do; then every figure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import plotly.graph_objects as go

from .. import bandwidth, breakdown, findings, parts
from ..document import Document
from ..export import records
from ..grid import Grid
from ..opening import headline, setting
from ..timeline import MOST_LANES, page
from ..timeline.payload import payload
from ..words import Figure, count, duration, escape, number, percent, shortened
from . import bars
from .blocks import Block, Chart, Facts, Findings, Fold, Notes, Page, Section, Table, Text, Timeline, split
from .tiles import tiles
from .tree import places, tree

__all__ = ["chart", "of_report", "section"]

MOST_ROWS = 2000
"""Rows of a table; the rest is in the JSON, and the table says so."""

SHORT = 12  # rows that are shown without being asked for


def of_report(
    document: Document,
    figures: Sequence[go.Figure] = (),
    *,
    extra: Sequence[Grid] = (),
    timeline: bool = True,
) -> Page:
    """The page of a report.

    Parameters
    ----------
    document : Document
    figures : sequence of plotly.graph_objects.Figure
        Of what the sizes of collectives take.
    extra : sequence of Grid
        Tables of a run that are not in its trace.
    timeline : bool
        Whether the timeline is in it.
    """
    some = (
        _of_a_sweep(document, figures) if document.bandwidth is not None else _of_a_program(document, figures)
    )
    sections = [one for one in some if one.blocks]
    sections += [section(f"extra-{at}", grid, [Table(grid)]) for at, grid in enumerate(extra)]
    sections += _closing(document)
    if timeline and document.overlap.ranks["window_ns"].any():
        drawn = Timeline(payload(document, most_lanes=MOST_LANES))
        sections.append(Section("timeline-of-ranks", "Timeline", [drawn]))
    return Page(
        title=page.title(document.provenance, "report"),
        what="report",
        of=dict(setting(document))["trace"],
        headline=headline(document),
        tiles=tiles(document),
        sections=sections,
    )


def _of_a_program(document: Document, figures: Sequence[go.Figure]) -> Iterator[Section]:
    yield _findings(document)
    yield _ranks(document)
    yield _bounds(document)
    yield _communication(document)
    yield from _grid("stragglers", parts.waited_for(document), short="Who was late")
    yield _bandwidth(document, figures)
    yield _contention(document)
    yield _steps(document)
    found = tree(document, unfolded=document.by == "range")
    if found is not None:
        title, unit = split(found.title)
        yield Section("program", title, [found], unit, short="Program")
    streams = _cut(breakdown.listed(document, "stream"))
    yield section(
        "streams", streams, [_folded("Every stream", streams, document.by == "stream")], short="Streams"
    )


def _of_a_sweep(document: Document, figures: Sequence[go.Figure]) -> Iterator[Section]:
    assert document.bandwidth is not None
    charts: list[Block] = [chart("sizes", figure) for figure in figures]
    for at, (title, head, rows) in enumerate(bandwidth.tables(document.bandwidth)):
        grid = Grid(title, head, rows)
        words = frozenset({head.index("type"), head.index("redop")})
        yield Section(f"sizes-{at}", title, [*charts, Table(grid, words)], short="Sizes")
        charts = []
    if document.by is not None:
        asked = breakdown.full(document)
        yield section("by", asked, [Table(_cut(asked), fixed=True)])


def _closing(document: Document) -> list[Section]:
    """What is under every report: names, what was captured, what to mistrust."""
    some = list(_grid("unknown", parts.unknown(document), short="Unknown names"))
    names = _names(document)
    some.append(
        section(
            "names",
            names,
            [_folded("Every name", names, False, words_at=frozenset({1, 2, 3}))],
            short="Names",
        )
    )
    some.append(Section("captured", "What was captured", [Facts(setting(document))], short="Captured"))
    if document.warnings:
        some.append(Section("notes", "Good to know", [Notes(document.warnings)], short="Notes"))
    return some


# -- sections ------------------------------------------------------------------------------------------------


def _findings(document: Document) -> Section:
    said = findings.told(document)
    if isinstance(said, str):
        return Section("findings", "Findings", [Text([said])])
    return Section(
        "findings",
        "Findings",
        [Findings(said, places(document, [finding.range for finding in said]))],
        "worst first; they share time, so costs do not add up",
    )


def _ranks(document: Document) -> Section:
    grid = parts.ranks(document)
    table: Block = Table(grid)
    if len(grid.rows) > SHORT:
        table = Fold("Figures of every rank", [table], document.by == "rank")
    said = ["window = compute + exposed communication + exposed memory + idle, to the nanosecond."]
    n = len(grid.rows)
    if n > bars.MOST_RANKS:
        said.append(f"Bars of the {bars.MOST_RANKS} ranks of {n} that expose most; the table has all.")
    blocks = [bars.ranks(document), Text(said), table, Text([parts.kinds(document)])]
    return section("ranks", grid, blocks, "Ranks")


def _bounds(document: Document) -> Section:
    bounds = parts.bounds(document)
    facts = Facts([(f"if {ideal}", gain) for ideal, gain in bounds])
    return Section("bounds", parts.BOUNDS.removesuffix(", if"), [facts] if bounds else [], short="Bounds")


def _communication(document: Document) -> Section:
    grid, drawn = parts.collectives(document), bars.collectives(document)
    if grid is None or drawn is None:
        return Section("communication", "Communication", [])
    by_rank = breakdown.listed(document, "collective")
    return section(
        "communication",
        grid,
        [
            drawn,
            Table(grid),
            _folded("By rank", by_rank, document.by == "collective", words_at=frozenset({1})),
        ],
    )


def _bandwidth(document: Document, figures: Sequence[go.Figure]) -> Section:
    shown = bandwidth.by_size(document.rates)
    if shown is None:
        return Section("bandwidth", "Bandwidth", [])
    grid = _cut(Grid(*shown))
    several = len(grid.rows) > 1  # one point is no line
    charts = [chart("sizes", figure) for figure in figures] if several else []
    return section("bandwidth", grid, [*charts, Table(grid), Text(bandwidth.slow(document.rates))])


def _contention(document: Document) -> Section:
    said = breakdown.contention(document)
    rows = [
        [
            shortened(escape(row["name"]), parts.MOST_OF_A_NAME),
            Figure(str(row["rank"]), row["rank"]),
            count(row["n_overlapped"]),
            count(row["n_alone"]),
            *(duration(row[f"{what}_ns"]) for what in ("overlapped", "alone")),
            percent(row["slowdown"], 1),
        ]
        for row in records(document.contention.kernels)
    ]
    head = ["kernel", "rank", "under it", "beside it", "median under", "median beside", "slower by"]
    grid = _cut(Grid("Kernels that run both under communication and beside it", head, rows))
    folded = [_folded("Kernel by kernel", grid, False)] if rows else []
    return Section(
        "contention", "What overlap costs", [Text(said), *folded] if said else [], short="Contention"
    )


def _steps(document: Document) -> Section:
    if not len(document.steps.spread):
        return Section("steps", "Steps", [])
    grid = _cut(breakdown.listed(document, "step"))
    drawn = bars.steps(document)
    every = _folded("Every step of every rank", grid, document.by == "step", words_at=frozenset({1}))
    return Section("steps", "Steps", [Text([breakdown.spread(document)]), *([drawn] if drawn else []), every])


def _names(document: Document) -> Grid:
    """What the rules made of every name."""
    unit = parts.unit_of(document)
    table = document.names
    rows = [
        [
            shortened(escape(row["name"]), parts.MOST_OF_A_NAME),
            row["kind"],
            row["collective"] or "",
            escape(row["rule"] or "(no rule)"),
            count(row["count"]),
            number(row["sum_ns"], unit),
        ]
        for row in records(table.head(MOST_ROWS))
    ]
    more = len(table) - len(rows)
    note = f"{more:,} more: overlapscope kernels lists all" if more else None
    head = ["name", "kind", "collective", "rule", "count", f"sum ({unit[1]})"]
    return Grid(f"Names ({len(table):,}, and what the rules made of them)", head, rows, note)


# -- pieces --------------------------------------------------------------------------------------------------


def chart(name: str, figure: go.Figure) -> Chart:
    """A Plotly figure, to be drawn in the page."""
    drawn = figure.to_plotly_json()
    del drawn["layout"]["template"]
    data = json.dumps(drawn, ensure_ascii=True, allow_nan=False, default=list).encode()
    return Chart(f"chart-{name}", figure.layout.meta["alt"], int(figure.layout.height), data)


def section(name: str, grid: Grid, blocks: Sequence[Block], short: str = "") -> Section:
    """A section of a grid's title; what that says in brackets stands beside it."""
    title, unit = split(grid.title)
    return Section(name, title, blocks, unit, short)


def _grid(name: str, grid: Grid | None, short: str = "") -> Iterator[Section]:
    if grid is not None:
        yield section(name, grid, [Table(_cut(grid))], short)


def _folded(words: str, grid: Grid, opened: bool, *, words_at: frozenset[int] = frozenset()) -> Fold:
    grid = _cut(grid)
    n = len(grid.rows)
    return Fold(f"{words}: {n:,} row{'s' * (n != 1)}", [Table(grid, words_at)], opened)


def _cut(grid: Grid) -> Grid:
    """Its first rows, where a page would not take all."""
    more = len(grid.rows) - MOST_ROWS
    if more <= 0:
        return grid
    note = f"{more:,} more rows: the JSON has all"
    return Grid(
        grid.title, grid.head, grid.rows[:MOST_ROWS], f"{grid.note} {note}" if grid.note else note, grid.foot
    )
