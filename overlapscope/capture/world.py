"""The world that torchrun, srun or mpirun has started this process in, as its environment tells."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import OptionError

__all__ = ["LAUNCHES", "World", "find"]

LAUNCHES = ("auto", "spawn", "join")

# From here on numbers of Slurm's steps name no step of srun's but the batch script, salloc's shell and the like
# (slurm.h: SLURM_MAX_NORMAL_STEP_ID).
SLURM_SPECIAL = 0xFFFFFFF0
# Ports below those that systems hand out to outgoing connections (32768 on Linux).
PORTS = range(20000, 30000)
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """This process's place among those that were started together.

    Attributes
    ----------
    launcher : str
        What started them, for messages.
    rank, size : int
    local_rank, local_size : int
        The same among those on this node.
    node : int or None
        The node's number as the launcher counts; None where it does not say.
    address, port : str, int
        Where all meet.
    hosted : bool
        Whether the launcher listens there; else rank 0 does.
    binds : bool
        Whether the launcher is one that gives each process cores of its own.
    command : str
        What to write before ``overlapscope run`` to start such a world.
    """

    launcher: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    node: int | None
    address: str
    port: int
    hosted: bool = False
    binds: bool = False
    command: str = ""

    @property
    def speaks(self) -> bool:
        """Whether this process speaks for its node: what all of them know is said once."""
        return self.local_rank == 0

    @property
    def one_node(self) -> bool:
        """Whether all processes are on this node."""
        return self.local_size == self.size


@dataclass(frozen=True, slots=True)
class _Launcher:
    """The variables a launcher sets; of several names for one thing the first that is set counts."""

    name: str
    rank: str
    size: tuple[str, ...]
    local_rank: str
    local_size: tuple[str, ...]
    node: str | None
    job: tuple[str, ...]  # together they name the job, so that a port can be made of them
    command: str


LAUNCHERS = (
    # torchrun first: it may itself be started by the others. mpirun next: under Slurm it uses srun.
    _Launcher(
        "torchrun",
        "RANK",
        ("WORLD_SIZE",),
        "LOCAL_RANK",
        ("LOCAL_WORLD_SIZE",),
        "GROUP_RANK",
        (),
        "torchrun --nnodes {nodes} --nproc-per-node {local} -m",
    ),
    _Launcher(
        "mpirun",
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_SIZE",),
        "OMPI_COMM_WORLD_LOCAL_RANK",
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
        None,
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
        "mpirun -n {size}",
    ),
    _Launcher(
        "srun",
        "SLURM_PROCID",
        ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        "SLURM_LOCALID",
        ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"),
        "SLURM_NODEID",
        ("SLURM_JOB_ID", "SLURM_STEP_ID"),
        "srun --nodes {nodes} --ntasks {size}",
    ),
)


def find(environment: Mapping[str, str], launch: str = "auto") -> World | None:
    """The world to join; None where this process is to start its own.

    Parameters
    ----------
    environment : mapping
        Usually `os.environ`.
    launch : {"auto", "spawn", "join"}
        ``auto`` joins where a launcher has started this process. A shell inside ``salloc`` or ``sbatch`` is not
        started by ``srun``, though it sees the job's variables.

    Raises
    ------
    OptionError
        `launch` is not known, there is nothing to join, or a variable is missing or wrong.
    """
    if launch not in LAUNCHES:
        raise OptionError(f"{launch!r} is not known", f"choose from {', '.join(LAUNCHES)}", "--launch")
    if launch == "spawn":
        return None
    for launcher in LAUNCHERS:
        if _started_by(launcher, environment):
            return _checked(_world(launcher, environment))
    if launch == "join":
        what = "join, and neither torchrun nor srun nor mpirun has started this process"
        raise OptionError(what, "start it with one of them, or leave it out", "--launch")
    return None


def _started_by(launcher: _Launcher, environment: Mapping[str, str]) -> bool:
    if launcher.name == "srun":
        step = environment.get("SLURM_STEP_ID", "")
        if not step.isdecimal() or int(step) >= SLURM_SPECIAL:
            return False
    return bool(environment.get(launcher.rank)) and any(environment.get(name) for name in launcher.size)


def _world(launcher: _Launcher, environment: Mapping[str, str]) -> World:
    rank = _number(environment, launcher.rank)
    size = _number(environment, *launcher.size)
    node = None
    if launcher.node is not None and (launcher.name == "srun" or launcher.node in environment):
        node = _number(environment, launcher.node)
    if launcher.name == "srun":
        local_size = _tasks(_text(environment, *launcher.local_size), node or 0)
    else:
        local_size = _number(environment, *launcher.local_size)
    address, port = _meeting(launcher, environment, one_node=local_size == size)
    name = launcher.name
    if name == "torchrun" and "TORCHELASTIC_RUN_ID" not in environment:
        name = "the launcher"  # somebody else who speaks as torchrun does
    # More than one node with unlike numbers of ranks: the least number that can be.
    nodes = -(-size // max(local_size, 1))
    return World(
        launcher=name,
        rank=rank,
        size=size,
        local_rank=_number(environment, launcher.local_rank),
        local_size=local_size,
        node=node,
        address=address,
        port=port,
        hosted=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        binds=launcher.name in ("mpirun", "srun"),
        command=launcher.command.format(nodes=nodes, local=local_size, size=size),
    )


def _meeting(launcher: _Launcher, environment: Mapping[str, str], *, one_node: bool) -> tuple[str, int]:
    """Address and port: what MASTER_ADDR and MASTER_PORT say, else what can be known without them."""
    address = environment.get("MASTER_ADDR")
    if not address and launcher.job:
        nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST") or ""
        if one_node:
            address = LOOPBACK
        elif launcher.name == "srun" and nodes:
            address = _first_host(nodes)
    if not address:
        remedy = "set it to the address of rank 0's node, and MASTER_PORT to a free port there, for all ranks"
        raise OptionError(f"is not set, and {launcher.name} does not say it", remedy, "MASTER_ADDR")
    if environment.get("MASTER_PORT") or not launcher.job:
        return address, _number(environment, "MASTER_PORT")
    job = ".".join(environment.get(name, "") for name in launcher.job)
    return address, PORTS[zlib.crc32(job.encode()) % len(PORTS)]


def _checked(world: World) -> World:
    for name, value, end in (
        ("rank", world.rank, world.size),
        ("local rank", world.local_rank, world.local_size),
        ("number of ranks on this node", world.local_size, world.size + 1),
        ("MASTER_PORT", world.port, 1 << 16),
    ):
        if not 0 <= value < end:
            raise OptionError(
                f"the {name} is {value}, and {end - 1} is the largest there can be",
                "start all ranks anew, or give --launch spawn",
                world.launcher,
            )
    return world


def _text(environment: Mapping[str, str], *names: str) -> str:
    found = next((environment[name] for name in names if environment.get(name)), None)
    if found is None:
        raise OptionError(
            "is not set, as it would be in a rank that was started for this",
            "set it, or give --launch spawn",
            names[0],
        )
    return found


def _number(environment: Mapping[str, str], *names: str) -> int:
    text = _text(environment, *names)
    if not text.isdecimal():
        raise OptionError(f"{text!r} is no number", "set it to one, or give --launch spawn", names[0])
    return int(text)


def _tasks(text: str, node: int) -> int:
    """How many tasks a node has; Slurm writes ``2(x3),1`` for 2, 2, 2, 1."""
    counts: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?(?:,|$)", text):
        counts += [int(count)] * int(times or 1)
    if node >= len(counts):
        what = f"{text!r} does not say how many tasks node {node} has"
        raise OptionError(what, "set MASTER_ADDR, RANK and the like, or give --launch spawn", "srun")
    return counts[node]


def _first_host(nodes: str) -> str:
    """The first host of a Slurm node list: ``gpu[007-009,12],login1`` begins with gpu007."""
    first = re.match(r"([^,\[]*)(?:\[(\w+)[^\]]*\]([^,\[]*))?", nodes)
    assert first is not None  # it can match nothing
    return "".join(part or "" for part in first.groups())
