"""``overlapscope scale``: sweeps of real ranks, how they go on, and comparisons of runs that exist."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import overlapscope as osc
from overlapscope.analysis.scaling import TERMS
from overlapscope.cli import main
from scaled import one_rank, two_ranks

ROOT = Path(__file__).resolve().parent.parent
TINY = ("--hidden", "32", "--heads", "4", "--seq", "16", "--batch", "1", "--steps", "2", "--forward-only")


def scale(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "overlapscope", "scale", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def call(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["scale", *map(str, arguments)])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def read(path: Path) -> Any:
    return json.loads(path.read_text())


# -- a sweep of real ranks -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder and the output of a sweep; to be copied before it is changed."""
    cwd = tmp_path_factory.mktemp("sweep")
    done = scale(cwd, "--tp", "1,2,4", *TINY, "-o", "out")
    assert (done.returncode, done.stderr) == (0, "")
    return cwd / "out", done.stdout


@pytest.mark.real
def test_a_sweep_keeps_every_run_and_says_the_same_as_their_traces(swept: tuple[Path, str]) -> None:
    folder, out = swept
    assert sorted(p.name for p in folder.iterdir()) == ["scale.json", "tp1", "tp2", "tp4"]
    data = read(folder / "scale.json")
    assert (data["schema_version"], data["base"], data["workload"], data["device"]) == (1, 1, "block", "cpu")
    first = None
    for size, n in zip(data["sizes"], (1, 2, 4), strict=True):
        assert (size["tp"], size["path"], size["steps"]) == (n, f"tp{n}", 2)
        ranks = osc.overlap(osc.load(folder / size["path"]), "steps").ranks
        time = Fraction(int(ranks["window_ns"].sum()), 2 * n)
        first = first or time
        assert Fraction(size["T"], size["denominator"]) == time
        assert Fraction(size["ideal"], size["denominator"]) == first / n
        assert sum(t["numerator"] for t in size["terms"]) == size["T"] - size["ideal"] == size["loss"]
        exposed = next(t["numerator"] for t in size["terms"] if t["term"] == "exposed_comm")
        assert sum(p["numerator"] for p in size["exposed_comm"]) == exposed
        assert (size["speedup"], size["efficiency"]) == (float(first / time), float(first / time / n))
        comm = Fraction(int(ranks["exposed_comm_ns"].sum()), 2 * n)
        (term,) = [t for t in size["terms"] if t["term"] == "exposed_comm"]
        assert term["time_ns"] == float(comm)
    groups = {t["group"]: t["term"] for t in data["sizes"][1]["terms"] if t["group"]}
    assert (groups["attn.qkv"], groups["mlp.norm"]) == ("sharded", "replicated")
    assert "4 ranks are " in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.real
def test_all_sizes_have_the_same_work_and_the_same_threads(swept: tuple[Path, str]) -> None:
    manifests = [read(swept[0] / f"tp{n}" / "run.json") for n in (1, 2, 4)]
    assert [m["tp"] for m in manifests] == [1, 2, 4]
    for name in ("options", "steps", "warmup", "threads_per_rank", "recorder"):
        assert manifests[0][name] == manifests[1][name] == manifests[2][name]


@pytest.mark.real
def test_more_ranks_than_cores_is_said(swept: tuple[Path, str]) -> None:
    folder, out = swept
    data = read(folder / "scale.json")
    cores = read(folder / "tp1" / "run.json")["hardware"]["cores"]
    assert data["cores"] == cores
    assert data["oversubscribed"] == [n for n in (1, 2, 4) if n > cores]
    assert ("compute is oversubscribed" in out) == bool(data["oversubscribed"])


