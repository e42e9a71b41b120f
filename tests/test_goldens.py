"""A small trace of our own: two ranks of the block on a CPU, as torch.profiler wrote it.

Made by ``overlapscope run --workload block --tp 2 --hidden 64 --heads 4 --seq 32 --batch 1 --steps 2 --keep-json`` with
PyTorch 2.13.0 (CPU) on 2026-11-29; host name and path taken out of the text, numbers untouched.
"""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import overlapscope as osc
from overlapscope.formats import nsys
from overlapscope.report import document, text

DATA = Path(__file__).parent / "data" / "cpu-block-tp2"

TEXT = """\
trace       2 files, cpu-block-tp2/rank0.json.gz to rank1.json.gz (PyTorch
            schema 1)
recorded by PyTorch profiler
ranks       2 ranks on CPU, recorded by PyTorch (distributedInfo)
clocks      by each file's recorded wall clock
window      2 steps (step 0 to step 1), 15.975 ms together, 28.239 to 46.661 ms;
            1 warm-up step left out; 74 ops lie outside

0.0 % of the communication is hidden under compute.
Exposed: 2.748 ms of communication per step, 34.4 % of the step.
Of it 1.350 ms is waiting for ranks that came late, 1.398 ms transfer.
There is compute to hide 638.908 µs of it: that could gain at most 8.0 %
(1.09x).
Most of the time is idle: 4.586 ms per step, 57.4 % of the step.

Where the time went (ms, 2 steps together)

                            + exposed  + exposed
 rank    window  = compute       comm     memory  + idle    comm  hidden
 ───────────────────────────────────────────────────────────────────────
 0       16.934      1.204      3.837      0.011  11.883   3.837   0.0 %
 1       15.015      1.352      7.155      0.047   6.462   7.155   0.0 %

 mean    15.975      1.278      5.496      0.029   9.173   5.496   0.0 %
 share  100.0 %      8.0 %     34.4 %      0.2 %  57.4 %  34.4 %

Compute: 40.2 % GEMM, 14.3 % attention. Communication under GEMMs: 0.0 %.

Upper bounds of the gain, all else as recorded, if
  no rank had to wait for another         at most 16.9 % (1.20x)
  the link were infinitely fast           at most 34.4 % (1.52x)
  communication hid wherever compute is   at most 8.0 % (1.09x)

Steps: median 7.987 ms (spread 0.427 ms), 2.748 ms of it exposed.

Communication (ms, 2 steps together, mean of 2 ranks)

 collective  count    bytes   time  exposed  = waiting  + transfer  hidden
 ─────────────────────────────────────────────────────────────────────────
 all_reduce      8  65.5 kB  5.496    5.496      2.700       2.796   0.0 %

Who was waited for (ms, 2 steps together)

 rank  came last  later than the next  the others together waited
 ────────────────────────────────────────────────────────────────
 0        7 of 8                5.338                       5.338
 1        1 of 8                0.062                       0.062

Bandwidth (median transfer of each size)

                                   transfer   algbw   busbw
 collective    size  ranks  count      (µs)  (GB/s)  (GB/s)
 ──────────────────────────────────────────────────────────
 all_reduce  8.2 kB      2      8    229.51   0.036   0.036

Where in the program (ms, 2 steps together, mean of 2 ranks)

 range                           ops  compute   comm  overlap  exposed
 ─────────────────────────────────────────────────────────────────────
 forward                          28    0.561  3.190    0.000    3.190
   layer 0                        28    0.561  3.190    0.000    3.190
     attn.o                        6    0.049  1.998    0.000    1.998
       attn.o.all_reduce           2    0.000  1.998    0.000    1.998
     mlp.down                      6    0.080  1.192    0.000    1.192
       mlp.down.all_reduce         2    0.000  1.192    0.000    1.192
 backward                         44    0.717  2.306    0.000    2.306
   layer 0.grad                   44    0.717  2.306    0.000    2.306
     mlp.up.grad                   8    0.122  1.234    0.000    1.234
       mlp.up.grad.all_reduce      2    0.000  1.234    0.000    1.234
     attn.qkv.grad                 8    0.112  1.071    0.000    1.071
       attn.qkv.grad.all_reduce    2    0.000  1.071    0.000    1.071

14 more: --by range lists all

Findings, worst first; they share time, so costs do not add up

1. 1.334 ms a step, 16.7 %: Rank 0 keeps the others waiting
   It came last to 7 of 8 collectives in all, on average 762.515 µs after the
   next: it is idle for 5.942 ms, the others 3.231 ms. Most in forward / layer 0
   / attn.o / attn.o.all_reduce.
   Try: as much work as the others have, and cores of its own, whatever else
   runs on them moved away.

2. 0.759 ms a step, 9.5 %: Exposed transfer that no compute here could hide
   1.398 ms of exposed transfer, and compute to hide 638.908 µs of it. Most in
   backward / layer 0.grad / attn.qkv.grad / attn.qkv.grad.all_reduce.
   Try: less to send or more to compute: fewer ranks a layer, a faster link, a
   smaller dtype on the wire, larger sequences or batches; no schedule can hide
   it.

3. 0.639 ms a step, 8.0 %: Exposed transfer that this compute could hide
   all_reduce: 1.398 ms of exposed transfer and compute to hide 638.908 µs of
   it; 16 ops in all. Most in backward / layer 0.grad / attn.qkv.grad /
   attn.qkv.grad.all_reduce.
   Try: compute to run beside it: chunked or ring GEMMs (Megatron
   --tp-comm-overlap, PyTorch async TP), backward collectives under weight
   gradients, gradient buckets, prefetched all-gathers.

4. 0.427 ms a step, 5.3 %: Too few steps to tell
   2 steps a rank, from 7.560 ms to 8.414 ms; the cost is half of the
   difference.
   Try: record 10 steps after the warm-up (overlapscope run --steps 10 --warmup
   3; torch.profiler.schedule): from five on the report says which stand out.

Good to know
- no GPU work in this trace: it is a CPU run, analysed on its host threads
  (operators that compute, and the collectives of gloo); idle is what no
  recorded operator fills: Python, launching, waiting for a core
"""


