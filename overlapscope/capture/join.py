"""The command line's side of a run whose ranks a launcher has started: each does this for its own rank.

The first of a node (local rank 0) speaks for it and keeps what its ranks recorded. No process started here
outlives the command line, which never imports torch.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import Interrupted, OptionError, OverlapscopeError, RunError
from ..interrupts import handled
from .events import Event, EventReader, EventWriter
from .failure import cause
from .launch import Ranks, Say, environment, finish, look, tail
from .launcher import GRACE_S, KILL_S
from .machine import Machine
from .manifest import Manifest
from .member import Task
from .network import in_use, interface_to, is_free
from .plan import Plan, Request, make
from .progress import Progress
from .rundir import RunDir
from .world import LOOPBACK, World

__all__ = ["Joined", "join"]

POLL_S = 0.05  # how late a progress line may be


@dataclass(frozen=True, slots=True)
class Joined:
    """Where this node's trace is, and that of the others.

    Attributes
    ----------
    folder : RunDir
        Of this node.
    path : Path
        Of the whole run; on several nodes with a directory ``node<k>`` of each that writes to the same disk.
    missing : tuple of str
        Directories of nodes that cannot be seen from here.
    """

    folder: RunDir
    path: Path
    missing: tuple[str, ...]


def join(request: Request, world: World, say: Say = lambda text: None) -> Joined:
    """Run this process's rank of a workload; on local rank 0, keep what the node's ranks recorded.

    Raises
    ------
    OptionError
        What is asked for cannot be.
    RunError
        A rank failed; what had been recorded is in the directory, which the message names.
    """
    plan, machine = _plan(request, world)
    if world.rank == 0 and not world.hosted and not is_free(world.port):
        raise in_use(world.port)
    member = _Member(Task(plan, world, request.output, request.force, request.keep_json))
    try:
        with _stoppable(member):
            return _run(member, machine, say, keep_json=request.keep_json)
    finally:
        member.close()


def _run(member: _Member, machine: Machine, say: Say, *, keep_json: bool) -> Joined:
    member.place(say)
    folder, world = member.folder, member.world
    if world.speaks:
        manifest = Manifest(member.plan, machine, None)
        manifest.data |= {"launcher": world.launcher, "node": member.node, "nodes": member.nodes}
        folder.write_manifest(manifest.data)
        finish(member, manifest, folder, None, say, keep_json=keep_json)
        member.release()
    else:
        member.follow(say)
        error = member.error(f"what was recorded is in {folder.path}")
        if error is not None:
            error.told_elsewhere = True  # the one that speaks has heard all that this one has
            raise error
    path = folder.path if member.nodes == 1 else folder.path.parent
    nodes = [] if member.nodes == 1 else [f"node{k}" for k in range(member.nodes)]
    return Joined(folder, path, tuple(name for name in nodes if not RunDir(path / name).manifest.is_file()))


def _plan(request: Request, world: World) -> tuple[Plan, Machine]:
    """As for ranks of our own, with what a launcher leaves no choice in."""
    if request.tp != world.size:
        what = f"{request.tp} ranks, and {world.launcher} started {world.size}"
        raise OptionError(what, f"give --tp {world.size}, or leave it out", "--tp")
    if request.recorder == "nsys":
        what = f"nsys records what it starts itself, and {world.launcher} started the ranks"
        raise OptionError(what, "give torch, or --launch spawn on one node", "--recorder")
    if not world.one_node:
        if request.link is not None:
            what = "paces by one clock, and the ranks are on several nodes"
            raise OptionError(what, "leave it out, or start all ranks on one node", "--link")
        if request.options.get("schedule") == "symm_mem":
            what = (
                "symm_mem needs GPUs that can access one another's memory, and the ranks are on several nodes"
            )
            raise OptionError(what, "give ring", "--schedule")
    request = replace(request, recorder="torch")
    machine, _ = look(request)
    plan = make(request, machine, None, here=world.local_size)
    why = f"nsys records what it starts itself, and {world.launcher} started the ranks"
    threads = _share(machine, world) if _threads_left_open(os.environ) else plan.threads
    return replace(plan, recorder_why=why, threads=threads, start=world.command), machine


def _threads_left_open(user: Mapping[str, str]) -> bool:
    """Whether the user has not set OMP_NUM_THREADS. torchrun sets 1 where there is nothing."""
    asked = user.get("OMP_NUM_THREADS", "")
    return not asked.isdecimal() or ("TORCHELASTIC_RUN_ID" in user and asked == "1")


def _share(machine: Machine, world: World) -> int:
    """A rank's share of the cores; those that a launcher has bound it to, if that is what it did."""
    bound = world.binds and machine.cores * world.local_size <= (os.cpu_count() or 1)
    return machine.cores if bound else max(1, machine.cores // world.local_size)


def _environment(plan: Plan, world: World, user: Mapping[str, str]) -> dict[str, str]:
    """The rank's environment: as that of ranks of our own, and an interface from which the others are reached."""
    if _threads_left_open(user):
        user = {name: value for name, value in user.items() if name != "OMP_NUM_THREADS"}
    made = environment(plan, user)
    if "GLOO_SOCKET_IFNAME" not in user and not world.one_node:
        found = interface_to(world.address)
        made.pop("GLOO_SOCKET_IFNAME", None)
        # A name of this machine that stands for its loopback (Debian's 127.0.1.1) leads nobody here.
        if found is not None and (found != "lo" or world.address in (LOOPBACK, "localhost")):
            made["GLOO_SOCKET_IFNAME"] = found
    return made


class _Member(Ranks):
    """This process's rank, and what the ranks of its node have said so far."""

    def __init__(self, task: Task) -> None:
        self.plan, self.world = task.plan, task.world
        self.here: list[int] = [task.world.rank]
        self.node, self.nodes = 0, 1
        self.events: list[Event] = []
        self.interrupted: Interrupted | None = None
        self.ended = False  # by SIGTERM, as launchers do once a rank has failed
        self.behind: int | None = None  # this rank, once it has been silent for too long
        self.sent: set[int] = set()  # signals, to this rank
        self.private = tempfile.mkdtemp(prefix="overlapscope-")
        private = Path(self.private)
        task.save(private / "task.json")
        boot = Path(__file__).with_name("boot.py")
        with (private / "log").open("wb") as log:
            # A session of its own, since launchers send their signals to a whole group: this process ends it.
            self.process = subprocess.Popen(
                [sys.executable, str(boot), "join", self.private, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=_environment(self.plan, self.world, os.environ),
                start_new_session=True,
            )
        self.reader = EventReader(private / "events.jsonl")
        self.writer: EventWriter | None = None  # once there is a place

    @property
    def failed(self) -> bool:
        return self.error("") is not None

    def place(self, say: Say) -> None:
        """Until all ranks have met and agreed. Raises why they have not."""
        say(f"{self.world.launcher} started {self.world.size} ranks, which meet now")
        while not self._said("placed") and not (self.interrupted or self.ended):
            running = self.process.poll() is None
            self.events += self.reader.new()
            if not running:
                break
            time.sleep(POLL_S)
        told = next((e.fields for e in self.events if e.kind == "placed"), None)
        if told is None:
            self._kill()
            self._note_end()
            error = self._barred() or RunError("ended without a word", "nothing was recorded", self._name)
            error.told_elsewhere = self.ended and not self.world.speaks  # it is not this rank that failed
            raise error
        path = Path(told["folder"])
        with suppress(ValueError):  # elsewhere, and then in full
            path = path.relative_to(Path.cwd())
        self.folder, self.here = RunDir(path), told["here"]
        self.node, self.nodes = told["node"], told["nodes"]
        self.writer = EventWriter(self.folder.work / "events.jsonl")
        self.writer.write("started", self.world.rank, pid=self.process.pid)
        self.reader = EventReader(self.folder.work / "events.jsonl")

    def follow(self, say: Say) -> None:
        """Until this rank, and for the one that speaks its node's others, have ended or need not go on."""
        heard, progress = time.monotonic(), Progress(self.plan, self.here)
        deadline: float | None = None
        means = iter((signal.SIGTERM, signal.SIGKILL, None))
        while not self._over():
            new, now = self.reader.new(), time.monotonic()
            if new:
                heard = now
                self.events += new
                progress.take(new)
                say(progress.text())
            elif now - heard > self.plan.timeout and self.behind is None:
                self.behind = self.world.rank
                self._send(signal.SIGUSR1)  # it writes to its log where it is
                time.sleep(0.5)
            self._note_end()
            asked = self.behind is not None or self.ended or self.interrupted is not None
            if deadline is None and (asked or cause(self.events) is not None):
                # An error elsewhere reaches this rank through its sockets, and it writes what it has.
                deadline = now + (0.0 if asked else GRACE_S)
            if deadline is not None and now >= deadline:
                number = next(means, None)
                if number is None:
                    break  # who has not ended by now says nothing more
                self._send(number)
                deadline = now + KILL_S
            time.sleep(POLL_S)

    def release(self) -> None:
        """Let this rank go, now that what it recorded is kept. Raises if some node has not kept its own."""
        self._let_go()
        while self.process.poll() is None:
            if self.ended or self.interrupted:
                self._kill()
            time.sleep(POLL_S)
        if self.process.returncode != 0:
            what = f"this node's trace is in {self.folder.path}, and another node has not kept its own"
            raise RunError(what, "see what the other nodes say", self.world.launcher)

    def close(self) -> None:
        """Leave nothing behind."""
        self._kill()
        shutil.rmtree(self.private, ignore_errors=True)

    def error(self, where: str) -> OverlapscopeError | None:
        """Why the run failed, as the error to raise; None if it did not."""
        if self.interrupted is not None or self.behind is not None:
            return super().error(where)
        first = cause(self.events, self.tails())
        if first is None:
            if not self.ended:
                return None
            return RunError(f"{self.world.launcher} ended it", f"see why above; {where}", self._name)
        reasons = [e for e in self.events if e.kind == "error"]
        if reasons and first.what.startswith("failed: ") and all(e.fields["connection"] for e in reasons):
            return RunError(f"lost a rank of another node ({first.what})", where, f"rank {first.rank}")
        return first.error(where)

    def _barred(self) -> OverlapscopeError | None:
        """Why the ranks have not come together."""
        for event in self.events:
            if event.kind == "barred":
                told = event.fields
                error = RunError if told["code"] == RunError.exit_code else OptionError
                return error(told["what"], told["remedy"], told["about"])
        return self.error("nothing was recorded")

    def tails(self) -> dict[int, str]:
        """The last that each rank of the node wrote to its log."""
        if self.writer is None:
            return {self.world.rank: tail(Path(self.private) / "log")}
        return super().tails()

    @property
    def _name(self) -> str:
        return f"rank {self.world.rank}"

    def _said(self, kind: str) -> bool:
        return any(event.kind == kind and event.rank == self.world.rank for event in self.events)

    def _over(self) -> bool:
        """Whether there is nothing more to wait for."""
        if not self.world.speaks:
            if self._said("finished"):
                self._let_go()
            return self._said("ended")  # the one who speaks may take the folder away now
        gone = {event.rank for event in self.events if event.kind == "ended"}
        others = set(self.here) - {self.world.rank}
        return others <= gone and (self.world.rank in gone or self._said("finished"))

    def _note_end(self) -> None:
        """Say, once, how this rank's process ended."""
        code = self.process.poll()
        if code is None or self._said("ended"):
            return
        ours = -code in self.sent
        self.events += self.reader.new()
        told = {"code": code, "ours": ours}
        self.events.append(Event("ended", time.monotonic(), self.world.rank, told))
        if self.writer is not None:
            self.writer.write("ended", self.world.rank, **told)

    def _let_go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def _send(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.sent.add(number)
            self.process.send_signal(number)

    def _kill(self) -> None:
        self._send(signal.SIGKILL)
        self._let_go()
        self.process.wait()


@contextmanager
def _stoppable(member: _Member) -> Iterator[None]:
    """Ctrl-C, SIGHUP and SIGTERM end the rank, and then what it recorded is kept."""

    def ask(number: int) -> None:
        if number == signal.SIGTERM:
            member.ended = True
        else:
            member.interrupted = Interrupted(number)

    with handled(ask):
        yield
