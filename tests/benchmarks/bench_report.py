"""How long ``overlapscope report`` takes beside the bare reading of the same file, and how much memory.

``python tests/benchmarks/bench_report.py [--folder DIR] [--repeats 3] [--only nsys|kineto|start]``

The traces are made once and kept in the folder (a temporary one by default). Floor and command run in turn,
each in a fresh process; medians are shown. Exit code 1: a bound was missed, or the command failed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests"))

# Reading is what nobody can do without; a report that takes many times as long wastes its user's time.
RATIO = 4.0
SMALL_SECONDS = 1.5  # a person waits for it
HEAVY = ("pandas", "plotly", "torch")  # what --version has no use for
KERNELS, EVENTS = 4_000_000, 850_000


@dataclass(frozen=True)
class Subject:
    """A large trace, and what may be spent on it."""

    kind: str
    file: str
    rows: int
    peak_mb: int


SUBJECTS = (
    Subject("nsys", "nsys-4m.sqlite", KERNELS, 1000),
    Subject("kineto", "kineto-850k.json", EVENTS, 900),
)


@dataclass(frozen=True)
class Run:
    """One finished process."""

    code: int
    wall_s: float
    peak_mb: float  # its largest resident set, in 1e6 bytes
    out: str
    err: str


def run(*command: str | Path) -> Run:
    """Run a command to its end, from the repository, and see what it took.

    This process stays small on purpose: Linux counts its resident set at the fork as the child's own.
    """
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        begin = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, *map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=os.environ | {"PYTHONPATH": path},
        )
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        return Run(child.returncode, wall, usage.ru_maxrss * 1024 / 1e6, out.read(), err.read())


def report(file: Path) -> Run:
    """The whole command."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "report.json"
        return run("-m", "overlapscope", "report", file, "--format", "json", "-o", output)


# -- traces -------------------------------------------------------------------------------------------------


def make(subject: Subject, folder: Path) -> Path:
    """The subject's file, made where it is not there yet; counted by other means than it was made with."""
    path = folder / subject.file
    if not path.exists():
        made = run(HERE / "generate.py", subject.kind, path, str(subject.rows))
        if made.code:
            sys.exit(made.err)
        print(f"made {path} in {made.wall_s:.1f} s")
    count = _count_kernels(path) if subject.kind == "nsys" else _count_events(path)
    if count != subject.rows:
        sys.exit(f"{path}: {count} rows where {subject.rows} should be; delete it to have it made anew")
    return path


def _count_kernels(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT count(*), count(DISTINCT globalPid) FROM CUPTI_ACTIVITY_KIND_KERNEL"
        rows, processes = connection.execute(query).fetchone()
    return int(rows) if processes == 8 else -1


def _count_events(path: Path) -> int:
    with path.open("rb") as file:
        return sum(line.count(b'"ph": ') for line in file)


def small(folder: Path) -> Path:
    """Two ranks, a thousand kernels each."""
    from builders import TraceBuilder, nsys

    trace = TraceBuilder()
    for rank in range(2):
        process = trace.process(pid=5000 + rank, rank=rank)
        gpu = process.device(rank)
        for i in range(500):
            at = i * 100_000
            gpu.kernel("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN", at, at + 80_000, stream=7)
            name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)"
            gpu.kernel(name, at + 50_000, at + 120_000, stream=20)
        process.range("step 0", 0, 50_000_000)
    return nsys.write(trace, folder / "small.sqlite")


# -- measurements -------------------------------------------------------------------------------------------


def large_trace(subject: Subject, folder: Path, repeats: int) -> bool:
    """Floor and command in turn; whether the command kept its bounds."""
    path = make(subject, folder)
    _warm(path)
    floors, reads, commands = [], [], []
    for _ in range(repeats):
        floor = run(HERE / "floors.py", subject.kind, path)
        said = json.loads(floor.out or "{}")
        if floor.code or said.get("rows") != subject.rows:
            sys.exit(f"the floor itself failed: {floor.err or said}")
        floors.append(floor)
        reads.append(float(said["read_s"]))
        commands.append(report(path))
    print(f"\n{subject.kind}: {subject.rows:,} rows, {path.stat().st_size / 1e6:.0f} MB")
    read = statistics.median(reads)
    _row("floor, the reading alone", _seconds(reads), "")
    _row("floor, the whole process", _seconds([f.wall_s for f in floors]), _peak(floors))
    if failed := [c for c in commands if c.code]:
        return _failed("report", failed[0])
    wall, peak = statistics.median(c.wall_s for c in commands), max(c.peak_mb for c in commands)
    _row("report", _seconds([c.wall_s for c in commands]), _peak(commands))
    kept = _bound(f"{wall / read:.2f} times the reading", wall / read <= RATIO, f"{RATIO:g}")
    return _bound(f"peak {peak:.0f} MB", peak <= subject.peak_mb, f"{subject.peak_mb} MB") and kept


