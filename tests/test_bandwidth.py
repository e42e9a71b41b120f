"""Time and bandwidth of a sweep, from handmade traces whose figures are known; and how they are shown."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import overlapscope as osc
from builders import TraceBuilder, nsys
from overlapscope.analysis.bandwidth import BANDWIDTH_COLUMNS, Bandwidth, bandwidth, bus_factor, transfers
from overlapscope.analysis.rates import Peak
from overlapscope.formats.nsys import write
from overlapscope.markers import Point
from overlapscope.report import document, export, markdown_text, tables, text
from overlapscope.trace import Trace

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL"
STEP = 100_000
SMALL = Point("all_reduce", 1000, 250, "float32", "sum", 0)
LARGE = Point("all_reduce", 4000, 1000, "float32", "sum", 0)

Times = Sequence[tuple[int, int]]  # of each rank: start and end, from the exchange's begin


class Sweep:
    """Steps of exchanges on GPUs, each after a barrier, which is launched before its range and runs far into it."""

    def __init__(self, tmp_path: Path, ranks: int, kernel: str = ALL_REDUCE) -> None:
        self.folder, self.kernel = tmp_path, kernel
        self.builder = TraceBuilder()
        self.ranks = [self.builder.process(pid=100 + r, rank=r, world=ranks) for r in range(ranks)]
        self.devices = [p.device(r) for r, p in enumerate(self.ranks)]
        for rank, process in enumerate(self.ranks):
            process.mark(f"rank {rank} of {ranks}", 0, domain="overlapscope", category="rank")

    def step(self, number: int, exchanges: Sequence[tuple[Point, Times]], *, name: str | None = None) -> None:
        at = number * STEP
        role = "warmup" if name else "step"
        for rank, process in enumerate(self.ranks):
            process.range(name or f"step {number}", at, at + STEP, domain="overlapscope", category=role)
            for i, (point, times) in enumerate(exchanges):
                begin = at + 10_000 * (i + 1)
                if rank < len(times):
                    self.exchange(rank, begin, point, *times[rank])

    def exchange(self, rank: int, begin: int, point: Point, start: int, end: int) -> None:
        process, device = self.ranks[rank], self.devices[rank]
        barrier = (begin - 200, begin - 190)
        device.kernel(ALL_REDUCE, begin - 150, begin + 50, stream=20, launch=barrier)
        # It runs beyond the end of its range: a GPU's work is over later than the call that launched it.
        process.range(str(point), begin, begin + 30, domain="overlapscope", category="sweep")
        launch = (begin + 10, begin + 20)
        device.kernel(self.kernel, begin + start, begin + end, stream=20, launch=launch)

    def load(self) -> Trace:
        return osc.load(nsys.write(self.builder, self.folder / "trace.sqlite", style="3.25"))


def measured(trace: Trace, window: str | None = None, peak: float | None = None) -> Bandwidth:
    found = bandwidth(trace, osc.windows(trace, window), peak)
    assert found is not None
    return found


def worked(tmp_path: Path) -> Trace:
    """METRICS' example, scaled and grown: transfers of 300, 400 and 500 ns for 1000 B, of 1600 ns for 4000 B."""
    sweep = Sweep(tmp_path, 2)
    sweep.step(0, [(SMALL, [(100, 900), (100, 9000)]), (LARGE, [(0, 1), (0, 1)])], name="warmup 0")
    for k in range(3):
        sweep.step(k + 1, [(SMALL, [(100, 600), (300, 600 + 100 * k)]), (LARGE, [(500, 2000), (400, 2100)])])
    return sweep.load()


def test_time_runs_from_the_last_start_to_the_last_end(tmp_path: Path) -> None:
    table = measured(worked(tmp_path)).table
    assert list(table.columns) == list(BANDWIDTH_COLUMNS)
    assert table["time_ns"].tolist() == [400, 1600]
    assert table["p99_ns"].tolist() == [500, 1600]
    assert table["exchanges"].tolist() == [3, 3]
    assert table["algbw_gbs"].tolist() == [2.5, 2.5]
    assert table["busbw_gbs"].tolist() == [2.5, 2.5]  # 2 (2 - 1) / 2
    assert table["peak_gbs"].isna().all()
    told = table[["collective", "bytes", "count", "dtype", "redop", "ranks", "wrong"]].to_numpy().tolist()
    assert told == [
        ["all_reduce", 1000, 250, "float32", "sum", 2, 0],
        ["all_reduce", 4000, 1000, "float32", "sum", 2, 0],
    ]


