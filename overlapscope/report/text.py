"""The report in a terminal: what was captured, a headline, where the time went, and what to mistrust."""

from __future__ import annotations

import io
from pathlib import PurePath

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import breakdown
from .document import Document
from .words import count, duration, escape, number, percent, scale, shortened, size

__all__ = ["headline", "render", "setting"]

WIDTH = 80
"""Columns; what a terminal has at least, and what a mail or an issue shows without wrapping."""

MOST_RANKS = 16
MOST_UNKNOWN = 8
"""Rows shown; the rest is counted, and the JSON has it."""

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
    if document.by is not None:
        _breakdown(console, breakdown.full(document))
    else:
        _ranks(console, document)
        for sentence in breakdown.sentences(document):
            console.print(Text(sentence))
        _collectives(console, document)
        _breakdown(console, breakdown.brief(document))
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
    if len(said.sources) > 1:
        lines.append(("clocks", said.clock))
    lines.append(("window", _window(document)))
    if said.link is not None:
        lines.append(("link", f"paced: {said.link}"))
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
    return f"{len(paths)} files, {paths[0]} to {paths[-1].name}{schema}"


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
    return f"{text}{outside}"


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f}"


# -- headline ------------------------------------------------------------------------------------------------


def headline(document: Document) -> list[str]:
    """What a tired person needs: how much is hidden, what is exposed, and what hiding it could gain at most."""
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
    ]
    if exposed == 0:
        return lines
    # Each rank can hide only under what it computes while nothing is hidden there yet.
    free = ranks["compute_ns"] - ranks["overlap_ns"]
    most = int(ranks["exposed_comm_ns"].where(ranks["exposed_comm_ns"] < free, free).sum())
    gain = f"at most {percent(most, total)} ({total / (total - most):.2f}x)" if most < total else "all of it"
    if most < exposed:
        lines.append(f"There is compute to hide {duration(most / n)} of it: that could gain {gain}.")
    else:
        lines.append(f"Hiding all of it could gain {gain}.")
    return lines


# -- tables --------------------------------------------------------------------------------------------------

PARTS = ("window_ns", "compute_ns", "exposed_comm_ns", "exposed_memory_ns", "idle_ns", "comm_ns")


def _table(console: Console, title: str, columns: list[str]) -> Table:
    console.print()
    console.print(Text(title, style="bold"))
    table = Table(box=HEADED, padding=(0, 1, 0, 0), pad_edge=False)
    for at, column in enumerate(columns):
        table.add_column(column, justify="right" if at else "left", no_wrap=at > 0)
    return table


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
        figures = (number(row[p], unit) for p in PARTS)
        table.add_row(str(row["rank"]), *figures, percent(row["overlap_ns"], row["comm_ns"]))
    mean = ranks[[*PARTS, "overlap_ns"]].mean()
    if len(ranks) > 1:
        table.add_section()
        hidden = percent(mean["overlap_ns"], mean["comm_ns"])
        table.add_row("mean", *(number(mean[p], unit) for p in PARTS), hidden)
    table.add_row("share", *(percent(mean[p], mean["window_ns"]) for p in PARTS), "")
    console.print(table)
    if len(ranks) > MOST_RANKS:
        console.print(Text(f"{len(ranks) - MOST_RANKS} more ranks: --format csv lists all", style="dim"))
    console.print()
    console.print(Text(_kinds(document)))


def _kinds(document: Document) -> str:
    """What the compute consists of, since GEMMs are what people split."""
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
    sums = table.groupby("collective")[["count", "union_ns", "sum_ns", "overlap_ns", "exposed_ns"]].sum()
    mean = f", mean of {n} ranks" if n > 1 else ""
    out = _table(
        console,
        f"Communication ({unit[1]}{_of(document)}{mean})",
        ["collective", "count", "bytes", "time (sum)", "time (union)", "exposed", "hidden"],
    )
    for name, row in sums.sort_values("exposed_ns", ascending=False).iterrows():
        nbytes = table.loc[table["collective"] == name, "bytes"]
        out.add_row(
            str(name),
            count(row["count"] / n),
            "n/a" if nbytes.isna().any() else size(int(nbytes.sum()) / n),
            *(number(row[c] / n, unit) for c in ("sum_ns", "union_ns", "exposed_ns")),
            percent(row["overlap_ns"], row["union_ns"]),
        )
    console.print(out)


def _breakdown(console: Console, shown: breakdown.Breakdown | None) -> None:
    if shown is None:
        return
    out = _table(console, shown.title, shown.head)
    out.columns[0].no_wrap = True
    for row in shown.rows:
        out.add_row(*(Text(cell) for cell in row))
    console.print(out)
    if shown.note is not None:
        console.print(Text(shown.note, style="dim"))


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
        out.add_row(name, f"{row['count']:,}", number(row["sum_ns"], unit))
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
