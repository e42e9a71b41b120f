"""What each schedule hides on a paced link as slow as the compute, and how long its step takes.

``python tests/benchmarks/bench_schedules.py [--runs 5]``

Forward passes on two ranks. A first run without a link gives the compute; the link is then chosen so that the
serial schedule communicates as long as that, by α + factor · S / β. The schedules run in turn; medians and ranges
over the runs are shown. Exit code 1: a bound was missed, or a command failed. The bounds are those that must hold
on a machine with nothing else to do.
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
HIDDEN, SEQ, BATCH, BYTES = 512, 128, 4, 4
# A wide MLP on a short sequence: nearly all compute is GEMMs that stand beside a collective.
SHAPE = (
    *("--hidden", str(HIDDEN), "--heads", "8", "--ffn", str(8 * HIDDEN)),
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


def link_as_slow_as_compute() -> tuple[str, float]:
    """The link's specification, and the compute of a step in s."""
    compute = statistics.median(
        statistics.mean(rank["compute_ns"] for rank in report("--device", "cpu")) / STEPS / 1e9
        for _ in range(3)
    )
    size = SEQ * BATCH * HIDDEN * BYTES
    factor = 2 * (RANKS - 1) / RANKS
    beta = 2 * factor * size / (compute - 2 * ALPHA)  # two all-reduces
    return f"{beta / 1e6:.3f}MB/s,{ALPHA * 1e6:g}us", compute


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
    runs = parser.parse_args().runs
    link, compute = link_as_slow_as_compute()
    print(
        f"{datetime.now(timezone.utc):%Y-%m-%d}, {os.cpu_count()} cores, {platform.machine()}, "
        f"torch {metadata.version('torch')}, python {platform.python_version()}\n"
        f"{RANKS} ranks, forward, {' '.join(SHAPE)}\n"
        f"compute {compute * 1e3:.1f} ms a step; link {link}; median (lowest to highest) of {runs} runs\n"
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
