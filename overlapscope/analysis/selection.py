"""Which ops of a rank are meant: those of some kinds, those in a window."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..classify import Kind
from ..intervals import Int64, Spans, covered, union

__all__ = ["COMPUTE", "of_kind", "running", "touching"]

COMPUTE = (Kind.GEMM, Kind.ATTENTION, Kind.COMPUTE)
"""What counts as compute."""


def running(ops: pd.DataFrame, *kinds: Kind) -> Spans:
    """When at least one op of these kinds runs."""
    mask = of_kind(ops, *kinds)
    return union(ops["start"].to_numpy()[mask], ops["end"].to_numpy()[mask])


def of_kind(ops: pd.DataFrame, *kinds: Kind) -> npt.NDArray[np.bool_]:
    """Mask of the ops of these kinds."""
    code = {kind: i for i, kind in enumerate(Kind)}
    return np.isin(ops["kind"].cat.codes.to_numpy(), [code[kind] for kind in kinds])


def touching(window: Spans, start: Int64, end: Int64) -> npt.NDArray[np.bool_]:
    """Ops with a part in the window; an op without length counts where it lies in or at the edge of it."""
    if not len(window):
        return np.zeros(len(start), np.bool_)
    # One more instant on either side takes in an empty op at the very edge.
    empty = (start == end) & (covered(window, start - 1, end + 1) > 0)
    return np.asarray((covered(window, start, end) > 0) | empty, np.bool_)
