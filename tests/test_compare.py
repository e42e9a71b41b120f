"""``overlapscope compare``: figures known beforehand, what may not be claimed, and what a reader is warned of."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import overlapscope as osc
from builders import TraceBuilder, nsys
from compared import GEMM, SERIAL, UNDER, run, trace
from made import made
from overlapscope.analysis.compare import Baseline, compare
from overlapscope.analysis.matching import match
from overlapscope.analysis.samples import FIGURES, Samples, samples
from overlapscope.cli import main

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"


def call(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["compare", *map(str, arguments)])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def measured(read: osc.Trace, window: str | None = None) -> Samples:
    return samples(read, osc.windows(read, window), match(read))


def of(path: Path) -> Samples:
    return measured(osc.load(path))


# -- step by step --------------------------------------------------------------------------------------------


def test_every_step_by_itself(tmp_path: Path) -> None:
    found = of(trace(tmp_path / "a.sqlite", UNDER, ranks=2))
    assert (found.mode, found.ranks, len(found.steps), found.left_out) == ("steps", 2, 5, 0)
    us = {name: [round(t) / 1000 for t in found.times(name)] for name in FIGURES}
    assert us == {
        "window": [800] * 5,
        "compute": [600, 601, 602, 603, 604],
        "comm": [500] * 5,
        "overlap": [300, 301, 302, 303, 304],
        "exposed_comm": [200, 199, 198, 197, 196],
        "exposed_wait": [0] * 5,
        "exposed_wire": [200, 199, 198, 197, 196],
        "exposed_memory": [0] * 5,
        "idle": [0] * 5,
    }
    assert found.ratios("overlap", "comm") == [0.6, 0.602, 0.604, 0.606, 0.608]
    assert found.of_collective("all_reduce", "count") == [1] * 5
    assert found.of_collective("all_reduce", "exposed_ns") == found.times("exposed_comm")
    assert found.of_collective("broadcast", "union_ns") == [0] * 5
    assert found.names[GEMM] == 602_000


def test_waiting_is_told_from_transfer_step_by_step(tmp_path: Path) -> None:
    """Rank 1 comes 10 µs late in step 0, 30 in step 1: rank 0 waits that long, and nobody else."""
    t = TraceBuilder()
    for rank in range(2):
        p = t.process(pid=7 + rank, rank=rank, world=2)
        g = p.device(rank)
        for i, late in enumerate((10_000, 30_000)):
            at = i * 1_000_000
            p.range(f"step {i}", at, at + 900_000)
            g.kernel(GEMM, at + 1000, at + 101_000 + rank * late, stream=7, launch=(at, at + 10))
            g.kernel(
                ALL_REDUCE, at + 101_000 + rank * late, at + 201_000, stream=20, launch=(at + 20, at + 30)
            )
    found = of(nsys.write(t, tmp_path / "a.sqlite"))
    assert found.times("exposed_wait") == [5000, 15000]
    assert found.times("exposed_wire") == [90_000, 70_000]


def test_one_rank_alone_knows_nothing_of_waiting(tmp_path: Path) -> None:
    found = of(trace(tmp_path / "a.sqlite", SERIAL))
    assert found.times("exposed_wait") == found.times("exposed_wire") == []
    assert compare([found], [found]).times["exposed_wait"].verdict is None


op = st.tuples(st.integers(0, 1), st.integers(0, 90), st.integers(0, 30), st.sampled_from(list(osc.Kind)))


@settings(max_examples=30)
@given(st.lists(op, min_size=1, max_size=14), st.booleans())
def test_one_step_is_what_the_report_says_of_it(drawn: list[Any], stepped: bool) -> None:
    """By another way: the report's figures of the same window, added up over ranks."""
    ops = [{"rank": r, "start": s, "end": s + n, "kind": k.value} for r, s, n, k in drawn]
    ops += [{"rank": r, "start": 40, "end": 50, "kind": "gemm"} for r in range(2)]
    steps = [
        {"rank": r, "thread": 1, "start": 0, "end": 100, "name": "step 0", "role": "step"} for r in range(2)
    ]
    read = made(ops, steps if stepped else [])
    found, told = measured(read), osc.overlap(read).ranks
    assert len(found.steps) == 1
    for figure in (*FIGURES, "exposed_unsplit"):
        assert found.steps[f"{figure}_ns"].iloc[0] == told[f"{figure}_ns"].fillna(0).sum(), figure
    comm = osc.overlap(read).collectives
    assert found.collectives["union_ns"].sum() == comm["union_ns"].sum()
    assert found.collectives["exposed_ns"].sum() == comm["exposed_ns"].sum()


