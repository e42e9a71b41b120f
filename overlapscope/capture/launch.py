"""The command line's side of a run: start the launcher, follow what it says, keep what it recorded.

This process never imports torch, and no process started here outlives it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError, Interrupted, OverlapscopeError, RunError
from ..interrupts import Held, held
from . import nsys as nsight
from .events import Event, EventReader
from .failure import cause
from .launcher import GRACE_S, KILL_S, WRITE_S
from .machine import Machine, inspect
from .manifest import Manifest, unfinished, without_paths
from .nsys import Nsys
from .plan import Plan, Request, make, workload
from .processes import ask_to_end, send
from .progress import Progress
from .rundir import REPORT, RunDir, default_path

if TYPE_CHECKING:
    from ..trace import Trace

__all__ = ["Ranks", "Say", "environment", "execute", "finish", "look", "run", "tail"]

POLL_S = 0.05  # how late a progress line may be
TAIL_LINES = 60  # a traceback through autograd and a few lines around it
NSYS_S = 120.0  # for nsys to write its report once its program has ended
Say = Callable[[str], None]


def run(request: Request, say: Say = lambda text: None) -> RunDir:
    """Run a workload on as many processes as it asks for, and record them.

    Parameters
    ----------
    request : Request
    say : callable, optional
        Told in a few words what is being done, whenever that changes.

    Returns
    -------
    RunDir
        With ``trace.sqlite`` (all ranks) and ``run.json``.

    Raises
    ------
    OptionError
        What is asked for cannot be; nothing was started.
    RunError
        A rank failed; what had been recorded is in the directory, which the message names.
    """
    machine, nsys = look(request)
    plan = make(request, machine, nsys)
    path = request.output or default_path(f"{plan.workload}-tp{plan.tp}")
    folder = RunDir.prepare(path, force=request.force)
    execute(plan, folder, machine, nsys, say, keep_json=request.keep_json)
    return folder


def look(request: Request) -> tuple[Machine, Nsys | None]:
    """What a request is planned with: this machine and the nsys on PATH, as far as they can matter to it.

    Raises
    ------
    OptionError
        The workload is not known: the machine need not be looked at. Or nsys is there, and does not run.
    """
    workload(request.workload)
    machine = inspect(gpus=request.device != "cpu")
    wanted = request.recorder == "nsys" or (request.recorder == "auto" and machine.gpus)
    nsys = nsight.find() if wanted else None
    if nsys is not None:
        nsys.check()
    return machine, nsys


def execute(
    plan: Plan, folder: RunDir, machine: Machine, nsys: Nsys | None, say: Say, *, keep_json: bool = False
) -> None:
    """Do what the plan says in a directory that is ready for it; raises as :func:`run` does."""
    nsys = nsys if plan.recorder == "nsys" else None
    manifest = Manifest(plan, machine, nsys)
    with held("still writing what was recorded; once more, and it is lost") as interruptions:
        folder.write_manifest(manifest.data)
        ranks = Ranks(plan, folder, nsys, interruptions)
        finish(ranks, manifest, folder, nsys, say, keep_json=keep_json)
    if interruptions.first is not None:
        raise RunError.of(interruptions.first, f"the run had ended, and is in {folder.path}")


def finish(
    ranks: Ranks, manifest: Manifest, folder: RunDir, nsys: Nsys | None, say: Say, *, keep_json: bool
) -> None:
    """Follow the ranks to their end and keep what they recorded; raises as :func:`run` does."""
    error: BaseException | None
    try:
        ranks.follow(say)
        say("bringing the ranks' recordings together")
        kept = _collect(folder, nsys, ranks)
        error = ranks.error(f"what was recorded is in {kept}" if kept else "nothing was recorded")
    except Interrupted as end:  # the third: nothing is waited for
        error = RunError.of(end, "what was recorded was given up")
    except BaseException as failure:
        # A rank that failed comes before what its failure left unreadable.
        error = ranks.error(f"what was recorded cannot be read ({failure})") or failure
    if keep_json:
        folder.keep_json()
    manifest.end(ranks.here, ranks.events, error)
    folder.write_manifest(manifest.data)
    folder.close()
    if error is not None:
        raise error


class Ranks:
    """The launcher, its ranks, and what they have said so far."""

    def __init__(self, plan: Plan, folder: RunDir, nsys: Nsys | None, interruptions: Held) -> None:
        self.plan, self.folder, self.interruptions = plan, folder, interruptions
        self.here: Sequence[int] = range(plan.tp)  # ranks on this machine
        self.events: list[Event] = []
        self.interrupted: Interrupted | None = None
        self.behind: int | None = (
            None  # once no rank says anything: the one that most likely holds up the others
        )
        self.private = tempfile.mkdtemp(prefix="overlapscope-")
        plan.save(folder.work / "plan.json")
        boot = Path(__file__).with_name("boot.py")
        command = [sys.executable, str(boot), str(folder.work.resolve()), self.private, str(os.getpid())]
        if nsys is not None:
            command = nsight.profile_command(nsys, folder.work / REPORT, command, plan.device)
        with (folder.work / "launcher.log").open("wb") as log:
            # A session of its own: Ctrl-C reaches this process alone, which then ends the others in order.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(plan, os.environ),
                start_new_session=True,
            )
        self.reader = EventReader(folder.work / "events.jsonl")

    @property
    def failed(self) -> bool:
        return self.interrupted is not None or self.behind is not None or self.process.returncode != 0

    def follow(self, say: Say) -> None:
        """Until the launcher and with it every rank has ended."""
        heard, progress = time.monotonic(), Progress(self.plan)
        try:
            if self.plan.recorder == "torch":
                # pandas and all, needed at the end, while the launcher imports torch
                import_module("overlapscope.formats.kineto")
            while self.process.poll() is None:
                self.interrupted = self.interruptions.first
                if self.interrupted is not None:
                    self._end()
                    break  # what has not ended by now is killed below
                new = self.reader.new()
                if new:
                    heard = time.monotonic()
                    self.events += new
                    progress.take(new)
                    say(progress.text())
                elif time.monotonic() - heard > self.plan.timeout and self._waiting():
                    self._find_who_is_behind()
                    self._end()
                    break
                time.sleep(POLL_S)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            self.events += self.reader.new()
            shutil.rmtree(self.private, ignore_errors=True)

    def _waiting(self) -> bool:
        """Whether a rank still has to say something. Once all have ended nsys may take its time."""
        return sum(e.kind == "ended" for e in self.events) < self.plan.tp

    def _find_who_is_behind(self) -> None:
        for pid in self._pids("started").values():
            send(pid, signal.SIGUSR1)  # each writes to its log where it is
        time.sleep(0.5)
        self.behind = _furthest_behind(self.events, self.tails())

    def _end(self) -> None:
        """Ask the launcher to end its ranks, and wait for it as long as it may take."""
        for pid in self._pids("launcher").values() or [self.process.pid]:
            ask_to_end(pid)
        if self._ended_within(KILL_S):
            return
        # Whoever waits for the rank that holds them up learns of its end from a socket, and can write then.
        for rank, pid in self._pids("started").items():
            if rank == self.behind:
                send(pid, signal.SIGKILL)
        self._ended_within(GRACE_S + KILL_S + (NSYS_S if self.plan.recorder == "nsys" else WRITE_S))

    def _ended_within(self, seconds: float) -> bool:
        """Wait for the launcher, and take what was said meanwhile."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.events += self.reader.new()
        return self.process.poll() is not None

    def _pids(self, kind: str) -> dict[int | None, int]:
        """Of the launcher (no rank) or of the ranks that run."""
        gone = {e.rank for e in self.events if e.kind == "ended"}
        return {e.rank: e.fields["pid"] for e in self.events if e.kind == kind and e.rank not in gone}

    def tails(self) -> dict[int, str]:
        """The last that each rank wrote to its log."""
        return {rank: tail(self.folder.work / f"rank{rank}.log") for rank in self.here}

    def error(self, where: str) -> OverlapscopeError | None:
        """Why the run failed, as the error to raise; None if it did not."""
        if self.interrupted is not None:
            return RunError.of(self.interrupted, where)
        tails = self.tails()
        if self.behind is not None:
            what = f"no rank said anything for {self.plan.timeout:g} s, and this one is the furthest behind"
            remedy = f"give a longer --timeout if it needs it; {where}"
            return RunError(what, remedy, f"rank {self.behind}", detail=tails[self.behind])
        first = cause(self.events, tails)
        if first is not None:
            return first.error(where)
        if self.process.returncode == 0:
            return None
        who = "nsys" if self.plan.recorder == "nsys" else "the launcher"
        code = self.process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return RunError(how, where, who, detail=tail(self.folder.work / "launcher.log"))


