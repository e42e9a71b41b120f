"""The sizes of a scaling report as one table."""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd

from ..analysis.scaling import TERMS
from .scaling import Document

__all__ = ["table"]


def table(document: Document) -> pd.DataFrame:
    """One row a number of ranks.

    ``tp``, ``path``, ``steps``; a step's ``T_ns``, ``ideal_ns`` and ``loss_ns``, means of steps and ranks, which may
    end in fractions; ``speedup``, ``efficiency``, the efficiencies of POP; and ``<term>_loss_ns``, which add up to the
    loss. The exact fractions stand in scale.json.
    """
    rows = [
        {
            "tp": size.account.size,
            "path": run.path,
            "steps": size.account.steps,
            "T_ns": float(size.time),
            "ideal_ns": float(size.ideal),
            "loss_ns": float(size.loss),
            "speedup": size.speedup,
            "efficiency": size.efficiency,
            **asdict(size.pop),
            **{f"{term}_loss_ns": float(size.term(term)) for term in TERMS},
        }
        for size, run in zip(document.scaling.sizes, document.runs, strict=True)
    ]
    return pd.DataFrame(rows)
