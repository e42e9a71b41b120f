"""The timeline in a notebook, Python's side: what is shared, what is shown where no widgets are."""

from __future__ import annotations

import base64
import gzip
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import overlapscope as osc
from made import made
from overlapscope.report.colours import COLOURS
from test_timeline import DATA, hostile, worked_example

WIDGET = "application/vnd.jupyter.widget-view+json"
PLOT = 960 - 132 - 16  # px of the picture's plot
RECTANGLE = re.compile(r"M(\d+) ([\d.]+)h(\d+)v([\d.]+)h-\d+z")


def picture(bundle: dict[str, Any]) -> str:
    """The SVG in what a cell shows without widgets."""
    (coded,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)">$', bundle["text/html"])
    return base64.b64decode(coded).decode()


def areas(svg: str) -> list[tuple[str, float]]:
    """Of every path of rectangles its class and its area in px."""
    paths = re.findall(r'<path class="(\w+)" d="(M[^"]*z)"/>', svg)
    return [(key, sum(int(w) * float(h) for _, _, w, h in RECTANGLE.findall(d))) for key, d in paths]


# -- the picture -----------------------------------------------------------------------------------------------


def test_areas_are_shares_of_the_time(tmp_path: Path) -> None:
    """Rank 0, window 0 to 100: of its states 45 compute, 20 hidden, 20 exposed, 5 copies, 10 idle."""
    svg = osc.timeline(osc.load(worked_example(tmp_path)), "0:100").svg()
    strip, lanes = dict(areas(svg)[:5]), areas(svg)[5:]
    for key, share in (("exposed", 20), ("memory", 5), ("comm", 20), ("busy", 45), ("idle", 10)):
        assert strip[key] == pytest.approx(share / 100 * PLOT * 14, rel=0.01)
    # Streams: 7 with 60 GEMM and 5 other; 20 with 40, of which 20 exposed; 21 with 4; 9 with 5 copies.
    expected = [("gemm", 60), ("compute", 5), ("exposed", 20), ("comm", 20), ("comm", 4), ("memory", 5)]
    assert [key for key, _ in lanes] == [key for key, _ in expected]
    assert [area for _, area in lanes] == pytest.approx([n / 100 * PLOT * 19 for _, n in expected], rel=0.01)


def test_more_ops_than_pixels_are_shares() -> None:
    """100,000 ops of 3 ns, one every 10: every column is three tenths full, none looks busy."""
    ops = [{"rank": 0, "start": 10 * i, "end": 10 * i + 3, "kind": "gemm"} for i in range(100_000)]
    svg = osc.timeline(made(ops, ranks=1), "0:1000000").svg()
    found = dict(areas(svg))
    assert found["busy"] == pytest.approx(0.3 * PLOT * 14, rel=0.05)
    assert found["gemm"] == pytest.approx(0.3 * PLOT * 19, rel=0.05)
    assert len(svg) < 100_000


def test_the_picture_is_of_what_is_in_view(tmp_path: Path) -> None:
    timeline = osc.timeline(osc.load(worked_example(tmp_path)), "0:100")
    timeline.view = (40, 60)  # exposed but for 50 to 55
    strip = dict(areas(timeline.svg())[:2])
    assert strip == pytest.approx({"exposed": 0.75 * PLOT * 14, "comm": 0.25 * PLOT * 14}, rel=0.01)


def test_the_picture_says_what_it_shows_in_words_and_colours() -> None:
    timeline = osc.timeline(osc.load(DATA))
    bundle = timeline._repr_mimebundle_()
    (alt,) = re.findall(r'^<img alt="([^"]*)"', bundle["text/html"])
    assert alt.startswith("Timeline of 2 ranks, ")
    assert "0.0 % of the communication is hidden under compute." in alt
    root = ElementTree.fromstring(picture(bundle))
    space = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{space}title").text == alt  # type: ignore[union-attr]
    words = [text.text for text in root.iter(f"{space}text")]
    assert {"rank 0", "rank 1", "time (ms)", "exposed communication"} <= set(words)
    style = root.find(f"{space}style").text or ""  # type: ignore[union-attr]
    light, dark = style.split("@media(prefers-color-scheme:dark)")
    assert f".exposed{{fill:{COLOURS['exposed'].light}}}" in light
    assert f".exposed{{fill:{COLOURS['exposed'].dark}}}" in dark


def test_names_are_text_in_the_picture(tmp_path: Path) -> None:
    timeline = osc.timeline(osc.load(hostile(tmp_path)))
    bundle = timeline._repr_mimebundle_()
    html, svg = bundle["text/html"], picture(bundle)
    assert html.count("<") == html.count(">") == 1
    ElementTree.fromstring(svg)
    assert "<script" not in svg
    for forbidden in ("\x1b", "\u202e", "\u200f", "x" * 5000):
        assert forbidden not in html + svg + bundle["text/plain"]


