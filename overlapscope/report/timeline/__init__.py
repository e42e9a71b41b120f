"""One offline page with the timeline of all ranks: lanes, states, exposed communication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...files import write_text
from ...trace import Trace
from .. import document
from . import page
from .payload import payload

__all__ = ["MOST_LANES", "Timeline", "timeline"]

MOST_LANES = 400  # 64 ranks of six; more than a person scrolls through


@dataclass(frozen=True, slots=True, repr=False)
class Timeline:
    """The timeline of a trace.

    Attributes
    ----------
    payload : bytes
        What the script draws; see `overlapscope.report.timeline.payload`.
    title : str
        What it is of.
    """

    payload: bytes
    title: str

    def __repr__(self) -> str:
        return f"Timeline({self.title!r}, {len(self.payload):,} bytes)"

    def html(self) -> str:
        """One page that needs nothing else: no network, no other file."""
        return page.html(self.payload, self.title)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the page. Raises OptionError where the file exists and `force` is not set."""
        write_text(Path(path), self.html(), force=force)


def timeline(
    trace: Trace,
    window: str | None = None,
    *,
    ranks: Sequence[int] | None = None,
    step_pattern: str | None = None,
    align: str = "collectives",
    max_lanes: int = MOST_LANES,
) -> Timeline:
    """The timeline of a trace, as one page for a browser.

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
    said = document.build(trace, window=window, ranks=ranks, step_pattern=step_pattern, align=align)
    return Timeline(payload(said, most_lanes=max_lanes), page.title(said.provenance))
