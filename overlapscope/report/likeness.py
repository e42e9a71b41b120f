"""Whether two sides are the same work under the same conditions, as far as traces and run.json tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compare import Run

__all__ = ["Difference", "changed", "other_work", "unlike"]

Difference = tuple[str, Any, Any]
"""A name in run.json, its value in A and in B."""

METHOD = ("schedule", "chunks", "overlap_backward", "impl", "sequence_parallel", "seed")
"""How the same work is done, which a comparison is meant to compare."""

CONDITIONS = ("threads_per_rank", "cpu", "backend")
"""What it was done with, and no trace tells."""

TOLD_BY_THE_TRACE = ("tp", "link", "gpus", "device", "recorder", "steps", "warmup")

VERSIONS = ("torch", "cuda", "nccl", "nsys", "python", "overlapscope")


def changed(a: Sequence[Run], b: Sequence[Run], differences: Sequence[Difference]) -> tuple[str, ...]:
    """What was done otherwise on purpose, and with which versions, in words."""
    said = [_told(d) for d in differences if d[0] in METHOD]
    one, other = (_versions(side[0].manifest) for side in (a, b))
    if one and other:
        said += [_told((v, one.get(v), other.get(v))) for v in VERSIONS if one.get(v) != other.get(v)]
    return tuple(said)


def other_work(differences: Sequence[Difference]) -> list[str]:
    """In what two runs are not of the same work."""
    known = (*METHOD, *CONDITIONS, *TOLD_BY_THE_TRACE)
    return [
        f"{name} {_value(one)} and {_value(other)}" for name, one, other in differences if name not in known
    ]


def unlike(
    a: Sequence[Run], b: Sequence[Run], differences: Sequence[Difference], names: tuple[str, str] = ("A", "B")
) -> list[str]:
    """Why a difference of the figures need not be one of what is compared, in sentences."""
    one, other = names
    said = []
    if work := other_work(differences):
        said.append(f"not the same work: {', '.join(work)} in {one} and {other}")
    unnamed = [
        name for name, side in zip(names, (a, b), strict=True) if any(r.manifest is None for r in side)
    ]
    if unnamed:
        whose = " and of ".join(unnamed)
        said.append(f"no run.json of {whose}: whether both are the same work is for you to know")
    said += [
        f"{name} {_value(mine)} in {one} and {_value(theirs)} in {other}"
        for name, mine, theirs in differences
        if name in CONDITIONS
    ]
    checks: list[tuple[str, Callable[[Run], str]]] = [
        ("has", lambda run: f"{run.samples.ranks} rank{'s' * (run.samples.ranks != 1)}"),
        ("is", _kind),
        ("ran on", _gpus),
        ("was recorded by", lambda run: ", ".join(dict.fromkeys(s.tool for s in run.provenance.sources))),
    ]
    for verb, of in checks:
        mine, theirs = (_all(of(run) for run in side) for side in (a, b))
        if mine != theirs:
            said.append(f"{one} {verb} {mine}, and {other} {verb} {theirs}")
    return said + _links(a, b, names)


def _kind(run: Run) -> str:
    if run.provenance.from_ranges:
        return "made from NVTX ranges alone, where compute is whatever runs in marked ranges"
    return "a CPU run" if run.provenance.lanes == "host" else "of GPUs"


def _gpus(run: Run) -> str:
    return ", ".join(run.gpus) or ("a CPU" if run.provenance.lanes == "host" else "GPUs of unrecorded name")


def _links(a: Sequence[Run], b: Sequence[Run], names: tuple[str, str]) -> list[str]:
    one, other = (_all(run.provenance.link or "" for run in side) for side in (a, b))
    if one == other:
        return [f"the link was paced ({one}): communication times are simulated"] if one else []
    return [
        f"the link was {_paced(one)} in {names[0]} and {_paced(other)} in {names[1]}: a difference of the schedules "
        "cannot be told from one of the links"
    ]


def _paced(link: str) -> str:
    return f"paced ({link})" if link else "real"


def _all(words: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(words))


def _versions(manifest: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return {} if manifest is None else manifest.get("versions") or {}


def _told(difference: Difference) -> str:
    name, one, other = difference
    return f"{name} {_value(one)} → {_value(other)}"


def _value(value: Any) -> str:
    return (
        "none"
        if value is None
        else {True: "yes", False: "no"}[value]
        if isinstance(value, bool)
        else str(value)
    )
