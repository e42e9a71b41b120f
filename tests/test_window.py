"""Which time is analysed: steps, warm-up, pieces, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import overlapscope as osc
from builders import TraceBuilder, nsys
from overlapscope.analysis.window import find_steps
from overlapscope.report import document, text

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"


def two_steps(names: tuple[str, str, str] = ("warmup 0", "step 0", "step 1")) -> TraceBuilder:
    """Three steps on the host, 1000 ns each; the GPU runs 200 ns behind."""
    t = TraceBuilder()
    p = t.process(pid=7, rank=0, world=1)
    g = p.device(0)
    for i, name in enumerate(names):
        at = 1000 * i
        p.range(name, at, at + 1000)
        g.kernel(GEMM, at + 200, at + 700, stream=7, launch=(at + 10, at + 12))
        g.kernel(ALL_REDUCE, at + 600, at + 1100, stream=20, launch=(at + 20, at + 22))
    return t


def load(t: TraceBuilder, tmp_path: Path, style: str = "3.25") -> osc.Trace:
    return osc.load(nsys.write(t, tmp_path / "t.sqlite", style=style))


def test_steps_are_the_default_and_warmup_is_left_out(tmp_path: Path) -> None:
    """Each step runs from its first kernel to its last one's end, though that lies beyond the host's range."""
    result = osc.overlap(load(two_steps(), tmp_path))
    assert result.windows.mode == "steps"
    assert result.windows.steps == ("step 0", "step 1")
    assert result.windows.left_out == ("warmup 0",)
    spans = result.windows.of_rank[0]
    assert list(zip(spans.start.tolist(), spans.end.tolist(), strict=True)) == [(1200, 2100), (2200, 3100)]
    assert result.ranks.loc[0, ["window_ns", "comm_ns", "overlap_ns", "n_ops"]].tolist() == [
        1800,
        1000,
        200,
        4,
    ]


@pytest.mark.parametrize(
    "names",
    [
        ("Warm-up Step 1", "ProfilerStep#4", "ProfilerStep#5"),
        ("warmup_0", "iteration 1", "iteration 2"),
        ("warm_up 3", "Step_1", "step2"),
    ],
)
def test_other_peoples_step_names(tmp_path: Path, names: tuple[str, str, str]) -> None:
    windows = osc.windows(load(two_steps(names), tmp_path))
    assert (windows.left_out, windows.steps) == (names[:1], names[1:])


def test_names_that_only_look_like_steps(tmp_path: Path) -> None:
    names = ("step", "optimizer.step", "stepping stone 3")
    assert osc.windows(load(two_steps(names), tmp_path)).mode == "whole"


def test_a_users_step_pattern(tmp_path: Path) -> None:
    windows = osc.windows(load(two_steps(("epoch", "batch=1", "batch=2")), tmp_path), None, r"^batch=\d+$")
    assert windows.steps == ("batch=1", "batch=2")
    with pytest.raises(osc.OptionError, match=r"--step-pattern: 'nothing' matches no range"):
        osc.windows(load(two_steps(), tmp_path), None, "nothing")
    with pytest.raises(osc.OptionError, match=r"--step-pattern: is not a regular expression"):
        osc.windows(load(two_steps(), tmp_path / ""), None, "(")


def test_roles_of_the_marker_convention(tmp_path: Path) -> None:
    """A range whose NVTX category says step is one, whatever its name."""
    t = TraceBuilder()
    p = t.process(pid=7, rank=0)
    p.range("first", 0, 100, domain="overlapscope", category="warmup")
    p.range("second", 100, 200, domain="overlapscope", category="step")
    g = p.device(0)
    g.kernel(GEMM, 10, 20, stream=7, launch=(1, 2))
    g.kernel(GEMM, 110, 130, stream=7, launch=(101, 102))
    windows = osc.windows(load(t, tmp_path))
    assert (windows.left_out, windows.steps) == (("first",), ("second",))


def test_a_step_told_on_two_threads_is_one_step(tmp_path: Path) -> None:
    t = two_steps()
    t.processes[0].range("step 0", 1001, 1990, thread=99)
    assert len(find_steps(load(t, tmp_path))) == 3


def test_an_op_without_launch_record_counts_by_its_start(tmp_path: Path) -> None:
    t = two_steps()
    t.processes[0].devices[0].kernel(GEMM, 2150, 2200, stream=9)  # no launch; between the steps' kernels
    result = osc.overlap(load(t, tmp_path))
    spans = result.windows.of_rank[0]
    assert list(zip(spans.start.tolist(), spans.end.tolist(), strict=True)) == [(1200, 2100), (2150, 3100)]


def test_ranks_without_steps_fall_back_to_the_whole_and_say_so(tmp_path: Path) -> None:
    t = two_steps()
    t.process(pid=8, rank=1).device(1).kernel(GEMM, 0, 50, stream=7)
    trace = load(t, tmp_path)
    windows = osc.windows(trace)
    assert windows.mode == "whole"
    assert windows.note is not None
    assert "rank 1" in windows.note
    with pytest.raises(osc.OptionError, match="rank 1"):
        osc.windows(trace, "steps")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("5ms:6ms", r"lies outside the trace; the trace's ops run from 0\.0002 ms to 0\.0031 ms"),
        ("300:200", "ends before it starts"),
        ("half", "cannot read 'half'; give whole, steps, or START:END"),
        ("1:2:3", "cannot read"),
        ("1h:2h", "cannot read"),
        (":", "cannot read"),
        ("1:2ms", "has one unit for two times; give both a unit"),
        ("0:99999999999s", "is out of range"),
        ("0:99999999999999999999", "is out of range"),
        ("0:" + "9" * 5000, "cannot read"),
    ],
)
def test_windows_that_make_no_sense(tmp_path: Path, spec: str, said: str) -> None:
    with pytest.raises(osc.OptionError, match=said):
        osc.windows(load(two_steps(), tmp_path), spec)


@pytest.mark.parametrize(
    ("spec", "bounds"),
    [
        ("200:1200", (200, 1200)),
        ("0.2us:1.2µs", (200, 1200)),
        ("-1ms:0.0005ms", (-1_000_000, 500)),
        ("0s:1s", (0, 10**9)),
        ("500ns:", (500, 3100)),
        (":1us", (200, 1000)),
    ],
)
def test_units_of_a_window(tmp_path: Path, spec: str, bounds: tuple[int, int]) -> None:
    spans = osc.windows(load(two_steps(), tmp_path), spec).of_rank[0]
    assert (int(spans.start[0]), int(spans.end[0])) == bounds


def test_steps_asked_for_where_there_are_none(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.process(pid=1).device(0).kernel(GEMM, 0, 10, stream=7)
    with pytest.raises(osc.OptionError, match="no step ranges; use --window whole"):
        osc.windows(load(t, tmp_path), "steps")


def test_steps_of_one_name_are_counted_one_by_one(tmp_path: Path) -> None:
    windows = osc.windows(load(two_steps(("block", "block", "block")), tmp_path), None, "^block$")
    assert windows.steps == ("block", "block", "block")
    assert windows.n_steps == {0: 3}


def test_a_pattern_may_ask_for_the_warm_up(tmp_path: Path) -> None:
    windows = osc.windows(load(two_steps(), tmp_path), None, "warmup")
    assert windows.steps == ("warmup 0",)
    assert windows.left_out == ()


def test_a_step_without_ops_is_named_and_divides_nothing(tmp_path: Path) -> None:
    t = two_steps()
    t.processes[0].range("step 2", 3100, 4000)
    trace = load(t, tmp_path)
    windows = osc.windows(trace)
    assert windows.steps == ("step 0", "step 1")
    assert windows.without_ops == ("step 2",)
    assert windows.n_steps == {0: 2}
    said = text.render(document.build(trace))
    # Twice 400 ns of the all-reduce lie after the GEMM's end.
    assert "Exposed: 400 ns of communication per step" in said
    assert "1 step without ops (step 2) not counted" in " ".join(said.split())
    assert osc.account(trace).steps == 2
