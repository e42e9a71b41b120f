"""``overlapscope predict``: what a step should take, by a model; nothing is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from .options import Force, Output
from .output import Format, put

if TYPE_CHECKING:
    from ..predict import Prediction

__all__ = ["predict"]

# typer reads Optional at run time, on 3.10 too.
Count = Optional[int]  # noqa: UP045
Word = Optional[str]  # noqa: UP045
Number = Optional[float]  # noqa: UP045


def predict(
    preset: Annotated[
        str, typer.Option(metavar="NAME", help="llama3-8b, llama3-70b, llama3-405b or gpt3-175b.")
    ] = "llama3-70b",
    tp: Annotated[int, typer.Option(metavar="N", help="GPUs to split every layer over.")] = 8,
    gpu: Annotated[str, typer.Option(metavar="NAME", help="a100, h100, h200, b200 or gb200.")] = "h100",
    link: Annotated[
        Word,
        typer.Option(
            metavar="SPEC",
            help="nvlink4, ndr, pcie5, ..., or a speed and a latency, 400GB/s,8us. Default: the GPU's NVLink.",
        ),
    ] = None,
    beyond: Annotated[
        Word,
        typer.Option(metavar="SPEC", help="The link for more GPUs than NVLink joins. Default: n/a there."),
    ] = None,
    sequence_parallel: Annotated[
        bool, typer.Option("--sequence-parallel", help="All-gathers and reduce-scatters: see run.")
    ] = False,
    schedule: Annotated[
        Word, typer.Option(metavar="NAME", help="serial (default), pipelined, ring or symm_mem: see run.")
    ] = None,
    chunks: Annotated[Count, typer.Option(metavar="N", help="Of --schedule pipelined. Default: 4.")] = None,
    overlap_backward: Annotated[
        bool, typer.Option("--overlap-backward/--no-overlap-backward", help="As in run.")
    ] = True,
    forward_only: Annotated[
        bool, typer.Option("--forward-only", help="Leave the backward pass out.")
    ] = False,
    hidden: Annotated[
        Count, typer.Option(metavar="N", help="In place of the preset's, as all of these.")
    ] = None,
    heads: Annotated[Count, typer.Option(metavar="N")] = None,
    kv_heads: Annotated[Count, typer.Option(metavar="N", help="Heads of keys and values.")] = None,
    ffn: Annotated[Count, typer.Option(metavar="N")] = None,
    layers: Annotated[Count, typer.Option(metavar="N")] = None,
    seq: Annotated[Count, typer.Option(metavar="N", help="Tokens in a sequence. Default: 4096.")] = None,
    batch: Annotated[Count, typer.Option(metavar="N", help="Sequences at once. Default: 1.")] = None,
    gpu_flops: Annotated[Number, typer.Option(metavar="TFLOP/S", help="Dense bfloat16 peak.")] = None,
    gpu_bandwidth: Annotated[Number, typer.Option(metavar="GB/S", help="Of HBM.")] = None,
    gpu_memory: Annotated[Number, typer.Option(metavar="GB", help="Of HBM.")] = None,
    gemm_efficiency: Annotated[Number, typer.Option(metavar="0..1", help="Of the peak.")] = None,
    attention_efficiency: Annotated[Number, typer.Option(metavar="0..1", help="Of the peak.")] = None,
    memory_efficiency: Annotated[Number, typer.Option(metavar="0..1", help="Of HBM's bandwidth.")] = None,
    bus_efficiency: Annotated[Number, typer.Option(metavar="0..1", help="Of --link's speed.")] = None,
    launch: Annotated[Number, typer.Option(metavar="us", help="What a kernel costs beside its work.")] = None,
    attention_backward: Annotated[
        Number, typer.Option(metavar="X", help="FLOPs of attention backward, over forward.")
    ] = None,
    state_bytes: Annotated[
        Number, typer.Option(metavar="B", help="Optimizer state of a weight: counts as memory.")
    ] = None,
    domain: Annotated[Count, typer.Option(metavar="N", help="GPUs that --link joins.")] = None,
    format: Annotated[Format, typer.Option("--format", help="How to lay the prediction out.")] = Format.TEXT,
    output: Output = None,
    force: Force = False,
) -> None:
    """Say what a step should take on N GPUs, by a model of GEMMs and links: nothing is run or measured.

    Every constant is shown with its source and the option that overrides it.
    """
    from ..predict import Request, answer
    from ..report import predict as laid
    from ..report import predict_text

    found = answer(
        Request(
            preset=preset,
            gpu=gpu,
            tp=tp,
            link=link,
            beyond=beyond,
            dimensions={
                "hidden": hidden,
                "heads": heads,
                "kv_heads": kv_heads,
                "ffn": ffn,
                "layers": layers,
                "seq": seq,
                "batch": batch,
            },
            layout={
                "sequence_parallel": sequence_parallel,
                "schedule": schedule,
                "chunks": chunks,
                "overlap_backward": overlap_backward,
                "forward_only": forward_only,
            },
            constants={
                "gpu_flops": gpu_flops,
                "gpu_bandwidth": gpu_bandwidth,
                "gpu_memory": gpu_memory,
                "gemm_efficiency": gemm_efficiency,
                "attention_efficiency": attention_efficiency,
                "memory_efficiency": memory_efficiency,
                "bus_efficiency": bus_efficiency,
                "launch": launch,
                "attention_backward": attention_backward,
                "state_bytes": state_bytes,
                "domain": domain,
            },
        )
    )
    layouts: dict[Format, Callable[[Prediction], str | bytes]] = {
        Format.TEXT: predict_text.render,
        Format.JSON: laid.json_text,
        Format.CSV: laid.csv,
        Format.MD: laid.markdown,
        Format.PARQUET: laid.parquet,
    }
    put(layouts[format](found), output, force=force)
