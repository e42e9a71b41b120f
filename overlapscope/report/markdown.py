"""What every report in Markdown needs. Names come from traces and are hostile text until escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .words import escape

__all__ = ["code", "inline", "table"]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table whose first column are words and whose others are figures."""
    numbers = ["---", *["---:"] * (len(head) - 1)]
    return [f"| {' | '.join(row)} |" for row in [head, numbers, *rows]]


def inline(text: str) -> str:
    """Text that Markdown and the HTML in it take as text."""
    for character in "\\`*_[]<>|#&":
        text = text.replace(character, f"\\{character}")
    return escape(text)


def code(name: str) -> str:
    """A name as inline code: in a table cell a bar is escaped, and the fence is longer than any in the name."""
    text = escape(name).replace("|", "\\|") or "(no name)"
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"
