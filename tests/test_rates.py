"""Rates of a program's collectives by size, from traces whose figures are known; and the peak beside them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import overlapscope as osc
from builders import Collective, TraceBuilder, kineto
from made import made
from overlapscope.analysis.bandwidth import bus_factor
from overlapscope.analysis.matching import match
from overlapscope.analysis.rates import RATE_COLUMNS, Peak, Rates, rates
from overlapscope.cli.peak import peak_of
from overlapscope.predict.gpus import by_name
from overlapscope.report import document, export
from overlapscope.trace import Trace
from workloads.link import Link

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"


def exchange(
    at: int,
    starts: Sequence[int],
    ends: Sequence[int],
    nbytes: int | None = None,
    collective: str = "all_reduce",
    ranks: Sequence[int] | None = None,
    **more: int,
) -> list[dict[str, Any]]:
    """One collective: from `at`, its starts and ends on each rank."""
    known = {"communicator": 0} | ({} if nbytes is None else {"bytes": nbytes})
    return [
        {"rank": rank, "start": at + start, "end": at + end, "kind": "comm", "collective": collective}
        | known
        | more
        for rank, start, end in zip(ranks or range(len(starts)), starts, ends, strict=True)
    ]


def rated(trace: Trace, window: str | None = "whole", peak: Peak | None = None) -> Rates:
    return rates(trace, match(trace), osc.windows(trace, window), peak)


def on(trace: Trace, gpus: Sequence[str | None], clocks: Sequence[int], devices: Sequence[int]) -> Trace:
    return replace(trace, ranks=trace.ranks.assign(gpu=list(gpus), clock=list(clocks), device=list(devices)))


def test_from_the_last_start_to_the_last_end() -> None:
    """Transfers of 300, 400 and 500 ns for 6000 B, of 100 for 800 B; over four ranks."""
    ops = []
    for i, time in enumerate((400, 300, 500)):
        ops += exchange(10_000 * i, (0, 50, 200, 10), (200 + time, 190 + time, 195 + time, 201), 6000)
    ops += exchange(50_000, (0, 0, 0, 7), (107, 107, 107, 107), 800, "all_gather")
    found = rated(made(ops, ranks=4))
    assert list(found.table.columns) == list(RATE_COLUMNS)
    assert export.records(found.table) == [
        {
            "collective": "all_gather",
            "bytes": 800,
            "ranks": 4,
            "exchanges": 1,
            "sum_ns": 100,
            "time_ns": 100,
            "p99_ns": 100,
            "algbw_gbs": 8.0,
            "busbw_gbs": 6.0,
            "peak_gbs": None,
        },
        {
            "collective": "all_reduce",
            "bytes": 6000,
            "ranks": 4,
            "exchanges": 3,
            "sum_ns": 1200,
            "time_ns": 400,
            "p99_ns": 500,
            "algbw_gbs": 15.0,
            "busbw_gbs": 22.5,
            "peak_gbs": None,
        },
    ]
    assert found.notes == ()


def test_what_has_no_rate() -> None:
    """Unknown bytes, unlike bytes, and a broadcast of which waiting is not told from transfer; a barrier's bus."""
    ops = exchange(0, (0, 5), (20, 20))
    ops += exchange(1_000, (0, 5), (20, 20), 64, communicator=1)
    ops[-1]["bytes"] = 32
    ops += exchange(2_000, (0, 50), (10, 60), 64, "broadcast")
    ops += exchange(3_000, (0, 5), (15, 15), 64, "other")
    (row,) = export.records(rated(made(ops)).table)
    assert (row["collective"], row["algbw_gbs"], row["busbw_gbs"]) == ("other", 6.4, None)


def test_no_time_is_no_rate() -> None:
    (row,) = export.records(rated(made(exchange(0, (0, 5), (5, 5), 64))).table)
    assert (row["time_ns"], row["algbw_gbs"], row["busbw_gbs"]) == (0, None, None)


def test_a_window_s_edge_leaves_out_and_counts() -> None:
    ops = [op for i in range(4) for op in exchange(1_000 * i, (0, 40), (140, 140 + 10 * i), 1000)]
    found = rated(made(ops), "100:2145")  # cuts the first, and the third on one rank
    assert export.records(found.table)[0]["time_ns"] == 110
    assert found.notes == (
        "bandwidth is without 2 collectives, which not every rank has whole inside the window",
    )
    built = document.build(made(ops), window="100:2145")
    assert built.warnings[-1:] == found.notes


def test_all_ranks_count_whichever_are_asked_for() -> None:
    trace = made(exchange(0, (0, 40), (140, 150), 1000))
    one, every = document.build(trace, ranks=[0]), document.build(trace)
    pd.testing.assert_frame_equal(one.rates.table, every.rates.table)
    assert every.rates.table["time_ns"].tolist() == [110]


