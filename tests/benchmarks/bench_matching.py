"""What matching collectives over ranks costs, beside one sort of the same rows.

``python tests/benchmarks/bench_matching.py [--collectives 16000] [--ranks 8]`` prints a line for each way in which
they are told apart: by recorded numbers, by their order, and by order where some are missing at the edges; on one
clock and on a clock a rank. Matching is a sort and a merge, so the ratio must not grow with the rows.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from made import made
from overlapscope import Trace
from overlapscope.analysis.matching import match
from overlapscope.analysis.sequences import MOST_MISSING
from overlapscope.trace import COLLECTIVE_DTYPE, KIND_DTYPE, NA

REPEATS = 5


def simulated(collectives: int, ranks: int, numbered: bool) -> Trace:
    """All-reduces of 20 µs every 0.3 to 0.9 ms, to which ranks come up to 50 µs late."""
    rng = np.random.default_rng(1)
    begin = np.cumsum(rng.integers(300_000, 900_000, collectives))
    start = begin[:, None] + rng.integers(0, 50_000, (collectives, ranks))
    end = np.broadcast_to(start.max(axis=1, keepdims=True) + 20_000, start.shape)
    n = collectives * ranks
    few = made([{"rank": r, "start": 0, "end": 1, "kind": "comm"} for r in range(ranks)], ranks=ranks)
    ops = pd.DataFrame(
        {
            "start": start.T.ravel(),
            "end": end.T.ravel(),
            "rank": np.repeat(np.arange(ranks, dtype=np.int32), collectives),
            "lane": np.repeat(np.arange(ranks, dtype=np.int32), collectives),
            "name": np.full(n, few.ops["name"].iloc[0], np.int32),
            "kind": pd.Categorical(["comm"] * n, dtype=KIND_DTYPE),
            "collective": pd.Categorical(["all_reduce"] * n, dtype=COLLECTIVE_DTYPE),
            "launch": start.T.ravel() - 5_000,
            "bytes": np.full(n, 1 << 20),
            "group": np.full(n, ranks, np.int32),
            "communicator": np.zeros(n, np.int32),
            "sequence": np.tile(np.arange(collectives, dtype=np.int32), ranks) if numbered else np.int32(-1),
        }
    )
    absent = {c: few.ops[c].iloc[0] for c in few.ops.columns if c not in ops}
    ops = ops.assign(**absent)[list(few.ops.columns)].astype(few.ops.dtypes.to_dict())
    return replace(few, ops=ops)


def cut(trace: Trace, missing: int) -> Trace:
    """Every rank but the first began to record some collectives later."""
    place = trace.ops.groupby("rank").cumcount()
    return replace(trace, ops=trace.ops[(place >= missing) | (trace.ops["rank"] == 0)].reset_index(drop=True))


def on_clocks(trace: Trace) -> Trace:
    return replace(trace, ranks=trace.ranks.assign(clock=trace.ranks["rank"]))


def median_s(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def main() -> None:
    told = argparse.ArgumentParser(description=__doc__)
    told.add_argument("--collectives", type=int, default=16_000)
    told.add_argument("--ranks", type=int, default=8)
    asked = told.parse_args()
    numbered, plain = (simulated(asked.collectives, asked.ranks, n) for n in (True, False))
    cases = {
        "by number": numbered,
        "by order": plain,
        "by order, 40 missing": cut(plain, 40),
        "by order, a quarter missing": cut(plain, min(asked.collectives // 4, MOST_MISSING)),
        "by number, a clock a rank": on_clocks(numbered),
        "by order, a clock a rank": on_clocks(plain),
    }
    print(f"{asked.collectives:,} collectives on {asked.ranks} ranks, medians of {REPEATS}")
    print(f"{'':<28}{'matching':>10}{'one sort':>10}{'ratio':>8}")
    for name, trace in cases.items():
        found = match(trace)
        known = int((found.ops["latest"] != NA).sum())
        assert known >= (asked.collectives - MOST_MISSING) * asked.ranks, (
            f"{name}: {known} matched; {found.refused}"
        )
        rows = [trace.ops[c].to_numpy() for c in ("start", "launch", "rank")]
        taken, floor = (
            median_s(lambda trace=trace: match(trace)),
            median_s(lambda rows=rows: np.lexsort(rows)),
        )
        print(f"{name:<28}{taken:>8.3f} s{floor:>8.3f} s{taken / floor:>8.1f}")


if __name__ == "__main__":
    main()
