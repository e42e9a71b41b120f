"""Each rule on a trace where it must speak, with its exact cost, and on one close to it where it must not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import overlapscope as osc
from builders import TraceBuilder, nsys
from made import made
from overlapscope.analysis.findings import THRESHOLD
from overlapscope.intervals import span
from overlapscope.report.findings import SAID

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"

Op = tuple[str, int, int, int]  # name, start, end, stream


def gpu(tmp_path: Path, *ops: Op) -> osc.Trace:
    t = TraceBuilder()
    g = t.process(pid=7, rank=0).device(0)
    for name, start, end, stream in ops:
        g.kernel(name, start, end, stream=stream)
    return osc.load(nsys.write(t, tmp_path / "t.sqlite"))


def op(kind: str, start: int, end: int, rank: int = 0, **more: Any) -> dict[str, Any]:
    return {"rank": rank, "start": start, "end": end, "kind": kind, **more}


def exchange(starts: Sequence[int], end: int, nbytes: int = 8, **more: Any) -> list[dict[str, Any]]:
    """An all-reduce of ranks 0, 1, ...; all end together."""
    given_ = {"collective": "all_reduce", "bytes": nbytes, **more}
    return [op("comm", start, end, rank, **given_) for rank, start in enumerate(starts)]


def found(trace: osc.Trace, **how: Any) -> dict[str, osc.Finding]:
    """Findings by id; of several of one rule the first. The report has words for each."""
    told = osc.findings(trace, **how)
    assert all(SAID[finding.id](finding.evidence) for finding in told)
    return {finding.id: finding for finding in reversed(told)}


def costs(trace: osc.Trace, **how: Any) -> dict[str, Fraction]:
    return {name: finding.cost_ns for name, finding in found(trace, **how).items()}


# -- what a finding is -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("copied", "said"), [(20, {"exposed-copies": 20}), (19, {})])
def test_two_percent_of_the_step_and_not_less(copied: int, said: dict[str, int]) -> None:
    assert Fraction(1, 50) == THRESHOLD
    trace = made([op("compute", 0, 1000 - copied), op("memory", 1000 - copied, 1000)], ranks=1)
    assert costs(trace) == said


def test_the_mean_of_ranks_and_steps() -> None:
    """Two ranks, two steps of 100: one copies for 30 in each, the other for 10 in the first."""
    ops, steps = [], []
    for rank in range(2):
        for i in range(2):
            at = 1000 * i
            copied = 30 if rank == 0 else 10 * (i == 0)
            ops += [
                op("compute", at, at + 100 - copied, rank),
                op("memory", at + 100 - copied, at + 100, rank),
            ]
            steps.append(
                {"rank": rank, "thread": 1, "start": at, "end": at + 500, "name": f"step {i}", "role": "step"}
            )
    (finding,) = osc.findings(made([o for o in ops if o["start"] < o["end"]], steps))
    assert (finding.id, finding.cost_ns, finding.share) == ("exposed-copies", Fraction(70, 4), 0.175)
    assert finding.ranks == (0, 1)


def test_the_most_expensive_first() -> None:
    ops = [
        op("compute", 0, 500),
        op("memory", 500, 600),
        op("comm", 600, 800),
        op("compute", 800, 1000, launch=790),
    ]
    trace = replace(made(ops, ranks=1), graphs={0: span(0, 100)})
    assert [(f.id, f.cost_ns) for f in osc.findings(trace)] == [
        ("comm-on-compute-stream", 200),
        ("graph-trace", 100),  # of equal cost the rule that stands first
        ("exposed-copies", 100),
    ]


def test_the_range_in_which_most_was_launched() -> None:
    at = {"thread": 1}
    ops = [
        op("compute", 0, 900, launch=-9, **at),
        op("memory", 900, 960, launch=5, **at),
        op("memory", 960, 1000, launch=25, **at),
    ]
    ranges = [
        {"rank": 0, "thread": 1, "start": 0, "end": 40, "name": "forward"},
        {"rank": 0, "thread": 1, "start": 20, "end": 30, "name": "inner"},
    ]
    assert found(made(ops, ranges, ranks=1))["exposed-copies"].range == ("forward",)
    ops[1]["launch"] = 22
    assert found(made(ops, ranges, ranks=1))["exposed-copies"].range == ("forward", "inner")
    ops[1]["launch"] = -5
    assert found(made(ops, ranges, ranks=1))["exposed-copies"].range is None


# -- communication on the compute stream, and alone -----------------------------------------------------------------


def test_communication_on_the_compute_stream(tmp_path: Path) -> None:
    """A stray kernel on another stream changes nothing: it is time that decides."""
    stray = [("add_kernel", 2 * i, 2 * i + 1, 20) for i in range(100)]
    trace = gpu(tmp_path, (GEMM, 0, 600, 7), (ALL_REDUCE, 600, 700, 7), (GEMM, 700, 1000, 7), *stray)
    finding = found(trace)["comm-on-compute-stream"]
    assert finding.cost_ns == 100
    assert finding.evidence == {
        "streams": ["stream 7"],
        "n_ops": 1,
        "exposed_ns": 100,
        "waiting_ns": 0,
        "hidden_ns": 0,
    }
    assert "exposed-transfer" not in found(trace)


def test_stray_kernels_on_a_communication_stream_do_not_make_it_one_of_compute(tmp_path: Path) -> None:
    stray = [("add_kernel", 600 + 2 * i, 601 + 2 * i, 20) for i in range(40)]
    trace = gpu(tmp_path, (GEMM, 0, 600, 7), (ALL_REDUCE, 680, 780, 20), (GEMM, 780, 1000, 7), *stray)
    assert costs(trace)["exposed-transfer"] == 100
    assert "comm-on-compute-stream" not in costs(trace)


@pytest.mark.parametrize(("here", "speaks"), [(400, True), (399, False)])
def test_half_of_the_compute_makes_a_compute_stream(tmp_path: Path, here: int, speaks: bool) -> None:
    trace = gpu(tmp_path, (GEMM, 0, here, 7), (GEMM, here, 800, 9), (ALL_REDUCE, 800, 1000, 7))
    assert ("comm-on-compute-stream" in found(trace)) is speaks
    assert ("exposed-transfer" in found(trace)) is not speaks


def test_no_more_than_there_is_compute_to_hide_it(tmp_path: Path) -> None:
    """900 exposed, 100 of compute; of these 40 already run under communication."""
    assert (
        costs(gpu(tmp_path, (ALL_REDUCE, 0, 900, 7), (GEMM, 900, 1000, 7)))["comm-on-compute-stream"] == 100
    )
    ops = ((ALL_REDUCE, 0, 900, 20), (GEMM, 860, 960, 7))
    said = costs(gpu(tmp_path, *ops))
    assert (said["exposed-transfer"], said["comm-bound"]) == (60, 800)


def test_compute_that_could_hide_all_of_it_leaves_nothing_bound(tmp_path: Path) -> None:
    """450 exposed; 449 of compute do not do, 450 do."""
    assert "comm-bound" not in costs(gpu(tmp_path, (ALL_REDUCE, 0, 450, 20), (GEMM, 450, 900, 7)))
    short = (ALL_REDUCE, 0, 450, 20), (GEMM, 450, 850, 7)
    assert costs(gpu(tmp_path, *short))["comm-bound"] == 50


def test_hidden_communication_is_no_finding(tmp_path: Path) -> None:
    assert "exposed-transfer" not in costs(gpu(tmp_path, (ALL_REDUCE, 100, 900, 20), (GEMM, 0, 1000, 7)))


def test_threads_of_a_cpu_are_no_streams() -> None:
    trace = made([op("compute", 0, 500), op("comm", 500, 600), op("compute", 600, 1000)], ranks=1)
    host = replace(trace, provenance=replace(trace.provenance, lanes="host"))
    assert list(costs(trace)) == ["comm-on-compute-stream"]
    assert list(costs(host)) == ["exposed-transfer"]


def test_waiting_is_no_transfer() -> None:
    """Rank 0 waits for 100, then both exchange for 50: on a CPU's lanes the exchange alone could be hidden."""
    ops = [
        op("compute", 0, 500),
        op("compute", 0, 600, 1),
        *exchange([500, 600], 650),
        op("compute", 650, 1000),
    ]
    trace = made([*ops, op("compute", 650, 1000, 1)])
    host = replace(trace, provenance=replace(trace.provenance, lanes="host"))
    assert costs(host)["exposed-transfer"] == 50
    # Behind it on the compute stream even what needs no data has to wait.
    assert costs(trace)["comm-on-compute-stream"] == Fraction(150 + 50, 2)