def test_warm_up_counts_where_the_whole_trace_is_asked_for(tmp_path: Path) -> None:
    table = measured(worked(tmp_path), "whole").table
    assert table["exchanges"].tolist() == [4, 4]
    assert table["p99_ns"].tolist() == [8900, 1600]


def test_the_figures_outlive_a_file_of_our_own(tmp_path: Path) -> None:
    trace = worked(tmp_path)
    write(trace, tmp_path / "again.sqlite")
    pd.testing.assert_frame_equal(
        measured(osc.load(tmp_path / "again.sqlite")).table, measured(trace).table, check_exact=True
    )


@pytest.mark.parametrize(
    ("collective", "two", "four"),
    [
        ("all_reduce", 1, Fraction(3, 2)),
        ("all_gather", Fraction(1, 2), Fraction(3, 4)),
        ("reduce_scatter", Fraction(1, 2), Fraction(3, 4)),
        ("all_to_all", Fraction(1, 2), Fraction(3, 4)),
        ("send_recv", 1, 1),
        ("broadcast", 1, 1),
        ("other", None, None),
    ],
)
def test_bus_factors(collective: str, two: Fraction | None, four: Fraction | None) -> None:
    assert (bus_factor(collective, 2), bus_factor(collective, 4)) == (two, four)
    assert bus_factor(collective, 1) is None


def test_four_ranks(tmp_path: Path) -> None:
    point = Point("all_gather", 8000, 500, "float32", "none", 0)
    sweep = Sweep(tmp_path, 4, ALL_GATHER)
    sweep.step(0, [(point, [(0, 1000), (50, 1050), (200, 1200), (10, 900)])])
    (row,) = export.records(measured(sweep.load(), peak=16.0).table)
    assert (row["time_ns"], row["algbw_gbs"], row["busbw_gbs"], row["peak_gbs"]) == (1000, 8.0, 6.0, 16.0)


def test_of_a_hundred_the_99th(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, 2)
    for k in range(100):
        sweep.step(k, [(SMALL, [(100, 1000 - k)] * 2)])
    (row,) = export.records(measured(sweep.load()).table)
    assert (row["exchanges"], row["time_ns"], row["p99_ns"]) == (100, 850, 899)  # of 801 to 900


def test_what_one_rank_lacks_is_left_out_and_said(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, 2)
    sweep.step(0, [(SMALL, [(0, 10), (0, 10)])])
    sweep.step(1, [(SMALL, [(0, 99)])])  # rank 1 has none: the figures of the next must not shift
    sweep.step(2, [(SMALL, [(0, 30), (0, 30)])])
    sweep.exchange(1, STEP + 50_000, LARGE, 0, 7)
    sweep.exchange(0, STEP + 50_000, LARGE, 0, 7)
    sweep.exchange(0, STEP + 60_000, LARGE, 0, 7)  # which of the two is rank 1's one cannot be told
    found = measured(sweep.load())
    assert found.table["exchanges"].tolist() == [2, 0]
    assert found.table["time_ns"].tolist() == [10, pd.NA]
    assert found.table["p99_ns"].iloc[0] == 30
    assert found.notes == (
        "exchanges left out, since not every rank has them inside the window: 3",
        "sizes without a time: no exchange of them was recorded on all ranks inside the window",
    )


def test_a_window_s_edge_cuts_no_exchange_in_two(tmp_path: Path) -> None:
    trace = worked(tmp_path)
    # Up to the middle of the first exchange of 1000 B of step 2, on rank 0 already behind its end.
    found = measured(trace, f"{STEP}:{2 * STEP + 10_000 + 650}")
    assert found.table["exchanges"].tolist() == [1, 1]
    assert found.notes == ("exchanges left out, since not every rank has them inside the window: 1",)


