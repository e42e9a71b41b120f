"""Ranks that a launcher has started: torchrun's agents, and processes as srun and mpirun start them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from overlapscope.capture import find
from overlapscope.capture.events import Event, EventReader
from overlapscope.capture.member import Task, _same
from overlapscope.errors import OptionError
from overlapscope.formats import load
from overlapscope.trace import Trace

ROOT = Path(__file__).resolve().parent.parent
SMALL = ("--hidden", "32", "--heads", "4", "--seq", "16", "--batch", "1", "--steps", "2")
RUN = ("-m", "overlapscope", "run", *SMALL)

Done = tuple[int, str, str]
"""Exit code, standard output, standard error."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(command: Sequence[str], cwd: Path, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(processes: Sequence[subprocess.Popen[str]]) -> list[Done]:
    try:
        said = [process.communicate(timeout=90) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(p.returncode, out, err) for p, (out, err) in zip(processes, said, strict=True)]


def mpirun(size: int, **more: str) -> list[dict[str, str]]:
    """What mpirun sets in each of its processes, all on this machine."""
    place = {"OMPI_COMM_WORLD_SIZE": str(size), "OMPI_COMM_WORLD_LOCAL_SIZE": str(size)}
    job = {"PMIX_NAMESPACE": f"prterun-here-{time.monotonic_ns()}@1"}
    return [
        {**place, **job, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_RANK": str(rank), **more}
        for rank in range(size)
    ]


def srun(nodes: int) -> list[dict[str, str]]:
    """What srun sets in each of its processes, one on each node; with an address at which they can meet here."""
    step = {
        "SLURM_JOB_ID": "1",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": str(nodes),
        "SLURM_STEP_TASKS_PER_NODE": f"1(x{nodes})",
        "SLURM_LOCALID": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    return [{**step, "SLURM_PROCID": str(node), "SLURM_NODEID": str(node)} for node in range(nodes)]


def world(cwd: Path, environments: Sequence[Mapping[str, str]], *options: str) -> list[Done]:
    """All ranks of a world, each called with the same options."""
    return ended([start([sys.executable, *RUN, *options], cwd, **env) for env in environments])


def lines(done: Sequence[Done]) -> list[str]:
    """Every line that overlapscope has written to standard error."""
    return [line for _, _, err in done for line in err.splitlines() if line.startswith("overlapscope: ")]


def structure(trace: Trace) -> dict[str, Any]:
    """All that does not depend on time or on the processes: ops, bytes and ranges of each rank."""
    ops, ranges = trace.ops, trace.ranges
    comm = ops[ops["kind"] == "comm"]
    names = ranges[ranges["role"] != ""]
    return {
        "ranks": trace.ranks["rank"].tolist(),
        "world": trace.provenance.world_size,
        "ops": ops.groupby(["rank", "kind"], observed=True).size().to_dict(),
        "comm": comm.groupby(["rank", "collective", "bytes", "group"], observed=True).size().to_dict(),
        "ranges": names.groupby(["rank", "name", "role"], observed=True).size().to_dict(),
    }


@pytest.fixture(scope="module")
def spawned(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """What runs that started their own ranks have recorded, by tp."""
    found = {}
    for tp in (2, 4):
        folder = tmp_path_factory.mktemp("spawned")
        ((code, _, err),) = world(folder, [{}], "--tp", str(tp), "-o", "run")
        assert (code, err) == (0, "")
        found[tp] = structure(load(folder / "run"))
    return found


# -- runs that go well ---------------------------------------------------------------------------------------


@pytest.mark.real
def test_mpirun_on_one_machine_leaves_what_a_run_leaves(tmp_path: Path, spawned: dict[int, Any]) -> None:
    """The number of ranks, the place to meet and the default directory are found and agreed on."""
    first, second = world(tmp_path, mpirun(2), "--keep-json")
    assert (first[0], first[2]) == (0, "")
    assert second == (0, "", "")
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("block-tp2-")
    assert sorted(f.name for f in folder.iterdir()) == ["kineto", "run.json", "trace.sqlite"]
    trace, told = load(folder), json.loads((folder / "run.json").read_text())
    assert structure(trace) == spawned[2]
    assert trace.provenance.command is not None
    assert trace.provenance.command.startswith("mpirun -n 2 overlapscope run --workload block --tp 2 ")
    assert "2 ranks on CPU" in first[1]
    assert "Kept for the backward pass" in first[1]
    assert (told["complete"], told["launcher"], told["node"], told["nodes"]) == (True, "mpirun", 0, 1)
    assert [rank["status"] for rank in told["ranks"]] == ["finished", "finished"]


@pytest.mark.real
def test_a_real_mpirun(tmp_path: Path, spawned: dict[int, Any]) -> None:
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun (Open MPI)")
    command = [
        "mpirun",
        "--allow-run-as-root",
        "--oversubscribe",
        "-n",
        "2",
        sys.executable,
        *RUN,
        "-o",
        "out",
    ]
    ((code, out, err),) = ended([start(command, tmp_path)])
    assert (code, lines([(code, out, err)])) == (0, []), err
    assert structure(load(tmp_path / "out")) == spawned[2]


@pytest.mark.real
def test_srun_on_two_nodes_keeps_a_trace_of_each_and_report_reads_both(
    tmp_path: Path, spawned: dict[int, Any]
) -> None:
    first, second = world(tmp_path, srun(2), "--tp", "2", "-o", "out")
    assert (first[0], first[2]) == (0, "")
    assert second == (0, "", "")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["node0", "node1"]
    for node in (0, 1):
        folder = tmp_path / "out" / f"node{node}"
        assert sorted(f.name for f in folder.iterdir()) == ["run.json", "trace.sqlite"]
        assert load(folder).ranks["rank"].tolist() == [node]
        told = json.loads((folder / "run.json").read_text())
        assert (told["complete"], told["node"], told["nodes"]) == (True, node, 2)
        assert [rank["rank"] for rank in told["ranks"]] == [node]
    trace = load(tmp_path / "out")
    assert structure(trace) == spawned[2]
    assert trace.provenance.clock == "by each file's recorded wall clock"
    # As after copying one node's directory from another machine.
    moved = shutil.move(tmp_path / "out" / "node1", tmp_path / "elsewhere")
    assert structure(load([tmp_path / "out" / "node0", moved])) == spawned[2]


@contextmanager
def namespaces() -> Iterator[list[tuple[str, ...]]]:
    """Two network namespaces with a cable between them: what to put before a command to run it in each."""
    names = [f"os{os.getpid()}{end}" for end in "ab"]
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("link", "add", names[0], "netns", names[0], "type", "veth", "peer", names[1], "netns", names[1])
        for at, name in enumerate(names):
            ip("-n", name, "addr", "add", f"10.77.0.{at + 1}/24", "dev", name)
            ip("-n", name, "link", "set", name, "up")
        yield [("ip", "netns", "exec", name) for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True)


def agents(cwd: Path, address: str, places: Sequence[tuple[str, ...]], *options: str) -> list[Done]:
    """Two torchrun agents of two ranks each, as on two nodes."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2"]
    meeting = ["--master-addr", address, "--master-port", str(free_port())]
    return ended(
        [
            start([*place, *torchrun, "--node-rank", str(node), *meeting, *RUN, *options], cwd)
            for node, place in enumerate(places)
        ]
    )


def check_agents(done: list[Done], folder: Path, expected: dict[str, Any]) -> None:
    assert [code for code, _, _ in done] == [0, 0], done
    assert lines(done) == []
    assert "4 ranks on CPU" in done[0][1]
    assert done[1][1] == ""
    assert [load(folder / f"node{k}").ranks["rank"].tolist() for k in (0, 1)] == [[0, 1], [2, 3]]
    assert structure(load(folder)) == expected
    told = json.loads((folder / "node1" / "run.json").read_text())
    assert (told["launcher"], told["tp"], told["threads_per_rank"]) == ("torchrun", 4, threads())
    assert told["command"].startswith("torchrun --nnodes 2 --nproc-per-node 2 -m overlapscope run ")


def threads() -> int:
    """A rank's share of the cores, with two ranks on a node."""
    from overlapscope.capture.machine import inspect

    return max(1, inspect(gpus=False).cores // 2)


@pytest.mark.real
def test_two_torchrun_agents_on_one_machine(tmp_path: Path, spawned: dict[int, Any]) -> None:
    done = agents(tmp_path, "127.0.0.1", [(), ()], "-o", "out")
    check_agents(done, tmp_path / "out", spawned[4])


@pytest.mark.real
def test_two_torchrun_agents_in_networks_of_their_own(tmp_path: Path, spawned: dict[int, Any]) -> None:
    """Neither can reach the other through the loopback, and this machine's name leads nowhere."""
    if shutil.which("ip") is None:
        pytest.skip("no ip command (iproute2)")
    try:
        with namespaces() as places:
            done = agents(tmp_path, "10.77.0.1", places, "-o", "out")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
    check_agents(done, tmp_path / "out", spawned[4])


# -- runs that do not ----------------------------------------------------------------------------------------


def wait_for(file: Path, **counts: int) -> list[Event]:
    """Until so many events of each kind are there. Who starts a rank may say so after the rank's first steps."""
    reader, events, deadline = EventReader(file), list[Event](), time.monotonic() + 60
    while any(sum(e.kind == kind for e in events) < count for kind, count in counts.items()):
        assert time.monotonic() < deadline, [e.kind for e in events]
        time.sleep(0.05)
        events += reader.new()
    return events


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.real
def test_a_killed_rank_is_named_once_and_what_was_recorded_is_kept(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command = [*torchrun, "--master-port", str(free_port()), *RUN, "--steps", "3000", "-o", "out"]
    process = start(command, tmp_path)
    events = wait_for(tmp_path / "out" / ".capture" / "events.jsonl", started=2, done=6)
    pids = {e.rank: e.fields["pid"] for e in events if e.kind == "started"}
    os.kill(pids[1], signal.SIGKILL)
    ((code, out, err),) = ended([process])
    assert (code, out) == (1, "")
    (line,) = lines([(code, out, err)])
    assert line.startswith("overlapscope: rank 1: was killed by SIGKILL after ")
    assert line.endswith("; what was recorded is in out")
    assert all(map(gone, pids.values()))
    assert sorted(f.name for f in (tmp_path / "out").iterdir()) == ["run.json", "trace.sqlite"]
    assert load(tmp_path / "out").ranks["rank"].tolist() == [0]
    told = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (told["complete"], told["ranks"][1]["status"]) == (False, "killed by SIGKILL")


@pytest.mark.real
def test_another_nodes_rank_that_died_is_told_apart_from_ones_own(tmp_path: Path) -> None:
    processes = [
        start([sys.executable, *RUN, "--steps", "3000", "-o", "out"], tmp_path, **env) for env in srun(2)
    ]
    events = wait_for(tmp_path / "out" / "node1" / ".capture" / "events.jsonl", started=1, done=3)
    os.kill(next(e.fields["pid"] for e in events if e.kind == "started"), signal.SIGKILL)
    first, second = ended(processes)
    assert (first[0], second[0]) == (1, 1)
    assert first[2].startswith("overlapscope: rank 0: lost a rank of another node (failed: ")
    assert second[2].startswith("overlapscope: rank 1: was killed by SIGKILL after ")
    assert first[2].count("\n") == second[2].count("\n") == 1
    assert load(tmp_path / "out" / "node0").ranks["rank"].tolist() == [0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tp", "8"], "--tp: 8 ranks, and mpirun started 4; give --tp 4, or leave it out"),
        (["--recorder", "nsys"], "--recorder: nsys records what it starts itself, and mpirun started the "),
        (["--hidden", "30"], "--heads: 4 do not divide hidden 30; give 3 or 5"),
        (["--launch", "torchrun"], "--launch: 'torchrun' is not known; choose from auto, spawn, join"),
        (["--nonsense"], "No such option: --nonsense"),
    ],
)
def test_a_mistake_is_told_once_a_node(tmp_path: Path, options: list[str], message: str) -> None:
    done = world(tmp_path, mpirun(4), *options)
    assert [code for code, _, _ in done] == [2, 2, 2, 2]
    (line,) = set(lines(done)) if options[0] == "--launch" else lines(done)
    assert line.startswith(f"overlapscope: {message}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--link", "nvlink4"],
            "--link: paces by one clock, and the ranks are on several nodes; leave it out",
        ),
        (["--sequence-parallel", "--schedule", "symm_mem"], "--schedule: symm_mem needs GPUs that can "),
    ],
)
def test_what_needs_one_node_is_refused_on_several(tmp_path: Path, options: list[str], message: str) -> None:
    done = world(tmp_path, srun(2), *options)
    assert [code for code, _, _ in done] == [2, 2]
    assert [line.startswith(f"overlapscope: {message}") for line in lines(done)] == [True, True]


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        ((code, out, err),) = world(tmp_path, mpirun(2, MASTER_PORT=str(port))[:1])
    assert (code, out) == (2, "")
    message = f"MASTER_PORT: {port} is in use on this machine; set it to a free port, the same for all ranks"
    assert err == f"overlapscope: {message}\n"


@pytest.mark.real
def test_a_directory_that_holds_something_is_refused_by_all_ranks_and_told_once(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    done = world(tmp_path, mpirun(2), "-o", "out", "--force")
    assert [code for code, _, _ in done] == [2, 2]
    message = "out: is not empty and not a run (no run.json of one); give another"
    assert lines(done) == [f"overlapscope: {message}"]
    assert [f.name for f in (tmp_path / "out").iterdir()] == ["notes.txt"]


@pytest.mark.real
def test_ranks_that_are_called_differently_are_refused(tmp_path: Path) -> None:
    done = ended(
        [
            start([sys.executable, *RUN, "--seed", seed], tmp_path, **env)
            for seed, env in zip(("0", "7"), mpirun(2), strict=True)
        ]
    )
    assert [code for code, _, _ in done] == [2, 2]
    message = "rank 1: has seed 7, and rank 0 has 0; give all ranks the same options"
    assert lines(done) == [f"overlapscope: {message}"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("output", Path("there"), "output there, and rank 0 has here"),
        ("output", None, "output None, and rank 0 has here"),
        ("force", True, "force True, and rank 0 has False"),
        ("keep_json", True, "keep_json True, and rank 0 has False"),
    ],
)
def test_what_ranks_must_share_is_more_than_the_plan(
    tmp_path: Path, option: str, value: Any, message: str
) -> None:
    from test_capture import plan

    place = find(mpirun(2)[0])
    assert place is not None
    first = Task(plan(tp=2), place, output=Path("here"), force=False, keep_json=False)
    first.save(tmp_path / "task.json")
    assert Task.load(tmp_path / "task.json") == first
    second = replace(first, plan=replace(first.plan, threads=7, start="srun"))
    _same(first.common, second.common, 1)
    with pytest.raises(OptionError) as caught:
        _same(first.common, replace(second, **{option: value}).common, 1)
    assert str(caught.value) == f"rank 1: has {message}; give all ranks the same options"


def test_scale_is_no_program_for_many_processes(tmp_path: Path) -> None:
    done = ended(
        [
            start([sys.executable, "-m", "overlapscope", "scale", "--tp", "1,2"], tmp_path, **env)
            for env in mpirun(2)
        ]
    )
    assert [code for code, _, _ in done] == [2, 2]
    (line,) = lines(done)
    assert line.startswith("overlapscope: scale: starts its ranks itself, and mpirun started 2 processes ")


@pytest.mark.real
def test_spawn_starts_ranks_of_its_own_under_a_launcher_too(tmp_path: Path) -> None:
    ((code, out, err),) = world(tmp_path, mpirun(4)[:1], "--launch", "spawn", "--tp", "1", "-o", "out")
    assert (code, err) == (0, "")
    assert "1 rank on CPU" in out
