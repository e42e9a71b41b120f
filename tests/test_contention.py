"""What overlap costs: the definition on handmade traces, exactly, and where it must say nothing."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import overlapscope as osc
from builders import TraceBuilder, kineto, nsys
from made import made
from overlapscope.analysis.contention import KERNEL_COLUMNS
from overlapscope.report import document, text

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"


def builder(alone: list[int], under: list[int], other: int = 0) -> TraceBuilder:
    """GEMMs of these durations, one every 1000 ns, the later ones each under an all-reduce; `other`: grid apart."""
    t = TraceBuilder()
    g = t.process(pid=7, rank=0).device(0)
    for i, length in enumerate(alone + under):
        grid = (64, 2, 1) if i < len(alone) or not other else (64, 2, other)
        g.kernel(GEMM, 1000 * i, 1000 * i + length, stream=7, grid=grid, block=(256, 1, 1))
        if i >= len(alone):
            g.kernel(ALL_REDUCE, 1000 * i, 1000 * i + length, stream=20)
    return t


def found(t: TraceBuilder, path: Path) -> osc.Contention:
    return osc.contention(osc.load(nsys.write(t, path)))


def test_median_against_median_and_the_sum_of_what_is_above_it(tmp_path: Path) -> None:
    """Alone 100, 104, 110, 300: median 107. Under: 130, 150, 190: median 150, 23 + 43 + 83 lost of 470 hidden."""
    result = found(builder([300, 100, 110, 104], [150, 130, 190]), tmp_path / "t.sqlite")
    (row,) = result.kernels.to_dict("records")
    assert row == {
        "rank": 0,
        "name": GEMM,
        "shape": "64x2x1 256x1x1",
        "n_overlapped": 3,
        "n_alone": 4,
        "overlapped_ns": 150.0,
        "alone_ns": 107.0,
        "slowdown": 150 / 107 - 1,
        "contention_ns": 149.0,
    }
    assert (result.hidden_ns, result.total_ns, result.net_gain_ns) == (470, 149, 321)
    assert result.slowdown == pytest.approx(149 / 321)
    assert (result.n_overlapped, result.n_measured) == (3, 3)
    assert list(result.kernels.columns) == list(KERNEL_COLUMNS)


def test_half_a_nanosecond_is_kept(tmp_path: Path) -> None:
    result = found(builder([100, 100, 101, 101], [110, 110, 110]), tmp_path / "t.sqlite")
    assert result.total_ns == Fraction(57, 2)  # three times 9.5
    assert result.net_gain_ns == 330 - Fraction(57, 2)


@pytest.mark.parametrize(
    ("alone", "under", "other"),
    [([100] * 3, [150] * 2, 0), ([100] * 2, [150] * 3, 0), ([100] * 3, [150] * 3, 3)],
    ids=["two under it", "two alone", "another grid"],
)
def test_too_few_alike_is_no_figure(tmp_path: Path, alone: list[int], under: list[int], other: int) -> None:
    result = found(builder(alone, under, other), tmp_path / "t.sqlite")
    assert (result.total_ns, result.slowdown, result.net_gain_ns) == (None, None, None)
    assert (result.n_overlapped, result.n_measured, len(result.kernels)) == (len(under), 0, 0)


@pytest.mark.parametrize(("share", "counts"), [(90, 3), (89, 0)])
def test_ninety_percent_counts_as_overlapped(tmp_path: Path, share: int, counts: int) -> None:
    t = TraceBuilder()
    g = t.process(pid=7, rank=0).device(0)
    for i in range(6):
        g.kernel(GEMM, 1000 * i, 1000 * i + 100, stream=7)
        g.kernel(ALL_REDUCE, 1000 * i, 1000 * i + (share if i < 3 else 10), stream=20)
    result = found(t, tmp_path / "t.sqlite")
    assert result.n_overlapped == counts
    assert result.total_ns == (0 if counts else None)


def test_ops_that_a_window_cuts_are_left_out(tmp_path: Path) -> None:
    trace = osc.load(nsys.write(builder([100] * 3, [150] * 4), tmp_path / "t.sqlite"))
    assert osc.contention(trace).n_overlapped == 4
    assert osc.contention(trace, "0:6100ns").n_overlapped == 3
    assert osc.contention(trace, "0:6100ns").hidden_ns == 550


def test_ranks_are_compared_each_with_itself(tmp_path: Path) -> None:
    """The second GPU is slower throughout, which is no contention."""
    t = TraceBuilder()
    for rank, length in ((0, 100), (1, 200)):
        g = t.process(pid=7 + rank, rank=rank).device(rank)
        for i in range(6):
            g.kernel(GEMM, 1000 * i, 1000 * i + length, stream=7)
            if i >= 3:
                g.kernel(ALL_REDUCE, 1000 * i, 1000 * i + length, stream=20)
    result = found(t, tmp_path / "t.sqlite")
    assert result.total_ns == 0
    assert result.kernels["slowdown"].tolist() == [0.0, 0.0]


def test_every_format_carries_what_makes_kernels_alike(tmp_path: Path) -> None:
    """From PyTorch's profiler, and from there through our own file, too."""
    t = builder([300, 100, 110, 104], [150, 130, 190])
    traces = [osc.load(kineto.write(t.rank(0), tmp_path / "rank0.json"))]
    nsys_file = tmp_path / "converted.sqlite"
    from overlapscope.formats import nsys as ours

    ours.write(traces[0], nsys_file)
    traces.append(osc.load(nsys_file))
    for trace in traces:
        assert osc.contention(trace).total_ns == 149
        assert "64x2x1 256x1x1" in trace.shapes


