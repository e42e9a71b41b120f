"""Real traces of other people, against figures from an independent sweep over integer nanoseconds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import overlapscope as osc
from overlapscope.cli.peak import peak_of
from overlapscope.report import document

KINETO_RANKS = [f"megatron-tp8-a100/rank{r}" for r in range(8)] + [
    f"dlrm-8rank-v100/rank{r}" for r in range(8)
]
KINETO = [*KINETO_RANKS, "nccl-args-a100", "resnet-1of2-v100", "resnet-1of8-a100"]
KINETO += ["sampled-128ranks/rank0", "sampled-128ranks/rank1"]
NSYS = [
    "cuda-mpi-schema2.9",
    "cuda-mpi-schema3.13",
    "ddp-2rank-rtx3090-schema3.27",
    "graph-trace-schema3.24",
    "lm-1gpu-schema3.17",
    "nvfuser-schema3.16",
    "pp-2rank-h100-schema3.25",
]
FILES = [f"kineto/{name}.json.gz" for name in KINETO] + [f"nsys/{name}.sqlite" for name in NSYS]

EXACT = {
    "comm_ns": "comm_ns",
    "compute_ns": "compute_ns",
    "overlap_ns": "overlap_ns",
    "exposed_ns": "exposed_comm_ns",
    "memory_ns": "memory_ns",
    "n_comm": "n_comm",
}


@pytest.fixture(scope="module")
def expected(shared_traces: Path) -> dict[str, Any]:
    return json.loads((shared_traces / "expected.json").read_text())


def test_every_expected_file_is_tested(expected: dict[str, Any]) -> None:
    refused = {"kineto/cpu-only.json.gz", "kineto/no-rank-recorded.json.gz", "nsys/not-an-nsys-export.sqlite"}
    assert set(expected) == {*FILES, *refused}


@pytest.mark.parametrize("file", FILES)
def test_figures_agree_to_the_nanosecond(shared_traces: Path, expected: dict[str, Any], file: str) -> None:
    trace = osc.load(shared_traces / file)
    rows = osc.overlap(trace, "whole").ranks.to_dict("records")
    wanted = {key: figures for key, figures in expected[file].items() if isinstance(figures, dict)}
    got = {}
    for row in rows:
        key = f"dev{row['device']}" if file.startswith("kineto") else f"pid{row['pid']}/dev{row['device']}"
        got[key] = {theirs: row[ours] for theirs, ours in EXACT.items()}
        got[key]["n_all"] = row["n_ops"]
    for figures in wanted.values():
        figures["n_all"] = sum(figures[n] for n in ("n_comm", "n_gemm", "n_other", "n_mem"))
    assert got == {
        key: {name: figures[name] for name in [*EXACT, "n_all"]} for key, figures in wanted.items()
    }
    if "rank" in expected[file]:
        assert [row["rank"] for row in rows] == [expected[file]["rank"]]


def test_megatron_is_one_trace_of_eight_ranks(shared_traces: Path) -> None:
    trace = osc.load(shared_traces / "kineto/megatron-tp8-a100")
    result = osc.overlap(trace)
    assert result.ranks["rank"].tolist() == list(range(8))
    assert result.windows.steps == ("ProfilerStep#3",)
    assert result.ranks["overlap_ns"].sum() == 0
    assert result.ranks["n_comm"].tolist() == [84] * 8
    assert result.collectives["collective"].unique().tolist() == ["all_reduce"]


def test_bandwidth_of_nvlink_and_of_pcie(shared_traces: Path) -> None:
    """nccl-tests shows 200 to 240 GB/s of 300 on A100s with larger messages; about 10 over a PCIe 4 host bridge."""
    trace = osc.load(shared_traces / "kineto/megatron-tp8-a100")
    built = document.build(trace, peak=peak_of(trace))
    large = built.rates.table.iloc[-1]
    assert large[["collective", "bytes", "ranks", "exchanges"]].tolist() == ["all_reduce", 64 << 20, 8, 81]
    assert 190 < large["busbw_gbs"] < 210
    assert large["peak_gbs"] == 300
    trace = osc.load(shared_traces / "nsys/ddp-2rank-rtx3090-schema3.27.sqlite")
    assert peak_of(trace) is None
    table = document.build(trace).rates.table
    assert table["bytes"].tolist() == [4, 24, 1536, 1179648, 4718592, 15360000]
    assert 8 < table["busbw_gbs"].iloc[-1] < 12
    assert table["peak_gbs"].isna().all()


def test_dlrm_send_recv_is_all_to_all(shared_traces: Path) -> None:
    """The kernel is named SendRecv; the annotation it was launched in says what it is."""
    result = osc.overlap(osc.load(shared_traces / "kineto/dlrm-8rank-v100"), "whole")
    counts = result.collectives.groupby("collective")["count"].sum().to_dict()
    assert counts == {"all_reduce": 24, "all_to_all": 40}


def test_send_recv_in_an_annotation_with_a_suffix(shared_traces: Path) -> None:
    """emit_nvtx writes "nccl:all_to_all, op_id = N"; one kernel per rank has no launch record to tell."""
    result = osc.overlap(osc.load(shared_traces / "nsys/pp-2rank-h100-schema3.25.sqlite"), "whole")
    counts = result.collectives.groupby("collective")["count"].sum().to_dict()
    assert counts == {"all_to_all": 64, "send_recv": 2}


def test_recorded_collective_arguments(shared_traces: Path) -> None:
    """15 all-reduces and 6 broadcasts, the first of 6,637,568 floats."""
    result = osc.overlap(osc.load(shared_traces / "kineto/nccl-args-a100.json.gz"))
    counts = result.collectives.set_index("collective")["count"].to_dict()
    assert counts == {"all_reduce": 15, "broadcast": 6}
    assert 4 * 6_637_568 in result.instances["bytes"].tolist()


def test_waiting_dominates_in_megatron(shared_traces: Path) -> None:
    """84 all-reduces on each of 8 ranks, all matched; the first lasts 0.7 ms on rank 0, 42 ms on ranks 4 and 5."""
    result = osc.overlap(osc.load(shared_traces / "kineto/megatron-tp8-a100"), "whole")
    assert result.instances.groupby("match").size().tolist() == [8] * 84
    ranks = result.ranks
    assert (ranks["exposed_wait_ns"] + ranks["exposed_wire_ns"] == ranks["exposed_comm_ns"]).all()
    assert (ranks["overlap_ns"] == 0).all()
    first = result.instances[result.instances["match"] == 0].set_index("rank")
    assert (first.loc[[4, 5], "wait_ns"] > 41_000_000).all()
    assert (first.loc[[4, 5], "transfer_ns"] < 700_000).all()
    assert first.loc[0, "wait_ns"] == 0
    # The link takes the same for all, whoever waits: within 0.5 % of 50 ms.
    assert ranks["exposed_wire_ns"].between(49_700_000, 50_100_000).all()
    assert result.matching.refused == ()


def test_waiting_explains_sends_of_unequal_length(shared_traces: Path) -> None:
    """17.2 ms on one GPU and 8.2 ms on the other for the same 33 exchanges."""
    ranks = osc.overlap(osc.load(shared_traces / "nsys/pp-2rank-h100-schema3.25.sqlite"), "whole").ranks
    assert ranks["exposed_comm_ns"].tolist() == [17_172_652, 8_229_100]
    assert ranks["exposed_unsplit_ns"].tolist() == [0, 0]
    wait, wire = ranks["exposed_wait_ns"], ranks["exposed_wire_ns"]
    assert wait[0] - wait[1] > 8_000_000
    assert abs(wire[0] - wire[1]) < 600_000


def test_broadcasts_of_ddp_are_not_split(shared_traces: Path) -> None:
    """The root ends long before the others begin; the all-reduces beside them are split."""
    result = osc.overlap(osc.load(shared_traces / "nsys/ddp-2rank-rtx3090-schema3.27.sqlite"), "whole")
    comm = result.instances
    assert comm["match"].notna().all()
    assert comm.loc[comm["collective"] == "broadcast", "wait_ns"].isna().all()
    assert comm.loc[comm["collective"] == "all_reduce", "wait_ns"].notna().all()
    (refused,) = result.matching.refused
    assert (refused.count, refused.what) == (222, "broadcast")
    # NCCL's own ranges tell the bytes of all of them.
    assert comm["bytes"].notna().all()
    by_kind = result.collectives.groupby("collective")["bytes"].agg(list).to_dict()
    assert by_kind == {"all_reduce": [257_250_948] * 2, "broadcast": [257_250_816] * 2}


def test_part_of_a_world_is_not_split(shared_traces: Path) -> None:
    """Two of 128 ranks: nobody knows who came last."""
    result = osc.overlap(osc.load(shared_traces / "kineto/sampled-128ranks"), "whole")
    assert result.instances["match"].isna().all()
    assert {r.why for r in result.matching.refused} == {"only 2 of 128 ranks are in the trace"}


def test_bytes_of_an_annotated_call(shared_traces: Path) -> None:
    """Before PyTorch 2.3 only the call records them: 4 x 2048 x 4096 halves."""
    result = osc.overlap(osc.load(shared_traces / "kineto/megatron-tp8-a100/rank0.json.gz"), "whole")
    assert (result.instances["bytes"] == 67_108_864).sum() == 81


def test_cpu_only_is_analysed_on_its_host_lanes(shared_traces: Path) -> None:
    trace = osc.load(shared_traces / "kineto/cpu-only.json.gz")
    assert trace.provenance.lanes == "host"
    result = osc.overlap(trace)
    assert result.ranks["rank"].tolist() == [34]
    assert result.ranks.loc[0, "n_comm"] == 10
    assert result.collectives.loc[0, "bytes"] > 0


def test_what_cannot_be_analysed_is_refused_by_name(shared_traces: Path) -> None:
    with pytest.raises(osc.InputError, match=r"not-an-nsys-export\.sqlite: .*no kernel table"):
        osc.load(shared_traces / "nsys/not-an-nsys-export.sqlite")
    with pytest.raises(osc.InputError, match=r"no-rank-recorded\.json\.gz: .*the GPU was not recorded"):
        osc.load(shared_traces / "kineto/no-rank-recorded.json.gz")


def test_graph_level_trace_warns(shared_traces: Path) -> None:
    (warning,) = [
        w
        for w in osc.load(shared_traces / "nsys/graph-trace-schema3.24.sqlite").provenance.warnings
        if "CUDA graph" in w
    ]
    assert re.match("2 CUDA graph launches were traced as a whole", warning)
    assert "--cuda-graph-trace=node" in warning