# -- late ranks ------------------------------------------------------------------------------------------------


def late(*starts: int, end: int = 500, repeat: int = 1) -> osc.Trace:
    """Ranks that compute until they enter an all-reduce, which ends for all at once."""
    ops = []
    for i in range(repeat):
        turned = [*starts[i:], *starts[:i]]
        ops += [op("compute", i * end, i * end + start, rank) for rank, start in enumerate(turned)]
        ops += exchange([i * end + start for start in turned], (i + 1) * end)
    return made(ops, ranks=len(starts))


def test_a_rank_that_the_others_wait_for() -> None:
    finding = found(late(100, 100, 100, 400))["straggler"]
    assert (finding.title, finding.ranks) == ("Rank 3 keeps the others waiting", (3,))
    assert finding.cost_ns == Fraction(3 * 300, 4)
    assert finding.evidence == {
        "last": 1,
        "collectives": 1,
        "late_ns": 300,
        "late_each_ns": 300,
        "reason": "compute",
        "most": "compute",
        "own_ns": 400,
        "others_ns": 100,
    }
    assert "skew" not in found(late(100, 100, 100, 400))


def test_a_rank_costs_what_it_is_later_than_the_next() -> None:
    """Two ranks late: the last by 20 more. Of the 300 + 300 + 20 that is waited, 60 is its own."""
    told = found(late(100, 100, 380, 400))
    assert told["straggler"].cost_ns == Fraction(20 + 20 + 20, 4)
    assert told["skew"].cost_ns == Fraction(300 + 300 + 20 - 60, 4)