def test_input_dimensions_tell_the_operators_of_a_cpu_run_apart(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process(pid=7, rank=0, world=1, backend="gloo")
    for i in range(12):
        size = 8 if i % 2 else 16
        p.op("aten::mm", 1000 * i, 1000 * i + 10 * size + (50 if i >= 6 else 0), dims=[[size, 8], [8, 8]])
        if i >= 6:
            p.op("gloo:all_reduce", 1000 * i, 1000 * i + 500, thread=50)
    trace = osc.load(kineto.write(p, tmp_path / "rank0.json"))
    from overlapscope.formats import nsys as ours

    ours.write(trace, tmp_path / "t.sqlite")
    for each in (trace, osc.load(tmp_path / "t.sqlite")):
        kernels = osc.contention(each).kernels.set_index("shape")
        assert kernels["contention_ns"].to_dict() == {"[[8, 8], [8, 8]]": 150.0, "[[16, 8], [8, 8]]": 150.0}


def test_the_report_says_gain_and_cost_beside_each_other_or_why_not(tmp_path: Path) -> None:
    def said(t: TraceBuilder) -> str:
        shown = text.render(
            document.build(osc.load(nsys.write(t, tmp_path / f"{len(list(tmp_path.iterdir()))}")))
        )
        return " ".join(shown.split())

    assert (
        "takes 146.4 % of its time alone (3 of 3 ops could be compared): overlap hides 470 ns and costs 149 ns per "
        "window, a net gain of 321 ns." in said(builder([300, 100, 110, 104], [150, 130, 190]))
    )
    assert "Slowdown of compute under communication: n/a. 2 ops ran under it" in said(
        builder([100], [150, 150])
    )
    t = TraceBuilder()
    t.process(pid=7, rank=0).device(0).kernel(GEMM, 0, 10, stream=7)
    assert "under communication" not in said(t)


# -- against the definition, in plain Python ----------------------------------------------------------------

ops = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 8), st.sampled_from(["gemm", "compute", "comm"])),
    min_size=1,
    max_size=40,
)


def median(values: list[int]) -> Fraction:
    ordered = sorted(values)
    return Fraction(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2], 2)


@given(ops)
def test_against_the_definition(some: list[tuple[int, int, str]]) -> None:
    result = osc.contention(
        made([{"rank": 0, "start": s, "end": s + n, "kind": k} for s, n, k in some], ranks=1)
    )
    comm = {t for s, n, k in some if k == "comm" for t in range(s, s + n)}
    compute = {t for s, n, k in some if k != "comm" for t in range(s, s + n)}
    assert result.hidden_ns == len(comm & compute)
    total, measured = Fraction(0), False
    for kind in ("gemm", "compute"):
        mine = [(n, len(comm & set(range(s, s + n)))) for s, n, k in some if k == kind and n]
        under = [n for n, beside in mine if beside >= 0.9 * n]
        alone = [n for n, beside in mine if beside <= 0.1 * n]
        if len(under) >= 3 and len(alone) >= 3:
            measured = True
            total += sum(n - median(alone) for n in under)
    assert result.total_ns == (total if measured else None)
