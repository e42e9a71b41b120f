"""Everything a report says, gathered once; the renderers only lay it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from ..analysis.names import tally, unclassified
from ..analysis.overlap import Overlap, overlap
from ..analysis.window import windows
from ..errors import OptionError
from ..trace import Provenance, Trace

__all__ = ["Document", "build"]


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """A report before it is laid out.

    Attributes
    ----------
    provenance : Provenance
        What was captured, and how ranks and clocks were set.
    overlap : Overlap
        The figures, for the ranks asked for.
    names, unclassified : DataFrame
        The tally of op names in the window, and those of them that no rule knew.
    gpus : tuple of str
        Distinct GPU names; empty where not recorded.
    n_ops_outside : int
        Ops of these ranks that do not touch the window: no figure counts them.
    warnings : tuple of str
        All that a reader must know before trusting a figure.
    """

    provenance: Provenance
    overlap: Overlap
    names: pd.DataFrame
    unclassified: pd.DataFrame
    gpus: tuple[str, ...]
    n_ops_outside: int
    warnings: tuple[str, ...]


def build(
    trace: Trace,
    *,
    window: str | None = None,
    ranks: Sequence[int] | None = None,
    step_pattern: str | None = None,
) -> Document:
    """Analyse a trace for a report.

    Raises
    ------
    OptionError
        The window cannot be used, or a rank is not in the trace.
    """
    trace = _only(trace, ranks)
    chosen = windows(trace, window, step_pattern)
    result = overlap(trace, chosen)
    names = tally(trace, chosen)
    unknown = unclassified(names)
    gpus = tuple(dict.fromkeys(g for g in trace.ranks["gpu"] if g is not None))
    outside = len(trace.ops) - int(result.ranks["n_ops"].sum())
    return Document(trace.provenance, result, names, unknown, gpus, outside, _warnings(trace, result, names))


def _only(trace: Trace, ranks: Sequence[int] | None) -> Trace:
    if not ranks:
        return trace
    present = trace.ranks["rank"].tolist()
    for rank in ranks:
        if rank not in present:
            raise OptionError(f"{rank} is not in the trace", f"it holds {_listed(present)}", "--rank")
    return Trace(
        trace.ops[trace.ops["rank"].isin(ranks)].reset_index(drop=True),
        trace.ranges[trace.ranges["rank"].isin(ranks)].reset_index(drop=True),
        trace.names,
        trace.lanes,
        trace.ranks[trace.ranks["rank"].isin(ranks)].reset_index(drop=True),
        trace.provenance,
    )


def _listed(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} only"
    return (
        f"ranks {', '.join(map(str, ranks))}"
        if len(ranks) <= 8
        else f"{len(ranks)} ranks, {ranks[0]} to {ranks[-1]}"
    )


def _warnings(trace: Trace, result: Overlap, names: pd.DataFrame) -> tuple[str, ...]:
    said = list(trace.provenance.warnings)
    if result.windows.note is not None:
        said.append(result.windows.note)
    if trace.provenance.lanes == "host":
        said.append(
            "no GPU work in this trace: it is a CPU run, analysed on its host threads (operators that compute, "
            "and gloo's collectives)"
        )
    if trace.provenance.link is not None:
        said.append(f"the link was paced ({trace.provenance.link}): communication times are simulated")
    said += [f"left out: {d.count:,} {d.what}: {d.why}" for d in trace.provenance.dropped]
    world = trace.provenance.world_size
    if world is not None and world > len(trace.ranks):
        said.append(f"{len(trace.ranks)} of {world} ranks are shown: means are over these")
    fused = names[names["fused_comm"].astype(bool)]
    if len(fused):
        said.append(
            f"{int(fused['count'].sum()):,} kernels compute and communicate at once and count as GEMM: "
            "their communication cannot be seen from outside"
        )
    return tuple(dict.fromkeys(said))
