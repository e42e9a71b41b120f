"""The report in a terminal: what was captured, a headline, where the time went, and what to mistrust."""

from __future__ import annotations

import io
from pathlib import PurePath

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..analysis.bandwidth import Bandwidth
from ..analysis.bounds import Bound
from . import bandwidth
from .document import Document
from .words import duration, escape, percent, scale, shortened, size

__all__ = ["headline", "render", "setting"]

WIDTH = 80
"""Columns; what a terminal has at least, and what a mail or an issue shows without wrapping."""

MOST_RANKS = 16
MOST_UNKNOWN = 8
MOST_WAITED_FOR = 8
MOST_SIZES = 8
"""Rows shown; the rest is counted, and the JSON has it."""

MOST_STEPS = 3
"""Named in the line of the window."""

MOST_OF_A_NAME = 160  # characters, three lines of the column; what is cut shows as an ellipsis

LABEL = 11  # columns of the labels on the left

HEADED = box.Box("    \n    \n ── \n    \n    \n ── \n    \n    \n")
"""A rule under the head and between sections, nothing else."""


def render(document: Document, *, colour: bool = False) -> str:
    """The report as text of 80 columns, with ANSI colour if asked for."""
    console = Console(
        file=io.StringIO(),
        width=WIDTH,
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )
    _captured(console, document)
    console.print()
    first, *rest = headline(document)
    console.print(Text(first, style="bold"))
    for line in rest:
        console.print(Text(line))
    if document.bandwidth is not None:
        _sizes(console, document.bandwidth)
    else:
        _ranks(console, document)
        _collectives(console, document)
        _waited_for(console, document)
        _by_size(console, document)
    _unknown(console, document)
    _warnings(console, document)
    written = console.file
    assert isinstance(written, io.StringIO)
    return _without_double_gaps(written.getvalue())


def _without_double_gaps(text: str) -> str:
    """Tables bring empty lines of their own; one between two parts is enough."""
    lines: list[str] = []
    for line in text.splitlines():
        line = line.rstrip()
        if line or (lines and lines[-1]):
            lines.append(line)
    return "\n".join(lines).rstrip() + "\n"


# -- what was captured ---------------------------------------------------------------------------------------


def _captured(console: Console, document: Document) -> None:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=LABEL, no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for label, text in setting(document):
        table.add_row(label, Text(escape(text)))
    console.print(table)


def setting(document: Document) -> list[tuple[str, str]]:
    """What was captured and what is analysed: (label, words)."""
    said, ranks = document.provenance, document.overlap.ranks
    lines = [("trace", _sources(document))]
    if said.command is not None:
        lines.append(("made by", said.command))
    lines.append(("recorded by", "; ".join(dict.fromkeys(s.tool for s in said.sources))))
    who = f"{len(ranks)} rank{'s' * (len(ranks) != 1)}"
    if document.n_ranks != len(ranks):
        who += f" of {document.n_ranks}"
    unnamed = "CPU" if said.lanes == "host" else "GPUs of unrecorded name"
    on = ", ".join(document.gpus) if document.gpus else unnamed
    lines.append(("ranks", f"{who} on {on}, {said.ranks_from}"))
    if len(said.sources) > 1 or document.overlap.matching.clocks.how:
        aligned = document.overlap.matching.clocks.how
        lines.append(("clocks", said.clock + (f"; {aligned}" if aligned else "")))
    lines.append(("window", _window(document)))
    if said.link is not None:
        lines.append(("link", f"paced: {said.link}"))
    if document.peak is not None:
        lines.append(("peak", document.peak.how))
    return lines


def _sources(document: Document) -> str:
    sources = document.provenance.sources
    paths = [PurePath(s.path) for s in sources]
    formats = dict.fromkeys(
        f"{'nsys' if s.format == 'nsys' else 'PyTorch'} schema {s.schema}" for s in sources if s.schema
    )
    schema = f" ({', '.join(formats)})" if formats else ""
    if len(paths) == 1:
        return f"{paths[0]}{schema}"
    last = paths[-1].name if paths[-1].name != paths[0].name else "/".join(paths[-1].parts[-2:])
    return f"{len(paths)} files, {paths[0]} to {last}{schema}"


