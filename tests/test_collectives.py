"""Sweeps as ``overlapscope run`` makes them on real ranks: what stands in the trace; wrong results are found."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from overlapscope import formats
from overlapscope.cli import _run
from overlapscope.markers import Point
from overlapscope.report import document, export
from overlapscope.trace import Trace
from test_run import run
from workloads import WORKLOADS, Link
from workloads.config import DTYPES

ROOT = Path(__file__).resolve().parent.parent
LINK = "50MB/s,2ms"
STEPS = 2

CASES: dict[str, dict[str, Any]] = {
    # dtypes and links differ so that few runs see all: a link is one thread's work, gloo's own another's
    "all-reduce": {"dtype": "bfloat16", "link": LINK},
    "all-gather": {"dtype": "float32", "link": LINK},
    "reduce-scatter": {"dtype": "float16"},
    "all-to-all": {"dtype": "float64", "link": LINK},
    "send-recv": {"dtype": "float32", "tp": 3, "link": LINK},
    "all-reduce, gloo": {"dtype": "float32", "tp": 3},
    "reduce-scatter, paced": {"dtype": "bfloat16", "link": LINK},
    "all-to-all, gloo": {"dtype": "bfloat16"},
}


@dataclass(frozen=True)
class Done:
    """A run that has ended well."""

    workload: str
    tp: int
    dtype: str
    link: Link | None
    out: str
    folder: Path
    trace: Trace

    @property
    def collective(self) -> str:
        return self.workload.replace("-", "_")

    @property
    def sizes(self) -> list[int]:
        """8 B, 1 KB and 64 KiB in whole elements for each rank, 8 B at least that."""
        unit = DTYPES[self.dtype] * (1 if self.collective in ("all_reduce", "send_recv") else self.tp)
        return [max(size // unit * unit, unit) for size in (8, 1000, 65536)]


@pytest.fixture(scope="module", params=list(CASES))
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Done:
    case = CASES[request.param]
    workload, tp, link = request.param.split(",")[0], case.get("tp", 2), case.get("link")
    cwd = tmp_path_factory.mktemp("sweep")
    options = ["--workload", workload, "--tp", str(tp), "--dtype", case["dtype"], "--seed", "5"]
    options += ["--sizes", "8B,1KB,64KiB", "--steps", str(STEPS), "--warmup", "1", "-o", "out"]
    result = run(cwd, *options, *(["--link", link] if link else []))
    assert (result.returncode, result.stderr) == (0, "")
    folder = cwd / "out"
    pace = None if link is None else Link.parse(link)
    return Done(workload, tp, case["dtype"], pace, result.stdout, folder, formats.load(folder))


def exchanges(done: Done, rank: int) -> list[tuple[Point, Any]]:
    """The marked ranges of a rank in order."""
    ranges = done.trace.ranges
    mine = ranges[(ranges["rank"] == rank) & (ranges["role"] == "sweep")]
    points = [(Point.parse(str(r.name)), r) for r in mine.itertuples()]
    return [(point, r) for point, r in points if point is not None]


@pytest.mark.real
def test_every_step_has_every_size_once_and_in_it_the_collective_alone(done: Done) -> None:
    recorded_as = (
        "all_reduce" if (done.collective, done.link) == ("reduce_scatter", None) else done.collective
    )
    for rank in range(done.tp):
        found = exchanges(done, rank)
        assert [point.bytes for point, _ in found] == done.sizes * (STEPS + 1)
        assert {point.collective for point, _ in found} == {done.collective}
        assert {point.wrong for point, _ in found} == {0}
        comm = done.trace.of_rank(rank)
        comm = comm[comm["kind"] == "comm"]
        for _, r in found:
            inside = comm[(comm["start"] >= r.start) & (comm["start"] < r.end)]
            assert inside["collective"].tolist() == [recorded_as]
        barriers = comm[comm["collective"] == "barrier"]
        assert len(barriers) >= len(found)
        assert len(comm) == len(found) + len(barriers)


@pytest.mark.real
def test_every_exchange_is_counted_and_none_is_wrong(done: Done) -> None:
    rows = json.loads(export.json_text(document.build(done.trace)))["bandwidth"]
    shared = done.collective not in ("all_reduce", "send_recv")
    share = (done.tp - 1) / done.tp
    factor = {"all_reduce": 2 * share, "send_recv": 1.0}.get(done.collective, share)
    for row, size in zip(rows, done.sizes, strict=True):
        count = size // DTYPES[done.dtype] // (done.tp if shared else 1)
        told = ("collective", "bytes", "count", "dtype", "ranks", "exchanges", "wrong")
        assert [row[key] for key in told] == [done.collective, size, count, done.dtype, done.tp, STEPS, 0]
        assert row["algbw_gbs"] == size / row["time_ns"]
        assert row["busbw_gbs"] == pytest.approx(row["algbw_gbs"] * factor, rel=1e-12)
        if done.link is not None:  # never less than what the link takes, by the clocks that all ranks share
            assert row["time_ns"] >= 1e9 * (done.link.alpha + factor * size / done.link.beta)


@pytest.mark.real
def test_the_table_is_what_is_printed(done: Done) -> None:
    lines = done.out.splitlines()
    rows = [line.split() for line in lines if re.match(r" +\d+ +\d+ +\w*float\d* ", line)]
    assert [int(row[0]) for row in rows] == done.sizes
    assert {row[-1] for row in rows} == {"0"}
    assert any("% of" in line for line in lines) == (done.link is not None)
    assert "hidden" not in done.out
    assert max(map(len, lines)) <= 80
    assert json.loads((done.folder / "run.json").read_text())["sizes_bytes"] == done.sizes


# -- wrong results -------------------------------------------------------------------------------------------

BROKEN = """

