"""Rules that a trace must keep, for CI: one line a rule.

A rule that cannot be evaluated fails: a gate that cannot look does not open.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction

from ..analysis.compare import compare
from ..analysis.shift import ALPHA, Shift
from .compare import Run, same_window
from .document import Document
from .likeness import Difference, other_work
from .words import duration, escape, scale

__all__ = ["SCHEMA_VERSION", "SHARES", "Outcome", "Share", "json_text", "regression", "render", "shares"]

SCHEMA_VERSION = 1
"""Of the JSON. Keys may be added under one version; none changes its meaning."""


@dataclass(frozen=True, slots=True)
class Share:
    """A rule on one part of a whole: at most or at least so much of it."""

    part: str
    whole: str
    most: bool
    words: str
    absent: str = ""


SHARES: Mapping[str, Share] = {
    "max-exposed": Share("exposed_comm", "window", True, "exposed communication, of the {per}"),
    "max-wait": Share(
        "exposed_wait",
        "window",
        True,
        "exposed waiting for late ranks, of the {per}",
        "waiting cannot be told from transfer",
    ),
    "max-idle": Share("idle", "window", True, "idle, of the {per}"),
    "min-overlap": Share(
        "overlap", "comm", False, "hidden, of the communication", "no communication was recorded"
    ),
}
"""By the option that gives the limit."""

MOST_DIGITS = 13  # of a percentage that lies close to its limit; a limit has 9 at most


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a rule is kept.

    Attributes
    ----------
    rule : str
        The option that gave it, without dashes.
    passed : bool
    value : float or None
        The share, or the change of the step time as a share of the baseline's; None where it does not exist.
    limit : float
    text : str
        Value and limit in words, or why the rule cannot be evaluated.
    """

    rule: str
    passed: bool
    value: float | None
    limit: float
    text: str


def shares(documents: Sequence[Document], limits: Mapping[str, Fraction]) -> list[Outcome]:
    """Evaluate rules of :data:`SHARES` over all ranks and steps of all runs, as the report's headline has them."""
    steps = {document.overlap.windows.mode for document in documents} == {"steps"}
    outcomes = []
    for name, limit in limits.items():
        rule = SHARES[name]
        words = rule.words.format(per="step" if steps else "window")
        part, whole = (_total(documents, column) for column in (rule.part, rule.whole))
        absent = rule.absent or "the window is empty"
        if unseen := next((d.unseen for d in documents if d.unseen), None):
            part, absent = None, f"what {unseen} communicated was not recorded"
        if part is None or not whole:
            text = f"{words}: n/a, {absent}"
            outcomes.append(Outcome(name, False, None, float(limit), text))
            continue
        value = Fraction(part, whole)
        passed = value <= limit if rule.most else value >= limit
        bound = f"at {'most' if rule.most else 'least'} {_exactly(limit)}"
        text = f"{words}: {_beside(value, limit)}, {bound}"
        outcomes.append(Outcome(name, passed, float(value), float(limit), text))
    return outcomes


def _total(documents: Sequence[Document], column: str) -> int | None:
    """A figure over all ranks; None where a part of it is not known."""
    total = 0
    for document in documents:
        ranks = document.overlap.ranks
        if column == "exposed_wait" and ranks["exposed_unsplit_ns"].sum():
            return None
        total += int(ranks[f"{column}_ns"].sum())
    return total


def regression(
    baseline: Sequence[Run],
    runs: Sequence[Run],
    limit: Fraction,
    differences: Sequence[Difference] = (),
    *,
    untold: bool = False,
) -> Outcome:
    """The median step may be at most so much longer than the baseline's.

    Where it is longer by more and the steps' spread may explain that, `untold` says whether the rule is kept.

    Raises
    ------
    InputError
        One is measured by steps and another, which has none, as a whole.
    """
    same_window([*runs, *baseline])
    found = compare([run.samples for run in baseline], [run.samples for run in runs])
    step = found.times["window"]
    # Exact: as a quotient of floats, 5 % longer would be more than 5 %.
    change = Fraction(step.b) / Fraction(step.a) - 1 if step.a and step.b is not None else None
    work = other_work(differences)
    ranks = [" and ".join(sorted({str(r.samples.ranks) for r in side})) for side in (baseline, runs)]
    if ranks[0] != ranks[1]:
        work.append(f"{ranks[0]} and {ranks[1]} ranks")
    if work:
        why = f"n/a, the baseline is of other work ({', '.join(work)})"
    elif step.verdict == "few":
        why = f"n/a, too few {found.unit} to tell ({step.n_a} and {step.n_b}; 4 of each suffice)"
    elif change is None:
        why = "n/a, the baseline's step takes no time"
    else:
        over = change > limit
        return Outcome(
            "max-regression",
            not over or (untold and step.verdict != "more"),
            float(change),
            float(limit),
            _of_step(step, change, limit, found.unit if over else None),
        )
    return Outcome("max-regression", False, None, float(limit), f"step time against the baseline: {why}")


def _of_step(step: Shift, change: Fraction, limit: Fraction, unit: str | None) -> str:
    """`unit`: what the samples are, where the limit is passed."""
    assert step.a is not None
    assert step.b is not None
    longest = scale(max(step.a, step.b))
    text = (
        f"step time: {duration(step.b, longest)}, {_beside(change, limit, sign=True)} of the baseline's "
        f"{duration(step.a, longest)}, at most +{_exactly(limit)}"
    )
    if unit is None or step.p is None:
        return text
    if step.verdict == "more":
        return f"{text}; p = {step.p:.2g}"
    return f"{text}; the spread of the {unit} may explain it (p = {step.p:.2g} > {ALPHA:g})"


def render(outcomes: Sequence[Outcome], notes: Sequence[str]) -> str:
    """One line a rule, then what a reader must know."""
    lines = [f"{'PASS' if o.passed else 'FAIL'}  {escape(o.text)}" for o in outcomes]
    return "\n".join([*lines, *(f"NOTE  {escape(note)}" for note in notes)]) + "\n"


def json_text(outcomes: Sequence[Outcome], notes: Sequence[str]) -> str:
    """Rules with value and limit as shares (0.05 for 5 %)."""
    data = {
        "schema_version": SCHEMA_VERSION,
        "passed": all(outcome.passed for outcome in outcomes),
        "rules": [asdict(outcome) for outcome in outcomes],
        "warnings": list(notes),
    }
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _beside(value: Fraction, limit: Fraction, *, sign: bool = False) -> str:
    """A share in per cent, with as many digits as show on which side of the limit it lies."""
    for digits in range(1, MOST_DIGITS):
        shown = round(100 * value, digits)
        if (shown > 100 * limit) == (value > limit) and (shown < 100 * limit) == (value < limit):
            break
    return f"{float(100 * value):{'+' if sign else ''}.{digits}f} %"


def _exactly(limit: Fraction) -> str:
    return f"{float(100 * limit):.12g} %"
