"""One rank of a world that a launcher has started: it meets the others, agrees with them, and runs.

It imports torch; the command line that started it, once in each process of the world, does not.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..errors import OptionError, OverlapscopeError, RunError
from . import rank as program
from .events import EventWriter
from .launcher import GRACE_S
from .network import in_use
from .plan import Plan
from .processes import die_with
from .rundir import RunDir, default_path
from .world import World

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

__all__ = ["Task", "main"]

POLL_S = 0.05  # how much later than the last node the first one ends
# What may differ from rank to rank: another node may have other cores, and more or fewer ranks.
OWN = ("threads", "start")


@dataclass(frozen=True, slots=True)
class Task:
    """What the command line asks of its rank."""

    plan: Plan
    world: World
    output: Path | None
    force: bool
    keep_json: bool

    def save(self, path: Path) -> None:
        """Write it for the rank."""
        output = None if self.output is None else str(self.output)
        told = {**asdict(self), "output": output}
        path.write_text(json.dumps(told))

    @classmethod
    def load(cls, path: Path) -> Task:
        """Read what :meth:`save` wrote."""
        told = json.loads(path.read_text())
        output = None if told["output"] is None else Path(told["output"])
        told |= {"plan": Plan(**told["plan"]), "world": World(**told["world"]), "output": output}
        return cls(**told)

    @property
    def common(self) -> dict[str, Any]:
        """What must be the same on all ranks."""
        of_plan = {name: value for name, value in asdict(self.plan).items() if name not in OWN}
        output = None if self.output is None else str(self.output)
        return {**of_plan, "output": output, "force": self.force, "keep_json": self.keep_json}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where this rank records, among whom."""

    folder: Path
    node: int
    nodes: int
    here: list[int]  # ranks on this node


def main(arguments: list[str]) -> int:
    """Run the rank. Arguments: the command line's private folder, and its process, with which this one ends."""
    private, parent = Path(arguments[0]), int(arguments[1])
    die_with(parent)
    task, events = Task.load(private / "task.json"), EventWriter(private / "events.jsonl")
    plan, world = task.plan, task.world
    store = None
    try:
        versions = program.preload(plan)
        store = _meet(world, plan.timeout)
        place = _agree(store, task)
    except OverlapscopeError as error:
        told = {"what": error.what, "remedy": error.remedy, "about": error.about, "code": error.exit_code}
        events.write("barred", world.rank, **told)
        if store is not None:
            _leave(store, world, GRACE_S)  # the others are to hear of it from the store
        return 1
    except BaseException as error:
        what = "".join(traceback.format_exception_only(error)).strip().splitlines()[0]
        events.write("error", world.rank, what=what, traceback=traceback.format_exc(), connection=False)
        return 1
    work = RunDir(place.folder).work
    if world.speaks:
        why = f"{world.launcher} started the ranks"
        EventWriter(work / "events.jsonl").write("imported", start="join", why=why, versions=versions)
    events.write("placed", world.rank, **{**asdict(place), "folder": str(place.folder)})
    code = program.main(plan, world.rank, work, store, _gpu(plan, world))
    if code == 0:
        sys.stdin.read()  # until the command line has what it needs
        return _leave(store, world, plan.timeout)
    return code


