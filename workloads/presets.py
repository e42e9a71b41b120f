"""Shapes of known models, by name.

Hidden width, heads, heads of keys and values and width of the MLP as published: Llama 3 in "The Llama 3 Herd of
Models" (arXiv:2407.21783, table 3), with its 8192 tokens of pre-training; GPT-3 175B in "Language Models are
Few-Shot Learners" (arXiv:2005.14165, table 2.1), with its 2048. Heads of keys and values are as many as `heads`,
and the MLP is 4 · hidden wide, where nothing else is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["LAYERS", "PRESETS", "USUAL"]

_LLAMA3: dict[str, Any] = {"kv_heads": 8, "arch": "llama", "seq": 8192, "batch": 1}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    # GEMMs large enough to be seen, and eight ranks on two cores stay within seconds.
    "tiny": {"hidden": 512, "heads": 8, "seq": 256, "batch": 2},
    "llama3-8b": _LLAMA3 | {"hidden": 4096, "heads": 32, "ffn": 14336},
    "llama3-70b": _LLAMA3 | {"hidden": 8192, "heads": 64, "ffn": 28672},
    "llama3-405b": _LLAMA3 | {"hidden": 16384, "heads": 128, "ffn": 53248},
    "gpt3-175b": {"hidden": 12288, "heads": 96, "seq": 2048, "batch": 1},
}
"""Options that a preset stands for."""

LAYERS: Mapping[str, int] = {"llama3-8b": 32, "llama3-70b": 80, "llama3-405b": 126, "gpt3-175b": 96}
"""Layers of the whole model."""

USUAL: Mapping[str, Mapping[str, Any]] = {
    "cpu": PRESETS["tiny"],
    # The width of a 7-billion-parameter model.
    "cuda": {"hidden": 4096, "heads": 32, "seq": 2048, "batch": 1},
}
"""Where no preset is named, by device."""
