"""Numbers and names as a person reads them. Names come from traces and are hostile text until escaped."""

from __future__ import annotations

import unicodedata

__all__ = ["Figure", "count", "duration", "escape", "number", "percent", "scale", "shortened", "size"]


class Figure(str):
    """A number as a person reads it; ``value`` is the number itself, None where there is none."""

    value: int | float | None

    def __new__(cls, text: str, value: int | float | None) -> Figure:
        figure = super().__new__(cls, text)
        figure.value = value
        return figure


SCALES = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))


def scale(longest_ns: int | float) -> tuple[int, str]:
    """The unit in which the longest of some durations is at least 1: (ns a unit, its name)."""
    for size, unit in SCALES:
        # Seconds only from ten on: people think of steps in milliseconds.
        if longest_ns >= size * (10 if unit == "s" else 1):
            return size, unit
    return 1, "ns"


def duration(ns: int | float, unit: tuple[int, str] | None = None) -> Figure:
    """`12.345 ms`: three decimals, none for whole ns."""
    size, name = unit or scale(ns)
    return Figure(f"{ns / size:,.3f} {name}" if size > 1 else f"{ns:,.0f} {name}", ns)


def number(ns: int | float, unit: tuple[int, str]) -> Figure:
    """A time in a table whose head names the unit: three decimals as long as six columns of them fit a line."""
    value = ns / unit[0]
    text = f"{value:,.0f}" if unit[0] == 1 else f"{value:,.1f}" if value >= 10_000 else f"{value:,.3f}"
    return Figure(text, ns)


def count(value: int | float) -> Figure:
    """`1,234`, `2.5` where it is a mean."""
    return Figure(f"{value:,.0f}" if value == int(value) else f"{value:,.1f}", value)


def size(nbytes: int | float) -> Figure:
    """`25.2 MB`, in powers of 1000, as link rates are given."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if nbytes >= unit:
            return Figure(f"{nbytes / unit:,.1f} {name}", nbytes)
    return Figure(f"{nbytes:,.0f} B", nbytes)


def percent(part: int | float, whole: int | float | None) -> Figure:
    """`41.3 %`, `n/a` where there is no whole. What is not quite none or all does not read as none or all."""
    if not whole:
        return Figure("n/a", None)
    share = 100 * part / whole
    if 0 < share < 0.05:
        return Figure("<0.1 %", share)
    if 99.95 <= share < 100:
        return Figure(">99.9 %", share)
    return Figure(f"{share:.1f} %", share)


def escape(text: str) -> str:
    """Make a name harmless on a terminal: control, format and bidirectional characters become escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if unicodedata.category(c)[0] not in "CZ" or c == " " else _code(c) for c in text)


def _code(character: str) -> str:
    number = ord(character)
    return (
        f"\\x{number:02x}"
        if number < 0x100
        else f"\\u{number:04x}"
        if number < 0x10000
        else f"\\U{number:08x}"
    )


def shortened(text: str, width: int) -> str:
    """At most `width` characters; what is cut out of the middle shows as an ellipsis."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 3
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"
