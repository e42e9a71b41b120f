"""How large a timeline is and how fast it answers, in a real browser.

``python tests/benchmarks/bench_timeline.py [--kernels 1000000] [--folder DIR] [--repeats 15]``

The trace is made by generate.py: kernels of a training run on 8 ranks, two streams each, here with ranges of steps,
layers and blocks on the host. A time of the page runs from the event to the frame after the last change: canvas and
Plotly's axis. Exit code 1: a bound was missed (they stand for 1 million kernels).
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import pandas as pd
from generate import NAMES, timeline

import overlapscope as osc
from browser.chrome import browser
from made import made
from overlapscope.classify import Classifier

RANKS, STEP, LAYER = 8, 2600, 52
BOUNDS = {"size": 12e6, "first paint": 2000.0, "zoom": 50.0, "hover": 10.0}


def trace(kernels: int) -> osc.Trace:
    """Kernels and ranges of all ranks, launched 5 ms before they run."""
    base = made([{"rank": r, "start": 0, "end": 1, "kind": "gemm"} for r in range(RANKS)], ranks=RANKS)
    classify = Classifier.default()
    verdicts = [classify.kernel(name) for name in NAMES]
    kinds = pd.CategoricalDtype([k.value for k in osc.Kind])
    found = pd.CategoricalDtype([c.value for c in osc.Collective])
    ops, ranges = [], []
    for rank in range(RANKS):
        t = timeline(kernels // RANKS, rank)
        comm = t.stream != t.stream[0]
        table = pd.DataFrame({c: base.ops[c].iloc[0] for c in base.ops.columns}, index=range(len(t.start)))
        table = table.assign(start=t.start, end=t.end, rank=rank, lane=2 * rank + comm, name=t.name)
        table["launch"], table["thread"] = np.maximum(t.start - 5_000_000, 0), rank + 1
        table["kind"] = [verdicts[i].kind.value for i in t.name]
        table["collective"] = [verdicts[i].collective and verdicts[i].collective.value for i in t.name]
        table["bytes"] = np.where(comm, 33_554_432, osc.NA)
        ops.append(table.sort_values("start"))
        ranges += _ranges(rank, np.sort(np.asarray(table["launch"])))
    names = [
        (n, None, v.kind.value, v.collective, v.library, v.fused_comm, "")
        for n, v in zip(NAMES, verdicts, strict=True)
    ]
    lanes = [(r, 0, s, f"stream {s}") for r in range(RANKS) for s in (7, 20)]
    usual = base.ops.dtypes.to_dict() | {"kind": kinds, "collective": found}
    of_range = base.ranges.dtypes.to_dict() | dict.fromkeys(("name", "domain", "role"), "category")
    told = pd.DataFrame(ranges, columns=list(base.ranges.columns)).astype(of_range)
    return osc.Trace(
        pd.concat(ops, ignore_index=True).astype(usual),
        told.sort_values(["rank", "start"], ignore_index=True),
        pd.DataFrame(names, columns=base.names.columns),
        pd.DataFrame(lanes, columns=base.lanes.columns),
        base.ranks,
        base.provenance,
    )


def _ranges(rank: int, launch: np.ndarray[Any, np.dtype[np.int64]]) -> list[tuple[object, ...]]:
    """Steps, layers in them, two blocks in each."""
    rows: list[tuple[object, ...]] = []
    for length, label in ((STEP, "step {}"), (LAYER, "layer {}"), (LAYER // 2, "{}")):
        for n, at in enumerate(range(0, len(launch) - length + 1, length)):
            name = (
                ("attention", "mlp")[n % 2]
                if label == "{}"
                else label.format(n if length == STEP else n % 50)
            )
            rows.append((int(launch[at]), int(launch[at + length - 1]) + 1, rank, rank + 1, name, "", ""))
    return rows


MEASURE = """async (repeats) => {
  const t = await timeline;
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const settled = async () => { do await frame(); while (t.axis.busy || t.due); };
  const timed = async (act) => {
    await settled();
    const begun = performance.now();
    act();
    await settled();
    return performance.now() - begun;
  };
  const { start, end } = t.model, box = t.canvas.getBoundingClientRect();
  const found = { zoom: [], pan: [], hover: [], "canvas alone, whole": [] };
  t.fold([]);
  for (let i = 0; i < repeats; i++) {
    const middle = start + (end - start) * (0.2 + 0.6 * i / repeats), half = (end - start) / 2 / (i % 2 ? 100 : 2);
    found.zoom.push(await timed(() => t.show(middle - half, middle + half)));
    found.pan.push(await timed(() => t.pan(0.02)));
    await settled();
    const begun = performance.now(), at = { clientX: box.left + 200 + 37 * i, clientY: box.top + 110, bubbles: true };
    t.stage.dispatchEvent(new MouseEvent("mousemove", at));
    found.hover.push(performance.now() - begun);
  }
  t.reset();
  for (let i = 0; i < repeats; i++) {
    await settled();
    t.redraw();
    await settled();
    found["canvas alone, whole"].push(t.painted);
  }
  return { ...found, "first paint": [t.firstPaint], "heap MB": [performance.memory.usedJSHeapSize / 1e6] };
}"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--repeats", type=int, default=15)
    chosen = parser.parse_args()
    folder = chosen.folder or Path(tempfile.mkdtemp())
    begun = time.perf_counter()
    made_of = trace(chosen.kernels)
    print(f"{made_of}, made in {time.perf_counter() - begun:.1f} s")
    begun = time.perf_counter()
    page = folder / f"timeline-{chosen.kernels}.html"
    osc.timeline(made_of).save(page, force=True)
    print(f"analysed and written in {time.perf_counter() - begun:.1f} s")
    with browser() as chrome:
        tab = chrome.new_page(viewport={"width": 1280, "height": 900})
        tab.goto(page.as_uri())
        times = tab.evaluate(MEASURE, chosen.repeats)
        version = chrome.version
    found = {"size": float(page.stat().st_size), **{k: statistics.median(v) for k, v in times.items()}}
    print(
        f"Chromium {version}, {platform.machine()}, Python {platform.python_version()}; medians of {chosen.repeats}"
    )
    bounded = chosen.kernels <= 1_000_000
    missed = [key for key, bound in BOUNDS.items() if bounded and found[key] > bound]
    for key, value in found.items():
        shown = f"{value / 1e6:.1f} MB" if key == "size" else f"{value:.1f}" + " ms" * ("MB" not in key)
        print(f"{key:>20}  {shown}" + ("   MISSED" if key in missed else ""))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
