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
    return {
        "instances": result.instances.assign(op=instance_ops(trace, result)),
        "pieces": exposed(trace, result),
        "windows": pd.DataFrame(spans, columns=["rank", "start", "end"]),
        "steps": find_steps(trace, document.step_pattern),
        "offsets": result.matching.clocks.ahead(result.windows.of_rank),
        "about": {**dict(setting(document)), "figures": " ".join(headline(document))},
    }
