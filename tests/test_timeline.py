"""The timeline before a browser sees it: lanes, states, payload, page and command."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import overlapscope as osc
from builders import TraceBuilder, nsys
from made import made
from overlapscope.intervals import stacked
from overlapscope.report.colours import COLOURS
from overlapscope.report.timeline.lanes import STATES, Lanes, lanes
from overlapscope.report.timeline.payload import MAGIC

DATA = Path(__file__).parent / "data" / "cpu-block-tp2"


def worked_example(path: Path) -> Path:
    """The example of the metrics: one rank, window 0 to 100."""
    t = TraceBuilder()
    g = t.process(pid=4242, rank=0).device(0)
    for name, start, end, stream in (
        ("ampere_bf16_s16816gemm_bf16_128x128_nn", 0, 40, 7),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 30, 60, 20),
        ("elementwise", 50, 55, 7),
        ("ampere_bf16_s16816gemm_bf16_128x128_nn", 70, 90, 7),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 85, 95, 20),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 88, 92, 21),
    ):
        g.kernel(name, start, end, stream=stream)
    g.memcpy("HtoD", 60, 65, stream=9)
    return nsys.write(t, path / "worked.sqlite", style="3.25")


def laid_out(trace: osc.Trace, window: str | None = None, most: int = 400) -> Lanes:
    return lanes(trace, osc.overlap(trace, window), most=most)


def read(payload: bytes) -> tuple[dict[str, Any], Any]:
    """A payload's header, and what reads a column: written from the description in payload.py alone."""
    whole = gzip.decompress(payload)
    assert whole[: len(MAGIC)] == MAGIC
    length = int.from_bytes(whole[len(MAGIC) : len(MAGIC) + 4], "little")
    base = len(MAGIC) + 4 + length

    def column(place: list[int]) -> list[int]:
        offset, width, n = place
        part = whole[base + offset : base + offset + width * n]
        return [sum(part[byte * n + i] << (8 * byte) for byte in range(width)) for i in range(n)]

    return json.loads(whole[len(MAGIC) + 4 : base]), column


# -- lanes and states ----------------------------------------------------------------------------------------


def test_worked_example(tmp_path: Path) -> None:
    drawn = laid_out(osc.load(worked_example(tmp_path)), "0:100")
    (strip,) = drawn.strips
    assert [strip.total(s) for s in STATES] == [65 - 20, 20, 20, 5, 10]
    seen = [
        (STATES[s], a, b)
        for s, a, b in zip(strip.state.tolist(), strip.start.tolist(), strip.end.tolist(), strict=True)
    ]
    assert seen == [
        ("compute", 0, 30), ("overlapped", 30, 40), ("exposed_comm", 40, 50), ("overlapped", 50, 55),
        ("exposed_comm", 55, 60), ("exposed_memory", 60, 65), ("idle", 65, 70), ("compute", 70, 85),
        ("overlapped", 85, 90), ("exposed_comm", 90, 95), ("idle", 95, 100),
    ]  # fmt: skip
    assert [lane.label for lane in drawn.lanes] == ["stream 7", "stream 20", "stream 21", "stream 9"]
    pieces = {
        lane.label: list(zip(lane.exposed.start.tolist(), lane.exposed.end.tolist(), strict=True))
        for lane in drawn.lanes
    }
    assert pieces == {
        "stream 7": [],
        "stream 20": [(40, 50), (55, 60), (90, 95)],
        "stream 21": [],
        "stream 9": [],
    }


def test_what_runs_at_once_on_a_stream_gets_lanes_of_its_own() -> None:
    ops = [
        {"rank": 0, "start": a, "end": b, "kind": "gemm"}
        for a, b in ((0, 10), (5, 8), (6, 20), (8, 9), (30, 31))
    ]
    drawn = laid_out(made(ops, ranks=1))
    assert [(lane.row, lane.start.tolist()) for lane in drawn.lanes] == [(0, [0, 30]), (1, [5, 8]), (2, [6])]


