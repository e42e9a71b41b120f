"""Ctrl-C, SIGTERM and SIGHUP: what asks the command line to end, and what may be finished first."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from .errors import Interrupted

__all__ = ["SIGNALS", "Held", "handled", "held", "raised"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Held:
    """What came while interruptions were held back; `first` is the first of them, or None."""

    def __init__(self, doing: str) -> None:
        self.first: Interrupted | None = None
        self._doing = doing
        self._count = 0

    def take(self, number: int) -> None:
        """The first is kept, the second says what is still being done, the third raises."""
        self._count += 1
        if self._count == 1:
            self.first = Interrupted(number)
        elif self._count == 2:
            # Written past Python's buffers, in which the signal may have come; a closed terminal takes nothing.
            with suppress(OSError, ValueError):
                os.write(sys.stderr.fileno(), f"overlapscope: {self._doing}\n".encode())
        elif self._count == 3:
            raise Interrupted(number)


@contextmanager
def raised() -> Iterator[None]:
    """Each of the signals raises :class:`Interrupted`, so that every ``finally`` is run."""

    def end(number: int) -> None:
        raise Interrupted(number)

    with handled(end):
        yield


@contextmanager
def held(doing: str) -> Iterator[Held]:
    """Hold the signals back while work that must not be lost is done; `doing` is what a second one is told."""
    what = Held(doing)
    with handled(what.take):
        yield what


@contextmanager
def handled(handler: Callable[[int], None]) -> Iterator[None]:
    """Signals go to `handler`. One that is ignored stays so: nohup and shells' background jobs mean it."""
    mine = SIGNALS if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.getsignal(number) for number in mine}
    taken = {number: old for number, old in before.items() if old is not signal.SIG_IGN}
    for number in taken:
        signal.signal(number, lambda number, _: handler(number))
    try:
        yield
    finally:
        for number, old in taken.items():
            signal.signal(number, old)
