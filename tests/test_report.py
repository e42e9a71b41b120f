"""What a report says and how: exact text at 80 columns, JSON that is pinned, names that are hostile."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import overlapscope as osc
from builders import TraceBuilder, kineto, nsys
from overlapscope.intervals import span
from overlapscope.report import document, export, markdown_text, opening, tables, text
from overlapscope.report.markdown import code
from overlapscope.report.words import duration, escape, percent, scale, shortened, size

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
HOSTILE = "evil\x1b[31m\n<script>|`x`\u202e[bold]kernel"


def two_ranks(tmp_path: Path) -> osc.Trace:
    """Two ranks, two measured steps and a warm-up, 10 ms each; the GPU work starts 1 ms into each."""
    t = TraceBuilder()
    ms = 1_000_000
    for rank in range(2):
        p = t.process(pid=100 + rank, rank=rank, world=2)
        g = p.device(rank)
        p.mark(f"rank {rank} of 2", 0, domain="overlapscope", category="rank")
        for i, (name, role) in enumerate((("warmup 0", "warmup"), ("step 0", "step"), ("step 1", "step"))):
            at = 10 * ms * i
            p.range(name, at, at + 10 * ms, domain="overlapscope", category=role)
            launch = (at + 10, at + 20)
            g.kernel(GEMM, at + ms, at + 5 * ms, stream=7, launch=launch)
            g.kernel(ALL_REDUCE, at + 4 * ms + rank * ms, at + 7 * ms, stream=20, launch=launch)
            g.kernel(HOSTILE, at + 8 * ms, at + 8 * ms + 500, stream=7, launch=launch)
            g.memcpy("DtoH", at + 8 * ms, at + 9 * ms, stream=9, launch=launch)
    return osc.load(nsys.write(t, tmp_path / "trace.sqlite", style="3.25"))


TEXT = """\
trace       trace.sqlite (nsys schema 3.25.0)
recorded by Nsight Systems 2026.2.1.210
ranks       2 ranks on NVIDIA H100 80GB HBM3, recorded by the program's marker
window      2 steps (step 0 to step 1), 16.000 ms together, 11.000 to 29.000 ms;
            1 warm-up step left out; 8 ops lie outside

20.0 % of the communication is hidden under compute.
Exposed: 2.000 ms of communication per step, 25.0 % of the step.
None of it is waiting for ranks that came late.
Hiding all of it could gain at most 25.0 % (1.33x).

Where the time went (ms, 2 steps together)

                            + exposed  + exposed
 rank    window  = compute       comm     memory  + idle    comm  hidden
 ───────────────────────────────────────────────────────────────────────
 0       16.000      8.001      4.000      1.999   2.000   6.000  33.3 %
 1       16.000      8.001      4.000      1.999   2.000   4.000   0.0 %

 mean    16.000      8.001      4.000      1.999   2.000   5.000  20.0 %
 share  100.0 %     50.0 %     25.0 %     12.5 %  12.5 %  31.2 %

Compute: >99.9 % GEMM. Communication under GEMMs: 20.0 %.

Upper bounds of the gain, all else as recorded, if
  no rank had to wait for another         nothing
  the link were infinitely fast           at most 25.0 % (1.33x)
  communication hid wherever compute is   at most 25.0 % (1.33x)

Slowdown of compute under communication: n/a. No op ran under it to 90 %.
Steps: median 8.000 ms (spread 0.000 ms), 2.000 ms of it exposed.

Communication (ms, 2 steps together, mean of 2 ranks)

 collective  count  bytes   time  exposed  = waiting  + transfer  hidden
 ───────────────────────────────────────────────────────────────────────
 all_reduce      2    n/a  5.000    4.000      0.000       4.000  20.0 %