def _meet(world: World, timeout: float) -> Store:
    """Open the store that the launcher, or else rank 0, keeps at the world's address."""
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    host = world.rank == 0 and not world.hosted
    where = f"{world.address}:{world.port}"
    try:
        store = TCPStore(
            world.address,
            world.port,
            world.size,
            is_master=host,
            timeout=timedelta(seconds=timeout),
            wait_for_workers=False,
        )
    except RuntimeError as error:  # DistNetworkError among them, which older PyTorch does not have
        text = str(error)
        if "EADDRINUSE" in text or "address already in use" in text.lower():
            raise in_use(world.port) from None
        what = (
            f"cannot meet the other ranks at {where} ({text.splitlines()[0][:160] if text else 'no answer'})"
        )
        raise OptionError(what, "check MASTER_ADDR and MASTER_PORT, and give the same to all ranks") from None
    # A launcher that starts failed ranks again keeps its store.
    return cast(
        "Store", PrefixStore(f"overlapscope/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
    )


def _agree(store: Store, task: Task) -> _Place:
    """Tell all, hear all: that they do the same, who is on which node, and where the node records.

    Raises
    ------
    OptionError
        Ranks were called with different options, or a node's directory cannot be had. All ranks see it.
    """
    world = task.world
    node = platform.node() if world.node is None else str(world.node)
    _tell(store, f"rank{world.rank}", {"task": task.common, "node": node, "speaks": world.speaks})
    told = [_hear(store, f"rank{rank}") for rank in range(world.size)]
    for rank, other in enumerate(told):
        _same(told[0]["task"], other["task"], rank)
    nodes = list(dict.fromkeys(one["node"] for one in told))
    here = [rank for rank, one in enumerate(told) if one["node"] == node]
    if [one["node"] for one in told if one["speaks"]] != nodes:
        what = (
            "the ranks' nodes and their local ranks do not agree: some node has no local rank 0, or several"
        )
        raise OptionError(what, "start all ranks anew with one launcher", world.launcher)
    k = nodes.index(node)
    if world.speaks:
        _tell(store, f"node{k}", _prepared(store, task, k, len(nodes)))
    ready = [_hear(store, f"node{i}") for i in range(len(nodes))]
    for i, one in enumerate(ready):
        if "what" in one:
            where = f"{one['about']} on node {i}" if len(nodes) > 1 else one["about"]
            raise OptionError(one["what"], one["remedy"], where)
    return _Place(Path(ready[k]["folder"]), k, len(nodes), here)


def _same(first: dict[str, Any], other: dict[str, Any], rank: int) -> None:
    """Refuse tasks that differ. A rank on a node without GPUs, for example, would choose another device."""
    for name, value in first.items():
        if other[name] != value:
            if isinstance(value, dict):
                name, value, theirs = next(
                    (n, v, other[name].get(n)) for n, v in value.items() if other[name].get(n) != v
                )
            else:
                theirs = other[name]
            what = f"has {name} {theirs}, and rank 0 has {value}"
            raise OptionError(what, "give all ranks the same options", f"rank {rank}")


def _prepared(store: Store, task: Task, node: int, nodes: int) -> dict[str, Any]:
    """Make the node's directory; what it is called by default is for node 0 to say."""
    path = task.output
    try:
        if node == 0:
            path = path or default_path(f"{task.plan.workload}-tp{task.plan.tp}")
        else:
            first = _hear(store, "node0")
            if "what" in first:
                return first
            path = path or Path(first["path"])
        folder = RunDir.prepare_node(path, node, nodes, force=task.force)
    except OptionError as error:
        return {"what": error.what, "remedy": error.remedy, "about": error.about}
    return {"path": str(path), "folder": os.path.abspath(folder.path)}


def _tell(store: Store, key: str, value: dict[str, Any]) -> None:
    store.set(key, json.dumps(value))


def _hear(store: Store, key: str) -> dict[str, Any]:
    """Wait for what was told. Raises RunError when nothing is, or the store is gone."""
    try:
        heard: dict[str, Any] = json.loads(store.get(key))
    except RuntimeError:
        remedy = "see what the other ranks say, whether all were started, or give a longer --timeout"
        raise RunError("has said nothing", remedy, key) from None
    return heard


def _gpu(plan: Plan, world: World) -> int:
    """The local rank's GPU, or the only one where a launcher shows each rank its own."""
    if plan.device == "cpu":
        return world.local_rank
    import torch

    return world.local_rank if torch.cuda.device_count() > 1 else 0


def _leave(store: Store, world: World, timeout: float) -> int:
    """Count this rank as done. Rank 0 waits for all: it keeps the store, and then every node has its trace."""
    try:
        left, end = store.add("left", 1), time.monotonic() + timeout
        while world.rank == 0 and left < world.size:
            if time.monotonic() > end:
                return 1
            time.sleep(POLL_S)
            left = store.add("left", 0)
    except RuntimeError:  # the store is gone
        return 1
    return 0
