"""The launcher: ranks that die, hang or are interrupted, foreign packages in the way, nsys's command line.

Faulty programs are put into a copy of the project, beside the real one, so that nothing is mocked.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from overlapscope.capture import Plan, Request, RunDir, launch, nsys
from overlapscope.capture.events import Event, EventReader, EventWriter
from overlapscope.capture.failure import cause, is_connection_error, statuses
from overlapscope.capture.machine import Gpu, Machine, inspect
from overlapscope.capture.manifest import without_paths
from overlapscope.capture.plan import make
from overlapscope.capture.progress import Progress
from overlapscope.capture.recorder import TorchRecorder, WriteError
from overlapscope.errors import OptionError, RunError
from workloads import WORKLOADS

ROOT = Path(__file__).resolve().parent.parent
SMALL = ["--hidden", "32", "--heads", "2", "--seq", "16", "--batch", "1"]

FAULTY = """
import os, signal, time
import torch
from .block import BlockProgram
from .parallel import Ranks

class Program(BlockProgram):
    def __init__(self, config, ranks, device):
        super().__init__(config, ranks, device)
        self.rank, self.count = ranks.rank, 0

    def step(self):
        super().step()
        self.count += 1
        if self.rank == 1 and self.count == 2:
            fault(os.environ["FAULT"])

def fault(kind):
    if kind == "raise":
        raise ValueError("this rank has a fault\\nof two lines")
    if kind == "hang":
        time.sleep(1000)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind == "deaf":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        time.sleep(1000)
    if kind == "allocate":
        torch.empty(1 << 60)

