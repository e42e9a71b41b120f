"""The report's compute time of a block beside what CUDA events say of the same steps; they differ by 3 % at most.

A step of this shape keeps one GPU busy throughout, so that the time between two events on its stream is the time in
which its kernels run, and the little between them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import overlapscope as osc
from overlapscope import markers
from overlapscope.capture.recorder import TorchRecorder
from workloads import WORKLOADS
from workloads.collectives import Ranks

STEPS, WARMUP = 10, 3
BOUND = 0.03


def main(folder: Path) -> int:
    """Measure, print both figures, and return 1 if they differ by more."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.cuda.set_device(0)
    entry = WORKLOADS["block"]
    config = entry.configure("cuda", preset="llama3-8b")
    program = entry.build(config, Ranks(), torch.device("cuda", 0))
    for _ in range(WARMUP):
        program.step()
    recorder = TorchRecorder(folder / "rank0.json", "cuda")
    recorder.start()
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(STEPS)]
    for i, (begin, end) in enumerate(pairs):
        with markers.step(i):
            begin.record()
            program.step()
            end.record()
    torch.cuda.synchronize()
    file = recorder.finish()
    assert file is not None
    by_events = sum(begin.elapsed_time(end) for begin, end in pairs) / STEPS
    ranks = osc.overlap(osc.load(file)).ranks
    compute, memory, idle = (
        int(ranks[f"{part}_ns"].sum()) / STEPS / 1e6 for part in ("compute", "memory", "idle")
    )
    off = compute / by_events - 1
    print(
        f"events {by_events:.3f} ms a step; report: compute {compute:.3f}, copies {memory:.3f}, idle {idle:.3f} ms"
    )
    print(f"the report's compute time is {off:+.2%} of the events' (at most {BOUND:.0%})")
    return int(abs(off) > BOUND)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
