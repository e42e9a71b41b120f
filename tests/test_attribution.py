"""Which range an op was launched in: nesting, other threads, other ranks, and what cannot be known."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import overlapscope as osc
from builders import TraceBuilder, kineto, nsys
from made import made
from overlapscope.analysis.attribution import launched_in
from overlapscope.trace import NA

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"


def names(trace: osc.Trace, **only: str) -> list[str | None]:
    """The range of each op by name, of ranges with these values if given."""
    among = None
    for column, value in only.items():
        among = (trace.ranges[column] == value).to_numpy()
    ranges = trace.ranges["name"].astype(object).tolist()
    return [None if i < 0 else ranges[i] for i in launched_in(trace, among).tolist()]


def test_the_innermost_range_at_the_launch_whenever_the_op_runs(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process(pid=7, rank=0)
    p.range("step 0", 0, 1000)
    p.range("layer 0", 100, 500)
    p.range("up", 110, 200)
    p.range("down", 200, 300)
    g = p.device(0)
    for i, launch in enumerate((50, 110, 199, 200, 300, 499, 500, 999, 1000)):
        g.kernel(GEMM, 5000 + 10 * i, 5005 + 10 * i, stream=7, launch=(launch, launch + 1))
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    expected = ["step 0", "up", "up", "down", "layer 0", "layer 0", "step 0", "step 0", None]
    assert names(trace) == expected


def test_a_range_holds_what_its_own_thread_of_its_own_process_launches(tmp_path: Path) -> None:
    """Autograd runs the backward on another thread, and two processes use the same thread ids."""
    t = TraceBuilder()
    for rank in (0, 1):
        p = t.process(pid=7 + rank, rank=rank)
        p.range("main", 0, 100)
        p.range(f"backward of {rank}", 0, 100, thread=99)
        g = p.device(rank)
        g.kernel(GEMM, 10, 20, stream=7, launch=(5, 6))
        g.kernel(GEMM, 20, 30, stream=7, launch=(5, 6), thread=99)
        g.kernel(GEMM, 30, 40, stream=7, launch=(5, 6), thread=50)
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    assert names(trace) == ["main", "backward of 0", None, "main", "backward of 1", None]


def test_ops_without_a_launch_and_ranges_without_an_end_are_left_alone(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process(pid=7, rank=0)
    p.range("step 0", 0, 100)
    p.range("open", 10, None)
    g = p.device(0)
    g.kernel(GEMM, 10, 20, stream=7)
    g.kernel(GEMM, 20, 30, stream=7, launch=(12, 13))
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    assert names(trace) == [None, "step 0"]


def test_only_the_ranges_asked_for(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process(pid=7, rank=0)
    p.range("up", 0, 100, domain="overlapscope", category="sharded")
    p.range("up.all_reduce", 10, 50, domain="overlapscope", category="comm")
    p.device(0).kernel(GEMM, 20, 30, stream=7, launch=(20, 21))
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    assert names(trace) == ["up.all_reduce"]
    assert names(trace, role="sharded") == ["up"]
    assert names(trace, role="step") == [None]


def test_on_a_cpu_run_an_op_is_launched_when_it_starts(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process(pid=7, rank=0, world=1, backend="gloo")
    p.range("up", 0, 50)
    p.op("aten::mm", 40, 60)
    p.op("aten::mm", 60, 70)
    trace = osc.load(kineto.write(p, tmp_path / "rank0.json"))
    assert names(trace) == ["up", None]


# (rank, thread, start, length) of a range, and (rank, thread, launch) of an op
ranges = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 20), st.integers(0, 9)), max_size=8
)
launches = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 25)), min_size=1, max_size=8
)


@settings(deadline=None)  # pandas is slow to warm on a busy machine
@given(ranges, launches)
def test_against_looking_at_every_range(some: list[tuple[int, ...]], ops: list[tuple[int, ...]]) -> None:
    trace = made(
        [
            {"rank": r, "thread": th, "launch": at, "start": 100, "end": 101, "kind": "gemm"}
            for r, th, at in ops
        ],
        [
            {"rank": r, "thread": th, "start": s, "end": s + n, "name": str(i)}
            for i, (r, th, s, n) in enumerate(some)
        ],
    )
    found = launched_in(trace).tolist()
    rows = trace.ranges[["rank", "thread", "start", "end"]].to_numpy().tolist()
    for op, position in zip(trace.ops[["rank", "thread", "launch"]].to_numpy().tolist(), found, strict=True):
        holding = [row for row in rows if row[:2] == op[:2] and row[2] <= op[2] < row[3]]
        assert (position >= 0) == bool(holding)
        if holding:
            assert rows[position] == max(holding, key=lambda row: (row[2], -row[3]))
    assert NA not in found
