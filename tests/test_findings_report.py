"""Findings as a report shows them, on handmade traces with hostile names and on real ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import overlapscope as osc
from builders import TraceBuilder, nsys
from overlapscope.report import document, export, markdown_text, text

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
HOSTILE = "evil\x1b[31m\n<script>|`x`\u202e[bold]kernel"


def trace(tmp_path: Path, unknown: int) -> osc.Trace:
    """A millisecond with a kernel of a hostile name, launched in a range of that name."""
    t = TraceBuilder()
    p = t.process(pid=7, rank=0)
    g = p.device(0)
    p.range(HOSTILE, 0, 100)
    g.kernel(HOSTILE, 1_000, 1_000 + unknown, stream=7, launch=(10, 20))
    g.kernel(GEMM, 1_000 + unknown, 1_001_000, stream=7, launch=(30, 40))
    return osc.load(nsys.write(t, tmp_path / "t.sqlite"))


def test_no_finding_is_said(tmp_path: Path) -> None:
    built = document.build(trace(tmp_path, 19_999))
    said = "No finding costs 2 % of the window or more."
    assert f"\n\n{said}\n" in text.render(built)
    assert f"\n\n{said}\n" in markdown_text.render(built)
    assert json.loads(export.json_text(built))["findings"] == []


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    built = document.build(trace(tmp_path, 20_000))
    lines = text.render(built).splitlines()
    at = lines.index("Findings, worst first; they share time, so costs do not add up")
    escaped = r"evil\x1b[31m\x0a<script>|`x`\u202e[bold]kernel"
    assert lines[at + 2 : at + 5] == [
        "1. 0.020 ms a window, 2.0 %: Kernels that no rule knows count as compute",
        f"   1 op of 1 name, most of {escaped}. Most",
        f"   in {escaped}.",
    ]
    (line,) = [x for x in markdown_text.render(built).splitlines() if x.startswith("1. ")]
    assert "\x1b" not in line
    assert "<script>" not in line
    assert "\\<script\\>" in line
    (told,) = json.loads(export.json_text(built))["findings"]
    assert list(told) == ["id", "title", "cost_ns", "share", "ranks", "range", "evidence", "try"]
    assert (told["id"], told["cost_ns"], told["share"], told["ranks"]) == (
        "unknown-kernels",
        20_000,
        0.02,
        [0],
    )
    assert (told["range"], told["evidence"]["name"]) == ([HOSTILE], HOSTILE)


def test_a_sweep_has_none(tmp_path: Path) -> None:
    """Which is made to exchange and do nothing else."""
    t = TraceBuilder()
    for rank in range(2):
        p = t.process(pid=7 + rank, rank=rank, world=2)
        p.mark(f"rank {rank} of 2", 0, domain="overlapscope", category="rank")
        p.range("all_reduce 8 B, 2 float32 sum, 0 wrong", 0, 100, domain="overlapscope", category="sweep")
        p.device(rank).kernel(ALL_REDUCE, 200, 300, stream=20, launch=(10, 20))
        p.device(rank).kernel(GEMM, 300, 400, stream=20, launch=(200, 210))
    built = document.build(osc.load(nsys.write(t, tmp_path / "t.sqlite")))
    assert built.bandwidth is not None
    assert "Findings" not in text.render(built)
    assert "inding" not in markdown_text.render(built)
    assert json.loads(export.json_text(built))["findings"] == []


@pytest.mark.parametrize(
    ("file", "ids"),
    [
        ("nsys/pp-2rank-h100-schema3.25.sqlite", ["launch-gaps", "comm-on-compute-stream", "skew"]),
        (
            "nsys/ddp-2rank-rtx3090-schema3.27.sqlite",
            ["host-pauses", "launch-gaps", "comm-bound", "profiler-overhead"],
        ),
        (
            "nsys/graph-trace-schema3.24.sqlite",
            ["launch-gaps", "profiler-overhead", "graph-trace", "queued-idle", "unknown-kernels"],
        ),
        (
            "kineto/megatron-tp8-a100",
            ["straggler", "straggler", "skew", "host-pauses", "exposed-transfer"],
        ),
        ("kineto/resnet-1of2-v100.json.gz", ["exposed-copies", "exposed-transfer", "queued-idle"]),
        ("nsys/nvfuser-schema3.16.sqlite", ["host-pauses"]),
        ("nsys/lm-1gpu-schema3.17.sqlite", ["host-pauses", "queued-idle", "exposed-copies", "launch-gaps"]),
    ],
)
def test_real_traces(shared_traces: Path, file: str, ids: list[str]) -> None:
    assert [finding.id for finding in osc.findings(osc.load(shared_traces / file))] == ids


def test_what_real_traces_are_known_for(shared_traces: Path) -> None:
    """All of the pipeline's sends and all-to-alls share a stream with its compute; who is late in Megatron's step."""
    pipeline = osc.load(shared_traces / "nsys/pp-2rank-h100-schema3.25.sqlite")
    ranks = osc.overlap(pipeline).ranks
    told = {finding.id: finding for finding in osc.findings(pipeline)}["comm-on-compute-stream"]
    assert 2 * told.cost_ns == ranks["exposed_comm_ns"].sum() == ranks["comm_ns"].sum()
    assert told.evidence["streams"] == ["stream 7", "stream 15"]
    late = [
        f for f in osc.findings(osc.load(shared_traces / "kineto/megatron-tp8-a100")) if f.id == "straggler"
    ]
    assert [finding.ranks for finding in late] == [(0,), (6,)]
    assert [finding.evidence["reason"] for finding in late] == ["idle", "idle"]


def test_findings_survive_conversion(shared_traces: Path, tmp_path: Path) -> None:
    from overlapscope.formats import nsys as nsys_format

    for file in ("nsys/graph-trace-schema3.24.sqlite", "kineto/nccl-args-a100.json.gz"):
        first = osc.load(shared_traces / file)
        nsys_format.write(first, tmp_path / "t.sqlite", force=True)
        second = osc.load(tmp_path / "t.sqlite")
        assert osc.findings(second) == osc.findings(first)
        assert second.provenance.warnings == first.provenance.warnings
