"""The command line: what a user types, what comes back, and with which exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from builders import TraceBuilder, kineto, nsys
from overlapscope import __version__
from overlapscope.cli import main

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"


def call(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as caught:
        main([str(a) for a in arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def process(*arguments: str | Path, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "overlapscope", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **env},
        timeout=60,
        check=False,
    )


def builder() -> TraceBuilder:
    t = TraceBuilder()
    for rank in range(2):
        p = t.process(pid=100 + rank, rank=rank, world=2)
        g = p.device(rank)
        g.kernel(GEMM, 0, 40_000, stream=7, launch=(0, 1000))
        g.kernel(ALL_REDUCE, 30_000, 60_000, stream=20, launch=(1000, 2000))
        g.kernel("mystery_kernel(int)", 60_000, 61_000, stream=7)
    return t


@pytest.fixture
def export(tmp_path: Path) -> Path:
    return nsys.write(builder(), tmp_path / "trace.sqlite")


@pytest.fixture
def ranks(tmp_path: Path) -> list[Path]:
    t = builder()
    return [kineto.write(t.rank(r), tmp_path / f"rank{r}.json.gz") for r in range(2)]


# -- report --------------------------------------------------------------------------------------------------


def test_report_text(export: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("report", export) == 0
    out, err = capsys.readouterr()
    assert "33.3 % of the communication is hidden under compute." in out
    assert "\x1b" not in out
    assert err == ""


@pytest.mark.parametrize("format", ["text", "json", "csv", "md"])
def test_report_to_a_file(
    export: Path, tmp_path: Path, format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    assert call("report", export, "--format", format, "-o", target) == 0
    assert capsys.readouterr() == ("", "")
    written = target.read_text()
    assert call("report", export, "--format", format) == 0
    assert capsys.readouterr().out == written
    assert call("report", export, "--format", format, "-o", target) == 2
    assert "exists already" in capsys.readouterr().err
    assert call("report", export, "--format", format, "-o", target, "--force") == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "trace.sqlite"]


def test_report_of_several_paths_and_a_folder(
    ranks: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = []
    for paths in (ranks, ranks[::-1], [tmp_path]):
        assert call("report", *paths, "--format", "json") == 0
        figures.append(json.loads(capsys.readouterr().out)["ranks"])
    assert figures[0] == figures[1] == figures[2]
    assert [r["rank"] for r in figures[0]] == [0, 1]


def test_report_of_a_window_and_a_rank(export: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("report", export, "--window", "30us:50us", "--rank", "1", "--format", "json") == 0
    (rank,) = json.loads(capsys.readouterr().out)["ranks"]
    assert (rank["rank"], rank["window_ns"], rank["comm_ns"], rank["overlap_ns"]) == (
        1,
        20_000,
        20_000,
        10_000,
    )


def test_report_with_rules_of_ones_own(
    export: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(
        '[[rule]]\nid = "mine"\npattern = "^mystery_kernel"\nkind = "comm"\ncollective = "barrier"\nlibrary = "ours"\n'
    )
    assert call("report", export, "--rules", rules, "--format", "json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["unclassified"] == []
    assert [c["collective"] for c in said["collectives"]] == ["all_reduce", "barrier"] * 2
    assert call("report", export, "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["unclassified"][0]["name"] == "mystery_kernel(int)"


# -- convert and kernels -------------------------------------------------------------------------------------


def test_convert_gives_the_same_report(
    ranks: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "all.sqlite"
    assert call("convert", *ranks, "-o", target) == 0
    assert "6 ops and 0 ranges of 2 ranks" in capsys.readouterr().out
    reports = []
    for paths in (ranks, [target]):
        assert call("report", *paths, "--format", "json") == 0
        reports.append(json.loads(capsys.readouterr().out))
    for key in ("ranks", "collectives", "unclassified", "warnings"):
        assert reports[0][key] == reports[1][key]


def test_kernels_tells_the_deciding_rule(export: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("kernels", export, "--format", "json") == 0
    said = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert said[ALL_REDUCE] == {
        "name": ALL_REDUCE,
        "kind": "comm",
        "collective": "all_reduce",
        "library": "NCCL",
        "fused_comm": False,
        "rule": "nccl-all-reduce",
        "count": 2,
        "sum_ns": 60_000,
    }
    assert said["mystery_kernel(int)"]["rule"] is None
    assert call("kernels", export) == 0
    out = capsys.readouterr().out
    assert "    mystery_kernel(int)\n" in out
    assert "3 names; no rule knows 1 of them, which count as compute" in out
    assert call("kernels", export, "--format", "csv") == 0
    assert capsys.readouterr().out.startswith("name,kind,collective,library,fused_comm,rule,count,sum_ns\n")


# -- mistakes ------------------------------------------------------------------------------------------------

MISTAKES: list[tuple[list[str], str]] = [
    (["report"], "Missing argument 'PATH...'; see overlapscope report --help"),
    (["report", "nope.sqlite"], "nope.sqlite: does not exist; check the path"),
    (
        ["report", "trace.sqlite", "--format", "xml"],
        "'xml' is not one of 'text', 'json', 'csv', 'md', 'parquet'",
    ),
    (
        ["report", "trace.sqlite", "--window", "5s:6s"],
        "--window: 5s:6s lies outside the trace; the trace's ops run from 0 ms to",
    ),
    (
        ["report", "trace.sqlite", "--window", "steps"],
        "--window steps: the trace has no step ranges; use --window whole",
    ),
    (["report", "trace.sqlite", "--rank", "9"], "--rank: 9 is not in the trace; it holds ranks 0, 1"),
    (["report", "trace.sqlite", "--rank", "x"], "valid integer"),
    (["report", "trace.sqlite", "--rules", "none.toml"], "none.toml"),
    (["report", "trace.sqlite", "-o", "no/where"], "no/where: cannot be written: its folder does not exist"),
    (["report", "trace.sqlite", "trace.sqlite"], "trace.sqlite: is given twice"),
    (["convert", "trace.sqlite"], "Missing option '--output'"),
    (["convert", "trace.sqlite", "-o", "."], ".: is a folder; name a file"),
    (["convert", "trace.sqlite", "-o", "trace.sqlite", "--force"], "is one of the files to read"),
    (["reprot", "trace.sqlite"], "No such command 'reprot'"),
    (["report", "--nonsense"], "No such option: --nonsense"),
]


@pytest.mark.parametrize(
    ("arguments", "said"), MISTAKES, ids=lambda v: " ".join(v) if isinstance(v, list) else ""
)
def test_a_mistake_gets_one_line_and_exit_code_2(
    export: Path,
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(export.parent)
    assert call(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("overlapscope: ")
    assert err.count("\n") == 1
    assert said in err
    assert sorted(os.listdir(export.parent)) == ["trace.sqlite"]


def test_hostile_file_names_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("report", tmp_path / "a\x1b[31mb\nc.sqlite") == 2
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert err.count("\n") == 1


def test_a_defect_of_ours_shows_no_traceback(
    export: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("overlapscope.report.document.build", broken)
    monkeypatch.delenv("OVERLAPSCOPE_DEBUG", raising=False)
    assert call("report", export) == 1
    err = capsys.readouterr().err
    assert "a defect in overlapscope (ZeroDivisionError: oops)" in err
    assert "Traceback" not in err
    assert err.count("\n") == 1
    monkeypatch.setenv("OVERLAPSCOPE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["report", str(export)])


# -- processes -----------------------------------------------------------------------------------------------


def test_version_and_help_import_nothing_heavy() -> None:
    for arguments in (["--version"], ["--help"], ["run", "--help"], ["report", "--help"]):
        script = (
            "import sys; from overlapscope.cli import main\n"
            "try: main(sys.argv[1:])\n"
            "except SystemExit as e: code = e.code\n"
            "heavy = [m for m in ('torch', 'pandas', 'plotly', 'numpy', 'nvtx') if m in sys.modules]\n"
            "print(heavy, code, file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stderr == "[] 0\n"
    assert process("--version").stdout == f"overlapscope {__version__}\n"


def test_bare_command_shows_help_once() -> None:
    done = process()
    assert done.returncode == 0
    assert done.stdout.count("Usage:") == 1
    assert done.stderr == ""


def test_the_reader_of_the_pipe_may_go_away(export: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m overlapscope kernels {export} | true",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
@pytest.mark.parametrize("redirect", ["> /dev/full", "-o /dev/full"])
def test_a_full_disk_is_told(export: Path, redirect: str) -> None:
    done = subprocess.run(
        f"{sys.executable} -m overlapscope report {export} {redirect}",
        shell=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("overlapscope: ")
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_do_no_harm(export: Path, closed: str) -> None:
    command = f"{sys.executable} -m overlapscope report {export} {closed}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_terminal_that_knows_only_ascii(export: Path) -> None:
    done = process("report", export, LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii:strict")
    assert done.returncode == 0
    assert "Where the time went (\\xb5s)" in done.stdout


def test_public_names_are_pinned() -> None:
    import overlapscope as osc

    assert osc.__all__ == [
        "NA",
        "Bandwidth",
        "Classifier",
        "Collective",
        "Contention",
        "Finding",
        "InputError",
        "Kind",
        "OptionError",
        "Overlap",
        "OverlapscopeError",
        "Provenance",
        "RulesError",
        "Run",
        "RunError",
        "Scaling",
        "Steps",
        "Sweep",
        "Timeline",
        "Trace",
        "UserError",
        "Windows",
        "__version__",
        "account",
        "bandwidth",
        "by_range",
        "by_stream",
        "compare",
        "contention",
        "figures",
        "findings",
        "load",
        "overlap",
        "run",
        "scale",
        "scaling",
        "steps",
        "tally",
        "timeline",
        "windows",
    ]
    for name in osc.__all__:
        assert getattr(osc, name) is not None
    assert not hasattr(osc, "nonsense")


@pytest.mark.parametrize("command", ["report", "kernels", "timeline"])
def test_a_report_never_replaces_its_trace(
    export: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = export.read_bytes()
    assert call(command, export, "-o", export, "--force") == 2
    assert "is one of the files to read" in capsys.readouterr().err
    assert export.read_bytes() == before
