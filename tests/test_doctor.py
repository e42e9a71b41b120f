"""``overlapscope doctor``: on this machine as it is, with stand-ins on PATH, and for machines that are described."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from overlapscope.capture import nsys
from overlapscope.capture.checkup import Checkup, _plan, checkup, links
from overlapscope.capture.machine import Gpu, Machine
from overlapscope.capture.nsys import Nsys, traps
from overlapscope.capture.plan import Request, make
from overlapscope.cli.doctor import as_dict, render

ROOT = Path(__file__).resolve().parent.parent

NSYS = """#!/bin/sh
case "$1" in
  --version) echo "NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0" ;;
  *) echo "  --trace=  --cuda-graph-trace=  --include-blobs=" ;;
esac
"""
TOPOLOGY = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tSYS\tPIX\t0-31\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tSYS\tSYS\t0-31\t0\t\tN/A\n"
    "GPU2\tSYS\tSYS\t X \tSYS\t32-63\t1\t\tN/A\n"
    "NIC0\tPIX\tSYS\tSYS\t X \t\n\nLegend:\n\n  X    = Self\n"
)


def doctor(path: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """With `path` as PATH."""
    return subprocess.run(
        [sys.executable, "-m", "overlapscope", "doctor", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def program(folder: Path, name: str, text: str) -> str:
    """A stand-in program; returns what PATH must be for it to be found, and nothing of its kind elsewhere."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(text)
    file.chmod(0o755)
    return str(folder)


# -- this machine --------------------------------------------------------------------------------------------


