"""What a run directory holds, for those who write one and those who only read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["OWN", "RUN_FILE", "SCALE_FILE", "TRACE_FILE", "read"]

TRACE_FILE = "trace.sqlite"
RUN_FILE = "run.json"
SCALE_FILE = "scale.json"  # of a sweep over numbers of ranks, beside its runs
OWN = frozenset({TRACE_FILE, RUN_FILE, SCALE_FILE, "kineto"})
"""What is written there, and nothing else may be."""


def read(folder: Path) -> dict[str, Any] | None:
    """What run.json says; None where there is none of a run: any program may have a file of that name."""
    try:
        data = json.loads((folder / RUN_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    known = isinstance(data, dict) and "schema_version" in data and "workload" in data
    return data if known else None