def test_ranges_lie_by_depth_and_thread_and_open_ones_are_told() -> None:
    ranges = [
        {"rank": 0, "thread": thread, "start": a, "end": b, "name": name}
        for thread, a, b, name in (
            (1, 0, 100, "outer"), (1, 10, 50, "inner"), (1, 20, 30, "leaf"), (1, 60, 70, "inner"), (2, 5, 6, "other"),
            (1, 3, osc.NA, "never closed"),
        )
    ]  # fmt: skip
    drawn = laid_out(made([{"rank": 0, "start": 0, "end": 100, "kind": "gemm"}], ranges, ranks=1))
    told = [(lane.label, lane.row, lane.start.tolist()) for lane in drawn.lanes if lane.ranges]
    assert told == [
        ("ranges, thread 1", 0, [0]), ("ranges, thread 1", 1, [10, 60]), ("ranges, thread 1", 2, [20]),
        ("ranges, thread 2", 0, [5]),
    ]  # fmt: skip
    assert drawn.left_out == ("1 ranges were never closed and are not drawn",)


def test_steps_begin_with_the_first_op_launched_in_them() -> None:
    ops = [
        {"rank": 0, "start": a, "end": b, "kind": "gemm", "launch": at, "thread": 1}
        for a, b, at in ((10, 20, 1), (20, 30, 5), (40, 60, 35))
    ]
    ranges = [
        {"rank": 0, "thread": 1, "start": a, "end": b, "name": name}
        for a, b, name in ((0, 8, "warmup 0"), (33, 39, "step 1"))
    ]
    drawn = laid_out(made(ops, ranges, ranks=1), "whole")
    assert [(s.name, s.start, s.end, s.warmup) for s in drawn.steps] == [
        ("warmup 0", 10, 30, True),
        ("step 1", 40, 60, False),
    ]


def test_lanes_beyond_the_limit_are_each_ranks_least_busy_and_figures_keep_them() -> None:
    ops = [
        {"rank": rank, "start": a, "end": b, "kind": kind}
        for rank in (0, 1)
        for a, b, kind in ((0, 50, "gemm"), (10, 30, "comm"), (20, 90, "comm"))
    ]
    trace = made(ops)
    every, few = laid_out(trace), laid_out(trace, most=3)
    assert (len(every.lanes), len(few.lanes)) == (6, 3)
    assert [(lane.rank, lane.row) for lane in few.lanes] == [(0, 0), (0, 2), (1, 2)]  # 50, 70 and 70 ns
    assert few.left_out[0].startswith("3 of 6 lanes are not drawn (3 ops and ranges")
    for a, b in zip(every.strips, few.strips, strict=True):
        assert [a.total(s) for s in STATES] == [b.total(s) for s in STATES] == [10, 40, 40, 0, 0]


KINDS = [kind.value for kind in osc.Kind]
OPS = st.lists(
    st.builds(
        lambda rank, start, length, kind: {"rank": rank, "start": start, "end": start + length, "kind": kind},
        st.integers(0, 1), st.integers(-40, 60), st.integers(0, 30), st.sampled_from(KINDS),
    ),
    min_size=1,
    max_size=30,
)  # fmt: skip


