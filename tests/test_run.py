"""``overlapscope run`` as a user types it, on real ranks."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from overlapscope.formats import load
from overlapscope.trace import Trace

ROOT = Path(__file__).resolve().parent.parent
STEPS = 2


def run(cwd: Path, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "overlapscope", "run", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@dataclass(frozen=True)
class Run:
    """A run that has ended well."""

    folder: Path
    out: str
    manifest: dict[str, Any]
    trace: Trace


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Run:
    cwd = tmp_path_factory.mktemp("run")
    options = ("--hidden", "64", "--heads", "4", "--seq", "32", "--layers", "2", "--dtype", "float64")
    result = run(cwd, "--workload", "block", "--tp", "2", "--steps", str(STEPS), *options, "--keep-json")
    assert (result.returncode, result.stderr) == (0, "")
    (folder,) = (cwd / "runs").iterdir()
    manifest = json.loads((folder / "run.json").read_text())
    return Run(folder, result.stdout, manifest, load(folder / "trace.sqlite"))


@pytest.mark.real
def test_a_run_leaves_a_trace_and_a_manifest_where_it_says(done: Run) -> None:
    assert re.fullmatch(r"block-tp2-\d{8}T\d{6}Z", done.folder.name)
    assert sorted(f.name for f in done.folder.iterdir()) == ["kineto", "run.json", "trace.sqlite"]
    assert sorted(f.name for f in (done.folder / "kineto").iterdir()) == ["rank0.json.gz", "rank1.json.gz"]


@pytest.mark.real
def test_the_report_is_printed_and_nothing_else(done: Run) -> None:
    assert "2 ranks on CPU" in done.out
    assert re.search(r"^ all_reduce +16 ", done.out, re.MULTILINE)  # 4 a layer and step, 2 layers, 2 steps


@pytest.mark.real
def test_every_step_has_two_all_reduces_forward_and_two_backward_a_layer_on_every_rank(done: Run) -> None:
    ops, ranges = done.trace.ops, done.trace.ranges
    comm = ops[ops["kind"] == "comm"]
    for rank in (0, 1):
        mine = ranges[ranges["rank"] == rank]
        steps = mine[mine["name"].isin([f"step {i}" for i in range(STEPS)])]
        assert len(steps) == STEPS
        for step in steps.itertuples():
            inside = mine[(mine["start"] >= step.start) & (mine["end"] <= step.end)]
            assert collectives(comm, rank, step) == ["all_reduce"] * 8
            for name in ("forward", "backward"):
                (phase,) = inside[inside["name"] == name].itertuples()
                assert collectives(comm, rank, phase) == ["all_reduce"] * 4


def collectives(comm: Any, rank: int, window: Any) -> list[str]:
    """The collectives of a rank that lie in a range."""
    inside = comm[(comm["rank"] == rank) & (comm["start"] >= window.start) & (comm["end"] <= window.end)]
    return [str(c) for c in inside["collective"]]


@pytest.mark.real
def test_the_bytes_of_a_collective_are_those_of_the_activation(done: Run) -> None:
    ops = done.trace.ops
    sent = ops[ops["collective"] == "all_reduce"]["bytes"].unique()
    assert sent.tolist() == [32 * 2 * 64 * 8]  # seq · batch · hidden · 8 bytes of a float64


@pytest.mark.real
def test_the_trace_and_the_ranks_own_profiles_say_the_same(done: Run) -> None:
    profiles = load(sorted((done.folder / "kineto").iterdir()))
    for column in ("start", "end", "rank", "kind", "collective", "bytes"):
        assert done.trace.ops[column].astype(str).tolist() == profiles.ops[column].astype(str).tolist()


@pytest.mark.real
def test_a_profile_carries_the_role_of_every_range(done: Run) -> None:
    with gzip.open(done.folder / "kineto" / "rank1.json.gz", "rt") as file:
        roles = json.load(file)["overlapscope"]["roles"]
    assert roles["rank 1 of 2"] == "rank"
    assert {roles[f"step {i}"] for i in range(STEPS)} == {"step"}
    assert roles["warmup 0"] == "warmup"
    assert {n for n, role in roles.items() if role == "comm"} == {
        "attn.out.all_reduce",
        "mlp.down.all_reduce",
        "mlp.up.grad.all_reduce",
        "attn.qkv.grad.all_reduce",
    }
    assert (roles["attn.qkv"], roles["attn.qkv.grad"], roles["attn.norm"]) == (
        "sharded",
        "sharded",
        "replicated",
    )


@pytest.mark.real
def test_the_trace_carries_the_roles(done: Run) -> None:
    ranges = done.trace.ranges
    roles = {(str(r.name), str(r.role)) for r in ranges.itertuples()}
    wanted = {("step 0", "step"), ("warmup 0", "warmup"), ("backward", "phase"), ("layer 1", "layer")}
    wanted |= {("attn.core.grad", "sharded"), ("mlp.norm", "replicated"), ("mlp.down.all_reduce", "comm")}
    assert wanted <= roles


@pytest.mark.real
def test_run_json_says_what_ran_and_where(done: Run) -> None:
    data = done.manifest
    assert data["schema_version"] == 1
    assert (data["complete"], data["why"]) == (True, None)
    assert (data["workload"], data["tp"], data["steps"], data["warmup"], data["seed"]) == (
        "block",
        2,
        2,
        3,
        0,
    )
    assert (data["device"], data["backend"], data["recorder"]) == ("cpu", "gloo", "torch")
    assert data["recorder_why"] == "on a CPU it records operators, and nsys ranges alone"
    shape = {"hidden": 64, "heads": 4, "kv_heads": 4, "ffn": 256, "seq": 32, "batch": 2, "layers": 2}
    shape |= {"arch": "gpt", "impl": "megatron"}
    ways = {"sequence_parallel": False, "schedule": "serial", "chunks": None, "overlap_backward": True}
    assert data["options"] == {**shape, **ways, "dtype": "float64", "forward_only": False, "seed": 0}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", data["start_utc"])
    assert 0 < data["duration_s"] < 60
    assert {"overlapscope", "python", "torch", "nvtx", "nsys", "cuda", "nccl"} == set(data["versions"])
    assert {"system", "cpu", "cores", "memory_bytes", "gpus"} == set(data["hardware"])
    assert [rank["status"] for rank in data["ranks"]] == ["finished", "finished"]
    assert len({rank["pid"] for rank in data["ranks"]}) == 2
    assert data["ranks_start_by"] == "fork"


@pytest.mark.real
def test_run_json_names_no_host_no_user_and_no_path(done: Run) -> None:
    text = (done.folder / "run.json").read_text()
    assert os.uname().nodename not in re.findall(r"[\w.-]+", text)
    assert str(done.folder.parent) not in text
    assert str(Path.home()) not in text


@pytest.mark.real
def test_forward_only_has_two_all_reduces_and_force_replaces_a_run(tmp_path: Path) -> None:
    options = (
        "--hidden",
        "32",
        "--heads",
        "2",
        "--seq",
        "16",
        "--tp",
        "2",
        "--steps",
        "1",
        "--output",
        "out",
    )
    for force in ((), ("--force",)):
        result = run(tmp_path, *options, *force, *("--forward-only",) * bool(force))
        assert (result.returncode, result.stderr) == (0, "")
    ops = load(tmp_path / "out" / "trace.sqlite").ops
    (step,) = [r for r in load(tmp_path / "out").ranges.itertuples() if (r.name, r.rank) == ("step 0", 0)]
    assert collectives(ops[ops["kind"] == "comm"], 0, step) == ["all_reduce"] * 2
    again = run(tmp_path, *options)
    assert again.returncode == 2
    assert again.stderr == "overlapscope: out: is not empty; give another, or --force to replace a run\n"


@pytest.mark.real
def test_any_name_of_a_directory_will_do(tmp_path: Path) -> None:
    name = os.fsdecode(b'quo"te back\\slash new\nline \x01 not UTF-8: \xff')
    result = run(tmp_path, "--tp", "1", "--hidden", "64", "--seq", "32", "--steps", "1", "-o", name)
    assert (result.returncode, result.stderr) == (0, "")
    shown = r'quo"te back\slash new\x0aline \x01 not UTF-8: \udcff'
    assert shown in result.stdout.splitlines()[0]
    for layout in ("json", "csv", "md"):
        written = tmp_path / layout
        report = ["report", name, "--format", layout, "-o", str(written)]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-m", "overlapscope", *report], cwd=tmp_path, env=env, check=True)
    source = json.loads((tmp_path / "json").read_text())["provenance"]["sources"][0]["path"]
    assert source == f"{name}/trace.sqlite"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workload", "blcok"], "--workload: 'blcok' is not known; did you mean block?"),
        (["--tp", "3"], "--tp: 3 ranks do not divide heads 8; give 2 or 4"),
        (["--hidden", "500"], "--hidden: 500 is no multiple of 8 heads; give 496 or 504"),
        (["--heads", "7"], "--heads: 7 do not divide hidden 512; give 4 or 8"),
        (["--ffn", "101"], "--ffn: 101 is no multiple of 2 ranks; give 100 or 102"),
        (["--ffn", "1", "--tp", "4"], "--ffn: 1 is no multiple of 4 ranks; give 4"),
        (["--seed", str(2**64)], f"--seed: {2**64} has more than 64 bits; give -2^63 to 2^64 - 1"),
        (["--timeout", "nan"], "--timeout: is nan; give 1 or more"),
        (
            ["--dtype", "int8"],
            "--dtype: 'int8' is not known; choose from float64, float32, bfloat16, float16",
        ),
        (["--device", "gpu"], "--device: 'gpu' is not known; choose from auto, cpu, cuda"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = run(tmp_path, *arguments)
    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"overlapscope: {message}\n")
    assert list(tmp_path.iterdir()) == []


def test_more_than_memory_holds_is_one_line_with_both_figures(tmp_path: Path) -> None:
    result = run(tmp_path, "--tp", "8", "--hidden", "1048576")
    assert result.returncode == 2
    assert re.fullmatch(
        r"overlapscope: memory: 8 ranks need about [\d.]+ GB, and [\d.]+ GB are available; "
        r"lower --tp, --hidden, --ffn, --seq, --batch, --layers or --steps\n",
        result.stderr,
    )
    assert list(tmp_path.iterdir()) == []


def test_a_preset_that_does_not_fit_is_refused_with_the_figure(tmp_path: Path) -> None:
    result = run(tmp_path, "--tp", "8", "--preset", "llama3-405b", "--seq", "400000000")  # wherever this runs
    assert result.returncode == 2
    (need,) = re.findall(r"^overlapscope: memory: 8 ranks need about ([\d.]+) GB", result.stderr)
    assert float(need) > 1e6
    assert result.stderr.count("\n") == 1


def test_listing_and_checking_import_no_torch() -> None:
    code = (
        "import sys; from overlapscope.capture import Request, plan, machine; "
        "plan.make(Request(workload='block', tp=2), machine.inspect(), None); print('torch' in sys.modules)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
