"""The README is true: its commands run, its report is the one a user sees, what it lists exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from overlapscope.analysis.bandwidth import BANDWIDTH_COLUMNS
from overlapscope.analysis.overlap import COLLECTIVE_COLUMNS, RANK_COLUMNS
from overlapscope.analysis.rates import GROUP_COLUMNS, RATE_COLUMNS
from overlapscope.cli import _run

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(<!-- run -->\n)?```(\w+)\n(.*?)```", re.DOTALL)
BLOCKS = [(bool(marked), language, body) for marked, language, body in BLOCK.findall(README)]

FINDINGS = "Findings, worst first"

INSTALL = [
    "pip install -e . && overlapscope run --workload block --tp 2",
    "pip install -e '.[test]' && pytest",
]
"""Run by .ci/run, each in a fresh environment."""


def test_every_command_is_run_somewhere() -> None:
    unmarked = [
        body.strip() for marked, language, body in BLOCKS if language in ("sh", "python") and not marked
    ]
    assert unmarked == INSTALL
    gate = (ROOT / ".ci" / "run").read_text()
    assert "README.md" in gate


@pytest.mark.real
def test_commands_in_order(tmp_path: Path) -> None:
    """One after another in one folder, as a reader would type them."""
    scripts = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "80"}
    for marked, language, body in BLOCKS:
        if language == "toml":
            (tmp_path / "my-rules.toml").write_text(body)
        if not marked:
            continue
        command = ["bash", "-euc", body] if language == "sh" else [sys.executable, "-c", body]
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{body}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
    assert {"all.sqlite", "my-run", "my-run.json.gz", "profiles", "ranges.parquet", "report.json"} <= {
        p.name for p in tmp_path.iterdir()
    }


def headings(report: str) -> list[str]:
    """What a report says apart from figures: the labels of its head, titles, heads of tables, sentences."""
    head, body = report.split("\n\n", 1)
    # Which findings there are, whether kernels compare and steps stand out is a matter of figures, and so is what
    # must be known of them: on a busy machine some ends of gloo's collectives do not agree.
    body = re.sub(rf"{FINDINGS}.*?(?=Good to know)", "", body, flags=re.DOTALL)
    body = re.sub(
        r"^(Slowdown of c|C)ompute under communication\b.*?(?=^$)", "", body, flags=re.DOTALL | re.MULTILINE
    )
    body = re.sub(r"(?<=Good to know\n).*?(?=^$)", "", body, flags=re.DOTALL | re.MULTILINE)
    labels = [line[:11].strip() for line in head.splitlines() if not line.startswith(" ")]
    words = [re.sub(r"\s+", " ", line).strip() for line in body.splitlines()]
    # Rules are as long as the figures are wide, units as large as these.
    return labels + [re.sub(r"\((s|ms|µs)\b", "(unit", w) for w in words if w and not re.search(r"\d|─", w)]


@pytest.mark.real
def test_the_report_shown_is_the_report_one_gets(tmp_path: Path) -> None:
    shown = next(body for _, language, body in BLOCKS if language == "text")
    command = [sys.executable, "-m", "overlapscope", *INSTALL[0].split("&& overlapscope ")[1].split()]
    assert FINDINGS in shown
    for _ in range(
        3
    ):  # on a busy machine some waiting may not be told from transfer, and its table is not there
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
        assert max(map(len, done.stdout.splitlines())) <= 80
        if headings(shown) == headings(done.stdout):
            return
    assert headings(shown) == headings(done.stdout)


def test_json_keys_are_documented() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", README, re.MULTILINE))
    assert re.findall(r"`(\w+)`", rows["ranks"]) == list(RANK_COLUMNS)
    assert re.findall(r"`(\w+)`", rows["collectives"]) == list(COLLECTIVE_COLUMNS)
    assert re.findall(r"`(\w+)`", rows["bandwidth"]) == list(BANDWIDTH_COLUMNS)
    assert re.findall(r"`(\w+)`", rows["bandwidth_by_size"]) == list(RATE_COLUMNS)
    assert re.findall(r"`(\w+)`", rows["bandwidth_by_group"]) == list(GROUP_COLUMNS)
    assert re.findall(r"`(\w+)`", rows["unclassified"]) == ["name", "count", "sum_ns"]


def test_options_named_exist(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No option of ours in the text that no command knows."""
    named = set(re.findall(r"--[a-z][a-z-]+", README))
    theirs = {"--trace", "--cuda-graph-trace", "--type", "--sample"}  # nsys
    theirs |= {"--tp-comm-overlap"}  # Megatron
    theirs |= {
        "--standalone",
        "--nnodes",
        "--node-rank",
        "--nproc-per-node",
        "--master-addr",
        "--master-port",
    }
    theirs |= {"--rdzv-endpoint", "--nodes", "--ntasks"}  # torchrun, srun
    known: set[str] = set()
    monkeypatch.setenv("COLUMNS", "200")
    for command in (
        "run",
        "workloads",
        "scale",
        "report",
        "timeline",
        "compare",
        "check",
        "convert",
        "export",
        "kernels",
        "predict",
        "doctor",
    ):
        assert _run([command, "--help"]) == 0
        known |= set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    assert named - theirs <= known