def build(config, ranks, device):
    return Program(config, ranks, device)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with a workload "faulty", whose rank 1 has the fault that FAULT names."""
    root = tmp_path_factory.mktemp("project")
    for package in ("overlapscope", "workloads"):
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "workloads" / "faulty.py").write_text(FAULTY)
    registry = root / "workloads" / "__init__.py"
    registry.write_text(
        registry.read_text()
        + '\nWORKLOADS = {**WORKLOADS, "faulty": Workload("faulty", "for tests", BlockConfig, "faulty")}\n'
    )
    return root


def start(
    root: Path, folder: Path, *arguments: str, cwd: Path | None = None, **env: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "overlapscope", "run", *SMALL, "--output", str(folder), *arguments],
        cwd=cwd or root,  # python -m looks there first
        env={**os.environ, "PYTHONPATH": str(root), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def faulty(root: Path, folder: Path, fault: str, *arguments: str) -> tuple[str, dict[str, Any]]:
    """Standard error and run.json of a run with a fault; no process may be left.

    It must end by itself, long before the 300 s after which silent ranks are given up.
    """
    process = start(root, folder, "--workload", "faulty", "--tp", "2", *arguments, FAULT=fault)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 1, err
    manifest = json.loads((folder / "run.json").read_text())
    assert manifest["complete"] is False
    assert not (folder / ".capture").exists()
    assert_gone([rank["pid"] for rank in manifest["ranks"]])
    return err, manifest


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def assert_gone(pids: list[int], within: float = 0.0) -> None:
    deadline = time.monotonic() + within
    while any(map(running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in pids if running(pid)] == []


def ranks_in(trace: Path) -> list[int]:
    from overlapscope import formats

    return [int(rank) for rank in formats.load(trace).ranks["rank"]]


# -- ranks that fail -----------------------------------------------------------------------------------------


@pytest.mark.real
def test_an_exception_is_shown_with_its_own_traceback_and_recordings_are_kept(
    project: Path, tmp_path: Path
) -> None:
    err, manifest = faulty(project, tmp_path / "run", "raise")
    first, _, detail = err.partition("\n")
    assert first.startswith(
        "overlapscope: rank 1: failed: ValueError: this rank has a fault; what was recorded is in"
    )
    assert detail.startswith("Traceback (most recent call last):")
    assert detail.rstrip().endswith("ValueError: this rank has a fault\nof two lines")
    assert 'fault(os.environ["FAULT"])' in detail
    assert [rank["status"] for rank in manifest["ranks"]] == ["lost a peer", "failed"]
    assert ranks_in(tmp_path / "run" / "trace.sqlite") == [0, 1]


@pytest.mark.real
def test_a_killed_rank_is_named_before_the_errors_of_its_peers(project: Path, tmp_path: Path) -> None:
    err, manifest = faulty(project, tmp_path / "run", "kill")
    assert err == (
        "overlapscope: rank 1: was killed by SIGKILL after warmup 0; the kernel does that when memory runs out "
        f"(see dmesg), or somebody did; what was recorded is in {tmp_path / 'run'}\n"
    )
    assert manifest["ranks"][0]["status"] == "lost a peer"
    assert manifest["ranks"][1]["status"] == "killed by SIGKILL"
    # The peer learned of it from its socket and wrote what it had.
    assert ranks_in(tmp_path / "run" / "trace.sqlite") == [0]


@pytest.mark.real
def test_a_crash_says_where(project: Path, tmp_path: Path) -> None:
    err, _ = faulty(project, tmp_path / "run", "crash")
    assert err.startswith("overlapscope: rank 1: was killed by SIGSEGV after warmup 0; ")
    assert "SyncActivityProfilerHandler" not in err  # Kineto's chatter
    assert re.search(r'File ".*faulty\.py", line \d+ in fault', err)


@pytest.mark.real
def test_an_allocation_that_fails_is_an_exception_like_any_other(project: Path, tmp_path: Path) -> None:
    err, _ = faulty(project, tmp_path / "run", "allocate")
    assert err.startswith("overlapscope: rank 1: failed: RuntimeError: ")
    assert "torch.empty(1 << 60)" in err


@pytest.mark.real
def test_a_rank_that_hangs_is_found_and_says_where(project: Path, tmp_path: Path) -> None:
    err, manifest = faulty(project, tmp_path / "run", "hang", "--timeout", "12")
    assert err.startswith("overlapscope: rank 1: no rank said anything for 12 s")
    assert re.search(r'File ".*faulty\.py", line \d+ in fault', err)
    assert manifest["ranks"][1]["status"] == "stopped"
    assert ranks_in(tmp_path / "run" / "trace.sqlite") == [0, 1]


@pytest.mark.real
def test_a_rank_that_was_stopped_costs_nobody_a_recording(project: Path, tmp_path: Path) -> None:
    err, manifest = faulty(project, tmp_path / "run", "stop", "--timeout", "12")
    assert err.startswith("overlapscope: rank 1: no rank said anything for 12 s")
    assert manifest["ranks"][1]["status"] == "stopped"
    assert ranks_in(tmp_path / "run" / "trace.sqlite") == [0, 1]


@pytest.mark.real
def test_a_rank_that_hears_nothing_is_killed_and_its_peer_writes(project: Path, tmp_path: Path) -> None:
    err, manifest = faulty(project, tmp_path / "run", "deaf", "--timeout", "12")
    assert err.startswith("overlapscope: rank 1: no rank said anything for 12 s")
    assert manifest["ranks"][1]["status"] == "stopped"
    assert ranks_in(tmp_path / "run" / "trace.sqlite") == [0]


# -- ends from outside ---------------------------------------------------------------------------------------


def wait_for(folder: Path, kind: str, count: int) -> list[Event]:
    """The events of a run once `count` of a kind are there."""
    reader = EventReader(folder / ".capture" / "events.jsonl")
    events: list[Event] = []
    deadline = time.monotonic() + 60
    while sum(e.kind == kind for e in events) < count:
        assert time.monotonic() < deadline, f"no {count} events {kind!r} in {[e.kind for e in events]}"
        time.sleep(0.05)
        events += reader.new()
    return events


def pids_of(events: list[Event]) -> list[int]:
    return [e.fields["pid"] for e in events if e.kind in ("launcher", "started")]


@pytest.fixture
def long_run(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    shape = ("--hidden", "512", "--heads", "8", "--seq", "256")
    process = start(ROOT, tmp_path / "run", "--tp", "2", "--steps", "400", "--warmup", "0", *shape)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.real
def test_ctrl_c_ends_all_and_keeps_what_was_recorded(long_run: subprocess.Popen[str], tmp_path: Path) -> None:
    pids = pids_of(wait_for(tmp_path / "run", "done", 6))
    long_run.send_signal(signal.SIGINT)
    _, err = long_run.communicate(timeout=20)
    assert err.startswith("overlapscope: interrupted; what was recorded is in ")
    assert long_run.returncode == 130
    assert_gone(pids)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["complete"] is False
    assert ranks_in(tmp_path / "run" / "trace.sqlite") == [0, 1]


@pytest.mark.real
@pytest.mark.parametrize("victim", ["command", "launcher"])
def test_kill_9_leaves_no_orphan(long_run: subprocess.Popen[str], tmp_path: Path, victim: str) -> None:
    pids = pids_of(wait_for(tmp_path / "run", "done", 2))
    assert len(pids) == 3
    os.kill(long_run.pid if victim == "command" else pids[0], signal.SIGKILL)
    assert_gone(pids, within=10)
    _, err = long_run.communicate(timeout=20)
    if victim == "launcher":
        assert long_run.returncode == 1
        assert err.startswith("overlapscope: the launcher: was killed by SIGKILL")


# -- what lies in the current directory ----------------------------------------------------------------------


@pytest.mark.real
def test_packages_of_the_current_directory_stay_out(tmp_path: Path) -> None:
    for folder in (tmp_path / "workloads", tmp_path / "path" / "workloads"):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise SystemExit('the wrong one')")
    (tmp_path / "workloads.py").write_text("raise SystemExit('the wrong one')")
    path = f"{tmp_path / 'path'}{os.pathsep}{ROOT}"
    process = start(ROOT, tmp_path / "run", "--tp", "1", "--steps", "1", cwd=tmp_path, PYTHONPATH=path)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


@pytest.mark.real
def test_the_launcher_needs_neither_the_current_directory_nor_pythonpath(tmp_path: Path) -> None:
    hostile = tmp_path / "hostile"
    for name in ("workloads", "overlapscope"):
        (hostile / name).mkdir(parents=True)
        (hostile / name / "__init__.py").write_text("raise SystemExit('the wrong one')")
    boot = ROOT / "overlapscope" / "capture" / "boot.py"
    work, private = tmp_path / "work", tmp_path / "private"
    work.mkdir()
    private.mkdir()
    plan(tp=1).save(work / "plan.json")
    env = {**os.environ, "PYTHONPATH": str(hostile)}
    command = [sys.executable, str(boot), str(work), str(private), str(os.getpid())]
    done = subprocess.run(
        command, cwd=hostile, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (work / "rank0.json").is_file()
    assert not private.exists()


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (None, "the disk is full, or files may not be so large: see df, ulimit -f"),  # Kineto says nothing
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
)
def test_a_recording_that_cannot_be_written_is_told_apart_from_a_defect(
    tmp_path: Path, error: OSError | None, why: str
) -> None:
    def export(name: str) -> None:
        if error is not None:
            raise error

    recorder = TorchRecorder(tmp_path / "rank0.json", "cpu")
    recorder.profile = SimpleNamespace(stop=lambda: None, export_chrome_trace=export)
    with pytest.raises(WriteError) as caught:
        recorder.finish()
    assert str(caught.value) == why


@pytest.mark.real
def test_a_rank_says_that_it_could_not_write_its_recording(tmp_path: Path) -> None:
    program = (
        "import resource, sys; from overlapscope.cli import main; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000)); main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, "run", *SMALL, "--tp", "1", "--steps", "5", "-o", "run"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "overlapscope: rank 0: failed: could not write its recording (the disk is full, or files may not be "
        "so large: see df, ulimit -f); nothing was recorded\n"
    )


# -- nsys ----------------------------------------------------------------------------------------------------

NSYS = nsys.Nsys(
    "/opt/nsys",
    "2024.5.1",
    frozenset({"--trace", "--cuda-graph-trace", "--sample", "--cpuctxsw", "--force-overwrite"}),
    frozenset({"--type", "--include-blobs"}),
)

STAND_IN = """#!{python}
import os, shutil, sqlite3, subprocess, sys
with open(os.environ["NSYS_CALLS"], "a") as calls:
    print(*sys.argv[1:], file=calls)
