"""The page around a timeline: one HTML file that asks the network for nothing.

Whatever comes from a trace is in the payload, as base64, and reaches the page as text, never as HTML. Should that
fail, the page's policy runs only the scripts that stand in it, told by their hashes, and loads nothing.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from functools import cache
from html import escape as html_escape
from importlib.resources import files
from pathlib import PurePath

from ...trace import Provenance
from ..words import escape, shortened

__all__ = ["SCRIPTS", "html", "script", "style", "title"]

SCRIPTS = ("decode.js", "layout.js", "draw.js", "find.js", "panels.js", "axis.js", "timeline.js")
"""In the order in which they build on one another."""

LONGEST_TITLE = 120

_START = """
const bytes = (id) => {
  const text = atob(document.getElementById(id).textContent), found = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) found[i] = text.charCodeAt(i);
  return found;
};
const plotly = () => overlapscopeTimeline.inflate(bytes("plotly")).then((text) => {
  const element = document.createElement("script");
  element.textContent = new TextDecoder().decode(text);
  document.head.append(element);
  return window.Plotly;
});
const element = document.getElementById("timeline");
window.timeline = overlapscopeTimeline.mount(element, bytes("payload"), { plotly, link: true });
window.timeline.catch((error) => element.append(`The timeline cannot be drawn by this browser (${error.message}).`));
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<noscript>This timeline is drawn by a script, which this browser does not run.</noscript>
<main id="timeline" class="ost"></main>
<script type="application/octet-stream" id="payload">{payload}</script>
<script type="application/octet-stream" id="plotly">{plotly}</script>
<script>{script}</script>
<script>{start}</script>
</body>
</html>
"""


def html(payload: bytes, title: str) -> str:
    """The whole page."""
    plotly, source = _plotly(), script()
    hashes = " ".join(f"'sha256-{_sha256(text)}'" for text in (source, _START, plotly))
    # Plotly writes rules of its own into a style element; pictures are made of the canvas.
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(
        policy=policy,
        title=html_escape(title),
        style=style(),
        payload=base64.b64encode(payload).decode(),
        plotly=base64.b64encode(gzip.compress(plotly.encode(), 9, mtime=0)).decode(),
        script=source,
        start=_START,
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


def title(provenance: Provenance) -> str:
    """What a browser's tab shows."""
    paths = [PurePath(s.path) for s in provenance.sources]
    name = (
        paths[0].name if len(paths) == 1 else f"{len(paths)} files in {paths[0].parent.name or paths[0].name}"
    )
    return f"{shortened(escape(name), LONGEST_TITLE)} – overlapscope timeline"


def _file(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
