"""Figures as files: drawn by the Chromium that is on this machine, without a network."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import plotly.graph_objects as go
import plotly.io

from ..errors import OptionError, OverlapscopeError
from ..files import check, replacing, write_text
from ..report.document import Document
from .speed import collective_sizes
from .time import breakdown, overlap_by_range, skew

__all__ = ["ALT_FILE", "FORMATS", "of_report", "save"]

FORMATS = ("png", "svg", "pdf")

ALT_FILE = "alt.json"
"""Each figure's alternative text, which PNG and PDF have no place for."""

SHARP = 2  # pixels a point of PNG: 1920 wide


def of_report(document: Document) -> dict[str, go.Figure]:
    """The figures that a report has something to show in, by name."""
    result = document.overlap
    found = {"breakdown": breakdown(result)}
    sizes = document.rates if document.bandwidth is None else document.bandwidth
    if sizes.table["algbw_gbs"].notna().any():
        found["collective_sizes"] = collective_sizes(sizes)
    if document.by in (None, "range") and document.table is not None:
        found["overlap_by_range"] = overlap_by_range(document.table)
    if result.instances["wait_ns"].notna().any():
        found["skew"] = skew(result)
    return found


def save(figures: Mapping[str, go.Figure], folder: Path, *, force: bool = False) -> list[Path]:
    """Write each figure as PNG, SVG and PDF, ``<name>.<format>``, and their alternative texts.

    Returns
    -------
    list of Path
        The files, in the order of the figures.

    Raises
    ------
    OptionError
        Kaleido or a browser is missing, the folder cannot be made, or a file exists and `force` is not set.
    OverlapscopeError
        A file could not be written.
    """
    if find_spec("kaleido") is None:
        remedy = "pip install 'overlapscope[figures]'"
        raise OptionError(
            "PNG, SVG and PDF are drawn by kaleido, which is not installed", remedy, "--figures"
        )
    paths = [folder / f"{name}.{kind}" for name in figures for kind in FORMATS]
    with _folder(folder), ExitStack() as stack:
        check(folder / ALT_FILE, force=force)
        beside = [stack.enter_context(replacing(path, force=force)) for path in paths]
        _draw([figure for figure in figures.values() for _ in FORMATS], beside)
        if missing := [path for path, drawn in zip(paths, beside, strict=True) if not drawn.exists()]:
            raise OverlapscopeError("was drawn and could not be written; is the disk full?", None, missing[0])
        for path, figure in zip(beside[1 :: len(FORMATS)], figures.values(), strict=True):
            _describe(path, figure)
        told = {name: figure.layout.meta["alt"] for name, figure in figures.items()}
        write_text(folder / ALT_FILE, json.dumps(told, indent=2, ensure_ascii=False) + "\n", force=force)
    return paths


@contextmanager
def _folder(folder: Path) -> Iterator[None]:
    """A folder that is there, and that goes away if nothing comes into it."""
    if folder.exists() and not folder.is_dir():
        raise OptionError("is a file", "name a folder", folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"cannot be made ({error.strerror})", "name another folder", folder) from error
    try:
        yield
    finally:
        with suppress(OSError):  # it holds something
            folder.rmdir()


def _draw(figures: list[go.Figure], paths: list[Path]) -> None:
    """All at once: a browser takes seconds to start."""
    kinds = list(FORMATS) * (len(paths) // len(FORMATS))
    scales = [SHARP if kind == "png" else 1 for kind in kinds]
    try:
        plotly.io.write_images(
            fig=figures,
            file=paths,
            format=kinds,
            scale=scales,
            width=[figure.layout.width for figure in figures],
            height=[figure.layout.height for figure in figures],
        )
    except RuntimeError as error:
        # What plotly makes of kaleido's ChromeNotFoundError; other failures keep their own words.
        if "Chrome" not in str(error):
            raise
        remedy = "install it (Debian: apt install chromium), or set BROWSER_PATH to one"
        raise OptionError(
            "PNG, SVG and PDF are drawn by Chromium, and none was found", remedy, "--figures"
        ) from error


def _describe(path: Path, figure: go.Figure) -> None:
    """Give an SVG its title and description, which screen readers read."""
    head, tag, rest = path.read_text(encoding="utf-8").partition(">")
    title, alt = (html.escape(text) for text in (figure.layout.title.text, figure.layout.meta["alt"]))
    path.write_text(f'{head} role="img"{tag}<title>{title}</title><desc>{alt}</desc>{rest}', encoding="utf-8")
