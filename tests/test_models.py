"""Llama's block, the MLP and the single layers against plain PyTorch, on real gloo ranks.

Run as a program, this file is those ranks, as test_parallel.py is for the GPT block.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812

from overlapscope import formats, markers
from overlapscope.capture.recorder import TorchRecorder
from test_parallel import GATHER, LINK, REDUCE, SCATTER, SIZES, TOLERANCE, WAYS, main, results
from workloads import WORKLOADS, BlockConfig, ConfigError
from workloads.activations import saved_bytes
from workloads.block_config import MlpConfig
from workloads.layer_config import ColumnConfig, LayerConfig, RowConfig
from workloads.parallel import Ranks

SHAPE: dict[str, Any] = {"ffn": 48, "seq": 40, "batch": 3, "dtype": "float64", "seed": 7}
LLAMA = BlockConfig(hidden=64, heads=16, kv_heads=8, arch="llama", **SHAPE)
MODELS: dict[str, tuple[str, LayerConfig]] = {
    "llama": ("block", LLAMA),
    "shared": ("block", replace(LLAMA, arch="gpt")),
    "mlp": ("mlp", MlpConfig(hidden=32, layers=2, **SHAPE)),
    "swiglu": ("mlp", MlpConfig(hidden=32, arch="llama", **SHAPE)),
    "column": ("column-linear", ColumnConfig(hidden=32, **SHAPE)),
    "row": ("row-linear", RowConfig(hidden=32, **SHAPE)),
}
FEW = ("serial", "pipelined", "sequence", "sequence, pipelined", "ring")
CASES = [("llama", way) for way in WAYS] + [
    (model, way)
    for model in MODELS
    for way in FEW
    if model != "llama" and (model, way) != ("column", "pipelined")  # which is refused
]


COUNTS: dict[str, dict[str, list[dict[str, int]]]] = {
    "llama": {
        "serial": [{REDUCE: 2}, {REDUCE: 2}],
        "sequence": [{GATHER: 2, SCATTER: 2}, {GATHER: 4, SCATTER: 2}],
    },
    "mlp": {
        "serial": [{REDUCE: 1}, {REDUCE: 1}],
        "pipelined": [{REDUCE: 3}, {REDUCE: 1}],
        "sequence": [{GATHER: 1, SCATTER: 1}, {GATHER: 2, SCATTER: 1}],
        "sequence, pipelined": [{GATHER: 3, SCATTER: 3}, {GATHER: 2, SCATTER: 1}],
    },
    "column": {
        "serial": [{}, {REDUCE: 1}],
        "sequence": [{GATHER: 1}, {GATHER: 1, SCATTER: 1}],
        "sequence, pipelined": [{GATHER: 3}, {GATHER: 1, SCATTER: 1}],
    },
    "row": {
        "serial": [{REDUCE: 1}, {}],
        "pipelined": [{REDUCE: 3}, {}],
        "sequence": [{SCATTER: 1}, {GATHER: 1}],
        "sequence, pipelined": [{SCATTER: 3}, {GATHER: 1}],
    },
}
"""Of a layer, forward and backward."""
WHOLE = {"mlp", "row", "llama"}
"""Have something that is whole on every rank: a norm, or a row layer's bias."""


# -- the ranks -----------------------------------------------------------------------------------------------


def program(model: str, ranks: Ranks, **way: Any) -> Any:
    name, config = MODELS[model]
    return WORKLOADS[name].build(replace(config, **way), ranks, torch.device("cpu"))


def case(model: str, way: str, ranks: Ranks) -> dict[str, Any]:
    """What one rank gets: tensors, and the collectives of the forward and of the backward pass."""
    from torch.distributed.tensor.debug import CommDebugMode  # main() has imported it, once for all ranks

    here = program(model, ranks, **WAYS[way])
    with CommDebugMode() as forward:
        out = here.forward()
    with CommDebugMode() as backward:
        out.backward(here.grad)
    with CommDebugMode() as after:
        here.finish_gradients()
    named = dict(here.blocks.named_parameters())
    return {
        "out": out.detach(),
        "x.grad": here.x.grad,
        "weights": {name: p.detach() for name, p in named.items()},
        "grads": {name: p.grad for name, p in named.items()},
        "counts": [{str(op): n for op, n in m.get_comm_counts().items()} for m in (forward, backward, after)],
    }


