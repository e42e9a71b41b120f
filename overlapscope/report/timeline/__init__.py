"""The timeline of all ranks: lanes, states, exposed communication. A page of its own, or a widget of a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import OptionError
from ...files import write_text
from ...trace import Trace
from .. import document
from ..document import Document
from . import page, picture
from .lanes import Lanes, lanes
from .payload import payload, zero_of
from .picks import picked

if TYPE_CHECKING:
    from .widget import TimelineWidget

__all__ = ["MOST_LANES", "Timeline", "timeline"]

MOST_LANES = 400  # 64 ranks of six; more than a person scrolls through

WIDGET = "application/vnd.jupyter.widget-view+json"


class Timeline:
    """The timeline of a trace: what a cell of a notebook shows, or a page to `save`.

    In a notebook it is a widget (``pip install 'overlapscope[notebook]'``): what is in `view` and what was `picked` is
    read from Python, and `view` can be set. Without anywidget, and where widgets are not shown, it is a still picture.

    Attributes
    ----------
    payload : bytes
        What the script draws; see `overlapscope.report.timeline.payload`.
    title : str
        What it is of.
    """

    def __init__(self, said: Document, most_lanes: int) -> None:
        self._said, self._most_lanes = said, most_lanes
        self._view: list[int] | None = None  # ns since zero, until there is a widget
        self.payload = payload(said, most_lanes=most_lanes)
        self.title = page.title(said.provenance)

    def __repr__(self) -> str:
        return f"Timeline({self.title!r}, {len(self.payload):,} bytes)"

    def html(self) -> str:
        """One page that needs nothing else: no network, no other file."""
        return page.html(self.payload, self.title)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the page. Raises OptionError where the file exists and `force` is not set."""
        write_text(Path(path), self.html(), force=force)

    def svg(self) -> str:
        """A still picture of what is in view, without a script."""
        return picture.svg(self._said, self._drawn, self.view)

    @property
    def view(self) -> tuple[int, int] | None:
        """What is in view, ns since the trace's origin, exactly; None: all of it. Setting it moves the widget.

        Raises
        ------
        OptionError
            It is set to what is no start and a later end, in whole ns.
        """
        shown = self._widget.shown if "_widget" in self.__dict__ else self._view
        return None if shown is None else (shown[0] + self._zero, shown[1] + self._zero)

    @view.setter
    def view(self, view: tuple[int, int] | None) -> None:
        try:
            shown: list[int] | None = None if view is None else [index(t) - self._zero for t in view]
        except TypeError:
            shown = []
        if shown is not None and not (
            len(shown) == 2 and shown[1] - shown[0] > 0 and max(map(abs, shown)) < 2**53
        ):
            what = f"{view!r} is no start and a later end, in whole ns"
            raise OptionError(what, "give two integers, such as trace.span, or None for all", "view")
        if "_widget" in self.__dict__:
            self._widget.shown = shown
        else:
            self._view = shown

    @property
    def picked(self) -> dict[str, Any] | None:
        """The op or range that was clicked, as a plain dict; None where none is. See `picks.picked` for its keys."""
        pinned = self._widget.pinned if "_widget" in self.__dict__ else None
        return None if pinned is None else picked(self._said, self._drawn.lanes[pinned[0]], pinned[1])

    @cached_property
    def _drawn(self) -> Lanes:
        said = self._said
        return lanes(said.trace, said.overlap, most=self._most_lanes, step_pattern=said.step_pattern)

    @cached_property
    def _zero(self) -> int:
        return zero_of(self._drawn)

    @cached_property
    def _widget(self) -> TimelineWidget:
        from .widget import TimelineWidget  # it brings Jupyter's widgets

        return TimelineWidget(self.payload, self._view)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """What a notebook shows of it, the richest of these that it can: widget, picture, words."""
        still = {
            "text/plain": repr(self),
            "text/html": picture.html(self._said, self._drawn, self.view),
        }
        if find_spec("anywidget") is None:
            return still
        return {**still, WIDGET: {"version_major": 2, "version_minor": 0, "model_id": self._widget.model_id}}


def timeline(
    trace: Trace,
    window: str | None = None,
    *,
    ranks: Sequence[int] | None = None,
    step_pattern: str | None = None,
    align: str = "collectives",
    max_lanes: int = MOST_LANES,
) -> Timeline:
    """The timeline of a trace: as a widget of a notebook, or as one page for a browser.

    Parameters
    ----------
    trace : Trace
    window : str, optional
        "whole", "steps" or "START:END", as in `windows`. The timeline runs from the first rank's window to the end
        of the last one's; what lies in no window is pale, and no figure counts it.
    ranks : sequence of int, optional
        Only these.
    step_pattern : str, optional
        Names of step ranges, as in `windows`.
    align : {"collectives", "session", "none"}
        How the clocks of several files are brought together, where waiting is told from transfer.
    max_lanes : int
        How many lanes are drawn, beside one of states a rank.

    Raises
    ------
    OptionError
        The window cannot be used, a rank is not in the trace, or the timeline is too long to be exact.
    """
    if max_lanes < 1:
        raise OptionError(f"is {max_lanes}", "give 1 or more", "max_lanes")
    said = document.build(trace, window=window, ranks=ranks, step_pattern=step_pattern, align=align)
    return Timeline(said, max_lanes)
