"""A thread on which exchanges run, one after another, so that the program can compute meanwhile.

It is for gloo, and for two things that gloo cannot do. A send or receive is recorded as lasting until the
program waits for it, however long ago it arrived: here it ends when it has arrived. And a link can be pretended:
the exchange is made for real, then the thread sleeps until the link would have been done, which takes no CPU.

torch.profiler records the thread that started it, so nothing of what happens here is seen but the one op
(`paced:all_reduce`, `gloo:send_recv`) that lasts from the post to the completion.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import record_function

__all__ = ["Exchange", "Posted", "exchange"]

Job = Callable[[], float]
"""Makes an exchange; returns when it should be over (``time.monotonic()``), 0 for at once."""


class Posted:
    """An exchange that was posted."""

    def __init__(self, over: torch.futures.Future[Exception | None]) -> None:
        self._over = over

    def over(self) -> bool:
        """Whether it is done, or has failed."""
        return self._over.done()

    def wait(self) -> None:
        """Until it is over. What went wrong in it is raised here."""
        error = self._over.wait()
        if error is not None:
            raise error


class Exchange:
    """The thread, started by its first job."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Job, torch.futures.Future[Exception | None]]] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None
        self.made = 0
        self.late = 0
        """Exchanges with a link to pretend, and how many of them took longer than it would have."""

    def post(self, name: str, job: Job) -> Posted:
        """Queue a job. The op that is recorded has this name."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="exchange", daemon=True)
            self._thread.start()
        record: Any = record_function(name)
        record.__enter__()
        done: torch.futures.Future[Exception | None] = torch.futures.Future()
        over = record._call_end_callbacks_on_future(done)
        self._jobs.put((job, done))
        return Posted(over)

    @torch.no_grad()  # which a thread has of its own: results are views that autograd guards
    def _work(self) -> None:
        while True:
            job, done = self._jobs.get()
            try:
                left = job()
                if left:
                    left -= time.monotonic()
                    self.made += 1
                    self.late += left < 0
                    time.sleep(max(left, 0.0))
            except Exception as error:
                done.set_result(error)
            else:
                done.set_result(None)


exchange = Exchange()
"""The process's own."""