def _window(document: Document) -> str:
    window = document.overlap.windows
    spans = [w for w in window.of_rank.values() if len(w)]
    bounds = f"{_ms(min(int(w.start[0]) for w in spans))} to {_ms(max(int(w.end[-1]) for w in spans))} ms"
    mean = float(document.overlap.ranks["window_ns"].mean())
    outside = f"; {document.n_ops_outside:,} ops lie outside" if document.n_ops_outside else ""
    if window.mode == "whole":
        return f"whole trace, each rank's first op to its last, {bounds}{outside}"
    if window.mode == "range":
        return f"{bounds}{outside}"
    n = len(window.steps)
    names = window.steps[0] if n == 1 else f"{window.steps[0]} to {window.steps[-1]}"
    text = (
        f"{n} steps ({names}), {duration(mean)} together" if n > 1 else f"1 step ({names}), {duration(mean)}"
    )
    text += f", {bounds}"
    if window.left_out:
        text += f"; {len(window.left_out)} warm-up step{'s' * (len(window.left_out) > 1)} left out"
    if window.without_ops:
        n, some = len(window.without_ops), ", ".join(window.without_ops[:MOST_STEPS])
        more = ", ..." if n > MOST_STEPS else ""
        where = " on some rank" if len(window.n_steps) > 1 else ""
        text += f"; {n} step{'s' * (n > 1)} without ops{where} ({some}{more}) not counted"
    return f"{text}{outside}"


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f}"


# -- headline ------------------------------------------------------------------------------------------------


def headline(document: Document) -> list[str]:
    """What a tired person needs: how much is hidden, what is exposed, and what hiding it could gain at most.

    Of a sweep, which hides nothing and is not meant to, how fast it is.
    """
    if document.bandwidth is not None:
        return bandwidth.headline(document.bandwidth)
    ranks = document.overlap.ranks
    total, comm, exposed, hidden = (
        int(ranks[f"{c}_ns"].sum()) for c in ("window", "comm", "exposed_comm", "overlap")
    )
    if comm == 0:
        return ["No communication was recorded in this window: nothing to hide."]
    n = document.n_steps
    what = "step" if document.overlap.windows.mode == "steps" else "window"
    lines = [
        f"{percent(hidden, comm)} of the communication is hidden under compute.",
        f"Exposed: {duration(exposed / n)} of communication per {what}, {percent(exposed, total)} of the {what}.",
        *_waiting(document, n),
    ]
    if exposed == 0:
        return lines
    bound = document.bounds["all_hidden"]
    most = bound.gain_ns
    assert most is not None
    gain = gained(bound)
    if most < exposed:
        lines.append(f"There is compute to hide {duration(most / n)} of it: that could gain {gain}.")
    else:
        lines.append(f"Hiding all of it could gain {gain}.")
    return lines


def _waiting(document: Document, n: int) -> list[str]:
    """How much of the exposed time is waiting for late ranks; nothing where that cannot be told."""
    ranks = document.overlap.ranks
    wait, wire = int(ranks["exposed_wait_ns"].sum()), int(ranks["exposed_wire_ns"].sum())
    unsplit = int(ranks["exposed_unsplit_ns"].sum())
    if not wait + wire:
        return []
    if not wait and not unsplit:
        return ["None of it is waiting for ranks that came late."]
    line = f"Of it {duration(wait / n)} is waiting for ranks that came late, {duration(wire / n)} transfer"
    return [f"{line}; {duration(unsplit / n)} could be either." if unsplit else f"{line}."]


IDEAL_WORDS = {
    "no_skew": "no rank had to wait for another",
    "fast_link": "the link were infinitely fast",
    "all_hidden": "communication hid wherever compute is",
}


def gained(bound: Bound) -> str:
    """A bound in words: ``at most 13.0 % (1.15x)``."""
    if bound.gain_ns is None:
        return "n/a"
    if bound.gain_ns == 0:
        return "nothing"
    if bound.speedup is None:
        return "all of it"
    return f"at most {percent(bound.gain_ns, bound.window_ns)} ({bound.speedup:.2f}x)"


# -- tables --------------------------------------------------------------------------------------------------

