"""The figures of a report that are read from afar."""

from __future__ import annotations

from .. import parts
from ..document import Document
from ..opening import gained, sums
from ..words import Figure, duration, percent
from .blocks import Tile, split

__all__ = ["tiles"]


def tiles(document: Document) -> list[Tile]:
    """What is exposed, hidden and to be gained, and who was late; of a sweep, which hides nothing, none."""
    if document.bandwidth is not None:
        return []
    found, n = sums(document), document.n_steps
    what = document.per
    if not found.comm:
        total = document.overlap.ranks[["compute_ns", "idle_ns"]].sum()
        return [
            Tile(percent(int(total["compute_ns"]), found.window), f"of the {what} is compute"),
            Tile(percent(int(total["idle_ns"]), found.window), f"of the {what} is idle"),
        ]
    shares = f"{duration(found.wait / n)} waiting, {duration(found.wire / n)} transfer"
    if either := found.exposed - found.wait - found.wire:
        shares += f", {duration(either / n)} either"
    bound = document.bounds["all_hidden"]
    some = [
        Tile(percent(found.exposed, found.window), f"of the {what} is exposed communication", tone="exposed"),
        Tile(duration(found.exposed / n), f"exposed per {what}", shares if found.wait + found.wire else ""),
        Tile(percent(found.hidden, found.comm), "of communication is hidden"),
    ]
    if bound.speedup is not None:
        some.append(
            Tile(
                Figure(f"{bound.speedup:.2f}×", bound.speedup),
                "faster at most, all hidden that can be",
                gained(bound),
            )
        )
    late = parts.waited_for(document)
    if late is not None and len(document.overlap.ranks) > 1:
        rank, last, _, cost = late.rows[0]
        _, unit = split(late.title)
        together = ", all steps together" if len(document.overlap.windows.steps) > 1 else ""
        some.append(
            Tile(
                f"rank {rank}",
                f"was waited for most: last to {last}",
                f"the others together waited {cost} {unit.split(',')[0]} for it{together}",
            )
        )
    return some
