"""Shapes of models that people know. Plain numbers, imports nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["PRESETS"]

PRESETS: Mapping[str, dict[str, Any]] = {
    "llama3-8b": {
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "ffn": 14336,
        "arch": "llama",
        "layers_of_model": 32,
    },
    "llama3-70b": {
        "hidden": 8192,
        "heads": 64,
        "kv_heads": 8,
        "ffn": 28672,
        "arch": "llama",
        "layers_of_model": 80,
    },
    "llama3-405b": {
        "hidden": 16384,
        "heads": 128,
        "kv_heads": 8,
        "ffn": 53248,
        "arch": "llama",
        "layers_of_model": 126,
    },
    "gpt3-175b": {
        "hidden": 12288,
        "heads": 96,
        "kv_heads": 96,
        "ffn": 49152,
        "arch": "gpt",
        "layers_of_model": 96,
    },
}
"""Llama 3: grouped queries, SwiGLU, RMSNorm, rotary embedding (Grattafiori et al. 2024, table 3); GPT-3: GELU,
LayerNorm with bias (Brown et al. 2020, table 2.1)."""
