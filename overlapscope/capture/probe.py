"""What PyTorch says of itself and of the GPUs: a program of its own, so that whoever asks need not import it.

Started by its path; Python then puts this folder first on the path, where nothing may be looked for. It prints
one line of JSON, the last of its output, with what it has found; what raises is told under ``error``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]


def main() -> None:
    """Ask, and print the answer."""
    found: dict[str, Any] = {"error": None}
    try:
        import torch
        import torch.distributed as dist

        found |= {"torch": str(torch.__version__), "cuda_build": torch.version.cuda}
        distributed = dist.is_available()
        found["gloo"] = distributed and dist.is_gloo_available()
        found["nccl"] = _nccl(torch) if distributed and dist.is_nccl_available() else None
        found["gpus"] = _gpus(torch)
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"
    print(json.dumps(found))


def _nccl(torch: Any) -> str:
    return ".".join(map(str, torch.cuda.nccl.version()))


def _gpus(torch: Any) -> list[dict[str, Any]]:
    """Each GPU, and which of the others its memory can be read from."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    gpus = []
    for i in range(count):
        properties = torch.cuda.get_device_properties(i)
        peers = [j for j in range(count) if j != i and torch.cuda.can_device_access_peer(i, j)]
        capability = f"{properties.major}.{properties.minor}"
        gpus.append({"name": properties.name, "capability": capability, "peers": peers})
    return gpus


if __name__ == "__main__":
    main()