def test_steps_that_a_rank_lacks_are_left_out(tmp_path: Path) -> None:
    ops = [
        {"rank": r, "start": 100 * i + 10, "end": 100 * i + 20 + r, "kind": "gemm"}
        for r in range(2)
        for i in range(3)
        if (r, i) != (1, 1)
    ]
    steps = [
        {"rank": r, "thread": 1, "start": 100 * i, "end": 100 * i + 90, "name": f"step {i}", "role": "step"}
        for r in range(2)
        for i in range(3)
    ]
    found = measured(made(ops, steps))
    assert (len(found.steps), found.left_out, found.times("compute")) == (2, 1, [10.5, 10.5])


# -- two sides -----------------------------------------------------------------------------------------------


def test_against_a_serial_baseline(tmp_path: Path) -> None:
    """T 1002 and 800, compute 602, communication 400 µs: ECT 400 and 198."""
    found = compare([of(trace(tmp_path / "a.sqlite", SERIAL))], [of(trace(tmp_path / "b.sqlite", UNDER))])
    step = found.times["window"]
    assert (found.unit, step.a, step.b, step.change) == ("steps", 1_002_000, 800_000, -202_000)
    assert (step.low, step.high, step.verdict) == (-204_000, -200_000, "less")
    assert found.times["compute"].verdict == "untold"
    assert found.times["comm"].verdict == "more"
    assert (found.ratios["hidden_share"].a, found.ratios["hidden_share"].b) == (0, 0.604)
    assert found.baseline == Baseline(
        compute_only_ns=602_000,
        ect_a_ns=400_000,
        ect_b_ns=198_000,
        efficiency=202 / 400,
        low=0.5,
        high=0.51,
        speedup=1002 / 800,
        ideal=1002 / 602,
        attained=(1002 / 800 - 1) / (1002 / 602 - 1),
    )


def test_the_gemms_alone_as_given(tmp_path: Path) -> None:
    """A run of 500 µs without communication: ECT 502 and 300."""
    a, b = of(trace(tmp_path / "a.sqlite", SERIAL)), of(trace(tmp_path / "b.sqlite", UNDER))
    alone = of(trace(tmp_path / "c.sqlite", [(500, 0, 0)] * 3))
    found = compare([a], [b], [alone]).baseline
    assert (found.compute_only_ns, found.ect_a_ns, found.ect_b_ns) == (500_000, 502_000, 300_000)
    assert found.efficiency == 202 / 502


def test_a_schedule_that_costs_more_than_it_hides(tmp_path: Path) -> None:
    slow = [(900 + i, 300, 1200) for i in range(5)]
    found = compare(
        [of(trace(tmp_path / "a.sqlite", SERIAL))], [of(trace(tmp_path / "b.sqlite", slow))]
    ).baseline
    assert (found.efficiency, found.speedup) == (-198 / 400, 1002 / 1200)
    assert found.attained is not None
    assert found.attained < 0


def test_nothing_to_hide(tmp_path: Path) -> None:
    alone = of(trace(tmp_path / "a.sqlite", [(500 + i, 0, 0) for i in range(5)]))
    found = compare([alone], [alone])
    assert (found.baseline.efficiency, found.baseline.ideal, found.baseline.attained) == (None, 1.0, None)
    assert found.ratios["hidden_share"].verdict is None
    assert found.collectives == ()