def environment(plan: Plan, user: Mapping[str, str]) -> dict[str, str]:
    """The launcher's environment: the user's, and where that leaves something open, ours."""
    ours = {
        # A rank's share of the cores, for every library that makes threads; more would only take turns.
        "OMP_NUM_THREADS": str(plan.threads),
        "MKL_NUM_THREADS": str(plan.threads),
        # Kineto says when it starts and stops, on standard error.
        "KINETO_LOG_LEVEL": "99",
        # Asking whether there is a GPU must not initialise its driver before the fork.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }
    if Path("/sys/class/net/lo").exists():
        ours["GLOO_SOCKET_IFNAME"] = "lo"  # gloo would look the host's name up, which may hang
    if plan.device == "cuda":
        # Kernels start in the order of their launches, so a collective gets its SMs before the GEMM it should
        # hide under (before Blackwell).
        ours["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    return {**ours, **user}


def _collect(folder: RunDir, nsys: Nsys | None, ranks: Ranks) -> Path | None:
    """Make ``trace.sqlite`` of what was recorded. Returns where that is; None where there was nothing.

    Of a failed run, ranks that recorded nothing that can be read are left out.
    """
    if nsys is not None:
        return _export(folder, nsys, ranks)
    from ..formats import load  # not above: what is refused need not wait for pandas
    from ..formats.nsys import write

    files = folder.profiles()
    while files:
        try:
            trace = load(files)
        except InputError as error:
            bad = [f for f in files if str(f) == error.about]
            if not ranks.failed or not bad:
                raise
            files.remove(bad[0])
            continue
        write(_with_origin(trace, ranks), folder.trace)
        return folder.path
    return None


def _with_origin(trace: Trace, ranks: Ranks) -> Trace:
    """The trace with what its files do not say: PyTorch's version, and whether the run was cut short."""
    import pandas as pd

    from ..trace import Dropped

    told = trace.provenance
    versions = [e.fields["versions"].get("torch") for e in ranks.events if e.kind == "imported"]
    tool = f"torch.profiler, PyTorch {versions[0]}" if versions else "torch.profiler"
    done = {(event.rank, event.fields["name"]) for event in ranks.events if event.kind == "done"}
    # A step that was cut short would count as a whole one.
    iteration = trace.ranges["role"].isin(["step", "warmup"])
    names = zip(trace.ranges["rank"], trace.ranges["name"], strict=True)
    cut = iteration & ~pd.Series([key in done for key in names], index=trace.ranges.index, dtype=bool)
    dropped = [Dropped(int(cut.sum()), "steps", "they were cut short")] if cut.any() else []
    return replace(
        trace,
        ranges=trace.ranges[~cut].reset_index(drop=True),
        provenance=replace(
            told,
            sources=tuple(replace(source, tool=tool) for source in told.sources),
            command=ranks.plan.command,
            warnings=(*_warnings(ranks), *told.warnings),
            dropped=(*dropped, *told.dropped),
        ),
    )


def _warnings(ranks: Ranks) -> list[str]:
    """What every report of the run must say, and no recording does."""
    error = ranks.error("")
    why = None if error is None else without_paths(f"{error.about or ''} {error.what}".strip())
    return ([] if why is None else [unfinished(why)]) + _late(ranks.events) + _notes(ranks.events)


def _late(events: list[Event]) -> list[str]:
    """Whether the paced link was faster than what carries it."""
    made, late = (sum(e.fields[key] for e in events if e.kind == "paced") for key in ("made", "late"))
    if not late:
        return []
    return [
        f"{late} of {made} exchanges took longer than the paced link would have, and are as long as they took: "
        "choose a slower one, or a larger shape, to see the link and not this machine"
    ]


def _notes(events: list[Event]) -> list[str]:
    """What the program itself has to say of its figures."""
    return [note for e in events if e.kind == "measured" for note in e.fields.get("notes", [])]


def _export(folder: RunDir, nsys: Nsys, ranks: Ranks) -> Path | None:
    """The same of nsys's recording, which is kept where no trace can be made of it."""
    from ..formats.nsys import annotate

    try:
        nsight.export(nsys, folder.work / REPORT, folder.part())
        try:
            annotate(folder.part(), ranks.plan.command, _warnings(ranks))
        except InputError as error:
            what = f"exported what it recorded to a file that {error.what}"
            raise RunError(what, None, f"nsys {nsys.version}") from error
    except RunError as error:
        kept = folder.keep_recording()
        if ranks.failed:
            return kept
        if kept is None:
            raise
        remedy = "; ".join(filter(None, [error.remedy, _how_to_go_on(kept)]))
        raise RunError(error.what, remedy, error.about, detail=error.detail) from error
    folder.part().replace(folder.trace)
    return folder.path


def _how_to_go_on(recording: Path) -> str:
    """What can be done with a recording of nsys's that no trace could be made of."""
    if recording.suffix == ".qdstrm":
        report = recording.with_suffix(".nsys-rep")
        return f"the recording is kept: QdstrmImporter -i {recording} -o {report}, then overlapscope report {report}"
    return f"the recording is kept: overlapscope report {recording}, where an nsys can export it"


def _furthest_behind(events: list[Event], tails: Mapping[int, str]) -> int:
    """The rank that has finished least; of several one that does not itself wait for its peers."""
    said = Counter(event.rank for event in events)
    return min(tails, key=lambda rank: (said[rank], _waits_for_peers(tails[rank]), rank))


def _waits_for_peers(tail: str) -> bool:
    """Whether the innermost call that faulthandler wrote last is one of torch.distributed."""
    innermost = re.findall(r"most recent call first\):\n +File \"([^\"]*)\"", tail)
    return bool(innermost) and "torch/distributed" in innermost[-1]


def tail(log: Path) -> str:
    """The last lines of a log."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    # After a crash Python lists every compiled module, in one line of a thousand characters.
    return "\n".join([line for line in lines if not line.startswith("Extension modules:")][-TAIL_LINES:])
