"""From what was asked to what is computed: names looked up, the shape checked, sizes chosen."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..capture import own
from ..capture.plan import refuse_huge
from ..errors import OptionError
from .gpus import GPUS, Gpu
from .machine import Constant, Route, machine, overridden, route
from .step import Layout, Prediction, sizes
from .work import Shape

__all__ = ["Request", "answer"]

# Powers of two, and the whole of an NVL72.
SIZES = (1, 2, 4, 8, 16, 32, 64, 72)

# A length at which Llama 3 begins its training (Grattafiori et al. 2024, table 4), one sequence a step.
SEQ, BATCH = 4096, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a user asks for; None takes the preset's, the GPU's or the model's own.

    Attributes
    ----------
    preset, gpu : str
    tp : int
    link, beyond : str or None
        Inside the domain, and for sizes beyond it.
    dimensions, layout, constants : mapping
        Fields of the shape, of the layout (all of them), and of :data:`~overlapscope.predict.machine.OVERRIDES`.
    """

    preset: str
    gpu: str
    tp: int
    link: str | None = None
    beyond: str | None = None
    dimensions: Mapping[str, int | None] = field(default_factory=dict)
    layout: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, float | None] = field(default_factory=dict)


def answer(request: Request) -> Prediction:
    """Predict.

    Raises
    ------
    OptionError
        A name is not known, a constant makes no sense, or `tp` ranks cannot share the work or the link.
    """
    try:
        return _answer(request)
    except own.workloads().ConfigError as error:
        raise OptionError(error.what, error.remedy, f"--{error.option.replace('_', '-')}") from None


def _answer(request: Request) -> Prediction:
    presets = own.part("presets")
    _among("--preset", request.preset, presets.LAYERS)
    _among("--gpu", request.gpu, GPUS)
    for option, value in {
        "tp": request.tp,
        **request.dimensions,
        **request.layout,
        **request.constants,
    }.items():
        if isinstance(value, int):
            refuse_huge(option, value)
    if request.tp < 1:
        raise OptionError(f"is {request.tp}", "give 1 or more", "--tp")
    gpu = GPUS[request.gpu]
    fast = machine(gpu, request.constants)
    shape = _shape(presets.PRESETS[request.preset], presets.LAYERS[request.preset], request.dimensions)
    config = _config(shape, request)
    config.check(request.tp, "cuda")
    if request.dimensions.get("kv_heads") is None and shape.heads % shape.kv_heads:
        what = f"{shape.heads} is no multiple of the {shape.kv_heads} heads of keys and values of {request.preset}"
        raise OptionError(what, f"give one, or --kv-heads {shape.heads}", "--heads")
    shape.check(request.tp)
    routes = _routes(request, gpu)
    layout = Layout(**{name: getattr(config, name) for name in request.layout})
    candidates = {1, request.tp, *(n for n in SIZES if _shared(config, shape, n))}
    found, beyond = sizes(shape, layout, fast, routes, sorted(candidates))
    if request.tp in beyond:
        what = f"{request.tp} GPUs are more than the {routes[0].domain} that {routes[0].name} joins"
        remedy = "name the link that is taken then, --beyond ndr, or say how many it joins, --domain"
        raise OptionError(what, remedy, "--tp")
    changed = any(value is not None for value in request.dimensions.values())
    name = f"{request.preset}, changed" if changed else request.preset
    return Prediction(name, gpu.title, shape, layout, fast, routes, request.tp, found, beyond)


def _shape(preset: Mapping[str, Any], layers: int, given: Mapping[str, int | None]) -> Shape:
    block = own.workloads().BlockConfig.of("cuda", **preset)
    usual = {name: getattr(block, name) for name in ("hidden", "heads", "kv_heads", "ffn", "arch")}
    usual |= {"seq": SEQ, "batch": BATCH, "layers": layers}
    return Shape(**usual | {name: value for name, value in given.items() if value is not None})


def _config(shape: Shape, request: Request) -> Any:
    """The block as a workload, which knows what can be split and which schedule goes with which layout."""
    names = ("hidden", "heads", "ffn", "arch", "seq", "batch", "layers")
    dimensions = {name: getattr(shape, name) for name in names}
    return own.workloads().BlockConfig.of("cuda", **dimensions, **request.layout)


def _shared(config: Any, shape: Shape, tp: int) -> bool:
    """So many ranks can share the work."""
    try:
        config.check(tp, "cuda")
        shape.check(tp)
    except (own.workloads().ConfigError, OptionError):
        return False
    return True


def _routes(request: Request, gpu: Gpu) -> tuple[Route, ...]:
    """The link of the GPUs and, where one is named, the one that is taken beyond its domain."""
    names, parse = own.part("link").LINKS, own.workloads().Link.parse
    name = request.link or gpu.link
    domain = None
    if name.startswith("nvlink") or request.constants.get("domain") is not None:
        # NVLink joins what the GPU's machine holds; of other links no limit is known.
        domain = Constant("link domain", gpu.domain, "GPUs", gpu.source, "--domain")
        domain = overridden(domain, request.constants)
    routes = [route(name, parse(name), known=name in names, domain=domain, given=request.constants)]
    if request.beyond is not None:
        if domain is None:
            remedy = "leave it out, or say how many GPUs the link joins, --domain"
            raise OptionError(f"no limit of {name} is known that this could lie beyond", remedy, "--beyond")
        try:
            further = parse(request.beyond)
        except own.workloads().ConfigError as error:
            raise OptionError(error.what, error.remedy, "--beyond") from None
        routes.append(route(request.beyond, further, known=request.beyond in names, beyond=True, given={}))
    return tuple(routes)


def _among(option: str, value: str, known: Iterable[str]) -> None:
    names = list(known)
    if value not in names:
        near = difflib.get_close_matches(value.lower(), names, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"choose from {', '.join(names)}"
        raise OptionError(f"{value!r} is not known", remedy, option)