PARTS = ("window_ns", "compute_ns", "exposed_comm_ns", "exposed_memory_ns", "idle_ns", "comm_ns")


def _table(console: Console, title: str, columns: list[str]) -> Table:
    console.print()
    console.print(Text(title, style="bold"))
    table = Table(box=HEADED, padding=(0, 1, 0, 0), pad_edge=False)
    for at, column in enumerate(columns):
        table.add_column(column, justify="right" if at else "left", no_wrap=at > 0)
    return table


def _sizes(console: Console, found: Bandwidth) -> None:
    for title, head, rows in bandwidth.tables(found):
        console.print()
        console.print(Text(title, style="bold"))
        console.print()
        console.print(Text(bandwidth.laid_out(head, rows, WIDTH), no_wrap=True, overflow="ignore"))


def _of(document: Document) -> str:
    """What the figures of the tables cover, where that is more than one step."""
    n = len(document.overlap.windows.steps)
    return f", {n} steps together" if n > 1 else ""


def _ranks(console: Console, document: Document) -> None:
    ranks = document.overlap.ranks
    unit = scale(ranks["window_ns"].max())
    head = ["rank", "window", "= compute", "+ exposed\ncomm", "+ exposed\nmemory", "+ idle", "comm", "hidden"]
    table = _table(console, f"Where the time went ({unit[1]}{_of(document)})", head)
    for row in ranks.head(MOST_RANKS).to_dict("records"):
        figures = (_number(row[p], unit) for p in PARTS)
        table.add_row(str(row["rank"]), *figures, percent(row["overlap_ns"], row["comm_ns"]))
    mean = ranks[[*PARTS, "overlap_ns"]].mean()
    if len(ranks) > 1:
        table.add_section()
        hidden = percent(mean["overlap_ns"], mean["comm_ns"])
        table.add_row("mean", *(_number(mean[p], unit) for p in PARTS), hidden)
    table.add_row("share", *(percent(mean[p], mean["window_ns"]) for p in PARTS), "")
    console.print(table)
    if len(ranks) > MOST_RANKS:
        console.print(Text(f"{len(ranks) - MOST_RANKS} more ranks: --format csv lists all", style="dim"))
    console.print()
    console.print(Text(_kinds(document)))
    _bounds(console, document)


def _bounds(console: Console, document: Document) -> None:
    """What could be gained at most, all else as recorded; nothing where nothing is exposed."""
    if not document.overlap.ranks["exposed_comm_ns"].sum():
        return
    console.print()
    console.print(Text("Upper bounds of the gain, all else as recorded, if", style="bold"))
    for ideal, bound in document.bounds.items():
        console.print(Text(f"  {IDEAL_WORDS[ideal]:<40}{gained(bound)}"))


def _kinds(document: Document) -> str:
    """What the compute consists of, since GEMMs are what people split."""
    if document.provenance.from_ranges:
        return "Compute: of what kind is not known."
    total = document.overlap.ranks[
        ["compute_ns", "gemm_ns", "attention_ns", "gemm_overlap_ns", "comm_ns"]
    ].sum()
    parts = [f"{percent(total['gemm_ns'], total['compute_ns'])} GEMM"]
    if total["attention_ns"]:
        parts.append(f"{percent(total['attention_ns'], total['compute_ns'])} attention")
    text = f"Compute: {', '.join(parts)}."
    if total["comm_ns"]:
        text += f" Communication under GEMMs: {percent(total['gemm_overlap_ns'], total['comm_ns'])}."
    return text


