"""What all figures have in common."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from ..report.colours import COLOURS
from ..report.words import escape, shortened

__all__ = ["NS_PER_MS", "bars", "brief", "colour", "framed", "listed", "plain"]

NS_PER_MS = 1_000_000
LONGEST = 50  # characters of a name beside an axis
GRID = "#dfe3e8"
EDGE = "#9aa5b1"  # idle time is hardly darker than the page


def framed(figure: go.Figure, title: str, alt: str, *, height: int = 480) -> go.Figure:
    """The look of a page of print, and the alternative text."""
    figure.update_layout(
        title=title,
        meta={"alt": alt},
        template="plotly_white",
        font={"family": "DejaVu Sans, Arial, sans-serif", "size": 14},
        width=960,
        height=height,
        legend={"traceorder": "normal"},
    )
    # 0.0005 ms, not 500µ ms.
    return figure.update_xaxes(gridcolor=GRID).update_yaxes(gridcolor=GRID, exponentformat="none")


def bars(
    name: str, key: str, places: Sequence[str | int], exact: Sequence[Any], per: int = 1, **options: Any
) -> go.Bar:
    """Bars of times, ms, one a place; `exact` are ns (None: no such), `per` what they are divided by."""
    # A pattern, too, where one colour stands for several things: it survives a print in grey.
    marker = {
        "color": colour(key),
        "line": {"color": EDGE, "width": 0.5},
        "pattern": {"shape": options.pop("pattern", ""), "fgcolor": "#ffffff"},
    }
    along, across = ("y", "x") if options.get("orientation") == "h" else ("x", "y")
    values = [None if ns is None else ns / (per * NS_PER_MS) for ns in exact]
    axes = {along: list(places), across: values}
    return go.Bar(name=name, customdata=list(exact), marker=marker, **axes, **options)


def colour(key: str) -> str:
    """Of one meaning, the same in all pictures."""
    return COLOURS[key].light


def brief(name: str) -> str:
    """A name as a sentence shows it."""
    return shortened(escape(name), LONGEST)


def plain(name: str) -> str:
    """A name as a picture shows it: Plotly takes text for markup."""
    return html.escape(brief(name)).replace("$", "&#36;")


def listed(column: pd.Series[Any]) -> list[Any]:
    """Plain Python values; a missing one is None."""
    return list(column.astype(object).where(column.notna(), None))