def start_up(folder: Path, repeats: int) -> bool:
    """What a person feels: --version, and a report on a small file."""
    print("\nstart-up")
    path = small(folder)
    tries: dict[str, Callable[[], Run]] = {
        "python -c pass": lambda: run("-c", "pass"),
        "overlapscope --version": lambda: run("-m", "overlapscope", "--version"),
        "python -c 'import pandas'": lambda: run("-c", "import pandas"),
        "report on a small file": lambda: report(path),
    }
    runs: dict[str, list[Run]] = {name: [] for name in tries}
    for _ in range(repeats):
        for name, attempt in tries.items():
            runs[name].append(attempt())
    kept = True
    for name, done in runs.items():
        failed = [r for r in done if r.code]
        if failed:
            kept = _failed(name, failed[0])
        else:
            _row(name, _seconds([r.wall_s for r in done]), _peak(done))
    if not any(r.code for r in runs["report on a small file"]):
        slow = statistics.median(r.wall_s for r in runs["report on a small file"])
        kept &= _bound(f"small report {slow:.2f} s", slow < SMALL_SECONDS, f"{SMALL_SECONDS} s")
    return _imports() and kept


def _imports() -> bool:
    """What --version loads."""
    traced = run("-X", "importtime", "-m", "overlapscope", "--version")
    if traced.code:
        return _failed("overlapscope --version", traced)
    lines = [line for line in traced.err.splitlines() if line.startswith("import time:")]
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
    heavy = [m for m in HEAVY if m in loaded]
    return _bound(f"--version imports {', '.join(heavy) or 'none of ' + ', '.join(HEAVY)}", not heavy, "none")


def _warm(path: Path) -> None:
    """Bring the file into the page cache, so that the first to read it does not pay for all."""
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 24):
            pass


# -- output -------------------------------------------------------------------------------------------------


def _row(name: str, seconds: str, peak: str) -> None:
    print(f"  {name:<28}{seconds:<46}{peak}")


def _seconds(values: list[float]) -> str:
    each = " ".join(f"{v:.2f}" for v in values)
    return f"{statistics.median(values):7.2f} s   ({each})"


def _peak(runs: list[Run]) -> str:
    return f"peak {max(r.peak_mb for r in runs):.0f} MB"


def _bound(what: str, kept: bool, bound: str) -> bool:
    print(f"  {'kept  ' if kept else 'MISSED'} {what} (bound {bound})")
    return kept


def _failed(name: str, failed: Run) -> bool:
    last = (failed.err.strip().splitlines() or ["no message"])[-1]
    print(f"  FAILED {name}: exit code {failed.code}: {last}")
    return False


def _machine() -> None:
    model = platform.processor() or platform.machine()
    cpuinfo, meminfo = Path("/proc/cpuinfo"), Path("/proc/meminfo")
    if cpuinfo.exists():
        names = [
            x.partition(":")[2].strip()
            for x in cpuinfo.read_text().splitlines()
            if x.startswith("model name")
        ]
        model = names[0] if names else model
    memory = int(meminfo.read_text().split()[1]) * 1024 / 1e9 if meminfo.exists() else float("nan")
    packages = ("numpy", "pandas", "pyarrow", "adbc-driver-sqlite", "msgspec")
    print(f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC")
    print(f"{model}, {os.cpu_count()} cores, {memory:.1f} GB; {platform.platform()}")
    print(f"python {platform.python_version()}, " + ", ".join(f"{p} {metadata.version(p)}" for p in packages))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--folder", type=Path, help="where traces are made and kept (default: a temporary one)"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=["nsys", "kineto", "start"])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        _machine()
        kept = True
        for subject in SUBJECTS:
            if asked.only in (None, subject.kind):
                kept &= large_trace(subject, folder, asked.repeats)
        if asked.only in (None, "start"):
            kept &= start_up(folder, asked.repeats)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
