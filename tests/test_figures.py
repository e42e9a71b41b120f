"""Figures hold what the tables hold, to the nanosecond, and say in words what they show; and they become files."""

from __future__ import annotations

import html
import json
import subprocess
import sys
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pandas as pd
import pytest

import overlapscope as osc
from made import made
from overlapscope import figures
from overlapscope.analysis.bandwidth import Bandwidth
from overlapscope.analysis.bandwidth import bandwidth as measured
from overlapscope.cli import main
from overlapscope.figures import files
from overlapscope.figures.frame import plain
from overlapscope.report import document
from scaled import one_rank, two_ranks
from test_bandwidth import worked
from test_perfetto import late_rank

KALEIDO = find_spec("kaleido") is not None
CHROME = any(which(name) for name in ("chromium", "chromium-browser", "google-chrome", "chrome"))


def late(tmp_path: Path) -> osc.Overlap:
    return osc.overlap(osc.load(late_rank(tmp_path / "t.sqlite")))


def scales(tmp_path: Path) -> osc.Scaling:
    return osc.scaling(
        [
            osc.account(osc.load(one_rank(tmp_path / "1.sqlite"))),
            osc.account(osc.load(two_ranks(tmp_path / "2.sqlite"))),
        ]
    )


def titled(figure: object, *units: str) -> None:
    layout = figure.layout  # type: ignore[attr-defined]
    assert layout.title.text
    said = " ".join(axis.title.text for axis in figure.select_yaxes()) + " "  # type: ignore[attr-defined]
    said += " ".join(str(axis.title.text) for axis in figure.select_xaxes())  # type: ignore[attr-defined]
    for unit in units:
        assert unit in said


def test_breakdown_adds_up_to_the_window(tmp_path: Path) -> None:
    """Rank 0: compute 120 + 144 ns, 20 ns of the waiting and 10 of the transfer under it; rank 1: 10 ns idle."""
    result = late(tmp_path)
    figure = osc.figures.breakdown(result)
    titled(figure, "time (ms)", "rank")
    exact = {bar.name: list(bar.customdata) for bar in figure.data}
    assert exact == {
        "compute": [264, 265],
        "exposed: waiting for late ranks": [10, 0],
        "exposed: transfer": [60, 60],
        "idle": [0, 10],
    }
    assert [sum(ns) for ns in zip(*exact.values(), strict=True)] == result.ranks["window_ns"].tolist()
    for bar in figure.data:
        assert [round(y * 1e6) for y in bar.y] == list(bar.customdata)
        assert list(bar.x) == ["0", "1"]
    assert figure.layout.meta["alt"] == (
        "Stacked bars, one for each of 2 ranks: of 334 ns on average 79.1 % compute, 19.4 % exposed communication, "
        "0.0 % exposed copies and memsets, 1.5 % idle. Rank 0 has most exposed communication, 70 ns."
    )


def test_breakdown_of_what_cannot_be_split() -> None:
    result = osc.overlap(made([{"rank": 0, "start": 0, "end": 70, "kind": "comm"}], ranks=1))
    (bar,) = osc.figures.breakdown(result).data
    assert (bar.name, list(bar.customdata)) == ("exposed: waiting or transfer", [70])


def test_scaling_terms_add_up_exactly(tmp_path: Path) -> None:
    result = scales(tmp_path)
    figure = osc.figures.scaling(result)
    titled(figure, "ms a step", "ranks N")
    measured, ideal, fall = figure.data
    assert [Fraction(t) for t in measured.customdata] == [500, Fraction(601, 2)]
    assert [Fraction(t) for t in ideal.customdata] == [500, 250]
    assert list(measured.x) == [1, 2]
    first, *losses, last = map(Fraction, fall.customdata)
    assert first + sum(losses) == last == result.sizes[-1].time
    assert list(measured.y) == [0.0005, 0.0003005]
    assert fall.x[1] == "sharded<br>work"
    assert losses[0] == result.sizes[-1].term("sharded") == -30
    assert "On 2 ranks it takes 300 ns, the ideal is 250 ns: 1.66 times" in figure.layout.meta["alt"]
    assert "Most of the loss is exposed communication, 45 ns." in figure.layout.meta["alt"]


def test_ranges_are_means_of_the_ranks(tmp_path: Path) -> None:
    trace = osc.load(two_ranks(tmp_path / "t.sqlite"))
    table = osc.by_range(trace)
    figure = osc.figures.overlap_by_range(table)
    titled(figure, "communication (ms, mean of 2 ranks)", "range")
    hidden, exposed = figure.data
    assert list(figure.layout.yaxis.ticktext) == ["layer 0", "layer 0 › up"]
    # 20 ns of rank 0's all-reduce run under its GEMM.
    assert list(hidden.customdata) == [20, 20]
    assert list(exposed.customdata) == [90, 90]
    assert list(exposed.x) == [45e-6, 45e-6]
    assert table.loc[table["path"] == ("layer 0",), "exposed_comm_ns"].sum() == 90
    assert "45 ns, beside 10 ns hidden" in figure.layout.meta["alt"]
    (only,) = osc.figures.overlap_by_range(table, most=1).layout.yaxis.ticktext
    assert only == "layer 0"