@pytest.mark.real
def test_a_sweep_goes_on_where_it_was_interrupted(swept: tuple[Path, str], tmp_path: Path) -> None:
    """tp1 is complete, tp2 is gone, tp4 was cut short: the last two are run, the first stays as it is."""
    folder = tmp_path / "out"
    shutil.copytree(swept[0], folder)
    shutil.rmtree(folder / "tp2")
    manifest = folder / "tp4" / "run.json"
    manifest.write_text(json.dumps({**read(manifest), "complete": False}))
    (folder / "scale.json").unlink()
    before = (folder / "tp1" / "trace.sqlite").stat()
    done = scale(tmp_path, "--tp", "1,2,4", *TINY, "-o", "out")
    assert (done.returncode, done.stderr) == (0, "")
    after = (folder / "tp1" / "trace.sqlite").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)
    assert [read(folder / f"tp{n}" / "run.json")["complete"] for n in (1, 2, 4)] == [True] * 3
    assert [s["tp"] for s in read(folder / "scale.json")["sizes"]] == [1, 2, 4]


@pytest.mark.real
def test_an_interruption_says_how_to_go_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "overlapscope", "scale", "--tp", "1,2", *TINY, "-o", "out"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "out" / "tp1" / "run.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    first = err.splitlines()[0]
    assert first.startswith("overlapscope: interrupted; ")
    assert first.endswith(" the same call with --output out goes on from here")
    assert read(tmp_path / "out" / "tp1" / "run.json")["complete"] is False
    assert not (tmp_path / "out" / "tp2").exists()


@pytest.mark.real
def test_other_options_than_those_of_the_sweep(swept: tuple[Path, str], tmp_path: Path) -> None:
    """Refused before anything is started; --force runs again what differs and keeps the rest."""
    folder = tmp_path / "out"
    shutil.copytree(swept[0], folder)
    call_again = ("--tp", "1,2,4", *TINY, "-o", "out")
    refused = scale(tmp_path, *call_again, "--seed", "3")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        "overlapscope: out/tp1: was run with seed 0, and now it would be 3; "
        "give the same options, another --output, or --force to run it again\n"
    )
    manifest = folder / "tp2" / "run.json"
    manifest.write_text(json.dumps({**read(manifest), "steps": 7}))
    kept = {n: (folder / f"tp{n}" / "run.json").read_text() for n in (1, 2, 4)}
    refused = scale(tmp_path, *call_again)
    assert "out/tp2: was run with steps 7, and now it would be 2" in refused.stderr
    assert {n: (folder / f"tp{n}" / "run.json").read_text() for n in (1, 2, 4)} == kept
    done = scale(tmp_path, *call_again, "--force")
    assert (done.returncode, done.stderr) == (0, "")
    assert read(manifest)["steps"] == 2
    for n in (1, 4):
        assert (folder / f"tp{n}" / "run.json").read_text() == kept[n]


