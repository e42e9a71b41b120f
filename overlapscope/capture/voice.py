"""Which of a node's processes says what went wrong: what several have to say is said once, what one has, too."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import time
import zlib
from contextlib import suppress
from pathlib import Path

from ..errors import Interrupted
from .world import World

__all__ = ["is_mine"]

# Ranks of a node come this much apart on a busy machine; who waits in vain speaks.
WAIT_S = 3.0
POLL_S = 0.05
# What was said longer ago was said in an earlier launch.
OLD_S = 60.0
PREFIX = "overlapscope-said-"


def is_mine(world: World, message: str) -> bool:
    """Whether this process is to say `message`; of those of its node that ask, one is told so.

    Local rank 0 speaks for all, so the others wait for it a moment. They know of one another through a file in the
    node's temporary folder: the local ranks that have had this to say. The last of all removes it, or a later launch.
    """
    path, deadline = _file(world, message), time.monotonic() + WAIT_S
    _remove_old(path.parent)
    with suppress(Interrupted):  # a launcher ends the others once one has spoken and gone
        while not world.speaks and not path.exists() and time.monotonic() < deadline:
            time.sleep(POLL_S)
    try:
        # Whoever else uses the temporary folder cannot lead this astray.
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return True  # better twice than not at all
    with open(file, "r+") as said:
        fcntl.flock(said, fcntl.LOCK_EX)
        before = _before(said.read())
        if world.local_rank in before:  # in an earlier launch, at the same place
            before = []
        ranks = [*before, world.local_rank]
        if len(ranks) == world.local_size:
            path.unlink(missing_ok=True)
        said.seek(0)
        said.truncate()
        json.dump(ranks, said)
    return not before


def _file(world: World, message: str) -> Path:
    """One for each message of each launch: the meeting place and the parent tell launches apart."""
    key = f"{os.getuid()} {os.getppid()} {world.launcher} {world.address}:{world.port} {message}"
    return Path(tempfile.gettempdir()) / f"{PREFIX}{zlib.crc32(key.encode()):08x}"


def _remove_old(folder: Path) -> None:
    for file in folder.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another user's, or gone
            if time.time() - file.stat().st_mtime >= OLD_S:
                file.unlink()


def _before(text: str) -> list[int]:
    """The local ranks that have come before."""
    try:
        ranks: list[int] = json.loads(text)
    except ValueError:  # empty, as it is when new
        return []
    return ranks