@pytest.fixture(scope="module")
def trace() -> osc.Trace:
    return osc.load(DATA)


def test_report_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA.parent)
    assert text.render(document.build(osc.load("cpu-block-tp2"))) == TEXT


def by_hand(rank: int) -> dict[str, int]:
    """The communication of the measured steps, straight from the JSON, in exact decimals."""
    with gzip.open(DATA / f"rank{rank}.json.gz") as file:
        events: list[dict[str, Any]] = json.load(file, parse_float=Decimal)["traceEvents"]
    spans = {
        kind: [
            (int(e["ts"] * 1000), int((e["ts"] + e["dur"]) * 1000))
            for e in events
            if e.get("name", "").startswith(kind)
        ]
        for kind in ("gloo:all_reduce", "step ", "aten::mm", "aten::addmm")
    }
    inside = [(s, e) for s, e in spans["gloo:all_reduce"] if any(a <= s < b for a, b in spans["step "])]
    gemm = [
        (s, e)
        for kind in ("aten::mm", "aten::addmm")
        for s, e in spans[kind]
        if any(a <= s < b for a, b in spans["step "])
    ]
    return {
        "n_comm": len(inside),
        "comm_ns": sum(e - s for s, e in inside),
        "n_gemm": len(gemm),
        "gemm_ns": sum(e - s for s, e in gemm),
    }


def test_figures_by_hand(trace: osc.Trace) -> None:
    """The run is serial: no two all-reduces overlap, no two GEMMs do, so sums are unions."""
    ranks = osc.overlap(trace).ranks.to_dict("records")
    for row in ranks:
        expected = by_hand(row["rank"])
        assert {k: row[k] for k in expected} == expected
        assert expected["n_comm"] == 8  # 2 forward and 2 backward, in 2 steps
        assert row["overlap_ns"] == 0


def test_bytes_of_the_all_reduces(trace: osc.Trace) -> None:
    """Each moves sequence 32 x hidden 64 floats."""
    assert osc.overlap(trace).instances["bytes"].tolist() == [32 * 64 * 4] * 16


def test_roles_reach_the_trace(trace: osc.Trace) -> None:
    roles = trace.ranges.drop_duplicates("name").set_index("name")["role"].astype(str)
    assert roles["attn.qkv"] == "sharded"
    assert roles["attn.norm"] == "replicated"
    assert roles["step 1"] == "step"
    assert roles["mlp.down.all_reduce"] == "comm"


def test_converted_it_says_the_same(trace: osc.Trace, tmp_path: Path) -> None:
    nsys.write(trace, tmp_path / "trace.sqlite")
    again = osc.load(tmp_path / "trace.sqlite")
    for window in (None, "whole", "1ms:9ms"):
        a, b = osc.overlap(trace, window), osc.overlap(again, window)
        pd.testing.assert_frame_equal(a.ranks, b.ranks)
        pd.testing.assert_frame_equal(a.collectives, b.collectives)
        pd.testing.assert_frame_equal(a.instances.drop(columns="lane"), b.instances.drop(columns="lane"))
    assert again.ranges["role"].astype(str).tolist() == trace.ranges["role"].astype(str).tolist()
