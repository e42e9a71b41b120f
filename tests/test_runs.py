"""Running and comparing from Python: what the commands do, in the same way."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import overlapscope as osc
from made import made
from overlapscope.cli import main

TINY = {"hidden": 32, "seq": 16, "steps": 2, "warmup": 0}


def call(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        main([str(a) for a in arguments])
    return int(end.value.code or 0)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> osc.Run:
    return osc.run("row-linear", tp=2, **TINY, output=tmp_path_factory.mktemp("runs") / "row")


@pytest.mark.real
def test_a_run_is_what_the_command_leaves(ran: osc.Run, tmp_path: Path) -> None:
    words = ["--workload", "row-linear", "--tp", 2, "--hidden", 32, "--seq", 16, "--steps", 2, "--warmup", 0]
    assert call("run", *words, "-o", tmp_path / "row") == 0
    theirs = json.loads((tmp_path / "row" / "run.json").read_text())
    for key in ("workload", "tp", "options", "steps", "warmup", "device", "recorder", "threads_per_rank"):
        assert ran.manifest[key] == theirs[key]
    assert ran.manifest["complete"] is True
    result = osc.overlap(ran.trace())
    assert result.collectives[["rank", "collective", "count"]].values.tolist() == [
        [0, "all_reduce", 2],
        [1, "all_reduce", 2],
    ]


@pytest.mark.real
def test_a_run_stands_for_its_path(ran: osc.Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert os.fspath(ran) == str(ran.path)
    assert len(osc.load(ran).ops) == len(ran.trace().ops)
    compared = osc.compare(ran, ran.path)
    assert call("compare", ran.path, ran.path) == 0
    assert str(compared) == capsys.readouterr().out
    table = compared.table.set_index("figure")
    assert (table.loc["window", "a"], table.loc["window", "verdict"]) == (table.loc["window", "b"], "few")


def test_what_cannot_be_run_is_told_as_by_the_command(tmp_path: Path) -> None:
    with pytest.raises(osc.OptionError, match=r"^--workload: 'blok' is not known; did you mean block\?$"):
        osc.run("blok", output=tmp_path / "no")
    with pytest.raises(osc.OptionError, match="--heads: "):
        osc.run("row-linear", heads=4, output=tmp_path / "no")
    with pytest.raises(osc.OptionError, match=r"^--tp: 2 alone has nothing to be compared with"):
        osc.scale("mlp", tp=[2, 2], output=tmp_path / "no")
    with pytest.raises(osc.OptionError, match="all-reduce is no work that the ranks share out"):
        osc.scale("all-reduce", tp=[1, 2], output=tmp_path / "no")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(osc.InputError, match="does not exist"):
        osc.compare(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"hidden": "64"}, "--hidden: is '64'; give a whole number"),
        ({"hidden": True}, "--hidden: is True; give a whole number"),
        ({"steps": 2.5}, "--steps: is 2.5; give a whole number"),
        ({"forward_only": 1}, "--forward-only: is 1; give True or False"),
        ({"dtype": 32}, "--dtype: is 32; give text"),
        ({"timeout": None}, "--timeout: is None; give 1 or more"),
    ],
)
def test_values_of_the_wrong_type_are_told(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(osc.OptionError) as caught:
        osc.run("mlp", output=tmp_path / "no", **given)
    assert str(caught.value) == said
    assert not (tmp_path / "no").exists()


@pytest.mark.real
def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    sizes = {name: np.int64(value) for name, value in TINY.items()}
    ran = osc.run("mlp", tp=np.int64(2), output=tmp_path / "run", **sizes)
    assert (ran.manifest["tp"], ran.manifest["steps"], ran.manifest["options"]["hidden"]) == (2, 2, 32)


def test_ranks_are_a_list_of_numbers() -> None:
    trace = made([{"rank": rank, "start": 0, "end": 9, "kind": "gemm"} for rank in range(2)])
    assert osc.timeline(trace, ranks=(1,)).title
    for wrong in (0, "0", ["0"]):
        with pytest.raises(osc.OptionError, match="is no list of ranks; give their numbers"):
            osc.timeline(trace, ranks=wrong)  # type: ignore[arg-type]
    with pytest.raises(osc.OptionError, match="max_lanes: is 0; give 1 or more"):
        osc.timeline(trace, max_lanes=0)


@pytest.mark.real
def test_a_sweep_is_what_the_command_leaves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = osc.scale("mlp", tp=(2, 1), **TINY, output=tmp_path / "sweep")
    assert [run.path.name for run in sweep.runs] == ["tp1", "tp2"]
    assert [size.account.size for size in sweep.scaling.sizes] == [1, 2]
    last = sweep.scaling.sizes[-1]
    assert sum(last.losses.values()) == last.loss == last.time - sweep.scaling.base.time / 2
    written = (tmp_path / "sweep" / "scale.json").read_text()
    assert call("scale", tmp_path / "sweep", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(written)
    assert json.loads(written)["warnings"] == list(sweep.warnings)


@pytest.mark.real
def test_bandwidth_of_a_sweep_over_sizes(tmp_path: Path) -> None:
    run = osc.run("all-gather", tp=2, sizes="1KB,4KB", steps=4, output=tmp_path / "sizes")
    found = osc.bandwidth(run.trace())
    assert found is not None
    table = found.table
    assert table["bytes"].tolist() == [1000, 4000]
    assert table["exchanges"].tolist() == [4, 4]
    assert table["wrong"].tolist() == [0, 0]
    assert (table["busbw_gbs"] * 2 == table["algbw_gbs"]).all()
    assert osc.figures.collective_sizes(found).data[0].x == (1000, 4000)


def test_no_sweep_no_bandwidth() -> None:
    assert osc.bandwidth(osc.load(Path(__file__).parent / "data" / "cpu-block-tp2")) is None
