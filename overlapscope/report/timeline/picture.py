"""A still picture of a timeline, for what shows no widgets: SVG without a script.

Each column of pixels is split by the shares of its time, as the page does it where ops are too many to be told apart.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape as html_escape

import numpy as np
import numpy.typing as npt

from ...classify import Kind
from ...intervals import Int64
from ..colours import COLOURS
from ..document import Document
from ..opening import headline
from ..words import escape, shortened
from .lanes import STATES, Lane, Lanes, Strip
from .payload import zero_of

__all__ = ["alt", "html", "svg"]

Floats = npt.NDArray[np.float64]

WIDE, LEFT, RIGHT, TOP = 960, 132, 16, 62  # px of the picture and around its plot
STRIP, OPS, HEAD = 14, 22, 20  # heights of rows, px
MOST_ROWS = 48  # a picture of two screens; the page has the rest
LONGEST_LABEL = 18  # characters that fit beside the plot

OF_STATE = dict(zip(STATES, ("busy", "comm", "exposed", "memory", "idle"), strict=True))
"""What a state looks like."""

STACK = ("exposed", "comm", *(kind.value for kind in Kind if kind is not Kind.COMM))
STRIP_STACK = ("exposed", "memory", "comm", "busy", "idle")
"""From the bottom of a column upwards: what is exposed stands on the ground, so that heights compare."""

INK = (("page", "#ffffff", "#12161b"), ("ink", "#1b242d", "#e6ebf0"), ("muted", "#5b6875", "#98a4b1"))


def html(document: Document, drawn: Lanes, view: tuple[int, int] | None) -> str:
    """The picture as one image element with its alternative text."""
    picture = svg(document, drawn, view)
    coded = base64.b64encode(picture.encode()).decode()
    words = html_escape(alt(document, drawn, view))
    return f'<img alt="{words}" style="max-width:100%" src="data:image/svg+xml;base64,{coded}">'


def alt(document: Document, drawn: Lanes, view: tuple[int, int] | None) -> str:
    """What the picture shows, in words."""
    start, end = view or (drawn.start, drawn.end)
    ranks = len(drawn.strips)
    what = f"Timeline of {ranks} rank{'s' * (ranks > 1)}, {start / 1e6:,.3f} to {end / 1e6:,.3f} ms."
    return " ".join([what, *headline(document)])


def svg(document: Document, drawn: Lanes, view: tuple[int, int] | None) -> str:
    """The picture.

    Parameters
    ----------
    document : Document
    drawn : Lanes
    view : (int, int), optional
        From when to when, ns since the trace's origin; by default all that is drawn.
    """
    start, end = view or (drawn.start, drawn.end)
    plot = _Plot(start, start - zero_of(drawn), np.linspace(0, end - start, WIDE - LEFT - RIGHT + 1))
    parts, y = [], TOP
    detailed = _detailed(drawn)
    for strip in drawn.strips[:MOST_ROWS]:
        parts.append(_text(12, y + 14, f"rank {strip.rank}", "ink bold"))
        parts += _columns(_states(strip, plot), STRIP_STACK, y + 4, STRIP)
        y += HEAD
        for lane in drawn.lanes if strip.rank in detailed else ():
            if lane.rank == strip.rank and not lane.ranges:
                label = "" if lane.row else shortened(escape(lane.label), LONGEST_LABEL)
                parts.append(_text(LEFT - 8, y + 14, label, "muted end"))
                parts += _columns(_kinds(document, lane, plot), STACK, y, OPS - 3)
                y += OPS
        y += 6
    said = headline(document)
    head = [_text(12, 22, shortened(said[0], 110), "ink title"), *_axis(plot, y)]
    foot = [*_legend("".join(parts), y + 10), *_left_out(drawn, detailed, y + 45)]
    words = html_escape(alt(document, drawn, view))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {WIDE} {y + 52}" width="{WIDE}" '
        f'height="{y + 52}"><title>{words}</title><style>{_style()}</style>'
        f'<rect class="page" width="{WIDE}" height="{y + 52}"/>{"".join([*head, *parts, *foot])}</svg>'
    )


def _detailed(drawn: Lanes) -> set[int]:
    """The ranks whose lanes there is room for; of the others the states are drawn."""
    room, found = MOST_ROWS - len(drawn.strips), set[int]()
    for strip in drawn.strips:
        room -= sum(lane.rank == strip.rank and not lane.ranges for lane in drawn.lanes)
        if room < 0 and found:
            break
        found.add(strip.rank)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Plot:
    """The columns of pixels: where they begin, ns since the trace's origin and as the axis counts, and their edges
    after that."""

    start: int
    told: int
    edges: Floats

    def shares(self, start: Int64, end: Int64) -> Floats:
        """How much of each column intervals cover, sorted and disjoint."""
        if not len(start):
            return np.zeros(len(self.edges) - 1)
        times = np.stack([start, end], axis=1).ravel() - self.start  # before they are floats
        lasted = np.repeat(np.cumsum(end - start), 2)
        lasted[::2] -= end - start
        share: Floats = np.diff(np.interp(self.edges, times, lasted)) / np.diff(self.edges)
        return share


def _states(strip: Strip, plot: _Plot) -> Mapping[str, Floats]:
    return {
        OF_STATE[state]: plot.shares(strip.start[mine], strip.end[mine])
        for number, state in enumerate(STATES)
        if (mine := strip.state == number).any()
    }


def _kinds(document: Document, lane: Lane, plot: _Plot) -> Mapping[str, Floats]:
    """Of each kind of op; communication without its exposed part, which is one more."""
    code = document.trace.ops["kind"].cat.codes.to_numpy()[lane.position]
    found = {}
    for number, kind in enumerate(Kind):
        mine = code == number
        if mine.any():
            found[kind.value] = plot.shares(lane.start[mine], lane.end[mine])
    if Kind.COMM.value in found:
        found["exposed"] = plot.shares(lane.exposed.start, lane.exposed.end)
        found[Kind.COMM.value] = found[Kind.COMM.value] - found["exposed"]
    return found


def _columns(shares: Mapping[str, Floats], order: Sequence[str], top: int, height: int) -> Iterator[str]:
    """A path a colour: columns of one height side by side are one rectangle. Heights are quarters of a pixel."""
    ground = np.zeros(0)
    for key in order:
        if key not in shares:
            continue
        ground = ground if len(ground) else np.zeros(len(shares[key]))
        low, ground = np.rint(ground * height * 4), ground + shares[key]
        high = np.rint(ground * height * 4)
        change = np.flatnonzero((np.diff(low) != 0) | (np.diff(high) != 0)) + 1
        first, last = np.append(0, change), np.append(change, len(low))
        drawn = high[first] > low[first]
        path = "".join(
            f"M{LEFT + a} {top + height - h / 4:g}h{b - a}v{(h - g) / 4:g}h{a - b}z"
            for a, b, g, h in zip(
                first[drawn], last[drawn], low[first[drawn]], high[first[drawn]], strict=True
            )
        )
        if path:
            yield f'<path class="{key}" d="{path}"/>'


def _axis(plot: _Plot, bottom: int) -> Iterator[str]:
    """Ticks at round times, ms."""
    start, end = plot.told / 1e6, (plot.told + plot.edges[-1]) / 1e6
    step = 10.0 ** np.floor(np.log10((end - start) / 4))
    step *= next(m for m in (5, 2, 1) if (end - start) / (m * step) >= 4)
    digits = max(0, int(-np.floor(np.log10(step))))
    yield _text(12, TOP - 14, "time (ms)", "muted")
    for tick in np.arange(np.ceil(start / step), np.floor(end / step) + 1) * step:
        x = LEFT + (tick - start) / (end - start) * (WIDE - LEFT - RIGHT)
        yield f'<path class="line" d="M{x:.1f} {TOP - 6}V{bottom}"/>'
        yield _text(round(float(x), 1), TOP - 14, f"{tick:,.{digits}f}", "muted middle")


def _legend(drawn: str, y: int) -> Iterator[str]:
    """Of the colours that are there."""
    x = LEFT
    for key in ("exposed", "comm", "gemm", "attention", "compute", "memory", "busy", "idle"):
        if f'class="{key}"' not in drawn:
            continue
        words = COLOURS[key].words
        if x + 24 + 6.4 * len(words) > WIDE:
            x, y = LEFT, y + 18
        yield f'<rect class="{key}" x="{x}" y="{y}" width="12" height="12" rx="2"/>'
        yield _text(x + 17, y + 10, words, "ink")
        x += 40 + int(6 * len(words))


def _left_out(drawn: Lanes, detailed: set[int], y: int) -> Iterator[str]:
    ranks, words = len(drawn.strips), []
    if len(detailed) < ranks:
        words.append(f"lanes of {len(detailed)} of {ranks} ranks")
    if ranks > MOST_ROWS:
        words.append(f"states of {MOST_ROWS}")
    if words:
        yield _text(LEFT, y, f"Drawn here: {', '.join(words)}; the page has all.", "muted")


def _text(x: float, y: float, words: str, classes: str) -> str:
    return f'<text class="{classes}" x="{x}" y="{y}">{html_escape(words)}</text>'


def _style() -> str:
    """Light, and dark where the browser asks for it: the ground is the picture's own."""
    rules = [
        "text{font:11px system-ui,sans-serif}.title{font-size:15px;font-weight:600}.bold{font-weight:600}"
    ]
    rules.append(".end{text-anchor:end}.middle{text-anchor:middle}.line{stroke:#8893a0;stroke-opacity:.3}")
    colours = [*INK, *((key, c.light, c.dark) for key, c in COLOURS.items() if key != "range")]
    rules += [f".{key}{{fill:{light}}}" for key, light, _ in colours]
    dark = "".join(f".{key}{{fill:{dark}}}" for key, _, dark in colours)
    return "".join([*rules, f"@media(prefers-color-scheme:dark){{{dark}}}"])