def _collectives(console: Console, document: Document) -> None:
    table = document.overlap.collectives
    if not len(table):
        return
    unit = scale(document.overlap.ranks["window_ns"].max())
    n = len(document.overlap.ranks)
    figures = ["count", "union_ns", "overlap_ns", "exposed_ns", "exposed_unsplit_ns"]
    by_collective = table.groupby("collective")
    sums = by_collective[figures].sum()
    split = by_collective[["exposed_wait_ns", "exposed_wire_ns"]].sum(min_count=1)
    mean = f", mean of {n} ranks" if n > 1 else ""
    out = _table(
        console,
        f"Communication ({unit[1]}{_of(document)}{mean})",
        ["collective", "count", "bytes", "time", "exposed", "= waiting", "+ transfer", "hidden"],
    )
    for name, row in sums.sort_values("exposed_ns", ascending=False).iterrows():
        nbytes = table.loc[table["collective"] == name, "bytes"]
        out.add_row(
            str(name),
            _count(row["count"] / n),
            "n/a" if nbytes.isna().any() else size(int(nbytes.sum()) / n),
            *(_number(row[c] / n, unit) for c in ("union_ns", "exposed_ns")),
            *_split(split.loc[name], int(row["exposed_unsplit_ns"]), n, unit),
            percent(row["overlap_ns"], row["union_ns"]),
        )
    console.print(out)


def _split(parts: pd.Series, unsplit: int, n: int, unit: tuple[int, str]) -> list[str]:
    """Waiting and transfer; n/a where of any exposed time it is not known which it is."""
    if unsplit or parts.isna().any():
        return ["n/a", "n/a"]
    return [_number(int(part) / n, unit) for part in parts]


def _waited_for(console: Console, document: Document) -> None:
    """By whom the others were kept waiting; nothing where nobody was."""
    table = document.stragglers[document.stragglers["cost_ns"] > 0]
    if not len(table):
        return
    unit = scale(document.overlap.ranks["window_ns"].max())
    title = f"Who was waited for ({unit[1]}{_of(document)})"
    out = _table(console, title, ["rank", "came last", "later than the next", "others waited, exposed"])
    for row in (
        table.sort_values("cost_ns", ascending=False, kind="stable").head(MOST_WAITED_FOR).to_dict("records")
    ):
        times = f"{row['last']:,} of {row['collectives']:,}"
        out.add_row(str(row["rank"]), times, _number(row["late_ns"], unit), _number(row["cost_ns"], unit))
    console.print(out)
    if len(table) > MOST_WAITED_FOR:
        console.print(Text(f"{len(table) - MOST_WAITED_FOR} more ranks: the JSON lists all", style="dim"))


def _by_size(console: Console, document: Document) -> None:
    """What the collectives take, size by size; nothing where no bytes are known."""
    shown = bandwidth.by_size(document.rates)
    if shown is None:
        return
    title, head, rows = shown
    out = _table(console, title, head)
    for row in rows[:MOST_SIZES]:
        out.add_row(*row)
    console.print(out)
    if len(rows) > MOST_SIZES:
        more = f"{len(rows) - MOST_SIZES} more sizes, of less time: the JSON lists all"
        console.print(Text(more, style="dim"))
    for line in bandwidth.slow(document.rates):
        console.print(Text(line))


def _unknown(console: Console, document: Document) -> None:
    table = document.unclassified
    if not len(table):
        return
    kernels = document.names[document.names["kind"] != "memory"]
    told = percent(int(table["sum_ns"].sum()), int(kernels["sum_ns"].sum()))
    unit = scale(table["sum_ns"].max())
    title = f"Names that no rule knows, counted as compute ({told} of all op time)"
    out = _table(console, title, ["name", "count", f"sum ({unit[1]})"])
    for row in table.head(MOST_UNKNOWN).to_dict("records"):
        name = Text(shortened(escape(row["name"]), MOST_OF_A_NAME), overflow="fold")
        out.add_row(name, f"{row['count']:,}", _number(row["sum_ns"], unit))
    console.print(out)
    if len(table) > MOST_UNKNOWN:
        console.print(Text(f"{len(table) - MOST_UNKNOWN} more: overlapscope kernels lists all", style="dim"))


def _warnings(console: Console, document: Document) -> None:
    if not document.warnings:
        return
    console.print()
    console.print(Text("Good to know", style="bold yellow"))
    table = Table.grid(padding=(0, 1))
    for warning in document.warnings:
        table.add_row("-", Text(escape(warning), overflow="fold"))
    console.print(table)


def _number(ns: float, unit: tuple[int, str]) -> str:
    value = ns / unit[0]
    # Three decimals as long as six columns of them fit a line.
    return f"{value:,.0f}" if unit[0] == 1 else f"{value:,.1f}" if value >= 10_000 else f"{value:,.3f}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
