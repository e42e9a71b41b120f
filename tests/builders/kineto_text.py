"""Times and JSON as PyTorch's profiler writes them: exact to the nanosecond, as text."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["Clock", "Event", "Exact", "dump"]

Event = dict[str, Any]


class Exact(str):
    """A number that is written as it stands."""

    __slots__ = ()


class Clock:
    """Writes a time in microseconds, exactly."""

    def __init__(self, shift: int, fraction: str, quoted: bool) -> None:
        self._shift = shift
        self._fraction = fraction
        self._quoted = quoted

    def at(self, ns: int) -> str:
        return self.span(ns + self._shift)

    def span(self, ns: int) -> str:
        whole, rest = divmod(abs(ns), 1000)
        digits = "" if self._fraction == "none" else f".{rest:03d}"
        if self._fraction == "none" and rest:
            raise ValueError(f"{ns} ns is not a whole microsecond, and this file has no others")
        if self._fraction == "cut":
            digits = digits.rstrip("0").rstrip(".")
        text = f"{'-' if ns < 0 else ''}{whole}{digits}"
        return text if self._quoted else Exact(text)

    def event(self, cat: str, name: str, start: int, end: int, pid: int, tid: int, args: Event) -> Event:
        place = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid}
        return {**place, "ts": self.at(start), "dur": self.span(end - start), "args": args}


def dump(value: Any, pretty: bool, depth: int = 0) -> str:
    """JSON that keeps the digits of exact numbers; pretty: events and their keys on lines of their own."""
    if isinstance(value, Exact):
        return str(value)
    if not isinstance(value, (dict, list)) or not pretty or (depth > 1 and isinstance(value, list)):
        if isinstance(value, dict):
            return "{" + ", ".join(f"{json.dumps(k)}: {dump(v, False)}" for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(dump(v, False) for v in value) + "]"
        return json.dumps(value)
    pad = "  " * (depth + 1)
    inner = (
        [f"{json.dumps(k)}: {dump(v, True, depth + 1)}" for k, v in value.items()]
        if isinstance(value, dict)
        else [dump(v, True, depth + 1) for v in value]
    )
    open_, close = "{}" if isinstance(value, dict) else "[]"
    return f"{open_}\n{pad}" + f",\n{pad}".join(inner) + f"\n{pad[2:]}{close}"
