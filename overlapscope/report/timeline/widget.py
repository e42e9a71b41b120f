"""The timeline as a widget of a notebook: the page's own script, and nothing of it from the network."""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files
from typing import Any

import anywidget
import traitlets
from plotly.offline import get_plotlyjs

from .page import script, style

__all__ = ["TimelineWidget"]


class TimelineWidget(anywidget.AnyWidget):
    """What a notebook's front end and Python share of a timeline. Times are ns since the payload's zero."""

    _esm = script() + (files(__package__) / "widget.js").read_text(encoding="utf-8")
    _css = style()

    payload = traitlets.Bytes().tag(sync=True)
    plotly = traitlets.Bytes().tag(sync=True)
    shown: Any = traitlets.List(traitlets.Int(), None, allow_none=True).tag(sync=True)
    """Start and end of what is in view; None: all of it."""
    pinned: Any = traitlets.List(traitlets.Int(), None, allow_none=True).tag(sync=True)
    """Positions of the lane and of the op on it that was picked."""

    def __init__(self, payload: bytes, shown: list[int] | None) -> None:
        super().__init__(payload=payload, plotly=_plotly(), shown=shown)


@cache
def _plotly() -> bytes:
    """Plotly's script, gzip: each widget brings it, and a page loads the first that it gets."""
    return gzip.compress(str(get_plotlyjs()).encode(), 9, mtime=0)
