"""The tensor-parallel block against a plain one, on real gloo ranks.

Run as a program, this file is those ranks: eight of them, of which the first 1, 2, 4 and 8 take a case each.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812

from workloads import WORKLOADS, BlockConfig, ConfigError, Link
from workloads.block import BlockProgram
from workloads.parallel import Ranks, copy, reduce
from workloads.schedules import spans

CONFIG = BlockConfig(hidden=32, heads=8, ffn=48, seq=40, batch=3, layers=2, dtype="float64", seed=7)
SIZES = (1, 2, 4, 8)
WAYS: dict[str, dict[str, Any]] = {
    "serial": {},
    "no overlap": {"overlap_backward": False},
    "pipelined": {"schedule": "pipelined", "chunks": 3},  # of 40 tokens
    "sequence": {"sequence_parallel": True},
    "sequence, no overlap": {"sequence_parallel": True, "overlap_backward": False},
    "sequence, pipelined": {"sequence_parallel": True, "schedule": "pipelined", "chunks": 3},  # of 40 to 5
    "ring": {"sequence_parallel": True, "schedule": "ring"},
    "ring, no overlap": {"sequence_parallel": True, "schedule": "ring", "overlap_backward": False},
    "symm_mem": {"sequence_parallel": True, "schedule": "symm_mem"},  # by PyTorch's own stand-in for a CPU
    "paced": {},
    "paced ring": {"sequence_parallel": True, "schedule": "ring"},
    "paced pipelined": {"sequence_parallel": True, "schedule": "pipelined", "chunks": 3},
}
"""The chunks divide the sequence, or a rank's part of it, for no number of ranks."""
LINK = Link(alpha=0.0, beta=1e9)
ROOT = Path(__file__).resolve().parent.parent
TOLERANCE = {"rtol": 0.0, "atol": 1e-10}


# -- the ranks -----------------------------------------------------------------------------------------------


def case(rank: int, size: int, group: Any, way: str) -> dict[str, Any]:
    """What one rank of `size` gets: tensors, and the collectives of the forward and of the backward pass."""
    from torch.distributed.tensor.debug import CommDebugMode  # main() has imported it, once for all ranks

    config = replace(CONFIG, **WAYS[way])
    link = LINK if "paced" in way else None
    program = BlockProgram(config, Ranks(rank, size, group, link), torch.device("cpu"))
    with CommDebugMode() as forward:
        out = program.forward()
    with CommDebugMode() as backward:
        out.backward(program.grad)
    program.finish_gradients()
    assert program.x.grad is not None
    named = dict(program.blocks.named_parameters())
    return {
        "out": out.detach(),
        "x.grad": program.x.grad,
        "weights": {name: p.detach() for name, p in named.items()},
        "grads": {name: p.grad for name, p in named.items()},
        "forward": {str(op): n for op, n in forward.get_comm_counts().items()},
        "backward": {str(op): n for op, n in backward.get_comm_counts().items()},
    }


def pair(rank: int, ranks: Ranks) -> dict[str, torch.Tensor]:
    """The conjugate pair on a leaf that differs by rank, with an upstream gradient that differs by rank."""
    results = {}
    for function in (copy, reduce):
        x = torch.tensor([1.0, 2.0], dtype=torch.float64) * (rank + 1)
        leaf = x.requires_grad_()
        y = function(leaf * 1.0, ranks)
        y.backward(torch.tensor([10.0, 20.0], dtype=torch.float64) * (rank + 1))
        assert leaf.grad is not None
        results[function.__name__] = torch.stack([y.detach(), leaf.grad])
    return results


