"""Files whose clocks differ, through the command: what `report --align` makes of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import Collective, TraceBuilder, kineto
from overlapscope.cli import main
from overlapscope.formats import load, perfetto
from overlapscope.report import document, tracks
from overlapscope.report.timeline.lanes import lanes

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
US, MS = 1_000, 1_000_000
RANKS, TIMES, TRANSFER = 3, 120, 80 * US

Clock = Callable[[int], int]
"""What a rank's clock shows at a true time, ns."""


def true(time: int) -> int:
    return time


def ahead(time: int) -> int:
    return time + 5 * MS


def drifting(time: int) -> int:
    """40 µs a second, over 1.2 s."""
    return time + 5 * MS + round(40e-6 * time)


def rank_files(folder: Path, clocks: Sequence[Clock]) -> list[Path]:
    """Every 10 ms a GEMM and an all-reduce, to which ranks come up to 300 µs late, rank 2 most often last."""
    rng = np.random.default_rng(4)
    late = rng.integers(0, 300 * US, (TIMES, RANKS)) + np.array([0, 0, 150 * US])
    folder.mkdir()
    files = []
    for rank, clock in enumerate(clocks):
        t = TraceBuilder()
        device = t.process(pid=10 + rank, rank=rank, world=RANKS).device(rank)
        for i in range(TIMES):
            begun, latest = (10 * MS * (i + 1) + int(by) for by in (late[i, rank], late[i].max()))
            said = Collective("allreduce", 4 * MS, ranks=range(RANKS), group="tp", seq=i)
            device.kernel(GEMM, clock(begun - 200 * US), clock(begun), stream=7)
            device.kernel(ALL_REDUCE, clock(begun), clock(latest + TRANSFER), stream=20, collective=said)
        files.append(kineto.write(t.rank(rank), folder / f"rank{rank}.json.gz"))
    return files


