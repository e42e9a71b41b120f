"""The page of a timeline. Whatever a trace says is in the payload, and reaches the page as text, never as HTML."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import PurePath

from ...trace import Provenance
from .. import shell
from ..words import escape, shortened

__all__ = ["SCRIPTS", "html", "script", "style", "title"]

SCRIPTS = ("decode.js", "layout.js", "draw.js", "find.js", "panels.js", "axis.js", "timeline.js")
"""In the order in which they build on one another."""

LONGEST_TITLE = 120

_BODY = """<noscript>This timeline is drawn by a script, which this browser does not run.</noscript>
<main id="timeline" class="ost"></main>"""

_START = """
const element = document.getElementById("timeline"), { bytes, plotly } = overlapscopePage;
window.timeline = overlapscopeTimeline.mount(element, bytes("payload"), { plotly, link: true });
window.timeline.catch((error) => element.append(`The timeline cannot be drawn by this browser (${error.message}).`));
"""


def html(payload: bytes, title: str) -> str:
    """The whole page."""
    return shell.html(
        title, _BODY, style=style(), scripts=[script(), _START], stores={"payload": payload}, plotly=True
    )


@cache
def script() -> str:
    """What draws a payload, as one script that defines ``overlapscopeTimeline`` and touches nothing else."""
    parts = [_file(name) for name in SCRIPTS]
    body = "\n".join(parts)
    return f'globalThis.overlapscopeTimeline = (() => {{\n"use strict";\n{body}\nreturn {{ mount, inflate }};\n}})();\n'


@cache
def style() -> str:
    """Its style sheet, for the class ``ost``."""
    return _file("timeline.css")


def title(provenance: Provenance, what: str = "timeline") -> str:
    """What a browser's tab shows."""
    paths = [PurePath(s.path) for s in provenance.sources]
    name = (
        paths[0].name if len(paths) == 1 else f"{len(paths)} files in {paths[0].parent.name or paths[0].name}"
    )
    return f"{shortened(escape(name), LONGEST_TITLE)} – overlapscope {what}"


def _file(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
