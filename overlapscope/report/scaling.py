"""What a comparison of runs on several numbers of ranks says, gathered once, and its JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from ..analysis.scaling import EXPOSED, Account, Scaling, Size, account, scaling
from ..errors import InputError, OptionError
from ..trace import Trace

__all__ = ["SCHEMA_VERSION", "Document", "Run", "build", "json_text", "measure"]

SCHEMA_VERSION = 1
"""Of scale.json. Keys may be added under one version; none changes its meaning."""


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run: where it lies, what its run.json says, where its time went."""

    path: str
    manifest: Mapping[str, Any]
    account: Account
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A scaling report before it is laid out.

    Attributes
    ----------
    title : str
        What was measured, as a path.
    scaling : Scaling
    runs : tuple of Run
        In the order of the sizes.
    cores : int or None
        Cores that the ranks of a CPU run share; None on GPUs.
    oversubscribed : tuple of int
        Sizes with more ranks than that.
    warnings : tuple of str
        All that a reader must know before trusting a figure.
    """

    title: str
    scaling: Scaling
    runs: tuple[Run, ...]
    cores: int | None
    oversubscribed: tuple[int, ...]
    warnings: tuple[str, ...]


def measure(path: str, manifest: Mapping[str, Any], trace: Trace) -> Run:
    """Account for one run.

    Raises
    ------
    InputError
        Its steps cannot be accounted for, or a rank is missing.
    """
    try:
        found = account(trace)
    except (InputError, OptionError) as error:
        raise InputError(error.what, "run it again", path) from error
    if (found.size, found.ranks) != (manifest["tp"], manifest["tp"]):
        what = f"holds {found.ranks} ranks of a run on {manifest['tp']}"
        raise InputError(what, "run it again", path)
    said = list(trace.provenance.warnings)
    if found.unlaunched:
        said.append(f"{found.unlaunched:,} compute ops without a launch record count as unmarked")
    if not any(part.group for part in found.parts_ns):
        said.append("no op was launched in a range marked sharded or replicated: all compute is unmarked")
    return Run(path, manifest, found, tuple(f"tp {found.size}: {w}" for w in said))


def build(title: str, runs: Sequence[Run], notes: Sequence[str] = ()) -> Document:
    """Compare runs of the same work; `notes` are what else the reader must know.

    Raises
    ------
    InputError
        There are fewer than two sizes, or one twice.
    """
    if len(runs) < 2:
        raise InputError("one run has nothing to be compared with", "give two sizes or more", title)
    ordered = tuple(sorted(runs, key=lambda run: run.account.size))
    result = scaling([run.account for run in ordered])
    on_cpu = ordered[0].manifest["device"] == "cpu"
    cores = int(ordered[0].manifest["hardware"]["cores"]) if on_cpu else None
    over = tuple(run.account.size for run in ordered if cores is not None and run.account.size > cores)
    warnings = [*notes, *_of_the_base(result), *_of_the_machine(ordered, cores, over)]
    links = dict.fromkeys(run.manifest["link"] for run in ordered if run.manifest.get("link"))
    warnings += [f"the link was paced ({link}): communication times are simulated" for link in links]
    warnings += [w for run in ordered for w in run.warnings]
    return Document(title, result, ordered, cores, over, tuple(warnings))


def _of_the_base(result: Scaling) -> list[str]:
    n = result.base.size
    if n == 1:
        return []
    return [
        f"the base is tp {n}: T({n})·{n}/N stands for T(1)/N, and speed-up is over {n} ranks; what {n} ranks "
        "themselves lose against one is not in these figures"
    ]


def _of_the_machine(runs: Sequence[Run], cores: int | None, over: Sequence[int]) -> list[str]:
    if cores is None:
        return []
    said = ["the ranks are processes of one CPU, which share its memory and caches"]
    if over:
        said = [
            f"compute is oversubscribed at tp {_listed(over)}: {'more ranks than' if cores > 1 else 'ranks on'} "
            f"the {cores} core{'s' * (cores > 1)} of this machine. Ranks take turns on the cores, so "
            "compute per rank does not shrink as it would on N devices, and waiting for a turn shows up as "
            "exposed communication or idle: efficiency is a figure of this machine there, not of the schedule"
        ]
    threads = [run.manifest["threads_per_rank"] for run in runs]
    if len(set(threads)) > 1:
        said.append(
            f"ranks compute with different numbers of threads ({_listed(threads)} by size), so a rank is not "
            "the same device in each; overlapscope scale --tp gives all the same"
        )
    return said


def _listed(some: Sequence[int]) -> str:
    """1, 2 and 4."""
    *head, last = map(str, some)
    return f"{', '.join(head)} and {last}" if head else last


# -- JSON ----------------------------------------------------------------------------------------------------


def json_text(document: Document) -> str:
    """scale.json: exact figures are integer numerators over the size's one denominator, in ns a step."""
    first = document.runs[0].manifest
    data = {
        "schema_version": SCHEMA_VERSION,
        "base": document.scaling.base.size,
        "workload": first["workload"],
        "options": first["options"],
        "device": first["device"],
        "recorder": first["recorder"],
        "cores": document.cores,
        "oversubscribed": list(document.oversubscribed),
        "sizes": [_as_dict(s, r) for s, r in zip(document.scaling.sizes, document.runs, strict=True)],
        "warnings": list(document.warnings),
    }
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _as_dict(size: Size, run: Run) -> dict[str, Any]:
    exact = [size.time, size.ideal, *size.losses.values(), *size.exposed.values()]
    denominator = math.lcm(*(figure.denominator for figure in exact))

    def over(figure: Fraction) -> int:
        return int(figure * denominator)

    losses = {part: over(loss) for part, loss in size.losses.items()}
    assert sum(losses.values()) == over(size.time) - over(size.ideal), "the numerators do not add up"
    return {
        "tp": run.account.size,
        "path": run.path,
        "steps": run.account.steps,
        "T_ns": float(size.time),
        "ideal_ns": float(size.ideal),
        "loss_ns": float(size.loss),
        "speedup": size.speedup,
        "efficiency": size.efficiency,
        "pop": asdict(size.pop),
        "denominator": denominator,
        "T": over(size.time),
        "ideal": over(size.ideal),
        "loss": over(size.loss),
        "terms": [
            {
                "term": part.term,
                "group": part.group or None,
                "numerator": numerator,
                "loss_ns": float(size.losses[part]),
                "time_ns": float(run.account.each(run.account.parts_ns.get(part, 0))),
            }
            for part, numerator in losses.items()
        ],
        "exposed_comm": [
            {
                "part": part,
                "numerator": over(size.exposed[part]),
                "loss_ns": float(size.exposed[part]),
                "time_ns": float(run.account.each(run.account.exposed_ns.get(part, 0))),
            }
            for part in EXPOSED
        ],
    }
