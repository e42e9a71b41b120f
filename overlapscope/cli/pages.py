"""Reports as pages for a browser: what ``report --format html`` and ``--html`` write."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..report.compare import Document as Comparison
    from ..report.document import Document
    from ..report.grid import Grid
    from ..report.scaling import Document as Scaling

__all__ = ["check", "comparison", "report", "scaling", "write"]

LARGE = 12_000_000
"""Bytes from which on a page is told to be large: mail and chats refuse such files, and browsers take a second."""


def check(path: Path | None, *, force: bool, made: Path | None = None, output: Path | None = None) -> None:
    """Refuse a page that could not be written, before the work for it is done. Raises OptionError.

    In the folder `made` there is nothing yet, or only what is to be replaced: the command makes it. The report itself
    goes to `output`, or to standard output.
    """
    from .. import files, run_file

    if path is None:
        return
    if (output is not None and path.resolve() == output.resolve()) or _is_standard_output(path):
        raise OptionError("is where the report itself goes", "name another file for the page", path)
    if made is not None:
        whole, folder = path.resolve(), made.resolve()
        if whole == folder or whole in folder.parents:
            raise OptionError("is where the run is written to", "name a file in it, or elsewhere", path)
        if folder in whole.parents and path.name in run_file.OWN:
            raise OptionError("is one of the run's own files", "name another", path)
        if whole.parent == folder and not path.exists():
            return
    files.check(path, force=force)


def _is_standard_output(path: Path) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(1)) and not path.samefile(os.devnull)
    except OSError:  # it is not there, or closed
        return False


def write(html: str, path: Path | None, *, force: bool) -> None:
    """Write a page to a file or, where none is named, to what stands in the terminal's place."""
    from ..files import write_bytes

    content = html.encode()
    if path is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        write_bytes(path, content, force=force)
    if len(content) > LARGE:
        print(
            f"the page has {len(content) / 1e6:.1f} MB, most of it the timeline: overlapscope report "
            "--format html --no-timeline leaves it out",
            file=sys.stderr,
        )


def report(built: Document, *, timeline: bool = True, extra: Sequence[Grid] = ()) -> str:
    """The report of a trace."""
    from ..figures import collective_sizes
    from ..report import html

    found = built.rates if built.bandwidth is None else built.bandwidth
    drawn = [collective_sizes(found)] if found.table["algbw_gbs"].nunique() > 1 else []
    return html.html(html.of_report(built, drawn, extra=extra, timeline=timeline))


def scaling(document: Scaling) -> str:
    """The report of a sweep over numbers of ranks."""
    from ..figures import scaling as draw
    from ..report import html

    return html.html(html.of_scaling(document, draw(document.scaling)))


def comparison(document: Comparison) -> str:
    """The comparison of two sides."""
    from ..report import html

    return html.html(html.of_comparison(document))
