"""A prediction in a terminal: the step asked for, every size beside it, and all that went in."""

from __future__ import annotations

import textwrap

from ..predict import Prediction
from .predict import LEFT_OUT, STATUS, described, headline, notes
from .words import escape, percent, scale

__all__ = ["render"]

WIDTH = 80
LABEL = 12  # columns of the labels on the left
NAME, VALUE = 22, 26  # columns of a constant's name, and of its value and unit


def render(found: Prediction) -> str:
    """The prediction as text of at most 80 columns."""
    lines = []
    for label, text in described(found).items():
        lines += _wrapped(text, f"{label:<{LABEL}}", " " * LABEL)
    lines.append("")
    for sentence in [*headline(found), STATUS]:
        lines += _wrapped(sentence)
    lines += ["", *_sizes(found), "", "What went in", ""]
    for constant in found.constants:
        value = f"{constant.value:.4g} {constant.unit}"
        lines.append(f" {constant.name:<{NAME}}{value:<{VALUE}}{constant.option}")
        lines += _wrapped(constant.source, "   ", "   ")
    if notes(found):
        lines += ["", "Good to know"]
    for note in notes(found):
        lines += _wrapped(note, "- ", "  ")
    lines += ["", "Not modelled"]
    for what in LEFT_OUT:
        lines += _wrapped(what, "- ", "  ")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _sizes(found: Prediction) -> list[str]:
    size, unit = scale(max(s.step for s in found.sizes) * 1e9)
    lines = [
        f"Predicted sizes ({unit} a step; GB on each GPU, ! where that is more than it has)",
        "",
        f"{'TP':>5}{'step':>11}{'compute':>11}{'comm':>10}{'exposed':>10}{'speed-up':>10}{'efficiency':>12}{'memory':>9}",
        "─" * 79,
    ]
    for s in found.sizes:
        mark = "→" if s.tp == found.asked else " "
        times = [s.step, s.part.compute, s.part.comm, s.part.exposed]
        cells = [f"{t * 1e9 / size:,.{3 if t * 1e9 / size < 1000 else 1}f}" for t in times]
        lines.append(
            f"{mark}{s.tp:>4}{cells[0]:>11}{cells[1]:>11}{cells[2]:>10}{cells[3]:>10}{found.speedup(s):>9.2f}x"
            f"{percent(found.efficiency(s), 1):>12}{s.memory / 1e9:>8,.1f}{' ' if found.fits(s) else '!'}"
        )
    return lines


def _wrapped(text: str, head: str = "", gap: str = "") -> list[str]:
    return textwrap.wrap(
        escape(text), WIDTH, initial_indent=head, subsequent_indent=gap, break_on_hyphens=False
    )