def test_a_size_that_cannot_be_is_refused_before_any_is_run(tmp_path: Path) -> None:
    done = scale(tmp_path, "--tp", "1,3", *TINY, "-o", "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "overlapscope: --heads: 4 is no multiple of 3 ranks; give 3 or 6\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--tp: is missing; give the numbers of ranks, such as --tp 1,2,4,8"),
        (["--tp", "1,x"], "--tp: cannot read '1,x'; give numbers of ranks, such as 1,2,4,8"),
        (["--tp", "0,1"], "--tp: cannot read '0,1'; give numbers of ranks, such as 1,2,4,8"),
        (["--tp", "4,4"], "--tp: 4 alone has nothing to be compared with; give two or more"),
        (["nowhere"], "nowhere: does not exist; give what overlapscope run or scale has left"),
        (
            ["nowhere", "--tp", "1,2"],
            "--tp: says how to run, and directories of earlier runs are given; leave out the one or the others",
        ),
        (
            ["nowhere", "--forward-only"],
            "--forward-only: says how to run, and directories of earlier runs are given; "
            "leave out the one or the others",
        ),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(*arguments) == 2
    assert capsys.readouterr() == ("", f"overlapscope: {said}\n")
    assert list(tmp_path.iterdir()) == []


# -- runs that exist -----------------------------------------------------------------------------------------


def handmade(folder: Path, name: str, tp: int, **changes: Any) -> Path:
    """A run directory with the worked example's trace, and a run.json."""
    run = folder / name
    run.mkdir(parents=True)
    (one_rank if tp == 1 else two_ranks)(run / "trace.sqlite")
    manifest = {
        "schema_version": 1,
        "complete": True,
        "workload": "block",
        "options": {"hidden": 32, "ffn": 128, "forward_only": False},
        "tp": tp,
        "steps": 1,
        "warmup": 0,
        "device": "cpu",
        "backend": "gloo",
        "recorder": "torch",
        "threads_per_rank": 1,
        "link": None,
        "hardware": {"cpu": "a CPU", "cores": 2, "gpus": []},
    }
    (run / "run.json").write_text(json.dumps(manifest | changes))
    return run


TEXT = """\
sweep       sweep
work        block: hidden 32, ffn 128
on          a CPU, 2 cores; threads a rank: 1; recorded by torch.profiler
figures     means of 1 step and of the ranks

2 ranks are 1.66 times as fast as 1: efficiency 83.2 %.
Lost against the ideal: 50 ns a step; the most to exposed communication, 45 ns.

Strong scaling (ns a step)

                                tp 1      tp 2
──────────────────────────────────────────────
T(N)                             500       300
− T(1)/N, the ideal              500       250
──────────────────────────────────────────────
= loss, which is                   0        50
  sharded work                     0       -30
  replicated work                  0        20
  unmarked compute                 0        -5
  concurrency                      0        35
  exposed communication            0        45
    waiting for late ranks         0         0
    transfer                       0        45
  exposed memory                   0        -5
  idle                             0       -10
──────────────────────────────────────────────
speed-up                       1.00x     1.66x
efficiency                   100.0 %    83.2 %
──────────────────────────────────────────────
POP load balance             100.0 %    98.3 %
POP communication eff.        94.0 %    86.5 %
POP parallel efficiency       94.0 %    85.0 %
POP computation scaling      100.0 %    92.0 %
POP global efficiency         94.0 %    78.2 %

Marked work that loses most at tp 2 (ns a step)

group                     role              time   − ideal    = loss
────────────────────────────────────────────────────────────────────
norm                      replicated          40        20        20
up                        sharded            215       210         5
gelu                      sharded              0        35       -35

Good to know
- the ranks are processes of one CPU, which share its memory and caches
"""


def test_the_worked_example_to_the_letter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    handmade(tmp_path / "sweep", "tp2", 2)
    handmade(tmp_path / "sweep", "tp1", 1)
    assert call("sweep") == 0
    assert capsys.readouterr() == (TEXT, "")
    data = read(tmp_path / "sweep" / "scale.json")
    second = data["sizes"][1]
    assert (second["denominator"], second["T"], second["ideal"], second["loss"]) == (2, 601, 500, 101)
    assert [(t["term"], t["group"], t["numerator"]) for t in second["terms"]] == [
        ("sharded", "gelu", -70),
        ("sharded", "up", 10),
        ("replicated", "norm", 41),
        ("unmarked", None, -10),
        ("concurrency", None, 70),
        ("exposed_comm", None, 90),
        ("exposed_memory", None, -10),
        ("idle", None, -20),
    ]
    assert second["exposed_comm"] == [
        {"part": "wait", "numerator": 0, "loss_ns": 0.0, "time_ns": 0.0},
        {"part": "wire", "numerator": 90, "loss_ns": 45.0, "time_ns": 45.0},
        {"part": "unsplit", "numerator": 0, "loss_ns": 0.0, "time_ns": 0.0},
    ]
    assert (data["cores"], data["oversubscribed"]) == (2, [])


def test_single_runs_are_compared_and_written_where_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [handmade(tmp_path, "small", 1), handmade(tmp_path, "large", 2)]
    assert call(*runs) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["large", "small"]
    assert call(*runs, "-o", tmp_path / "out") == 0
    assert [s["path"] for s in read(tmp_path / "out" / "scale.json")["sizes"]] == ["../small", "../large"]
    assert "2 ranks are 1.66 times as fast" in capsys.readouterr().out


@pytest.mark.parametrize("format", ["csv", "md", "json", "parquet"])
def test_the_sizes_as_a_table(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], format: str) -> None:
    runs = [handmade(tmp_path, "small", 1), handmade(tmp_path, "large", 2)]
    assert call(*runs, "--format", format) == 0
    out = capfdbinary.readouterr().out
    if format == "md":
        assert out.decode().splitlines()[0].startswith("| tp | path | steps | T\\_ns | ideal\\_ns |")
        assert len(out.decode().splitlines()) == 4
        return
    if format == "json":
        assert [size["T_ns"] for size in json.loads(out)["sizes"]] == [500.0, 300.5]
        return
    table = pd.read_csv(io.BytesIO(out)) if format == "csv" else pd.read_parquet(io.BytesIO(out))
    assert table["tp"].tolist() == [1, 2]
    assert table["T_ns"].tolist() == [500.0, 300.5]
    assert table["loss_ns"].tolist() == [0.0, 50.5]
    assert table[[f"{term}_loss_ns" for term in TERMS]].sum(axis=1).tolist() == [0.0, 50.5]
    assert table["efficiency"].tolist() == [1.0, 250 / 300.5]