if sys.argv[1] == "--version":
    print("NVIDIA Nsight Systems version 2024.5.1.113-245134619542v0")
elif sys.argv[2] == "--help":
    print("--trace= --sample= --cuda-graph-trace= --force-overwrite= --include-blobs=")
elif sys.argv[1] == "profile":
    at = sys.argv.index("-o")
    open(sys.argv[at + 1] + ".nsys-rep", "w").close()
    sys.exit(subprocess.run(sys.argv[at + 2:]).returncode)
elif os.environ.get("NSYS_FAILS"):
    sys.exit("Error: the report is from a newer version")
else:
    file = sys.argv[sys.argv.index("-o") + 1]
    exports = os.environ.get("NSYS_EXPORTS")
    if exports in ("nothing", "junk"):
        open(file, "w").write(chr(0) * 400 * (exports == "junk"))
    else:
        table = exports or "NVTX_EVENTS"
        sqlite3.connect(file).execute("CREATE TABLE " + table + " (name, value)").connection.commit()
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nsys on PATH that runs the program and writes its calls down. Returns the file of calls."""
    program = tmp_path / "bin" / "nsys"
    program.parent.mkdir()
    program.write_text(STAND_IN.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("NSYS_CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def test_the_profile_command_asks_for_kernels_and_ranges_and_nothing_that_costs() -> None:
    assert nsys.profile_command(NSYS, Path("out/report"), ["python", "x.py"], "cuda") == [
        "/opt/nsys",
        "profile",
        "--trace=cuda,nvtx",
        "--cuda-graph-trace=node",
        "--sample=none",
        "--cpuctxsw=none",
        "--force-overwrite=true",
        "-o",
        "out/report",
        "python",
        "x.py",
    ]


def test_an_option_that_this_nsys_does_not_know_is_left_out() -> None:
    old = replace(NSYS, profile_options=frozenset({"--trace", "--sample"}), export_options=frozenset())
    command = nsys.profile_command(old, Path("r"), ["p"], "cuda")
    assert command[2:-4] == ["--trace=cuda,nvtx", "--sample=none"]
    assert nsys.export_command(old, Path("r"), Path("t.sqlite"))[1:] == [
        *("export", "--type", "sqlite", "--force-overwrite=true", "-o", "t.sqlite", "r.nsys-rep")
    ]


def test_on_a_cpu_ranges_alone_are_asked_for() -> None:
    command = nsys.profile_command(NSYS, Path("r"), ["p"], "cpu")
    assert command[2:-4] == ["--trace=nvtx", "--sample=none", "--cpuctxsw=none"]


SPLIT_IMPORTER = """#!{python}
import os, pathlib, sys
here = pathlib.Path(sys.argv[0]).parent
if os.environ["LD_LIBRARY_PATH"] != str(here) or sys.argv[1::2] != ["-i", "-o"]:
    sys.exit("its libraries are not found")
