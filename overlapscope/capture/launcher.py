"""The launcher process: imports torch once, starts the ranks, watches them, and leaves none behind.

Arguments: the work folder, an empty private folder, the process to end with, and for a rank in a process of its
own its number. The work folder holds ``plan.json``; ``events.jsonl`` and the ranks' logs and profiles come into
it. In the private one, on a local disk, the ranks find one another through a file, which needs no port.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from . import rank as one
from .events import EventReader, EventWriter
from .plan import Plan
from .processes import alive, ask_to_end, die_with, send, single_threaded, touched_gpu

__all__ = ["GRACE_S", "KILL_S", "WRITE_S", "main"]

# After a rank has failed the others learn of it from their sockets within this; after that they are asked to end.
GRACE_S = 3.0
# Of those that do not, the command line kills the one that holds up the others after this; the others, which then
# learn of it, are killed when they have had GRACE_S for that, too.
KILL_S = 3.0
# A rank that has begun to write its profile is left alone for so long: 123 MB (600 steps) took 31 s on busy cores.
WRITE_S = 300.0
POLL_S = 0.02  # a rank's death is seen within it, and fifty looks a second cost 0.1 % of a core


def main(arguments: list[str]) -> int:
    """Run the launcher, or the one rank that is named. Returns the process's exit code."""
    work, private, parent = Path(arguments[0]), Path(arguments[1]), int(arguments[2])
    plan, store = Plan.load(work / "plan.json"), private / "store"
    if len(arguments) > 3:
        die_with(parent)
        return one.main(plan, int(arguments[3]), work, store)
    events = EventWriter(work / "events.jsonl")
    events.write("launcher", pid=os.getpid())
    try:
        return _Ranks(plan, work, store, events, parent).run()
    finally:
        shutil.rmtree(private, ignore_errors=True)  # the command line may be gone


class _Ranks:
    def __init__(self, plan: Plan, work: Path, store: Path, events: EventWriter, command: int) -> None:
        self.plan, self.work, self.store, self.events = plan, work, store, events
        self.command = command  # the command line's process; nsys may stand between it and this one
        self.alive: dict[int, int] = {}  # pid to rank
        self.processes: list[
            subprocess.Popen[bytes]
        ] = []  # kept: one let go would reap its child behind our back
        self.stop = False  # the command line, or whoever else, wants an end
        self.asked = False  # those that are left, to end
        self.failed = False

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self._asked)
        signal.signal(signal.SIGINT, self._asked)
        signal.signal(signal.SIGHUP, self._asked)
        start = self._starter()
        for rank in range(self.plan.tp):
            if self.stop:
                break
            pid = start(rank)
            self.alive[pid] = rank
            self.events.write("started", rank, pid=pid)
        self._watch()
        return 1 if self.failed or self.stop else 0

    def _asked(self, number: int, frame: FrameType | None) -> None:
        self.stop = True

    # -- starting --------------------------------------------------------------------------------------

    def _starter(self) -> Callable[[int], int]:
        """How ranks start: forked from here with torch imported, or each afresh where that is not safe."""
        if self.plan.recorder == "nsys":  # which follows a new program, not a fork
            self.events.write("imported", start="exec", why="nsys follows new programs", versions={})
            return self._exec
        versions = one.preload(self.plan)
        why = None
        if touched_gpu():
            why = "the GPU's driver was initialised by an import"
        elif not single_threaded():
            why = "an import started a thread"
        how = "fork" if why is None else "exec"
        self.events.write("imported", start=how, why=why or "torch is imported once", versions=versions)
        gc.freeze()  # what is there now is not looked at again, so its pages stay shared
        return self._fork if why is None else self._exec

    def _fork(self, rank: int) -> int:
        launcher = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            die_with(launcher)
            code = one.main(self.plan, rank, self.work, self.store)
        except BaseException:
            traceback.print_exc()  # into the rank's log
        finally:
            sys.stderr.flush()
            os._exit(code)  # nothing of the launcher's is cleaned up here

    def _exec(self, rank: int) -> int:
        boot = Path(__file__).with_name("boot.py")
        place = (str(self.work), str(self.store.parent))
        command = [sys.executable, str(boot), *place, str(os.getpid()), str(rank)]
        process = subprocess.Popen(command)
        self.processes.append(process)
        return process.pid

    # -- watching --------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Until every rank has ended. Once one fails the others have a little time, and to write more."""
        deadline, last = None, 0.0
        while self.alive:
            self._reap()
            self.stop |= not alive(self.command)
            now = time.monotonic()
            if (self.failed or self.stop) and deadline is None:
                deadline = now + (0.0 if self.stop else GRACE_S)
            if deadline is not None and now >= deadline:
                if not self.asked:
                    self._ask_all_to_end()
                    deadline, last = now + KILL_S + GRACE_S, now + WRITE_S
                else:
                    # Nobody is there to read what would be written once the command line is gone.
                    self._kill_all_but(self._writing() if now < last and alive(self.command) else set())
                    deadline = now + KILL_S
            time.sleep(POLL_S)

    def _reap(self) -> None:
        for pid in list(self.alive):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended == 0:
                continue
            rank, code = self.alive.pop(pid), os.waitstatus_to_exitcode(status)
            ours = self.asked and -code in (signal.SIGTERM, signal.SIGKILL)
            self.events.write("ended", rank, code=code, ours=ours)
            self.failed |= code != 0

    def _ask_all_to_end(self) -> None:
        self.asked = True
        for pid in self.alive:  # not yet waited for, so the number is still theirs
            ask_to_end(pid)

    def _kill_all_but(self, spared: set[int | None]) -> None:
        for pid, rank in self.alive.items():
            if rank not in spared:
                send(pid, signal.SIGKILL)

    def _writing(self) -> set[int | None]:
        """The ranks that have begun to write what they recorded and are not done."""
        said = EventReader(self.work / "events.jsonl").new()
        last = {event.rank: event.kind for event in said if event.kind in ("writing", "recorded")}
        return {rank for rank, kind in last.items() if kind == "writing"}
