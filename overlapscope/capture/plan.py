"""From what was asked to what will be done: every check that needs no torch."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import OptionError
from . import own
from .machine import Machine, installed
from .nsys import Nsys

if TYPE_CHECKING:
    from workloads import Workload

__all__ = [
    "DEVICES",
    "RECORDERS",
    "Plan",
    "Request",
    "either",
    "make",
    "refuse_huge",
    "workload",
    "workloads",
]

DEVICES = ("auto", "cpu", "cuda")
RECORDERS = ("auto", "torch", "nsys")

# A forked rank's own memory beside its tensors: measured 45 MB with gloo and the profiler at rest, with room.
CPU_PROCESS = 64 << 20
# malloc keeps blocks of middling size that were freed: up to 2.1 times the tensors were measured.
CPU_MALLOC = 2
# What torch.profiler holds of an operator until it is written: measured 2.7 kB.
PROFILED_OPERATOR = 3000
# A CUDA context, NCCL's buffers and the libraries' workspaces.
GPU_PROCESS = 2 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a user asks for. An option of the workload that is None takes its default for the device."""

    workload: str
    tp: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None  # None: as the workload's configuration says
    warmup: int | None = None
    device: str = "auto"
    recorder: str = "auto"
    link: str | None = None  # the link to pretend, as :class:`workloads.Link` reads it
    output: Path | None = None
    force: bool = False
    keep_json: bool = False
    timeout: float = 300.0  # s without a word from any rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the launcher and its ranks are told; nothing in it is left open."""

    workload: str
    tp: int
    options: dict[str, Any]
    steps: int
    warmup: int
    device: str
    recorder: str
    recorder_why: str
    threads: int
    timeout: float
    link: str | None = None  # in full: a speed and a latency
    start: str = ""  # what stands before the command where a launcher starts the ranks

    @property
    def backend(self) -> str:
        """PyTorch's name of what carries the collectives."""
        return "nccl" if self.device == "cuda" else "gloo"

    @property
    def command(self) -> str:
        """The command that does the same again."""
        usual = {field.name: field.default for field in fields(workload(self.workload).config)}
        words = [f"{self.start} overlapscope run".strip(), f"--workload {self.workload}", f"--tp {self.tp}"]
        for name, value in {**self.options, "steps": self.steps, "warmup": self.warmup}.items():
            option = name.replace("_", "-")
            if isinstance(value, bool):
                if value is not usual.get(name, False):
                    words.append(f"--{option}" if value else f"--no-{option}")
            elif value is not None:
                words.append(f"--{option} {value}")
        if self.link is not None:
            words.append(f"--link '{self.link}'")
        return " ".join([*words, f"--device {self.device}", f"--recorder {self.recorder}"])

    def save(self, path: Path) -> None:
        """Write it for the launcher."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Plan:
        """Read what :meth:`save` wrote."""
        return cls(**json.loads(path.read_text()))


def workloads() -> Mapping[str, Workload]:
    """Those there are, by name."""
    known: Mapping[str, Workload] = own.workloads().WORKLOADS
    return known


def workload(name: str, option: str = "--workload") -> Workload:
    """The workload of that name, which `option` gave.

    Raises
    ------
    OptionError
        There is none; the message names those there are.
    """
    known = workloads()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
        raise OptionError(f"{name!r} is not known", remedy, option)
    return known[name]


def make(request: Request, machine: Machine, nsys: Nsys | None, *, here: int | None = None) -> Plan:
    """Check a request against the machine and settle what it leaves open.

    `here` is how many of the ranks a launcher has started on this machine; without one it is all.

    Raises
    ------
    OptionError
        An option, or options together, make no sense here.
    """
    entry = workload(request.workload)
    _check_types(request, entry)
    _check_numbers(request)
    device = _device(request, machine, here)
    try:
        config = entry.configure(device, **_options(request))
        config.check(request.tp, device)
        link = _link(request.link, device)
        if link is not None:
            config.check_link()
    except own.workloads().ConfigError as error:
        if error.other is not None and request.options.get(error.option) is None:
            # The one to blame has its default, or is the number of ranks, which is to vary.
            error = error.other if request.options.get(error.other.option) is not None else error
        raise OptionError(error.what, error.remedy, f"--{error.option.replace('_', '-')}") from None
    here = request.tp if here is None else here
    recorder, why = _recorder(request.recorder, device, nsys)
    steps = config.STEPS if request.steps is None else request.steps
    warmup = config.WARMUP if request.warmup is None else request.warmup
    operators = config.operators(request.tp) * (steps + warmup) if recorder == "torch" else 0
    large = [f"--{field.name}" for field in fields(config) if field.name in config.LARGE]
    _check_memory(here, config.memory(request.tp, device), operators, large, device, machine)
    return Plan(
        workload=request.workload,
        tp=request.tp,
        options=asdict(config),
        steps=steps,
        warmup=warmup,
        device=device,
        recorder=recorder,
        recorder_why=why,
        threads=_threads(here, machine, os.environ.get("OMP_NUM_THREADS", "")),
        timeout=request.timeout,
        link=link,
    )


def _options(request: Request) -> dict[str, Any]:
    """The workload's, with the type by PyTorch's name."""
    aliases: Mapping[str | None, str] = own.part("config").DTYPE_ALIASES
    dtype = request.options.get("dtype")
    return {**request.options, "dtype": aliases.get(dtype, dtype)}


def refuse_huge(option: str, value: int) -> None:
    """Raise OptionError for what is no size of anything: products of such numbers have no float."""
    if abs(value) >= 2**63:
        raise OptionError("has more than 63 bits", "give a smaller number", f"--{option.replace('_', '-')}")


TYPES: dict[str, tuple[type, str]] = {
    "int": (int, "a whole number"),
    "bool": (bool, "True or False"),
    "str": (str, "text"),
}
"""What an option may be, by the type that a workload's configuration declares, and how that is said."""


