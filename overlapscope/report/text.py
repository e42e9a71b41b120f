"""The report in a terminal: what was captured, a headline, where the time went, and what to mistrust."""

from __future__ import annotations

import io
from pathlib import PurePath

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .document import Document
from .words import duration, escape, percent, scale, shortened

__all__ = ["headline", "render"]

WIDTH = 80
"""Columns; what a terminal has at least, and what a mail or an issue shows without wrapping."""

MOST_RANKS = 16
MOST_UNKNOWN = 8
"""Rows shown; the rest is counted, and the JSON has it."""

LABEL = 11  # columns of the labels on the left

HEADED = box.Box("    \n    \n ── \n    \n    \n ── \n    \n    \n")
"""A rule under the head and between sections, nothing else."""


def render(document: Document, *, colour: bool = False, width: int = WIDTH) -> str:
    """The report as text of at most `width` columns, with ANSI colour if asked for."""
    console = Console(
        file=io.StringIO(),
        width=width,
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
    _ranks(console, document)
    _collectives(console, document)
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
    said, ranks = document.provenance, document.overlap.ranks
    lines = [("trace", _sources(document))]
    tools = dict.fromkeys(f"{s.tool}{f', schema {s.schema}' if s.schema else ''}" for s in said.sources)
    lines.append(("recorded by", "; ".join(tools)))
    who = f"{len(ranks)} rank{'s' * (len(ranks) != 1)}"
    if said.world_size is not None and said.world_size != len(ranks):
        who += f" of {said.world_size}"
    on = (
        ", ".join(document.gpus)
        if document.gpus
        else ("CPU" if said.lanes == "host" else "GPU, name not recorded")
    )
    lines.append(("ranks", f"{who} on {on}; {said.ranks_from}"))
    if len(said.sources) > 1:
        lines.append(("clocks", said.clock))
    lines.append(("window", _window(document)))
    if said.link is not None:
        lines.append(("link", f"paced: {said.link}"))
    table = Table.grid(padding=(0, 1))
    table.add_column(width=LABEL, no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for label, text in lines:
        table.add_row(label, Text(escape(text)))
    console.print(table)


def _sources(document: Document) -> str:
    paths = [PurePath(s.path) for s in document.provenance.sources]
    if len(paths) == 1:
        return str(paths[0])
    return f"{len(paths)} files, {paths[0]} to {paths[-1].name}"


def _window(document: Document) -> str:
    window = document.overlap.windows
    mean = float(document.overlap.ranks["window_ns"].mean())
    n = len(window.steps)
    if window.mode == "whole":
        average = " on average" if len(window.of_rank) > 1 else ""
        return f"whole trace, each rank's first op to its last: {duration(mean)}{average}"
    if window.mode == "range":
        bounds = next(iter(window.of_rank.values()))
        text = f"{bounds.start[0] / 1e6:,.3f} ms to {bounds.end[-1] / 1e6:,.3f} ms"
    elif n == 1:
        text = f"1 step ({window.steps[0]}), {duration(mean)}"
    else:
        text = f"{n} steps ({window.steps[0]} to {window.steps[-1]}), {duration(mean / n)} each"
    if window.left_out:
        text += f"; {len(window.left_out)} warm-up step{'s' * (len(window.left_out) > 1)} left out"
    return f"{text}; {document.n_ops_outside:,} ops lie outside"


# -- headline ------------------------------------------------------------------------------------------------


def headline(document: Document) -> list[str]:
    """What a tired person needs: how much is hidden, what is exposed, and what hiding it could gain at most."""
    ranks, window = document.overlap.ranks, document.overlap.windows
    total, comm, exposed, hidden = (
        int(ranks[f"{c}_ns"].sum()) for c in ("window", "comm", "exposed_comm", "overlap")
    )
    if comm == 0:
        return ["No communication in this window: nothing to hide."]
    per = len(ranks) * max(len(window.steps), 1)
    what = "step" if window.mode == "steps" else "window"
    # Hiding cannot make a rank faster than its communication alone takes.
    bound = int(
        sum(
            max(t - e, m)
            for t, e, m in zip(ranks["window_ns"], ranks["exposed_comm_ns"], ranks["comm_ns"], strict=True)
        )
    )
    lines = [
        f"{percent(hidden, comm)} of the communication is hidden under compute.",
        f"Exposed: {duration(exposed / per)} of communication, {percent(exposed, total)} of the {what}.",
    ]
    if exposed == 0:
        return lines
    lines.append(
        f"Hiding all of it would shorten the {what} by at most {percent(total - bound, total)} ({total / bound:.2f}x)."
    )
    if bound > total - exposed:
        lines.append(
            f"There is not enough compute to hide it all: it takes {duration(comm / per)} by itself."
        )
    return lines


# -- tables --------------------------------------------------------------------------------------------------

PARTS = ("window_ns", "compute_ns", "exposed_comm_ns", "exposed_memory_ns", "idle_ns", "comm_ns")


def _table(console: Console, title: str, columns: list[str], left: int = 1) -> Table:
    console.print()
    console.print(Text(title, style="bold"))
    table = Table(box=HEADED, padding=(0, 1, 0, 0), pad_edge=False)
    for at, column in enumerate(columns):
        table.add_column(column, justify="left" if at < left else "right", no_wrap=at >= left)
    return table


def _ranks(console: Console, document: Document) -> None:
    ranks = document.overlap.ranks
    unit = scale(ranks["window_ns"].max())
    head = ["rank", "window", "= compute", "+ exposed\ncomm", "+ exposed\nmemory", "+ idle", "comm", "hidden"]
    table = _table(console, f"Where the time went ({unit[1]})", head)
    for row in ranks.head(MOST_RANKS).to_dict("records"):
        table.add_row(
            str(row["rank"]),
            *(_number(row[p], unit) for p in PARTS),
            percent(row["overlap_ns"], row["comm_ns"]),
        )
    mean = ranks[[*PARTS, "overlap_ns"]].mean()
    if len(ranks) > 1:
        table.add_section()
        table.add_row(
            "mean", *(_number(mean[p], unit) for p in PARTS), percent(mean["overlap_ns"], mean["comm_ns"])
        )
    table.add_row("share", *(percent(mean[p], mean["window_ns"]) for p in PARTS), "")
    console.print(table)
    if len(ranks) > MOST_RANKS:
        console.print(Text(f"{len(ranks) - MOST_RANKS} more ranks: --format csv lists all", style="dim"))


def _collectives(console: Console, document: Document) -> None:
    table = document.overlap.collectives
    if not len(table):
        return
    unit = scale(table["union_ns"].max())
    n = len(document.overlap.ranks)
    sums = table.groupby("collective")[["count", "union_ns", "sum_ns", "overlap_ns", "exposed_ns"]].sum()
    out = _table(
        console,
        f"Communication, mean of {n} ranks ({unit[1]})" if n > 1 else f"Communication ({unit[1]})",
        ["collective", "count", "time (union)", "time (sum)", "hidden", "exposed", "ratio"],
    )
    for name, row in sums.sort_values("exposed_ns", ascending=False).iterrows():
        out.add_row(
            str(name),
            _count(row["count"] / n),
            *(_number(row[c] / n, unit) for c in ("union_ns", "sum_ns", "overlap_ns", "exposed_ns")),
            percent(row["overlap_ns"], row["union_ns"]),
        )
    console.print(out)


def _unknown(console: Console, document: Document) -> None:
    table = document.unclassified
    if not len(table):
        return
    every = int(document.names["sum_ns"].sum())
    told = percent(int(table["sum_ns"].sum()), every)
    unit = scale(table["sum_ns"].max())
    out = _table(
        console,
        f"Names that no rule knows, counted as compute ({told} of all kernel time)",
        ["name", "count", f"sum ({unit[1]})"],
    )
    for row in table.head(MOST_UNKNOWN).to_dict("records"):
        out.add_row(
            Text(shortened(escape(row["name"]), 52)), f"{row['count']:,}", _number(row["sum_ns"], unit)
        )
    console.print(out)
    if len(table) > MOST_UNKNOWN:
        console.print(Text(f"{len(table) - MOST_UNKNOWN} more: overlapscope kernels lists all", style="dim"))


def _warnings(console: Console, document: Document) -> None:
    if not document.warnings:
        return
    console.print()
    console.print(Text("Know before you trust", style="bold yellow"))
    table = Table.grid(padding=(0, 1))
    for warning in document.warnings:
        table.add_row("-", Text(escape(warning), overflow="fold"))
    console.print(table)


def _number(ns: float, unit: tuple[int, str]) -> str:
    return f"{ns / unit[0]:,.3f}" if unit[0] > 1 else f"{ns:,.0f}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
