"""A prediction laid out for programs (JSON, CSV) and for pull requests (Markdown)."""

from __future__ import annotations

import csv as writer
import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..predict import Prediction
from ..predict.step import Size
from .words import duration, percent

__all__ = [
    "LEFT_OUT",
    "SCHEMA_VERSION",
    "STATUS",
    "csv",
    "headline",
    "json_text",
    "markdown",
    "notes",
    "parquet",
]

SCHEMA_VERSION = 1
"""Of the JSON. Keys may be added under one version; none changes its meaning."""

STATUS = (
    "A model, not a measurement. Times are lower bounds of these kernels only with every efficiency at 1 and launch "
    "and latency at 0; as it stands, each is an estimate. Efficiency is no bound either way: GEMMs slower than "
    "modelled raise it, since communication then weighs less."
)
LEFT_OUT = (
    "wave quantisation and the lower efficiency of smaller GEMMs: the roofline alone makes parts slower",
    "what communication beside compute takes from it (SMs, HBM): overlap looks better than it is",
    "latency that grows with the ranks: a collective has one, and each hop of a ring another, as a message of NCCL's; "
    "copies by symmetric memory start sooner (such as --link 370GB/s,2us)",
    "ranks that come late, the host, and memory beyond what is counted: temporaries, buffers of NCCL",
    "embedding, output layer, loss, optimizer step, dropout, data and pipeline parallelism",
    "fused kernels and what stays in L2, which save time: every array is counted from HBM and back",
)


def headline(found: Prediction) -> list[str]:
    """What a tired person needs."""
    size = found.size
    n = "1 GPU" if size.tp == 1 else f"{size.tp} GPUs"
    lines = [f"TP {size.tp}: a step should take {duration(size.step * 1e9)} on {n}."]
    if size.tp == 1:
        return lines
    lines[0] = (
        f"TP {size.tp}: a step should take {duration(size.step * 1e9)}, {found.speedup(size):.2f} times as fast as "
        f"on 1 GPU, efficiency {percent(found.efficiency(size), 1)}."
    )
    part = size.part
    lines.append(
        f"Exposed: {duration(part.exposed * 1e9)} of {duration(part.comm * 1e9)} of communication, "
        f"{percent(part.exposed, size.step)} of the step."
    )
    gain = size.step - size.hidden
    if gain > 0:
        lines.append(
            f"Hiding all that this compute can hide could gain at most {percent(gain, size.step)} "
            f"({size.step / size.hidden:.2f}x)."
        )
    return lines


def notes(found: Prediction) -> list[str]:
    """What was assumed for this prediction in particular."""
    said = []
    route = found.routes[0]
    if found.beyond:
        sizes = ", ".join(map(str, found.beyond))
        said.append(
            f"TP {sizes}: n/a, more GPUs than the {route.domain} that {route.name} joins; --beyond names a link "
            "to be taken there"
        )
    over = [s.tp for s in found.sizes if s.link is not None and s.link != route.name]
    if over:
        said.append(
            f"TP {', '.join(map(str, over))}: every exchange over {found.routes[1].name}, at its speed a GPU; rings "
            "and trees that use NVLink for a part of the way are not modelled"
        )
    elif route.domain is None:
        said.append(f"{route.name} is taken to join any number of GPUs at this speed")
    heads = found.shape.kv_heads
    copied = [s.tp for s in found.sizes if s.tp > heads]
    if copied:
        said.append(
            f"TP {', '.join(map(str, copied))}: more ranks than the {heads} heads of keys and values, so several hold "
            "a copy of the same one; the sum of its copies' gradients is not modelled"
        )
    if not found.fits(found.sizes[0]):
        said.append("one GPU could not hold this: T(1) is computed all the same, as what speed-up is over")
    if found.layout.schedule == "symm_mem":
        said.append("symm_mem is modelled as the ring, and forward only, as it runs")
    return said