def _check_types(request: Request, entry: Workload) -> None:
    """What a command line has read is of the right type already; what Python passes need not be."""
    declared = dict.fromkeys(("tp", "steps", "warmup"), "int") | {"preset": "str"}
    declared |= {field.name: str(field.type).split(" ")[0] for field in fields(entry.config)}
    given = {**request.options, "tp": request.tp, "steps": request.steps, "warmup": request.warmup}
    for option, value in given.items():
        if option not in declared:  # which is told where the workload looks for it
            continue
        kind, words = TYPES[declared[option]]
        if value is not None and (
            not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool)
        ):
            raise OptionError(f"is {value!r}", f"give {words}", f"--{option.replace('_', '-')}")


def _check_numbers(request: Request) -> None:
    for option, least in (("tp", 1), ("steps", 1), ("warmup", 0), ("timeout", 1)):
        value = getattr(request, option)
        if value is None and option in ("steps", "warmup"):
            continue
        if not isinstance(value, int | float) or not value >= least:  # nan is not
            raise OptionError(f"is {value}", f"give {least} or more", f"--{option}")
    numbers = {"tp": request.tp, "steps": request.steps, "warmup": request.warmup, **request.options}
    for option, value in numbers.items():
        if option != "seed" and isinstance(value, int):
            refuse_huge(option, value)
    seed = request.options.get("seed") or 0
    if not -(2**63) <= seed < 2**64:  # what torch takes
        raise OptionError(f"{seed} has more than 64 bits", "give -2^63 to 2^64 - 1", "--seed")
    for option, known in (("device", DEVICES), ("recorder", RECORDERS)):
        value = getattr(request, option)
        if value not in known:
            raise OptionError(f"{value!r} is not known", f"choose from {', '.join(known)}", f"--{option}")


def _device(request: Request, machine: Machine, here: int | None) -> str:
    if request.device == "cpu" or (request.device == "auto" and not machine.gpus):
        return "cpu"
    if not machine.gpus:
        raise OptionError(
            "no GPU that this PyTorch can use", "give --device cpu or install PyTorch for CUDA", "--device"
        )
    ranks, seen = request.tp if here is None else here, len(machine.gpus)
    # A launcher may show each rank one GPU, its own.
    if ranks > seen and (here is None or seen > 1):
        raise OptionError(
            f"{ranks} ranks{' here' if here is not None else ''}, and {seen} GPUs are visible",
            f"give at most {seen}, or --device cpu",
            "--tp",
        )
    return "cuda"


def _link(asked: str | None, device: str) -> str | None:
    if asked is None:
        return None
    link = own.workloads().Link.parse(asked)
    if device == "cuda":
        what = "paces the exchanges of processes on a CPU, and the run is on GPUs, over their own link"
        raise OptionError(what, "give --device cpu, or leave it out", "--link")
    return str(link)


def _threads(tp: int, machine: Machine, asked: str) -> int:
    """Threads a rank computes with: what the user's environment says, else its share of the cores."""
    return int(asked) if asked.isdecimal() and int(asked) > 0 else max(1, machine.cores // tp)


def _check_memory(
    tp: int, tensors: int, operators: int, large: list[str], device: str, machine: Machine
) -> None:
    """Refuse what does not fit. On CUDA a rank looks again, at what is free, before it allocates.

    `large` are the options to lower.
    """
    host = tp * (CPU_PROCESS + operators * PROFILED_OPERATOR)
    if device == "cuda":
        need, have = tensors + GPU_PROCESS, min(gpu.memory for gpu in machine.gpus[:tp])
        if need > have:
            what = f"a rank needs about {need / 1e9:.1f} GB, and its GPU has {have / 1e9:.1f} GB"
            raise OptionError(what, f"lower {either(large)}", "GPU memory")
    else:
        host += tp * CPU_MALLOC * tensors
    if host > machine.available:
        what = (
            f"{tp} ranks need about {host / 1e9:.1f} GB, and {machine.available / 1e9:.1f} GB are available"
        )
        raise OptionError(what, f"lower {either(['--tp', *large, '--steps'])}", "memory")


def either(words: list[str]) -> str:
    """``a, b or c``."""
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _recorder(asked: str, device: str, nsys: Nsys | None) -> tuple[str, str]:
    """Which recorder, and why in words."""
    if asked == "torch":
        return "torch", "asked for"
    if asked == "nsys":
        if nsys is None:
            raise OptionError("nsys is not on PATH", "install Nsight Systems or give torch", "--recorder")
        if device == "cpu" and installed("nvtx") is None:
            what = "on a CPU nsys records the ranges that the nvtx package sends, which is not installed"
            raise OptionError(what, "pip install nvtx", "--recorder")
        return "nsys", "asked for"
    if device == "cpu":
        return "torch", "on a CPU it records operators, and nsys ranges alone"
    if nsys is None:
        return "torch", "nsys is not on PATH"
    return "nsys", f"a GPU, and nsys {nsys.version} on PATH"
