"""A comparison of two sides as a page: every figure, its interval, and what can be told of it."""

from __future__ import annotations

from ...analysis.shift import Shift
from .. import compare_text as text
from ..compare import Document
from ..grid import Grid
from ..words import Figure, duration, escape, percent
from .blocks import Facts, Notes, Page, Section, Table, Tile, Verdict, Whisker
from .report import section

__all__ = ["of_comparison"]

MORE_IS_BETTER = ("overlap", "hidden_share")
NEITHER = ("compute", "comm")
"""More communication at once may be faster, and compute under it takes longer: the step tells."""

WIDEST = 1.0
"""Share of A at which the axis of intervals ends at the latest: beyond it one sees that it is far."""


def of_comparison(document: Document) -> Page:
    """The page of a comparison."""
    grid = _told(document)
    sections = [section("figures", grid, [Table(grid, fixed=True)], "Figures")]
    if document.changed:
        sections.append(Section("changed", "What was changed", [Notes(document.changed)], short="Changed"))
    if shown := text.baseline(document):
        title = "Against A as the serial baseline"
        sections.append(Section("baseline", title, [Facts(shown)], short="Baseline"))
    for name, some, short in (
        ("communication", text.collectives(document), ""),
        ("names", text.names(document), "Names"),
    ):
        if some.rows:
            sections.append(section(name, some, [Table(some)], short))
    sections.append(
        Section("captured", "What is compared", [Facts(text.setting(document))], short="Compared")
    )
    sections.append(Section("notes", "Good to know", [Notes([*document.warnings, *text.legend(document)])]))
    a, b = (text.paths(side) for side in (document.a, document.b))
    return Page(
        title=f"{escape(a)} and {escape(b)} – overlapscope compare",
        what="comparison",
        of=f"A: {a}. B: {b}",
        headline=text.headline(document),
        tiles=_tiles(document),
        sections=sections,
    )


def _told(document: Document) -> Grid:
    """The figures, with the interval drawn and the verdict coloured."""
    grid, found = text.figures(document), document.comparison
    every = {**found.times, **found.ratios}
    ends = [abs(end) for one in found.times.values() for end in _relative(one) if end is not None]
    rows = []
    for (name, one), (label, *cells, between, _) in zip(every.items(), grid.rows, strict=True):
        drawn = _drawn(between, one, min(max(ends, default=0), WIDEST)) if name in found.times else between
        rows.append([label, *cells, drawn, Verdict(text.TOLD[one.verdict], _tone(name, one.verdict))])
    return Grid(grid.title, grid.head, rows, grid.note)


def _relative(one: Shift) -> list[float | None]:
    return [one.relative(end) for end in (one.low, one.change, one.high)]


def _drawn(words: str, one: Shift, longest: float) -> str:
    """An interval on an axis with 0 in its middle, the same for all times."""
    low, middle, high = _relative(one)
    if low is None or middle is None or high is None or not longest:
        return words
    a, b, c = (50 + 48 * max(-1, min(1, end / longest)) for end in (low, middle, high))
    return Whisker(words, (a, b, c))


def _tone(name: str, verdict: str | None) -> str:
    if verdict not in ("less", "more") or name in NEITHER:
        return ""
    return "better" if (verdict == "more") == (name in MORE_IS_BETTER) else "worse"


def _tiles(document: Document) -> list[Tile]:
    found, unit = document.comparison, text.unit_of(document)
    step, exposed, hidden = found.times["window"], found.times["exposed_comm"], found.ratios["hidden_share"]
    change = step.relative(step.change)
    tiles = [
        Tile(
            Figure("n/a", None) if change is None else Figure(f"{100 * change:+.1f} %", change),
            f"change of a {document.per}",
            {"less": "faster", "more": "slower"}.get(step.verdict or "", "not told from the spread"),
            _tone("window", step.verdict),
        )
    ]
    for words, one, name in (
        (f"a {document.per}", step, "window"),
        ("exposed communication", exposed, "exposed_comm"),
    ):
        if one.a is not None and one.b is not None:
            more = f"A {duration(one.a, unit)}; told: {text.TOLD[one.verdict]}"
            tiles.append(Tile(duration(one.b, unit), words, more, _tone(name, one.verdict)))
    if hidden.a is not None and hidden.b is not None:
        tiles.append(
            Tile(
                percent(hidden.b, 1),
                "of communication is hidden",
                f"A {percent(hidden.a, 1)}; told: {text.TOLD[hidden.verdict]}",
                _tone("hidden_share", hidden.verdict),
            )
        )
    return tiles