def test_a_straggler_too_cheap_to_be_told_is_part_of_the_skew() -> None:
    """Rank 1 costs 760 of the two ranks' 40,000 (1.9 %, four fifths of all waiting), rank 0 costs 200."""
    ops = []
    for at, starts in ((0, (4000, 4760)), (5000, (4800, 4600)), (10_000, (9900, 9900))):
        end = at + (5000 if at < 10_000 else 10_000)
        ops += [op("compute", at, at + start, rank) for rank, start in enumerate(starts)]
        ops += exchange([at + start for start in starts], end)
    trace = made(ops)
    assert "straggler" not in costs(trace)
    assert costs(trace)["skew"] == Fraction(760 + 200, 2)


def test_ranks_that_are_late_in_turn_are_no_stragglers() -> None:
    told = found(late(100, 100, 100, 400, repeat=4))
    assert "straggler" not in told
    assert told["skew"].cost_ns == Fraction(4 * 900, 4)
    assert told["skew"].ranks == (0, 1, 2, 3)


def test_nobody_is_late() -> None:
    assert not {"straggler", "skew"} & set(costs(late(400, 400, 400, 400)))


@pytest.mark.parametrize(("kind", "reason"), [("memory", "memory"), (None, "idle")])
def test_why_a_rank_is_late(kind: str | None, reason: str) -> None:
    ops = [op("compute", 0, 100), op("compute", 0, 100, 1), *exchange([100, 400], 500)]
    if kind is not None:
        ops.append(op(kind, 100, 400, 1))
    told = found(made(ops))["straggler"].evidence
    assert (told["reason"], told["own_ns"], told["others_ns"]) == (reason, 300, 0)


# -- links -----------------------------------------------------------------------------------------------------


