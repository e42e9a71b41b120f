"""Findings in words: what each costs, what shows it, where, and what to try. Names in them are escaped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..analysis.findings import THRESHOLD, Finding
from .document import Document
from .parts import unit_of
from .words import count, duration, escape, percent, shortened, size

__all__ = ["NONE", "Told", "records", "told"]

NONE = f"No finding costs {float(100 * THRESHOLD):g} % of the {{what}} or more."

MOST_RANKS = 8
MOST_NAMES = 3
MOST_OF_A_PATH = 120
MOST_OF_A_NAME = 60  # characters: a line holds it beside a few words


@dataclass(frozen=True, slots=True)
class Told:
    """One finding, ready to be laid out.

    Attributes
    ----------
    cost : str
        ``12.345 ms a step, 8.1 %``
    title, evidence, advice : str
    share : float
        The cost, of the step.
    range : tuple of str or None
        Where in the program, names as recorded.
    """

    cost: str
    title: str
    evidence: str
    advice: str
    share: float
    range: tuple[str, ...] | None


def told(document: Document) -> list[Told] | str:
    """All findings, or the sentence that there is none."""
    what = document.per
    if not document.findings:
        return NONE.format(what=what)
    unit = unit_of(document)
    return [
        Told(
            f"{duration(float(f.cost_ns), unit)} a {what}, {percent(f.share, 1)}",
            escape(f.title),
            f"{SAID[f.id](f.evidence)}{_place(f, len(document.overlap.ranks))}",
            f.advice,
            f.share,
            f.range,
        )
        for f in document.findings
    ]


def records(document: Document) -> list[dict[str, Any]]:
    """Findings as plain values; the cost in whole ns."""
    return [
        {
            "id": f.id,
            "title": f.title,
            "cost_ns": round(f.cost_ns),
            "share": f.share,
            "ranks": list(f.ranks),
            "range": None if f.range is None else list(f.range),
            "evidence": dict(f.evidence),
            "try": f.advice,
        }
        for f in document.findings
    ]


def _place(finding: Finding, n_ranks: int) -> str:
    """On which ranks, where that is not all of them or said already, and where in the program."""
    text = ""
    if len(finding.ranks) < n_ranks and finding.id not in ("straggler", "skew"):
        some = ", ".join(map(str, finding.ranks[:MOST_RANKS])) + ", ..." * (len(finding.ranks) > MOST_RANKS)
        text += f" On rank{'s' * (len(finding.ranks) > 1)} {some}."
    if finding.range:
        text += f" Most in {shortened(' / '.join(map(escape, finding.range)), MOST_OF_A_PATH)}."
    return text


def _names(names: list[str]) -> str:
    shown = ", ".join(shortened(escape(name), MOST_OF_A_NAME) for name in names[:MOST_NAMES])
    more = len(names) - MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def _one(name: str | None) -> str:
    return _names([name or "(no name)"])


def _times(n: int, what: str) -> str:
    return f"{count(n)} {what}{'s' * (n != 1)}"


def _on_compute_stream(e: Mapping[str, Any]) -> str:
    waiting = f" ({duration(e['waiting_ns'])} of it waiting)" if e["waiting_ns"] else ""
    return (
        f"On {_names(e['streams'])}, where most of the compute runs: {duration(e['exposed_ns'])} exposed{waiting}, "
        f"{duration(e['hidden_ns'])} hidden; {_in_all(e)}."
    )


def _alone(e: Mapping[str, Any]) -> str:
    return (
        f"{_names(e['collectives'])}: {duration(e['exposed_transfer_ns'])} of exposed transfer{_maybe(e)} and "
        f"{_enough(e)} of it; {_in_all(e)}."
    )


def _beyond(e: Mapping[str, Any]) -> str:
    return (
        f"{duration(e['exposed_transfer_ns'])} of exposed transfer{_maybe(e) or ','} and compute to hide "
        f"{duration(e['hideable_ns'])} of it."
    )


def _enough(e: Mapping[str, Any]) -> str:
    if e["hideable_ns"] == e["exposed_transfer_ns"]:
        return "enough compute to hide all"
    return f"compute to hide {duration(e['hideable_ns'])}"


def _in_all(e: Mapping[str, Any]) -> str:
    """Times are a step's, numbers of ops are not."""
    return f"{_times(e['n_ops'], 'op')} in all"


def _maybe(e: Mapping[str, Any]) -> str:
    return "" if e["known_to_be_transfer"] else ", in which waiting for late ranks may be,"


