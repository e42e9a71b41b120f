"""Ctrl-C, SIGTERM and SIGHUP end the work in order, and nothing that was recorded is lost by them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders import TraceBuilder, kineto
from overlapscope.errors import Interrupted
from overlapscope.interrupts import held, raised
from test_capture import ROOT, assert_gone, pids_of, ranks_in, start, wait_for


@pytest.fixture
def long_run(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    shape = ("--hidden", "256", "--heads", "4", "--seq", "128")
    process = start(ROOT, tmp_path / "run", "--tp", "2", "--steps", "2000", "--warmup", "0", *shape)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize(
    ("number", "code", "text"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "ended by SIGTERM"),
        (signal.SIGHUP, 129, "ended by SIGHUP"),
    ],
)
def test_a_signal_is_raised_with_the_shell_s_exit_code(number: int, code: int, text: str) -> None:
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match=text) as caught, raised():
        os.kill(os.getpid(), number)
    assert caught.value.exit_code == code
    assert signal.getsignal(number) is before


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with raised():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_first_is_held_the_second_told_the_third_raised(capfd: pytest.CaptureFixture[str]) -> None:
    with held("still at it") as interruptions:
        assert interruptions.first is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert str(interruptions.first) == "ended by SIGTERM"
        assert capfd.readouterr().err == ""
        os.kill(os.getpid(), signal.SIGINT)
        assert str(interruptions.first) == "ended by SIGTERM"
        assert capfd.readouterr().err == "overlapscope: still at it\n"
        with pytest.raises(Interrupted, match="ended by SIGHUP"):
            os.kill(os.getpid(), signal.SIGHUP)


@pytest.mark.real
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_ranks_and_keeps_what_was_recorded(
    long_run: subprocess.Popen[str], tmp_path: Path, number: signal.Signals
) -> None:
    pids = pids_of(wait_for(tmp_path / "run", "done", 6))
    long_run.send_signal(number)
    _, err = long_run.communicate(timeout=60)
    assert err == f"overlapscope: ended by {number.name}; what was recorded is in {tmp_path / 'run'}\n"
    assert long_run.returncode == 128 + number
    assert_gone(pids)
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert manifest["complete"] is False
    assert manifest["why"].startswith(f"ended by {number.name}; ")
    assert ranks_in(tmp_path / "run" / "trace.sqlite") == [0, 1]
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["run.json", "trace.sqlite"]


@pytest.mark.real
def test_a_second_ctrl_c_discards_nothing(long_run: subprocess.Popen[str], tmp_path: Path) -> None:
    wait_for(tmp_path / "run", "done", 6)
    long_run.send_signal(signal.SIGINT)
    wait_for(tmp_path / "run", "writing", 1)
    long_run.send_signal(signal.SIGINT)
    _, err = long_run.communicate(timeout=60)
    assert err.splitlines() == [
        "overlapscope: still writing what was recorded; once more, and it is lost",
        f"overlapscope: interrupted; what was recorded is in {tmp_path / 'run'}",
    ]
    assert long_run.returncode == 130
    assert ranks_in(tmp_path / "run" / "trace.sqlite") == [0, 1]


@pytest.mark.real
def test_a_third_signal_waits_for_nothing_and_leaves_nobody(
    long_run: subprocess.Popen[str], tmp_path: Path
) -> None:
    pids = pids_of(wait_for(tmp_path / "run", "done", 6))
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
    ):  # different ones: two alike may count as one
        long_run.send_signal(number)
    _, err = long_run.communicate(timeout=60)
    assert err.endswith("; what was recorded was given up\n")
    assert long_run.returncode in (129, 130, 143)
    assert_gone(pids, within=10)
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["run.json"]


def test_a_conversion_that_is_ended_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    t = TraceBuilder()
    device = t.process(pid=1, rank=0, world=1).device(0)
    for i in range(100_000):
        device.kernel("k", i * 10, i * 10 + 5, stream=7)
    source = kineto.write(t.rank(0), tmp_path / "rank0.json")
    command = [sys.executable, "-m", "overlapscope", "convert", str(source), "-o", str(tmp_path / "o.sqlite")]
    process = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".*.part")) and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (143, "overlapscope: ended by SIGTERM\n")
    assert [p.name for p in tmp_path.iterdir()] == ["rank0.json"]


def test_a_joined_rank_leaves_alone_what_is_ignored() -> None:
    """As under nohup, which launchers are often started by."""
    from types import SimpleNamespace

    from overlapscope.capture.join import _stoppable

    member = SimpleNamespace(ended=False, interrupted=None)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _stoppable(member):  # type: ignore[arg-type]
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (member.ended, member.interrupted) == (True, None)


def test_ctrl_c_while_the_command_line_is_imported_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    done = subprocess.run(
        [sys.executable, "-m", "overlapscope", "--version"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "overlapscope: interrupted\n")


def test_of_a_node_s_processes_that_a_launcher_ends_one_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from overlapscope import cli
    from test_join import mpirun

    def ended(*_: object, **__: object) -> None:
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(cli, "app", ended)
    said = []
    for environment in mpirun(2):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert cli._run(["run"]) == 143
        said.append(capsys.readouterr().err)
    assert said == ["overlapscope: ended by SIGTERM\n", ""]
