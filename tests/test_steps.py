"""Step by step: figures of each, their spread, and the steps that stand out or must not."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import overlapscope as osc
from builders import TraceBuilder, nsys
from made import made
from overlapscope.analysis.steps import SPREAD_COLUMNS, STEP_COLUMNS
from overlapscope.cli import main
from overlapscope.report import document, export, tables, text

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"


def steps_of(lengths: list[int], path: Path) -> osc.Trace:
    """Step i, 10 µs after the last: a GEMM of this length, a 60 ns all-reduce half under it; one warm-up before."""
    t = TraceBuilder()
    p = t.process(pid=7, rank=0)
    g = p.device(0)
    for i, length in enumerate([5000, *lengths]):
        at = 10_000 * i
        name, role = (f"step {i - 1}", "step") if i else ("warmup 0", "warmup")
        p.range(name, at, at + 9000, domain="overlapscope", category=role)
        g.kernel(GEMM, at + 100, at + 100 + length, stream=7, launch=(at + 10, at + 11))
        g.kernel(ALL_REDUCE, at + 70 + length, at + 130 + length, stream=20, launch=(at + 10, at + 11))
    return osc.load(nsys.write(t, path))


def test_each_step_and_the_spread(tmp_path: Path) -> None:
    found = osc.steps(steps_of([1000, 1010, 1030, 1000], tmp_path / "t.sqlite"))
    assert found.table["step"].tolist() == ["step 0", "step 1", "step 2", "step 3"]
    assert found.table.iloc[2].to_dict() == {
        "rank": 0,
        "step": "step 2",
        "start": 30_100,
        "end": 31_160,
        "window_ns": 1060,
        "compute_ns": 1030,
        "comm_ns": 60,
        "overlap_ns": 30,
        "exposed_comm_ns": 30,
        "exposed_memory_ns": 0,
        "idle_ns": 0,
        "outlier": False,
    }
    (spread,) = found.spread.to_dict("records")
    assert (spread["n_steps"], spread["window_median_ns"], spread["window_mad_ns"]) == (4, 1035, 5)
    assert (spread["comm_median_ns"], spread["comm_mad_ns"]) == (60, 0)
    assert list(found.table.columns) == list(STEP_COLUMNS)
    assert list(found.spread.columns) == list(SPREAD_COLUMNS)


@pytest.mark.parametrize(
    ("lengths", "outliers"),
    [
        ([1000, 1010, 990, 1000, 2000], ["step 4"]),
        ([1000, 1010, 990, 1000, 300, 1005], ["step 4"]),  # far too short is as strange
        ([1000, 1000, 1000, 2000], []),  # too few to tell
        ([1000, 1000, 1000, 1000, 1050], []),  # 4.9 % of the median 1030
        ([1000, 1000, 1000, 1000, 1052], ["step 4"]),  # 5.05 %
        ([1000, 1200, 1400, 1600, 1900], []),  # far from the median, as they all are
    ],
)
def test_which_steps_stand_out(tmp_path: Path, lengths: list[int], outliers: list[str]) -> None:
    found = osc.steps(steps_of(lengths, tmp_path / "t.sqlite"))
    assert found.outliers["step"].tolist() == outliers


def test_a_rank_is_measured_by_its_own_median(tmp_path: Path) -> None:
    t = TraceBuilder()
    for rank, length in ((0, 1000), (1, 3000)):
        p = t.process(pid=7 + rank, rank=rank)
        for i in range(6):
            at = 10_000 * i
            p.range(f"step {i}", at, at + 9000)
            long = length * 2 if (rank, i) == (1, 3) else length
            p.device(rank).kernel(GEMM, at, at + long, stream=7, launch=(at + 1, at + 2))
    found = osc.steps(osc.load(nsys.write(t, tmp_path / "t.sqlite")))
    assert found.outliers[["rank", "step"]].to_numpy().tolist() == [[1, "step 3"]]


def test_no_steps_no_rows(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.process(pid=7, rank=0).device(0).kernel(GEMM, 0, 10, stream=7)
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    found = osc.steps(trace)
    assert (len(found.table), len(found.spread)) == (0, 0)
    assert "Steps:" not in text.render(document.build(trace))
    with pytest.raises(osc.OptionError, match="the window is not of steps"):
        document.build(trace, by="step")


def test_the_report_names_them(tmp_path: Path) -> None:
    trace = steps_of([1000, 1010, 990, 1000, 2000], tmp_path / "t.sqlite")
    shown = " ".join(text.render(document.build(trace)).split())
    assert (
        "Steps: median 1.030 µs (spread 0.010 µs), 0.030 µs of it exposed. Outliers: step 4 (1.97x)." in shown
    )
    listed = text.render(document.build(trace, by="step"))
    assert [line.split()[1:3] for line in listed.splitlines() if line.startswith(" 0 ")][-1] == ["step", "4"]
    assert "step 4 *" in listed
    assert "step 3 *" not in listed
    table = pd.read_csv(io.StringIO(tables.csv(export.table(document.build(trace, by="step")))))
    assert table["outlier"].tolist() == [False] * 4 + [True]


ops = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.integers(0, 15),
        st.sampled_from(["gemm", "comm", "memory"]),
        st.integers(0, 45),
    ),
    min_size=1,
    max_size=15,
)


@given(ops)
def test_the_parts_of_every_step_add_up(some: list[tuple[int, int, str, int]]) -> None:
    trace = made(
        [{"rank": 0, "start": s, "end": s + n, "kind": k, "launch": at, "thread": 1} for s, n, k, at in some],
        [
            {"rank": 0, "thread": 1, "start": 15 * i, "end": 15 * i + 15, "name": f"step {i}"}
            for i in range(3)
        ],
        ranks=1,
    )
    table = osc.steps(trace).table
    parts = table[["compute_ns", "exposed_comm_ns", "exposed_memory_ns", "idle_ns"]]
    assert (parts.sum(axis=1) == table["window_ns"]).all()
    assert (parts.to_numpy() >= 0).all()
    for row in table.to_dict("records"):
        i = int(row["step"].split()[1])
        mine = [(s, s + n) for s, n, _, at in some if 15 * i <= at < 15 * i + 15]
        assert (row["start"], row["end"]) == (min(s for s, _ in mine), max(e for _, e in mine))
        inside = [(max(s, row["start"]), min(s + n, row["end"]), k) for s, n, k, _ in some]
        compute = {t for s, e, k in inside if k == "gemm" for t in range(s, e)}
        assert row["compute_ns"] == len(compute)


def test_two_breakdowns_at_once_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["report", "t.sqlite", "--by", "range", "--by", "stream"])
    assert stopped.value.code == 2
    message = "--by: is given as range and stream, and a report breaks down by one thing; give one"
    assert capsys.readouterr().err == f"overlapscope: {message}\n"


@pytest.mark.parametrize("by", ["range", "stream", "collective", "step", "rank"])
def test_every_breakdown_in_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str], by: str) -> None:
    """Names are hostile; nothing is wider than 80 columns."""
    t = TraceBuilder()
    p = t.process(pid=7, rank=0)
    for i, name in enumerate(("evil\x1b[31m\n|`x`\u202e" + "w" * 90, "inner")):
        p.range(name, i, 90 - i)
    p.range("step 0", 0, 100)
    p.device(0).kernel(GEMM, 0, 20_000_000_000, stream=7, launch=(5, 6))
    p.device(0).kernel(ALL_REDUCE, 10_000_000_000, 30_000_000_000, stream=20, launch=(5, 6))
    path = nsys.write(t, tmp_path / "t.sqlite")
    for layout in ("text", "md", "csv", "json"):
        with pytest.raises(SystemExit) as stopped:
            main(["report", str(path), "--by", by, "--format", layout])
        assert stopped.value.code == 0
        shown = capsys.readouterr().out
        if layout in ("text", "md"):
            assert "\x1b" not in shown
            assert "\u202e" not in shown
            assert f"By {by}" in shown
        if layout == "text":
            assert max(map(len, shown.splitlines())) <= 80
        if layout == "json" and by in ("range", "stream", "step"):
            assert f'"by_{by}": [' in shown