def test_a_run_beside_itself(tmp_path: Path) -> None:
    one = of(trace(tmp_path / "a.sqlite", UNDER, ranks=2))
    found = compare([one], [one])
    assert {s.verdict for s in (*found.times.values(), *found.ratios.values())} == {"untold"}
    assert {s.change for s in (*found.times.values(), *found.ratios.values())} == {0}
    assert {n.change for n in found.names} == {0}
    assert (found.baseline.efficiency, found.baseline.speedup, found.baseline.attained) == (0, 1, 0)


def test_the_other_way_round(tmp_path: Path) -> None:
    a, b = of(trace(tmp_path / "a.sqlite", SERIAL)), of(trace(tmp_path / "b.sqlite", UNDER))
    one, other = compare([a], [b]), compare([b], [a])
    for figure in FIGURES:
        if figure not in ("exposed_wait", "exposed_wire"):
            change = one.times[figure].change
            assert change is not None
            assert other.times[figure].change == -change
            assert other.times[figure].p == one.times[figure].p


def test_several_runs_a_side_are_the_samples(tmp_path: Path) -> None:
    """Steps that agree within each run, and runs that differ more than the sides: no claim."""

    def runs(name: str, lengths: list[int]) -> list[Samples]:
        return [of(trace(tmp_path / f"{name}{n}.sqlite", [(n, n, n + 100)] * 9)) for n in lengths]

    a, b = runs("a", [500, 700, 600, 650]), runs("b", [510, 710, 610, 660])
    found = compare(a, b)
    step = found.times["window"]
    assert (found.unit, step.n_a, step.a, step.b, step.verdict) == ("runs", 4, 725_000, 735_000, "untold")
    assert compare(a[:1], b[:1]).times["window"].verdict == "more"
    assert compare(a[:3], b[:3]).times["window"].verdict == "few"
    assert compare(a, runs("c", [300, 310, 320, 330])).times["window"].verdict == "less"
    assert (compare(a, b[:1]).unit, compare(a, b[:1]).times["window"].n_a) == ("steps", 36)


# -- what is shown -------------------------------------------------------------------------------------------

TEXT = """\
A           serial: 5 steps, 2 ranks on NVIDIA H100 80GB HBM3
B           pipelined: 5 steps, 2 ranks on NVIDIA H100 80GB HBM3
changed     schedule serial → pipelined; chunks none → 4; torch 2.13.0 → 2.14.0

In these runs B is faster: 0.800 ms a step, A 1.002 ms (-20.2 %; 95 %: -20.4 %
to -20.0 %; p = 0.008).
In the median step 60.4 % of the communication is hidden, in A 0.0 %; 0.198 ms
are exposed, in A 0.400 ms.

Medians of the steps, mean of the ranks (ms a step)

                        A       B    change      %      95 % interval  told
───────────────────────────────────────────────────────────────────────────
step                1.002   0.800    -0.202  -20.2   -20.4 to -20.0 %  less
compute             0.602   0.602    +0.000   +0.0     -0.5 to +0.5 %    no
communication       0.400   0.500    +0.100  +25.0   +25.0 to +25.0 %  more
hidden              0.000   0.302    +0.302    n/a                n/a  more
exposed comm        0.400   0.198    -0.202  -50.5   -51.0 to -50.0 %  less
  waiting           0.000   0.000    +0.000    n/a                n/a    no
  transfer          0.400   0.198    -0.202  -50.5   -51.0 to -50.0 %  less
exposed memory      0.000   0.000    +0.000    n/a                n/a    no
idle                0.000   0.000    +0.000    n/a                n/a    no
hidden, of comm     0.0 %  60.4 %  +60.4 pt         +60.0 to +60.8 pt  more
exposed, of step   39.9 %  24.8 %  -15.2 pt         -15.4 to -14.9 pt  less

Communication (ms a step)

                   count A  count B  time A  time B  exposed A  exposed B  told
───────────────────────────────────────────────────────────────────────────────
all_reduce               1        1   0.400   0.500      0.400      0.198  less

Names whose summed time changed most (mean, ms a step)

name                                                A      B  change
────────────────────────────────────────────────────────────────────
ncclDevKernel_AllReduce_Sum_bf…ned long)4096>)  0.400  0.500  +0.100

Against A as the serial baseline

speed-up            1.25x
ideal speed-up      1.66x = (compute + comm) / the longer, of A
attained            38.0 % = (speed-up − 1) / (ideal − 1)
compute only        0.602 ms, A's compute
ECT of A, of B      0.400 ms, 0.198 ms = step − compute only
overlap efficiency  50.5 % (95 %: 50.0 to 51.0 %) = 1 − ECT of B / ECT of A

Good to know
- what is told is of these runs: how much one run differs from the next is not
  in the spread of steps. Folders with 4 runs or more a side tell that
- told: less or more where p ≤ 0.05 by the exact Mann–Whitney test of the steps;
  no: their spread explains the change; few: too few steps for any verdict. Each
  figure is tested by itself: of twenty that do not differ about one is told to
- the interval is that of the shift which the test does not reject; names are
  not tested
"""


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    run(tmp_path / "serial", SERIAL, ranks=2)
    options = {"schedule": "pipelined", "chunks": 4}
    run(tmp_path / "pipelined", UNDER, ranks=2, options=options, versions={"torch": "2.14.0"})
    return tmp_path