pathlib.Path(sys.argv[4]).write_bytes(pathlib.Path(sys.argv[2]).read_bytes())
"""


def split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, importer: bool) -> nsys.Nsys:
    """An nsys laid out as Debian does it: two folders, and links from PATH through the one into the other."""
    host, target = tmp_path / "lib" / "nsight", tmp_path / "lib" / "arch" / "nsight" / "target-linux-x64"
    for folder in (host / "bin", host / "host-linux-x64", target, tmp_path / "bin"):
        folder.mkdir(parents=True)
    (tmp_path / "bin" / "nsys").symlink_to("../lib/nsight/bin/nsys")
    (host / "bin" / "nsys").symlink_to("../target-linux-x64/nsys")
    (host / "target-linux-x64").symlink_to("../arch/nsight/target-linux-x64")
    programs = {target / "nsys": STAND_IN.replace(".nsys-rep", ".qdstrm")}
    if importer:
        programs[host / "host-linux-x64" / "QdstrmImporter"] = SPLIT_IMPORTER
    for path, text in programs.items():
        path.write_text(text.format(python=sys.executable))
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("NSYS_CALLS", str(tmp_path / "calls"))
    found = nsys.find()
    assert found is not None
    return found


def test_a_raw_recording_goes_through_the_importer_of_a_split_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = split(tmp_path, monkeypatch, importer=True)
    (tmp_path / "r.qdstrm").write_text("raw")
    nsys.export(found, tmp_path / "r", tmp_path / "t.sqlite")
    assert (tmp_path / "r.nsys-rep").read_text() == "raw"
    assert (tmp_path / "t.sqlite").is_file()


def test_without_an_importer_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = split(tmp_path, monkeypatch, importer=False)
    (tmp_path / "r.qdstrm").write_text("raw")
    with pytest.raises(RunError, match=r"left its raw recording.*install all of Nsight Systems"):
        nsys.export(found, tmp_path / "r", tmp_path / "t.sqlite")


def test_the_export_takes_the_blobs_along() -> None:
    assert "--include-blobs=true" in nsys.export_command(NSYS, Path("r"), Path("t.sqlite"))


@pytest.mark.skipif(shutil.which("nsys") is None, reason="needs nsys")
def test_an_installed_nsys_says_its_version_and_options() -> None:
    found = nsys.find()
    assert found is not None
    assert re.fullmatch(r"\d{4}\.\d+[\d.]*", found.version)
    assert {"--trace", "--sample", "--cuda-graph-trace"} <= found.profile_options


@pytest.mark.real
def test_a_run_under_nsys_starts_fresh_ranks_and_records_nothing_itself(
    stand_in: Path, tmp_path: Path
) -> None:
    found = nsys.find()
    assert found is not None
    assert found.version == "2024.5.1.113"
    folder = RunDir.prepare(tmp_path / "run", force=False)
    texts: list[str] = []
    launch.execute(plan(tp=2, recorder="nsys"), folder, inspect(gpus=False), found, texts.append)
    assert folder.trace.is_file()
    manifest = json.loads(folder.manifest.read_text())
    assert manifest["complete"] is True
    assert manifest["ranks_start_by"] == "exec"
    assert manifest["versions"]["nsys"] == "2024.5.1.113"
    assert manifest["versions"]["torch"]
    assert [rank["status"] for rank in manifest["ranks"]] == ["finished", "finished"]
    assert any("recording with nsys" in text for text in texts)
    calls = stand_in.read_text().splitlines()
    assert calls[3].startswith("profile --trace=nvtx --sample=none --force-overwrite")
    assert "boot.py" in calls[3]
    assert calls[4].startswith("export --type sqlite --include-blobs=true ")


@pytest.mark.parametrize("program", [b"\x7fELF is all there is of it", b"#!/no/such/interpreter\n"])
def test_an_nsys_that_does_not_run_is_one_line(stand_in: Path, tmp_path: Path, program: bytes) -> None:
    (tmp_path / "bin" / "nsys").write_bytes(program)
    with pytest.raises(
        OptionError, match=r"^--recorder: .*/bin/nsys does not run; mend that .*, or give torch$"
    ):
        launch.look(Request(workload="block", recorder="nsys"))


@pytest.mark.real
def test_what_nsys_says_when_it_fails_is_passed_on(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NSYS_FAILS", "1")
    folder = RunDir.prepare(tmp_path / "run", force=False)
    with pytest.raises(RunError) as caught:
        launch.execute(
            plan(tp=1, recorder="nsys"), folder, inspect(gpus=False), nsys.find(), lambda text: None
        )
    kept = tmp_path / "run" / "nsys.nsys-rep"
    assert str(caught.value) == (
        "nsys 2024.5.1.113: could not export what it recorded; the recording is kept: "
        f"overlapscope report {kept}, where an nsys can export it"
    )
    assert sorted(tmp_path.joinpath("run").iterdir()) == [kept, tmp_path / "run" / "run.json"]
    assert caught.value.detail == "Error: the report is from a newer version\n"
    assert json.loads(folder.manifest.read_text())["complete"] is False


def recorded(tmp_path: Path, name: str, *, failed: bool = False) -> tuple[RunDir, Any]:
    """A run directory with a recording of nsys's in it, and ranks that have ended."""
    folder = RunDir.prepare(tmp_path / "run", force=False)
    (folder.work / name).write_text("raw")
    ranks = SimpleNamespace(failed=failed, plan=plan(), events=[], error=lambda where: None)
    return folder, ranks