@pytest.mark.real
def test_without_nsys_what_follows_is_said(tmp_path: Path) -> None:
    done = doctor(str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "nsys        not on PATH: runs on GPUs are recorded by torch.profiler" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.real
def test_with_nsys_its_version_is_said_and_what_run_would_choose_is_what_run_plans(tmp_path: Path) -> None:
    path = program(tmp_path / "bin", "nsys", NSYS)
    done = doctor(path, "--format", "json", CUDA_DEVICE_MAX_CONNECTIONS="8")
    assert (done.returncode, done.stderr) == (0, "")
    data = json.loads(done.stdout)
    assert data["nsys"] == {"version": "2025.3.1.90", "path": str(tmp_path / "bin" / "nsys")}
    assert data["cuda_device_max_connections"]["here"] == "8"
    assert data["broken"] is None
    machine = Machine(
        "", data["machine"]["cores"], 1, 1 << 40, tuple(Gpu(**g) for g in data["machine"]["gpus"])
    )
    nsys = Nsys("nsys", data["nsys"]["version"], frozenset(), frozenset())
    plan = make(Request(workload="block", tp=data["run"]["tp"]), machine, nsys)
    chosen = (plan.device, plan.backend, plan.recorder, plan.recorder_why, plan.threads)
    told = ("device", "backend", "recorder", "recorder_why", "threads_per_rank")
    assert tuple(data["run"][name] for name in told) == chosen


@pytest.mark.real
def test_torch_is_asked_elsewhere(tmp_path: Path) -> None:
    """The version is that of the installed package, and this process has not imported it."""
    code = (
        "import json, sys; from overlapscope.capture.checkup import checkup; "
        "print(json.dumps([checkup().torch['torch'], 'torch' in sys.modules, 'pandas' in sys.modules]))"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    import torch

    assert json.loads(done.stdout) == [str(torch.__version__), False, False]


def test_a_torch_that_cannot_be_imported_is_told_and_ends_with_1(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    (broken / "torch").mkdir(parents=True)
    (broken / "torch" / "__init__.py").write_text('raise OSError("libtorch_cpu.so: cannot open")')
    done = doctor(str(tmp_path), PYTHONPATH=f"{broken}{os.pathsep}{ROOT}")
    assert done.returncode == 1
    assert "cannot be imported (OSError: libtorch_cpu.so: cannot open)" in " ".join(done.stdout.split())
    assert done.stderr == (
        "overlapscope: run cannot work here: torch: OSError: libtorch_cpu.so: cannot open\n"
    )


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("import os; os.abort()", "ended with exit code -6"),
        ("import os; os._exit(0)", "importing it ends the process without a word"),
        ("print('no JSON')\nimport os\nos._exit(0)", "importing it ends the process without a word"),
    ],
)
def test_a_torch_that_takes_its_process_down(tmp_path: Path, module: str, said: str) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(module)
    done = doctor(str(tmp_path), PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert (done.returncode, done.stderr) == (1, f"overlapscope: run cannot work here: torch: {said}\n")


def test_a_torch_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("overlapscope.capture.checkup.PROBE_S", 0.5)
    assert checkup().broken == "torch: no answer within 0.5 s"


def test_links_of_nvidia_smi_beside_a_torch_without_cuda(tmp_path: Path) -> None:
    """GPUs that only the driver sees: said, with what to do."""
    (tmp_path / "topology").write_text(TOPOLOGY)
    smi = f'#!/bin/sh\ncase "$1" in topo) /bin/cat {tmp_path}/topology ;; *) echo "NVIDIA H100" ;; esac\n'
    path = program(tmp_path / "bin", "nvidia-smi", smi)
    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text('raise ImportError("none")')
    data = json.loads(doctor(path, "--format", "json", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}").stdout)
    assert data["driver_gpus"] == ["NVIDIA H100"]
    assert data["links"] == [["X", "NV18", "SYS"], ["NV18", "X", "SYS"], ["SYS", "SYS", "X"]]


def test_an_nvidia_smi_that_fails_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path / "bin", "nvidia-smi", "#!/bin/sh\necho failed >&2\nexit 9\n")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text('raise ImportError("none")')
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = checkup()
    assert (found.driver_gpus, found.links) == (None, None)


def test_an_nsys_that_does_not_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path / "bin", "nsys", "#!/bin/sh\necho 'cannot open shared object file' >&2\nexit 1\n")
    monkeypatch.setenv("PATH", path)
    broken = nsys.find()
    assert broken is not None
    machine = Machine("a CPU", 16, 64 << 30, 60 << 30, (Gpu("NVIDIA H100", 80 << 30),) * 2)
    assert _plan(machine, broken) == (
        None,
        f"--recorder: {tmp_path}/bin/nsys does not run; mend that installation, or give torch",
    )
    plan, refused = _plan(replace(machine, gpus=()), broken)
    assert (plan is not None, refused) == (True, None)
    text = words(replace(described(), nsys=broken, nsys_traps=tuple(traps(broken, "0.2.13"))))
    assert "bin/nsys); it does not run: mend that installation, or take it off PATH nvtx" in text


# -- machines that are described -----------------------------------------------------------------------------


def described(count: int = 0, nsys: bool = False, **torch: Any) -> Checkup:
    machine = Machine("a CPU", 16, 64 << 30, 60 << 30, (Gpu("NVIDIA H100", 80 << 30),) * count)
    found = Nsys("/opt/nsys", "2025.3.1", frozenset({"--trace"}), frozenset()) if nsys else None
    plan = make(Request(workload="block", tp=count or 2), machine, found)
    peers = [
        {"name": "NVIDIA H100", "capability": "9.0", "peers": [j for j in range(count) if j != i]}
        for i in range(count)
    ]
    said = {
        "error": None,
        "torch": "2.9.0",
        "cuda_build": "12.8",
        "gloo": True,
        "nccl": "2.27.5",
        "gpus": peers,
    }
    return Checkup(
        machine, said | torch, None, None, found, "0.2.11", None, plan, None, "1" if count else None
    )


def words(found: Checkup) -> str:
    text = render(found)
    assert max(map(len, text.splitlines())) <= 80
    return " ".join(text.split())


def test_eight_gpus_with_nsys() -> None:
    found = replace(described(8, nsys=True), links=(("X", "NV18"), ("NV18", "X")))
    text = words(found)
    assert "GPUs 8 × NVIDIA H100 (85.9 GB)" in text
    assert "P2P every GPU reaches every other; links: 1 × NV18" in text
    assert "not set, 1 in the ranks of a run; 1 makes kernels start in the order of their launches" in text
    assert "device cuda (8 GPUs that PyTorch can use) backend nccl" in text
    assert "recorder nsys (a GPU, and nsys 2025.3.1 on PATH)" in text
    assert "NCCL 2.27.5" in text
    assert found.broken is None


@pytest.mark.parametrize(
    ("version", "nvtx", "told"),
    [
        ("2022.4.2.1", "0.2.12", True),
        ("2022.4.2.1", "0.2.17", True),
        ("2022.4.2.1", "0.2.11", False),
        ("2022.4.2.1", None, False),
        ("2025.3.1", "0.2.17", False),
    ],
)
def test_an_nsys_that_records_nothing_of_a_newer_nvtx(
    tmp_path: Path, version: str, nvtx: str | None, told: bool
) -> None:
    importer = tmp_path / "host-linux-x64" / "QdstrmImporter"
    importer.parent.mkdir()
    importer.touch()
    found = traps(Nsys(str(tmp_path / "bin" / "nsys"), version, frozenset({"--trace"}), frozenset()), nvtx)
    assert [f"nvtx {nvtx} asks" in trap and "pip install 'nvtx==0.2.11'" in trap for trap in found] == [
        True
    ] * told
    importer.unlink()
    lacking = traps(Nsys(str(tmp_path / "bin" / "nsys"), version, frozenset({"--trace"}), frozenset()), nvtx)
    assert lacking[:-1] == found
    assert "QdstrmImporter is not installed" in lacking[-1]
    text = words(replace(described(nsys=True), nsys_traps=tuple(lacking)))
    assert f"nsys 2025.3.1 (/opt/nsys); {'; '.join(lacking)}" in text


def test_gpus_that_do_not_reach_each_other_and_no_nsys() -> None:
    gpus = [{"name": "A", "capability": "8.6", "peers": peers} for peers in ([1], [0], [])]
    text = words(described(4, gpus=gpus))
    assert "PyTorch sees 3 of them" in text
    assert "no access between GPUs 0–2, 1–2; links not known without nvidia-smi" in text
    assert "recorder torch.profiler (nsys is not on PATH)" in text


def test_gpus_that_only_the_driver_sees() -> None:
    found = replace(described(cuda_build=None, nccl=None), driver_gpus=("NVIDIA H100",))
    assert (
        "none that PyTorch can use: it is built without CUDA; nvidia-smi lists 1 (NVIDIA H100): "
        "install PyTorch for CUDA" in words(found)
    )


def test_what_makes_run_impossible() -> None:
    assert described(2, nccl=None).broken == "this PyTorch has no nccl"
    assert described(gloo=False).broken == "this PyTorch has no gloo"
    refused = replace(
        described(), plan=None, refused="memory: 2 ranks need about 3 GB, and 1 GB are available"
    )
    assert refused.broken == refused.refused
    assert "nothing it would refuse: memory: 2 ranks need about 3 GB" in words(refused)
    assert as_dict(refused)["run"] is None


def test_links_leave_out_what_is_no_gpu() -> None:
    assert links(TOPOLOGY) == (("X", "NV18", "SYS"), ("NV18", "X", "SYS"), ("SYS", "SYS", "X"))
    assert links("") == ()
