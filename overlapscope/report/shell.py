"""What every page of ours has around it: one HTML file that asks the network for nothing.

What a trace says reaches a page as escaped text or as base64, never as HTML. Should that fail, the page's policy runs
only the scripts that stand in it, told by their hashes, and loads nothing.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape as html_escape

__all__ = ["html"]

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
{body}
{stores}
{scripts}
</body>
</html>
"""

_TOOLS = """
globalThis.overlapscopePage = (() => {
  const bytes = (id) => {
    const text = atob(document.getElementById(id).textContent), found = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) found[i] = text.charCodeAt(i);
    return found;
  };
  let asked = null;
  const load = async () => {
    const stream = new Blob([bytes("plotly")]).stream().pipeThrough(new DecompressionStream("gzip"));
    const element = document.createElement("script");
    element.textContent = await new Response(stream).text();
    document.head.append(element);
    return window.Plotly;
  };
  // Plotly is long, and not every reader scrolls down to what it draws: unpacked once, when first asked for.
  const plotly = () => (asked = asked || load());
  return { bytes, plotly };
})();
"""


def html(
    title: str,
    body: str,
    *,
    style: str,
    scripts: Sequence[str] = (),
    stores: Mapping[str, bytes] | None = None,
    plotly: bool = False,
) -> str:
    """A whole page.

    Parameters
    ----------
    title : str
        Text; what a browser's tab shows.
    body : str
        HTML, in which everything that a trace says is escaped.
    style : str
    scripts : sequence of str
        Run in this order. ``overlapscopePage.bytes(id)`` gives them a store, ``overlapscopePage.plotly()`` a promise
        of Plotly.
    stores : mapping of str to bytes
        Kept in the page as base64, by the id of their element.
    plotly : bool
        Whether Plotly comes with it, 2 MB.
    """
    kept = dict(stores or {})
    run = [*([_TOOLS] if kept or plotly else []), *scripts]
    trusted = list(run)
    if plotly:
        trusted.append(_plotly())
        kept["plotly"] = _packed_plotly()
    hashes = " ".join(f"'sha256-{_sha256(text)}'" for text in trusted) or "'none'"
    # Plotly writes rules of its own into a style element; pictures are made of the canvas.
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(
        policy=policy,
        title=html_escape(title),
        style=style,
        body=body,
        stores="\n".join(_store(name, content) for name, content in kept.items()),
        scripts="\n".join(f"<script>{text}</script>" for text in run),
    )


def _store(name: str, content: bytes) -> str:
    return (
        f'<script type="application/octet-stream" id="{name}">{base64.b64encode(content).decode()}</script>'
    )


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


@cache
def _packed_plotly() -> bytes:
    return gzip.compress(_plotly().encode(), 9, mtime=0)


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
