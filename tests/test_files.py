"""Writing files: whole or not at all, nothing unasked, and not over what is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from compared import SERIAL, run
from overlapscope.cli import main
from overlapscope.errors import InputError, OptionError
from overlapscope.files import check, is_stream, write_text
from overlapscope.sides import one_side


def call(*arguments: object) -> int:
    with pytest.raises(SystemExit) as caught:
        main([str(a) for a in arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "file", tmp_path / "link"
    target.write_text("old")
    link.symlink_to("there/file")
    with pytest.raises(OptionError, match="exists already"):
        write_text(link, "new")
    write_text(link, "new", force=True)
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert sorted(os.listdir(tmp_path / "there")) == ["file"]


def test_a_name_may_be_as_long_as_a_file_systems(tmp_path: Path) -> None:
    write_text(tmp_path / ("n" * 255), "whole")
    assert [(tmp_path / name).read_text() for name in os.listdir(tmp_path)] == ["whole"]
    with pytest.raises(OptionError, match="its name is too long; choose another name"):
        check(tmp_path / ("n" * 256))


@pytest.mark.parametrize("through", ["/dev/stdout", "link"])
def test_standard_output_is_written_to_and_not_replaced(tmp_path: Path, through: str) -> None:
    """Also where it leads to a file, and then nothing else may stand in it."""
    (tmp_path / "link").symlink_to("/proc/self/fd/1")
    run(tmp_path / "one", SERIAL)
    for command in (["export", "--to", "perfetto"], ["report", "--format", "json"], ["timeline"]):
        with (tmp_path / "out").open("wb") as out:
            subprocess.run(
                [sys.executable, "-m", "overlapscope", command[0], "one", *command[1:], "-o", through],
                cwd=tmp_path,
                stdout=out,
                check=True,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            )
        written = (tmp_path / "out").read_text()
        assert written.endswith("</html>\n") if command == ["timeline"] else json.loads(written)
    assert (tmp_path / "link").is_symlink()


def test_what_is_a_stream(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to").symlink_to("pipe")
    told = {name: is_stream(tmp_path / name) for name in ("file", "pipe", "to", "nowhere")}
    assert told == {"file": False, "pipe": True, "to": True, "nowhere": False}
    assert is_stream(Path("/dev/null"))
    (tmp_path / "round").symlink_to("round")
    assert not is_stream(tmp_path / "round")


def test_what_is_read_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The trace of a run on several nodes, and rules."""
    run(tmp_path / "many" / "node0", SERIAL)
    trace = tmp_path / "many" / "node0" / "trace.sqlite"
    rules = tmp_path / "mine.toml"
    rules.write_text('[[rule]]\nid = "a"\npattern = "^a$"\nkind = "gemm"\n')
    before = trace.read_bytes(), rules.read_bytes()
    for command in ("report", "timeline", "kernels"):
        assert call(command, tmp_path / "many", "-o", trace, "--force") == 2
        assert call(command, tmp_path / "many", "--rules", rules, "-o", rules, "--force") == 2
    assert call("compare", tmp_path / "many", tmp_path / "many", "-o", trace, "--force") == 2
    assert (trace.read_bytes(), rules.read_bytes()) == before
    assert capsys.readouterr().err.count("is one of the files to read; name another file\n") == 7


def test_sides_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for i in range(3):
        run(Path("runs") / f"run{i}", SERIAL)
    with pytest.raises(
        InputError, match=r"^,: names no run; give a trace, a run directory or a folder of them$"
    ):
        one_side(Path(","))
    many = [Path("runs") / f"run{i % 3}{'/.' * 20}" for i in range(9)]
    with pytest.raises(InputError, match="is given twice"):  # and no name that is too long
        one_side(Path(",".join(f"{path}/./././././././././././././././." for path in map(str, many))))
    assert len(one_side(Path("runs"))) == 3
    (Path("runs") / "run1" / "run.json").write_text("{")
    with pytest.raises(InputError, match=r"runs/run1: its run.json cannot be read; take the run out"):
        one_side(Path("runs"))
