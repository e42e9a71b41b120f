"""GPU activity of a file: kernels, copies and sets, their launches, and what is recorded of collectives."""

from __future__ import annotations

import numpy as np

from ...classify import Classifier, Collective
from ...intervals import innermost
from ...trace import NA
from ..raw import COPY_KINDS, FROM_NAME, MEMSET_NAME, Names, RawOps, RawTrace, Unit, copy_name
from .events import (
    ABSENT,
    NO_ARGS,
    Args,
    Event,
    Events,
    File,
    ShapedArgs,
    integers,
    nanoseconds,
    optional,
    spans,
    whole,
)
from .shapes import ELEMENT_BYTES, input_bytes, launch_shapes

__all__ = ["read_gpu"]

# Categories as PyTorch 1.8 to 2.x writes them, lower-cased.
KERNEL = {"kernel"}
MEMORY = {"gpu_memcpy", "memcpy", "gpu_memset", "memset"}
ANNOTATION = {"user_annotation"}
LAUNCH = {
    "cuda_runtime",
    "cuda_driver",
    "runtime",
    "driver",
    "hip_runtime",
    "xpu_runtime",
    "privateuse1_runtime",
}

COLLECTIVES = [c.value for c in Collective]
OPTIONAL = ("launch", "thread", "bytes", "group", "communicator", "sequence", "collective", "shape")
COPY_NAMES = {copy_name(kind) for kind in COPY_KINDS}
MOST_DEVICES = 1 << 24  # what exceeds it is no number of a device, nor of devices


def read_gpu(file: File, events: Events, classifier: Classifier, unit: Unit) -> RawTrace | None:
    """The GPU's ops, one unit a device, or None where the file holds none. `unit` is the process."""
    kernels, memory = events.of(KERNEL), events.of(MEMORY)
    if not kernels and not memory:
        return None
    activities = kernels + memory
    args = [_args(e) for e in activities]
    names = Names()
    kernel_names = [str(e.name) for e in kernels]
    code_of = {name: names.code(name) for name in dict.fromkeys(kernel_names)}
    codes = [code_of[name] for name in kernel_names]
    codes += [names.code(_memory_name(str(e.name), str(e.cat))) for e in memory]
    # Where no argument says it (copies between devices), device and stream stand as pid and tid.
    device = integers([a.device for a in args], 0, [e.pid for e in activities])
    device[(device < 0) | (device >= MOST_DEVICES)] = 0
    stream = integers([a.stream for a in args], 0, [e.tid for e in activities])
    distinct, which = np.unique(device, return_inverse=True)
    ops = RawOps.of(*spans(activities), which.astype(np.int32), stream, np.array(codes, np.int32))
    ops.writable(*OPTIONAL)
    ops.bytes[len(kernels) :] = integers([a.bytes for a in args[len(kernels) :]])
    _add_launches(ops, [a.correlation for a in args], events.untimed(LAUNCH))
    communicators = _add_collectives(ops, args[: len(kernels)], classifier)
    _add_annotated(ops, events.of(ANNOTATION), classifier)
    ops.shape[: len(kernels)], shapes = launch_shapes(args[: len(kernels)])
    gpus = {optional(d.get("id")): d.get("name") for d in file.devices or ()}
    # A recorded rank names the process; it names a rank only where the process drives one device.
    rank = unit.rank if len(distinct) == 1 else None
    units = [
        Unit(unit.pid, unit.process, int(d), None if gpus.get(d) is None else str(gpus[d]), rank)
        for d in distinct.tolist()
    ]
    return RawTrace(file.source, "gpu", units, names, ops, communicators=communicators, shapes=shapes)


def _args(event: Event) -> Args:
    return NO_ARGS if event.args is None else event.args


def _add_launches(ops: RawOps, correlations: list[object], calls: list[Event]) -> None:
    """Join each activity to the host call that launched it, by correlation id (unique in a process)."""
    calls = [e for e in calls if e.args is not None]
    if not calls:
        return
    ids = integers([e.args.correlation for e in calls])  # type: ignore[union-attr]
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    wanted = integers(correlations)
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    known = (ids[at] == wanted) & (wanted > 0)  # 0 is CUPTI's "no correlation"
    launching = [calls[i] for i in order[at[known]].tolist()]
    timed = np.array([e.ts is not ABSENT for e in launching], np.bool_)
    if not timed.all():
        known[known] = timed
        launching = [e for e in launching if e.ts is not ABSENT]
    ops.launch[known] = nanoseconds([e.ts for e in launching])
    ops.thread[known] = integers([e.tid for e in launching])


def _add_collectives(ops: RawOps, args: list[Args], classifier: Classifier) -> list[str]:
    """Collective, bytes and communicator where PyTorch recorded them with the kernel.

    Returns what names each communicator: PyTorch gives a group one name on all its ranks.
    """
    communicators: dict[str, int] = {}
    told = [i for i, said in enumerate(args) if said.collective is not None]
    meaning = {str(args[i].collective): FROM_NAME for i in told}
    for name in meaning:
        collective = classifier.annotation(name)
        if collective is not None:
            meaning[name] = COLLECTIVES.index(collective.value)
    for i in told:
        said = args[i]
        ops.collective[i] = meaning[str(said.collective)]
        group = whole(said.group, -1)
        ops.group[i] = group if group < MOST_DEVICES else -1
        # The whole array: of a gather it is what comes out, of a scatter what goes in.
        elements = max(whole(said.elements_in, -1), whole(said.elements_out, -1))
        size = ELEMENT_BYTES.get(str(said.dtype).lower())
        if elements >= 0 and size is not None:
            ops.bytes[i] = elements * size
        if said.group_name is not None:
            # Ranks that are of no group in common may have made groups of one name.
            name = f"process group {said.group_name} {said.group_ranks or ''}"
            ops.communicator[i] = communicators.setdefault(name, len(communicators))
            sequence = whole(said.sequence, -1)
            ops.sequence[i] = sequence if 0 <= sequence < 1 << 31 else -1
    return list(communicators)


def _add_annotated(ops: RawOps, annotations: list[Event], classifier: Classifier) -> None:
    """Bytes from the call of a collective, where PyTorch recorded them there (before 2.3).

    A call that launched several kernels tells nothing of each.
    """
    calls = [e for e in annotations if isinstance(e.args, ShapedArgs)]
    nbytes = integers([input_bytes(e, classifier.annotation(str(e.name))) for e in calls])
    calls = [e for e, known in zip(calls, nbytes != NA, strict=True) if known]
    if not calls:
        return
    nbytes = nbytes[nbytes != NA]
    start, end = spans(calls)
    thread = integers([e.tid for e in calls])
    for one in np.unique(thread):
        mine = np.flatnonzero(thread == one)
        ops_here = np.flatnonzero((ops.thread == one) & (ops.launch != NA) & (ops.bytes == NA))
        inside = innermost(start[mine], end[mine], ops.launch[ops_here])
        alone = (inside >= 0) & (np.bincount(inside + 1, minlength=len(mine) + 1)[inside + 1] == 1)
        ops.bytes[ops_here[alone]] = nbytes[mine[inside[alone]]]


def _memory_name(name: str, category: str) -> str:
    """``Memcpy HtoD (Pinned -> Device)`` to ``Memcpy HtoD``, ``Memset (Device)`` to ``Memset``.

    The category decides that it is one; a name of another vendor becomes a copy of unknown kind.
    """
    bare = name.split("(", 1)[0].strip()
    if "memset" in category.lower():
        return MEMSET_NAME
    return bare if bare in COPY_NAMES else copy_name("Unknown")
