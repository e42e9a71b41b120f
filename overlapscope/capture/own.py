"""Our `workloads`, whatever else is called so in the current directory or on PYTHONPATH."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

__all__ = ["part", "workloads"]

_NAME = "_overlapscope_workloads"  # our own: a `workloads` that the user has imported stays theirs


def workloads() -> ModuleType:
    """The package `workloads` that lies beside this `overlapscope`."""
    if _NAME not in sys.modules:
        folder = Path(__file__).resolve().parents[2] / "workloads"
        spec = spec_from_file_location(
            _NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[_NAME] = module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[_NAME]
            raise
    return sys.modules[_NAME]


def part(name: str) -> ModuleType:
    """A module of it, which may import torch."""
    return import_module(f"{workloads().__name__}.{name}")
