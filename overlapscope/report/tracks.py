"""What a viewer of timelines is told beside the trace itself: a report's figures, op by op."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import pandas as pd

from ..analysis.exposed import exposed, instance_ops
from ..analysis.window import find_steps
from .document import Document
from .opening import headline, setting

__all__ = ["Tracks", "of"]


class Tracks(TypedDict):
    """Arguments of `overlapscope.formats.perfetto.write`, where they are told."""

    instances: pd.DataFrame
    pieces: pd.DataFrame
    windows: pd.DataFrame
    steps: pd.DataFrame
    offsets: Mapping[int, int]
    about: Mapping[str, str]


def of(document: Document) -> Tracks:
    """The tables beside a report's trace; all times are ns on each rank's own clock, `offsets` ns it is ahead."""
    trace, result = document.trace, document.overlap
    spans: list[dict[str, Any]] = [
        {"rank": rank, "start": start, "end": end}
        for rank, window in result.windows.of_rank.items()
        for start, end in zip(window.start.tolist(), window.end.tolist(), strict=True)
    ]
    clocks = result.matching.clocks.of_rank
    return {
        "instances": result.instances.assign(op=instance_ops(trace, result)),
        "pieces": exposed(trace, result),
        "windows": pd.DataFrame(spans, columns=["rank", "start", "end"]),
        "steps": find_steps(trace, document.step_pattern),
        # A drift is left as it is: it would change what ops last.
        "offsets": {rank: clock.offset for rank, clock in clocks.items()},
        "about": {**dict(setting(document)), "figures": " ".join(headline(document))},
    }
