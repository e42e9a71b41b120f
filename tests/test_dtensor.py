"""The block and the MLP on DTensor: the numbers of ours, its own collectives, and what stands in a trace.

Run as a program, this file is the ranks. Ours is tested against plain PyTorch in test_parallel.py and
test_models.py; what one rank of it has is what is wanted here.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import test_models as models
import workloads.dtensor  # once for all ranks
from overlapscope import formats
from test_models import SHAPE
from test_parallel import CONFIG, TOLERANCE, main, results
from test_run import run
from workloads import WORKLOADS, BlockConfig, ConfigError
from workloads.parallel import Ranks

SIZES = (1, 2, 4)
MODELS = {**models.MODELS, "gpt": ("block", CONFIG)}
CASES = [(m, sp) for m in ("gpt", "shared", "llama", "mlp", "swiglu") for sp in (False, True)]
PARTS = {"wq": ("qkv", 0), "wk": ("qkv", 1), "wv": ("qkv", 2), "wo": ("out", 0)}
PARTS |= {"w1": ("mlp.up", 0), "w3": ("mlp.up", 1), "w2": ("mlp.down", 0)}
PARTS |= {"attention_norm": ("attn_norm", 0), "ffn_norm": ("mlp_norm", 0)}
"""Which part of which of our layers it is."""


# -- the ranks -----------------------------------------------------------------------------------------------


def program(model: str, ranks: Ranks, **way: Any) -> Any:
    name, config = MODELS[model]
    return WORKLOADS[name].build(replace(config, **way), ranks, torch.device("cpu"))


def case(model: str, sequence_parallel: bool, ranks: Ranks) -> dict[str, Any]:
    """What one rank gets: its tensors, whole gradients, and the collectives of each pass."""
    from torch.distributed.tensor.debug import CommDebugMode

    here = program(model, ranks, impl="dtensor", sequence_parallel=sequence_parallel)
    with CommDebugMode() as forward:
        out = here.forward()
    with CommDebugMode() as backward:
        torch.autograd.backward(out, here.grad)
    with CommDebugMode() as after:
        here.finish_gradients()
    return {
        "out": _whole(out.detach()),
        "x.grad": here.x.grad,
        "grads": {name: _whole(p.grad) for name, p in here.blocks.named_parameters()},
        "weights": {name: _whole(p.detach()) for name, p in here.blocks.named_parameters()},
        "counts": [{str(op): n for op, n in m.get_comm_counts().items()} for m in (forward, backward, after)],
    }


def _whole(x: Any) -> torch.Tensor:
    whole = x.full_tensor() if hasattr(x, "full_tensor") else x
    return whole.wait() if hasattr(whole, "wait") else whole


def run_rank(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), max(SIZES))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=max(SIZES))
    got = {}
    for size in SIZES:
        group = dist.new_group(list(range(size)))
        if rank < size:
            for model, sequence in CASES:
                got[size, model, sequence] = case(model, sequence, Ranks(rank, size, group))
    torch.save(got, folder / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


# -- what must hold ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    return results(__file__, tmp_path_factory.mktemp("ranks"), max(SIZES))


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    told = {}
    for model in dict.fromkeys(model for model, _ in CASES):
        whole = program(model, Ranks())
        out = whole.forward()
        out.backward(whole.grad)
        told[model] = {"out": out.detach(), "x.grad": whole.x.grad, "blocks": whole.blocks}
    return told


def part(model: str, blocks: Any, name: str) -> torch.nn.Parameter:
    """Our parameter, of which one of theirs is a part, cut to that part: its weight and its gradient."""
    layer, *_, module, kind = name.split(".")
    ours, at = PARTS[module]
    if model in ("mlp", "swiglu"):
        ours = ours.removeprefix("mlp.")
    parameter = blocks.get_parameter(f"{layer}.{ours}.{kind}")
    config: Any = MODELS[model][1]
    widths = {"qkv": getattr(config, "qkv", tuple)(), "up": (config.ffn,) * 2}.get(ours.split(".")[-1])
    start = sum(widths[:at]) if widths else 0
    end = start + widths[at] if widths else len(parameter)
    cut = torch.nn.Parameter(parameter.detach()[start:end])
    cut.grad = parameter.grad[start:end]
    return cut


@pytest.mark.real
@pytest.mark.parametrize(("model", "sequence"), CASES)
@pytest.mark.parametrize("size", SIZES)
def test_outputs_and_gradients_are_ours(
    ranks: list[dict[Any, Any]], ours: dict[str, Any], size: int, model: str, sequence: bool
) -> None:
    cut, wanted = [ranks[rank][size, model, sequence] for rank in range(size)], ours[model]
    for name in ("out", "x.grad"):
        parts = [c[name].transpose(0, 1) for c in cut]
        for whole in [torch.cat(parts)] if sequence else parts:
            torch.testing.assert_close(whole, wanted[name], **TOLERANCE)
    elements = 0
    for name, weight in cut[0]["weights"].items():
        mine = part(model, wanted["blocks"], name)
        elements += mine.numel()
        torch.testing.assert_close(weight, mine.detach(), rtol=0, atol=0)
        for c in cut:
            torch.testing.assert_close(c["grads"][name], mine.grad, **TOLERANCE)
    assert elements == sum(p.numel() for p in wanted["blocks"].parameters())


REDUCE, GATHER, SCATTER = (
    f"c10d_functional.{name}" for name in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor")
)


@pytest.mark.real
@pytest.mark.parametrize(("model", "sequence"), CASES)
@pytest.mark.parametrize("size", SIZES)
def test_collectives_are_as_stated(
    ranks: list[dict[Any, Any]], size: int, model: str, sequence: bool
) -> None:
    pairs = MODELS[model][1].depth * (1 if model in ("mlp", "swiglu") else 2)  # of a column and a row layer
    forward = backward = {GATHER: pairs, SCATTER: pairs} if sequence else {REDUCE: pairs}
    # the norms' weights and biases; a row's bias has its gradient from the gathered one
    whole = {"gpt": 4, "shared": 4, "llama": 2}.get(model, 0) * MODELS[model][1].depth
    after = {REDUCE: whole} if sequence and whole else {}
    wanted = [forward, backward, after] if size > 1 else [{}] * 3
    for rank in range(size):
        assert ranks[rank][size, model, sequence]["counts"] == wanted


@pytest.mark.real
def test_a_run_is_recorded_as_what_it_is(tmp_path: Path) -> None:
    options = ["--hidden", "32", "--heads", "4", "--kv-heads", "2", "--seq", "40", "--batch", "1"]
    options += ["--arch", "llama", "--sequence-parallel", "--steps", "1", "-o", "out"]
    done = run(tmp_path, "--impl", "dtensor", "--tp", "2", *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert " --impl dtensor " in re.sub(r"\s+", " ", done.stdout)
    trace = formats.load(tmp_path / "out")
    names = trace.names["string"].to_numpy()
    for rank in (0, 1):
        ranges = trace.ranges[trace.ranges["rank"] == rank]
        (step,) = ranges[ranges["name"] == "step 0"].itertuples()
        ranges = ranges[(ranges["start"] >= step.start) & (ranges["end"] <= step.end)]
        ops = trace.of_rank(rank)
        for phase, gemms in (("forward", 7), ("backward", 14), ("gradients", 0)):
            (window,) = ranges[ranges["name"] == phase].itertuples()
            inside = ops[(ops["start"] >= window.start) & (ops["end"] <= window.end)]
            assert (inside["kind"] == "gemm").sum() == gemms
            comm = Counter(names[inside[inside["kind"] == "comm"]["name"]])
            # gloo makes its reduce-scatter of an all-reduce, and records that
            both = {"gloo:all_gather": 2, "gloo:all_reduce": 2}
            assert comm == ({"gloo:all_reduce": 2} if phase == "gradients" else both)
        roles = {(str(r.name), str(r.role)) for r in ranges.itertuples()}
        assert {("layer 0", "layer"), ("attn.q", "sharded"), ("attn.out.grad", "sharded")} <= roles
        assert {("mlp.gate.grad", "sharded"), ("mlp.swiglu", "sharded"), ("attn.norm", "sharded")} <= roles


def test_a_layer_that_is_made_whole_first_is_in_the_estimate() -> None:
    config = BlockConfig(hidden=1024, heads=8, ffn=4096, seq=8, batch=1, impl="dtensor")
    whole = 4 * config.weights(1)
    assert config.memory(8, "cpu") >= 2 * whole / 8 + whole
    assert config.memory(8, "cpu") - replace(config, impl="megatron").memory(8, "cpu") == whole


# -- what cannot be ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"schedule": "ring", "sequence_parallel": True},
            "schedule: ring is of --impl megatron; dtensor's collectives are where PyTorch puts them; "
            "give serial, or --impl megatron",
        ),
        (
            {"overlap_backward": False},
            "no_overlap_backward: is of --impl megatron; dtensor's collectives are where PyTorch puts them; "
            "leave it out, or give --impl megatron",
        ),
        ({"impl": "dtensr"}, "impl: 'dtensr' is not known; did you mean dtensor?"),
    ],
)
def test_what_dtensor_cannot_do_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        replace(BlockConfig(hidden=32, heads=8, **SHAPE, impl="dtensor"), **change).check(2)
    assert str(caught.value) == message


def test_a_link_cannot_be_pretended(tmp_path: Path) -> None:
    done = run(tmp_path, "--impl", "dtensor", "--link", "nvlink4")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "overlapscope: --link: paces the exchanges of --impl megatron, and dtensor's are PyTorch's own; "
        "leave it out, or give --impl megatron\n"
    )


if __name__ == "__main__":
    assert workloads.dtensor
    sys.exit(main(Path(sys.argv[1]), run_rank, max(SIZES)))
