"""What one rank does: join the others, build its share, run the iterations, write what was recorded."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from .. import markers
from . import own
from .events import EventWriter
from .failure import is_connection_error
from .plan import Plan, either, workload
from .recorder import Nothing, Recorder, TorchRecorder, WriteError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from workloads import Program

__all__ = ["main", "preload"]


class _Stopped(BaseException):
    """The launcher wants an end. Not an Exception, so that no program catches it by chance."""


class _RefusedError(Exception):
    """The device cannot do it; the user can mend it."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what, self.remedy = what, remedy
        super().__init__(what)


def preload(plan: Plan) -> dict[str, str | None]:
    """Import what every rank needs. Returns the versions of what was imported.

    torch.profiler imports torch._inductor when it starts, 1.2 s a rank; here it is once for all.
    """
    # numpy's linear algebra starts its threads when imported, and a process with threads had better not fork.
    # PyTorch's own reads the same variable, so it is only set meanwhile.
    asked = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import numpy  # noqa: F401

    del os.environ["OPENBLAS_NUM_THREADS"]
    if asked is not None:
        os.environ["OPENBLAS_NUM_THREADS"] = asked
    import torch
    import torch.distributed

    if plan.recorder == "torch":
        import torch._inductor.config
        import torch.profiler
    with suppress(ImportError):
        import nvtx  # noqa: F401 (the first marker would)
    own.workloads()
    if plan.options.get("impl") == "dtensor":
        own.part("dtensor")  # as above: DTensor takes more than a second
    versions: dict[str, str | None] = {"torch": str(torch.__version__), "cuda": torch.version.cuda}
    if plan.device == "cuda":
        nccl: Any = torch.cuda.nccl  # untyped
        versions["nccl"] = ".".join(map(str, nccl.version()))
    return versions


def main(plan: Plan, rank: int, work: Path, store: Path | Store, gpu: int | None = None) -> int:
    """Run the rank. Returns the process's exit code; everything else it has to say is an event.

    The ranks meet in `store`: a file, or one that PyTorch has opened. `gpu` is the rank's number unless said.
    """
    _own_log(work / f"rank{rank}.log")
    for other in (signal.SIGINT, signal.SIGHUP):  # the launcher says when to end
        signal.signal(other, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    events = EventWriter(work / "events.jsonl")
    recorder: Recorder = Nothing()
    if plan.recorder == "torch":
        recorder = TorchRecorder(work / f"rank{rank}.json", plan.device)
    code, stopped = 1, False
    try:
        if plan.recorder == "nsys" and rank == 0:
            events.write("imported", start="exec", why="nsys follows new programs", versions=preload(plan))
        _run(plan, rank, store, rank if gpu is None else gpu, events, recorder)
        code = 0
    except _Stopped:
        stopped = True
    except _RefusedError as refusal:
        events.write("refused", rank, what=refusal.what, remedy=refusal.remedy)
    except own.workloads().WrongError as wrong:
        events.write("error", rank, what=str(wrong), traceback="", connection=False)
    except BaseException as error:
        what = "".join(traceback.format_exception_only(error)).strip()
        text = traceback.format_exc()
        events.write(
            "error", rank, what=_first_line(what), traceback=text, connection=is_connection_error(what)
        )
    # Whatever happened, what was recorded is kept; nothing may break into that.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    file = None
    events.write("writing", rank)
    try:
        file = recorder.finish()
    except WriteError as error:
        code = 1
        what = f"could not write its recording ({error})"
        events.write("error", rank, what=what, traceback="", connection=False)
    events.write("recorded", rank, file=file and file.name)
    if stopped:  # and now end of it, so that whoever waits sees why
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    if code == 0:
        _leave(plan)
        events.write("finished", rank)
    return code


def _run(
    plan: Plan, rank: int, store: Path | Store, gpu: int, events: EventWriter, recorder: Recorder
) -> None:
    import torch

    torch.set_num_threads(plan.threads)
    device = _device(plan, gpu)
    _join(plan, rank, store, device)
    program = _build(plan, rank, device)
    measured = program.measure()
    if rank == 0:
        events.write("measured", rank, **measured)
    events.write("ready", rank)
    _together(plan)
    recorder.start()
    markers.rank(rank, plan.tp)
    if plan.link is not None:
        markers.link(plan.link)
    iterations = [markers.warmup(i) for i in range(plan.warmup)] + [
        markers.step(i) for i in range(plan.steps)
    ]
    exchange = None if plan.link is None else own.part("exchange").exchange
    for i, iteration in enumerate(iterations):
        if i == plan.warmup:
            _together(plan)  # outside every step, so it is not a collective of one
            if exchange is not None:
                exchange.made = exchange.late = 0  # of what is measured alone
        with iteration:
            program.step()
        events.write("done", rank, name=iteration.name)
    if exchange is not None:
        events.write("paced", rank, made=exchange.made, late=exchange.late)


def _join(plan: Plan, rank: int, store: Path | Store, device: Any) -> None:
    import torch.distributed as dist

    there: dict[str, Any] = (
        {"init_method": f"file://{store}"} if isinstance(store, Path) else {"store": store}
    )
    dist.init_process_group(
        plan.backend,
        **there,
        rank=rank,
        world_size=plan.tp,
        device_id=device if plan.device == "cuda" else None,  # else NCCL has to guess, and warns
    )


def _build(plan: Plan, rank: int, device: Any) -> Program:
    entry = workload(plan.workload)
    link = None if plan.link is None else own.workloads().Link.parse(plan.link)
    ranks = own.part("collectives").Ranks(rank, plan.tp, link=link)
    return entry.build(entry.config(**plan.options), ranks, device)


def _device(plan: Plan, gpu: int) -> Any:
    """The rank's device, with room for its share."""
    import torch

    if plan.device == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise _RefusedError("this PyTorch cannot use the GPU", "give --device cpu")
    if plan.options.get("schedule") == "symm_mem":
        others = [other for other in range(plan.tp) if other != gpu]
        if not all(torch.cuda.can_device_access_peer(gpu, other) for other in others):
            what = "--schedule symm_mem needs GPUs that can access one another's memory, and this one cannot"
            raise _RefusedError(what, "give --schedule ring")
    torch.cuda.set_device(gpu)
    free, _ = torch.cuda.mem_get_info(gpu)
    config = workload(plan.workload).config(**plan.options)
    need = config.memory(plan.tp, "cuda")
    if need > free:
        raise _RefusedError(
            f"needs about {need / 1e9:.1f} GB, and {free / 1e9:.1f} GB of its GPU are free",
            f"end what uses the GPU, or lower {either([f'--{n}' for n in plan.options if n in config.LARGE])}",
        )
    return torch.device("cuda", gpu)


def _together(plan: Plan) -> None:
    """Wait for all ranks."""
    if plan.tp == 1:
        return
    import torch.distributed as dist

    dist.barrier()
    if plan.device == "cuda":
        import torch

        torch.cuda.synchronize()


def _leave(plan: Plan) -> None:
    """Leave the group once nobody needs this rank any more."""
    import torch.distributed as dist

    _together(plan)
    dist.destroy_process_group()


def _own_log(path: Path) -> None:
    """Standard output and error to a file of the rank's own; where a crash happened stands there, too."""
    sys.stdout.flush()
    sys.stderr.flush()
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)  # sent to a rank that hangs


def _stop(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # whoever else sends it must not break into what follows
    raise _Stopped


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else "an exception without a text"
