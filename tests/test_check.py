"""``overlapscope check``: one line a rule, exit codes for CI, and what may not pass unseen."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import overlapscope as osc
from builders import TraceBuilder, nsys
from compared import GEMM, SERIAL, UNDER, run, trace
from overlapscope.cli import main
from overlapscope.intervals import shift, span
from overlapscope.report import document
from overlapscope.report.check import _beside, shares


def call(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["check", *map(str, arguments)])
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    run(tmp_path / "serial", SERIAL, ranks=2)
    run(tmp_path / "under", UNDER, ranks=2)
    return tmp_path


def rules(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if not line.startswith("NOTE")]


@pytest.mark.usefixtures("here")
def test_every_rule_kept(capsys: pytest.CaptureFixture[str]) -> None:
    """Exposed 990 of 4000 µs, hidden 1510 of 2500, all on both ranks; 800 after 1002 µs."""
    options = ("--max-exposed", "24.75%", "--min-overlap", "60.4 %", "--max-wait", "0%", "--max-idle", "0%")
    assert call("under", *options, "--baseline", "serial", "--max-regression", "3%") == 0
    out, err = capsys.readouterr()
    assert err == ""
    *lines, note = out.splitlines()
    assert note.startswith("NOTE  what is told is of these runs")
    assert lines == [
        "PASS  exposed communication, of the step: 24.75 %, at most 24.75 %",
        "PASS  hidden, of the communication: 60.4 %, at least 60.4 %",
        "PASS  exposed waiting for late ranks, of the step: 0.0 %, at most 0 %",
        "PASS  idle, of the step: 0.0 %, at most 0 %",
        "PASS  step time: 0.800 ms, -20.2 % of the baseline's 1.002 ms, at most +3 %",
    ]


@pytest.mark.parametrize("percent", [1, 5, 10, 20])
def test_a_step_at_its_limit_is_within_it(here: Path, percent: int) -> None:
    run(here / "base", [(600, 600, 1000)] * 5)
    run(here / "longer", [(600, 600, 1000 + 10 * percent)] * 5)
    assert call("longer", "--baseline", "base", "--max-regression", f"{percent}%") == 0
    assert call("longer", "--baseline", "base", "--max-regression", f"{percent - 1}.999999999%") == 1


def test_a_share_has_the_digits_that_set_it_off_from_its_limit() -> None:
    limit = Fraction(5, 100)
    assert _beside(limit + Fraction(1, 10**8), limit) == "5.000001 %"
    assert _beside(limit - Fraction(1, 10**11), limit) == "4.999999999 %"
    assert _beside(limit, limit) == "5.0 %"


def test_graphs_that_nobody_looked_into_pass_no_rule(here: Path) -> None:
    built = document.build(osc.load(here / "under"))
    assert [o.passed for o in shares([built], {"max-exposed": Fraction(1)})] == [True]
    for graph, window, passed in (
        (span(0, 10), "steps", False),
        (span(0, 10), "whole", False),
        (span(10**12, 10**12 + 10), "steps", True),
        (span(10**12, 10**12 + 10), "whole", False),  # a whole trace is from the first op to the last
    ):
        first = int(built.overlap.windows.of_rank[0].start[0])
        trace = replace(osc.load(here / "under"), graphs={0: shift(graph, first)})
        (outcome,) = shares([document.build(trace, window=window)], {"max-exposed": Fraction(1)})
        assert outcome.passed is passed
        if not passed:
            assert outcome.value is None
            assert outcome.text.endswith("n/a, what CUDA graphs communicated was not recorded")


@pytest.mark.usefixtures("here")
def test_rules_not_kept_by_a_hair_show_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("under", "--max-exposed", "24.74%", "--min-overlap", "60.401%", "--max-idle", "1%") == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "FAIL  exposed communication, of the step: 24.8 %, at most 24.74 %",
        "FAIL  hidden, of the communication: 60.4 %, at least 60.401 %",
        "PASS  idle, of the step: 0.0 %, at most 1 %",
    ]
    assert err == "overlapscope: check: 2 of 3 rules not kept\n"


@pytest.mark.usefixtures("here")
def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("under", "--max-exposed", "5%", "--min-overlap", "50%", "--format", "json") == 1
    data = json.loads(capsys.readouterr().out)
    assert data == {
        "schema_version": 1,
        "passed": False,
        "rules": [
            {
                "rule": "max-exposed",
                "passed": False,
                "value": 990 / 4000,
                "limit": 0.05,
                "text": "exposed communication, of the step: 24.8 %, at most 5 %",
            },
            {
                "rule": "min-overlap",
                "passed": True,
                "value": 1510 / 2500,
                "limit": 0.5,
                "text": "hidden, of the communication: 60.4 %, at least 50 %",
            },
        ],
        "warnings": [],
    }


def test_what_cannot_be_evaluated_is_not_kept(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    silent = trace(here / "silent.sqlite", [(500, 0, 0)] * 3)
    assert call(silent, "--max-exposed", "0%", "--min-overlap", "0%") == 1
    assert rules(capsys) == [
        "PASS  exposed communication, of the step: 0.0 %, at most 0 %",
        "FAIL  hidden, of the communication: n/a, no communication was recorded",
    ]
    alone = trace(here / "alone.sqlite", SERIAL)
    assert call(alone, "--max-wait", "100%") == 1
    assert rules(capsys) == [
        "FAIL  exposed waiting for late ranks, of the step: n/a, waiting cannot be told from transfer"
    ]


# -- regressions ---------------------------------------------------------------------------------------------


def slower(*us: int) -> list[tuple[int, int, int]]:
    """The serial steps, each so much longer."""
    return [(n + by, start + by, end + by) for (n, start, end), by in zip(SERIAL, us, strict=True)]


@pytest.mark.parametrize(
    ("longer", "code", "said"),
    [
        # 1002 after 1002, 1022 (2.0 %), 1052 (5.0 %): steps spread by 4 µs.
        ((0, 0, 0, 0, 0), 0, "PASS  step time: 1.002 ms, +0.0 % of the baseline's 1.002 ms, at most +3 %"),
        ((20,) * 5, 0, "PASS  step time: 1.022 ms, +2.0 % of the baseline's 1.002 ms, at most +3 %"),
        (
            (50,) * 5,
            1,
            "FAIL  step time: 1.052 ms, +5.0 % of the baseline's 1.002 ms, at most +3 %; p = 0.0079",
        ),
        # Two steps of 500 and 501, three of 1052 to 1054: the median is 5 % more, the spread is larger.
        (
            (-500, -500, 50, 50, 50),
            1,
            "FAIL  step time: 1.052 ms, +5.0 % of the baseline's 1.002 ms, at most +3 %; the spread of the "
            "steps may explain it (p = 0.69 > 0.05)",
        ),
    ],
)
def test_a_regression_must_be_larger_than_the_limit_and_the_spread(
    here: Path, longer: tuple[int, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(here / "now", slower(*longer), ranks=2)
    options = ("now", "--baseline", "serial", "--max-regression", "3%")
    assert call(*options) == code
    assert rules(capsys) == [said]
    # What cannot be told passes where the user says so, and nothing else does.
    may = "may explain it" in said
    assert call(*options, "--untold", "pass") == (0 if may else code)
    assert rules(capsys) == [said.replace("FAIL", "PASS") if may else said]


def test_a_limit_of_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("serial", "--baseline", "serial", "--max-regression", "0%") == 0
    run(here / "now", slower(*[10] * 5), ranks=2)
    assert call("now", "--baseline", "serial", "--max-regression", "0%") == 1


def test_what_must_be_known_of_every_run_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("base/one", "base/two", "both/one", "both/two"):
        run(here / name, SERIAL)
    (here / "mine.toml").write_text('[[rule]]\nid = "none"\npattern = "^nothing$"\nkind = "gemm"\n')
    assert call("both", "--baseline", "base", "--max-regression", "3%", "--rules", "mine.toml") == 1
    notes = [line for line in capsys.readouterr().out.splitlines() if "none of your 1 rules matched" in line]
    said = "none of your 1 rules matched a name in this trace"
    sides = ["the baseline, base/one", "the baseline, base/two", "both/one", "both/two"]
    assert notes == [f"NOTE  {side}: {said}" for side in sides]


def test_too_few_steps_to_tell_do_not_pass(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(here / "short", SERIAL[:3], ranks=2)
    assert call("short", "--baseline", "short", "--max-regression", "50%") == 1
    assert rules(capsys) == [
        "FAIL  step time against the baseline: n/a, too few steps to tell (3 and 3; 4 of each suffice)"
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"options": {"hidden": 64}}, "hidden 64 and 32"), ({"ranks": 1}, "1 and 2 ranks")],
)
def test_a_baseline_of_other_work_does_not_pass(
    here: Path, changes: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(here / "other", SERIAL, **{"ranks": 2, **changes})
    assert call("under", "--baseline", "other", "--max-regression", "3%") == 1
    assert rules(capsys) == [
        f"FAIL  step time against the baseline: n/a, the baseline is of other work ({said})"
    ]


def test_what_must_be_known_is_noted(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = trace(here / "a.sqlite", SERIAL), trace(here / "b.sqlite", SERIAL, gpu="NVIDIA A100")
    assert call(b, "--baseline", a, "--max-regression", "3%") == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("NOTE")]
    assert "NOTE  the baseline ran on NVIDIA H100 80GB HBM3, and the trace ran on NVIDIA A100" in notes
    told = "NOTE  no run.json of the baseline and of the trace: whether both are the same work is for you to know"
    assert told in notes


# -- several runs, and mistakes ------------------------------------------------------------------------------


def test_the_runs_of_a_folder_count_together(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exposed 990 of 4000 µs four times, and as serial runs 2000 of 5010."""
    for i in range(4):
        run(here / "runs" / f"run{i}", UNDER, ranks=2)
        run(here / "before" / f"run{i}", SERIAL, ranks=2)
    options = ("--max-exposed", "24.8%", "--baseline", "before", "--max-regression", "0%")
    assert call("runs", *options) == 0
    assert rules(capsys)[0] == "PASS  exposed communication, of the step: 24.75 %, at most 24.8 %"
    assert call("before", "--max-exposed", "30%", "--baseline", "runs", "--max-regression", "3%") == 1
    assert rules(capsys) == [
        "FAIL  exposed communication, of the step: 39.9 %, at most 30 %",
        "FAIL  step time: 1.002 ms, +25.2 % of the baseline's 0.800 ms, at most +3 %; p = 0.029",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "check: has no rule to check; give one, such as --max-exposed 5% or --min-overlap 80%"),
        (
            ["--max-exposed", "0.05"],
            "--max-exposed: cannot read '0.05', which has no per cent sign; say 5% or 0.05%, whichever is meant",
        ),
        (["--max-exposed", "little"], "--max-exposed: cannot read 'little'; give a percentage, such as 5%"),
        (["--max-idle", "-5%"], "--max-idle: cannot read '-5%'; give a percentage, such as 5%"),
        (["--min-overlap", "101%"], "--min-overlap: 101% is more than all of it; give at most 100%"),
        (["--max-regression", "3%"], "--max-regression: has nothing to compare with; give --baseline"),
        (["--baseline", "serial"], "--baseline: has no limit; give --max-regression, such as 3%"),
        (
            ["--baseline", "nowhere", "--max-regression", "3%"],
            "nowhere: does not exist; check the path",
        ),
        (
            ["--baseline", "whole.sqlite", "--max-regression", "3%"],
            "whole.sqlite: is measured as a whole, for it has no steps to measure, and the others step by step; "
            "name its steps with --step-pattern, or use --window whole",
        ),
    ],
)
def test_mistakes_are_one_line_and_exit_2(
    here: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    t = TraceBuilder()
    t.process(pid=7, rank=0).device(0).kernel(GEMM, 0, 10, stream=7)
    nsys.write(t, here / "whole.sqlite")
    assert call("serial", *arguments) == 2
    assert capsys.readouterr() == ("", f"overlapscope: {said}\n")
