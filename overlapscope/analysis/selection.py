"""Which ops of a rank are meant: those of some kinds, those in a window."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..classify import Kind
from ..intervals import Int64, Spans, meets, union

__all__ = ["COMPUTE", "of_kind", "running", "touching"]

COMPUTE = (Kind.GEMM, Kind.ATTENTION, Kind.COMPUTE)
"""What counts as compute."""


def running(ops: pd.DataFrame, *kinds: Kind) -> Spans:
    """When at least one op of these kinds runs."""
    mask = of_kind(ops, *kinds)
    return union(ops["start"].to_numpy()[mask], ops["end"].to_numpy()[mask])


def of_kind(ops: pd.DataFrame, *kinds: Kind) -> npt.NDArray[np.bool_]:
    """Mask of the ops of these kinds."""
    wanted = np.array([kind in kinds for kind in Kind])
    return np.asarray(wanted[ops["kind"].cat.codes.to_numpy()], np.bool_)


def touching(window: Spans, start: Int64, end: Int64) -> npt.NDArray[np.bool_]:
    """Ops with a part in the window; an op without length counts where it lies in or at the edge of it."""
    inside = meets(window, start, end)
    # One more instant on either side takes in an empty op at the very edge.
    empty = np.flatnonzero(start == end)
    inside[empty] = meets(window, start[empty] - 1, end[empty] + 1)
    return inside
