"""Tables for programs: what is read back is what the table holds."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet
import pytest

import overlapscope as osc
from made import made
from overlapscope.cli import main
from overlapscope.cli.report import Table
from overlapscope.report import document, export, tables
from scaled import two_ranks
from test_perfetto import late_rank


def call(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize("by", ["rank", "collective", "range", "stream", "step"])
def test_parquet_of_every_breakdown(tmp_path: Path, by: str) -> None:
    path, output = two_ranks(tmp_path / "t.sqlite"), tmp_path / "table.parquet"
    assert call("report", path, "--by", by, "--format", "parquet", "-o", output) == 0
    read = pyarrow.parquet.read_table(output)
    trace = osc.load(path)
    result = osc.overlap(trace)
    expected = {
        "rank": result.ranks,
        "collective": result.collectives,
        "range": osc.by_range(trace, result),
        "stream": osc.by_stream(trace, result),
        "step": osc.steps(trace).table,
    }[by]
    assert read.column_names == list(expected.columns)
    for name in expected.columns:
        values = [
            list(v) if isinstance(v, tuple) else None if v is pd.NA else v for v in expected[name].tolist()
        ]
        assert read[name].to_pylist() == values, name
    times = [read.schema.field(name).type for name in read.column_names if name.endswith("_ns")]
    assert times
    assert set(map(str, times)) == {"int64"}


def test_the_default_is_the_table_of_ranks(tmp_path: Path) -> None:
    path, output = late_rank(tmp_path / "t.sqlite"), tmp_path / "ranks.parquet"
    assert call("report", path, "--format", "parquet", "-o", output) == 0
    assert pyarrow.parquet.read_table(output)["exposed_comm_ns"].to_pylist() == [70, 60]


def test_what_does_not_exist_is_null() -> None:
    result = osc.overlap(made([{"rank": 0, "start": 0, "end": 70, "kind": "gemm"}], ranks=1))
    read = pyarrow.parquet.read_table(io.BytesIO(tables.parquet(result.ranks)))
    assert read["overlap_ratio"].to_pylist() == [None]
    assert read["exposed_wait_ns"].to_pylist() == [None]
    assert str(read.schema.field("exposed_wait_ns").type) == "int64"


def test_names_that_are_no_utf8() -> None:
    table = pd.DataFrame({"name": pd.Series(["a\udc80|`<b>", None], dtype=object), "n": [1, 2]})
    read = pyarrow.parquet.read_table(io.BytesIO(tables.parquet(table)))
    assert read["name"].to_pylist() == ["a\\udc80|`<b>", None]
    assert (
        tables.markdown(table) == "| name | n |\n| --- | ---: |\n| a\\udc80\\|\\`\\<b\\> | 1 |\n| n/a | 2 |\n"
    )


@pytest.mark.parametrize("format", ["json", "csv", "md", "parquet"])
def test_kernels_in_every_format(tmp_path: Path, format: str) -> None:
    path, output = late_rank(tmp_path / "t.sqlite"), tmp_path / "names"
    assert call("kernels", path, "--format", format, "-o", output) == 0
    expected = osc.tally(osc.load(path))
    if format == "md":
        assert len(output.read_text().splitlines()) == 2 + len(expected)
        return
    read = {
        "json": lambda: pd.DataFrame(json.loads(output.read_text())),
        "csv": lambda: pd.read_csv(output),
        "parquet": lambda: pd.read_parquet(output),
    }[format]()
    assert list(read.columns) == list(expected.columns)
    assert read["sum_ns"].tolist() == expected["sum_ns"].tolist()
    assert read["name"].tolist() == expected["name"].tolist()


def test_bytes_are_nothing_for_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert call("report", late_rank(tmp_path / "t.sqlite"), "--format", "parquet") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "--format parquet: is nothing for a terminal; send it to a file" in said.err


@pytest.mark.parametrize("name", list(export.TABLES))
def test_every_table_of_a_report_alone(tmp_path: Path, name: str) -> None:
    """In each format the rows of the table, which where the JSON report has it too are those of the report."""
    path = two_ranks(tmp_path / "t.sqlite")
    built = document.build(osc.load(path))
    expected = export.TABLES[name](built)
    read = {}
    for format in tables.FORMATS:
        read[format] = tmp_path / f"table.{format}"
        assert call("report", path, "--table", name, "--format", format, "-o", read[format]) == 0
    rows = json.loads(read["json"].read_text())
    assert len(rows) == len(expected)
    assert pyarrow.parquet.read_table(read["parquet"]).column_names == list(expected.columns)
    assert pd.read_csv(read["csv"]).shape == expected.shape
    assert len(read["md"].read_text().splitlines()) == 2 + len(expected)
    whole = json.loads(export.json_text(built))
    key = {"bandwidth": "bandwidth_by_size", "groups": "bandwidth_by_group"}.get(name, name)
    told = whole["contention"]["kernels"] if name == "contention" else whole.get(key)
    if told is not None:
        for row, other in zip(rows, told, strict=True):
            assert {k: v for k, v in row.items() if k in other} == {
                k: v for k, v in other.items() if k in row
            }


def test_the_tables_that_can_be_asked_for() -> None:
    assert [table.value for table in Table] == list(export.TABLES)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--table", "ranks"], "--table: is for programs; give --format csv, json, md or parquet, too"),
        (["--table", "ranks", "--format", "html"], "--table: is for programs"),
        (["--table", "ranks", "--by", "rank", "--format", "csv"], "--table: is given beside --by"),
    ],
)
def test_a_table_that_cannot_be_laid_out(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("report", late_rank(tmp_path / "t.sqlite"), *options) == 2
    assert said in capsys.readouterr().err
