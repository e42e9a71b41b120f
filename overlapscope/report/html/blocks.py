"""What a page is made of: sections, and in them blocks of a few kinds, each laid out by the template of that name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..findings import Told
from ..grid import Grid

__all__ = [
    "Bar",
    "Bars",
    "Block",
    "Chart",
    "Facts",
    "Findings",
    "Fold",
    "Notes",
    "Page",
    "Part",
    "Section",
    "Table",
    "Text",
    "Tile",
    "Timeline",
    "Tree",
    "TreeRow",
    "Verdict",
    "Whisker",
    "split",
]


@dataclass(frozen=True, slots=True)
class Block:
    """One piece of a section; its kind names the macro that lays it out."""

    kind: ClassVar[str]


@dataclass(frozen=True, slots=True)
class Text(Block):
    """Sentences, a paragraph each."""

    kind: ClassVar[str] = "text"
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class Notes(Block):
    """A list of sentences."""

    kind: ClassVar[str] = "notes"
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class Facts(Block):
    """Labels, and what is said of each."""

    kind: ClassVar[str] = "facts"
    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Table(Block):
    """A grid that can be sorted, and if long filtered.

    ``words`` are the columns that hold words, beside the first; ``fixed``: the rows are an account, in their order.
    """

    kind: ClassVar[str] = "table"
    grid: Grid
    words: frozenset[int] = frozenset()
    fixed: bool = False

    @property
    def exposed(self) -> frozenset[int]:
        """The columns that the eye should find first."""
        heads = enumerate(self.grid.head)
        return frozenset(i for i, head in heads if i and "exposed" in head and "memory" not in head)


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A range below the one around it, its figures, and what its bar shows: shares, in percent of the longest."""

    id: str
    depth: int
    name: str
    cells: Sequence[str]
    hidden: float
    exposed: float
    branch: bool  # something is below it
    open: bool
    brief: bool  # among those that expose most, which are shown at first


@dataclass(frozen=True, slots=True)
class Tree(Block):
    """Rows that fold."""

    kind: ClassVar[str] = "tree"
    title: str
    head: Sequence[str]
    rows: Sequence[TreeRow]
    note: str | None


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a bar: the class that colours it, its words, its width in percent, and how long it is."""

    key: str
    words: str
    width: float
    figure: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: what it is of, its pieces, and the figures beside it."""

    label: str
    parts: Sequence[Part]
    figures: Sequence[str]


ORDER = ("busy", "comm", "wait", "wire", "unsplit", "memory", "idle")
"""Classes of pieces, from what one wants to what one does not."""


@dataclass(frozen=True, slots=True)
class Bars(Block):
    """Stacked bars under one another, to one scale."""

    kind: ClassVar[str] = "bars"
    label: str
    head: Sequence[str]
    bars: Sequence[Bar]

    @property
    def legend(self) -> dict[str, str]:
        """The words of each class that some bar shows, in the order of the pieces."""
        found = {part.key: part.words for bar in self.bars for part in bar.parts}
        return {key: found[key] for key in ORDER if key in found}


@dataclass(frozen=True, slots=True)
class Findings(Block):
    """What costs time, worst first; ``places`` are the rows of the tree that findings speak of."""

    kind: ClassVar[str] = "findings"
    told: Sequence[Told]
    places: Sequence[str | None]


@dataclass(frozen=True, slots=True)
class Fold(Block):
    """Blocks that are read if asked for."""

    kind: ClassVar[str] = "fold"
    title: str
    blocks: Sequence[Block]
    open: bool = False


@dataclass(frozen=True, slots=True)
class Chart(Block):
    """A Plotly figure (JSON), drawn when it comes into view."""

    kind: ClassVar[str] = "chart"
    id: str
    alt: str
    height: int
    figure: bytes


@dataclass(frozen=True, slots=True)
class Timeline(Block):
    """The payload of a timeline, drawn when it comes into view."""

    kind: ClassVar[str] = "timeline"
    payload: bytes


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands under it; ``unit`` says what its figures are, ``short`` what a list calls it."""

    id: str
    title: str
    blocks: Sequence[Block]
    unit: str = ""
    short: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    """A figure that is read from afar; ``tone`` colours it."""

    figure: str
    words: str
    more: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A whole report."""

    title: str  # of the browser's tab
    what: str
    of: str
    headline: Sequence[str]
    tiles: Sequence[Tile]
    sections: Sequence[Section]


class Verdict(str):
    """A word in a table that is also told by colour: "better", "worse" or "" for neither."""

    tone: str

    def __new__(cls, text: str, tone: str) -> Verdict:
        verdict = super().__new__(cls, text)
        verdict.tone = tone
        return verdict


class Whisker(str):
    """An interval in words, and where it lies on its column's axis: low, middle and high, in percent."""

    places: tuple[float, float, float]

    def __new__(cls, text: str, places: tuple[float, float, float]) -> Whisker:
        whisker = super().__new__(cls, text)
        whisker.places = places
        return whisker


def split(title: str) -> tuple[str, str]:
    """A grid's title as a heading, and what stands in brackets behind it: its unit, what it covers."""
    words, _, unit = title.partition(" (")
    return words, unit.removesuffix(")")