def groups() -> list[dict[str, Any]]:
    """Ranks 0, 1 and 2, 3 are groups, and so are 0, 2 and 1, 3: 100 and 200 ns for 1000 B."""
    ops = []
    for i in range(3):
        for g, ranks in enumerate([(0, 1), (2, 3), (0, 2), (1, 3)]):
            size = 1000 if g < 2 else 2000
            more = {"communicator": g, "group": 2}
            ops += exchange(1_000 * i + 500 * (g > 1), (0, 0), (size // 10,) * 2, size, ranks=ranks, **more)
    return ops


def test_a_link_inside_nodes_is_no_peak_between_them() -> None:
    trace = on(made(groups(), ranks=4), [A100] * 4, [0, 1, 2, 3], [0, 1, 0, 1])  # two nodes of two
    inside = rated(trace, peak=Peak(300.0, "", within_node=True)).table
    assert inside[["bytes", "ranks"]].to_numpy().tolist() == [[1000, 2], [2000, 2]]
    assert inside["peak_gbs"].tolist() == [300.0, pd.NA]
    assert inside["busbw_gbs"].tolist() == [10.0, 10.0]
    given = rated(trace, peak=Peak(25.0, "")).table
    assert given["peak_gbs"].tolist() == [25.0, 25.0]
    one_machine = trace.ranks.assign(clock=0)
    assert Peak(300.0, "", within_node=True).among(one_machine) == 300.0


@pytest.mark.parametrize(
    ("name", "link"),
    [
        (A100, "nvlink3"),
        ("A100-SXM-80GB", "nvlink3"),
        ("NVIDIA A100-SXM4-40GB", "nvlink3"),
        (H100, "nvlink4"),
        ("NVIDIA H200", "nvlink4"),
        ("NVIDIA B200", "nvlink5"),
        ("NVIDIA GB200", "nvlink5"),
        ("NVIDIA A100-PCIE-40GB", None),
        ("NVIDIA A100 80GB PCIe", None),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", None),
        ("NVIDIA A100-PG509-200", None),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA GeForce RTX 3090", None),
        ("Tesla V100-SXM2-32GB", None),
        ("NVIDIA A800-SXM4-80GB", None),
    ],
)
def test_links_of_gpus_by_name(name: str, link: str | None) -> None:
    gpu = by_name(name)
    assert (gpu.link if gpu else None) == link


def test_which_peak_is_taken() -> None:
    trace = on(made(exchange(0, (0, 0), (10, 10), 1500)), [H100] * 2, [0, 1], [0, 1])
    found = peak_of(trace)
    assert found is not None
    assert (found.gbs, found.within_node) == (450.0, True)
    given = peak_of(trace, "ndr")
    assert given is not None
    assert (given.gbs, given.within_node) == (50.0, False)
    paced = replace(trace, provenance=replace(trace.provenance, link="0.2 GB/s, 5 us"))
    of_pace = peak_of(paced)
    assert of_pace is not None
    assert (of_pace.gbs, of_pace.how) == (0.2, "0.2 GB/s each way: the link was paced")
    assert peak_of(on(trace, [A100, H100], [0, 1], [0, 1])) is None
    assert peak_of(on(trace, [H100, None], [0, 1], [0, 1])) is None
    with pytest.raises(osc.OptionError, match="no link; did you mean nvlink4") as told:
        peak_of(trace, "nvlink44")
    assert told.value.about == "--link"


@pytest.mark.parametrize(
    "collective", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]
)
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_pretended_link_has_the_same_factors(collective: str, ranks: int) -> None:
    """`workloads` stands alone and states them again."""
    factor = bus_factor(collective, ranks)
    assert factor is not None
    assert Link(0.0, 1e9).seconds(collective, 10**9, ranks) == pytest.approx(float(factor))


def rank_files(tmp_path: Path, gpu: str) -> list[Path]:
    """Two ranks: 11 all-reduces of sizes 1 to 11 MB, 10 µs each MB; rank 1 comes 3 µs later."""
    files = []
    for rank in range(2):
        t = TraceBuilder()
        g = t.process(pid=10 + rank, rank=rank, world=2).device(rank, gpu)
        for i in range(1, 12):
            at = 1_000_000 * i
            said = Collective("allreduce", 500_000 * i, group="tp", seq=i)
            g.kernel(ALL_REDUCE, at + 3_000 * rank, at + 3_000 + 10_000 * i, stream=20, collective=said)
        files.append(kineto.write(t.rank(rank), tmp_path / f"rank{rank}.json"))
    return files


def report(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "overlapscope", "report", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_command(tmp_path: Path) -> None:
    files = rank_files(tmp_path, A100)
    told = json.loads(report(*files, "--format", "json").stdout)
    assert told["provenance"]["peak"] == {
        "gbs": 300.0,
        "how": f"300 GB/s each way: NVLink 3 of {A100}, inside a node (if it is another, give --link)",
    }
    assert [row["busbw_gbs"] for row in told["bandwidth_by_size"]] == [100.0] * 11
    shown = report(*files, "--link", "200GB/s,3us").stdout
    assert "peak        200 GB/s each way, as --link says\n" in shown
    assert " all_reduce  11.0 MB      2      1    110.00  100.00  100.00  50.0\n" in shown
    assert "3 more sizes, of less time: the JSON lists all\n" in shown
    assert max(map(len, shown.splitlines())) <= 80
    wrong = report(*files, "--link", "fast")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.count("\n") == 1
    assert "--link: 'fast' is no link; give a speed and a latency" in wrong.stderr
