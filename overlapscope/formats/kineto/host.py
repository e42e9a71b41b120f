"""A run without GPU: the operators that compute, and the collectives of a CPU backend, on their threads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...classify import Classifier, Kind, Verdict
from ...errors import InputError
from ...intervals import around, covered, outermost, union
from ..raw import Names, RawOps, RawTrace, Unit
from .events import Event, Events, File, integers, spans
from .shapes import input_bytes, input_shapes

__all__ = ["read_host"]

OPERATOR = {"cpu_op", "operator"}
ANNOTATION = {"user_annotation"}


def read_host(file: File, events: Events, classifier: Classifier, unit: Unit) -> RawTrace:
    """The host's ops.

    Raises
    ------
    InputError
        There are none, or the work ran on a GPU that was not recorded.
    """
    annotations = events.of(ANNOTATION)
    verdict = _cached(classifier.host)
    comm = [e for e in annotations if verdict(str(e.name)).kind is Kind.COMM]
    if not comm and file.backend == "nccl" and any(classifier.annotation(str(e.name)) for e in annotations):
        raise InputError(
            "holds NCCL calls but no GPU work: the GPU was not recorded",
            "record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
            file.source.path,
        )
    ops_events = comm + _computing(events.of(OPERATOR), verdict)
    if not ops_events:
        raise InputError(
            "holds no ops: no GPU work and no host operators", "record it again", file.source.path
        )
    names = Names()
    codes = np.array([names.code(str(e.name)) for e in ops_events], np.int32)
    thread = integers([e.tid for e in ops_events], 0)
    ops = RawOps.of(*spans(ops_events), np.zeros(len(codes), np.int32), thread, codes)
    ops.launch, ops.thread = ops.start.copy(), thread.copy()
    ops.writable("bytes", "shape")
    for i, event in enumerate(comm):
        ops.bytes[i] = input_bytes(event, verdict(str(event.name)).collective)
    ops.shape[:], shapes = input_shapes(ops_events)
    return RawTrace(file.source, "host", [unit], names, ops, shapes=shapes)


def _computing(operators: list[Event], verdict: Callable[[str], Verdict]) -> list[Event]:
    """The operators that are ops: leaf GEMMs and attention, and the outermost of the rest that compute.

    An operator around a GEMM is its wrapper, one inside it its part; neither is an op of its own. What hands
    its work over, or waits for a collective (an operator on DTensors does both), is a wrapper whatever it is.
    """
    handed = [e for e in operators if verdict(str(e.name)).hands_over]
    operators = [e for e in operators if verdict(str(e.name)).kind is not None]
    operators = _without_wrappers(operators, handed)
    kinds = [verdict(str(e.name)).kind for e in operators]
    leaf = np.array([k in (Kind.GEMM, Kind.ATTENTION) for k in kinds], np.bool_)
    start, end = spans(operators)
    thread = integers([e.tid for e in operators], 0)
    keep = np.zeros(len(operators), np.bool_)
    for tid in np.unique(thread):
        here = thread == tid
        leaves, rest = np.flatnonzero(here & leaf), np.flatnonzero(here & ~leaf)
        keep[leaves[outermost(start[leaves], end[leaves])]] = True
        taken = union(start[leaves], end[leaves])
        # One nanosecond at least, so that an empty operator inside a GEMM counts as inside.
        rest = rest[covered(taken, start[rest], np.maximum(end[rest], start[rest] + 1)) == 0]
        keep[rest[outermost(start[rest], end[rest])]] = True
    return [operators[i] for i in np.flatnonzero(keep)]


def _without_wrappers(operators: list[Event], handed: list[Event]) -> list[Event]:
    """Those in which nothing of `handed` begins on the same thread."""
    if not handed:
        return operators
    keep = np.ones(len(operators), np.bool_)
    start, end = spans(operators)
    instant, _ = spans(handed)
    thread, theirs = (integers([e.tid for e in events], 0) for events in (operators, handed))
    for tid in np.unique(theirs):
        here = thread == tid
        keep[here] = ~around(start[here], end[here], instant[theirs == tid])
    return [operators[i] for i in np.flatnonzero(keep)]


def _cached(verdict: Callable[[str], Verdict]) -> Callable[[str], Verdict]:
    known: dict[str, Verdict] = {}

    def look_up(name: str) -> Verdict:
        found = known.get(name)
        if found is None:
            found = known[name] = verdict(name)
        return found

    return look_up