@pytest.mark.usefixtures("sides")
def test_the_worked_example_to_the_letter(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("serial", "pipelined") == 0
    assert capsys.readouterr() == (TEXT, "")
    assert max(map(len, TEXT.splitlines())) <= 80


@pytest.mark.usefixtures("sides")
def test_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("serial", "pipelined", "--format", "json") == 0
    data = json.loads(capsys.readouterr().out)
    assert list(data) == [
        *("schema_version", "a", "b", "compute_only", "per", "samples", "alpha", "changed", "figures"),
        *("baseline", "collectives", "names", "warnings"),
    ]
    assert (data["schema_version"], data["per"], data["samples"]) == (1, "step", "steps")
    figures = {f["figure"]: f for f in data["figures"]}
    assert list(figures) == [*FIGURES, "hidden_share", "exposed_share"]
    assert figures["window"] == {
        "figure": "window",
        "unit": "ns",
        "a": 1_002_000.0,
        "b": 800_000.0,
        "n_a": 5,
        "n_b": 5,
        "low": -204_000.0,
        "high": -200_000.0,
        "p": 2 / 252,
        "change": -202_000.0,
        "relative": -202 / 1002,
        "verdict": "less",
    }
    assert data["baseline"]["efficiency"] == 202 / 400
    assert data["collectives"][0]["exposed"]["b"] == 198_000
    assert {n["name"]: n["change_ns"] for n in data["names"]} == {GEMM: 0, ALL_REDUCE: 100_000}
    assert data["a"][0]["path"] == "serial"


def test_a_run_of_the_gemms_alone(sides: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = trace(sides / "alone.sqlite", [(500, 0, 0)] * 3)
    assert call("serial", "pipelined", "--compute-only", alone, "--format", "json") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["baseline"]["compute_only_ns"], data["baseline"]["ect_b_ns"]) == (500_000, 300_000)
    assert [run["steps"] for run in data["compute_only"]] == [3]
    assert call("serial", "pipelined", "--compute-only", "serial") == 0
    assert "the run given for the GEMMs alone communicates" in " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("sides")
def test_markdown_and_csv(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("serial", "pipelined", "--format", "md") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "**In these runs B is faster: 0.800 ms a step, A 1.002 ms (-20.2 %; 95 %: -20.4 % to -20.0 %; "
    )
    assert "| step | 1.002 | 0.800 | -0.202 | -20.2 | -20.4 to -20.0 % | less |" in lines
    assert f"| `{ALL_REDUCE}` | 0.400 | 0.500 | +0.100 |" in lines
    tables = [line for line in lines if line.startswith("|")]
    assert {line.count(" | ") for line in tables} == {6, 7, 3, 1}
    assert call("serial", "pipelined", "--format", "csv") == 0
    rows = {r["figure"]: r for r in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    assert (rows["window"]["change"], rows["window"]["verdict"]) == ("-202000.0", "less")
    assert rows["overlap"]["relative"] == ""


def test_hostile_names_are_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    t = TraceBuilder()
    g = t.process(pid=7, rank=0).device(0)
    g.kernel("evil\x1b[31m\n|`x`\u202ekernel", 0, 9000, stream=7)
    hostile = nsys.write(t, tmp_path / "a.sqlite")
    plain = trace(tmp_path / "b.sqlite", [(5, 0, 0)])
    for format in ("text", "md"):
        assert call(hostile, plain, "--window", "whole", "--format", format) == 0
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert "evil\\x1b[31m\\x0a" in out


@pytest.mark.usefixtures("sides")
def test_to_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("serial", "pipelined", "-o", "out.txt") == 0
    assert capsys.readouterr() == ("", "")
    assert Path("out.txt").read_text() == TEXT
    assert call("serial", "pipelined", "-o", "out.txt") == 2
    assert call("serial", "pipelined", "-o", "serial/run.json", "--force") == 2
    assert "is one of the files to read" in capsys.readouterr().err


# -- what a reader is warned of ------------------------------------------------------------------------------


def warnings(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> list[str]:
    assert call(*arguments, "--format", "json") == 0
    found: list[str] = json.loads(capsys.readouterr().out)["warnings"]
    return found


def test_no_warning_but_of_one_run_a_side(sides: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (only,) = warnings(capsys, sides / "serial", sides / "pipelined")
    assert only.startswith("what is told is of these runs")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"options": {"hidden": 64}}, "not the same work: hidden 32 and 64 in A and B"),
        ({"workload": "mlp"}, "not the same work: workload block and mlp in A and B"),
        ({"ranks": 1}, "A has 2 ranks, and B has 1 rank"),
        ({"threads_per_rank": 2}, "threads_per_rank 1 in A and 2 in B"),
        ({"hardware": {"cpu": "another", "gpus": []}}, "cpu a CPU in A and another in B"),
    ],
)
def test_what_is_not_alike(
    sides: Path, changes: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = run(sides / "other", UNDER, **{"ranks": 2, **changes})
    assert said in warnings(capsys, sides / "serial", other)


def test_traces_that_are_not_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = trace(tmp_path / "a.sqlite", SERIAL)
    b = trace(tmp_path / "b.sqlite", SERIAL, gpu="NVIDIA A100")
    said = warnings(capsys, a, b)
    assert "A ran on NVIDIA H100 80GB HBM3, and B ran on NVIDIA A100" in said
    assert "no run.json of A and of B: whether both are the same work is for you to know" in said


def test_a_baseline_that_is_not_serial(sides: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = warnings(capsys, sides / "pipelined", sides / "serial")
    assert any(w.startswith("A ran the schedule pipelined, which is no serial baseline") for w in said)
    assert any(w.startswith("A itself hides 60.4 % of its communication") for w in said)


def test_too_few_steps_claim_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = trace(tmp_path / "a.sqlite", SERIAL[:3]), trace(tmp_path / "b.sqlite", UNDER[:3])
    assert call(a, b) == 0
    out = capsys.readouterr().out
    assert "Too few steps to tell: 3 of A and 3 of B, and 4 of each suffice." in out
    assert "faster" not in out
    assert not any(line.endswith((" less", " more")) for line in out.splitlines())


# -- sides of several runs, and mistakes ---------------------------------------------------------------------


def test_a_folder_of_runs_and_paths_with_commas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(4):
        run(tmp_path / "before" / f"run{i}", [(n, n, e + 7 * i) for n, _, e in SERIAL])
        run(tmp_path / "after" / f"run{i}", [(n, s, e + 7 * i) for n, s, e in UNDER])
    assert call(tmp_path / "before", tmp_path / "after", "--format", "json") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["samples"], len(data["a"]), len(data["b"])) == ("runs", 4, 4)
    figures = {f["figure"]: f for f in data["figures"]}
    # Medians of the runs: 1002, 1009, 1016, 1023 and 800, 807, 814, 821 µs; of eight all are on one side: 2 of 70.
    window = figures["window"]
    assert (window["a"], window["b"], window["p"], window["verdict"]) == (1_012_500, 810_500, 2 / 70, "less")
    listed = ",".join(str(tmp_path / "before" / f"run{i}") for i in range(4))
    assert call(listed, tmp_path / "after", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["figures"] == data["figures"]


def test_mistakes_are_one_line(sides: Path, capsys: pytest.CaptureFixture[str]) -> None:
    t = TraceBuilder()
    t.process(pid=7, rank=0).device(0).kernel(GEMM, 0, 10, stream=7)
    nsys.write(t, sides / "whole.sqlite")
    run(sides / "sweep" / "tp1", SERIAL)
    run(sides / "sweep" / "tp2", SERIAL, ranks=2)
    unlike = "holds runs that are not alike (tp1 and tp2: tp 1 and 2); name one of them"
    for arguments, said in (
        (("serial", "nowhere"), "nowhere: does not exist; check the path"),
        (("serial", "serial,serial"), "serial: is given twice; give each run once"),
        (("sweep", "serial"), f"sweep: {unlike}"),
        (
            ("serial", "whole.sqlite"),
            "whole.sqlite: is measured as a whole, for it has no steps to measure, and the others step by step; "
            "name its steps with --step-pattern, or use --window whole",
        ),
        (
            ("serial", "pipelined", "--align", "x"),
            "--align: 'x' is not known; choose from collectives, session, none",
        ),
        (("serial", "pipelined", "--rank", "5"), "--rank: 5 is not in the trace; it holds ranks 0, 1"),
    ):
        assert call(*arguments) == 2
        assert capsys.readouterr() == ("", f"overlapscope: {said}\n")


@pytest.mark.real
def test_real_runs_and_a_sweep_over_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Serial and pipelined on a paced link, recorded; no claim on which is faster, for that is this machine's."""

    def real(*arguments: str) -> None:
        command = [sys.executable, "-m", "overlapscope", "run", "--tp", "2", *arguments]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)

    shape = (
        "--hidden",
        "64",
        "--heads",
        "4",
        "--seq",
        "32",
        "--forward-only",
        "--steps",
        "4",
        "--link",
        "50MB/s,1ms",
    )
    real(*shape, "-o", "serial")
    real(*shape, "--schedule", "pipelined", "--chunks", "2", "-o", "pipelined")
    assert call(tmp_path / "serial", tmp_path / "pipelined", "--format", "json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["changed"] == ["schedule serial → pipelined", "chunks none → 2"]
    (all_reduce,) = (c for c in data["collectives"] if c["collective"] == "all_reduce")
    assert (all_reduce["count"]["a"], all_reduce["count"]["b"]) == (2, 4)
    window = data["figures"][0]
    ect_a, ect_b = data["baseline"]["ect_a_ns"], data["baseline"]["ect_b_ns"]
    assert ect_b - ect_a == pytest.approx(window["change"], abs=1)
    assert data["baseline"]["efficiency"] == pytest.approx(1 - ect_b / ect_a)
    assert any(w.startswith("the link was paced (50 MB/s, 1000 us)") for w in data["warnings"])
    real("--workload", "all-reduce", "--sizes", "8B:64B:x8", "--steps", "3", "-o", "sizes")
    assert call(tmp_path / "serial", tmp_path / "sizes") == 2
    assert "is a sweep over sizes of collectives" in capsys.readouterr().err
