"""A comparison in a terminal and in a pull request: what changed, what of it can be told, and what to mistrust."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from ..analysis.compare import Baseline
from ..analysis.shift import ALPHA, Shift
from .compare import Document, Run
from .grid import Grid
from .markdown import code, inline, table
from .words import Figure, count, duration, escape, percent, scale, shortened

__all__ = [
    "TOLD",
    "baseline",
    "collectives",
    "figures",
    "headline",
    "legend",
    "markdown",
    "names",
    "paths",
    "render",
    "setting",
    "unit_of",
]

WIDTH = 80
LABEL = 20  # columns of the names of figures
NUMBER = 11  # of a figure: 9,999.999 and a gap; of a change one more, its sign
MOST_NAMES = 8
LEAST_NAME = 0.001  # share of a step from which on a name's change is shown

WORDS = {
    "window": "step",
    "compute": "compute",
    "comm": "communication",
    "overlap": "hidden",
    "exposed_comm": "exposed comm",
    "exposed_wait": "  waiting",
    "exposed_wire": "  transfer",
    "exposed_memory": "exposed memory",
    "idle": "idle",
    "hidden_share": "hidden, of comm",
    "exposed_share": "exposed, of step",
}
TOLD = {"less": "less", "more": "more", "untold": "no", "few": "few", None: "n/a"}
"""Verdicts in the last column."""


def render(document: Document) -> str:
    """The comparison as text of at most 80 columns."""
    lines: list[str] = []
    for label, text in setting(document):
        lines += _wrapped(escape(text), f"{label:<12}", " " * 12)
    lines.append("")
    for sentence in headline(document):
        lines += _wrapped(sentence)
    for grid in (figures(document), collectives(document), names(document)):
        if grid.rows:
            lines += ["", grid.title, "", *_laid_out(grid)]
    if shown := baseline(document):
        lines += ["", "Against A as the serial baseline", ""]
        lines += [f"{label:<{LABEL}}{text}" for label, text in shown]
    lines += ["", "Good to know"]
    for note in (*document.warnings, *legend(document)):
        lines += _wrapped(escape(note), "- ", "  ")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def markdown(document: Document) -> str:
    """The comparison for a pull request."""
    first, *rest = headline(document)
    lines = [f"**{inline(first)}**", "", *map(inline, rest), ""]
    lines += [f"- {label}: {inline(text)}" for label, text in setting(document)]
    for grid in (figures(document), collectives(document), names(document, name=code)):
        if grid.rows:
            lines += ["", f"{grid.title}:", "", *table(grid.head, grid.rows)]
    if shown := baseline(document):
        lines += ["", "Against A as the serial baseline:", ""]
        lines += table(["", ""], [[label, inline(text)] for label, text in shown])
    lines += ["", *(f"- {inline(note)}" for note in (*document.warnings, *legend(document)))]
    return "\n".join(lines) + "\n"


def _wrapped(text: str, head: str = "", gap: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=gap, break_on_hyphens=False)


# -- what is compared ----------------------------------------------------------------------------------------


def setting(document: Document) -> list[tuple[str, str]]:
    """What is compared: (label, words)."""
    lines = [("A", _side(document.a)), ("B", _side(document.b))]
    if document.compute_only:
        lines.append(("alone", f"{_side(document.compute_only)}: the un-split GEMMs"))
    if document.changed:
        lines.append(("changed", "; ".join(document.changed)))
    return lines


def paths(runs: Sequence[Run]) -> str:
    """Where a side lies."""
    if len(runs) == 1:
        return runs[0].path
    return f"{len(runs)} runs, {runs[0].path} to {runs[-1].path}"


def _side(runs: Sequence[Run]) -> str:
    first = runs[0]
    n = sum(len(run.samples.steps) for run in runs)
    ranks = first.samples.ranks
    on = ", ".join(first.gpus) or ("CPU" if first.provenance.lanes == "host" else "GPUs of unrecorded name")
    of = f"{n} step{'s' * (n != 1)}" if first.samples.mode == "steps" else "one window"
    return f"{paths(runs)}: {of}, {ranks} rank{'s' * (ranks != 1)} on {on}"


def headline(document: Document) -> list[str]:
    """Whether B is faster, by how much, and what became of the communication."""
    found, step = document.comparison, document.comparison.times["window"]
    assert step.a is not None
    assert step.b is not None
    unit = unit_of(document)
    took = f"{duration(step.b, unit)} a {document.per}, A {duration(step.a, unit)}"
    if step.verdict == "few":
        return [
            f"Too few {found.unit} to tell: {step.n_a} of A and {step.n_b} of B, and 4 of each suffice. "
            f"B takes {took} ({_share(step, step.change)})."
        ]
    between = f"{_share(step, step.change)}; {_interval(step)}; p {_p(step.p)}"
    if step.verdict == "untold":
        first = (
            f"No difference that the spread of the {found.unit} lets one tell: B takes {took} ({between})."
        )
    else:
        word = "faster" if step.verdict == "less" else "slower"
        # Steps of one run are more alike than runs are: a claim that stands on them is on those runs.
        where = "B is" if found.unit == "runs" else "In these runs B is"
        first = f"{where} {word}: {took} ({between})."
    return [first, *_communication(document)]


def _communication(document: Document) -> list[str]:
    exposed, hidden = document.comparison.times["exposed_comm"], document.comparison.ratios["hidden_share"]
    if hidden.a is None or hidden.b is None or exposed.a is None or exposed.b is None:
        return []
    unit, of = unit_of(document), "run" if document.comparison.unit == "runs" else document.per
    return [
        f"In the median {of} {percent(hidden.b, 1)} of the communication is hidden, in A "
        f"{percent(hidden.a, 1)}; {duration(exposed.b, unit)} are exposed, in A {duration(exposed.a, unit)}."
    ]


# -- tables --------------------------------------------------------------------------------------------------


def figures(document: Document) -> Grid:
    """Every figure of both sides, and what can be told of its change."""
    found = document.comparison
    unit = unit_of(document)
    rows = []
    for name, one in {**found.times, **found.ratios}.items():
        cells = _times(one, unit) if name in found.times else _ratios(one)
        label = document.per if name == "window" else WORDS[name].replace("step", document.per)
        rows.append([label, *cells, TOLD[one.verdict]])
    what = f"Medians of the {found.unit}, mean of the ranks ({unit[1]} a {document.per})"
    return Grid(what, ["", "A", "B", "change", "%", "95 % interval", "told"], rows)


def _times(one: Shift, unit: tuple[int, str]) -> list[str]:
    low, high = one.relative(one.low), one.relative(one.high)
    between = "n/a" if low is None or high is None else f"{100 * low:+.1f} to {100 * high:+.1f} %"
    relative = one.relative(one.change)
    return [
        _number(one.a, unit),
        _number(one.b, unit),
        _number(one.change, unit, sign=True),
        Figure("n/a", None) if relative is None else Figure(f"{100 * relative:+.1f}", relative),
        between,
    ]


def _ratios(one: Shift) -> list[str]:
    a, b = ("n/a" if ratio is None else percent(ratio, 1) for ratio in (one.a, one.b))
    change = "n/a" if one.change is None else f"{100 * one.change:+.1f} pt"
    if one.change is None or one.low is None or one.high is None:
        return [a, b, change, "", "n/a"]
    return [a, b, change, "", f"{100 * one.low:+.1f} to {100 * one.high:+.1f} pt"]


def collectives(document: Document) -> Grid:
    """Collectives side by side."""
    every = document.comparison.collectives
    unit = unit_of(document)
    rows = [
        [
            c.name,
            *(_count(n) for n in (c.count.a, c.count.b)),
            *(_number(one, unit) for one in (c.time.a, c.time.b, c.exposed.a, c.exposed.b)),
            TOLD[c.exposed.verdict],
        ]
        for c in every
    ]
    head = ["", "count A", "count B", "time A", "time B", "exposed A", "exposed B", "told"]
    return Grid(f"Communication ({unit[1]} a {document.per})", head, rows)


def _in_a_line(name: str) -> str:
    return shortened(escape(name), WIDTH - 3 * NUMBER - 1)


def names(document: Document, *, name: Callable[[str], str] = _in_a_line) -> Grid:
    """Those whose time changed most; the smallest changes, and what is as before, are not worth a line."""
    step = document.comparison.times["window"].a or 0
    some = [n for n in document.comparison.names[:MOST_NAMES] if abs(n.change) > LEAST_NAME * step]
    unit = unit_of(document)
    rows = [
        [
            name(n.name),
            *(_number(time, unit) for time in (n.a, n.b)),
            _number(n.change, unit, sign=True),
        ]
        for n in some
    ]
    title = f"Names whose summed time changed most (mean, {unit[1]} a {document.per})"
    return Grid(title, ["name", "A", "B", "change"], rows)


def baseline(document: Document) -> list[tuple[str, str]]:
    """The figures of METRICS against a serial run, each with what it is; none where both have the same schedule."""
    schedules = [
        {str((run.manifest or {}).get("options", {}).get("schedule")) for run in side}
        for side in (document.a, document.b)
    ]
    if schedules[0] == schedules[1] != {"None"} and not document.compute_only:
        return []
    found = document.comparison.baseline
    unit = unit_of(document)
    of = "the step of the run given for it" if document.compute_only else "A's compute"
    return [
        ("speed-up", _factor(found.speedup)),
        ("ideal speed-up", f"{_factor(found.ideal)} = (compute + comm) / the longer, of A"),
        ("attained", f"{_percent(found.attained)} = (speed-up − 1) / (ideal − 1)"),
        ("compute only", f"{_time(found.compute_only_ns, unit)}, {of}"),
        (
            "ECT of A, of B",
            f"{_time(found.ect_a_ns, unit)}, {_time(found.ect_b_ns, unit)} = {document.per} − compute only",
        ),
        ("overlap efficiency", f"{_percent(found.efficiency)}{_around(found)} = 1 − ECT of B / ECT of A"),
    ]


def _around(found: Baseline) -> str:
    if found.low is None or found.high is None:
        return ""
    return f" (95 %: {100 * found.low:.1f} to {100 * found.high:.1f} %)"


def legend(document: Document) -> list[str]:
    """What the verdicts and the intervals mean."""
    n = document.comparison.unit
    return [
        f"told: less or more where p ≤ {ALPHA:g} by the exact Mann–Whitney test of the {n}; no: their spread explains "
        f"the change; few: too few {n} for any verdict. Each figure is tested by itself: of twenty that do not "
        "differ about one is told to",
        "the interval is that of the shift which the test does not reject; names are not tested",
    ]


def _laid_out(grid: Grid) -> list[str]:
    """Words to the left, figures to the right, a rule under the head."""
    widths = [max(map(len, column)) for column in zip(grid.head, *grid.rows, strict=True)]
    widths[0] = max(widths[0], LABEL - 3)
    gap = 2 if sum(widths) + 2 * (len(widths) - 1) <= WIDTH else 1
    lines = [
        (" " * gap).join(
            [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
        )
        for row in (grid.head, *grid.rows)
    ]
    lines.insert(1, "─" * max(map(len, lines)))
    return lines


def unit_of(document: Document) -> tuple[int, str]:
    """The unit of all times, one so that they compare at a glance: that of the step."""
    step = document.comparison.times["window"]
    return scale(max(step.a or 0, step.b or 0))


# -- numbers -------------------------------------------------------------------------------------------------


def _number(ns: float | None, unit: tuple[int, str], *, sign: bool = False) -> Figure:
    if ns is None:
        return Figure("n/a", None)
    digits = 3 if unit[0] > 1 else 0
    # Adding 0 turns the -0.0 of what rounds to nothing into 0.0.
    value = round(ns / unit[0], digits) + 0.0
    return Figure(f"{value:+,.{digits}f}" if sign else f"{value:,.{digits}f}", ns)


def _count(value: float | None) -> Figure:
    return Figure("n/a", None) if value is None else count(value)


def _share(one: Shift, difference: float | None) -> str:
    relative = one.relative(difference)
    return "n/a" if relative is None else f"{100 * relative:+.1f} %"


def _interval(one: Shift) -> str:
    return f"95 %: {_share(one, one.low)} to {_share(one, one.high)}"


def _p(p: float | None) -> str:
    return "n/a" if p is None else "< 0.001" if p < 0.001 else f"= {p:.3f}"


def _factor(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f}x"


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f} %"


def _time(ns: float | None, unit: tuple[int, str]) -> str:
    return "n/a" if ns is None else duration(ns, unit)