def test_clocks_that_do_not_compare_give_no_times(tmp_path: Path) -> None:
    trace = worked(tmp_path)
    trace = replace(trace, provenance=replace(trace.provenance, clock="not aligned: for a reason"))
    found = measured(trace)
    assert found.table["time_ns"].isna().all()
    assert found.notes[0].startswith("no times: the clocks of the ranks' files are not aligned")


def test_a_clock_that_is_ahead_is_brought_back(tmp_path: Path) -> None:
    """Rank 1's file is 5 ms ahead: the ends of all exchanges tell, and its times are as before."""
    trace = worked(tmp_path)
    one = (trace.ops["rank"] == 1).to_numpy()
    moved = {c: trace.ops[c].where(~one, trace.ops[c] + 5_000_000) for c in ("start", "end", "launch")}
    ahead = (trace.ranges["rank"] == 1).to_numpy()
    ranges = {c: trace.ranges[c].where(~ahead, trace.ranges[c] + 5_000_000) for c in ("start", "end")}
    apart = replace(
        trace,
        ops=trace.ops.assign(**moved),
        ranges=trace.ranges.assign(**ranges),
        ranks=trace.ranks.assign(clock=[0, 1]),
    )
    found = document.build(apart)
    assert found.bandwidth is not None
    # Ends differ by up to 0.2 µs here, and a clock is set by their median.
    before, after = (
        t["time_ns"].astype("int64").to_numpy() for t in (measured(trace).table, found.bandwidth.table)
    )
    assert abs(after - before).max() <= 200
    assert abs(found.overlap.matching.clocks[1].offset - 5_000_000) <= 200


def test_a_rank_that_is_not_there_gives_no_times(tmp_path: Path) -> None:
    trace = document.only(worked(tmp_path), [1])
    found = measured(trace)
    assert found.table[["time_ns", "p99_ns", "algbw_gbs", "busbw_gbs"]].isna().all(axis=None)
    assert found.notes == ("no times: only 1 of 2 ranks are in the trace, and the last to start counts",)


def test_one_rank_alone_is_timed_by_its_copy_and_has_no_bus(tmp_path: Path) -> None:
    builder = TraceBuilder()
    process = builder.process(pid=7, rank=0, world=1)
    device = process.device(0)
    process.mark("rank 0 of 1", 0, domain="overlapscope", category="rank")
    process.range("step 0", 0, 10_000, domain="overlapscope", category="step")
    process.range(str(SMALL), 100, 200, domain="overlapscope", category="sweep")
    device.memcpy("DtoD", 150, 400, stream=7, launch=(110, 120))
    trace = osc.load(nsys.write(builder, tmp_path / "one.sqlite", style="3.25"))
    (row,) = export.records(measured(trace).table)
    assert (row["time_ns"], row["algbw_gbs"], row["busbw_gbs"]) == (250, 4.0, None)
    shown = text.render(document.build(trace))
    assert " 1000    250  float32    sum  0.25     0.25    4.00     n/a       0\n" in shown


def test_what_was_made_of_a_collective_is_said(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, 2)
    sweep.step(0, [(replace(SMALL, collective="reduce_scatter"), [(0, 10), (0, 10)])])
    found = measured(sweep.load())
    assert found.table["busbw_gbs"].tolist() == [50.0]
    assert found.notes == (
        "what was asked for as reduce_scatter was carried out, and stands in the trace, as all_reduce",
    )


def test_a_trace_without_a_sweep_has_none(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, 1)
    sweep.devices[0].kernel(ALL_REDUCE, 0, 10, stream=20)
    sweep.ranks[0].range("all_reduce of mine", 0, 30, domain="overlapscope", category="sweep")
    trace = sweep.load()
    assert bandwidth(trace, osc.windows(trace)) is None
    assert json.loads(export.json_text(document.build(trace)))["bandwidth"] == []