def groups(own: int, peers: int, nbytes: int = 2_000_000) -> osc.Trace:
    """Two communicators of two ranks; the second takes its own time for the same exchange."""
    ops = []
    for rank in range(4):
        time = own if rank > 1 else peers
        pair = {
            "communicator": rank // 2,
            "group": 2,
            "sequence": 0,
            "collective": "all_reduce",
            "bytes": nbytes,
        }
        ops += [op("comm", 0, time, rank, **pair), op("gemm", time, 500, rank)]
    return replace(made(ops, ranks=4), communicators=("fast", "slow"))


def test_a_communicator_slower_than_its_peers() -> None:
    finding = found(groups(200, 100))["slow-link"]
    assert (finding.cost_ns, finding.ranks) == (Fraction(2 * 100, 4), (2, 3))
    assert finding.evidence == {
        "communicator": "slow",
        "collective": "all_reduce",
        "bytes": 2_000_000,
        "median_ns": 200,
        "peers_ns": 100,
    }


@pytest.mark.parametrize(("own", "cost"), [(125, Fraction(2 * 25, 4)), (124, None)])
def test_a_quarter_longer_is_slow(own: int, cost: Fraction | None) -> None:
    assert costs(groups(own, 100)).get("slow-link") == cost


def test_other_sizes_are_no_peers() -> None:
    trace = groups(200, 100)
    trace.ops.loc[trace.ops["rank"] > 1, "bytes"] = 4_000_000
    assert "slow-link" not in costs(trace)


@pytest.mark.parametrize(
    ("nbytes", "time", "cost"),
    [
        (
            64_000_000,
            6_400_000,
            Fraction(7, 10) * 6_400_000,
        ),  # 10 GB/s of 50: of 33.3, what is seen, 0.7 is missing
        (64_000_000, 2_560_000, None),  # 25 GB/s: half
        (63_999_999, 6_400_000, None),  # too small to tell
    ],
)
def test_large_messages_far_below_the_peak(nbytes: int, time: int, cost: Fraction | None) -> None:
    trace = made([*exchange([0, 0], time, nbytes), *(op("gemm", time, time + 1_000_000, r) for r in (0, 1))])
    assert costs(trace, peak_gbs=50).get("slow-link") == cost
    assert "slow-link" not in costs(trace)


def sizes(small: int, small_ns: int, large: int = 10_000_000, large_ns: int = 10_000) -> osc.Trace:
    """Fifty small all-reduces and a large one that reaches 1000 GB/s."""
    ops, at = exchange([0, 0], large_ns, large), large_ns
    for _ in range(50):
        ops += exchange([at, at], at + small_ns, small)
        at += small_ns
    return made([*ops, op("gemm", at, at + 100), op("gemm", at, at + 100, 1)])


@pytest.mark.parametrize(
    ("trace", "cost"),
    [
        (sizes(1_000, 100), 50 * 100 * Fraction(99, 100)),
        (sizes(100_000, 200), 50 * 200 * Fraction(1, 2)),
        (sizes(100_000, 199), None),
        (sizes(1_000_001, 5_000), None),  # large, and slow for another reason
        (sizes(1_000, 100, 1_000, 100), None),  # nothing tells what the link can do
    ],
    ids=["latency alone", "half", "less than half", "not small", "one size"],
)
def test_small_messages_that_are_mostly_latency(trace: osc.Trace, cost: Fraction | None) -> None:
    assert costs(trace).get("latency-bound") == cost


def test_the_peak_tells_what_a_link_can_do() -> None:
    """1000 bytes in 100 ns are 10 GB/s (two ranks: busbw the same); a peak of 100 makes nine tenths of it latency."""
    trace = sizes(1_000, 100, 1_000, 100)
    assert costs(trace, peak_gbs=100)["latency-bound"] == 51 * 100 * Fraction(9, 10)


# -- compute ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("under", "cost"), [(200, 300), (199, None)])
def test_contention_that_eats_half_of_the_gain(tmp_path: Path, under: int, cost: int | None) -> None:
    """Three GEMMs of 100 alone, three under an all-reduce: hidden 3 under, lost 3 (under − 100)."""
    ops: list[Op] = []
    for i in range(6):
        length = under if i > 2 else 100
        ops.append((GEMM, 300 * i, 300 * i + length, 7))
        ops += [(ALL_REDUCE, 300 * i, 300 * i + length, 20)] * (i > 2)
    assert costs(gpu(tmp_path, *ops)).get("contention") == cost


