"""``overlapscope run``: start a workload on several ranks, record it, report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from .options import borrowing, progress

if TYPE_CHECKING:
    from ..capture import Request

__all__ = ["request", "run"]

# typer reads Optional at run time, on 3.10 too. What is not given is None, so that an option which the workload
# does not have can be told from one left alone.
Count = Optional[int]  # noqa: UP045
Switch = Optional[bool]  # noqa: UP045
Word = Optional[str]  # noqa: UP045


def request(
    workload: Annotated[
        str, typer.Option(metavar="NAME", help="block, mlp, column-linear or row-linear.")
    ] = "block",
    tp: Annotated[int, typer.Option(metavar="N", help="Ranks to split every layer over.")] = 2,
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
    hidden: Annotated[
        Count, typer.Option(metavar="N", help="Width of the layer. Default: 512 (GPU: 4096).")
    ] = None,
    heads: Annotated[Count, typer.Option(metavar="N", help="Attention heads. Default: 8 (GPU: 32).")] = None,
    kv_heads: Annotated[
        Count, typer.Option(metavar="N", help="Heads of keys and values. Default: as many as heads.")
    ] = None,
    ffn: Annotated[Count, typer.Option(metavar="N", help="Width of the MLP. Default: 4 × hidden.")] = None,
    seq: Annotated[
        Count, typer.Option(metavar="N", help="Tokens in a sequence. Default: 256 (GPU: 2048).")
    ] = None,
    batch: Annotated[Count, typer.Option(metavar="N", help="Sequences at once. Default: 2 (GPU: 1).")] = None,
    layers: Annotated[Count, typer.Option(metavar="N", help="Blocks, one after another. Default: 1.")] = None,
    dtype: Annotated[
        Word,
        typer.Option(help="float32 (default on a CPU), bfloat16 (default on a GPU), float16 or float64."),
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
        typer.Option(metavar="NAME", help="serial (default), pipelined, ring or symm_mem: see the README."),
    ] = None,
    chunks: Annotated[Count, typer.Option(metavar="N", help="Of --schedule pipelined. Default: 4.")] = None,
    overlap_backward: Annotated[
        Switch,
        typer.Option(
            "--overlap-backward/--no-overlap-backward",
            help="Run a column layer's collectives under the GEMMs of its backward pass, or not. Default: do.",
        ),
    ] = None,
    seed: Annotated[
        Count, typer.Option(metavar="N", help="Seed of weights, input and upstream gradient. Default: 0.")
    ] = None,
    steps: Annotated[Count, typer.Option(metavar="N", help="Steps to measure. Default: 3.")] = None,
    warmup: Annotated[
        Count, typer.Option(metavar="N", help="Warm-up steps before those. Default: 1.")
    ] = None,
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
        tp=tp,
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
def run(**options: Any) -> None:
    """Run a tensor-parallel workload on N ranks, record all of them, and report.

    The output directory gets trace.sqlite (every rank, in Nsight Systems' schema) and run.json (what ran, where).
    """
    from .. import capture

    asked = request(**options)
    with progress() as tell:
        folder = capture.run(asked, tell)

    from .report import show

    show(folder.path)
    sys.stdout.write(_saved(json.loads(folder.manifest.read_text())))


def _saved(manifest: dict[str, Any]) -> str:
    """What autograd keeps, with and without sequence parallelism; nothing where it was not measured."""
    rows = manifest.get("saved_activations", [])
    if not rows:
        return ""
    lines = [
        "",
        "Kept for the backward pass, one layer on one rank (bytes)",
        "",
        " layout         measured         formula",
    ]
    lines.append(" " + "─" * 39)
    lines += [f" {r['layout']:<8}{r['measured_bytes']:>15,}{r['formula_bytes']:>16,}" for r in rows]
    return "\n".join(lines) + "\n"
