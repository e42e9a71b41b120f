"""Schedules, sequence parallelism and the paced link, as ``overlapscope run`` records them on real ranks.

What a schedule computes is tested in test_parallel.py; here, what stands in the trace.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from overlapscope import formats
from overlapscope.report import document, text
from overlapscope.trace import Trace
from test_run import run
from workloads import BlockConfig, ConfigError, Link
from workloads.exchange import Exchange

SHAPE = ("--hidden", "32", "--heads", "4", "--seq", "40", "--batch", "1", "--dtype", "float64")
ROW = 32 * 8  # bytes of a token


@dataclass(frozen=True)
class Done:
    """A run that has ended well."""

    folder: Path
    out: str
    manifest: dict[str, Any]
    trace: Trace

    def ops(self, phase: str, rank: int = 0) -> Any:
        """The communication of a phase of the only step."""
        ranges = self.trace.ranges
        mine = ranges[ranges["rank"] == rank]
        (step,) = mine[mine["name"] == "step 0"].itertuples()
        inside = mine[(mine["start"] >= step.start) & (mine["end"] <= step.end)]
        (window,) = inside[inside["name"] == phase].itertuples()
        ops = self.trace.of_rank(rank)
        within = (ops["start"] >= window.start) & (ops["end"] <= window.end)
        return ops[within & (ops["kind"] == "comm")]

    def counts(self, phase: str, rank: int = 0) -> dict[str, int]:
        """Ops of a phase, by what they are recorded as."""
        names = self.trace.names["string"]
        return dict(Counter(names.iloc[code] for code in self.ops(phase, rank)["name"]))

    def marked(self, rank: int = 0) -> dict[str, int]:
        """Ranges of the only step with the role comm, by name."""
        ranges = self.trace.ranges
        mine = ranges[ranges["rank"] == rank]
        (step,) = mine[mine["name"] == "step 0"].itertuples()
        comm = mine[(mine["role"] == "comm") & (mine["start"] >= step.start) & (mine["end"] <= step.end)]
        return {str(n): int(c) for n, c in comm["name"].value_counts().items() if c}


Start = Callable[..., Done]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    def start(tp: int, *arguments: str) -> Done:
        cwd = tmp_path_factory.mktemp("run")
        options = (*SHAPE, "--tp", str(tp), "--steps", "1", "-o", "out", "--keep-json")
        result = run(cwd, *options, *arguments)
        assert (result.returncode, result.stderr) == (0, "")
        folder = cwd / "out"
        manifest = json.loads((folder / "run.json").read_text())
        return Done(folder, result.stdout, manifest, formats.load(folder))

    return start


@pytest.fixture(scope="module")
def ring(start: Start) -> Done:
    return start(2, "--sequence-parallel", "--schedule", "ring", "--link", "50MB/s,1ms")


# -- what stands in the trace --------------------------------------------------------------------------------


@pytest.mark.real
def test_a_ring_is_n_minus_1_steps_for_each_collective(start: Start) -> None:
    done = start(4, "--sequence-parallel", "--schedule", "ring")
    for rank in range(4):
        # a step is one op, from the post until what was received is there
        assert done.counts("forward", rank) == {"gloo:send_recv": 4 * 3}
        assert done.counts("backward", rank) == {"gloo:send_recv": 6 * 3}
        assert done.counts("gradients", rank) == {"gloo:all_reduce": 1}
    assert done.marked()["attn.qkv.send_recv"] == 3
    assert done.marked()["attn.qkv.grad.send_recv"] == 6


@pytest.mark.real
def test_pipelined_collectives_come_in_chunks(start: Start) -> None:
    done = start(2, "--sequence-parallel", "--schedule", "pipelined", "--chunks", "3")
    for rank in (0, 1):
        # gloo makes its reduce-scatter of an all-reduce and records that; the ranges tell what it is
        assert done.counts("forward", rank) == {"gloo:all_gather": 2 * 3, "gloo:all_reduce": 2 * 3}
        assert done.counts("backward", rank) == {"gloo:all_gather": 4, "gloo:all_reduce": 2}
        assert done.marked(rank) == {
            "attn.qkv.all_gather": 3,
            "attn.out.reduce_scatter": 3,
            "mlp.up.all_gather": 3,
            "mlp.down.reduce_scatter": 3,
            "mlp.down.grad.all_gather": 1,
            "mlp.up.grad.all_gather": 1,
            "mlp.up.grad.reduce_scatter": 1,
            "attn.out.grad.all_gather": 1,
            "attn.qkv.grad.all_gather": 1,
            "attn.qkv.grad.reduce_scatter": 1,
            "gradients.all_reduce": 1,
        }
    roles = {(str(r.name), str(r.role)) for r in done.trace.ranges.itertuples()}
    assert {("attn.norm", "sharded"), ("mlp.residual", "sharded"), ("gradients", "phase")} <= roles
    assert "--sequence-parallel --schedule pipelined --chunks 3 --" in done.manifest["command"]


# -- the paced link ------------------------------------------------------------------------------------------


@pytest.mark.real
def test_a_paced_run_says_so_everywhere(ring: Done) -> None:
    told = "50 MB/s, 1000 us"
    assert ring.manifest["link"] == told
    assert ring.trace.provenance.link == told
    assert f"link        paced: {told}" in ring.out
    profiles = formats.load(sorted((ring.folder / "kineto").iterdir()))
    assert profiles.provenance.link == told
    assert f"paced: {told}" in text.render(document.build(profiles))
    assert ring.manifest["command"].count("--link '50 MB/s, 1000 us'") == 1


@pytest.mark.real
def test_a_paced_exchange_is_one_op_that_lasts_as_long_as_on_the_link(ring: Done) -> None:
    for rank in (0, 1):
        assert ring.counts("forward", rank) == {"paced:send_recv": 4}
        assert ring.counts("backward", rank) == {"paced:send_recv": 6}
        assert ring.counts("gradients", rank) == {"paced:all_reduce": 1}  # and nothing that gloo did for it
        for phase in ("forward", "backward"):
            ops = ring.ops(phase, rank)
            assert set(ops["collective"]) == {"send_recv"}
            # a shard of 20 tokens at 50 MB/s, and 1 ms
            assert (ops["end"] - ops["start"]).min() >= 1_000_000 + 20 * ROW * 20


@pytest.mark.real
def test_a_link_that_is_faster_than_this_machine_is_told(start: Start) -> None:
    done = start(2, "--link", "nvlink5", "--no-overlap-backward")
    for phase in ("forward", "backward"):
        assert done.counts(phase) == {"paced:all_reduce": 2}
    # one step of four all-reduces on two ranks; the warm-up does not count
    assert "8 of 8 exchanges took longer than the paced link would have" in re.sub(r"\s+", " ", done.out)
    assert " --no-overlap-backward " in done.manifest["command"]


def test_a_link_takes_a_latency_and_the_bytes_that_each_rank_sends() -> None:
    link = Link.parse("50GB/s,5us")
    assert link == Link(5e-6, 50e9)
    size = 1_000_000_000
    assert link.seconds("all_reduce", size, 4) == pytest.approx(5e-6 + 0.030)
    assert link.seconds("all_gather", size, 4) == pytest.approx(5e-6 + 0.015)
    assert link.seconds("reduce_scatter", size, 4) == pytest.approx(5e-6 + 0.015)
    assert link.seconds("send_recv", size, 4) == pytest.approx(5e-6 + 0.020)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("nvlink4", "450 GB/s, 7.2 us"),
        ("50GB/s,5us", "50 GB/s, 5 us"),
        (" 0.2 gb/s , 1 MS ", "200 MB/s, 1000 us"),
        ("80MB/s", "80 MB/s, 0 us"),
    ],
)
def test_a_link_reads_what_it_says(spec: str, said: str) -> None:
    link = Link.parse(spec)
    assert str(link) == said
    assert Link.parse(said) == link


# -- the thread ----------------------------------------------------------------------------------------------


def test_an_exchange_is_over_when_it_is_done_and_not_when_somebody_waits() -> None:
    thread, go = Exchange(), threading.Event()

    def job() -> float:
        go.wait(10)
        return 0.0

    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        done = thread.post("gloo:send_recv", job)
        with record_function("meanwhile"):
            go.set()
            deadline = time.monotonic() + 10
            while not done.over() and time.monotonic() < deadline:
                time.sleep(0.001)
        with record_function("later"):
            done.wait()
    at = {e.name: e.time_range for e in recorded.events()}
    assert at["gloo:send_recv"].start <= at["meanwhile"].start
    assert at["meanwhile"].start < at["gloo:send_recv"].end <= at["later"].start


def test_what_goes_wrong_in_an_exchange_is_raised_where_it_is_waited_for() -> None:
    thread = Exchange()

    def broken() -> float:
        raise RuntimeError("Connection closed by peer")

    first, second = thread.post("gloo:send_recv", broken), thread.post("gloo:send_recv", lambda: 0.0)
    with pytest.raises(RuntimeError, match="Connection closed by peer"):
        first.wait()
    second.wait()


def test_exchanges_that_take_longer_than_the_link_are_counted() -> None:
    thread = Exchange()
    thread.post("paced:all_reduce", lambda: time.monotonic() - 1.0).wait()
    thread.post("paced:all_reduce", lambda: time.monotonic() + 0.01).wait()
    assert (thread.made, thread.late) == (2, 1)


# -- what cannot be ------------------------------------------------------------------------------------------

SEQUENCE = {"sequence_parallel": True}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schedule": "rign"}, "schedule: 'rign' is not known; did you mean ring?"),
        (
            {"schedule": "magic!"},
            "schedule: 'magic!' is not known; choose from serial, pipelined, ring, symm_mem",
        ),
        (
            {"schedule": "ring"},
            "schedule: ring passes parts of the sequence, which each rank has whole; "
            "add --sequence-parallel, or give pipelined",
        ),
        (
            {"schedule": "symm_mem", **SEQUENCE},
            "schedule: symm_mem needs CUDA and access between the GPUs; give ring",
        ),
        ({"seq": 42, **SEQUENCE}, "seq: 8 ranks do not divide 42 tokens; give 40 or 48"),
        ({"seq": 5, **SEQUENCE}, "seq: 8 ranks do not divide 5 tokens; give 8"),
        ({"chunks": 2}, "chunks: serial has none; add --schedule pipelined, or leave it out"),
        ({"schedule": "pipelined", "chunks": 0}, "chunks: is 0; give 1 or more"),
        (
            {"schedule": "pipelined", "chunks": 41},
            "chunks: 41 of 40 tokens, the sequence; give at most 40",
        ),
        (
            {"schedule": "pipelined", "chunks": 6, **SEQUENCE},
            "chunks: 6 of 5 tokens, a rank's part of the sequence; give at most 5",
        ),
    ],
)
def test_schedules_that_cannot_be_are_refused(change: dict[str, Any], message: str) -> None:
    options = {"hidden": 32, "heads": 8, "ffn": 64, "seq": 40, "batch": 1} | change
    with pytest.raises(ConfigError) as caught:
        BlockConfig(**options).check(8)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nvlnk4", "link: 'nvlnk4' is no link; did you mean nvlink4?"),
        (
            "50",
            "link: '50' is no link; give a speed and a latency such as 50GB/s,5us, or one of "
            "nvlink3, nvlink4, nvlink5, hdr, ndr, xdr, pcie4, pcie5",
        ),
    ],
)
def test_what_is_no_link_is_refused(spec: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Link.parse(spec)
    assert str(caught.value) == message
    for wrong in ("0GB/s", "1.2.3GB/s", "50GB/s,5", "50 Gb", "-1GB/s"):
        with pytest.raises(ConfigError):
            Link.parse(wrong)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--tp", "2", "--schedule", "ring"],
            "--schedule: ring passes parts of the sequence, which each rank has whole; "
            "add --sequence-parallel, or give pipelined",
        ),
        (["--link", "nvlnk4"], "--link: 'nvlnk4' is no link; did you mean nvlink4?"),
        (["--chunks", "2"], "--chunks: serial has none; add --schedule pipelined, or leave it out"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = run(tmp_path, *arguments)
    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"overlapscope: {message}\n")
    assert list(tmp_path.iterdir()) == []


def test_pipelined_takes_four_chunks_by_default() -> None:
    assert BlockConfig.of("cpu", schedule="pipelined").chunks == 4
    assert BlockConfig.of("cpu").chunks is None


# -- what autograd keeps -------------------------------------------------------------------------------------


@pytest.mark.real
def test_saved_bytes_are_told_for_both_layouts(ring: Done) -> None:
    tokens, h, f, heads = 40, 32, 128, 4
    half = (4 * h + 2 * f) // 2
    rows = 4 * tokens * 8  # mean and deviation of both norms
    scores = tokens * heads // 2 * 8  # attention's log-sum-exp
    assert ring.manifest["saved_activations"] == [
        {
            "layout": "TP",
            "measured_bytes": 8 * tokens * (4 * h + half) + rows + scores,
            "formula_bytes": 8 * tokens * (4 * h + half),
        },
        {
            "layout": "TP + SP",
            "measured_bytes": 8 * tokens * (4 * h // 2 + half) + rows // 2 + scores,
            "formula_bytes": 8 * tokens * (4 * h // 2 + half),
        },
    ]
    assert f" TP + SP {8 * tokens * (4 * h // 2 + half) + rows // 2 + scores:>15,}" in ring.out


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_the_formula_leaves_out_a_few_numbers_of_each_row(dtype: str) -> None:
    from workloads.activations import saved_bytes
    from workloads.block import BlockProgram
    from workloads.parallel import Ranks

    config = BlockConfig(hidden=64, heads=8, ffn=96, seq=24, batch=3, dtype=dtype)
    program = BlockProgram(config, Ranks(), torch.device("cpu"))
    size, tokens = program.x.element_size(), 24 * 3
    # mean and deviation of two norms; attention's log-sum-exp of each head, in float32 at least
    rows = tokens * (4 * size + 8 * max(size, 4))
    assert saved_bytes(program.blocks[0], program.x) == config.saved(1) + rows
