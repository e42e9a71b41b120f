"""The report in a terminal: what was captured, a headline, where the time went, and what to mistrust."""

from __future__ import annotations

import io

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..analysis.bandwidth import Bandwidth
from . import bandwidth, breakdown, findings
from .document import Document
from .opening import IDEAL_WORDS, gained, headline, setting
from .words import count, escape, number, percent, scale, shortened, size

__all__ = ["render"]

WIDTH = 80
"""Columns; what a terminal has at least, and what a mail or an issue shows without wrapping."""

MOST_RANKS = 16
MOST_UNKNOWN = 8
MOST_WAITED_FOR = 8
MOST_SIZES = 8
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
    elif document.bandwidth is not None:
        _sizes(console, document.bandwidth)
        _unknown(console, document)
    else:
        _ranks(console, document)
        _bounds(console, document)
        _sentences(console, document)
        _collectives(console, document)
        _waited_for(console, document)
        _by_size(console, document)
        _breakdown(console, breakdown.brief(document))
        _unknown(console, document)
        _findings(console, document)
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


def _bounds(console: Console, document: Document) -> None:
    """What could be gained at most, all else as recorded; nothing where nothing is exposed."""
    if not document.overlap.ranks["exposed_comm_ns"].sum():
        return
    console.print()
    console.print(Text("Upper bounds of the gain, all else as recorded, if", style="bold"))
    for ideal, bound in document.bounds.items():
        console.print(Text(f"  {IDEAL_WORDS[ideal]:<40}{gained(bound)}"))


def _sentences(console: Console, document: Document) -> None:
    said = breakdown.sentences(document)
    if said:
        console.print()
    for sentence in said:
        console.print(Text(sentence))


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
            count(row["count"] / n),
            "n/a" if nbytes.isna().any() else size(int(nbytes.sum()) / n),
            *(number(row[c] / n, unit) for c in ("union_ns", "exposed_ns")),
            *_split(split.loc[name], int(row["exposed_unsplit_ns"]), n, unit),
            percent(row["overlap_ns"], row["union_ns"]),
        )
    console.print(out)


def _split(parts: pd.Series, unsplit: int, n: int, unit: tuple[int, str]) -> list[str]:
    """Waiting and transfer; n/a where of any exposed time it is not known which it is."""
    if unsplit or parts.isna().any():
        return ["n/a", "n/a"]
    return [number(int(part) / n, unit) for part in parts]


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
        out.add_row(str(row["rank"]), times, number(row["late_ns"], unit), number(row["cost_ns"], unit))
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


def _findings(console: Console, document: Document) -> None:
    """What costs time, worst first: cost and title, what shows it, what to try."""
    console.print()
    said = findings.told(document)
    if isinstance(said, str):
        console.print(Text(said))
        return
    console.print(Text("Findings, worst first; they share time, so costs do not add up", style="bold"))
    table = Table.grid(padding=(0, 1))
    for place, finding in enumerate(said, 1):
        table.add_row("", "")
        table.add_row(f"{place}.", Text(f"{finding.cost}: {finding.title}", style="bold", overflow="fold"))
        table.add_row("", Text(finding.evidence, overflow="fold"))
        table.add_row("", Text(f"Try: {finding.advice}.", overflow="fold"))
    console.print(table)


def _warnings(console: Console, document: Document) -> None:
    if not document.warnings:
        return
    console.print()
    console.print(Text("Good to know", style="bold yellow"))
    table = Table.grid(padding=(0, 1))
    for warning in document.warnings:
        table.add_row("-", Text(escape(warning), overflow="fold"))
    console.print(table)
