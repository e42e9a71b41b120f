"""Everything a report says, gathered once; the renderers only lay it out.

What not every layout shows is measured when it is first asked for: a large trace should not pay for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral

import pandas as pd

from ..analysis.bandwidth import Bandwidth, bandwidth
from ..analysis.bounds import Bound, bounds
from ..analysis.contention import Contention, contention
from ..analysis.findings import Facts, Finding, of_facts
from ..analysis.matching import match
from ..analysis.names import tally, unclassified
from ..analysis.overlap import Overlap, overlap
from ..analysis.rates import Peak, Rates, rates
from ..analysis.regions import by_range, by_stream
from ..analysis.steps import Steps, steps
from ..analysis.stragglers import stragglers
from ..analysis.window import windows
from ..errors import OptionError
from ..trace import NA, Provenance, Trace

__all__ = ["Document", "build", "only"]


@dataclass(frozen=True, eq=False)
class Document:
    """A report before it is laid out.

    Attributes
    ----------
    provenance : Provenance
        What was captured, and how ranks and clocks were set.
    overlap : Overlap
        The figures, for the ranks asked for.
    stragglers : DataFrame
        Who was waited for.
    bounds : mapping of str to Bound
        What could be gained at most, by ideal.
    names, unclassified : DataFrame
        The tally of op names in the window, and those of them that no rule knew.
    gpus : tuple of str
        Distinct GPU names; empty where not recorded.
    n_ops_outside : int
        Ops of these ranks that do not touch the window: no figure counts them.
    n_ranks : int
        How many ranks the program has, as far as the trace tells; more than are shown where only some are.
    bandwidth : Bandwidth or None
        Of a sweep over sizes: what each takes, always of all ranks.
    rates : Rates
        Of any other program: what its collectives take, size by size, always of all ranks.
    peak : Peak or None
        What the link can carry, where rates stand beside it.
    by : str or None
        What the report is broken down by, if asked: range, stream, collective, step or rank.
    warnings : tuple of str
        All that a reader must know before trusting a figure.
    trace : Trace
        What is reported on: the ranks asked for.
    step_pattern : str or None
        Names of step ranges, if given.
    peak_gbs : float or None
        What the link between the ranks can carry each way, if known.
    """

    provenance: Provenance
    overlap: Overlap
    stragglers: pd.DataFrame
    bounds: Mapping[str, Bound]
    names: pd.DataFrame
    unclassified: pd.DataFrame
    gpus: tuple[str, ...]
    n_ops_outside: int
    n_ranks: int
    bandwidth: Bandwidth | None
    rates: Rates
    peak: Peak | None
    by: str | None
    warnings: tuple[str, ...]
    trace: Trace
    step_pattern: str | None
    peak_gbs: float | None

    @property
    def per(self) -> str:
        """What a figure is of, in a word."""
        return "step" if self.overlap.windows.mode == "steps" else "window"

    @property
    def unseen(self) -> str | None:
        """What communicates in the program, or may, and is in no figure; None: nothing that is known of."""
        windows, graphs = self.overlap.windows, self.trace.graphs
        ran = [
            spans if windows.mode == "whole" else spans & windows.of_rank[r] for r, spans in graphs.items()
        ]
        if any(map(len, ran)):
            return "CUDA graphs"
        return "MPI" if (self.trace.ranges["domain"] == "MPI").any() else None

    @property
    def n_steps(self) -> int:
        """Steps over all ranks; where there are none, one window a rank."""
        return sum(self.overlap.windows.n_steps.values()) or len(self.overlap.ranks)

    @cached_property
    def contention(self) -> Contention:
        """How much compute is slowed down by the communication that it hides."""
        return contention(self.trace, self.overlap.windows)

    @cached_property
    def steps(self) -> Steps:
        """The figures of each step; without rows where the window is not of steps."""
        return steps(self.trace, self.step_pattern) if self.overlap.windows.mode == "steps" else Steps.none()

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What costs time, worst first; of a sweep, which measures exchanges and nothing else, nothing."""
        if self.bandwidth is not None:
            return ()
        return of_facts(
            Facts(
                self.trace,
                self.overlap,
                self.stragglers,
                self.contention,
                self.steps,
                self.peak_gbs,
                self.step_pattern,
            )
        )

    @cached_property
    def ranges(self) -> pd.DataFrame:
        """The figures by range of the program."""
        return by_range(self.trace, self.overlap, self.step_pattern)

    @cached_property
    def streams(self) -> pd.DataFrame:
        """The figures by stream."""
        return by_stream(self.trace, self.overlap)

    @cached_property
    def table(self) -> pd.DataFrame | None:
        """What was asked for, row by row; by range also where nothing was asked and the trace has ranges."""
        if self.by == "range" or (self.by is None and len(self.trace.ranges)):
            return self.ranges
        if self.by == "stream":
            return self.streams
        if self.by == "step":
            return self.steps.table
        return {"collective": self.overlap.collectives, "rank": self.overlap.ranks}.get(self.by or "")


