"""GPU activity of a file: kernels, copies and sets, their launches, and what is recorded of collectives."""

from __future__ import annotations

import msgspec
import numpy as np

from ...classify import Classifier, Collective
from ..raw import COPY_KINDS, FROM_NAME, MEMSET_NAME, Names, RawOps, RawTrace, Unit, copy_name, shape_name
from .events import ABSENT, NO_ARGS, Args, Event, Events, File, integers, nanoseconds, optional, spans, whole

__all__ = ["ELEMENT_BYTES", "read_gpu"]

# Categories as PyTorch 1.8 to 2.x writes them, lower-cased.
KERNEL = {"kernel"}
MEMORY = {"gpu_memcpy", "memcpy", "gpu_memset", "memset"}
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
COPY_NAMES = {copy_name(kind) for kind in COPY_KINDS}
MOST_DEVICES = 1 << 24  # what exceeds it is no number of a device, nor of devices

# Bytes of an element, by the names PyTorch records ("dtype" of a collective, "Input type" of an operator).
ELEMENT_BYTES = {
    **dict.fromkeys(("byte", "char", "bool", "unsigned char", "signed char", "int8_t", "uint8_t"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("half", "bfloat16", "short", "c10::half", "c10::bfloat16", "short int"), 2),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("double", "long", "long int"), 8),
}


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
    ops.bytes[len(kernels) :] = integers([a.bytes for a in args[len(kernels) :]])
    _add_launches(ops, [a.correlation for a in args], events.untimed(LAUNCH))
    _add_collectives(ops, args[: len(kernels)], classifier)
    ops.shape[: len(kernels)], shapes = _shapes(args[: len(kernels)])
    gpus = {optional(d.get("id")): d.get("name") for d in file.devices or ()}
    # A recorded rank names the process; it names a rank only where the process drives one device.
    rank = unit.rank if len(distinct) == 1 else None
    units = [
        Unit(unit.pid, unit.process, int(d), None if gpus.get(d) is None else str(gpus[d]), rank)
        for d in distinct.tolist()
    ]
    return RawTrace(file.source, "gpu", units, names, ops, shapes)


def _shapes(args: list[Args]) -> tuple[list[int], list[str]]:
    """The code of each kernel's grid and block, -1 where they are no lists of three, and the names of the codes."""
    texts = [(bytes(a.grid), bytes(a.block)) for a in args]
    codes: dict[str, int] = {}
    code_of = {
        pair: -1 if (name := _shape(*pair)) is None else codes.setdefault(name, len(codes))
        for pair in dict.fromkeys(texts)
    }
    return [code_of[pair] for pair in texts], list(codes)


def _shape(grid: bytes, block: bytes) -> str | None:
    try:
        sizes = [msgspec.json.decode(text, type=tuple[int, int, int]) for text in (grid, block)]
    except msgspec.DecodeError:
        return None
    return shape_name(*sizes)


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


def _add_collectives(ops: RawOps, args: list[Args], classifier: Classifier) -> None:
    """Collective, bytes and group size where PyTorch recorded them with the kernel."""
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


def _memory_name(name: str, category: str) -> str:
    """``Memcpy HtoD (Pinned -> Device)`` to ``Memcpy HtoD``, ``Memset (Device)`` to ``Memset``.

    The category decides that it is one; a name of another vendor becomes a copy of unknown kind.
    """
    bare = name.split("(", 1)[0].strip()
    if "memset" in category.lower():
        return MEMSET_NAME
    return bare if bare in COPY_NAMES else copy_name("Unknown")