@pytest.mark.parametrize(
    ("exports", "message"),
    [
        ("nothing", "is cut off after 0 bytes"),
        ("junk", "is damaged (file is not a database)"),
        ("META_DATA_EXPORT", "holds nothing that the program did"),
        ("OTHER", "is SQLite, but not an nsys export (it has no kernel table; it holds OTHER)"),
    ],
)
def test_an_export_without_a_recording_in_it_fails_the_run_and_keeps_the_recording(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exports: str, message: str
) -> None:
    monkeypatch.setenv("NSYS_EXPORTS", exports)
    folder, ranks = recorded(tmp_path, "nsys.nsys-rep")
    found = nsys.find()
    assert found is not None
    with pytest.raises(RunError) as caught:
        launch._export(folder, found, ranks)
    folder.close()
    assert str(caught.value) == (
        f"nsys 2024.5.1.113: exported what it recorded to a file that {message}; the recording is kept: "
        f"overlapscope report {folder.path}/nsys.nsys-rep, where an nsys can export it"
    )
    assert (folder.path / "nsys.nsys-rep").read_text() == "raw"
    RunDir(folder.path).write_manifest({"workload": "block"})
    RunDir.prepare(folder.path, force=True).close()
    assert list(folder.path.iterdir()) == []


def test_a_recording_that_is_not_imported_is_kept_and_what_to_do_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = split(tmp_path, monkeypatch, importer=False)
    folder, ranks = recorded(tmp_path, "nsys.qdstrm")
    with pytest.raises(RunError) as caught:
        launch._export(folder, found, ranks)
    folder.close()
    kept = folder.path / "nsys.qdstrm"
    assert kept.read_text() == "raw"
    assert f"; the recording is kept: QdstrmImporter -i {kept} -o " in str(caught.value)