@given(OPS, st.sampled_from([None, "5:40"]))
def test_states_and_pieces_are_the_reports_figures(ops: list[dict[str, Any]], window: str | None) -> None:
    trace = made(
        [
            *ops,
            {"rank": 0, "start": 10, "end": 20, "kind": "comm"},
            {"rank": 1, "start": 9, "end": 20, "kind": "gemm"},
        ]
    )
    result = osc.overlap(trace, window)
    drawn = lanes(trace, result, most=400)
    for row, strip in zip(result.ranks.to_dict("records"), drawn.strips, strict=True):
        told = {state: strip.total(state) for state in STATES}
        assert told["compute"] + told["overlapped"] == row["compute_ns"]
        assert told["overlapped"] == row["overlap_ns"]
        assert told["exposed_comm"] == row["exposed_comm_ns"]
        assert told["exposed_memory"] == row["exposed_memory_ns"]
        assert told["idle"] == row["idle_ns"]
        mine = [lane for lane in drawn.lanes if lane.rank == row["rank"]]
        assert (
            sum(int((lane.exposed.end - lane.exposed.start).sum()) for lane in mine) == row["exposed_comm_ns"]
        )
        for lane in mine:
            assert (lane.start[1:] >= lane.end[:-1]).all()
            for a, b in zip(lane.exposed.start, lane.exposed.end, strict=True):
                assert ((lane.start <= a) & (b <= lane.end)).any()


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=40))
def test_stacked_rows_are_disjoint_and_as_few_as_run_at_once(pairs: list[tuple[int, int]]) -> None:
    start = np.array([a for a, _ in pairs], np.int64)
    end = start + np.array([n for _, n in pairs], np.int64)
    row = stacked(start, end)
    for number in set(row.tolist()):
        mine = sorted((int(a), int(b)) for a, b in zip(start[row == number], end[row == number], strict=True))
        assert all(later[0] >= earlier[1] for earlier, later in itertools.pairwise(mine))
    solid = end > start
    if solid.any():
        deepest = max(int(((start <= t) & (t < end)).sum()) for t in start[solid])
        assert stacked(start[solid], end[solid]).max() + 1 == deepest


# -- payload and page ----------------------------------------------------------------------------------------


def test_payload_holds_the_trace(tmp_path: Path) -> None:
    trace = osc.load(worked_example(tmp_path))
    header, column = read(osc.timeline(trace, "0:100").payload)
    assert (header["zero"], header["start"], header["end"]) == ("0", 0, 100)
    lane = next(lane for lane in header["lanes"] if lane["label"] == "stream 20")
    assert (lane["first"], column(lane["gap"]), column(lane["duration"])) == (30, [0, 25], [30, 10])
    names = [header["names"][i] for i in column(lane["name"])]
    assert [n[0] for n in names] == ["ncclDevKernel_AllReduce_Sum_bf16_RING_LL"] * 2
    assert {(header["kinds"][n[2]], n[3]) for n in names} == {("comm", "all_reduce")}
    (strip,) = header["strips"]
    assert (strip["extra"]["first"], column(strip["extra"]["gap"])) == (100, [0])  # the window's end, no op's
    # By edge 0 30 40 50 55 60 65 70 85 88 90 92 95 100; lanes of ops are 7, 20, 21, 9.
    assert column(strip["code"]) == [0, 1, 7, 1, 7, 3, 4, 0, 1, 1, 7, 7, 4, 5]


def test_figures_are_those_of_the_json_report() -> None:
    trace = osc.load(DATA)
    header, _ = read(osc.timeline(trace).payload)
    report = json.loads(run("report", DATA, "--format", "json").stdout)
    keys = (
        "window_ns",
        "compute_ns",
        "exposed_comm_ns",
        "exposed_memory_ns",
        "idle_ns",
        "comm_ns",
        "overlap_ns",
    )
    assert [{k: r[k] for k in ("rank", *keys)} for r in header["ranks"]] == [
        {k: r[k] for k in ("rank", *keys)} for r in report["ranks"]
    ]
    assert {s["rank"]: s["cost_ns"] for s in report["stragglers"]} == {
        r["rank"]: r["cost_ns"] for r in header["ranks"]
    }


def test_times_far_from_the_origin_stay_exact() -> None:
    far = 2**60 + 1
    header, column = read(
        osc.timeline(made([{"rank": 0, "start": far, "end": far + 7, "kind": "gemm"}], ranks=1)).payload
    )
    assert (header["zero"], header["start"], header["end"]) == (str(far), 0, 7)
    assert f"times count from {far:,} ns" in header["warnings"][0]
    assert column(header["lanes"][0]["duration"]) == [7]
    long = made([{"rank": 0, "start": 0, "end": 2**52, "kind": "gemm"}], ranks=1)
    with pytest.raises(osc.OptionError, match=r"^--window: a timeline of more than 26 days"):
        osc.timeline(long)


HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\"'`&quot;<!--",
    "\x1b[31mred\x1b[0m",
    "a\u202egnp.exe\u200f",
    "{title}%s${1}",
    "x" * 100_000,
)


def hostile(path: Path) -> Path:
    """Names that would like to be more than names, in kernels, ranges, streams and the file's own."""
    t = TraceBuilder()
    process = t.process(pid=1, rank=0)
    g = process.device(0)
    for i, name in enumerate(HOSTILE):
        process.range(name, 100 * i, 100 * i + 90)
        g.kernel(name, 100 * i, 100 * i + 60, stream=7)
        g.kernel(f"ncclDevKernel_AllReduce_{name}", 100 * i + 50, 100 * i + 80, stream=20)
    folder = path / "<img src=x onerror=alert(1)>"
    folder.mkdir()
    return nsys.write(t, folder / "'\"><script>alert(1)<script>.sqlite", style="3.25")


def test_names_are_text(tmp_path: Path) -> None:
    made_of = osc.timeline(osc.load(hostile(tmp_path)))
    page = made_of.html()
    for forbidden in ("alert(1)", "onerror", "\x1b", "\u202e", "\u200f"):
        assert forbidden not in re.sub(r"<title>.*?</title>", "", page)
    (title,) = re.findall(r"<title>(.*)</title>", page)
    assert "<" not in title
    assert '"' not in title
    # The page's own three scripts, the payload and Plotly: nothing else opens a script.
    assert page.count("<script") == page.count("</script>") == 5
    header, _ = read(made_of.payload)
    assert all(len(name) <= 4096 for name, *_ in header["names"])
    assert "\\x1b[31mred\\x1b[0m" in [name for name, *_ in header["names"]]


def test_the_page_asks_for_nothing() -> None:
    page = osc.timeline(osc.load(DATA)).html()
    text = re.sub(r'<script type="application/octet-stream".*?</script>', "", page, flags=re.DOTALL)
    assert not re.findall(r"https?:|//[a-z]+\.|@import|url\(", text)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]


def test_the_same_trace_makes_the_same_page() -> None:
    assert osc.timeline(osc.load(DATA)).html() == osc.timeline(osc.load(DATA)).html()


# -- colours -------------------------------------------------------------------------------------------------

# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB.
SIGHT = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}


def lab(colour: str, sight: str) -> Any:
    """CIELAB (D65) of a colour as some eyes see it."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(SIGHT[sight] @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    f = np.cbrt(xyz / np.array([0.95047, 1.0, 1.08883]))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_colours_can_be_told_apart(sight: str, mode: str) -> None:
    """A difference of 10 in CIELAB is seen at a glance (2.3 is just noticeable)."""
    seen = {key: lab(getattr(colour, mode), sight) for key, colour in COLOURS.items()}
    pairs = [(a, b) for a in seen for b in seen if a < b]
    near = {(a, b): float(np.linalg.norm(seen[a] - seen[b])) for a, b in pairs}
    # Ranges and idle time are the same kind of grey, and never on one lane.
    del near["idle", "range"]
    assert {pair: round(d, 1) for pair, d in near.items() if d < 10} == {}
    assert min(d for pair, d in near.items() if "exposed" in pair) > 20


# -- the command ---------------------------------------------------------------------------------------------


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "overlapscope", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_command_writes_a_page_and_keeps_what_is_there(tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    done = run("timeline", DATA, "-o", page, "--rank", "1", "--window", "whole", "--max-lanes", "2")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{page}\n", "")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    again = run("timeline", DATA, "-o", page)
    assert again.returncode == 2
    assert (
        again.stderr
        == f"overlapscope: {page}: exists already; choose another name or pass --force to replace it\n"
    )
    assert run("timeline", DATA, "-o", page, "--force").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rank", "7"), "--rank: 7 is not in the trace; it holds ranks 0, 1"),
        (("--window", "5"), "--window: cannot read '5'"),
        (("--align", "x"), "--align: 'x' is not known"),
        (("--max-lanes", "0"), "'--max-lanes'"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = run("timeline", DATA, "-o", tmp_path / "x.html", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
