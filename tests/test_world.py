"""Environments of launchers, and the world that each means."""

from __future__ import annotations

import pytest

from overlapscope.capture.world import PORTS, World, find
from overlapscope.errors import OptionError

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
SALLOC = {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "5", "SLURM_JOB_NODELIST": "gpu[007-009]"}
SRUN = {
    **SALLOC,
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "4",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "2",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
    "SLURM_STEP_NODELIST": "gpu[007-009]",
}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-host-1234@1",
}


def test_torchrun() -> None:
    assert find(TORCHRUN) == World(
        launcher="torchrun",
        rank=3,
        size=4,
        local_rank=1,
        local_size=2,
        node=1,
        address="10.0.0.1",
        port=29500,
        hosted=True,
        command="torchrun --nnodes 2 --nproc-per-node 2 -m",
    )


def test_a_world_of_one_is_joined_too() -> None:
    one = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0"}
    world = find({**TORCHRUN, **one})
    assert world is not None
    assert (world.size, world.one_node, world.speaks) == (1, True, True)


def test_srun() -> None:
    world = find(SRUN)
    assert world is not None
    assert (world.launcher, world.rank, world.size, world.node) == ("srun", 4, 5, 2)
    assert (world.local_rank, world.local_size, world.one_node) == (0, 1, False)
    assert (world.address, world.hosted, world.port in PORTS) == ("gpu007", False, True)
    assert find({**SRUN, "SLURM_PROCID": "2", "SLURM_NODEID": "1"}).local_size == 2  # type: ignore[union-attr]
    # Another step of the same job may run beside this one.
    assert find({**SRUN, "SLURM_STEP_ID": "1"}).port != world.port  # type: ignore[union-attr]
    told = find({**SRUN, "MASTER_ADDR": "10.1.1.1", "MASTER_PORT": "1234"})
    assert (told.address, told.port) == ("10.1.1.1", 1234)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("gpu[007-009,12],login1", "gpu007"),
        ("a1,b2", "a1"),
        ("one", "one"),
        ("r[1-2]n4,r9", "r1n4"),
        ("x[5,7-9]", "x5"),
    ],
)
def test_rank_0_is_on_the_first_host_of_slurms_list(nodes: str, first: str) -> None:
    world = find({**SRUN, "SLURM_STEP_NODELIST": nodes})
    assert world is not None
    assert world.address == first


@pytest.mark.parametrize(
    "environment",
    [
        {},
        SALLOC,  # a shell of salloc's
        {**SALLOC, "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"},  # a batch script
        {**SRUN, "SLURM_STEP_ID": "4294967290"},  # salloc's shell as a step of its own
        {"RANK": "0"},  # of something else
        {"WORLD_SIZE": "4"},
    ],
)
def test_no_launcher(environment: dict[str, str]) -> None:
    assert find(environment) is None


def test_mpirun_on_one_node_needs_no_address() -> None:
    world = find(MPIRUN)
    assert world is not None
    assert (world.launcher, world.rank, world.size, world.node) == ("mpirun", 1, 2, None)
    assert (world.address, world.port in PORTS, world.speaks) == ("127.0.0.1", True, False)


def test_who_starts_whom() -> None:
    assert find({**SRUN, **MPIRUN}).launcher == "mpirun"  # type: ignore[union-attr]
    assert find({**SRUN, **TORCHRUN}).launcher == "torchrun"  # type: ignore[union-attr]


def test_spawn_says_no() -> None:
    assert find(TORCHRUN, "spawn") is None


@pytest.mark.parametrize(
    ("environment", "launch", "message"),
    [
        ({}, "join", "--launch: join, and neither torchrun nor srun nor mpirun has started this process; "),
        ({}, "torchrun", "--launch: 'torchrun' is not known; choose from auto, spawn, join"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "auto", "LOCAL_WORLD_SIZE: is not set, as it would be in a rank "),
        ({**TORCHRUN, "RANK": "x"}, "auto", "RANK: 'x' is no number; set it to one, or give --launch spawn"),
        ({**TORCHRUN, "RANK": "4"}, "auto", "torchrun: the rank is 4, and 3 is the largest there can be; "),
        ({**TORCHRUN, "MASTER_PORT": "70000"}, "auto", "torchrun: the MASTER_PORT is 70000, and 65535 is "),
        (
            {**MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"},
            "auto",
            "MASTER_ADDR: is not set, and mpirun does not say it; set it to the address of rank 0's node, and ",
        ),
        ({**SRUN, "SLURM_NODEID": "3"}, "auto", "srun: '2(x2),1' does not say how many tasks node 3 has; "),
    ],
)
def test_what_cannot_be_is_one_line(environment: dict[str, str], launch: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        find(environment, launch)
    assert str(caught.value).startswith(message)
