"""SQLite files that are no finished nsys export: one line, naming the file, what is wrong and what to do."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import sys
import tempfile
from pathlib import Path

import pytest

import overlapscope as osc
from builders import TraceBuilder, nsys
from overlapscope.report import document

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn"


@pytest.fixture
def export(tmp_path: Path) -> Path:
    t = TraceBuilder()
    g = t.process(pid=1).device(0)
    for i in range(3000):
        g.kernel(GEMM, 10 * i, 10 * i + 5, stream=7)
    return nsys.write(t, tmp_path / "t.sqlite")


def refusal(path: Path) -> str:
    with pytest.raises(osc.InputError) as caught:
        osc.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert caught.value.remedy
    assert "\n" not in message
    return message


def test_truncated(export: Path) -> None:
    whole = export.stat().st_size
    os.truncate(export, whole // 2)
    assert f"is cut off: it holds {whole // 2:,} of {whole:,} bytes" in refusal(export)
    os.truncate(export, 50)
    assert "is cut off after 50 bytes" in refusal(export)


def test_damaged_inside(export: Path) -> None:
    """Pages of the kernel table overwritten: SQLite itself says so, on the way."""
    with export.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xab" * (export.stat().st_size - 2 * 4096))
    assert "is damaged" in refusal(export)


def test_empty_database(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE x (y)")
    db.execute("DROP TABLE x")
    db.commit()
    db.close()
    assert "is an empty SQLite file" in refusal(path)


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    path.touch()
    assert "is empty" in refusal(path)


def test_locked(export: Path) -> None:
    writer = sqlite3.connect(export, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    try:
        assert "is locked by another process; wait until the export is written" in refusal(export)
    finally:
        writer.rollback()
        writer.close()
    assert len(osc.load(export).ops) == 3000


def test_partial_export_without_kernel_table(export: Path) -> None:
    db = sqlite3.connect(export)
    db.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
    db.commit()
    db.close()
    assert "an nsys export without a kernel table" in refusal(export)


def test_no_ops(export: Path) -> None:
    db = sqlite3.connect(export)
    db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
    db.commit()
    db.close()
    assert "holds no ops" in refusal(export)


def test_some_other_database(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE bookmarks (url TEXT)")
    db.close()
    assert "is SQLite, but not an nsys export (it has no kernel table; it holds bookmarks)" in refusal(path)


@pytest.mark.parametrize("name", ["with space.sqlite", "per%cent#hash?.sqlite", "ünïcode.sqlite"])
def test_names_that_need_care(export: Path, name: str) -> None:
    assert len(osc.load(export.rename(export.with_name(name))).ops) == 3000


def test_missing_and_directory(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "nope.sqlite")
    assert "holds no trace files" in refusal(tmp_path)


def test_run_directory_that_captured_nothing(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema_version": 1, "workload": "block"}')
    assert "is a run directory without trace.sqlite" in refusal(tmp_path)


@pytest.mark.parametrize("content", ["{}", "no JSON", "[" * 100_000, '{"schema_version": 1}'])
def test_a_run_json_of_somebody_else_makes_no_run_directory(export: Path, content: str) -> None:
    (export.parent / "run.json").write_text(content)
    assert len(osc.load(export.parent).ops) == 3000


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root reads everything")
def test_no_permission(export: Path) -> None:
    export.chmod(0)
    assert "permission denied" in refusal(export)


# -- nsys reports --------------------------------------------------------------------------------------------


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "capture.nsys-rep"
    path.write_bytes(b"\x00nsys report\x00" * 10)
    return path


def put_nsys(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    folder.mkdir()
    program = folder / "nsys"
    program.write_text(f"#!{sys.executable}\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder))


def test_report_without_nsys(report: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert "is an nsys report, and nsys is not on PATH" in refusal(report)


def test_report_of_a_newer_nsys(report: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = "import sys; print('Version number is invalid.', file=sys.stderr); sys.exit(1)"
    put_nsys(tmp_path / "bin", monkeypatch, script)
    message = refusal(report)
    assert "nsys cannot export it (it says: Version number is invalid.)" in message
    assert "use the nsys that recorded it, or a newer one" in message


def test_report_is_exported_and_read(
    report: Path, export: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = (
        "import shutil, sys; a = sys.argv[1:]; assert a[:3] == ['export', '--type', 'sqlite'];"
        f"shutil.copy({str(export)!r}, a[a.index('-o') + 1])"
    )
    put_nsys(tmp_path / "bin", monkeypatch, script)
    trace = osc.load(report)
    assert len(trace.ops) == 3000
    assert trace.provenance.sources[0].path == str(report)
    assert [p.name for p in tmp_path.iterdir() if "export" in p.name] == []


# -- values that are none ------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["start", "end", "deviceId", "streamId", "globalPid", "demangledName"])
@pytest.mark.parametrize("value", ["abc", b"\x00\xff", 1e300, 2.5], ids=repr)
def test_numbers_that_are_none(export: Path, column: str, value: object) -> None:
    db = sqlite3.connect(export)
    db.execute(f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET {column} = ? WHERE rowid = 1500", (value,))
    db.commit()
    db.close()
    refusal(export)


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 2**62])
def test_times_beyond_reason(export: Path, value: int) -> None:
    db = sqlite3.connect(export)
    db.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = ?, end = ? WHERE rowid = 7", (value, value))
    db.commit()
    db.close()
    assert "a time that is out of range" in refusal(export)


@pytest.mark.parametrize("column", ["start", "end", "globalTid", "domainId", "category", "text"])
@pytest.mark.parametrize("value", [None, "abc", b"\x00\xff", 2.5, 2**63 - 1], ids=repr)
def test_ranges_with_odd_values_do_no_harm(tmp_path: Path, column: str, value: object) -> None:
    t = TraceBuilder()
    p = t.process(pid=1)
    p.device(0).kernel(GEMM, 0, 5, stream=7, launch=(0, 1))
    p.range("one", 0, 10)
    p.range("two", 0, 20)
    path = nsys.write(t, tmp_path / "t.sqlite")
    db = sqlite3.connect(path)
    if (column, value) in {("start", None)}:
        pytest.skip("NOT NULL")
    db.execute(f"UPDATE NVTX_EVENTS SET {column} = ? WHERE text = 'two'", (value,))
    db.commit()
    db.close()
    trace = osc.load(path)
    assert "one" in trace.ranges["name"].tolist()
    assert osc.overlap(trace).ranks["compute_ns"].tolist() == [5]


def test_strings_that_are_not_utf8(export: Path) -> None:
    db = sqlite3.connect(export)
    db.execute("UPDATE StringIds SET value = CAST(X'66ff66' AS TEXT)")
    db.commit()
    db.close()
    assert osc.load(export).names["string"].tolist() == ["f\ufffdf"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert "is a pipe" in refusal(path)


# -- what must not look like an answer -----------------------------------------------------------------------


@pytest.mark.parametrize("column", ["start", "end", "deviceId", "streamId"])
def test_a_kernel_table_that_cannot_be_read_is_no_absence_of_kernels(export: Path, column: str) -> None:
    db = sqlite3.connect(export)
    db.execute(f"ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME COLUMN {column} TO other")
    db.commit()
    db.close()
    assert f"its kernel table lacks {column}" in refusal(export)


def test_kernels_without_a_name_are_told(export: Path) -> None:
    db = sqlite3.connect(export)
    db.execute("DELETE FROM StringIds")
    db.commit()
    db.close()
    (told,) = [w for w in osc.load(export).provenance.warnings if "no name" in w]
    assert told == "3,000 kernels have no name in this file: they count as compute, whatever they are"


def test_string_ids_beyond_31_bits(export: Path) -> None:
    db = sqlite3.connect(export)
    db.execute("UPDATE StringIds SET id = id + 2147483648")
    for column in ("demangledName", "shortName"):
        db.execute(f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET {column} = {column} + 2147483648")
    db.commit()
    db.close()
    assert osc.load(export).names["string"].tolist() == [GEMM]


def test_only_copies_are_told(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.process(pid=1).device(0).memcpy("HtoD", 0, 5, stream=7)
    path = nsys.write(t, tmp_path / "t.sqlite")
    assert any("no kernel table" in w for w in osc.load(path).provenance.warnings)


@pytest.mark.parametrize("content", ["{}", "[]", "null", '{"tool": 1}', "no json"])
def test_a_provenance_that_cannot_be_read(export: Path, content: str) -> None:
    db = sqlite3.connect(export)
    db.execute("INSERT INTO META_DATA_EXPORT VALUES ('OVERLAPSCOPE_PROVENANCE', ?)", (content,))
    db.commit()
    db.close()
    assert "OVERLAPSCOPE_PROVENANCE" in refusal(export)


@pytest.mark.parametrize("text", ["rank ² of 8", "rank 99999999999 of 8"])
def test_marks_that_only_look_like_a_rank(tmp_path: Path, text: str) -> None:
    t = TraceBuilder()
    p = t.process(pid=1)
    p.mark(text, 0, domain="overlapscope", category="rank")
    p.device(0).kernel(GEMM, 0, 5, stream=7)
    trace = osc.load(nsys.write(t, tmp_path / "t.sqlite"))
    assert trace.ranks["rank"].tolist() == [0]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_convert_never_replaces_what_is_no_file(export: Path, tmp_path: Path) -> None:
    from overlapscope.formats import nsys as nsys_format

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(osc.OptionError, match="is no regular file"):
        nsys_format.write(osc.load(export), pipe, force=True)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def change(path: Path, statement: str) -> None:
    db = sqlite3.connect(path)
    db.executescript(statement)
    db.close()


@pytest.mark.parametrize("value", ["NULL", "-1", "1024", "4294967295", "9223372036854775807"])
def test_kernels_on_no_device_are_counted_and_no_rank_of_their_own(export: Path, value: str) -> None:
    table = "CUPTI_ACTIVITY_KIND_KERNEL"  # without nsys's NOT NULL, which not every version has
    change(
        export,
        f"CREATE TABLE k AS SELECT * FROM {table}; DROP TABLE {table}; ALTER TABLE k RENAME TO {table}",
    )
    change(export, f"UPDATE {table} SET deviceId = {value} WHERE rowid <= 3")
    trace = osc.load(export)
    assert len(trace.ranks) == 1
    assert len(trace.ops) == 2997
    assert [(d.count, d.what) for d in trace.provenance.dropped] == [(3, "ops")]
    change(export, f"UPDATE {table} SET deviceId = {value}")
    assert "no kernel says which GPU it ran on" in refusal(export)


def test_ranges_without_a_thread_are_counted(tmp_path: Path) -> None:
    t = TraceBuilder()
    p = t.process(pid=1)
    p.device(0).kernel(GEMM, 0, 5, stream=7, launch=(0, 1))
    for i in range(3):
        p.range(f"range {i}", 0, 10 + i)
    path = nsys.write(t, tmp_path / "t.sqlite")
    change(path, "UPDATE NVTX_EVENTS SET globalTid = NULL WHERE text <> 'range 0'")
    trace = osc.load(path)
    assert trace.ranges["name"].tolist() == ["range 0"]
    assert [(d.count, d.what) for d in trace.provenance.dropped] == [(2, "NVTX ranges")]


def test_a_rank_of_which_all_ops_were_dropped(tmp_path: Path) -> None:
    t = TraceBuilder()
    for pid in (1, 2):
        t.process(pid=pid).device(0).kernel(GEMM, 0, 5, stream=7)
    path = nsys.write(t, tmp_path / "t.sqlite")
    change(path, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = -1 WHERE (globalPid >> 24) & 0xffffff = 2")
    trace = osc.load(path)
    with pytest.raises(osc.OptionError, match=r"--rank: no op of rank 1 could be used; name another"):
        document.build(trace, ranks=[1])


def test_a_write_ahead_log_in_a_folder_that_cannot_be_written(export: Path) -> None:
    assert len(osc.load(export).ops) == 3000  # and everything is imported, for whoever may not read it below
    folder = Path(tempfile.mkdtemp())  # pytest's own are closed to other users
    shutil.copy(export, folder / "t.sqlite")
    change(folder / "t.sqlite", "PRAGMA journal_mode = WAL")
    (folder / "t.sqlite").chmod(0o444)
    folder.chmod(0o555)
    try:
        if os.getuid() == 0:  # whom permissions do not bind
            os.seteuid(65534)
        assert len(osc.load(folder / "t.sqlite").ops) == 3000
        assert [p.name for p in folder.iterdir()] == ["t.sqlite"]
    finally:
        os.seteuid(os.getuid())
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_what_is_wrong_with_an_export_is_said_of_the_report(
    report: Path, export: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    change(export, "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
    script = f"import shutil, sys; a = sys.argv; shutil.copy({str(export)!r}, a[a.index('-o') + 1])"
    put_nsys(tmp_path / "bin", monkeypatch, script)
    assert "holds no ops" in refusal(report)


def test_an_nsys_that_cannot_be_started(
    report: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put_nsys(tmp_path / "bin", monkeypatch, "")
    (tmp_path / "bin" / "nsys").write_bytes(b"\x7fELF is all there is of it")
    assert "bin/nsys cannot be started (Exec format error)" in refusal(report)