_sum, _parts, _swap = _reduce, _gather, _exchange

def _reduce(ranks, x, result):
    for work in _sum(ranks, x, result):
        work.wait()
    if ranks.rank == 1 and len(result) > 100:
        result[7:10] += 1
    return []

def _gather(ranks, x, result):
    for work in _parts(ranks, x, result):
        work.wait()
    if ranks.rank == 0:
        result.copy_(result.view(ranks.size, -1).flip(0).flatten())  # the parts in another order
    return []

def _exchange(ranks, x, result):
    return _swap(ranks, x.view(ranks.size, -1).flip(0).flatten(), result)  # each to the other rank
"""


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project whose collectives give wrong results."""
    root = tmp_path_factory.mktemp("broken")
    for package in ("overlapscope", "workloads"):
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    with (root / "workloads" / "collectives.py").open("a") as file:
        file.write(BROKEN)
    return root


@pytest.mark.real
@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ("all-reduce", r"rank 1: failed: all_reduce of 4000 B gave 3 wrong elements of 1000 on this rank"),
        ("all-gather", r"rank 0: failed: all_gather of 8 B gave 2 wrong elements of 2 on this rank"),
        ("all-to-all", r"rank [01]: failed: all_to_all of 8 B gave 2 wrong elements of 2 on this rank"),
    ],
)
def test_a_wrong_result_ends_the_run_in_one_line(broken: Path, workload: str, message: str) -> None:
    folder = broken / workload
    command = [sys.executable, "-m", "overlapscope", "run", "--workload", workload, "--sizes", "8B,4KB"]
    done = subprocess.run(
        [*command, "--tp", "2", "-o", str(folder)],
        cwd=broken,
        env={**os.environ, "PYTHONPATH": str(broken)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(rf"overlapscope: {message}; nothing was recorded\n", done.stderr)
    assert json.loads((folder / "run.json").read_text())["complete"] is False


# -- what cannot be, and what there is -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--workload", "all-reduce", "--tp", "1"],
            "--tp: 1 rank has nobody to exchange with; give 2 or more",
        ),
        (
            ["--workload", "all-reduce", "--sizes", "1MB:1KB:x2"],
            "--sizes: 1MB:1KB runs backwards; give 1KB:1MB",
        ),
        (
            ["--workload", "send-recv", "--hidden", "8"],
            "--hidden: is not an option of send-recv; leave it out; there are --dtype, --seed, --sizes",
        ),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = run(tmp_path, *arguments)
    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"overlapscope: {message}\n")
    assert list(tmp_path.iterdir()) == []


def test_more_than_memory_holds_names_the_sizes(tmp_path: Path) -> None:
    result = run(tmp_path, "--workload", "all-to-all", "--sizes", "8B:64GB:x2", "--tp", "8")
    assert result.returncode == 2
    assert re.fullmatch(
        r"overlapscope: memory: 8 ranks need about [\d.]+ GB, and [\d.]+ GB are available; "
        r"lower --tp, --sizes or --steps\n",
        result.stderr,
    )


Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    def call(*arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
        head = [sys.executable, "-c", code] if code else [sys.executable, "-m", "overlapscope"]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [*head, *arguments], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )

    return call


def test_scale_refuses_what_nobody_shares_out(call: Call) -> None:
    done = call("scale", "--workload", "all-gather", "--tp", "2,4")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "overlapscope: --workload: all-gather is no work that the ranks share out, so it cannot fall short of "
        "N-fold; compare overlapscope run --tp 2, --tp 4, ... by busbw\n"
    )


def test_scale_refuses_runs_that_nobody_shares_out(call: Call, tmp_path: Path) -> None:
    for tp in (2, 4):
        (tmp_path / f"tp{tp}").mkdir()
        manifest = {"schema_version": 1, "complete": True, "workload": "send-recv", "tp": tp}
        (tmp_path / f"tp{tp}" / "run.json").write_text(json.dumps(manifest))
    done = call("scale", "tp2", "tp4")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "overlapscope: tp2: is of send-recv, which is no work that the ranks share out; "
        "compare what overlapscope report says of each\n"
    )


def test_workloads_are_listed_with_their_options_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: str) -> str:
        assert _run(["workloads", *arguments]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    lines = said().splitlines()
    assert max(map(len, lines)) <= 80
    heads = [line.split("  ")[0] for line in lines if line and not line.startswith(" ")]
    assert heads == list(WORKLOADS)
    rows = [line.split()[:4] for line in lines]
    assert ["--sizes", "SIZES", "8B:16MiB:x8", "8B:256MiB:x2"] in rows
    assert ["--hidden", "N", "512", "4096"] in rows
    for name, entry in WORKLOADS.items():
        one = said(name)
        assert one.startswith(f"{name}  {entry.summary}\n")
        named = re.findall(r"^  --(?:\[no-\])?([\w-]+)", one, re.MULTILINE)
        assert named == [option.replace("_", "-") for option in (*entry.options, "steps", "warmup")]


def test_an_unknown_workload_is_one_line(call: Call) -> None:
    done = call("workloads", "all-reduc")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "overlapscope: NAME: 'all-reduc' is not known; did you mean all-reduce?\n"


def test_listing_imports_no_torch(call: Call) -> None:
    code = "import sys; from overlapscope.cli import _run; _run(['workloads']); print('torch' in sys.modules)"
    assert call(code=code).stdout.endswith("\nFalse\n")
