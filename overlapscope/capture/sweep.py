"""The same work split over several numbers of ranks, each a run of its own; what was run before is kept."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import InputError, Interrupted, OptionError, RunError
from .launch import Say, execute, look
from .machine import Machine
from .manifest import Manifest
from .nsys import Nsys
from .plan import Plan, Request, make, workload
from .rundir import RunDir

__all__ = ["difference", "differences", "found", "sweep"]

HOW = (
    *("workload", "options", "tp", "steps", "warmup", "device", "backend", "recorder"),
    *("threads_per_rank", "link", "hardware"),
)
"""What run.json says of how a run was made. A field that is not here does not make two runs different work."""

HARDWARE = ("cpu", "gpus")  # memory and cores of a container may change; cores show in the threads


def sweep(
    request: Request, sizes: Sequence[int], folder: Path, say: Say = lambda text: None, *, force: bool = False
) -> list[RunDir]:
    """Run `request` on each number of ranks, into ``<folder>/tp<N>``.

    A size whose run is there, complete and made in the same way is not run again; one that was interrupted is.
    Every size is checked before the first is started. All compute with as many threads a rank as the largest
    size has cores for, since a rank stands for a device, which does not grow when there are fewer of them.
    They are run in ascending order.

    Raises
    ------
    OptionError
        There is one size alone, the workload is no work that ranks share out, a size cannot be run, or a run
        that is there was made otherwise and `force` does not replace it.
    RunError
        A rank failed, or a signal wants an end; the message says how to go on.
    """
    sizes = sorted(set(sizes))
    if len(sizes) < 2:
        what = f"{sizes[0] if sizes else 'no number'} alone has nothing to be compared with"
        raise OptionError(what, "give two or more", "--tp")
    _only_split(request.workload)
    machine, nsys = look(request)
    plans = [make(replace(request, tp=size), machine, nsys) for size in sizes]
    threads = min(plan.threads for plan in plans)
    jobs = [_Job(replace(p, threads=threads), machine, nsys, RunDir(folder / f"tp{p.tp}")) for p in plans]
    waiting = [(at, job) for at, job in enumerate(jobs, 1) if not job.done(force)]
    for at, job in waiting:

        def tell(text: str, head: str = f"tp {job.plan.tp} ({at} of {len(jobs)})") -> None:
            say(f"{head}: {text}")

        try:
            folder_of_size = RunDir.prepare(job.folder.path, force=True)
            execute(job.plan, folder_of_size, machine, nsys, tell, keep_json=request.keep_json)
        except (RunError, Interrupted) as error:
            raise _and_then(error, f"the same call with --output {folder} goes on from here") from error
    return [job.folder for job in jobs]


def _only_split(name: str) -> None:
    """Refuse what has no less to do on more ranks: there is nothing to compare with N-fold."""
    if not workload(name).config.SPLIT:
        what = f"{name} is no work that the ranks share out, so it cannot fall short of N-fold"
        raise OptionError(what, "compare overlapscope run --tp 2, --tp 4, ... by busbw", "--workload")


@dataclass(frozen=True, slots=True)
class _Job:
    plan: Plan
    machine: Machine
    nsys: Nsys | None
    folder: RunDir

    def done(self, force: bool) -> bool:
        """Whether it need not be run; raises where what is there must not be replaced unasked."""
        there = self.folder.read_manifest()
        if there is None:
            return False
        nsys = self.nsys if self.plan.recorder == "nsys" else None
        differs = difference(there, Manifest(self.plan, self.machine, nsys).data)
        if differs is None:
            return bool(there["complete"]) and self.folder.trace.is_file()
        if force:
            return False
        what = f"was run with {differs[0]} {differs[1]}, and now it would be {differs[2]}"
        remedy = "give the same options, another --output, or --force to run it again"
        raise OptionError(what, remedy, self.folder.path)


def difference(
    one: Mapping[str, Any], other: Mapping[str, Any], ignore: Collection[str] = ()
) -> tuple[str, Any, Any] | None:
    """The first of :func:`differences`."""
    return next(differences(one, other, ignore), None)


def differences(
    one: Mapping[str, Any], other: Mapping[str, Any], ignore: Collection[str] = ()
) -> Iterator[tuple[str, Any, Any]]:
    """All in which two runs, by their run.json, were made differently: its name and both values."""
    mine, theirs = _how(one), _how(other)
    for name in dict.fromkeys([*mine, *theirs]):
        if name not in ignore and mine.get(name) != theirs.get(name):
            yield name, mine.get(name), theirs.get(name)


def _how(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What says how a run was made, in one level."""
    data = json.loads(json.dumps(manifest))  # as it reads once written: tuples are lists
    how = {name: data[name] for name in HOW if name in data}
    how |= how.pop("options", {})
    hardware = how.pop("hardware", {})
    return how | {name: hardware.get(name) for name in HARDWARE}


def found(paths: Sequence[Path]) -> list[RunDir]:
    """The run directories that paths name: each one itself, or a sweep's, whose runs they are, smallest first.

    Raises
    ------
    InputError
        A path is neither.
    """
    runs: list[RunDir] = []
    for path in paths:
        inside = [RunDir(path)] if RunDir(path).read_manifest() else _runs_in(path)
        if not inside:
            what = "is neither a run directory nor one of a sweep" if path.exists() else "does not exist"
            raise InputError(what, "give what overlapscope run or scale has left", path)
        runs += inside
    return runs


def _runs_in(folder: Path) -> list[RunDir]:
    inside = [(run, run.read_manifest()) for run in map(RunDir, folder.glob("tp*"))]
    return sorted(
        (run for run, manifest in inside if manifest), key=lambda r: int((r.read_manifest() or {})["tp"])
    )


def _and_then(error: RunError | Interrupted, remedy: str) -> RunError:
    if isinstance(error, Interrupted):  # while no rank runs
        error = RunError.of(error)
    more = f"{error.remedy}; {remedy}" if error.remedy else remedy
    told = RunError(error.what, more, error.about, detail=error.detail)
    told.exit_code = error.exit_code
    return told
