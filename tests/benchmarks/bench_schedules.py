"""What each schedule hides on a paced link as slow as the GEMMs beside it, and how long its step takes.

``python tests/benchmarks/bench_schedules.py [--runs 5]``

Forward passes on two ranks. First runs without a link give the time of the GEMMs; the link is then chosen so that
the communication, α + factor · S / β each, takes as long as the row layers' GEMMs, those that the pipelined schedule
can put beside it (with ``--all``: as all compute, of which it cannot reach the column layers). The schedules run
in turn; medians and ranges over the runs are shown. Exit code 1: a bound was missed, or a command failed. The bounds
are those of a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RANKS, STEPS, ALPHA = 2, 5, 100e-6
HIDDEN, WIDE, SEQ, BATCH, BYTES = 512, 8, 128, 4, 4
# A wide MLP on a short sequence: nearly all compute is GEMMs that stand beside a collective.
SHAPE = (
    *("--hidden", str(HIDDEN), "--heads", "8", "--ffn", str(WIDE * HIDDEN)),
    *("--seq", str(SEQ), "--batch", str(BATCH), "--dtype", "float32"),
)


@dataclass
class Subject:
    """A schedule, what must hold of it, and what was measured."""

    name: str
    options: tuple[str, ...]
    least: float = 0.0  # hidden share
    most: float = 1.0
    hidden: list[float] = field(default_factory=list)
    step_ms: list[float] = field(default_factory=list)


SEQUENCE = ("--sequence-parallel",)
PIPELINED = ("--schedule", "pipelined", "--chunks", "4")


def subjects() -> list[Subject]:
    """Both layouts' serial schedules first: the others are compared with their own."""
    return [
        Subject("serial", (), most=0.05),
        Subject("serial, SP", SEQUENCE, most=0.05),
        Subject("pipelined", PIPELINED, least=0.30),
        Subject("pipelined, SP", (*SEQUENCE, *PIPELINED), least=0.30),
        Subject("ring, SP", (*SEQUENCE, "--schedule", "ring"), least=0.30),
    ]


def report(*options: str) -> list[dict[str, int]]:
    """The ranks of one run's report."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as folder:
        ours = [*SHAPE, "--forward-only", "--tp", str(RANKS), "--steps", str(STEPS), "-o", f"{folder}/run"]
        last = ["report", f"{folder}/run", "--format", "json"]
        out = ""
        for command in (["run", *ours, *options], last):
            done = subprocess.run(
                [sys.executable, "-m", "overlapscope", *command],
                env=os.environ | {"PYTHONPATH": path},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                sys.exit(done.stderr)
            out = done.stdout
    ranks: list[dict[str, int]] = json.loads(out)["ranks"]
    return ranks


def slow_link(as_all: bool) -> tuple[str, float, float]:
    """The link's specification; communication and compute of a step in s."""
    runs = [report("--device", "cpu") for _ in range(3)]
    compute, gemm = (
        statistics.median(statistics.mean(rank[key] for rank in ranks) / STEPS / 1e9 for ranks in runs)
        for key in ("compute_ns", "gemm_ns")
    )
    row_layers = (1 + WIDE) / (4 + 2 * WIDE)  # of the GEMMs' operations: O and down, of QKV, O, up and down
    comm = compute if as_all else gemm * row_layers
    size = SEQ * BATCH * HIDDEN * BYTES
    factor = 2 * (RANKS - 1) / RANKS
    beta = 2 * factor * size / (comm - 2 * ALPHA)  # two all-reduces
    return f"{beta / 1e6:.3f}MB/s,{ALPHA * 1e6:g}us", comm, compute


def measure(subject: Subject, link: str) -> None:
    """One run more."""
    ranks = report(*subject.options, "--link", link)
    overlap, comm, window = (
        sum(rank[key] for rank in ranks) for key in ("overlap_ns", "comm_ns", "window_ns")
    )
    subject.hidden.append(overlap / comm)
    subject.step_ms.append(window / len(ranks) / STEPS / 1e6)


def main() -> int:
    """Measure, show, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--all", action="store_true", help="communicate as long as all compute takes")
    arguments = parser.parse_args()
    runs = arguments.runs
    link, comm, compute = slow_link(arguments.all)
    print(
        f"{datetime.now(timezone.utc):%Y-%m-%d}, {os.cpu_count()} cores, {platform.machine()}, "
        f"torch {metadata.version('torch')}, python {platform.python_version()}\n"
        f"{RANKS} ranks, forward, {' '.join(SHAPE)}\n"
        f"compute {compute * 1e3:.1f} ms a step, communication {comm * 1e3:.1f} ms by the link, {link}\n"
        f"median (lowest to highest) of {runs} runs\n"
    )
    measured = subjects()
    for _ in range(runs):
        for subject in measured:
            measure(subject, link)
    print(f"{'schedule':<15} {'hidden':<26} {'step, ms':<28}")
    missed = []
    serial = {True: measured[1], False: measured[0]}
    for s in measured:
        hidden, step = statistics.median(s.hidden), statistics.median(s.step_ms)
        base = statistics.median(serial["SP" in s.name].step_ms)
        print(
            f"{s.name:<15} {hidden:6.1%} ({min(s.hidden):.1%} to {max(s.hidden):.1%})".ljust(43)
            + f"{step:7.1f} ({min(s.step_ms):.1f} to {max(s.step_ms):.1f})"
        )
        if not s.least <= hidden <= s.most:
            missed.append(f"{s.name}: {hidden:.1%} hidden, not {s.least:.0%} to {s.most:.0%}")
        if s.least and step >= base:
            missed.append(f"{s.name}: the step takes {step:.1f} ms, serial's {base:.1f} ms")
    print("", *missed, sep="\n" if missed else "")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
