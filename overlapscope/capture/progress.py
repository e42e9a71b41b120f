"""What a run is doing, in a few words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from .events import Event
from .plan import Plan

__all__ = ["Progress"]


class Progress:
    """Counts events, each once, so that a long run costs no more to follow than a short one."""

    def __init__(self, plan: Plan, ranks: Sequence[int] | None = None) -> None:
        self.plan = plan
        self.ranks = range(plan.tp) if ranks is None else ranks
        self.kinds: Counter[str] = Counter()
        self.done: Counter[int | None] = Counter()  # iterations a rank has finished

    def take(self, events: Iterable[Event]) -> None:
        """Count new events."""
        for event in events:
            self.kinds[event.kind] += 1
            if event.kind == "done":
                self.done[event.rank] += 1

    def text(self) -> str:
        """What is being done now."""
        plan = self.plan
        if self.kinds["writing"]:
            return "the ranks write what they recorded"
        tool = "nsys" if plan.recorder == "nsys" else "torch.profiler"
        return f"{self._stage()}; recording with {tool}"

    def _stage(self) -> str:
        plan = self.plan
        if not self.kinds["started"]:
            return "importing torch"
        if self.kinds["ready"] < len(self.ranks):
            return f"{self.kinds['ready']} of {len(self.ranks)} ranks are ready"
        done = min(self.done[rank] for rank in self.ranks)
        if done < plan.warmup:
            return f"warm-up {done + 1} of {plan.warmup}"
        return f"step {min(done - plan.warmup + 1, plan.steps)} of {plan.steps}"
