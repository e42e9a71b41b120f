"""The export to Perfetto: what stands in the file, to the nanosecond, and whether its tracks are well formed."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import overlapscope as osc
from builders import TraceBuilder, nsys
from overlapscope.analysis.exposed import exposed, instance_ops
from overlapscope.cli import main
from overlapscope.formats import perfetto
from overlapscope.intervals import nesting
from overlapscope.report import document, tracks

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
HOSTILE = 'a"b\\</script>\x1b[31m\u202e\n,{"ph":"X"}'

Event = dict[str, Any]
SHARED = [
    "kineto/megatron-tp8-a100",
    "kineto/nccl-args-a100.json.gz",
    "kineto/cpu-only.json.gz",
    "nsys/ddp-2rank-rtx3090-schema3.27.sqlite",
    "nsys/pp-2rank-h100-schema3.25.sqlite",
    "nsys/nvfuser-schema3.16.sqlite",
]


def late_rank(path: Path) -> Path:
    """Rank 1 comes 30 ns late to an all-reduce of 100 ns; GEMMs hide 20 ns of rank 0's waiting, 10 of its transfer."""
    t = TraceBuilder()
    for rank, start in ((0, 1000), (1, 1030)):
        p = t.process(pid=7 + rank, rank=rank, world=2)
        p.mark(f"rank {rank} of 2", 0, domain="overlapscope", category="rank")
        p.range("step 0", 500, 2000, domain="overlapscope", category="step")
        p.range(HOSTILE, 600, 1900)
        g = p.device(rank)
        g.kernel(GEMM, 900, 1020, stream=7, launch=(700, 710))
        g.kernel(ALL_REDUCE, start, 1100, stream=20, launch=(720, 730))
        g.kernel(GEMM, 1090, 1234 + rank, stream=7, launch=(740, 750))
    return nsys.write(t, path)


def exported(path: Path, tmp_path: Path, *options: str) -> dict[str, Any]:
    output = tmp_path / "out.json"
    with pytest.raises(SystemExit) as ended:
        main(["export", str(path), "--to", "perfetto", "-o", str(output), *options])
    assert ended.value.code == 0
    # Every digit of a time as it was written.
    return json.loads(output.read_text(), parse_float=Decimal)


def tracks_of(whole: dict[str, Any]) -> dict[tuple[str, str], list[Event]]:
    """Events by names of process and thread, in the order of the file."""
    process, thread = {}, {}
    for event in whole["traceEvents"]:
        if event["ph"] == "M" and event["name"] == "process_name":
            process[event["pid"]] = event["args"]["name"]
        if event["ph"] == "M" and event["name"] == "thread_name":
            thread[event["tid"]] = event["args"]["name"]
    found = defaultdict(list)
    for event in whole["traceEvents"]:
        if event["ph"] != "M":
            found[process[event["pid"]], thread[event["tid"]]].append(event)
    return found


def ns(us: Decimal) -> int:
    assert us * 1000 == int(us * 1000)
    return int(us * 1000)


def pieces_of(track: list[Event]) -> list[tuple[str, int, int]]:
    return [(e["name"], ns(e["ts"]), ns(e["ts"] + e["dur"])) for e in track]


def check(whole: dict[str, Any]) -> None:
    """The format's required keys; every thread in order, its events apart or one inside the other."""
    assert whole["displayTimeUnit"] == "ns"
    owner: dict[int, int] = {}
    open_ends: dict[int, list[Decimal]] = defaultdict(list)
    last: dict[int, Decimal] = {}
    for event in whole["traceEvents"]:
        assert event["ph"] in ("X", "M")
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert event["pid"] > 0
        thread = event["tid"]
        if event["ph"] == "M":
            assert list(event["args"]) in (["name"], ["sort_index"])
            continue
        assert owner.setdefault(thread, event["pid"]) == event["pid"]
        assert event["dur"] >= 0
        assert event["ts"] >= last.get(thread, event["ts"])
        last[thread] = event["ts"]
        ends = open_ends[thread]
        while ends and ends[-1] <= event["ts"]:
            ends.pop()
        assert not ends or event["ts"] + event["dur"] <= ends[-1]
        ends.append(event["ts"] + event["dur"])


def test_a_late_rank(tmp_path: Path) -> None:
    whole = exported(late_rank(tmp_path / "t.sqlite"), tmp_path)
    check(whole)
    found = tracks_of(whole)
    first, second = (next(p for p, _ in found if p.startswith(f"rank {r}")) for r in (0, 1))
    assert pieces_of(found[first, perfetto.EXPOSED]) == [
        ("all_reduce: waiting for a late rank", 1020, 1030),
        ("all_reduce: transfer", 1030, 1090),
    ]
    assert pieces_of(found[second, perfetto.EXPOSED]) == [("all_reduce: transfer", 1030, 1090)]
    assert pieces_of(found[first, "analysed window"]) == [("analysed", 900, 1234)]
    assert pieces_of(found[second, "steps"]) == [("step 0", 500, 2000)]
    comm = [e for (p, _), track in found.items() if p == first for e in track if e["cat"] == "comm"]
    assert [e["args"] for e in comm] == [
        {
            "collective": "all_reduce",
            "match": 0,
            "overlap_ns": 30,
            "exposed_ns": 70,
            "wait_ns": 30,
            "transfer_ns": 70,
        }
    ]
    assert comm[0]["name"] == ALL_REDUCE