def build(
    trace: Trace,
    *,
    window: str | None = None,
    ranks: Sequence[int] | None = None,
    step_pattern: str | None = None,
    by: str | None = None,
    align: str = "collectives",
    peak: Peak | None = None,
) -> Document:
    """Analyse a trace for a report.

    `peak` is what the link between the ranks can carry, where that is known.

    Ranks that are not asked for are still those that the others waited for.

    Raises
    ------
    OptionError
        The window cannot be used, a rank is not in the trace, or there are no steps to show one by one.
    """
    n_ranks = max(len(trace.ranks), trace.provenance.world_size or 0)
    matching = match(trace, align)
    every, trace = trace, only(trace, ranks)
    chosen = windows(trace, window, step_pattern)
    of_all = windows(every, window, step_pattern) if ranks else chosen
    sweep = bandwidth(every, of_all, peak.among(every.ranks) if peak else None, matching.clocks)
    by_size = Rates.none() if sweep else rates(every, matching, of_all, peak)
    kept = every.ops["rank"].isin(trace.ranks["rank"]).to_numpy()
    result = overlap(trace, chosen, matching.only(kept))
    names = tally(trace, chosen)
    if by == "step" and chosen.mode != "steps":
        raise OptionError("the window is not of steps", "use --window steps", "--by step")
    return Document(
        provenance=trace.provenance,
        overlap=result,
        stragglers=stragglers(result),
        bounds=bounds(result.ranks),
        names=names,
        unclassified=unclassified(names),
        gpus=tuple(dict.fromkeys(trace.ranks["gpu"].dropna())),
        n_ops_outside=len(trace.ops) - int(result.ranks["n_ops"].sum()),
        n_ranks=n_ranks,
        bandwidth=sweep,
        rates=by_size,
        peak=peak if (sweep or by_size).table["peak_gbs"].notna().any() else None,
        by=by,
        warnings=_warnings(trace, result, names, n_ranks, sweep) + by_size.notes,
        trace=trace,
        step_pattern=step_pattern,
        peak_gbs=peak.among(every.ranks) if peak else None,
    )


def only(trace: Trace, ranks: Sequence[int] | None) -> Trace:
    """The trace with some of its ranks; all of them where that is None or empty. Raises OptionError."""
    if not _are_numbers(ranks):
        raise OptionError(f"{ranks!r} is no list of ranks", "give their numbers, such as [0, 1]", "ranks")
    if not ranks:
        return trace
    present = trace.ranks["rank"].tolist()
    for rank in ranks:
        if rank not in present:
            raise OptionError(f"{rank} is not in the trace", f"it holds {_listed(present)}", "--rank")

    def some(table: pd.DataFrame) -> pd.DataFrame:
        return table[table["rank"].isin(ranks)].reset_index(drop=True)

    ops = some(trace.ops)
    if not len(ops):
        raise OptionError(
            f"no op of {_listed(ranks)} could be used", "name another, or leave it out", "--rank"
        )
    return replace(trace, ops=ops, ranges=some(trace.ranges), ranks=some(trace.ranks))


def _are_numbers(ranks: object) -> bool:
    return ranks is None or (
        isinstance(ranks, Sequence) and all(isinstance(rank, Integral) for rank in ranks)
    )


def _listed(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) <= 8:
        return f"ranks {', '.join(map(str, ranks))}"
    return f"{len(ranks)} ranks, {ranks[0]} to {ranks[-1]}"


def _warnings(
    trace: Trace, result: Overlap, names: pd.DataFrame, n_ranks: int, sizes: Bandwidth | None
) -> tuple[str, ...]:
    told = trace.provenance
    said = list(told.warnings)
    if result.windows.note is not None:
        said.append(result.windows.note)
    if told.from_ranges:
        said += [
            "made from the program's NVTX ranges alone, nothing else was recorded: compute is the time inside "
            "ranges marked as sharded or replicated, whatever runs there; GEMM and attention are not told apart",
            "communication lasts from its call to the end of its wait, also where it was done earlier; what runs "
            "outside marked ranges counts as idle",
        ]
    elif told.lanes == "host":
        said.append(
            "no GPU work in this trace: it is a CPU run, analysed on its host threads (operators that compute, "
            "and the collectives of gloo); idle is what no recorded operator fills: Python, launching, waiting for a "
            "core"
        )
    if told.link is not None:
        said.append(f"the link was paced ({told.link}): communication times are simulated")
    said += [f"left out: {d.count:,} {d.what}: {d.why}" for d in told.dropped]
    if n_ranks > len(trace.ranks) and sizes is None:
        said.append(f"only {len(trace.ranks)} of {n_ranks} ranks are in these figures")
    said += _window_warnings(trace, result)
    mpi = int((trace.ranges["domain"] == "MPI").sum())
    if mpi:
        said.append(f"{mpi:,} MPI calls on the host are in the trace; no figure counts them")
    fused = names[names["fused_comm"].astype(bool)]
    if len(fused):
        said.append(
            f"{int(fused['count'].sum()):,} kernels compute and communicate at once and count as GEMM: "
            "their communication cannot be seen from outside"
        )
    said += _untold(result, n_ranks) if sizes is None else sizes.notes
    return tuple(dict.fromkeys(said))


def _untold(result: Overlap, n_ranks: int) -> list[str]:
    """Of which communication waiting cannot be told from transfer, and why."""
    if not result.ranks["comm_ns"].sum():
        return []
    if n_ranks == 1:
        return ["communication includes waiting for ranks that come late, and this trace has one rank alone"]
    return [
        f"waiting for late ranks and transfer are not told apart for {r.count:,} {r.what} ops: {r.why}"
        for r in result.matching.refused
    ]


def _window_warnings(trace: Trace, result: Overlap) -> list[str]:
    """Ranks that the window misses, and ops that are in a step only because nothing says otherwise."""
    said = []
    empty = result.ranks.loc[result.ranks["n_ops"] == 0, "rank"].tolist()
    if empty:
        said.append(f"no op of {_listed(empty)} lies in the window: they count as idle in every mean")
    unlaunched = int((trace.ops["launch"] == NA).sum())
    if result.windows.mode == "steps" and unlaunched:
        said.append(
            f"{unlaunched:,} ops have no launch record: they belong to the step in which they start, though they "
            "may have been launched before it"
        )
    return said