def marked(role: str, ranks: int = 2) -> osc.Trace:
    """Compute of 400 launched in a range of that role, of 600 in one that is sharded."""
    ops, ranges = [], []
    for rank in range(ranks):
        here = {"rank": rank, "thread": 1}
        ops += [op("compute", 0, 400, launch=-90, **here), op("gemm", 400, 1000, launch=-40, **here)]
        ranges += [
            {**here, "start": -100, "end": -50, "name": "norm", "role": role},
            {**here, "start": -50, "end": -10, "name": "mlp", "role": "sharded"},
        ]
    return made(ops, ranges, ranks=ranks)


def test_work_that_every_rank_does_in_full() -> None:
    finding = found(marked("replicated"))["replicated-work"]
    assert (finding.cost_ns, finding.range) == (200, ("norm",))
    assert finding.evidence == {
        "replicated_ns": 400,
        "compute_ns": 1000,
        "world_size": 2,
        "groups": ["norm"],
    }
    assert costs(marked("replicated", 4))["replicated-work"] == 300


@pytest.mark.parametrize("trace", [marked("sharded"), marked(""), marked("replicated", 1)])
def test_work_that_is_shared_out_or_has_one_rank(trace: osc.Trace) -> None:
    assert "replicated-work" not in costs(trace)


# -- the host --------------------------------------------------------------------------------------------------


def test_idle_before_an_op_that_was_launched_too_late() -> None:
    """Of four idle times of 100 the second and the third were over with an op that had long been launched, or not
    told when."""
    starts, launches = (0, 200, 400, 600, 800), (-10, 150, 120, osc.NA, 701)
    ops = [op("gemm", start, start + 100, launch=at) for start, at in zip(starts, launches, strict=True)]
    trace = made(ops, ranks=1)
    finding = found(trace)["launch-gaps"]
    assert finding.cost_ns == 200
    assert finding.evidence == {"n_gaps": 2, "median_ns": 100, "longest_ns": 100}
    # Launched at the very end of what ran before: the GPU had not run dry yet.
    ops[1]["launch"], ops[4]["launch"] = 100, 700
    assert "launch-gaps" not in costs(made(ops, ranks=1))


def test_idle_before_an_op_that_was_launched_in_time() -> None:
    """Three idle times: before an op launched long before, at the last moment, and too late."""
    starts, launches = (0, 200, 500, 700), (-10, -5, 300, 601)
    ops = [op("gemm", start, start + 100, launch=at) for start, at in zip(starts, launches, strict=True)]
    finding = found(made(ops, ranks=1))["queued-idle"]
    assert finding.cost_ns == 100 + 200
    assert finding.evidence == {
        "n_gaps": 2,
        "median_ns": 150,
        "longest_ns": 200,
        "longest_at_ns": 300,
        "longest_rank": 0,
    }
    ops[1]["launch"], ops[2]["launch"] = 101, osc.NA
    assert "queued-idle" not in costs(made(ops, ranks=1))


