"""The real nsys, around our ranks and around a program of one's own, on a machine without a GPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import overlapscope as osc
from overlapscope.capture import nsys

ROOT = Path(__file__).resolve().parent.parent
SHAPE = ("--tp", "2", "--hidden", "64", "--heads", "4", "--ffn", "128", "--seq", "32", "--steps", "2")
PARTS = ["compute_ns", "exposed_comm_ns", "exposed_memory_ns", "idle_ns"]

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("nsys") is None, reason="nsys is not on PATH: see .ci/install-nsys"),
]

PROGRAM = """
import subprocess, sys
from overlapscope import markers
if len(sys.argv) == 1:
    sys.exit(max(subprocess.call([sys.executable, __file__, rank]) for rank in "01"))
markers.rank(int(sys.argv[1]), 2)
for i in range(3):
    with markers.step(i):
        with markers.range("mlp", role="sharded"):
            first = markers.start("mlp.all_reduce", role="comm", bytes=1 << 33)
            with markers.range("mlp.dgrad", role="sharded"):
                pass
            with markers.range("mlp.all_reduce.wait", role="wait"):
                pass
            first.end()
"""


def overlapscope(*arguments: str, cwd: Path, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "overlapscope", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def structure(trace: osc.Trace, *, with_bytes: bool) -> list[list[object]]:
    """What does not depend on how fast this machine was: how many of which collective, and their bytes."""
    columns = ["rank", "collective", "count", *(["bytes"] if with_bytes else [])]
    return osc.overlap(trace).collectives[columns].to_numpy().tolist()


@pytest.mark.parametrize(
    ("options", "with_bytes"),
    [
        ((), True),
        (("--schedule", "pipelined", "--chunks", "2"), True),
        # gloo's reduce-scatters stand as all-reduces in torch's trace, its sends without bytes
        (("--sequence-parallel", "--schedule", "ring"), False),
    ],
    ids=["serial", "pipelined", "ring"],
)
def test_a_run_has_the_structure_that_torch_records_of_it(
    tmp_path: Path, options: tuple[str, ...], with_bytes: bool
) -> None:
    said = overlapscope("run", "--recorder", "nsys", *SHAPE, *options, "-o", "ranges", cwd=tmp_path)
    assert "recorded by Nsight Systems" in said
    assert "made from the program's NVTX ranges alone" in " ".join(said.split())
    overlapscope("run", "--recorder", "torch", *SHAPE, *options, "-o", "ops", cwd=tmp_path)
    ranges, ops = osc.load(tmp_path / "ranges"), osc.load(tmp_path / "ops")
    assert structure(ranges, with_bytes=with_bytes) == structure(ops, with_bytes=with_bytes)
    result = osc.overlap(ranges)
    assert result.windows.steps == osc.overlap(ops).windows.steps == ("step 0", "step 1")
    assert result.windows.left_out == ("warmup 0", "warmup 1", "warmup 2")
    figures = result.ranks
    assert figures["rank"].tolist() == [0, 1]
    assert ranges.provenance.ranks_from == "recorded by the program's marker"
    assert (figures[PARTS].sum(axis=1) == figures["window_ns"]).all()
    assert (figures[["compute_ns", "comm_ns"]] > 0).all(axis=None)
    pieces = set(ranges.names["string"])
    assert {"sharded:attn.qkv", "sharded:attn.out.dgrad", "sharded:mlp.up.wgrad"} <= pieces
    manifest = json.loads((tmp_path / "ranges" / "run.json").read_text())
    assert (manifest["device"], manifest["recorder"], manifest["complete"]) == ("cpu", "nsys", True)
    assert manifest["versions"]["nsys"]


def test_a_paced_link_is_said(tmp_path: Path) -> None:
    said = overlapscope("run", "--recorder", "nsys", *SHAPE, "--link", "1GB/s,50us", "-o", "r", cwd=tmp_path)
    assert "link        paced: 1 GB/s, 50 us" in said
    assert "made by     overlapscope run --workload block --tp 2" in said


def test_a_program_of_ones_own_from_its_report_file_to_the_figures(tmp_path: Path) -> None:
    """As a user does it: nsys profile, then report, convert and kernels on the .nsys-rep."""
    found = nsys.find()
    assert found is not None
    (tmp_path / "program.py").write_text(PROGRAM)
    command = nsys.profile_command(found, tmp_path / "mine", [sys.executable, "program.py"], "cpu")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    nsys.export(found, tmp_path / "mine", tmp_path / "mine.sqlite")
    data = json.loads(overlapscope("report", "mine.nsys-rep", "--format", "json", cwd=tmp_path))
    assert data["provenance"]["from_ranges"] is True
    assert data["provenance"]["window"]["steps"] == ["step 0", "step 1", "step 2"]
    assert [[c["collective"], c["count"], c["bytes"]] for c in data["collectives"]] == [
        ["all_reduce", 3, 3 << 33]
    ] * 2
    overlapscope("convert", "mine.nsys-rep", "-o", "all.sqlite", cwd=tmp_path)
    again = json.loads(overlapscope("report", "all.sqlite", "--format", "json", cwd=tmp_path))
    assert (again["ranks"], again["collectives"]) == (data["ranks"], data["collectives"])
    assert "comm:mlp.all_reduce" in overlapscope("kernels", "mine.sqlite", cwd=tmp_path)


def test_doctor_knows_it(tmp_path: Path) -> None:
    found = nsys.find()
    assert found is not None
    data = json.loads(overlapscope("doctor", "--format", "json", cwd=tmp_path))
    assert data["nsys"]["version"] == found.version
    assert not any("QdstrmImporter" in trap for trap in data["nsys_traps"])
