"""A run without GPU: the operators that compute, and the collectives of a CPU backend, on their threads."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from ...classify import Classifier, Collective, Kind, Verdict
from ...errors import InputError
from ...intervals import covered, outermost, union
from ...trace import NA
from ..raw import Names, RawOps, RawTrace, Unit
from .events import ABSENT, Event, Events, File, ShapedArgs, integers, spans
from .gpu import ELEMENT_BYTES

__all__ = ["read_host"]

OPERATOR = {"cpu_op", "operator"}
ANNOTATION = {"user_annotation"}

# Collectives whose input is already the whole array; for the others it is a shard of an unknown number.
WHOLE_INPUT = {Collective.ALL_REDUCE, Collective.BROADCAST, Collective.REDUCE, Collective.REDUCE_SCATTER}


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
    for i, event in enumerate(comm):
        ops.bytes[i] = _input_bytes(event, verdict(str(event.name)).collective)
    texts = [_dims(e) for e in ops_events]
    shapes = {text: code for code, text in enumerate(t for t in dict.fromkeys(texts) if t is not None)}
    ops.shape[:] = [-1 if text is None else shapes[text] for text in texts]
    return RawTrace(file.source, "host", [unit], names, ops, list(shapes))


def _dims(event: Event) -> str | None:
    """The recorded input dimensions of an operator, as they stand in the file."""
    args = event.args
    if not isinstance(args, ShapedArgs) or args.input_dims is ABSENT:
        return None
    return bytes(args.input_dims).decode("utf-8", "replace")


def _computing(operators: list[Event], verdict: Callable[[str], Verdict]) -> list[Event]:
    """The operators that are ops: leaf GEMMs and attention, and the outermost of the rest that compute.

    An operator around a GEMM is its wrapper, one inside it its part; neither is an op of its own.
    """
    kinds = [verdict(str(e.name)).kind for e in operators]
    operators = [e for e, kind in zip(operators, kinds, strict=True) if kind is not None]
    leaf = np.array([k in (Kind.GEMM, Kind.ATTENTION) for k in kinds if k is not None], np.bool_)
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


def _input_bytes(event: Event, collective: Collective | None) -> int:
    """Bytes of the whole array from the recorded input, where the input is the whole array."""
    args = event.args
    if not isinstance(args, ShapedArgs) or collective not in WHOLE_INPUT or args.input_dims is ABSENT:
        return NA
    try:
        dims = msgspec.json.decode(args.input_dims)
        types = msgspec.json.decode(args.input_type)
        sizes = [ELEMENT_BYTES[t.lower()] for t in types]
        return sum(int(np.prod(d, dtype=np.int64)) * size for d, size in zip(dims, sizes, strict=True))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
        return NA


def _cached(verdict: Callable[[str], Verdict]) -> Callable[[str], Verdict]:
    known: dict[str, Verdict] = {}

    def look_up(name: str) -> Verdict:
        found = known.get(name)
        if found is None:
            found = known[name] = verdict(name)
        return found

    return look_up
