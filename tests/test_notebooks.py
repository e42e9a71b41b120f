"""The notebooks: stripped in git, their links lead somewhere, they run whole, and an interrupted kernel ends a run."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nbclient", reason="nbclient is not installed (pip install -e '.[test]')")
import nbformat
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient

from overlapscope.capture.events import EventReader
from overlapscope.capture.processes import alive

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
WIDGET, FIGURE = "application/vnd.jupyter.widget-view+json", "application/vnd.plotly.v1+json"

SHOWN = {
    "1-all-reduce": (
        0,
        1,
        ["8 ranks: each sends 7/4 of the array", "4 ranks: busbw = 1.5 · algbw", "200 kB"],
    ),
    "2-row-linear": (
        1,
        0,
        ["every all-reduce moves an array of 262,144 bytes", "in view: (", "picked:  None"],
    ),
    "3-block": (1, 2, ["attn.out.all_reduce"]),
    "4-overlap": (3, 0, ["schedule serial → ring", "overlap efficiency"]),
    "5-sequence-parallelism": (1, 0, ["('backward', 'all_gather'): 4", "every byte is accounted for"]),
    "6-strong-scaling": (1, 1, ["on 64 ranks at most", "T(N) − T(1)/N"]),
}
"""Of each: timelines, figures, and words of its outputs that say what it is about."""


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=nbformat.NO_CONVERT)


def test_the_six_are_there() -> None:
    assert [path.stem for path in NOTEBOOKS] == list(SHOWN)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stripped(path: Path) -> None:
    """Nothing of a run is in git: outputs, counts, widgets, times."""
    notebook = read(path)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata.kernelspec.name == "python3"
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    for cell in notebook.cells:
        assert cell.metadata == {}
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_lead_somewhere(path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", readme, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    text = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    for link in links:
        file, _, anchor = link.partition("#")
        assert (path.parent / file).is_file(), link
        assert not anchor or anchor in anchors, link


@pytest.fixture
def jupyter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run in, and a temporary and a home folder beside it; the kernel gets all of them."""
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "TMPDIR"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))
    here = tmp_path / "here"
    here.mkdir()
    return here


@pytest.mark.real
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_in_a_fresh_kernel(path: Path, jupyter: Path) -> None:
    notebook = read(path)
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(jupyter)}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert {output.output_type for output in outputs} <= {"stream", "execute_result", "display_data"}
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    shown = [output.data for output in outputs if "data" in output]
    timelines, figures, words = SHOWN[path.stem]
    widgets = [data for data in shown if WIDGET in data]
    assert len(widgets) == timelines
    for data in widgets:  # and what stands for it where no widget is shown
        assert data["text/html"].startswith('<img alt="Timeline of ')
        assert data["text/plain"].startswith("Timeline(")
    assert sum(FIGURE in data for data in shown) == figures
    said = "\n".join([*(o.text for o in outputs if "text" in o), *(d.get("text/plain", "") for d in shown)])
    assert [word for word in words if word not in said] == []
    assert list(jupyter.iterdir()) == []
    assert list((jupyter.parent / "TMPDIR").glob("overlapscope-*")) == []


def measuring(events: Path) -> list[int]:
    """The processes of the ranks, once the first step is done."""
    for _ in range(600):
        time.sleep(0.1)
        told = EventReader(events).new() if events.exists() else []
        if any(event.kind == "done" for event in told):
            return [event.fields["pid"] for event in told if event.kind == "started"]
    raise AssertionError("no step was done within a minute")


@pytest.mark.real
def test_an_interrupted_kernel_ends_all_ranks(jupyter: Path) -> None:
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(jupyter))
    try:
        code = (
            "import overlapscope as osc\n"
            'osc.run("row-linear", hidden=32, seq=16, steps=500, link="1MB/s,500ms", output="endless")'
        )
        asked = client.execute(code, stop_on_error=False)  # or the next request may be aborted with it
        pids = measuring(jupyter / "endless" / ".capture" / "events.jsonl")
        assert len(pids) == 2
        manager.interrupt_kernel()
        while (reply := client.get_shell_msg(timeout=120))["parent_header"].get("msg_id") != asked:
            pass
        assert reply["content"]["ename"] == "RunError"
        assert "interrupted" in reply["content"]["evalue"]
        assert [pid for pid in pids if alive(pid)] == []
        told = json.loads((jupyter / "endless" / "run.json").read_text())
        assert told["complete"] is False
        assert client.execute_interactive("print(6 * 7)", timeout=60)["content"]["status"] == "ok"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