def test_times_are_written_digit_by_digit(tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    with pytest.raises(SystemExit):
        main(["export", str(late_rank(tmp_path / "t.sqlite")), "--to", "perfetto", "-o", str(output)])
    assert '"ts":0.900,"dur":0.334' in output.read_text()
    # 104 days in ns, where a float of µs has no room left for them.
    assert perfetto._us(9_007_199_254_740_993) == "9007199254740.993"
    assert [perfetto._us(n) for n in (-1, -1001, 0, 7, 1_000_000)] == [
        "-0.001",
        "-1.001",
        "0.000",
        "0.007",
        "1000.000",
    ]


def test_hostile_names_are_data(tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    whole = exported(late_rank(tmp_path / "t.sqlite"), tmp_path)
    assert sum(e["name"] == HOSTILE for e in whole["traceEvents"]) == 2
    text = output.read_text()
    assert text.isascii()
    assert "\x1b" not in text


def test_gzip_holds_the_same_and_is_reproducible(tmp_path: Path) -> None:
    path = late_rank(tmp_path / "t.sqlite")
    plain = exported(path, tmp_path)
    for name in ("a.json.gz", "b.json.gz"):
        with pytest.raises(SystemExit):
            main(["export", str(path), "--to", "perfetto", "-o", str(tmp_path / name)])
    one, other = ((tmp_path / name).read_bytes() for name in ("a.json.gz", "b.json.gz"))
    assert one == other
    assert json.loads(gzip.decompress(one), parse_float=Decimal) == plain


def test_ranks_are_brought_to_one_clock(tmp_path: Path) -> None:
    built = document.build(osc.load(late_rank(tmp_path / "t.sqlite")))
    told = tracks.of(built) | {"offsets": {1: 30}}
    perfetto.write(built.trace, tmp_path / "out.json", **told)
    whole = json.loads((tmp_path / "out.json").read_text(), parse_float=Decimal)
    start = {e["pid"]: ns(e["ts"]) for e in whole["traceEvents"] if e.get("cat") == "comm"}
    assert start == {1: 1000, 2: 1000}


def test_a_file_is_not_replaced_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, output = late_rank(tmp_path / "t.sqlite"), tmp_path / "out.json"
    output.write_text("mine")
    with pytest.raises(SystemExit) as ended:
        main(["export", str(path), "--to", "perfetto", "-o", str(output)])
    assert ended.value.code == 2
    assert output.read_text() == "mine"
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize("file", SHARED)
@pytest.mark.parametrize("window", ["whole", "steps"])
def test_real_traces(shared_traces: Path, tmp_path: Path, file: str, window: str) -> None:
    trace = osc.load(shared_traces / file)
    try:
        result = osc.overlap(trace, window)
    except osc.OptionError:
        pytest.skip("no steps")
    whole = exported(shared_traces / file, tmp_path, "--window", window)
    check(whole)
    total: dict[int, int] = defaultdict(int)
    n_ops: dict[int, int] = defaultdict(int)
    kinds = {kind.value for kind in osc.Kind}
    for (process, thread), events in tracks_of(whole).items():
        rank = int(process.split()[1])
        if thread == perfetto.EXPOSED:
            total[rank] += sum(ns(e["dur"]) for e in events)
        elif all(e["cat"] in kinds for e in events):
            n_ops[rank] += len(events)
    ranks = result.ranks
    assert [total[r] for r in ranks["rank"]] == ranks["exposed_comm_ns"].tolist()
    assert sum(n_ops.values()) == len(trace.ops)
    states = exposed(trace, result)
    length = (states["end"] - states["start"]).groupby([states["rank"], states["state"]]).sum()
    for column, state in (("wait", "wait"), ("wire", "wire"), ("unsplit", "unsplit")):
        wanted = dict(zip(ranks["rank"], ranks[f"exposed_{column}_ns"].fillna(0), strict=True))
        assert {r: length.get((r, state), 0) for r in wanted} == wanted
    ops = trace.ops.iloc[instance_ops(trace, result)]
    assert np.array_equal(ops["start"], result.instances["start"])


intervals = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=25)


@given(intervals)
def test_rows_nest_and_none_is_idle(lengths: list[tuple[int, int]]) -> None:
    start = np.array([a for a, _ in lengths], np.int64)
    end = start + np.array([n for _, n in lengths], np.int64)
    row = nesting(start, end)
    for i in range(len(start)):
        for j in range(i):
            if row[i] == row[j]:
                crossing = start[i] < start[j] < end[i] < end[j] or start[j] < start[i] < end[j] < end[i]
                assert not crossing
    assert sorted(set(row.tolist())) == list(range(int(row.max(initial=-1)) + 1))


def test_what_nests_is_one_row() -> None:
    start = np.array([0, 1, 2, 5, 10, 11], np.int64)
    end = np.array([9, 4, 3, 9, 12, 14], np.int64)
    assert nesting(start, end).tolist() == [0, 0, 0, 0, 0, 1]
