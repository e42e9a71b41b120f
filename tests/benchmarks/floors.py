"""What the same data cost when it is only read: the floor under a report.

``python floors.py nsys FILE`` or ``python floors.py kineto FILE`` prints one line of JSON: rows, and the
seconds of the reading alone, imports left out. The benchmark starts it in a process of its own.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

# What a report needs of a kernel, and no more.
_COLUMNS = "start, end, deviceId, globalPid, streamId, demangledName, shortName"


def nsys(path: str) -> tuple[int, float]:
    """A bare read into an Arrow table."""
    from adbc_driver_sqlite import dbapi

    begin = time.perf_counter()
    with dbapi.connect(path) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {_COLUMNS} FROM CUPTI_ACTIVITY_KIND_KERNEL")
        table = cursor.fetch_arrow_table()
    return table.num_rows, time.perf_counter() - begin


def kineto(path: str) -> tuple[int, float]:
    """A bare typed decode; without the garbage collector's bookkeeping, as nothing here refers back."""
    import msgspec

    numbers = ("device", "stream", "correlation", "bytes")
    args = msgspec.defstruct("Args", [(n, Any, None) for n in numbers], gc=False)
    texts = [("ph", str, ""), ("cat", str | None, None), ("name", str, ""), ("args", args | None, None)]
    times = [("ts", float, 0.0), ("dur", float, 0.0), ("pid", Any, None), ("tid", Any, None)]
    event = msgspec.defstruct("Event", [*texts, *times], gc=False)
    file = msgspec.defstruct("File", [("traceEvents", list[event])], gc=False)  # type: ignore[valid-type]
    begin = time.perf_counter()
    document: Any = msgspec.json.decode(Path(path).read_bytes(), type=file)
    return len(document.traceEvents), time.perf_counter() - begin


if __name__ == "__main__":
    rows, seconds = {"nsys": nsys, "kineto": kineto}[sys.argv[1]](sys.argv[2])
    print(json.dumps({"rows": rows, "read_s": seconds}))
