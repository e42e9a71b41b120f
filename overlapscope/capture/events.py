"""What the launcher and the ranks tell the command line: one line of JSON an event, in one file.

Times are `time.monotonic()`, one clock for all processes of a machine, so events can be put in order. A member is a
rank that torchrun or the like has started.

==============  ===========  =====================================================================
event           written by   fields beside `time` and, where there is one, `rank`
==============  ===========  =====================================================================
``launcher``    launcher     pid
``imported``    launcher     start ("fork" or "exec"; "join", from a node's first rank), why, versions
``barred``      member       what, remedy, about, code: the ranks of a world do not come together
``placed``      member       folder, node, nodes, here: what they have agreed on
``started``     launcher     pid
``measured``    rank 0       what the program measured before its first iteration, for run.json
``ready``       rank         gpu: what is allocated, the group is joined
``done``        rank         name: the iteration that was finished, ``step 3``
``paced``       rank         made: exchanges on a paced link; late: those that took longer than the link's time
``writing``     rank         it has stopped to record, and writes its profile if it has one
``recorded``    rank         file: name of the rank's profile, or null
``finished``    rank         nothing more will come from it
``error``       rank         what, traceback, connection (a peer went away)
``refused``     rank         what, remedy: the user can mend it
``ended``       launcher     code: exit code, or minus the signal; ours: the launcher ended it
==============  ===========  =====================================================================
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Event", "EventReader", "EventWriter"]


@dataclass(frozen=True, slots=True)
class Event:
    """One line."""

    kind: str
    time: float  # s, monotonic
    rank: int | None = None
    fields: dict[str, Any] = field(default_factory=dict)


class EventWriter:
    """Appends events. Each is a single write in append mode, which processes may share."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, kind: str, rank: int | None = None, **fields: Any) -> None:
        """Append one event."""
        line = json.dumps({"kind": kind, "time": time.monotonic(), "rank": rank, "fields": fields})
        os.write(self._fd, line.encode() + b"\n")


class EventReader:
    """Follows the file from its start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def new(self) -> list[Event]:
        """The events that are complete and were not read before."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        return [Event(**json.loads(line)) for line in whole.splitlines()]