def _straggler(e: Mapping[str, Any]) -> str:
    text = (
        f"It came last to {e['last']:,} of {e['collectives']:,} collectives in all, on average "
        f"{duration(e['late_each_ns'])} after the next"
    )
    if "most" not in e:
        return f"{text}. It does nothing longer than the others that is in the trace."
    does = {"compute": "computes", "idle": "is idle", "memory": "copies, exposed,"}[e["most"]]
    said = f"{text}: it {does} for {duration(e['own_ns'])}, the others {duration(e['others_ns'])}"
    if e["reason"] is None:
        said += f", which explains {percent(e['own_ns'] - e['others_ns'], e['late_ns'])} of it"
    return f"{said}."


def _skew(e: Mapping[str, Any]) -> str:
    said = f"{_times(e['n_collectives'], 'collective')} in all in which the others waited"
    if not e["beside"]:
        return f"{said}; no single rank costs enough of it to be named."
    ranks = f"rank{'s' * (len(e['beside']) > 1)} {', '.join(e['beside'])}"
    return f"{said}: what is left of that beside the cost of {ranks}."


def _slow(e: Mapping[str, Any]) -> str:
    if "peak_gbs" in e:
        return (
            f"{_names(e['collectives'])} of 64 MB and more, {_times(e['n_ops'], 'op')}: {e['lowest_busbw_gbs']:.1f} to "
            f"{e['highest_busbw_gbs']:.1f} GB/s busbw on a link of {e['peak_gbs']:.1f}."
        )
    return (
        f"{e['collective']} of {size(e['bytes'])} takes {duration(e['median_ns'])} in communicator "
        f"{_one(e['communicator'])}, {duration(e['peers_ns'])} in those alike (medians)."
    )


def _latency(e: Mapping[str, Any]) -> str:
    return (
        f"{_times(e['n_ops'], 'op')} ({_names(e['collectives'])}) of at most {size(e['largest_bytes'])} take "
        f"{duration(e['median_ns'])} (median), more than half of it latency."
    )


def _contention(e: Mapping[str, Any]) -> str:
    return (
        f"Overlap hides {duration(e['hidden_ns'])} and slows the compute beside it by {100 * e['slowdown']:.1f} %: "
        f"{e['n_measured']:,} of {e['n_overlapped']:,} ops compare, {_one(e['kernel'])} loses most."
    )


def _replicated(e: Mapping[str, Any]) -> str:
    return (
        f"{_names(e['groups'])}: {percent(e['replicated_ns'], e['compute_ns'])} of the compute, in full on each of "
        f"{e['world_size']} ranks."
    )


def _launch_gaps(e: Mapping[str, Any]) -> str:
    return (
        f"{_times(e['n_gaps'], 'time')} it was idle before an op that was launched only then: median "
        f"{duration(e['median_ns'])}, longest {duration(e['longest_ns'])}."
    )


def _queued(e: Mapping[str, Any]) -> str:
    return (
        f"{_times(e['n_gaps'], 'time')} it was idle before an op whose launch had begun: median "
        f"{duration(e['median_ns'])}, longest {duration(e['longest_ns'])}, on rank {e['longest_rank']} at "
        f"{e['longest_at_ns'] / 1e6:,.3f} ms."
    )


def _pauses(e: Mapping[str, Any]) -> str:
    return (
        f"{_times(e['n_gaps'], 'time')} it was idle for 1 ms or more before the next launch; longest "
        f"{duration(e['longest_ns'])}, on rank {e['longest_rank']} at {e['longest_at_ns'] / 1e6:,.3f} ms."
    )


SAID: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "graph-trace": lambda e: "What they compute and communicate is in no figure.",
    "profiler-overhead": lambda e: f"Part of {duration(e['idle_ns'])} that look idle.",
    "comm-on-compute-stream": _on_compute_stream,
    "exposed-transfer": _alone,
    "comm-bound": _beyond,
    "straggler": _straggler,
    "skew": _skew,
    "slow-link": _slow,
    "latency-bound": _latency,
    "contention": _contention,
    "replicated-work": _replicated,
    "launch-gaps": _launch_gaps,
    "host-pauses": _pauses,
    "queued-idle": _queued,
    "exposed-copies": lambda e: f"{_names(e['copies'])}.",
    "unknown-kernels": lambda e: (
        f"{_times(e['n_ops'], 'op')} of {_times(e['n_names'], 'name')}, most of {_one(e['name'])}."
    ),
    "too-few-steps": lambda e: (
        f"{e['n_steps']} steps a rank, from {duration(e['shortest_ns'])} to {duration(e['longest_ns'])}; the cost is "
        "half of the difference."
    ),
}