def call(*arguments: object) -> int:
    with pytest.raises(SystemExit) as caught:
        main([str(a) for a in arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.fixture
def report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    def run(name: str, clocks: Sequence[Clock], *options: str) -> dict[str, Any]:
        files = rank_files(tmp_path / name, clocks)
        assert call("report", *files, "--format", "json", *options) == 0
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        return told

    return run


def figures(told: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Of each rank waiting and transfer, lateness and its cost, a collective's share of each; and the median time."""
    rows = [told["ranks"][r] | told["stragglers"][r] for r in range(RANKS)]
    names = ("exposed_wait_ns", "exposed_wire_ns", "late_ns", "cost_ns")
    sums = [row[name] / TIMES for row in rows for name in names]
    return np.array([*sums, told["bandwidth_by_size"][0]["time_ns"]])


def times_last(told: dict[str, Any]) -> list[int]:
    return [row["last"] for row in told["stragglers"]]


def test_one_clock_is_the_truth(report: Callable[..., dict[str, Any]]) -> None:
    told = report("true", [true] * RANKS)
    (row,) = told["bandwidth_by_size"]
    assert (row["bytes"], row["exchanges"], row["time_ns"], row["ranks"]) == (8 * MS, TIMES, TRANSFER, RANKS)
    assert [rank["exposed_wire_ns"] for rank in told["ranks"]] == [TIMES * TRANSFER] * RANKS
    assert max(range(RANKS), key=times_last(told).__getitem__) == 2
    same = report("session", [true] * RANKS, "--align", "session")
    assert np.array_equal(figures(same), figures(told))
    assert same["provenance"]["alignment"] == {"how": "", "ranks": {}}


def test_a_clock_that_is_ahead(report: Callable[..., dict[str, Any]]) -> None:
    told, moved = report("true", [true] * RANKS), report("ahead", [true, ahead, true])
    assert np.array_equal(figures(moved), figures(told))
    assert times_last(moved) == times_last(told)
    assert moved["provenance"]["alignment"]["ranks"]["1"]["offset_ns"] == 5 * MS
    assert [rank["window_ns"] for rank in moved["ranks"]] == [rank["window_ns"] for rank in told["ranks"]]


def test_a_clock_that_drifts(report: Callable[..., dict[str, Any]]) -> None:
    told, moved = report("true", [true] * RANKS), report("drift", [true, true, drifting])
    assert np.abs(figures(moved) - figures(told)).max() <= 2 * US
    assert times_last(moved) == times_last(told)
    assert moved["provenance"]["alignment"]["ranks"]["2"]["drift"] == pytest.approx(40e-6, rel=0.01)


@pytest.mark.parametrize(
    ("align", "clock", "says"),
    [
        ("session", ahead, "by each file's recorded wall clock"),
        ("none", ahead, "not aligned, as asked for: each file's own; times of ranks do not compare"),
        # That they would fit here, nothing says.
        ("none", true, "not aligned, as asked for: each file's own; times of ranks do not compare"),
    ],
)
def test_what_is_not_corrected_is_not_made_up(
    report: Callable[..., dict[str, Any]], align: str, clock: Clock, says: str
) -> None:
    """By the wall clock rank 1 begins when the others are done; without it no file says when another began."""
    told = report(align, [true, clock, true], "--align", align)
    assert told["provenance"]["clock"] == says
    assert [rank["exposed_wait_ns"] for rank in told["ranks"]] == [None] * RANKS
    assert told["bandwidth_by_size"] == told["stragglers"] == []
    (row,) = told["provenance"]["unmatched"]
    why = "clocks of their files are not aligned" if align == "none" else "end on one rank before they begin"
    assert (row["count"], row["what"], why in row["why"]) == (RANKS * TIMES, "all_reduce", True)
    each = [rank["exposed_unsplit_ns"] for rank in told["ranks"]]
    assert each == [rank["exposed_comm_ns"] for rank in told["ranks"]]
    assert told["provenance"]["alignment"]["ranks"] == {}


def test_pictures_are_drawn_on_one_clock(tmp_path: Path) -> None:
    drawn, written = [], []
    for name, clocks in (("true", [true] * RANKS), ("ahead", [true, ahead, true])):
        said = document.build(load(rank_files(tmp_path / name, clocks)))
        found = lanes(said.trace, said.overlap, most=99)
        drawn.append(
            (
                [(lane.rank, lane.start.tolist(), lane.end.tolist(), lane.exposed) for lane in found.lanes],
                [(strip.start.tolist(), strip.end.tolist(), strip.state.tolist()) for strip in found.strips],
                (found.start, found.end, found.steps),
            )
        )
        perfetto.write(said.trace, tmp_path / f"{name}.json", **tracks.of(said))
        events = json.loads((tmp_path / f"{name}.json").read_text())["traceEvents"]
        written.append([(event["pid"], event["name"], event["ts"], event.get("dur")) for event in events])
    assert drawn[0] == drawn[1]
    assert written[0] == written[1]


def test_what_begins_before_the_origin_is_kept(tmp_path: Path) -> None:
    """A range of a rank whose clock is ahead begins 4.9 ms before time 0, which Perfetto drops."""
    files = rank_files(tmp_path / "files", [true, ahead, true])
    rank1 = json.loads(gzip.decompress(files[1].read_bytes()))
    early = next(event for event in rank1["traceEvents"] if event.get("cat") == "kernel") | {
        "cat": "user_annotation",
        "name": "early",
        "ts": 100.0,
        "dur": 1.0,
    }
    rank1["traceEvents"].append(early)
    files[1].write_bytes(gzip.compress(json.dumps(rank1).encode()))
    said = document.build(load(files))
    perfetto.write(said.trace, tmp_path / "out.json", **tracks.of(said))
    told = json.loads((tmp_path / "out.json").read_text())
    times = {event["name"]: event["ts"] for event in told["traceEvents"] if event["ph"] == "X"}
    assert times["early"] == min(times.values()) == 0
    assert told["otherData"]["zero"].endswith(" ns before the trace's origin")


def test_an_unknown_way_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("report", tmp_path, "--align", "median") == 2
    said = "overlapscope: --align: 'median' is not known; choose from collectives, session, none\n"
    assert capsys.readouterr() == ("", said)
