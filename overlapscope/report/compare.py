"""What a comparison of two sides says, gathered once; and its JSON and CSV."""

from __future__ import annotations

import csv as writer
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from ..analysis.compare import Comparison, compare
from ..analysis.matching import match
from ..analysis.samples import Samples, samples
from ..analysis.shift import ALPHA, Shift
from ..analysis.window import windows
from ..errors import InputError
from ..trace import Provenance, Trace
from .document import only
from .likeness import Difference, changed, unlike
from .tables import of_rows
from .tables import parquet as packed

__all__ = [
    "OF_THESE_RUNS",
    "SCHEMA_VERSION",
    "Document",
    "Run",
    "build",
    "csv",
    "json_text",
    "measure",
    "parquet",
    "same_window",
]

SCHEMA_VERSION = 1
"""Of the JSON. Keys may be added under one version; none changes its meaning."""

OF_THESE_RUNS = (
    "what is told is of these runs: how much one run differs from the next is not in the spread of steps. Folders "
    "with 4 runs or more a side tell that"
)

LEAST_HIDDEN = 0.005
"""Share of its communication that a baseline hides from which on its times are not those of each alone."""


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run: its path, its run.json (None where it has none), its steps, where it was recorded."""

    path: str
    manifest: Mapping[str, Any] | None
    samples: Samples
    provenance: Provenance
    gpus: tuple[str, ...]
    note: str | None


@dataclass(frozen=True, slots=True, repr=False)
class Document:
    """A comparison before it is laid out.

    Attributes
    ----------
    a, b : tuple of Run
    compute_only : tuple of Run
        Those of the un-split GEMMs alone; empty where none were given.
    comparison : Comparison
    changed : tuple of str
        What the runs' own words say was done otherwise, and is meant to be compared.
    warnings : tuple of str
        All that a reader must know before trusting a difference.
    """

    a: tuple[Run, ...]
    b: tuple[Run, ...]
    compute_only: tuple[Run, ...]
    comparison: Comparison
    changed: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def table(self) -> pd.DataFrame:
        """One row a figure: medians ``a`` and ``b``, ``change``, interval, ``verdict``. Times in ns a step."""
        return of_rows(figures(self.comparison))

    def __repr__(self) -> str:
        sides = (f"{side[0].path!r}" if len(side) == 1 else f"{len(side)} runs" for side in (self.a, self.b))
        return f"<comparison of {' and '.join(sides)}; print it for the report>"

    def __str__(self) -> str:
        from .compare_text import render  # it stands on this module

        return render(self)

    @property
    def per(self) -> str:
        """What a figure is of."""
        return "step" if {run.samples.mode for run in (*self.a, *self.b)} == {"steps"} else "window"


def measure(
    path: str,
    manifest: Mapping[str, Any] | None,
    trace: Trace,
    *,
    window: str | None = None,
    ranks: Sequence[int] | None = None,
    step_pattern: str | None = None,
    align: str = "collectives",
) -> Run:
    """Measure one run of a side.

    Raises
    ------
    InputError
        It is a sweep over sizes, which has no step to compare, or no step is on all ranks.
    OptionError
        The window cannot be used, or a rank is not in the trace.
    """
    if (trace.ranges["role"] == "sweep").any():
        what = "is a sweep over sizes of collectives, which has no step to compare"
        raise InputError(what, "compare what overlapscope report says of each", path)
    matching = match(trace, align)
    some = only(trace, ranks)
    chosen = windows(some, window, step_pattern)
    kept = trace.ops["rank"].isin(some.ranks["rank"]).to_numpy()
    found = samples(some, chosen, matching.only(kept), step_pattern)
    if not len(found.steps):
        raise InputError("no step is on all of its ranks", "use --window whole", path)
    gpus = tuple(dict.fromkeys(some.ranks["gpu"].dropna()))
    return Run(path, manifest, found, some.provenance, gpus, chosen.note)


def build(
    a: Sequence[Run],
    b: Sequence[Run],
    compute_only: Sequence[Run] = (),
    differences: Sequence[Difference] = (),
) -> Document:
    """Compare two sides; `differences` are those that their run.json tell: name, of A, of B.

    Raises
    ------
    InputError
        One is measured by steps and another, which has none, as a whole.
    """
    same_window([*a, *b, *compute_only])
    alone = [run.samples for run in compute_only]
    found = compare([run.samples for run in a], [run.samples for run in b], alone or None)
    warnings = [*unlike(a, b, differences), *_of_the_samples(a, b, found), *_of_the_baseline(a, found, alone)]
    warnings += [*said_of("A", a), *said_of("B", b)]
    return Document(
        tuple(a),
        tuple(b),
        tuple(compute_only),
        found,
        changed(a, b, differences),
        tuple(dict.fromkeys(warnings)),
    )


def said_of(side: str, runs: Sequence[Run]) -> list[str]:
    """What must be known of each run of a side, in sentences that begin with the side's name."""
    warnings = []
    for run in runs:
        said = [*run.provenance.warnings, *([run.note] if run.note else [])]
        if run.samples.left_out:
            said.append(f"{run.samples.left_out} steps that not every rank has ops in are left out")
        name = side if len(runs) == 1 else f"{side}, {run.path}"
        warnings += [f"{name}: {text}" for text in said]
    return warnings