def record(ranks: Ranks, file: Path) -> None:
    """A step of each workload, in a range with its name and that of the way."""
    recorder = TorchRecorder(file, "cpu")
    recorder.start()
    for model, ways in COUNTS.items():
        for way in ways:
            here = program(model, ranks, **WAYS[way])
            with markers.range(f"{model}: {way}"):
                here.step()
    recorder.finish()


def run_rank(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), max(SIZES))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=max(SIZES))
    got = {}
    for size in SIZES:
        group = dist.new_group(list(range(size)))
        if rank < size:
            if size == 2:
                record(Ranks(rank, size, group), folder / f"rank{rank}.json")
            for model, way in CASES:
                got[size, model, way] = case(
                    model, way, Ranks(rank, size, group, LINK if "paced" in way else None)
                )
    torch.save(got, folder / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


# -- plain PyTorch -------------------------------------------------------------------------------------------

Weights = dict[str, torch.Tensor]


def plain_llama(x: torch.Tensor, w: Weights) -> torch.Tensor:
    """Batch first, keys and values repeated, pairs turned as complex numbers."""
    h, heads, pairs, size = LLAMA.hidden, LLAMA.heads, 8, 4
    x = x.transpose(0, 1)
    y = F.rms_norm(x, (h,), w["attn_norm.weight"], 1e-5)
    q, k, v = (y @ w["qkv.weight"].T).split([h, pairs * size, pairs * size], dim=-1)

    def split(part: torch.Tensor) -> torch.Tensor:
        return part.reshape(3, 40, -1, size).transpose(1, 2)

    def turned(part: torch.Tensor) -> torch.Tensor:
        token = torch.arange(40, dtype=torch.float64)[:, None]
        angle = token * torch.tensor([1.0, 500000.0**-0.5], dtype=torch.float64)
        numbers = torch.view_as_complex(split(part).reshape(3, -1, 40, size // 2, 2))
        return torch.view_as_real(numbers * torch.polar(torch.ones_like(angle), angle)).flatten(-2)

    k, v = (part.repeat_interleave(heads // pairs, dim=1) for part in (turned(k), split(v)))
    y = F.scaled_dot_product_attention(turned(q), k, v, is_causal=True)
    x = x + y.transpose(1, 2).reshape(3, 40, h) @ w["out.weight"].T
    y = F.rms_norm(x, (h,), w["mlp_norm.weight"], 1e-5)
    return (x + plain_swiglu(y, {n.removeprefix("mlp."): p for n, p in w.items()})).transpose(0, 1)


def plain_swiglu(x: torch.Tensor, w: Weights) -> torch.Tensor:
    gate, up = w["up.weight"][:48], w["up.weight"][48:]
    return (F.silu(x @ gate.T) * (x @ up.T)) @ w["down.weight"].T


def plain_mlp(x: torch.Tensor, w: Weights) -> torch.Tensor:
    y = x @ w["up.weight"].T + w["up.bias"]
    return 0.5 * y * (1.0 + torch.erf(y / 2.0**0.5)) @ w["down.weight"].T + w["down.bias"]


def plain_shared(x: torch.Tensor, w: Weights) -> torch.Tensor:
    """GPT's block, of which two heads share keys and values, a head at a time."""
    x = x.transpose(0, 1)
    y = F.layer_norm(x, (64,), w["attn_norm.weight"], w["attn_norm.bias"])
    y = y @ w["qkv.weight"].T + w["qkv.bias"]
    heads = []
    for head in range(16):
        q = y[..., 4 * head :][..., :4]
        k, v = (y[..., start + 4 * (head // 2) :][..., :4] for start in (64, 96))
        scores = q @ k.transpose(1, 2) / 2.0
        scores = scores.masked_fill(torch.ones(40, 40, dtype=torch.bool).triu(1), -torch.inf)
        heads.append(torch.softmax(scores, dim=-1) @ v)
    x = x + torch.cat(heads, dim=-1) @ w["out.weight"].T + w["out.bias"]
    y = F.layer_norm(x, (64,), w["mlp_norm.weight"], w["mlp_norm.bias"])
    return (x + plain_mlp(y, {n.removeprefix("mlp."): p for n, p in w.items()})).transpose(0, 1)


def plain_linear(x: torch.Tensor, w: Weights) -> torch.Tensor:
    return x @ w["weight"].T + w["bias"]


PLAIN = {
    "llama": (plain_llama, 6),
    "shared": (plain_shared, 12),
    "mlp": (plain_mlp, 8),
    "swiglu": (plain_swiglu, 2),
    "column": (plain_linear, 2),
    "row": (plain_linear, 2),
}
"""With the number of parameters."""
PARTS = {"llama": {"qkv": [64, 32, 32], "up": [48, 48]}, "shared": {"qkv": [64, 32, 32]}}
PARTS["swiglu"] = {"up": [48, 48]}


def full(model: str, name: str, shards: list[torch.Tensor]) -> torch.Tensor:
    """The whole of a parameter or gradient from its shards, in rank order."""
    layer, kind = (model, *name.split("."))[-2:]
    layer = model if layer.isdigit() else layer
    if layer in ("qkv", "up", "column"):
        widths = PARTS.get(model, {}).get(layer, [len(shards[0]) * len(shards)])
        cut = [shard.split([width // len(shards) for width in widths]) for shard in shards]
        return torch.cat([torch.cat(part) for part in zip(*cut, strict=True)])
    if layer in ("out", "down", "row") and kind == "weight":
        return torch.cat(shards, dim=1)
    for shard in shards:
        torch.testing.assert_close(shard, shards[0], rtol=0, atol=0)
    return shards[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def ranks(folder: Path) -> list[dict[Any, Any]]:
    return results(__file__, folder)


@pytest.fixture(scope="module")
def plain() -> dict[str, dict[str, Any]]:
    told = {}
    for model, (function, count) in PLAIN.items():
        whole = program(model, Ranks())
        weights = {name: p.detach().clone().requires_grad_() for name, p in whole.blocks.named_parameters()}
        assert len(weights) == count
        x = whole.x.detach().clone().requires_grad_()
        y = x
        for layer in range(len(whole.blocks)):
            start = f"{layer}."
            y = function(y, {n.removeprefix(start): w for n, w in weights.items() if n.startswith(start)})
        y.backward(whole.grad)
        told[model] = {"out": y.detach(), "x.grad": x.grad, "weights": weights}
    return told


# -- what must hold ------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize(("model", "way"), CASES)
@pytest.mark.parametrize("size", SIZES)
def test_outputs_and_gradients_are_plain_pytorch_s(
    ranks: list[dict[Any, Any]], plain: dict[str, dict[str, Any]], size: int, model: str, way: str
) -> None:
    cut, wanted = [ranks[rank][size, model, way] for rank in range(size)], plain[model]
    for name, along in (("out", "column"), ("x.grad", "row")):
        parts = [c[name] for c in cut]
        if model == along:  # each has its part of the inner width
            torch.testing.assert_close(torch.cat(parts, dim=-1), wanted[name], **TOLERANCE)
        elif "sequence_parallel" in WAYS[way]:  # each has its rows
            torch.testing.assert_close(torch.cat(parts), wanted[name], **TOLERANCE)
        else:
            for part in parts:
                torch.testing.assert_close(part, wanted[name], **TOLERANCE)
    for name, weight in wanted["weights"].items():
        shards = [c["weights"][name] for c in cut]
        torch.testing.assert_close(full(model, name, shards), weight.detach(), rtol=0, atol=0)
        torch.testing.assert_close(
            full(model, name, [c["grads"][name] for c in cut]), weight.grad, **TOLERANCE
        )


@pytest.mark.real
@pytest.mark.parametrize(("model", "way"), [(model, way) for model, ways in COUNTS.items() for way in ways])
@pytest.mark.parametrize("size", SIZES)
def test_collectives_of_a_layer(ranks: list[dict[Any, Any]], size: int, model: str, way: str) -> None:
    depth = MODELS[model][1].depth
    wanted = [{op: n * depth for op, n in counts.items()} for counts in COUNTS[model][way]]
    after = {REDUCE: 1} if model in WHOLE and "sequence" in way else {}
    for rank in range(size):
        assert ranks[rank][size, model, way]["counts"] == ([{}] * 3 if size == 1 else [*wanted, after])


RECORDED = {REDUCE: "all_reduce", GATHER: "all_gather", SCATTER: "all_reduce"}
"""As what gloo's collectives stand in a trace: its reduce-scatter is an all-reduce."""


@pytest.mark.real
def test_a_trace_has_the_collectives_of_a_layer(folder: Path, ranks: list[dict[Any, Any]]) -> None:
    trace = formats.load([folder / "rank0.json", folder / "rank1.json"])
    for rank in (0, 1):
        ops, ranges = trace.of_rank(rank), trace.ranges[trace.ranges["rank"] == rank]
        comm = ops[ops["kind"] == "comm"]
        for model, way in [(model, way) for model, ways in COUNTS.items() for way in ways]:
            (step,) = ranges[ranges["name"] == f"{model}: {way}"].itertuples()
            inside = ranges[(ranges["start"] >= step.start) & (ranges["end"] <= step.end)]
            for phase, wanted in zip(("forward", "backward"), COUNTS[model][way], strict=True):
                (window,) = inside[inside["name"] == phase].itertuples()
                here = comm[(comm["start"] >= window.start) & (comm["end"] <= window.end)]
                total: Counter[str] = Counter()
                for op, n in wanted.items():
                    total[RECORDED[op]] += n * MODELS[model][1].depth
                assert Counter(here["collective"].astype(str)) == total, (model, way, phase)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("model", MODELS)
def test_the_formula_leaves_out_a_few_numbers_of_each_row(model: str, dtype: str) -> None:
    here = program(model, Ranks(), dtype=dtype)
    size, tokens = here.x.element_size(), 40 * 3
    wide = max(size, 4)  # attention's log-sum-exp of each head and RMSNorm's root are in float32 at least
    rows = {"llama": (16 + 2) * wide, "shared": 16 * wide + 4 * size}
    assert saved_bytes(here.blocks[0], here.x) == here.config.saved(1) + tokens * rows.get(model, 0)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("tp", [1, 8])
def test_the_memory_of_a_rank_is_estimated_from_above(model: str, tp: int) -> None:
    """A rank of several allocates as much without the others, until it sends something."""
    here = program(model, Ranks(0, tp), seq=400)
    weights = sum(p.nbytes for p in here.blocks.parameters())
    # with the gradients of both ends, and the output; the input is among what is saved
    ends = here.x.nbytes + 2 * here.grad.nbytes
    least = 2 * weights + here.config.depth * here.config.saved(tp) + ends
    assert sum(p.numel() for p in here.blocks.parameters()) == here.config.depth * here.config.weights(tp)
    assert least <= here.config.memory(tp, "cpu") < 3 * least


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_runs(dtype: str) -> None:
    here = program("llama", Ranks(), dtype=dtype)
    here.step()
    assert here.x.grad.dtype == getattr(torch, dtype)
    assert torch.isfinite(here.x.grad).all()


# -- presets and what cannot be ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "shape"),
    [
        ("llama3-8b", (4096, 32, 8, 14336, "llama", 8192, 1)),
        ("llama3-70b", (8192, 64, 8, 28672, "llama", 8192, 1)),
        ("llama3-405b", (16384, 128, 8, 53248, "llama", 8192, 1)),
        ("gpt3-175b", (12288, 96, 96, 49152, "gpt", 2048, 1)),
        ("tiny", (512, 8, 8, 2048, "gpt", 256, 2)),
    ],
)
def test_presets_are_the_published_shapes(preset: str, shape: tuple[Any, ...]) -> None:
    c = BlockConfig.of("cuda", preset=preset)
    assert (c.hidden, c.heads, c.kv_heads, c.ffn, c.arch, c.seq, c.batch) == shape


@pytest.mark.parametrize(
    ("preset", "layers", "vocabulary", "parameters"),
    [
        ("llama3-8b", 32, 2 * 128256, 8.03e9),
        ("llama3-70b", 80, 2 * 128256, 70.55e9),
        ("llama3-405b", 126, 2 * 128256, 405.85e9),
        ("gpt3-175b", 96, 50257 + 2048, 174.6e9),
    ],
)
def test_blocks_and_embeddings_make_up_the_published_number_of_parameters(
    preset: str, layers: int, vocabulary: int, parameters: float
) -> None:
    """Embedding and output layer are two at Llama, one at GPT-3, which has one of positions beside it."""
    c = BlockConfig.of("cpu", preset=preset)
    assert layers * c.weights(1) + vocabulary * c.hidden == pytest.approx(parameters, rel=1e-3)


def test_a_preset_is_overridden_by_what_is_given_and_is_not_itself_an_option_of_the_run() -> None:
    c = BlockConfig.of("cpu", preset="llama3-70b", hidden=1024, heads=16, seq=None)
    assert (c.hidden, c.heads, c.kv_heads, c.ffn, c.seq, c.dtype) == (1024, 16, 8, 28672, 8192, "float32")
    assert BlockConfig.of("cpu", preset="tiny") == BlockConfig.of("cpu")
    assert BlockConfig.of("cpu", preset="gpt3-175b", hidden=96, heads=4).kv_heads == 4
    assert RowConfig.of("cpu", preset="llama3-8b").ends() == (14336, 4096)


@pytest.mark.parametrize(
    ("workload", "tp", "given", "message"),
    [
        ("block", 2, {"preset": "llama3-8"}, "preset: 'llama3-8' is not known; did you mean llama3-8b?"),
        (
            "block",
            16,
            {"preset": "llama3-70b"},
            "tp: 16 ranks do not divide kv_heads 8; give 8, or --kv-heads 16",
        ),
        ("block", 2, {"kv_heads": 3}, "kv_heads: 3 do not divide heads 8; give 2 or 4"),
        ("block", 2, {"kv_heads": 0}, "kv_heads: 0 do not divide heads 8; give 1"),
        ("block", 2, {"arch": "lama"}, "arch: 'lama' is not known; did you mean llama?"),
        (
            "block",
            1,
            {"hidden": 24, "heads": 8, "arch": "llama"},
            "heads: 8 of hidden 24 are 3 wide, and rotary embedding turns pairs; "
            "give heads of an even width, or --arch gpt",
        ),
        (
            "column-linear",
            2,
            {"schedule": "pipelined"},
            "schedule: pipelined cuts a column layer's all-gather, which only sequence parallelism has; "
            "add --sequence-parallel, or give serial",
        ),
        ("row-linear", 2, {"ffn": 33}, "tp: 2 ranks do not divide ffn 33; give 1 or 3"),
        ("mlp", 2, {"layers": 0}, "layers: is 0; give 1 or more"),
        (
            "row-linear",
            2,
            {"heads": 4},
            "heads: is not an option of row-linear; leave it out; there are --preset, --dtype, --seed, --hidden, "
            "--ffn, --seq, --batch, --forward-only, --sequence-parallel, --schedule, --chunks, "
            "--overlap-backward",
        ),
    ],
)
def test_what_cannot_be_is_refused(workload: str, tp: int, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        WORKLOADS[workload].configure("cpu", **given).check(tp)
    assert str(caught.value) == message


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), run_rank))


def test_divisors_near_a_number_are_found_in_no_time() -> None:
    from workloads.config import divisors

    assert [divisors(12, near) for near in (0, 1, 5, 12, 13)] == ["1", "1 or 1", "4 or 6", "12 or 12", "12"]
    assert divisors(2**61 - 1, 2**40) == f"1 or {2**61 - 1}"  # a prime
