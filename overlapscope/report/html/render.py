"""A page of blocks as HTML.

Every value that a template puts out goes through `_inert` and then through Jinja's own escaping: a name from a trace
cannot reach the page in another way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from .. import shell
from ..colours import COLOURS
from ..timeline import page as drawn
from ..words import escape, shortened
from .blocks import Block, Chart, Fold, Page, Timeline

__all__ = ["html"]

LONGEST = 2000  # characters of any one text; the longest kernel name of any trace known to us has 1,956

LONG = 12  # rows from which on a table gets a box to filter it


def html(page: Page) -> str:
    """The page, in one piece that needs nothing else."""
    blocks = [block for section in page.sections for block in _inside(section.blocks)]
    charts = [block for block in blocks if isinstance(block, Chart)]
    timelines = [block for block in blocks if isinstance(block, Timeline)]
    stores = {chart.id: chart.figure for chart in charts}
    if timelines:
        stores["payload"] = timelines[0].payload
    return shell.html(
        shortened(escape(page.title), LONGEST),
        _environment().get_template("page.html").render(page=page, long=LONG),
        style="\n".join([*[drawn.style()] * bool(timelines), _colours(), _file("page.css")]),
        scripts=[*[drawn.script()] * bool(timelines), _script()],
        stores=stores,
        plotly=bool(stores),
    )


def _inside(blocks: Any) -> Iterator[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Fold):
            yield from _inside(block.blocks)


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        finalize=_inert,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _inert(value: Any) -> Any:
    """A text as every other layout shows it: control and bidirectional characters as escapes, and not endless."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return shortened(escape(value.replace("\n", " ")), LONGEST)
    return value


@cache
def _colours() -> str:
    """What each meaning looks like, in light, in dark and in print."""
    light, dark = (
        " ".join(f"--{key}: {getattr(colour, theme)};" for key, colour in COLOURS.items())
        for theme in ("light", "dark")
    )
    return f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"


@cache
def _script() -> str:
    light = json.dumps({key: colour.light for key, colour in COLOURS.items()})
    return f'(() => {{\n"use strict";\nconst LIGHT = {light};\n{_file("page.js")}}})();\n'


@cache
def _file(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