def same_window(runs: Sequence[Run]) -> None:
    """Refuse to lay a step beside a whole trace. Raises InputError."""
    whole = [run for run in runs if run.samples.mode != "steps"]
    if whole and len(whole) < len(runs):
        what = "is measured as a whole, for it has no steps to measure, and the others step by step"
        raise InputError(what, "name its steps with --step-pattern, or use --window whole", whole[0].path)


def _of_the_samples(a: Sequence[Run], b: Sequence[Run], found: Comparison) -> list[str]:
    step = found.times["window"]
    if found.unit == "runs":
        return [
            "several runs a side: the samples are their medians, so that how much runs differ is in the spread"
        ]
    if step.verdict == "few":
        return []
    return [OF_THESE_RUNS]


def _of_the_baseline(a: Sequence[Run], found: Comparison, alone: Sequence[Samples]) -> list[str]:
    """Why A may be no serial baseline."""
    schedules = {str(run.manifest["options"].get("schedule") or "serial") for run in a if run.manifest}
    said = [
        f"A ran the schedule {schedule}, which is no serial baseline: overlap efficiency is of what B hides beyond it"
        for schedule in sorted(schedules - {"serial"})
    ]
    hidden = found.ratios["hidden_share"].a
    if hidden is not None and hidden > LEAST_HIDDEN and not alone:
        said.append(
            f"A itself hides {100 * hidden:.1f} % of its communication: its compute and communication are not the "
            "times of each alone, which ECT and the ideal speed-up ask for"
        )
    if any(run.steps["comm_ns"].any() for run in alone):
        said.append(
            "the run given for the GEMMs alone communicates: ECT is too short by what of that is exposed"
        )
    return said


# -- JSON and CSV --------------------------------------------------------------------------------------------


def json_text(document: Document) -> str:
    """The whole comparison; times in ns a step, mean of the ranks, what does not exist null."""
    found = document.comparison
    data = {
        "schema_version": SCHEMA_VERSION,
        "a": [_run(run) for run in document.a],
        "b": [_run(run) for run in document.b],
        "compute_only": [_run(run) for run in document.compute_only],
        "per": document.per,
        "samples": found.unit,
        "alpha": ALPHA,
        "changed": list(document.changed),
        "figures": figures(found),
        "baseline": asdict(found.baseline),
        "collectives": [
            {
                "collective": c.name,
                **{what: _shift(getattr(c, what)) for what in ("count", "time", "exposed")},
            }
            for c in found.collectives
        ],
        "names": [{"name": n.name, "a_ns": n.a, "b_ns": n.b, "change_ns": n.change} for n in found.names],
        "warnings": list(document.warnings),
    }
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def figures(found: Comparison) -> list[dict[str, Any]]:
    """One object a figure."""
    units = dict.fromkeys(found.times, "ns") | dict.fromkeys(found.ratios, "ratio")
    every = {**found.times, **found.ratios}
    return [{"figure": name, "unit": units[name], **_shift(one)} for name, one in every.items()]


def _run(run: Run) -> dict[str, Any]:
    return {
        "path": run.path,
        "command": run.provenance.command,
        "tools": list(dict.fromkeys(source.tool for source in run.provenance.sources)),
        "link": run.provenance.link,
        "gpus": list(run.gpus),
        "lanes": run.provenance.lanes,
        "window": run.samples.mode,
        "ranks": run.samples.ranks,
        "steps": len(run.samples.steps),
    }


def _shift(one: Shift) -> dict[str, Any]:
    return {
        **asdict(one),
        "change": one.change,
        "relative": one.relative(one.change),
        "verdict": one.verdict,
    }


def parquet(document: Document) -> bytes:
    """One row a figure; what does not exist is null."""
    return packed(document.table)


def csv(document: Document) -> str:
    """One row a figure; what does not exist is empty."""
    rows = figures(document.comparison)
    out = io.StringIO()
    table = writer.DictWriter(out, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return out.getvalue()