def run_rank(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), max(SIZES))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=max(SIZES))
    results: dict[Any, Any] = {}
    for size in SIZES:
        group = dist.new_group(list(range(size)))
        if rank < size:
            for way in WAYS:
                results[size, way] = case(rank, size, group, way)
    results["pair"] = pair(rank, Ranks(rank, max(SIZES)))
    torch.save(results, folder / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def main(folder: Path, run_rank: Callable[[int, Path], None], ranks: int = max(SIZES)) -> int:
    for name in ("torch.distributed.tensor.debug", "torch._inductor.config"):  # once for all ranks
        importlib.import_module(name)
    symmetric = importlib.import_module("torch.distributed._symmetric_memory")
    for name in ("fused_all_gather_matmul", "fused_matmul_reduce_scatter"):
        torch.library.impl(f"symm_mem::{name}", "CPU", getattr(symmetric, f"_{name}_fallback"))

    children = set()
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            try:
                run_rank(rank, folder)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.add(pid)
    while children:
        pid, status = os.wait()
        children.remove(pid)
        if status:  # the others would wait for it
            for other in children:
                os.kill(other, signal.SIGKILL)
            return 1
    return 0


# -- the plain block -----------------------------------------------------------------------------------------


def plain_block(x: torch.Tensor, w: dict[str, torch.Tensor]) -> torch.Tensor:
    """One block, written out: batch first, scores in full, no module of ours."""
    size = CONFIG.hidden // CONFIG.heads
    x = x.transpose(0, 1)
    y = F.layer_norm(x, (CONFIG.hidden,), w["attn_norm.weight"], w["attn_norm.bias"])
    y = y @ w["qkv.weight"].T + w["qkv.bias"]
    heads = []
    for head in range(CONFIG.heads):
        q, k, v = (y[..., part * CONFIG.hidden + head * size :][..., :size] for part in range(3))
        scores = q @ k.transpose(1, 2) / size**0.5
        future = torch.ones(CONFIG.seq, CONFIG.seq, dtype=torch.bool).triu(1)
        heads.append(torch.softmax(scores.masked_fill(future, -torch.inf), dim=-1) @ v)
    x = x + torch.cat(heads, dim=-1) @ w["out.weight"].T + w["out.bias"]
    y = F.layer_norm(x, (CONFIG.hidden,), w["mlp_norm.weight"], w["mlp_norm.bias"])
    y = y @ w["mlp.up.weight"].T + w["mlp.up.bias"]
    y = 0.5 * y * (1.0 + torch.erf(y / 2.0**0.5))
    x = x + y @ w["mlp.down.weight"].T + w["mlp.down.bias"]
    return x.transpose(0, 1)


def full(name: str, shards: list[torch.Tensor]) -> torch.Tensor:
    """The whole of a parameter or gradient from its shards, in rank order."""
    layer, kind = name.split(".")[-2:]
    if layer == "qkv":
        return torch.cat([s.chunk(3)[part] for part in range(3) for s in shards])
    if layer == "up":
        return torch.cat(shards)
    if layer in ("out", "down") and kind == "weight":
        return torch.cat(shards, dim=1)
    for shard in shards:
        torch.testing.assert_close(shard, shards[0], rtol=0, atol=0)
    return shards[0]


def results(program: str, folder: Path, ranks: int = max(SIZES)) -> list[dict[Any, Any]]:
    """What each rank of a test file, run as a program, has saved."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, program, str(folder)],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"{rank}.pt") for rank in range(ranks)]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    return results(__file__, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def plain(ranks: list[dict[Any, Any]]) -> dict[str, Any]:
    program = BlockProgram(CONFIG, Ranks(), torch.device("cpu"))
    weights = {name: p.detach().clone().requires_grad_() for name, p in program.blocks.named_parameters()}
    x = program.x.detach().clone().requires_grad_()
    y = x
    for layer in range(CONFIG.layers):
        start = f"{layer}."
        y = plain_block(y, {n.removeprefix(start): w for n, w in weights.items() if n.startswith(start)})
    y.backward(program.grad)
    return {"out": y.detach(), "x.grad": x.grad, "weights": weights}


# -- what must hold ------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", SIZES)
def test_every_rank_has_the_plain_block_s_output_and_input_gradient(
    ranks: list[dict[Any, Any]], plain: dict[str, Any], size: int, way: str
) -> None:
    for name in ("out", "x.grad"):
        parts = [ranks[rank][size, way][name] for rank in range(size)]
        if "sequence_parallel" in WAYS[way]:  # each has its rows
            torch.testing.assert_close(torch.cat(parts), plain[name], **TOLERANCE)
            continue
        for part in parts:
            torch.testing.assert_close(part, plain[name], **TOLERANCE)


@pytest.mark.real
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", SIZES)
def test_shards_make_up_the_plain_block_s_weights_and_their_gradients(
    ranks: list[dict[Any, Any]], plain: dict[str, Any], size: int, way: str
) -> None:
    assert len(plain["weights"]) == 12 * CONFIG.layers
    for name, weight in plain["weights"].items():
        cut = [ranks[rank][size, way] for rank in range(size)]
        torch.testing.assert_close(
            full(name, [c["weights"][name] for c in cut]), weight.detach(), rtol=0, atol=0
        )
        torch.testing.assert_close(full(name, [c["grads"][name] for c in cut]), weight.grad, **TOLERANCE)


REDUCE, GATHER, SCATTER = "c10d.allreduce_", "c10d._allgather_base_", "c10d._reduce_scatter_base_"
SEQUENCE = ({GATHER: 2, SCATTER: 2}, {GATHER: 4, SCATTER: 2})
COUNTS: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "serial": ({REDUCE: 2}, {REDUCE: 2}),
    "no overlap": ({REDUCE: 2}, {REDUCE: 2}),
    "pipelined": ({REDUCE: 6}, {REDUCE: 2}),
    "sequence": SEQUENCE,
    "sequence, no overlap": SEQUENCE,
    "sequence, pipelined": ({GATHER: 6, SCATTER: 6}, SEQUENCE[1]),
    "ring": ({}, {}),  # sends and receives are not counted here: see test_schedules.py
    "ring, no overlap": ({}, SEQUENCE[1]),
    "symm_mem": ({}, SEQUENCE[1]),  # what PyTorch's stand-in does is not seen
    "paced": ({}, {}),  # made on a thread, which is not seen here either
    "paced ring": ({}, {}),
    "paced pipelined": ({}, {}),
}
"""Of a layer, forward and backward."""


@pytest.mark.real
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", SIZES)
def test_collectives_of_a_layer_forward_and_backward(
    ranks: list[dict[Any, Any]], size: int, way: str
) -> None:
    for phase, counts in zip(("forward", "backward"), COUNTS[way], strict=True):
        expected = {} if size == 1 else {op: n * CONFIG.layers for op, n in counts.items()}
        for rank in range(size):
            assert ranks[rank][size, way][phase] == expected


def test_spans_are_as_equal_as_can_be() -> None:
    assert spans(10, 3) == [(0, 3), (3, 6), (6, 10)]
    assert spans(4, 4) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert spans(5, 1) == [(0, 5)]


@pytest.mark.real
def test_copy_and_reduce_are_each_other_s_transpose(ranks: list[dict[Any, Any]]) -> None:
    total = sum(range(1, max(SIZES) + 1))
    for rank in range(max(SIZES)):
        here = rank + 1.0
        assert ranks[rank]["pair"]["copy"].tolist() == [[here, 2 * here], [10.0 * total, 20.0 * total]]
        assert ranks[rank]["pair"]["reduce"].tolist() == [[1.0 * total, 2.0 * total], [10 * here, 20 * here]]


def test_forward_only_makes_no_gradient() -> None:
    config = BlockConfig(hidden=16, heads=2, ffn=32, seq=4, batch=1, forward_only=True)
    program = BlockProgram(config, Ranks(), torch.device("cpu"))
    program.step()
    assert program.x.grad is None
    assert all(p.grad is None for p in program.blocks.parameters())


def test_steps_do_not_add_up_gradients() -> None:
    config = BlockConfig(hidden=16, heads=2, ffn=32, seq=4, batch=1)
    program = BlockProgram(config, Ranks(), torch.device("cpu"))
    program.step()
    first = {name: p.grad.clone() for name, p in program.blocks.named_parameters() if p.grad is not None}
    program.step()
    assert len(first) == 12
    for name, p in program.blocks.named_parameters():
        assert p.grad is not None
        torch.testing.assert_close(p.grad, first[name])


def test_the_seed_decides_the_weights() -> None:
    def weight(seed: int) -> torch.Tensor:
        config = BlockConfig(hidden=8, heads=2, ffn=8, seq=2, batch=1, seed=seed)
        return (
            BlockProgram(config, Ranks(), torch.device("cpu"))
            .blocks.get_parameter("0.mlp.up.weight")
            .detach()
        )

    assert torch.equal(weight(1), weight(1))
    assert not torch.equal(weight(1), weight(2))


@pytest.mark.parametrize("shape", [{"hidden": 64, "seq": 128}, {"hidden": 256, "seq": 16}, {"layers": 4}])
def test_the_memory_of_a_rank_is_estimated_from_above(shape: dict[str, int]) -> None:
    options = {"hidden": 128, "heads": 8, "ffn": 512, "seq": 32, "batch": 2} | shape
    config = BlockConfig(**options)
    program = BlockProgram(config, Ranks(), torch.device("cpu"))
    saved: dict[int, int] = {}

    def keep(x: torch.Tensor) -> torch.Tensor:
        saved[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        program.forward()
    weights = {p.data_ptr(): p.nbytes for p in program.blocks.parameters()}
    kept = sum(n for at, n in saved.items() if at not in weights)
    least = 2 * sum(weights.values()) + kept
    assert least <= config.memory(1, "cpu") < 2 * least


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_runs(dtype: str) -> None:
    config = BlockConfig(hidden=16, heads=2, ffn=32, seq=4, batch=1, dtype=dtype)
    program = BlockProgram(config, Ranks(), torch.device("cpu"))
    program.step()
    assert program.x.grad is not None
    assert str(program.x.grad.dtype) == f"torch.{dtype}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 6}, "heads: 6 do not divide hidden 32; give 4 or 8"),
        ({"heads": 4}, "tp: 8 ranks do not divide heads 4; give 4"),
        ({"ffn": 20}, "tp: 8 ranks do not divide ffn 20; give 5 or 10"),
        ({"seq": 0}, "seq: is 0; give 1 or more"),
        ({"dtype": "int8"}, "dtype: 'int8' is not known; choose from float64, float32, bfloat16, float16"),
    ],
)
def test_a_block_that_cannot_be_split_is_refused(change: dict[str, Any], message: str) -> None:
    options = {"hidden": 32, "heads": 8, "ffn": 64, "seq": 4, "batch": 1} | change
    with pytest.raises(ConfigError) as caught:
        BlockConfig(**options).check(8)
    assert str(caught.value) == message


def test_the_registry_needs_no_torch() -> None:
    code = "import sys, workloads; print(sorted(workloads.WORKLOADS), 'torch' in sys.modules)"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == f"{sorted(WORKLOADS)} False\n"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), run_rank))