Names that no rule knows, counted as compute (<0.1 % of all op time)

 name                                            count  sum (µs)
 ───────────────────────────────────────────────────────────────
 evil\\x1b[31m\\x0a<script>|`x`\\u202e[bold]kernel      4     2.000

Findings, worst first; they share time, so costs do not add up

1. 2.000 ms a step, 25.0 %: Exposed transfer that this compute could hide
   all_reduce: 2.000 ms of exposed transfer and enough compute to hide all of
   it; 4 ops in all.
   Try: compute to run beside it: chunked or ring GEMMs (Megatron
   --tp-comm-overlap, PyTorch async TP), backward collectives under weight
   gradients, gradient buckets, prefetched all-gathers.

2. 1.000 ms a step, 12.5 %: The GPU idles though work was launched
   4 times it was idle before an op whose launch had begun: median 1.000 ms,
   longest 1.000 ms, on rank 0 at 17.000 ms.
   Try: short ones, which a GPU needs from one kernel to the next: fewer and
   larger kernels, CUDA graphs; long ones: look at what the op waits for (an
   event, another stream, memory), and at its launch call, which takes long
   where a kernel is loaded at its first use (warm up, or
   CUDA_MODULE_LOADING=EAGER).

3. 1.000 ms a step, 12.5 %: Copies that nothing hides
   Memcpy DtoH.
   Try: pinned memory and non_blocking=True on a stream of their own, the next
   batch prefetched; keep on the GPU what goes to and fro; avoid contiguous(),
   cat, padding.
"""


def test_text_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_ranks(tmp_path)
    monkeypatch.chdir(tmp_path)
    shown = text.render(document.build(osc.load("trace.sqlite")))
    assert shown == TEXT
    assert max(map(len, shown.splitlines())) <= 80


def test_colour_adds_nothing_but_colour(tmp_path: Path) -> None:
    from rich.text import Text

    built = document.build(two_ranks(tmp_path))
    coloured = text.render(built, colour=True)
    assert "\x1b[1m" in coloured
    plain = "\n".join(line.rstrip() for line in Text.from_ansi(coloured).plain.splitlines()) + "\n"
    assert plain == text.render(built)


JSON_RANK_KEYS = [
    "rank",
    "device",
    "pid",
    "window_ns",
    "compute_ns",
    "gemm_ns",
    "attention_ns",
    "comm_ns",
    "memory_ns",
    "overlap_ns",
    "gemm_overlap_ns",
    "exposed_comm_ns",
    "exposed_wait_ns",
    "exposed_wire_ns",
    "exposed_unsplit_ns",
    "exposed_memory_ns",
    "idle_ns",
    "overlap_ratio",
    "gemm_overlap_ratio",
    "n_comm",
    "n_gemm",
    "n_ops",
]


def test_json_is_pinned(tmp_path: Path) -> None:
    said = json.loads(export.json_text(document.build(two_ranks(tmp_path))))
    assert list(said) == [
        "schema_version",
        "provenance",
        "ranks",
        "bounds",
        "collectives",
        "stragglers",
        "contention",
        "findings",
        "bandwidth",
        "bandwidth_by_size",
        "bandwidth_by_group",
        "unclassified",
        "warnings",
    ]
    assert said["schema_version"] == 1
    assert list(said["provenance"]) == [
        "sources",
        "lanes",
        "gpus",
        "ranks_from",
        "world_size",
        "clock",
        "alignment",
        "origin_ns",
        "command",
        "link",
        "peak",
        "from_ranges",
        "window",
        "unmatched",
        "dropped",
    ]
    assert said["provenance"]["window"] == {
        "mode": "steps",
        "steps": ["step 0", "step 1"],
        "left_out": ["warmup 0"],
        "without_ops": [],
        "n_ops_outside": 8,
        "bounds_ns": {
            "0": [[11_000_000, 19_000_000], [21_000_000, 29_000_000]],
            "1": [[11_000_000, 19_000_000], [21_000_000, 29_000_000]],
        },
    }
    assert list(said["ranks"][0]) == JSON_RANK_KEYS
    assert said["ranks"][1]["exposed_comm_ns"] == 4_000_000
    assert said["ranks"][1]["overlap_ratio"] == 0.0
    assert said["collectives"][0] == {
        "rank": 0,
        "collective": "all_reduce",
        "count": 2,
        "union_ns": 6_000_000,
        "sum_ns": 6_000_000,
        "overlap_ns": 2_000_000,
        "exposed_ns": 4_000_000,
        "exposed_wait_ns": 0,
        "exposed_wire_ns": 4_000_000,
        "exposed_unsplit_ns": 0,
        "bytes": None,
    }
    assert said["stragglers"] == [
        {"rank": 0, "collectives": 2, "last": 0, "late_ns": 0, "cost_ns": 0},
        {"rank": 1, "collectives": 2, "last": 2, "late_ns": 2_000_000, "cost_ns": 0},
    ]
    assert said["unclassified"] == [{"name": HOSTILE, "count": 4, "sum_ns": 2000}]
    assert said["warnings"] == []


def test_json_says_null_not_nan(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process(pid=1, rank=0, world=1, backend="gloo")
    p.op("aten::mm", 0, 10)
    told = export.json_text(document.build(osc.load(kineto.write(p, tmp_path / "r.json"))))
    rank = json.loads(told, parse_constant=lambda c: pytest.fail(f"{c} in JSON"))["ranks"][0]
    assert rank["overlap_ratio"] is None
    assert rank["device"] is None
    assert json.loads(told)["collectives"] == []


def test_csv_reads_back(tmp_path: Path) -> None:
    import pandas as pd

    built = document.build(two_ranks(tmp_path))
    table = pd.read_csv(io.StringIO(tables.csv(export.table(built))))
    assert list(table.columns) == JSON_RANK_KEYS
    assert table["exposed_comm_ns"].tolist() == built.overlap.ranks["exposed_comm_ns"].tolist()


def test_markdown_tables_hold_together(tmp_path: Path) -> None:
    """Every table of the terminal, and the name that nobody knows does not break out of its cell."""
    built = document.build(two_ranks(tmp_path))
    shown = markdown_text.render(built)
    assert shown.startswith("**20.0 % of the communication is hidden under compute.**\n")
    assert "- ranks: 2 ranks on NVIDIA H100 80GB HBM3, recorded by the program's marker\n" in shown
    rows = [line for line in shown.splitlines() if line.startswith("|")]
    assert (
        rows[0]
        == "| rank | window | = compute | + exposed comm | + exposed memory | + idle | comm | hidden |"
    )
    assert rows[2] == "| 0 | 16.000 | 8.001 | 4.000 | 1.999 | 2.000 | 6.000 | 33.3 % |"
    (hostile,) = [row for row in rows if "evil" in row]
    name = r"evil\\x1b\[31m\\x0a\<script\>\|\`x\`\\u202e\[bold\]kernel"
    assert hostile == f"| {name} | 4 | 2.000 |"  # µs
    titles = [
        line.split(" (")[0]
        for line in text.render(built).splitlines()
        if line.endswith(")") and " (ms" in line
    ]
    assert titles
    assert all(f"\n{title} (ms" in shown for title in titles)
    assert len({row.count("|") - row.count("\\|") for row in rows[:6]}) == 1


def test_only_some_ranks(tmp_path: Path) -> None:
    trace = two_ranks(tmp_path)
    built = document.build(trace, ranks=[1])
    assert built.overlap.ranks["rank"].tolist() == [1]
    assert "only 1 of 2 ranks are in these figures" in built.warnings
    with pytest.raises(osc.OptionError, match="--rank: 5 is not in the trace; it holds ranks 0, 1"):
        document.build(trace, ranks=[5])


def test_warnings_say_what_must_be_known(tmp_path: Path) -> None:
    t = TraceBuilder()
    g = t.process(pid=1).device(0)
    g.kernel("void flux::GemmRS<cutlass::gemm::kernel::GemmUniversal>(int)", 0, 10, stream=7)
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    fused = trace.names["fused_comm"].tolist()
    warnings = document.build(trace).warnings
    assert fused == [True]
    assert any("compute and communicate at once" in w for w in warnings)


def test_headline_knows_when_compute_is_too_short(tmp_path: Path) -> None:
    """100 of communication, 10 of compute: no more than 10 can hide."""
    t = TraceBuilder()
    g = t.process(pid=1).device(0)
    g.kernel(GEMM, 0, 10, stream=7)
    g.kernel(ALL_REDUCE, 10, 110, stream=20)
    lines = opening.headline(document.build(osc.load(nsys.write(t, tmp_path / "t.sqlite"))))
    assert lines == [
        "0.0 % of the communication is hidden under compute.",
        "Exposed: 100 ns of communication per window, 90.9 % of the window.",
        "There is compute to hide 10 ns of it: that could gain at most 9.1 % (1.10x).",
    ]


def test_no_communication(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.process(pid=1).device(0).kernel(GEMM, 0, 10, stream=7)
    built = document.build(osc.load(nsys.write(t, tmp_path / "t.sqlite")))
    assert opening.headline(built) == ["No communication was recorded in this window: nothing to hide."]
    assert "n/a" in text.render(built)


# -- words ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [
        (0, 10, "0.0 %"),
        (1, 3, "33.3 %"),
        (1, 100_000, "<0.1 %"),
        (99_999, 100_000, ">99.9 %"),
        (10, 10, "100.0 %"),
        (0, 0, "n/a"),
    ],
)
def test_percent(part: int, whole: int, said: str) -> None:
    assert percent(part, whole) == said


@pytest.mark.parametrize(
    ("ns", "said"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1500, "1.500 µs"),
        (2_000_000, "2.000 ms"),
        (9 * 10**9, "9,000.000 ms"),
        (10**10, "10.000 s"),
    ],
)
def test_duration(ns: int, said: str) -> None:
    assert duration(ns) == said


def test_scale_of_nothing() -> None:
    assert scale(0) == (1, "ns")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("plain <name> (x)", "plain <name> (x)"),
        ("gelü µs", "gelü µs"),
        ("a\x1b]0;t\x07b", "a\\x1b]0;t\\x07b"),
        ("a\u202eb\u2066", "a\\u202eb\\u2066"),
        ("a\x9bb", "a\\x9bb"),
        ("tab\there\r\n", "tab\\x09here\\x0d\\x0a"),
        ("line\u2028sep\u3000", "line\\u2028sep\\u3000"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_escape(name: str, said: str) -> None:
    assert escape(name) == said


def test_shortened_keeps_both_ends() -> None:
    assert shortened("a" * 10, 10) == "a" * 10
    cut: Any = shortened("head" + "x" * 50 + "tail", 20)
    assert len(cut) == 20
    assert cut.startswith("head")
    assert cut.endswith("tail")


def test_ranks_with_and_without_a_gpu_name(tmp_path: Path) -> None:
    """A name that is missing among others stays missing: neither a crash nor a NaN."""
    t = TraceBuilder()
    for rank in range(2):
        t.process(pid=rank + 1, rank=rank).device(0).kernel(GEMM, 0, 10, stream=7)
    a = nsys.write(t, tmp_path / "a.sqlite", gpu_info=False)
    u = TraceBuilder()
    u.process(pid=9).device(0).kernel(GEMM, 0, 10, stream=7)
    built = document.build(osc.load([a, nsys.write(u, tmp_path / "b.sqlite")]))
    assert built.gpus == ("NVIDIA H100 80GB HBM3",)
    assert "NaN" not in export.json_text(built)
    assert "3 ranks on NVIDIA H100 80GB HBM3" in text.render(built)


def test_mpi_on_the_host_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process(pid=1)
    p.device(0).kernel(GEMM, 0, 10, stream=7)
    p.range("MPI_Send", 10, 20, domain="MPI")
    warnings = document.build(osc.load(nsys.write(t, tmp_path / "t.sqlite"))).warnings
    assert "1 MPI calls on the host are in the trace; no figure counts them" in warnings


@pytest.mark.parametrize("step", [999, 12_345_678_901, 3_600_000_000_000])
def test_long_windows_are_not_cut(tmp_path: Path, step: int) -> None:
    t = TraceBuilder()
    for rank in range(3):
        g = t.process(pid=rank + 1, rank=rank).device(0)
        g.kernel(GEMM, 0, step, stream=7)
        g.kernel(ALL_REDUCE, step, 2 * step, stream=20)
        g.memcpy("HtoD", 2 * step, 3 * step, stream=7)
    shown = text.render(document.build(osc.load(nsys.write(t, tmp_path / "t.sqlite"))))
    table = shown.split("Where the time went")[1].split("Compute:")[0]
    assert "…" not in table
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("nbytes", "said"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (25_165_824, "25.2 MB"), (3e12, "3.0 TB")],
)
def test_size(nbytes: float, said: str) -> None:
    assert size(nbytes) == said


def test_a_window_that_misses_a_rank_says_so(tmp_path: Path) -> None:
    t = TraceBuilder()
    for rank in range(3):
        g = t.process(pid=rank + 1, rank=rank).device(0)
        g.kernel(GEMM, 1000 * rank, 1000 * rank + 100, stream=7)
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    warnings = document.build(trace, window="0:500").warnings
    assert "no op of ranks 1, 2 lies in the window: they count as idle in every mean" in warnings


def test_ops_without_launch_record_are_told_where_steps_are_cut(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process(pid=1)
    p.range("step 0", 0, 100)
    g = p.device(0)
    g.kernel(GEMM, 10, 20, stream=7, launch=(1, 2))
    g.kernel(GEMM, 5, 8, stream=7)
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    assert any(w.startswith("1 ops have no launch record") for w in document.build(trace).warnings)
    assert not any("launch record" in w for w in document.build(trace, window="whole").warnings)


@pytest.mark.parametrize("name", ["x``<img src=x onerror=alert(1)>``y", "``", "`", "a|b", ""])
def test_a_name_stays_inside_its_code_fence(name: str) -> None:
    shown = code(name)
    fence = shown[: len(shown) - len(shown.lstrip("`"))]
    inside = shown[len(fence) : -len(fence)]
    assert fence
    assert shown.endswith(fence)
    assert fence not in inside
    assert inside.strip()
    assert "|" not in inside.replace("\\|", "")


def test_idle_time_is_in_the_opening_where_it_is_most_of_all(tmp_path: Path) -> None:
    t = TraceBuilder()
    g = t.process(pid=1).device(0)
    g.kernel(GEMM, 0, 10, stream=7)
    g.kernel(ALL_REDUCE, 80, 100, stream=20)
    told = opening.headline(document.build(osc.load(nsys.write(t, tmp_path / "t.sqlite"))))
    assert told[-1] == "Most of the time is idle: 70 ns per window, 70.0 % of the window."


def test_what_is_not_seen_is_not_said_to_be_nothing(tmp_path: Path) -> None:
    """CUDA graphs that were traced as a whole, and MPI, may communicate."""
    t = TraceBuilder()
    p = t.process(pid=1)
    p.device(0).kernel(GEMM, 0, 10, stream=7)
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    told = "No communication was recorded in this window"
    assert opening.headline(document.build(trace)) == [f"{told}: nothing to hide."]
    graphs = replace(trace, graphs={0: span(20, 30)})
    assert (
        opening.headline(document.build(graphs))[0]
        == f"{told}, but what CUDA graphs communicated is not known."
    )
    p.range("MPI_Allreduce", 0, 5, domain="MPI")
    mpi = osc.load(nsys.write(t, tmp_path / "mpi.sqlite"))
    assert opening.headline(document.build(mpi))[0] == f"{told}, but what MPI communicated is not known."
