"""The model of a step: by hand on a machine of one FLOP a microsecond, published sizes, what must hold always."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlapscope.cli import main
from overlapscope.errors import OptionError
from overlapscope.predict import Request, answer
from overlapscope.predict.gpus import GPUS, LINK_SEEN
from overlapscope.predict.machine import Machine, machine
from overlapscope.predict.schedules import Part, pipelined, ring, serial, under
from overlapscope.predict.step import Layout, block, predict
from overlapscope.predict.work import Op, Shape
from workloads import BlockConfig, Link
from workloads.link import LINKS
from workloads.presets import LAYERS, PRESETS

US = 1e-6
SMALL = Shape(hidden=4, heads=2, kv_heads=2, ffn=8, arch="gpt", seq=4, batch=1, layers=1)
FAST = Link(10 * US, 1e6)  # 10 µs, a byte a µs
SLOW = Link(10 * US, 1e5)  # 10 µs, a byte in 10 µs


def one_flop_a_microsecond(**given: float) -> Machine:
    """Whose memory takes no time to speak of, and whose kernels are launched in none."""
    usual = {
        "gpu_flops": 1e-6,
        "gpu_bandwidth": 1e12,
        "gemm_efficiency": 1,
        "attention_efficiency": 1,
        "memory_efficiency": 1,
        "launch": 0,
    }
    return machine(GPUS["h100"], {**usual, **given})


def preset(name: str, **given: Any) -> Shape:
    block = BlockConfig.of("cuda", **PRESETS[name])
    shape = {k: getattr(block, k) for k in ("hidden", "heads", "kv_heads", "ffn", "arch")}
    return Shape(**{**shape, "layers": LAYERS[name], "seq": 4096, "batch": 1, **given})


# -- one step by hand ----------------------------------------------------------------------------------------
#
# On 2 ranks a rank's GEMMs are QKV 4×4×6 (192 FLOPs), O 4×2×4 (64), up 4×4×4 (128) and down 4×4×4 (128); attention is
# half of 4 · 4² · 2 (64), and 2.5 times that backward. V is 32 bytes. Over FAST an all-reduce takes 10 + 32 µs, a
# gather, a scatter or a hop 10 + 16; over SLOW 330 and 170.

COMPUTE = 3 * (192 + 64 + 128 + 128) + 64 + 160
SP = "sequence_parallel"


@pytest.mark.parametrize(
    ("link", "layout", "comm", "exposed", "wire"),
    [
        # two all-reduces exposed, and two under weight gradients of 192 and 128
        (FAST, {}, 4 * 42, 2 * 42, 128),
        (SLOW, {}, 4 * 330, 2 * 330 + 138 + 202, 128),
        (SLOW, {"overlap_backward": False}, 4 * 330, 4 * 330, 128),
        (SLOW, {"forward_only": True}, 2 * 330, 2 * 330, 64),
        # halves of O (32) and down (64) with all-reduces of 16 bytes, 26 or 170 each
        (FAST, {"schedule": "pipelined", "chunks": 2}, 4 * 26 + 2 * 42, 2 * 26, 128),
        (
            SLOW,
            {"schedule": "pipelined", "chunks": 2},
            4 * 170 + 2 * 330,
            (170 + 170 - 32) + (170 + 170 - 64) + 138 + 202,
            128,
        ),
        # four exposed forward; backward those of the row layers, the others under 192 (hidden) and 128
        (FAST, {SP: True}, 10 * 26, 6 * 26, 160),
        (SLOW, {SP: True}, 10 * 170, 6 * 170 + 2 * (170 - 128), 160),
        (SLOW, {SP: True, "overlap_backward": False}, 10 * 170, 10 * 170, 160),
        # a hop beside one of two halves: QKV 96, O 32, up and down 64; backward O 64 and down 128 in one ring
        (FAST, {SP: True, "schedule": "ring"}, 10 * 26, 0, 160),
        (
            SLOW,
            {SP: True, "schedule": "ring"},
            10 * 170,
            (74 + 138 + 106 + 106) + (74 + 74 + 106 + 106 + 106 + 42),
            160,
        ),
        # the ring forward, serial backward
        (SLOW, {SP: True, "schedule": "symm_mem"}, 10 * 170, 424 + 2 * 170 + 2 * (170 - 128), 160),
    ],
)
def test_a_block_by_hand(
    link: Link, layout: dict[str, Any], comm: float, exposed: float, wire: float
) -> None:
    found = block(SMALL, Layout(**layout), one_flop_a_microsecond(), 2, link)
    compute = 192 + 64 + 128 + 128 + 64 if "forward_only" in layout else COMPUTE
    assert found.compute == pytest.approx(compute * US)
    assert found.comm == pytest.approx(comm * US)
    assert found.exposed == pytest.approx(exposed * US, abs=1e-12)
    assert found.wire == pytest.approx(wire)


RING = Layout(sequence_parallel=True, schedule="ring")


@pytest.mark.parametrize(
    ("arch", "layout", "moved"),
    [
        # Norms, residuals, GELU 128 + 192 + 64, backward 192 + 192 + 96; attention 64 and 128; GEMMs (QKV 128, O 64,
        # up 96, down 96) three times
        ("gpt", Layout(), 384 + 480 + 192 + 3 * 384),
        # SwiGLU 96 and 160, rotary 64 twice, up 160
        ("llama", Layout(), 480 + 608 + 192 + 3 * 448),
        # Norms and residuals on half the rows; GEMMs in halves (88, 40, 64, 64), of which the weight gradients read
        # what they add to (48, 16, 32, 32); two additions of 48 each way
        ("gpt", RING, 224 + 288 + 192 + 2 * (3 * 256 + 128) + 4 * 48),
    ],
)
def test_bytes_of_a_block_by_hand(arch: str, layout: Layout, moved: int) -> None:
    """On a machine that computes in no time and moves a byte a microsecond."""
    fast = one_flop_a_microsecond(gpu_flops=1e12, gpu_bandwidth=1e-3)
    assert block(replace(SMALL, arch=arch), layout, fast, 2, FAST).compute == pytest.approx(moved * US)


@pytest.mark.parametrize(
    ("arch", "layout", "kernels"),
    [
        ("gpt", Layout(), 10 + 14),
        ("llama", Layout(), 11 + 15),
        ("gpt", Layout(schedule="pipelined", chunks=2), 12 + 14),
        ("gpt", RING, 16 + 24),
    ],
)
def test_kernels_of_a_block(arch: str, layout: Layout, kernels: int) -> None:
    """On a machine on which a kernel costs its launch alone."""
    fast = one_flop_a_microsecond(gpu_flops=1e12, gpu_bandwidth=1e12, launch=1)
    assert block(replace(SMALL, arch=arch), layout, fast, 2, FAST).compute == pytest.approx(kernels * US)


def test_a_step_is_its_blocks_and_the_gradients_of_what_is_whole() -> None:
    """With sequence parallelism 24 numbers a block (norms, row biases), 48 bytes: for 3 blocks 10 + 144 µs."""
    shape, fast = replace(SMALL, layers=3), one_flop_a_microsecond()
    plain = predict(shape, Layout(), fast, 2, FAST)
    assert plain.compute + plain.exposed == pytest.approx(3 * (COMPUTE + 84) * US)
    split = predict(shape, Layout(sequence_parallel=True), fast, 2, FAST)
    assert split.compute + split.exposed == pytest.approx((3 * (COMPUTE + 156) + 154) * US)


def test_one_rank_sends_nothing_whatever_the_schedule() -> None:
    for layout in (
        Layout(),
        Layout(sequence_parallel=True, schedule="ring"),
        Layout(schedule="pipelined", chunks=4),
    ):
        found = predict(SMALL, layout, one_flop_a_microsecond(), 1, FAST)
        # all GEMMs are 4 · (48 + 16 + 32 + 32) · 2 FLOPs, attention 128 and 320
        assert found == Part(pytest.approx((3 * 1024 + 448) * US))


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_bytes_on_the_wire(tp: int) -> None:
    """Megatron-LM: 8 (t−1)/t V a block, and 10 with sequence parallelism, however they travel."""
    shape, fast = preset("llama3-70b"), machine(GPUS["h100"], {})
    V = 2 * 4096 * 8192
    link = Link.parse("nvlink4")
    for schedule in ({}, {"schedule": "pipelined", "chunks": 4}):
        assert block(shape, Layout(**schedule), fast, tp, link).wire == pytest.approx(8 * (tp - 1) / tp * V)
    for schedule in (
        {},
        {"schedule": "ring"},
        {"schedule": "symm_mem"},
        {"schedule": "pipelined", "chunks": 4},
    ):
        layout = Layout(sequence_parallel=True, **schedule)
        assert block(shape, layout, fast, tp, link).wire == pytest.approx(10 * (tp - 1) / tp * V)


# -- schedules -----------------------------------------------------------------------------------------------


def test_schedules_by_hand() -> None:
    assert serial(5, 3, 7) == Part(5, 3, 3, 7)
    assert under(5, 3) == Part(5, 3, 0)
    assert under(3, 5) == Part(3, 5, 2)
    assert pipelined(5, 3, 4, 2) == Part(20, 12, 3, 8)  # 5 5 5 5 3
    assert pipelined(3, 5, 4) == Part(12, 20, 11)  # 3 5 5 5 5
    assert ring(5, 3, 4, 2) == Part(20, 9, 0, 6)
    assert ring(3, 5, 4) == Part(12, 15, 6)
    assert ring(3, 5, 4, add=1) == Part(15, 15, 6)


times = st.integers(0, 10**6)


def walked(work: int, exchange: int, chunks: int) -> int:
    """When the last of the chunks has passed two stages, each stage doing one at a time."""
    first = second = 0
    for _ in range(chunks):
        first += work
        second = max(first, second) + exchange
    return second


@given(times, times, st.integers(1, 16))
def test_pipelined_against_a_walk(work: int, exchange: int, chunks: int) -> None:
    found = pipelined(work, exchange, chunks)
    assert found.compute + found.exposed == walked(work, exchange, chunks)


@given(times, times, st.integers(2, 16), times)
def test_ring_against_a_walk(work: int, hop: int, ranks: int, add: int) -> None:
    now = work
    for _ in range(ranks - 1):
        now = max(now + work, now + hop) + add
    found = ring(work, hop, ranks, add=add)
    assert found.compute + found.exposed == now


# -- what must hold always -----------------------------------------------------------------------------------

layouts = st.sampled_from(
    [
        Layout(),
        Layout(overlap_backward=False),
        Layout(schedule="pipelined", chunks=3),
        Layout(sequence_parallel=True),
        Layout(sequence_parallel=True, schedule="ring"),
        Layout(sequence_parallel=True, schedule="ring", overlap_backward=False),
        Layout(sequence_parallel=True, schedule="pipelined", chunks=4),
        Layout(sequence_parallel=True, schedule="symm_mem", forward_only=True),
    ]
)
shapes = st.sampled_from([preset("llama3-8b", seq=256), preset("gpt3-175b"), preset("llama3-70b", batch=2)])
sizes = st.sampled_from([2, 4, 8])
links = st.builds(Link, st.floats(0, 1e-4), st.floats(1e9, 1e12))


@given(shapes, layouts, sizes, links)
def test_parts_and_bounds(shape: Shape, layout: Layout, tp: int, link: Link) -> None:
    found = predict(shape, layout, machine(GPUS["h100"], {}), tp, link)
    assert 0 <= found.exposed <= found.comm * (1 + 1e-9)
    assert found.compute > 0
    assert found.compute + found.exposed >= max(found.compute, found.comm) * (1 - 1e-9)


@given(shapes, layouts, sizes, links, st.floats(1, 10))
def test_a_faster_machine_is_never_slower(
    shape: Shape, layout: Layout, tp: int, link: Link, times: float
) -> None:
    def step(link: Link, **given: float) -> float:
        found = predict(shape, layout, machine(GPUS["h100"], given), tp, link)
        return found.compute + found.exposed

    base = step(link)
    assert step(replace(link, beta=link.beta * times)) <= base * (1 + 1e-9)
    assert step(replace(link, alpha=link.alpha / times)) <= base * (1 + 1e-9)
    assert step(link, gpu_bandwidth=3350 * times) <= base * (1 + 1e-9)
    assert step(link, gpu_flops=989.4 * times) <= base * (1 + 1e-9)
    assert step(link, launch=0.9 / times) <= base * (1 + 1e-9)


@given(shapes, sizes, st.floats(1e9, 1e12))
def test_a_ring_exposes_no_more_than_serial(shape: Shape, tp: int, beta: float) -> None:
    """Forward and without latency, of which a ring has t − 1 where a collective has one."""
    fast, link = machine(GPUS["h100"], {}), Link(0.0, beta)
    one, other = (
        predict(shape, Layout(sequence_parallel=True, forward_only=True, schedule=name), fast, tp, link)
        for name in ("ring", "serial")
    )
    assert one.exposed <= other.exposed * (1 + 1e-9)


# -- work ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "total", "embedding"),
    [
        # Parameters of the published checkpoints; vocabulary of 128256, embedding and output apart.
        ("llama3-8b", 8_030_261_248, 4096),
        ("llama3-70b", 70_553_706_496, 8192),
        ("llama3-405b", 405_853_388_800, 16384),
    ],
)
def test_parameters_of_published_models(name: str, total: int, embedding: int) -> None:
    assert preset(name).parameters(1) == total - 2 * 128256 * embedding - embedding  # and the last norm


def test_flops_and_saved_bytes_of_a_plain_transformer() -> None:
    """24 b s h² a block in GEMMs (f = 4 h); saved bytes as the workload has them, which are measured."""
    shape = preset("gpt3-175b", seq=2048, batch=3)
    flops = sum(linear.product(shape.tokens).flops for linear in shape.linears(1))
    assert flops == 24 * 3 * 2048 * 12288**2
    assert shape.attention(1).flops == 2 * 3 * 2048**2 * 12288
    for tp, split in ((1, False), (8, False), (8, True)):
        config = BlockConfig.of(
            "cuda", hidden=12288, heads=96, ffn=49152, seq=2048, batch=3, sequence_parallel=split
        )
        assert shape.saved(tp, sequence_parallel=split) == config.saved(tp)


def test_more_ranks_than_heads_of_keys_each_hold_one() -> None:
    shape = preset("llama3-70b")
    assert [shape.kv_width(tp) for tp in (1, 8, 16, 64)] == [1024, 128, 128, 128]
    assert shape.linears(16)[0].outputs == 8192 / 16 + 2 * 128
    with pytest.raises(OptionError, match="3 ranks neither divide nor multiply kv_heads 8"):
        shape.check(3)


def test_memory() -> None:
    """gpt, 2 ranks: QKV 24 + 6, O 8, up 16 + 4, down 16, whole 24: 98 weights; kept 2 · 4 · (16 + 8 + 8)."""
    kept = {"sequence_parallel": False, "state_bytes": 12.0}
    assert SMALL.parameters(2) == 98
    assert SMALL.memory(2, forward_only=True, **kept) == 98 * 2 + 256
    assert replace(SMALL, layers=3).memory(2, forward_only=False, **kept) == 3 * (98 * 16 + 256)


def test_roofline() -> None:
    half = machine(
        GPUS["h100"],
        {
            "gpu_flops": 2,
            "gpu_bandwidth": 10,
            "gemm_efficiency": 0.5,
            "attention_efficiency": 0.25,
            "memory_efficiency": 0.8,
            "launch": 3,
        },
    )
    assert half.seconds(Op(2e6, 8)) == pytest.approx(2e-6 + 3e-6)  # 1e12 FLOP/s
    assert half.seconds(Op(2e6, 8, "attention")) == pytest.approx(4e-6 + 3e-6)
    assert half.seconds(Op(0, 8e3, "memory")) == pytest.approx(1e-6 + 3e-6)  # 8e9 B/s
    assert half.seconds(Op(2e6, 32e3)) == pytest.approx(4e-6 + 3e-6)


# -- constants -----------------------------------------------------------------------------------------------


def test_every_gpu_names_a_link_and_every_measurement_is_below_its_peak() -> None:
    assert {gpu.link for gpu in GPUS.values()} <= set(LINKS)
    assert all(seen <= LINKS[name][0] for name, (seen, _) in LINK_SEEN.items())


def test_every_constant_has_a_source_and_an_option_that_exists() -> None:
    found = answer(Request(preset="llama3-70b", gpu="h100", tp=8, beyond="ndr"))
    known = subprocess.run(
        [sys.executable, "-m", "overlapscope", "predict", "--help"],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
        check=True,
    ).stdout
    assert len(found.constants) == 9 + 4 + 3
    for constant in found.constants:
        assert constant.source
        assert constant.option in known


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("gpu_flops", 500.0),
        ("gpu_bandwidth", 1000.0),
        ("gpu_memory", 40.0),
        ("gemm_efficiency", 0.5),
        ("attention_efficiency", 0.5),
        ("memory_efficiency", 0.5),
        ("bus_efficiency", 0.5),
        ("launch", 5.0),
        ("attention_backward", 3.0),
        ("state_bytes", 12.0),
        ("domain", 16),
    ],
)
def test_overrides_count(option: str, value: float) -> None:
    usual = answer(Request(preset="llama3-8b", gpu="h100", tp=8))
    found = answer(Request(preset="llama3-8b", gpu="h100", tp=8, constants={option: value}))
    changed = [c for c, d in zip(found.constants, usual.constants, strict=True) if c != d]
    assert [(c.value, c.source, c.option) for c in changed] == [
        (value, "given", f"--{option.replace('_', '-')}")
    ]
    if option == "gpu_memory":
        assert not found.fits(found.sizes[0])
        assert usual.fits(usual.sizes[0])
    else:
        assert found.sizes != usual.sizes


# -- command -------------------------------------------------------------------------------------------------


def call(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["predict", *map(str, arguments)])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--tp", 8, "--link", "nvlink4", "--sequence-parallel", "--schedule", "ring") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert max(map(len, out.splitlines())) <= 80
    lines = out.splitlines()
    assert sum(line.startswith("→   8 ") for line in lines) == 1
    words = " ".join(out.split())
    assert "A model, not a measurement." in words
    assert "TP 16, 32, 64: n/a, more GPUs than the 8 that nvlink4 joins" in words
    assert "Not modelled - wave quantisation" in words


def test_json_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--gpu", "gb200", "--tp", 16, "--format", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema_version"] == 1
    assert told["measured"] is False
    assert [s["tp"] for s in told["sizes"]] == [1, 2, 4, 8, 16, 32, 64]
    assert told["beyond"] == []
    first = told["sizes"][0]
    assert (first["link"], first["comm_ns"], first["exposed_comm_ns"]) == (None, 0, 0)
    for size in told["sizes"]:
        assert size["step_ns"] == size["compute_ns"] + size["exposed_comm_ns"]
        assert size["speedup"] == pytest.approx(first["step_ns"] / size["step_ns"], rel=1e-6)
        assert size["efficiency"] == pytest.approx(size["speedup"] / size["tp"])
    assert any("copy of the same one" in note for note in told["notes"])


def test_csv_md_and_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "sizes.csv"
    assert call("--format", "csv", "-o", target) == 0
    rows = list(csv.DictReader(io.StringIO(target.read_text())))
    assert [row["tp"] for row in rows] == ["1", "2", "4", "8"]
    assert rows[0]["link"] == ""
    assert call("--format", "md") == 0
    out = capsys.readouterr().out
    assert out.startswith("**TP 8: a step should take ")
    assert "| **8** |" in out
    assert call("-o", target) == 2


def test_beyond_the_domain_over_the_link_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--tp", 16, "--beyond", "ndr", "--format", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [(s["tp"], s["link"]) for s in told["sizes"][2:5]] == [(4, "nvlink4"), (8, "nvlink4"), (16, "ndr")]
    assert told["sizes"][4]["step_ns"] > told["sizes"][3]["step_ns"]


def test_72_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    shape = ("--hidden", 9216, "--heads", 72, "--kv-heads", 72, "--ffn", 27648)
    assert call("--gpu", "gb200", "--tp", 72, *shape, "--format", "csv") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("72,")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--hidden", "9" * 400), "--hidden: has more than 63 bits; give a smaller number"),
        (("--domain", "9" * 400), "--domain: has more than 63 bits; give a smaller number"),
        (("--tp", "9" * 400), "--tp: has more than 63 bits; give a smaller number"),
        (("--gpu", "h10"), "--gpu: 'h10' is not known; did you mean h100?"),
        (("--preset", "lama3-70b"), "--preset: 'lama3-70b' is not known; did you mean llama3-70b?"),
        (("--link", "nvlink44"), "--link: 'nvlink44' is no link; did you mean nvlink4?"),
        (("--beyond", "ndx"), "--beyond: 'ndx' is no link; did you mean ndr?"),
        (
            ("--link", "ndr", "--beyond", "hdr"),
            "--beyond: no limit of ndr is known that this could lie beyond",
        ),
        (("--tp", "3"), "--tp: 3 ranks do not divide heads 64; give 2 or 4"),
        (("--tp", "0"), "--tp: is 0; give 1 or more"),
        (("--tp", "16"), "--tp: 16 GPUs are more than the 8 that nvlink4 joins"),
        (("--kv-heads", "7"), "--kv-heads: 7 do not divide heads 64; give a divisor of it"),
        (
            ("--heads", "4", "--hidden", "64", "--tp", "2"),
            "--heads: 4 is no multiple of the 8 heads of keys and values of llama3-70b; give one, or --kv-heads 4",
        ),
        (("--kv-heads", "0"), "--kv-heads: 0 do not divide heads 64; give a divisor of it"),
        (("--hidden", "100"), "--heads: 64 do not divide hidden 100; give 50 or 100"),
        (("--seq", "-1"), "--seq: is -1; give 1 or more"),
        (("--schedule", "ring"), "--schedule: ring passes parts of the sequence"),
        (("--chunks", "2"), "--chunks: serial has none"),
        (("--gpu-flops", "-5"), "--gpu-flops: is -5; give a number from 1e-06 to 1e+12"),
        (("--gemm-efficiency", "1.1"), "--gemm-efficiency: is 1.1; give a number from 1e-06 to 1"),
        (("--bus-efficiency", "nan"), "--bus-efficiency: is nan; give a number from 1e-06 to 1"),
        (("--launch", "-1"), "--launch: is -1; give a number from 0 to 1e+12"),
        (("--domain", "0"), "--domain: is 0; give a number from 1 to 1e+12"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"overlapscope: {said}")
    assert err.count("\n") == 1


def test_without_torch_and_pandas() -> None:
    program = (
        "import sys\n"
        "from overlapscope.cli import main\n"
        "try: main(['predict', '--preset', 'llama3-8b'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "assert not {'torch', 'pandas'} & set(sys.modules), 'heavy'\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