def test_fewer_cores_than_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = {"cpu": "a CPU", "cores": 1, "gpus": []}
    for tp in (1, 2):
        handmade(tmp_path / "sweep", f"tp{tp}", tp, hardware=one)
    assert call(tmp_path / "sweep") == 0
    assert "compute is oversubscribed at tp 2: ranks on the 1 core of this machine" in words(capsys)
    data = read(tmp_path / "sweep" / "scale.json")
    assert (data["cores"], data["oversubscribed"]) == (1, [2])
    assert any("not of the schedule" in warning for warning in data["warnings"])


def test_gpus_are_not_oversubscribed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for tp in (1, 2):
        gpus = {"cpu": "a CPU", "cores": 1, "gpus": [{"name": "H100", "memory": 1}] * tp}
        handmade(tmp_path / "sweep", f"tp{tp}", tp, device="cuda", hardware=gpus)
    assert call(tmp_path / "sweep") == 0
    assert "on          H100; recorded by" in capsys.readouterr().out
    data = read(tmp_path / "sweep" / "scale.json")
    assert (data["cores"], data["oversubscribed"], data["warnings"]) == (None, [], [])


def test_threads_that_differ_and_runs_that_did_not_finish_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handmade(tmp_path / "sweep", "tp1", 1, threads_per_rank=2)
    handmade(tmp_path / "sweep", "tp2", 2)
    handmade(tmp_path / "sweep", "tp4", 4, complete=False)
    assert call(tmp_path / "sweep") == 0
    out = words(capsys)
    assert "different numbers of threads (2 and 1 by size)" in out
    assert "tp4 did not finish and is left out" in out


def words(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_runs_of_other_work_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = handmade(tmp_path, "tp1", 1)
    two = handmade(tmp_path, "tp2", 2, options={"hidden": 64, "ffn": 128, "forward_only": False})
    assert call(one, two) == 2
    said = f"{two}: was run with hidden 64, and {one} with 32; compare runs of the same work"
    assert capsys.readouterr().err == f"overlapscope: {said}\n"


def test_a_trace_without_all_of_its_ranks_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handmade(tmp_path, "tp1", 1)
    handmade(tmp_path, "tp4", 4)
    assert call(tmp_path) == 2
    assert "tp4: holds 2 ranks of a run on 4; run it again" in capsys.readouterr().err


def test_one_run_alone_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = handmade(tmp_path, "tp1", 1)
    assert call(run) == 2
    assert "one run has nothing to be compared with; give two sizes or more" in capsys.readouterr().err
    assert not (run / "scale.json").exists()