def as_dict(found: Prediction) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "measured": False,
        "status": STATUS,
        "name": found.name,
        "gpu": found.gpu,
        "shape": asdict(found.shape) | {"dtype": "bfloat16"},
        "layout": asdict(found.layout),
        "tp": found.asked,
        "sizes": [row(found, size) for size in found.sizes],
        "beyond": list(found.beyond),
        "constants": [asdict(constant) for constant in found.constants],
        "notes": notes(found),
        "left_out": list(LEFT_OUT),
    }


def row(found: Prediction, size: Size) -> dict[str, Any]:
    """A size as figures; compute and exposed add up to the step exactly."""
    compute, exposed = round(size.part.compute * 1e9), round(size.part.exposed * 1e9)
    return {
        "tp": size.tp,
        "step_ns": compute + exposed,
        "compute_ns": compute,
        "comm_ns": round(size.part.comm * 1e9),
        "exposed_comm_ns": exposed,
        "all_hidden_ns": round(size.hidden * 1e9),
        "speedup": found.speedup(size),
        "efficiency": found.efficiency(size),
        "wire_bytes": round(size.part.wire),
        "memory_bytes": round(size.memory),
        "fits": found.fits(size),
        "link": size.link,
    }


def json_text(found: Prediction) -> str:
    """All of it; times are integers of ns, what does not exist null."""
    return json.dumps(as_dict(found), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def csv(found: Prediction) -> str:
    """One row a size."""
    rows = [row(found, size) for size in found.sizes]
    text = io.StringIO()
    out = writer.DictWriter(text, list(rows[0]), lineterminator="\n")
    out.writeheader()
    out.writerows(rows)
    return text.getvalue()


def parquet(found: Prediction) -> bytes:
    """One row a size."""
    from .tables import of_rows
    from .tables import parquet as packed

    return packed(of_rows([row(found, size) for size in found.sizes]))


def markdown(found: Prediction) -> str:
    """Headline, sizes and constants as tables."""
    first, *rest = headline(found)
    head = ["TP", "step", "compute", "comm", "exposed", "speed-up", "efficiency", "memory", "fits"]
    lines = [
        f"**{first}**",
        *rest,
        "",
        STATUS,
        "",
        *_table(head, [_cells(found, size) for size in found.sizes]),
    ]
    head = ["constant", "value", "unit", "option", "source"]
    rows = [[c.name, f"{c.value:.4g}", c.unit, f"`{c.option}`", c.source] for c in found.constants]
    lines += ["", *_table(head, rows), "", *(f"- {note}" for note in notes(found))]
    lines += ["", "Not modelled:", "", *(f"- {what}" for what in LEFT_OUT)]
    return "\n".join(lines) + "\n"


def _cells(found: Prediction, size: Size) -> list[str]:
    part = size.part
    times = [duration(t * 1e9) for t in (size.step, part.compute, part.comm, part.exposed)]
    return [
        f"**{size.tp}**" if size.tp == found.asked else str(size.tp),
        *times,
        f"{found.speedup(size):.2f}x",
        percent(found.efficiency(size), 1),
        f"{size.memory / 1e9:.1f} GB",
        "yes" if found.fits(size) else "no",
    ]


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows]]


def described(found: Prediction) -> Mapping[str, str]:
    """What was predicted, in words: label to text."""
    shape, layout = asdict(found.shape), found.layout
    options = ", ".join(f"{name} {value}" for name, value in shape.items())
    ways = [
        "tensor and sequence parallel" if layout.sequence_parallel else "tensor parallel",
        layout.schedule,
    ]
    if layout.chunks is not None:
        ways[-1] += f" in {layout.chunks} chunks"
    ways.append("forward only" if layout.forward_only else "forward and backward")
    if not layout.forward_only and not layout.overlap_backward:
        ways.append("nothing hidden backward")
    return {
        "model": f"{found.name}: {options}, bfloat16",
        "layout": ", ".join(ways),
        "on": f"{found.gpu}, {' and beyond it '.join(route.name for route in found.routes)}",
    }