def test_an_idle_gpu_is_put_where_the_host_was_meanwhile() -> None:
    """Of 2 ms without work 1.9 are spent compiling; the op that ends them is launched in another range."""
    ms = 1_000_000
    ops = [op("gemm", 0, ms, launch=-10, thread=1), op("gemm", 3 * ms, 4 * ms, launch=3 * ms - 10, thread=1)]
    ranges = [
        {"rank": 0, "thread": 1, "start": ms // 2, "end": 29 * ms // 10, "name": "compile"},
        {"rank": 0, "thread": 1, "start": 29 * ms // 10, "end": 4 * ms, "name": "run"},
        {"rank": 0, "thread": 2, "start": ms, "end": 3 * ms, "name": "elsewhere"},
    ]
    assert found(made(ops, ranges, ranks=1))["host-pauses"].range == ("compile",)
    ranges[0]["end"] = 3 * ms // 2  # now most of it lies in no range
    assert found(made(ops, ranges, ranks=1))["host-pauses"].range is None


def test_the_profilers_idle_time_is_not_the_hosts() -> None:
    ops = [op("gemm", 0, 500, launch=-10), op("gemm", 600, 1000, launch=590)]
    trace = made(ops, ranks=1)
    assert costs(trace) == {"launch-gaps": 100}
    stalled = replace(trace, stalls={0: span(400, 540)})
    assert costs(stalled) == {"launch-gaps": 60, "profiler-overhead": 40}
    replayed = replace(trace, graphs={0: span(520, 560)})
    assert costs(replayed) == {"launch-gaps": 60, "graph-trace": 40}
    assert costs(replace(trace, stalls={0: span(0, 500)})) == {"launch-gaps": 100}  # while the GPU had work


@pytest.mark.parametrize(("pause", "name"), [(1_000_000, "host-pauses"), (999_999, "launch-gaps")])
def test_a_millisecond_is_a_pause(pause: int, name: str) -> None:
    ops = [op("gemm", 0, 500, launch=-10), op("gemm", 500 + pause, 1000 + pause, launch=500 + pause - 5)]
    (finding,) = osc.findings(made(ops, ranks=1))
    assert (finding.id, finding.cost_ns) == (name, pause)
    assert finding.evidence["longest_ns"] == pause


def test_only_what_lies_in_the_window_counts() -> None:
    ops = [op("gemm", 0, 500, launch=-10), op("gemm", 700, 1000, launch=690)]
    trace = made(ops, ranks=1)
    assert costs(trace, result=osc.overlap(trace, "0:600")) == {"launch-gaps": 100}


def test_on_a_cpu_every_operator_is_launched_when_it_starts() -> None:
    trace = made([op("gemm", 0, 500, launch=0), op("gemm", 700, 1000, launch=700)], ranks=1)
    assert costs(replace(trace, provenance=replace(trace.provenance, lanes="host"))) == {}


def test_copies_that_nothing_hides(tmp_path: Path) -> None:
    t = TraceBuilder()
    g = t.process(pid=7, rank=0).device(0)
    g.kernel(GEMM, 0, 900, stream=7)
    g.memcpy("HtoD", 800, 950, stream=9)
    g.memcpy("DtoH", 950, 1000, stream=9)
    g.memcpy("DtoD", 0, 800, stream=9)
    (finding,) = osc.findings(osc.load(nsys.write(t, tmp_path / "t.sqlite")))
    assert (finding.id, finding.cost_ns) == ("exposed-copies", 100)
    assert sorted(finding.evidence["copies"]) == ["Memcpy DtoH", "Memcpy HtoD"]  # type: ignore[arg-type]


# -- trust -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("window", "cost"), [(None, 300), ("0:1000", 150), ("0:400", None)])
def test_graphs_traced_as_a_whole(tmp_path: Path, window: str | None, cost: int | None) -> None:
    """Two replays of 150, one after the last op; of a whole trace both count."""
    t = TraceBuilder()
    g = t.process(pid=7, rank=0).device(0)
    g.kernel(GEMM, 0, 400, stream=7)
    g.graph(500, 650, stream=7)
    g.kernel(GEMM, 700, 1000, stream=7)
    g.graph(1100, 1250, stream=7)
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    assert costs(trace, result=osc.overlap(trace, window)).get("graph-trace") == cost


def test_a_stall_that_was_recorded(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process(pid=7, rank=0)
    g = p.device(0)
    g.kernel(GEMM, 0, 400, stream=7)
    g.kernel(GEMM, 700, 1000, stream=7)
    t.overhead(350, 500, process=p)
    t.overhead(480, 560, process=p, cupti=8)
    finding = found(osc.load(nsys.write(t, tmp_path / "t.sqlite")))["profiler-overhead"]
    assert (finding.cost_ns, finding.evidence) == (160, {"idle_ns": 300})


def test_kernels_that_no_rule_knows(tmp_path: Path) -> None:
    """Their time together, not their sum: two of them run at once."""
    name = "acme::mystery"
    trace = gpu(tmp_path, (GEMM, 0, 700, 7), (name, 700, 900, 7), (name, 800, 1000, 9))
    finding = found(trace)["unknown-kernels"]
    assert finding.cost_ns == 300
    assert finding.evidence == {"n_names": 1, "n_ops": 2, "name": name}
    assert costs(gpu(tmp_path, (GEMM, 0, 1000, 7), (GEMM, 800, 1000, 9))) == {}


@pytest.mark.parametrize(
    ("lengths", "cost"),
    [
        ([100, 140], 20),
        ([100, 140, 120, 100], 20),
        ([100, 140, 120, 100, 100], None),
        ([100], None),
        ([100, 102], None),
    ],
    ids=["two", "four", "five", "one", "alike"],
)
def test_too_few_steps(lengths: list[int], cost: int | None) -> None:
    ops = [op("gemm", 1000 * i, 1000 * i + length) for i, length in enumerate(lengths)]
    steps = [
        {
            "rank": 0,
            "thread": 1,
            "start": 1000 * i,
            "end": 1000 * i + 500,
            "name": f"step {i}",
            "role": "step",
        }
        for i in range(len(lengths))
    ]
    assert costs(made(ops, steps, ranks=1)).get("too-few-steps") == cost


# -- whatever a trace holds ------------------------------------------------------------------------------------

TIMES = st.integers(0, 60)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), TIMES, TIMES, st.sampled_from(["gemm", "compute", "comm", "memory"]), TIMES
        ),
        min_size=1,
        max_size=30,
    ),
    st.tuples(TIMES, TIMES),
)
def test_every_finding_costs_enough_and_no_more_than_there_is(
    rows: list[tuple[int, int, int, str, int]], stall: tuple[int, int]
) -> None:
    ops = [
        op(kind, start, start + length, rank, launch=start - launch, thread=1, bytes=1 + length)
        for rank, start, length, kind, launch in rows
    ]
    trace = replace(made(ops, ranks=3), stalls={0: span(*sorted(stall))})
    told = osc.findings(trace)
    assert all(SAID[finding.id](finding.evidence) for finding in told)
    assert [f.cost_ns for f in told] == sorted((f.cost_ns for f in told), reverse=True)
    window = int(osc.overlap(trace).ranks["window_ns"].sum())
    for finding in told:
        assert 0.02 <= finding.share <= 1
        assert finding.share == float(finding.cost_ns * 3 / window)
        assert finding.ranks
        assert finding.advice


