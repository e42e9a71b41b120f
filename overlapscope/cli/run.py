"""``overlapscope run``: start a workload on several ranks, record it, report."""

from __future__ import annotations

import json
import os
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from . import pages
from .options import Html, borrowing, one_voice, progress

if TYPE_CHECKING:
    from ..capture import Request, RunDir, World
    from ..report.grid import Grid

__all__ = ["request", "run"]

# typer reads Optional at run time, on 3.10 too. What is not given is None, so that an option which the workload
# does not have can be told from one left alone.
Count = Optional[int]  # noqa: UP045
Switch = Optional[bool]  # noqa: UP045
Word = Optional[str]  # noqa: UP045


def request(
    workload: Annotated[
        str, typer.Option(metavar="NAME", help="What to run: see overlapscope workloads.")
    ] = "block",
    tp: Annotated[
        Count,
        typer.Option(
            metavar="N", help="Ranks to split every layer over. Default: 2, or what a launcher started."
        ),
    ] = None,
    preset: Annotated[
        Word,
        typer.Option(
            metavar="NAME",
            help="Shape of a model: llama3-8b, llama3-70b, llama3-405b, gpt3-175b or tiny (default on a CPU). "
            "Every size that is given overrides it.",
        ),
    ] = None,
    impl: Annotated[
        Word,
        typer.Option(
            metavar="NAME", help="megatron (ours, default) or dtensor (PyTorch's parallelize_module)."
        ),
    ] = None,
    arch: Annotated[
        Word,
        typer.Option(
            metavar="NAME",
            help="gpt (LayerNorm, GELU, biases; default) or llama (RMSNorm, SwiGLU, rotary embedding, no biases).",
        ),
    ] = None,
    hidden: Annotated[Count, typer.Option(metavar="N", help="Width of the layer.")] = None,
    heads: Annotated[Count, typer.Option(metavar="N", help="Attention heads.")] = None,
    kv_heads: Annotated[
        Count, typer.Option(metavar="N", help="Heads of keys and values. Default: as many as heads.")
    ] = None,
    ffn: Annotated[Count, typer.Option(metavar="N", help="Width of the MLP; else 4 × hidden.")] = None,
    seq: Annotated[Count, typer.Option(metavar="N", help="Tokens in a sequence.")] = None,
    batch: Annotated[Count, typer.Option(metavar="N", help="Sequences at once.")] = None,
    layers: Annotated[Count, typer.Option(metavar="N", help="Blocks, one after another.")] = None,
    dtype: Annotated[
        Word,
        typer.Option(metavar="NAME", help="float64, float32, bfloat16 or float16; also bf16, half, ..."),
    ] = None,
    forward_only: Annotated[
        Switch, typer.Option("--forward-only", help="Leave the backward pass out.")
    ] = None,
    sequence_parallel: Annotated[
        Switch,
        typer.Option(
            "--sequence-parallel",
            help="Norms and residuals on each rank's part of the sequence: all-gathers and reduce-scatters.",
        ),
    ] = None,
    schedule: Annotated[
        Word,
        typer.Option(metavar="NAME", help="serial, pipelined, ring or symm_mem: see the README."),
    ] = None,
    chunks: Annotated[Count, typer.Option(metavar="N", help="Of --schedule pipelined; else 4.")] = None,
    overlap_backward: Annotated[
        Switch,
        typer.Option(
            "--overlap-backward/--no-overlap-backward",
            help="Run a column layer's collectives under the GEMMs of its backward pass, or not.",
        ),
    ] = None,
    sizes: Annotated[
        Word,
        typer.Option(
            metavar="SIZES",
            help="Such as 8B:256MB:x2, 1MB:8MB:+1MB or 1KB,1MB: KB is 1000 B, KiB and K 1024 B.",
        ),
    ] = None,
    seed: Annotated[Count, typer.Option(metavar="N", help="What all random numbers follow from.")] = None,
    steps: Annotated[Count, typer.Option(metavar="N", help="Steps to measure.")] = None,
    warmup: Annotated[Count, typer.Option(metavar="N", help="Warm-up steps before those.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    recorder: Annotated[
        str,
        typer.Option(help="auto, torch (torch.profiler) or nsys. auto: nsys with a GPU and nsys on PATH."),
    ] = "auto",
    link: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="SPEC",
            help="Pretend a link between processes on a CPU: nvlink4, or a speed and a latency, 50GB/s,5us.",
        ),
    ] = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", metavar="DIR", help="Default: runs/<workload>-tp<N>-<UTC time>."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the run in the output directory.")] = False,
    keep_json: Annotated[bool, typer.Option("--keep-json", help="Keep the ranks' PyTorch profiles.")] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Give up when no rank has said anything for so long.")
    ] = 300.0,
) -> Request:
    """What these options ask for. Declared once, for every command that runs something."""
    from .. import capture

    return capture.Request(
        workload=workload,
        tp=2 if tp is None else tp,
        options={
            "preset": preset,
            "impl": impl,
            "arch": arch,
            "hidden": hidden,
            "heads": heads,
            "kv_heads": kv_heads,
            "ffn": ffn,
            "seq": seq,
            "batch": batch,
            "layers": layers,
            "dtype": dtype,
            "forward_only": forward_only,
            "sequence_parallel": sequence_parallel,
            "schedule": schedule,
            "chunks": chunks,
            "overlap_backward": overlap_backward,
            "sizes": sizes,
            "seed": seed,
        },
        steps=steps,
        warmup=warmup,
        device=device,
        recorder=recorder,
        link=link,
        output=output,
        force=force,
        keep_json=keep_json,
        timeout=timeout,
    )