def test_many_ranks_are_drawn_as_far_as_there_is_room() -> None:
    ops = [{"rank": r, "start": 0, "end": 10 + r, "kind": "gemm"} for r in range(60)]
    svg = osc.timeline(made(ops, ranks=60)).svg()
    assert svg.count(">rank ") == 48
    assert "Drawn here: lanes of 1 of 60 ranks, states of 48; the page has all." in svg


def test_without_anywidget_a_cell_shows_the_picture() -> None:
    code = (
        "import sys; sys.modules['anywidget'] = None\n"
        "import overlapscope as osc\n"
        f"timeline = osc.timeline(osc.load({str(DATA)!r}))\n"
        "timeline.view = 30_000_000, 31_000_000\n"
        "print(sorted(timeline._repr_mimebundle_()), timeline.view, timeline.picked)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "['text/html', 'text/plain'] (30000000, 31000000) None\n"


# -- what is shared --------------------------------------------------------------------------------------------


@pytest.fixture
def anywidget() -> Any:
    return pytest.importorskip(
        "anywidget", reason="anywidget is not installed (pip install -e '.[notebook]')"
    )


def test_a_cell_shows_the_widget(anywidget: Any) -> None:
    timeline = osc.timeline(osc.load(DATA))
    bundle = timeline._repr_mimebundle_()
    assert list(bundle) == ["text/plain", "text/html", WIDGET]
    widget = timeline._widget
    assert bundle[WIDGET] == {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    assert timeline._repr_mimebundle_()[WIDGET] == bundle[WIDGET]  # shown twice it is one
    state = widget.get_state()
    assert state["payload"] == timeline.payload
    assert b"plotly.js v" in gzip.decompress(state["plotly"])[:200]
    assert (state["shown"], state["pinned"]) == (None, None)


def test_nothing_of_the_widget_is_on_the_network(anywidget: Any) -> None:
    from overlapscope.report.timeline.widget import TimelineWidget

    text = str(TimelineWidget._esm) + str(TimelineWidget._css)
    assert not re.findall(r"https?:|//[a-z]+\.|@import|url\(|\bimport\b", text)


def test_views_are_exact_beyond_what_javascript_can_count(anywidget: Any) -> None:
    far = 2**60
    ops = [{"rank": 0, "start": far, "end": far + 9, "kind": "gemm"}]
    timeline = osc.timeline(made(ops, ranks=1))
    assert timeline.view is None
    timeline.view = (far + 1, far + 8)  # before it is shown
    timeline._repr_mimebundle_()
    assert timeline._widget.shown == [1, 8]
    timeline._widget.shown = [3, 4]  # as from the browser
    assert timeline.view == (far + 3, far + 4)
    timeline.view = None
    assert timeline._widget.shown is None


@pytest.mark.parametrize("view", [(5, 5), (6, 5), (1,), (1, 2, 3), (0.5, 1.5), 7, "ab", (0, 2**70)])
def test_what_is_no_view_is_refused(view: Any) -> None:
    timeline = osc.timeline(osc.load(DATA))
    with pytest.raises(osc.OptionError, match="is no start and a later end, in whole ns"):
        timeline.view = view
    assert timeline.view is None


def test_what_was_picked_is_the_op(anywidget: Any, tmp_path: Path) -> None:
    timeline = osc.timeline(osc.load(worked_example(tmp_path)), "0:100")
    timeline._repr_mimebundle_()
    assert timeline.picked is None
    labels = [lane.label for lane in timeline._drawn.lanes]
    timeline._widget.pinned = [labels.index("stream 20"), 0]
    assert timeline.picked == {
        "rank": 0,
        "lane": "stream 20",
        "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
        "kind": "comm",
        "collective": "all_reduce",
        "start_ns": 30,
        "end_ns": 60,
        "duration_ns": 30,
        "exposed_ns": 15,
        "bytes": None,
        "path": None,
    }
    timeline._widget.pinned = [labels.index("stream 7"), 1]
    picked = timeline.picked
    assert picked is not None
    assert [picked[key] for key in ("kind", "start_ns", "end_ns", "exposed_ns")] == ["compute", 50, 55, None]


def test_picked_ranges_and_paths(anywidget: Any) -> None:
    timeline = osc.timeline(osc.load(DATA))
    timeline._repr_mimebundle_()
    lanes = timeline._drawn.lanes
    for number, lane in enumerate(lanes):
        timeline._widget.pinned = [number, 0]
        picked = timeline.picked
        assert picked is not None
        assert (picked["kind"] == "range") == lane.ranges
        assert (picked["rank"], picked["start_ns"]) == (lane.rank, int(lane.start[0]))
        assert {type(value) for value in picked.values()} <= {int, str, tuple, type(None)}
    reduced = next(lane for lane in lanes if not lane.ranges and len(lane.exposed))
    timeline._widget.pinned = [lanes.index(reduced), 0]
    picked = timeline.picked
    assert picked is not None
    assert picked["path"][-1].endswith("all_reduce")
    assert picked["bytes"] > 0
