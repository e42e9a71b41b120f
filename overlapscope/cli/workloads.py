"""``overlapscope workloads``: what ``run`` can run, and what each can be told."""

from __future__ import annotations

import sys
import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from .options import parameters
from .run import request

if TYPE_CHECKING:
    from workloads import Workload

__all__ = ["workloads"]

WIDTH = 80
Row = tuple[str, str, str, str]
"""Option, default on a CPU, default on a GPU, meaning."""


def workloads(
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="NAME", show_default=False, help="Only this one. Default: all."),
    ] = None,
) -> None:
    """List what `overlapscope run --workload` can run, and the options of each with their defaults."""
    from ..capture import plan

    some = list(plan.workloads().values()) if name is None else [plan.workload(name, "NAME")]
    parts = []
    for rows, alike in groupby(some, _rows):  # sweeps differ in nothing but the collective
        entries = list(alike)
        width = max(len(entry.name) for entry in entries)
        heads = [f"{entry.name:<{width}}  {entry.summary}" for entry in entries]
        parts.append("\n".join([*heads, "", *_laid_out(rows)]))
    sys.stdout.write("\n\n".join(parts) + "\n")


def _rows(entry: Workload) -> list[Row]:
    """Its own options, then how many steps it takes."""
    told = {p.name: _option(p.annotation) for p in parameters(request)}
    cpu, gpu = (_defaults(entry, device) for device in ("cpu", "cuda"))
    return [
        (_spelt(name, cpu[name], told[name]), _shown(cpu[name]), _shown(gpu[name]), told[name].help)
        for name in (*entry.options, "steps", "warmup")
    ]


def _defaults(entry: Workload, device: str) -> dict[str, Any]:
    config = entry.configure(device)
    return {name: getattr(config, name, None) for name in entry.options} | {
        "steps": config.STEPS,
        "warmup": config.WARMUP,
    }


def _option(annotation: Any) -> Any:
    """What typer is told of an option: its help and its metavar."""
    return annotation.__metadata__[0]


def _spelt(name: str, default: object, option: Any) -> str:
    word = name.replace("_", "-")
    if isinstance(default, bool):
        return f"--[no-]{word}" if default else f"--{word}"
    return f"--{word} {option.metavar or 'NAME'}"


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return "yes" if default else "no"
    return "" if default is None else str(default)


def _laid_out(rows: list[Row]) -> list[str]:
    table = [("option", "CPU", "GPU", ""), *rows]
    widths = [max(len(row[at]) for row in table) for at in range(3)]
    lines = []
    for *cells, meaning in table:
        start = "  " + "".join(f"{cell:<{width}}  " for cell, width in zip(cells, widths, strict=True))
        room = WIDTH - len(start)
        first, *more = textwrap.wrap(meaning, room, break_long_words=False) or [""]
        lines += [f"{start}{first}".rstrip(), *(" " * len(start) + line for line in more)]
    return lines
