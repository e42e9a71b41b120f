"""What stands between the trace and the truth: stalls, graphs, unknown names, too few steps."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from ...intervals import EMPTY, covered, intersect, measure, subtract, union
from ..steps import FEWEST
from .finding import Facts, Found

__all__ = ["graphs_traced_as_a_whole", "profiler_overhead", "too_few_steps", "unknown_kernels"]


def profiler_overhead(facts: Facts) -> Iterator[Found]:
    """Idle time in which the profiler held up the program. Cost: idle under its recorded stalls."""
    idle = {}
    for rank, _, ops, window in facts.of_ranks():
        stalls = facts.trace.stalls.get(rank, EMPTY)
        if len(stalls):
            busy = union(ops["start"].to_numpy(), ops["end"].to_numpy()) | facts.trace.graphs.get(rank, EMPTY)
            idle[rank] = measure(subtract(intersect(stalls, window), busy))
    yield Found(
        "profiler-overhead",
        "The profiler holds the program up",
        sum(idle.values()),
        tuple(rank for rank, ns in idle.items() if ns),
        {"idle_ns": facts.each(sum(facts.column("idle_ns").values()))},
        "a run without the profiler has none of it: record fewer, later steps and less of each (nsys --sample=none "
        "--cpuctxsw=none, no backtraces; torch.profiler without with_stack)",
    )


def graphs_traced_as_a_whole(facts: Facts) -> Iterator[Found]:
    """Time in which graphs ran whose kernels are not in the trace.

    Cost: the union of their replays in the window; of a whole trace all of them, since its window goes from op to op
    and theirs are not known.
    """
    windows = facts.overlap.windows
    ran = {
        rank: measure(spans if windows.mode == "whole" else intersect(spans, windows.of_rank[rank]))
        for rank, spans in facts.trace.graphs.items()
        if rank in windows.of_rank
    }
    yield Found(
        "graph-trace",
        "CUDA graphs of which nothing but their time is known",
        sum(ran.values()),
        tuple(rank for rank, ns in ran.items() if ns),
        {},
        "record the kernels inside: nsys profile --cuda-graph-trace=node",
    )


def unknown_kernels(facts: Facts) -> Iterator[Found]:
    """Kernels that no rule knows count as compute: if one communicates, every figure changes.

    Cost: per rank the time in which at least one of them runs.
    """
    unknown = facts.trace.names["rule"].isna().to_numpy()
    ran, time = {}, np.zeros(len(unknown), np.int64)
    of, weight = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for rank, first, ops, window in facts.of_ranks() if unknown.any() else ():
        name = ops["name"].to_numpy()
        at = np.flatnonzero(unknown[name])
        start, end = (ops[c].to_numpy()[at] for c in ("start", "end"))
        ran[rank] = measure(intersect(union(start, end), window))
        of.append(first + at)
        weight.append(covered(window, start, end))
        np.add.at(time, name[at], weight[-1])
    ns = np.concatenate(weight)
    yield Found(
        "unknown-kernels",
        "Kernels that no rule knows count as compute",
        sum(ran.values()),
        tuple(rank for rank, ns in ran.items() if ns),
        {
            "n_names": int(np.count_nonzero(time)),
            "n_ops": int(np.count_nonzero(ns)),
            "name": str(facts.trace.names["string"].iloc[int(np.argmax(time))]) if time.any() else None,
        },
        "overlapscope kernels lists them; say in a file of rules (--rules) what they are, above all "
        "if one communicates",
        np.concatenate(of),
        ns,
    )


def too_few_steps(facts: Facts) -> Iterator[Found]:
    """Fewer steps than tell a usual one from an unusual one, and they differ.

    Cost: per rank half the distance of its longest and its shortest step, of ranks with two to four steps.
    """
    total, spread, ranks = Fraction(0), [], []
    for rank, rows in facts.steps.table.groupby("rank", sort=True):
        if 2 <= len(rows) < FEWEST:
            shortest, longest = int(rows["window_ns"].min()), int(rows["window_ns"].max())
            # A figure of one step: as a sum over steps it counts once for each.
            total += Fraction(longest - shortest, 2) * len(rows)
            spread.append((longest, shortest, len(rows)))
            ranks.append(int(str(rank)))
    longest, shortest, steps = (
        (round(float(np.mean(values))) for values in zip(*spread, strict=True)) if spread else (0, 0, 0)
    )
    yield Found(
        "too-few-steps",
        "Too few steps to tell",
        total,
        tuple(ranks),
        {"n_steps": steps, "shortest_ns": shortest, "longest_ns": longest},
        f"record {2 * FEWEST} steps after the warm-up (overlapscope run --steps {2 * FEWEST} --warmup 3; "
        "torch.profiler.schedule): from five on the report says which stand out",
    )