def test_ranges_without_communication() -> None:
    trace = made([{"rank": 0, "start": 0, "end": 70, "kind": "gemm"}], ranks=1)
    figure = osc.figures.overlap_by_range(osc.by_range(trace))
    assert all(not bar.x for bar in figure.data)
    assert figure.layout.meta["alt"].startswith("No bars")


def test_skew_is_lateness_behind_the_first(tmp_path: Path) -> None:
    figure = osc.figures.skew(late(tmp_path))
    titled(figure, "rank", "collective")
    (heat,) = figure.data
    assert [list(row) for row in heat.customdata] == [[0], [30]]
    assert [list(row) for row in heat.z] == [[0.0], [30e-6]]
    assert list(heat.y) == ["0", "1"]
    assert "(ms)" in heat.colorbar.title.text
    assert (
        "that of rank 1 in collective 0, 30 ns after the first; rank 1 came last most often, 1 of 1"
        in (figure.layout.meta["alt"])
    )


def test_skew_of_real_ranks_agrees_with_the_table(shared_traces: Path) -> None:
    result = osc.overlap(osc.load(shared_traces / "kineto/megatron-tp8-a100"))
    (heat,) = osc.figures.skew(result).data
    late = pd.DataFrame([list(row) for row in heat.customdata])
    assert late.shape == (8, 84)
    waits = result.instances.pivot(index="rank", columns="match", values="wait_ns").astype("int64")
    expected = (waits.max() - waits).to_numpy()
    assert sorted(map(tuple, late.T.to_numpy())) == sorted(map(tuple, expected.T))


def test_skew_of_one_rank() -> None:
    result = osc.overlap(made([{"rank": 0, "start": 0, "end": 70, "kind": "comm"}], ranks=1))
    assert osc.figures.skew(result).layout.meta["alt"].startswith("Empty")


def test_bandwidth_by_size(tmp_path: Path) -> None:
    trace = worked(tmp_path)
    found = measured(trace, osc.windows(trace), 10.0)
    assert found is not None
    figure = osc.figures.collective_sizes(found)
    titled(figure, "(GB/s)", "(bytes)")
    bus, alg = figure.data
    assert list(bus.x) == list(alg.x) == found.table["bytes"].tolist() == [1000, 4000]
    assert list(alg.y) == found.table["algbw_gbs"].tolist() == [2.5, 2.5]
    assert list(bus.y) == found.table["busbw_gbs"].tolist()
    assert list(bus.customdata) == [400, 1600]
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")
    (peak,) = figure.layout.shapes
    assert peak.y0 == peak.y1 == 10.0
    assert "reaches 2.5 GB/s busbw at 1.0 kB, 25.0 % of the link." in figure.layout.meta["alt"]
    nothing = Bandwidth(found.table.assign(algbw_gbs=pd.NA))
    assert osc.figures.collective_sizes(nothing).layout.meta["alt"].startswith("No lines")


def test_rates_of_any_program(tmp_path: Path, shared_traces: Path) -> None:
    trace = osc.load(shared_traces / "nsys/ddp-2rank-rtx3090-schema3.27.sqlite")
    built = document.build(trace)
    figure = figures.of_report(built)["collective_sizes"]
    bus, alg = figure.data
    assert bus.name == "all_reduce over 2 ranks, busbw"
    table = built.rates.table
    table = table[table["collective"] == "all_reduce"]
    assert list(alg.x) == table["bytes"].tolist()
    assert list(alg.y) == table["algbw_gbs"].tolist()
    assert list(alg.customdata) == table["time_ns"].tolist()


def test_names_are_text_and_no_markup() -> None:
    hostile = '<a href="javascript:alert(1)">x</a>$y$\x1b'
    shown = plain(hostile)
    assert "<" not in shown
    assert "$" not in shown
    assert html.unescape(shown) == '<a href="javascript:alert(1)">x</a>$y$\\x1b'


def test_plotly_comes_only_with_figures() -> None:
    code = "import sys, overlapscope as o; o.load; before = 'plotly' in sys.modules; o.figures; "
    code += "assert (before, 'plotly' in sys.modules) == (False, True)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_kaleido_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as ended:
        main(["report", str(late_rank(tmp_path / "t.sqlite")), "--figures", str(tmp_path / "figures")])
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert "pip install 'overlapscope[figures]'" in said.err
    assert not (tmp_path / "figures").exists()


@pytest.mark.skipif(not (KALEIDO and CHROME), reason="kaleido or Chromium is not here")
def test_files(tmp_path: Path) -> None:
    built = document.build(osc.load(late_rank(tmp_path / "t.sqlite")))
    drawn = figures.of_report(built)
    assert list(drawn) == ["breakdown", "overlap_by_range", "skew"]
    folder = tmp_path / "figures"
    paths = figures.save(drawn, folder)
    assert {p.name for p in folder.iterdir()} == {p.name for p in paths} | {"alt.json"}
    assert len(paths) == 9
    assert (folder / "skew.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "skew.pdf").read_bytes().startswith(b"%PDF")
    svg = (folder / "skew.svg").read_text()
    alt = json.loads((folder / "alt.json").read_text())
    assert alt["skew"] == drawn["skew"].layout.meta["alt"]
    assert f"<title>Who came late to which collective</title><desc>{alt['skew']}</desc>" in svg
    with pytest.raises(osc.OptionError, match="exists already"):
        figures.save(drawn, folder)
