"""Strong scaling in a terminal: how fast each number of ranks is, and what it loses where."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from fractions import Fraction

from ..analysis.scaling import EXPOSED, TERMS, Scaling, Size
from .grid import Grid
from .scaling import Document
from .words import Figure, duration, escape, percent, scale, shortened

__all__ = ["WORDS", "account", "groups", "headline", "render", "setting"]

WIDTH = 80
LABEL = 26  # columns of the labels on the left
COLUMN = 10  # of a figure: 9,999.999 and a gap
ABREAST = (WIDTH - LABEL) // COLUMN  # sizes in one table
MOST_GROUPS = 8

WORDS = {
    "sharded": "sharded work",
    "replicated": "replicated work",
    "unmarked": "unmarked compute",
    "concurrency": "concurrency",
    "exposed_comm": "exposed communication",
    "exposed_memory": "exposed memory",
    "idle": "idle",
}
EXPOSED_WORDS = {"wait": "waiting for late ranks", "wire": "transfer", "unsplit": "not known which"}
POP = {
    "load_balance": "load balance",
    "communication_efficiency": "communication eff.",
    "parallel_efficiency": "parallel efficiency",
    "computation_scaling": "computation scaling",
    "global_efficiency": "global efficiency",
}


def render(document: Document) -> str:
    """The report as text of at most 80 columns."""
    lines: list[str] = []
    for label, text in setting(document):
        head = f"{label:<12}"
        lines += _wrapped(escape(text), head, " " * len(head))
    lines.append("")
    for sentence in headline(document.scaling):
        lines += _wrapped(sentence)
    sizes = document.scaling.sizes
    for first in range(0, len(sizes), ABREAST):
        lines += ["", *_account(account(document, sizes[first : first + ABREAST]))]
    marked = groups(document)
    if marked is not None:
        lines += ["", *_groups(marked)]
    if document.warnings:
        lines += ["", "Good to know"]
        for warning in document.warnings:
            lines += _wrapped(escape(warning), "- ", "  ")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _wrapped(text: str, head: str = "", gap: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=gap, break_on_hyphens=False)


def setting(document: Document) -> list[tuple[str, str]]:
    """What was measured: (label, words)."""
    made, steps = document.runs[0].manifest, document.scaling.base.steps
    gpus = dict.fromkeys(gpu["name"] for gpu in made["hardware"]["gpus"])
    on = ", ".join(gpus) or (
        f"{made['hardware']['cpu']}, {made['hardware']['cores']} cores; "
        f"threads a rank: {made['threads_per_rank']}"
    )
    options = [f"{name} {value}" for name, value in made["options"].items() if value not in (None, False)]
    return [
        ("sweep", document.title),
        ("work", f"{made['workload']}: {', '.join(options)}"),
        ("on", f"{on}; recorded by {'nsys' if made['recorder'] == 'nsys' else 'torch.profiler'}"),
        ("figures", f"means of {steps} step{'s' * (steps != 1)} and of the ranks"),
    ]


def headline(result: Scaling) -> list[str]:
    """How fast, how efficient, and what of it was lost most to."""
    last, base = result.sizes[-1], result.base.size
    n = last.account.size
    lines = [
        f"{n} ranks are {last.speedup:.2f} times as fast as {base}: efficiency {percent(last.efficiency, 1)}."
    ]
    if last.loss <= 0:
        return [*lines, "Nothing is lost against the ideal."]
    unit = _unit(last.time)
    terms = {term: last.term(term) for term in TERMS}
    worst = max(terms, key=lambda term: terms[term])
    said = (
        f"Lost against the ideal: {duration(float(last.loss), unit)} a step; the most to "
        f"{WORDS[worst]}, {duration(float(terms[worst]), unit)}."
    )
    return [*lines, said]


def _known(result: Scaling) -> list[str]:
    """Waiting and transfer, and where some of it could be either that too; none where nothing could be split."""
    some = {part for size in result.sizes for part, ns in size.account.exposed_ns.items() if ns}
    return [part for part in EXPOSED if part != "unsplit" or part in some] if some - {"unsplit"} else []


def account(document: Document, sizes: Sequence[Size]) -> Grid:
    """Sizes side by side: time, ideal, loss and what it consists of; rows without cells are rules."""
    unit = _unit(*(size.time for size in sizes))

    def row(label: str, cell: Callable[[Size], str]) -> list[str]:
        return [label, *map(cell, sizes)]

    def times(label: str, figure: Callable[[Size], Fraction]) -> list[str]:
        return row(label, lambda size: _number(figure(size), unit))

    def ratio(label: str, name: str) -> list[str]:
        def cell(size: Size) -> str:
            value = getattr(size.pop, name)
            return Figure("n/a", None) if value is None else percent(value, 1)

        return row(label, cell)

    terms: list[list[str]] = []
    for term, words in WORDS.items():
        terms.append(times(f"  {words}", lambda size, term=term: size.term(term)))  # type: ignore[misc]
        if term == "exposed_comm":
            for part in _known(document.scaling):
                words = f"    {EXPOSED_WORDS[part]}"
                terms.append(times(words, lambda size, part=part: size.exposed[part]))  # type: ignore[misc]
    rows = [
        [],
        times("T(N)", lambda size: size.time),
        times("− T(1)/N, the ideal", lambda size: size.ideal),
        [],
        times("= loss, which is", lambda size: size.loss),
        *terms,
        [],
        row("speed-up", lambda size: Figure(f"{size.speedup:.2f}x", size.speedup)),
        row("efficiency", lambda size: percent(size.efficiency, 1)),
        [],
        *(ratio(f"POP {words}", name) for name, words in POP.items()),
    ]
    return Grid(
        f"Strong scaling ({unit[1]} a step)", ["", *(f"tp {size.account.size}" for size in sizes)], rows
    )


def _account(grid: Grid) -> list[str]:
    rule = "─" * (LABEL + COLUMN * (len(grid.head) - 1))
    rows = [
        f"{row[0]:<{LABEL}}" + "".join(f"{cell:>{COLUMN}}" for cell in row[1:]) if row else rule
        for row in (grid.head, *grid.rows)
    ]
    return [grid.title, "", *rows]


def groups(document: Document) -> Grid | None:
    """What the marked groups of the largest size lose, most first; None where nothing is marked."""
    size = document.scaling.sizes[-1]
    losses = {part: loss for part, loss in size.losses.items() if part.group}
    if not losses:
        return None
    run = size.account
    worst = sorted(losses, key=lambda part: (-losses[part], part))[:MOST_GROUPS]
    time = {part: run.each(run.parts_ns.get(part, 0)) for part in losses}
    unit = _unit(*time.values(), *map(abs, losses.values()))
    rest = f", {MOST_GROUPS} of {len(losses)}" if len(losses) > MOST_GROUPS else ""
    rows = [
        [
            shortened(escape(part.group), LABEL - 1),
            part.term,
            *(_number(ns, unit) for ns in (time[part], time[part] - losses[part], losses[part])),
        ]
        for part in worst
    ]
    title = f"Marked work that loses most at tp {run.size}{rest} ({unit[1]} a step)"
    return Grid(title, ["group", "role", "time", "− ideal", "= loss"], rows)


def _groups(grid: Grid) -> list[str]:
    lines = [
        f"{group:<{LABEL}}{role:<12}" + "".join(f"{cell:>{COLUMN}}" for cell in cells)
        for group, role, *cells in (grid.head, *grid.rows)
    ]
    return [grid.title, "", lines[0], "─" * (LABEL + 12 + 3 * COLUMN), *lines[1:]]


def _unit(*times: Fraction) -> tuple[int, str]:
    return scale(float(max(times)))


def _number(ns: Fraction, unit: tuple[int, str]) -> Figure:
    digits = 3 if unit[0] > 1 else 0
    # Adding 0 turns the -0.0 of what rounds to nothing into 0.0.
    return Figure(f"{round(float(ns) / unit[0], digits) + 0.0:,.{digits}f}", float(ns))