def test_a_reason_that_explains_a_part_is_told_with_its_part() -> None:
    """Rank 1 comes 300 late, of which 100 are compute that rank 0 has not; the rest nothing in the trace explains."""
    ops = [
        op("compute", 0, 100),
        op("compute", 0, 200, 1),
        op("memory", 100, 100),
        *exchange([100, 400], 500),
    ]
    finding = found(made(ops))["straggler"]
    told = finding.evidence
    assert (told["reason"], told["most"]) in (("idle", "idle"), (None, "compute"))
    partly = {**told, "reason": None, "most": "compute", "own_ns": 200, "others_ns": 100, "late_ns": 300}
    assert SAID["straggler"](partly).endswith(
        "it computes for 200 ns, the others 100 ns, which explains 33.3 % of it."
    )


def test_skew_beside_stragglers_names_them() -> None:
    told = found(late(100, 100, 380, 400))["skew"].evidence
    assert told["beside"] == ["3"]
    assert SAID["skew"](told).endswith("the others waited: what is left of that beside the cost of rank 3.")
    alone = found(late(100, 100, 100, 400, repeat=4))["skew"].evidence
    assert SAID["skew"](alone).endswith("; no single rank costs enough of it to be named.")


def test_of_one_rank_of_many_all_are_to_be_recorded_first(tmp_path: Path) -> None:
    trace = gpu(tmp_path, (GEMM, 0, 500, 7), (ALL_REDUCE, 500, 900, 20))
    one_of_8 = replace(trace, provenance=replace(trace.provenance, world_size=8))
    first = "first record all 8 ranks, which tells waiting for late ones from transfer; then "
    assert found(one_of_8)["exposed-transfer"].advice.startswith(first)
    assert not found(trace)["exposed-transfer"].advice.startswith("first")