def test_of_failed_ranks_too_the_recording_is_kept(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NSYS_FAILS", "1")
    folder, ranks = recorded(tmp_path, "nsys.nsys-rep", failed=True)
    found = nsys.find()
    assert found is not None
    assert launch._export(folder, found, ranks) == folder.path / "nsys.nsys-rep"


def test_nsys_s_export_is_out_of_reach_of_a_terminal_s_ctrl_c() -> None:
    done = nsys._run([sys.executable, "-c", "import os; print(os.getsid(0), os.getpid())"], dict(os.environ))
    session, pid = done.stdout.split()
    assert session == pid != str(os.getsid(0))


# -- planning ------------------------------------------------------------------------------------------------

CPU = Machine("a CPU", cores=4, memory=8 << 30, available=6 << 30)
GPUS = replace(CPU, available=64 << 30, gpus=(Gpu("H100", 80 << 30),) * 4)
HUGE = 10**400 - 1
OPTIONS: dict[str, Any] = {"hidden": 32, "heads": 2, "ffn": 64, "seq": 16, "batch": 1}


def plan(tp: int = 1, **changes: Any) -> Plan:
    request = Request(workload="block", tp=tp, options=OPTIONS, steps=1, device="cpu")
    return replace(make(request, inspect(gpus=False), None), **changes)


@pytest.mark.parametrize(
    ("request_", "machine", "found", "message"),
    [
        ({"workload": "blok"}, CPU, None, "--workload: 'blok' is not known; did you mean block?"),
        (
            {"workload": "x"},
            CPU,
            None,
            f"--workload: 'x' is not known; choose from {', '.join(WORKLOADS)}",
        ),
        ({"tp": 0}, CPU, None, "--tp: is 0; give 1 or more"),
        (
            {"tp": 2, "options": {"preset": "llama3-8b", "heads": 4, "hidden": 64}},
            CPU,
            None,
            "--heads: 4 is no multiple of 8 kv_heads; give 8",
        ),
        ({"tp": HUGE}, CPU, None, "--tp: has more than 63 bits; give a smaller number"),
        ({"steps": 2**63}, CPU, None, "--steps: has more than 63 bits; give a smaller number"),
        (
            {"options": {"kv_heads": -HUGE}},
            CPU,
            None,
            "--kv-heads: has more than 63 bits; give a smaller number",
        ),
        ({"tp": 3}, CPU, None, "--tp: 3 ranks do not divide heads 8; give 2 or 4"),
        ({"steps": 0}, CPU, None, "--steps: is 0; give 1 or more"),
        ({"device": "tpu"}, CPU, None, "--device: 'tpu' is not known; choose from auto, cpu, cuda"),
        (
            {"device": "cuda"},
            CPU,
            None,
            "--device: no GPU that this PyTorch can use; give --device cpu or install PyTorch for CUDA",
        ),
        ({"tp": 8}, GPUS, None, "--tp: 8 ranks, and 4 GPUs are visible; give at most 4, or --device cpu"),
        (
            {"recorder": "nsys"},
            GPUS,
            None,
            "--recorder: nsys is not on PATH; install Nsight Systems or give torch",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    request_: dict[str, Any], machine: Machine, found: nsys.Nsys | None, message: str
) -> None:
    with pytest.raises(OptionError) as caught:
        make(Request(**{"workload": "block", **request_}), machine, found)
    assert str(caught.value) == message
    assert caught.value.exit_code == 2


def test_nsys_records_on_a_cpu_where_it_is_asked_for_and_nvtx_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = Request(workload="block", tp=2, recorder="nsys")
    chosen = make(request, CPU, NSYS)
    assert (chosen.device, chosen.recorder, chosen.recorder_why) == ("cpu", "nsys", "asked for")
    monkeypatch.setattr("overlapscope.capture.plan.installed", lambda package: None)
    with pytest.raises(OptionError, match=r"--recorder: on a CPU .* the nvtx package .*; pip install nvtx"):
        make(request, CPU, NSYS)


@pytest.mark.parametrize(
    ("alias", "name"), [("bf16", "bfloat16"), ("half", "float16"), ("fp32", "float32"), ("double", "float64")]
)
def test_what_else_people_call_a_type(alias: str, name: str) -> None:
    made = make(Request(workload="block", options={"dtype": alias}, timeout=math.inf), CPU, None)
    assert made.options["dtype"] == name


@pytest.mark.parametrize("seed", [-(2**63), 2**64 - 1])
def test_the_seeds_that_are_taken_are_those_that_torch_takes(seed: int) -> None:
    assert make(Request(workload="block", options={"seed": seed}), CPU, None).options["seed"] == seed
    import torch

    torch.Generator().manual_seed(seed)


def test_more_than_memory_holds_is_refused_with_both_figures() -> None:
    with pytest.raises(OptionError) as caught:
        make(Request(workload="block", tp=8, options={"hidden": 8192}), CPU, None)
    found = re.match(
        r"memory: 8 ranks need about ([\d.]+) GB, and 6.4 GB are available; lower", str(caught.value)
    )
    assert found is not None
    assert float(found[1]) > 2 * 12 * 8192**2 * 4 / 1e9  # weights and gradients alone

    with pytest.raises(OptionError, match=r"a rank needs about .* GB, and its GPU has 85.9 GB"):
        make(Request(workload="block", tp=4, options={"hidden": 65536}), GPUS, None)


@pytest.mark.parametrize(
    ("machine", "found", "device", "recorder", "why"),
    [
        (CPU, None, "cpu", "torch", "on a CPU it records operators, and nsys ranges alone"),
        (CPU, NSYS, "cpu", "torch", "on a CPU it records operators, and nsys ranges alone"),
        (GPUS, None, "cuda", "torch", "nsys is not on PATH"),
        (GPUS, NSYS, "cuda", "nsys", "a GPU, and nsys 2024.5.1 on PATH"),
    ],
)
def test_device_and_recorder_follow_the_machine(
    machine: Machine, found: nsys.Nsys | None, device: str, recorder: str, why: str
) -> None:
    made = make(Request(workload="block", tp=4), machine, found)
    assert (made.device, made.recorder, made.recorder_why) == (device, recorder, why)


def test_cores_are_shared_and_a_user_s_number_of_threads_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [make(Request(workload="block", tp=tp), CPU, None).threads for tp in (1, 2, 8)] == [4, 2, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    made = make(Request(workload="block", tp=2), CPU, None)
    assert made.threads == 3
    assert launch.environment(made, {"OMP_NUM_THREADS": "3"})["OMP_NUM_THREADS"] == "3"


def test_the_command_of_a_plan_makes_the_plan_again() -> None:
    made = plan(tp=2)
    assert made.command == (
        "overlapscope run --workload block --tp 2 --dtype float32 --seed 0 --hidden 32 --ffn 64 --seq 16 --batch 1 "
        "--schedule serial --layers 1 --arch gpt --impl megatron --heads 2 --kv-heads 2 --steps 1 --warmup 3 "
        "--device cpu --recorder torch"
    )
    assert " --forward-only " in replace(made, options={**made.options, "forward_only": True}).command
    assert (
        " --no-overlap-backward "
        in replace(made, options={**made.options, "overlap_backward": False}).command
    )
    assert " --link '50 GB/s, 5 us' " in replace(made, link="50 GB/s, 5 us").command


# -- the output directory ------------------------------------------------------------------------------------


def test_a_directory_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(OptionError, match="is not empty; give another, or --force to replace a run"):
        RunDir.prepare(tmp_path, force=False)
    with pytest.raises(OptionError, match=r"is not empty and not a run \(no run.json of one\); give another"):
        RunDir.prepare(tmp_path, force=True)
    assert (tmp_path / "notes").read_text() == "mine"


def test_force_replaces_a_run_and_nothing_beside_it(tmp_path: Path) -> None:
    first = RunDir.prepare(tmp_path / "run", force=False)
    first.write_manifest({"workload": "block"})
    first.trace.write_text("old")
    first.close()
    (tmp_path / "run" / "notes").write_text("mine")
    second = RunDir.prepare(tmp_path / "run", force=True)
    assert not second.trace.exists()
    assert not second.manifest.exists()
    assert (tmp_path / "run" / "notes").read_text() == "mine"


def test_force_does_not_touch_a_run_that_is_at_work(tmp_path: Path) -> None:
    first = RunDir.prepare(tmp_path / "run", force=False)
    first.write_manifest({"workload": "block"})
    (first.work / "rank0.json").write_text("recorded")
    for force in (False, True):
        with pytest.raises(OptionError, match="another run is at work in it" if force else "is not empty"):
            RunDir.prepare(tmp_path / "run", force=force)
    assert (first.work / "rank0.json").read_text() == "recorded"
    assert first.read_manifest() is not None
    first.close()
    RunDir.prepare(tmp_path / "run", force=True).close()


def test_the_lock_of_a_run_that_was_killed_locks_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "run")
    code = (
        "import os, pathlib; from overlapscope.capture import RunDir;"
        f"RunDir.prepare(pathlib.Path({path!r}), force=False); os.kill(os.getpid(), 9)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == -9
    assert [p.name for p in Path(path).iterdir()] == [".capture"]
    RunDir.prepare(Path(path), force=False).close()


def test_a_directory_that_cannot_be_made_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="cannot be made or written"):
        RunDir.prepare(tmp_path / "file" / "run", force=False)


# -- the root cause ------------------------------------------------------------------------------------------


def error(rank: int, at: float, what: str, *, connection: bool = False) -> Event:
    return Event("error", at, rank, {"what": what, "traceback": f"trace of {what}", "connection": connection})


def ended(rank: int, at: float, code: int, *, ours: bool = False) -> Event:
    return Event("ended", at, rank, {"code": code, "ours": ours})


LOST = "RuntimeError: [pair.cc:534] Connection closed by peer [127.0.0.1]:1"


@pytest.mark.parametrize(
    ("events", "rank", "what"),
    [
        ([ended(0, 1, 0), ended(1, 2, 0)], None, None),
        # The earliest exception, whoever ended first.
        ([error(0, 5, "A"), error(1, 4, "B"), ended(0, 6, 1), ended(1, 7, 1)], 1, "failed: B"),
        # A lost connection is a consequence, even where it was said first.
        ([error(0, 1, LOST, connection=True), error(1, 2, "B")], 1, "failed: B"),
        # Peers notice a killed rank before the launcher does.
        ([error(0, 1, "odd"), ended(1, 2, -9), ended(0, 3, 1)], 1, "was killed by SIGKILL"),
        # Those that the launcher ended are not to blame.
        ([error(1, 2, "B"), ended(1, 3, 1), ended(0, 6, -9, ours=True)], 1, "failed: B"),
        # gloo may abort a rank that loses its peer.
        ([error(1, 2, "B"), ended(0, 3, -6), ended(1, 4, 1)], 1, "failed: B"),
        # Nothing but lost connections: the earliest.
        ([error(0, 2, LOST, connection=True), error(1, 1, LOST, connection=True)], 1, f"failed: {LOST}"),
        ([ended(0, 1, 3), ended(1, 2, 0)], 0, "ended with exit code 3 without a word"),
    ],
)
def test_the_rank_that_failed_first_is_the_cause(
    events: list[Event], rank: int | None, what: str | None
) -> None:
    found = cause(events)
    assert (found and found.rank, found and found.what) == (rank, what)


def test_a_refusal_by_a_rank_is_the_user_s_to_mend() -> None:
    found = cause([Event("refused", 1.0, 2, {"what": "needs 9 GB", "remedy": "lower --hidden"})])
    assert found is not None
    raised = found.error("nothing was recorded")
    assert isinstance(raised, OptionError)
    assert str(raised) == "rank 2: needs 9 GB; lower --hidden"


def test_statuses_tell_how_each_rank_ended() -> None:
    events = [Event("started", 0.0, rank, {"pid": 100 + rank}) for rank in range(5)]
    events += [Event("finished", 1.0, 0), ended(0, 2, 0), error(1, 1, "B"), ended(1, 2, 1), ended(2, 2, -9)]
    events += [ended(3, 3, -9, ours=True)]
    assert statuses(events, range(5)) == [
        {"rank": 0, "pid": 100, "status": "finished"},
        {"rank": 1, "pid": 101, "status": "failed"},
        {"rank": 2, "pid": 102, "status": "killed by SIGKILL"},
        {"rank": 3, "pid": 103, "status": "stopped"},
        {"rank": 4, "pid": 104, "status": "unknown"},
    ]


def test_what_gloo_says_of_a_lost_peer_is_known() -> None:
    assert is_connection_error(LOST)
    assert is_connection_error("[enforce fail at tcp/pair.cc] Broken pipe")
    assert not is_connection_error("ValueError: shapes do not match")


def test_events_are_read_once_and_only_when_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    reader = EventReader(path)
    assert reader.new() == []
    writer = EventWriter(path)
    writer.write("ready", 3)
    with path.open("a") as file:
        file.write('{"kind": "do')
    first = reader.new()
    assert [(e.kind, e.rank) for e in first] == [("ready", 3)]
    with path.open("a") as file:
        file.write('ne", "time": 1.0, "rank": 2, "fields": {"name": "step 0"}}\n')
    assert reader.new() == [Event("done", 1.0, 2, {"name": "step 0"})]
    assert reader.new() == []


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ('File "/home/me/env/lib/torch/nn/x.py", line 3', 'File "nn/x.py", line 3'),
        ("[/build/gloo/transport/tcp/pair.cc:534] closed", "[tcp/pair.cc:534] closed"),
        ("a rate of 3/4 in runs/x/trace.sqlite", "a rate of 3/4 in runs/x/trace.sqlite"),
        ("https://host/a/b/c", "https://host/a/b/c"),
    ],
)
def test_run_json_holds_no_absolute_path(text: str, cut: str) -> None:
    assert without_paths(text) == cut


def test_progress_says_where_the_run_is() -> None:
    progress = Progress(plan(tp=2, steps=3, warmup=1))
    recorder = "; recording with torch.profiler"

    def after(*events: Event) -> str:
        progress.take(events)
        return progress.text()

    assert after() == f"importing torch{recorder}"
    assert after(Event("started", 0.0, 0), Event("ready", 0.0, 1)) == f"1 of 2 ranks are ready{recorder}"
    assert after(Event("ready", 0.0, 0)) == f"warm-up 1 of 1{recorder}"
    done = [Event("done", 0.0, rank) for rank in (0, 1)]
    assert after(done[0]) == f"warm-up 1 of 1{recorder}"
    assert after(done[1]) == f"step 1 of 3{recorder}"
    assert after(*done) == f"step 2 of 3{recorder}"
    assert after(Event("writing", 0.0, 0)) == "the ranks write what they recorded"
