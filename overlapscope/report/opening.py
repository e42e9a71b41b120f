"""How a report begins, in words: what was captured, and what a tired person needs to know of it."""

from __future__ import annotations

from pathlib import PurePath
from typing import NamedTuple

from ..analysis.bounds import Bound
from . import bandwidth
from .document import Document
from .words import duration, percent

__all__ = ["IDEAL_WORDS", "Sums", "gained", "headline", "setting", "sums"]

MOST_STEPS = 3
"""Named in the line of the window."""

IDEAL_WORDS = {
    "no_skew": "no rank had to wait for another",
    "fast_link": "the link were infinitely fast",
    "all_hidden": "communication hid wherever compute is",
}


def setting(document: Document) -> list[tuple[str, str]]:
    """What was captured and what is analysed: (label, words)."""
    said, ranks = document.provenance, document.overlap.ranks
    lines = [("trace", _sources(document))]
    if said.command is not None:
        lines.append(("made by", said.command))
    lines.append(("recorded by", "; ".join(dict.fromkeys(s.tool for s in said.sources))))
    who = f"{len(ranks)} rank{'s' * (len(ranks) != 1)}"
    if document.n_ranks != len(ranks):
        who += f" of {document.n_ranks}"
    unnamed = "CPU" if said.lanes == "host" else "GPUs of unrecorded name"
    on = ", ".join(document.gpus) if document.gpus else unnamed
    lines.append(("ranks", f"{who} on {on}, {said.ranks_from}"))
    if len(said.sources) > 1 or document.overlap.matching.clocks.how:
        aligned = document.overlap.matching.clocks.how
        lines.append(("clocks", said.clock + (f"; {aligned}" if aligned else "")))
    lines.append(("window", _window(document)))
    if said.link is not None:
        lines.append(("link", f"paced: {said.link}"))
    if document.peak is not None:
        lines.append(("peak", document.peak.how))
    return lines


def _sources(document: Document) -> str:
    sources = document.provenance.sources
    paths = [PurePath(s.path) for s in sources]
    formats = dict.fromkeys(
        f"{'nsys' if s.format == 'nsys' else 'PyTorch'} schema {s.schema}" for s in sources if s.schema
    )
    schema = f" ({', '.join(formats)})" if formats else ""
    if len(paths) == 1:
        return f"{paths[0]}{schema}"
    last = paths[-1].name if paths[-1].name != paths[0].name else "/".join(paths[-1].parts[-2:])
    return f"{len(paths)} files, {paths[0]} to {last}{schema}"


def _window(document: Document) -> str:
    window = document.overlap.windows
    spans = [w for w in window.of_rank.values() if len(w)]
    if not spans:
        return "empty: no op in it lasts"
    bounds = f"{_ms(min(int(w.start[0]) for w in spans))} to {_ms(max(int(w.end[-1]) for w in spans))} ms"
    mean = float(document.overlap.ranks["window_ns"].mean())
    outside = f"; {document.n_ops_outside:,} ops lie outside" if document.n_ops_outside else ""
    if window.mode == "whole":
        return f"whole trace, each rank's first op to its last, {bounds}{outside}"
    if window.mode == "range":
        return f"{bounds}{outside}"
    n = len(window.steps)
    names = window.steps[0] if n == 1 else f"{window.steps[0]} to {window.steps[-1]}"
    text = (
        f"{n} steps ({names}), {duration(mean)} together" if n > 1 else f"1 step ({names}), {duration(mean)}"
    )
    text += f", {bounds}"
    if window.left_out:
        text += f"; {len(window.left_out)} warm-up step{'s' * (len(window.left_out) > 1)} left out"
    if window.without_ops:
        n, some = len(window.without_ops), ", ".join(window.without_ops[:MOST_STEPS])
        more = ", ..." if n > MOST_STEPS else ""
        where = " on some rank" if len(window.n_steps) > 1 else ""
        text += f"; {n} step{'s' * (n > 1)} without ops{where} ({some}{more}) not counted"
    return f"{text}{outside}"


def _ms(ns: int) -> str:
    return f"{ns / 1e6:,.3f}"


# -- headline ------------------------------------------------------------------------------------------------


class Sums(NamedTuple):
    """Over the ranks, ns: what the opening speaks of. The last three add up to `exposed`."""

    window: int
    comm: int
    exposed: int
    hidden: int
    wait: int
    wire: int
    unsplit: int


def sums(document: Document) -> Sums:
    """The figures that the opening is made of."""
    ranks = document.overlap.ranks
    columns = (
        "window",
        "comm",
        "exposed_comm",
        "overlap",
        "exposed_wait",
        "exposed_wire",
        "exposed_unsplit",
    )
    return Sums(*(int(ranks[f"{column}_ns"].sum()) for column in columns))


def headline(document: Document) -> list[str]:
    """What a tired person needs: how much is hidden, what is exposed, and what hiding it could gain at most.

    Of a sweep, which hides nothing and is not meant to, how fast it is.
    """
    if document.bandwidth is not None:
        return bandwidth.headline(document.bandwidth)
    total, comm, exposed, hidden, wait, wire, unsplit = sums(document)
    n = document.n_steps
    what = document.per
    if comm == 0:
        unseen = document.unseen
        doubt = f", but what {unseen} communicated is not known." if unseen else ": nothing to hide."
        return [f"No communication was recorded in this window{doubt}", *_idle(document, n, what)]
    lines = [
        f"{percent(hidden, comm)} of the communication is hidden under compute.",
        f"Exposed: {duration(exposed / n)} of communication per {what}, {percent(exposed, total)} of the {what}.",
        *_waiting(wait, wire, unsplit, n),
    ]
    if exposed == 0:
        return lines + _idle(document, n, what)
    bound = document.bounds["all_hidden"]
    most = bound.gain_ns
    assert most is not None
    gain = gained(bound)
    if most < exposed:
        lines.append(f"There is compute to hide {duration(most / n)} of it: that could gain {gain}.")
    else:
        lines.append(f"Hiding all of it could gain {gain}.")
    return lines + _idle(document, n, what)


def _idle(document: Document, n: int, what: str) -> list[str]:
    """Where more time is idle than anything else, hiding communication is not the first thing to do."""
    sums = document.overlap.ranks[["idle_ns", "compute_ns", "exposed_comm_ns", "window_ns"]].sum()
    if sums["idle_ns"] <= max(sums["compute_ns"], sums["exposed_comm_ns"]):
        return []
    share = percent(sums["idle_ns"], sums["window_ns"])
    return [f"Most of the time is idle: {duration(sums['idle_ns'] / n)} per {what}, {share} of the {what}."]


def _waiting(wait: int, wire: int, unsplit: int, n: int) -> list[str]:
    """How much of the exposed time is waiting for late ranks; nothing where that cannot be told."""
    if not wait + wire:
        return []
    if not wait and not unsplit:
        return ["None of it is waiting for ranks that came late."]
    line = f"Of it {duration(wait / n)} is waiting for ranks that came late, {duration(wire / n)} transfer"
    return [f"{line}; {duration(unsplit / n)} could be either." if unsplit else f"{line}."]


def gained(bound: Bound) -> str:
    """A bound in words: ``at most 13.0 % (1.15x)``."""
    if bound.gain_ns is None:
        return "n/a"
    if bound.gain_ns == 0:
        return "nothing"
    if bound.speedup is None:
        return "all of it"
    return f"at most {percent(bound.gain_ns, bound.window_ns)} ({bound.speedup:.2f}x)"