@borrowing(request)
def run(
    launch: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="auto: join the ranks that torchrun, srun or mpirun started, else start some; spawn, join: the one.",
        ),
    ] = "auto",
    html: Html = None,
    **options: Any,
) -> None:
    """Run a tensor-parallel workload on N ranks, record all of them, and report.

    The output directory gets trace.sqlite (every rank, in Nsight Systems' schema) and run.json (what ran, where).
    Which options a workload has, and their defaults: overlapscope workloads.
    """
    from .. import capture

    world = capture.find(os.environ, launch)
    if world is not None:
        _join(world, {**options, "tp": world.size if options["tp"] is None else options["tp"]}, html)
        return
    asked = request(**options)
    pages.check(html, force=asked.force, made=asked.output or capture.default_path(asked.workload))
    with progress() as tell:
        folder = capture.run(asked, tell)
    _show(folder.path, folder, html, asked.force)


def _join(world: World, options: dict[str, Any], html: Path | None) -> None:
    """This process's rank. One process a node says what went wrong, and rank 0 what came of it."""
    from .. import capture

    with one_voice(world), progress() if world.rank == 0 else nullcontext(lambda _: None) as tell:
        asked = request(**options)
        pages.check(html, force=asked.force, made=asked.output or capture.default_path(asked.workload))
        joined = capture.join(asked, world, tell)
    if world.rank != 0:
        return
    if joined.missing:
        here, there = joined.folder.path, ", ".join(joined.missing)
        print(f"{there} of this run cannot be seen from here: bring them beside {here}, then")
        print(f"overlapscope report {joined.path}")
        return
    _show(joined.path, joined.folder, html, asked.force)


def _show(path: Path, folder: RunDir, html: Path | None, force: bool) -> None:
    from .. import formats
    from ..report import document
    from ..report.words import escape
    from .peak import peak_of
    from .report import show

    trace = formats.load(path)
    built = document.build(trace, peak=peak_of(trace))
    show(built)
    saved = _saved(json.loads(folder.manifest.read_text()))
    if saved is not None:
        lines = ["", saved.title, "", " layout         measured         formula", " " + "─" * 39]
        lines += [f" {name:<8}{measured:>15}{formula:>16}" for name, measured, formula in saved.rows]
        sys.stdout.write("\n".join(lines) + "\n")
    shown = shlex.quote(escape(str(path)))
    sys.stdout.write(f"\nKept in {shown}\nTo see it: overlapscope timeline {shown}\n")
    if html is not None:
        pages.write(pages.report(built, extra=[saved] if saved else []), html, force=force)


def _saved(manifest: dict[str, Any]) -> Grid | None:
    """What autograd keeps, with and without sequence parallelism; nothing where it was not measured."""
    from ..report.grid import Grid
    from ..report.words import count

    rows = [
        [row["layout"], count(row["measured_bytes"]), count(row["formula_bytes"])]
        for row in manifest.get("saved_activations", [])
    ]
    title = "Kept for the backward pass, one layer on one rank (bytes)"
    return Grid(title, ["layout", "measured", "formula"], rows) if rows else None
