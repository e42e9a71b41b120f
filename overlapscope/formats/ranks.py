"""Which process-device pair is which rank, and the clocks of several files brought together."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ..errors import InputError
from ..trace import (
    NA,
    NOT_ALIGNED,
    RANK_COLUMNS,
)
from .raw import RawTrace, Unit

__all__ = ["RankOf", "bring_clocks_together", "number_ranks"]

RankOf = dict[tuple[int, int], int]
"""Rank by (file, unit)."""


def number_ranks(files: Sequence[RawTrace]) -> tuple[pd.DataFrame, RankOf, str, bool]:
    """Recorded ranks where every unit has one; else the order of (file, process, device). And which of the two."""
    listed = [(f, u, unit) for f, file in enumerate(files) for u, unit in enumerate(file.units)]
    recorded = all(unit.rank is not None for _, _, unit in listed)
    if recorded:
        rank_of = {(f, u): int(unit.rank or 0) for f, u, unit in listed}
        how = "; ".join(dict.fromkeys(file.ranks_from or "" for file in files))
        _refuse_one_rank_twice(files, listed)
    else:
        listed.sort(
            key=lambda item: (
                item[0],
                item[2].order,
                item[2].pid or 0,
                item[2].process,
                -1 if item[2].device is None else item[2].device,
            )
        )
        rank_of = {(f, u): rank for rank, (f, u, _) in enumerate(listed)}
        known = sum(unit.rank is not None for _, _, unit in listed)
        order = (
            "files in natural order, then process, then device" if len(files) > 1 else "process, then device"
        )
        how = f"not recorded: numbered by {order}"
        if len(files) == 1 and files[0].numbered is not None:
            how = files[0].numbered
        elif known:
            how = f"recorded for {known} of {len(listed)} only, so all are numbered by {order}"
    rows = sorted(
        (
            rank_of[f, u],
            NA if unit.device is None else unit.device,
            NA if unit.pid is None else unit.pid,
            unit.gpu,
            files[f].source.path,
            f << 32 | unit.clock,
        )
        for f, u, unit in listed
    )
    # As objects, since a path that is not UTF-8 is no text to pandas.
    ranks = pd.DataFrame(rows, columns=list(RANK_COLUMNS), dtype=object)
    ranks["clock"] = pd.factorize(ranks["clock"])[0]
    return ranks.astype(dict.fromkeys(("rank", "device", "pid"), "int64")), rank_of, how, recorded


def _refuse_one_rank_twice(files: Sequence[RawTrace], listed: list[tuple[int, int, Unit]]) -> None:
    seen: dict[int, str] = {}
    for f, _, unit in listed:
        path = files[f].source.path
        assert unit.rank is not None
        if unit.rank in seen:
            raise InputError(
                f"says it is rank {unit.rank}, and so does {seen[unit.rank]}",
                "give one file per rank",
                path,
            )
        seen[unit.rank] = path


def bring_clocks_together(files: Sequence[RawTrace], session_clock: bool) -> tuple[int | None, str]:
    """Shift every file to the earliest one's time 0, by their wall clocks."""
    if len(files) == 1:
        return files[0].origin_ns, files[0].clock or "one file, one clock"
    if not session_clock:
        return None, f"{NOT_ALIGNED}, as asked for: each file's own; times of ranks do not compare"
    origins = [f.origin_ns for f in files]
    known = [o for o in origins if o is not None]
    if len(known) < len(files):
        return None, f"{NOT_ALIGNED}: not every file records its wall clock; times of ranks do not compare"
    first = min(known)
    for file, origin in zip(files, known, strict=True):
        file.shift(origin - first)
    return first, "by each file's recorded wall clock"
