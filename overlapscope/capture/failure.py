"""Which rank brought a run down, from what the ranks and the launcher said."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import OptionError, OverlapscopeError, RunError
from .events import Event

__all__ = ["Cause", "cause", "is_connection_error", "statuses"]

# What gloo, NCCL and PyTorch's stores say in a rank whose peer is gone. Such an error is a consequence.
CONNECTION = (
    "connection closed by peer",
    "connection reset",
    "connection refused",
    "broken pipe",
    "socket closed",
    "remote process exited",
    "application timeout caused pair closure",
    "ncclremoteerror",
    "nccl communicator was aborted",
    "timed out waiting",
)


@dataclass(frozen=True, slots=True)
class Cause:
    """The rank that failed first, and what it left behind."""

    rank: int
    what: str
    remedy: str | None = None
    detail: str | None = None
    refused: bool = False

    def error(self, where: str) -> OverlapscopeError:
        """As the error to raise; `where` says what was kept."""
        if self.refused:
            return OptionError(self.what, self.remedy, f"rank {self.rank}")
        remedy = f"{self.remedy}; {where}" if self.remedy else where
        return RunError(self.what, remedy, f"rank {self.rank}", detail=self.detail)


def is_connection_error(text: str) -> bool:
    """Whether an error's text says only that another rank went away."""
    lower = text.lower()
    return any(phrase in lower for phrase in CONNECTION)


def cause(events: Sequence[Event], tails: dict[int, str] | None = None) -> Cause | None:
    """The root cause, or None where no rank failed.

    A rank that a signal killed comes before any exception, because what peers say then is about losing it;
    SIGABRT is no such signal, since losing a peer can raise it. Next the earliest exception that is not about
    a lost connection, then the earliest that is.

    Parameters
    ----------
    events : sequence of Event
    tails : dict of rank to text, optional
        The end of what a rank wrote to its standard error, shown for one that died without an exception.
    """
    candidates = [(_order(e), e) for e in events if _failed(e)]
    if not candidates:
        return None
    event = min(candidates, key=lambda item: item[0])[1]
    rank = event.rank if event.rank is not None else -1
    if event.kind == "refused":
        return Cause(rank, event.fields["what"], event.fields["remedy"], refused=True)
    if event.kind == "error":
        return Cause(rank, f"failed: {event.fields['what']}", detail=event.fields["traceback"])
    tail = (tails or {}).get(rank) or None
    code = event.fields["code"]
    if code >= 0:
        return Cause(rank, f"ended with exit code {code} without a word", detail=tail)
    what = f"was killed by {_signal(-code)}{_last_word(events, rank)}"
    if -code == signal.SIGKILL:
        return Cause(
            rank, what, "the kernel does that when memory runs out (see dmesg), or somebody did", tail
        )
    return Cause(rank, what, detail=tail)


def statuses(events: Sequence[Event], ranks: Iterable[int]) -> list[dict[str, object]]:
    """Per rank: pid, and how it ended in a word or two."""
    pids = {e.rank: e.fields["pid"] for e in events if e.kind == "started"}
    said = {e.rank: e for e in events if e.kind in ("error", "refused", "finished")}
    ended = {e.rank: e for e in events if e.kind == "ended"}
    return [
        {"rank": rank, "pid": pids.get(rank), "status": _status(said.get(rank), ended.get(rank))}
        for rank in ranks
    ]


def _status(said: Event | None, ended: Event | None) -> str:
    if ended is None:
        return "unknown" if said is None else said.kind
    code = ended.fields["code"]
    if said is not None and (code >= 0 or said.kind == "finished"):
        if said.fields.get("connection"):
            return "lost a peer"
        return {"error": "failed", "refused": "refused", "finished": "finished"}[said.kind]
    if ended.fields["ours"]:
        return "stopped"
    return f"killed by {_signal(-code)}" if code < 0 else f"exit code {code}"


def _failed(event: Event) -> bool:
    if event.kind == "ended":
        return bool(event.fields["code"] != 0 and not event.fields["ours"])
    return event.kind in ("error", "refused")


def _order(event: Event) -> tuple[int, float]:
    if event.kind == "ended":
        code = event.fields["code"]
        if code < 0:
            return (1 if -code == signal.SIGABRT else 0), event.time
        return 3, event.time  # an exit code follows what the rank said itself
    return (2 if event.fields.get("connection") else 1), event.time


def _last_word(events: Sequence[Event], rank: int) -> str:
    done = [e.fields["name"] for e in events if e.kind == "done" and e.rank == rank]
    return f" after {done[-1]}" if done else ""


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