def test_transfers_of_any_instances() -> None:
    rows = pd.DataFrame(
        {"instance": ["a", "a", "b", "b"], "start": [100, 140, 5, 5], "end": [170, 170, 9, 8]}
    )
    assert transfers(rows).to_dict() == {"a": 30, "b": 4}  # METRICS' worked example, and one more


@pytest.mark.parametrize("name", ["", "all_reduce 8 B", f"{SMALL} ", f"x{SMALL}y", "a ١ B, 1 f s, 0 wrong"])
def test_what_is_no_point(name: str) -> None:
    assert Point.parse(name) is None


def test_a_point_is_read_back() -> None:
    assert Point.parse(str(SMALL)) == SMALL
    assert str(SMALL) == "all_reduce 1000 B, 250 float32 sum, 0 wrong"


TEXT = """\
all_reduce over 2 ranks: up to 2.50 GB/s busbw (1.0 kB); 0.40 µs at 1.0 kB.

all_reduce over 2 ranks, median of 3 exchanges of each size

 size                         time  slowest   algbw   busbw  % of
  (B)  count     type  redop  (µs)     (µs)  (GB/s)  (GB/s)  peak  #wrong
 ────────────────────────────────────────────────────────────────────────
 1000    250  float32    sum  0.40     0.50    2.50    2.50   5.0       0
 4000   1000  float32    sum  1.60     1.60    2.50    2.50   5.0       0
"""


def test_text_exactly(tmp_path: Path) -> None:
    shown = text.render(document.build(worked(tmp_path), peak=Peak(50.0, "as given")))
    assert TEXT in shown
    assert "hidden" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_the_table_is_of_all_ranks_whichever_are_asked_for(tmp_path: Path) -> None:
    trace = worked(tmp_path)
    one, every = document.build(trace, ranks=[1]), document.build(trace)
    assert one.bandwidth is not None
    assert every.bandwidth is not None
    pd.testing.assert_frame_equal(one.bandwidth.table, every.bandwidth.table)
    assert one.warnings == every.warnings == ()


def test_the_largest_that_are_seen_fit_the_line(tmp_path: Path) -> None:
    """8 GiB of bfloat16 in 12 s and of 8 GB at 900 GB/s."""
    point = Point("all_reduce", 8 << 30, 4 << 30, "bfloat16", "sum", 0)
    trace = worked(tmp_path)
    table = measured(trace, peak=900.0).table.head(1)
    table = table.assign(bytes=point.bytes, count=point.count, dtype=point.dtype, time_ns=9_543_717)
    table = table.assign(p99_ns=9_999_999_999, algbw_gbs=900.0, busbw_gbs=899.9)
    built = replace(document.build(trace), bandwidth=Bandwidth(table))
    assert max(map(len, text.render(built).splitlines())) <= 80


def test_json_csv_and_markdown(tmp_path: Path) -> None:
    built = document.build(worked(tmp_path), peak=Peak(50.0, "as given"))
    said = json.loads(export.json_text(built))
    assert said["bandwidth"][0] == {
        "collective": "all_reduce",
        "bytes": 1000,
        "count": 250,
        "dtype": "float32",
        "redop": "sum",
        "ranks": 2,
        "exchanges": 3,
        "time_ns": 400,
        "p99_ns": 500,
        "algbw_gbs": 2.5,
        "busbw_gbs": 2.5,
        "peak_gbs": 50.0,
        "wrong": 0,
    }
    read: Any = pd.read_csv(io.StringIO(tables.csv(export.table(built))))
    assert list(read.columns) == list(BANDWIDTH_COLUMNS)
    assert read["time_ns"].tolist() == [400, 1600]
    rows = [line for line in markdown_text.render(built).splitlines() if line.startswith("|")]
    assert rows[0] == (
        "| size (B) | count | type | redop | time (µs) | slowest (µs) | algbw (GB/s) | busbw (GB/s) | % of peak"
        " | #wrong |"
    )
    assert rows[2] == "| 1000 | 250 | float32 | sum | 0.40 | 0.50 | 2.50 | 2.50 | 5.0 | 0 |"
    assert len(rows) == 4
