"""Debian's Chromium, driven by Playwright, with nothing of its own on the network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["CHROMIUM", "browser", "missing"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

FLAGS = (
    "--no-sandbox",  # as root in a container there is none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-precise-memory-info",
)


def missing() -> str | None:
    """Why there is no browser to test with; None where there is one."""
    if CHROMIUM is None:
        return "chromium is not installed (apt-get install chromium)"
    try:
        import playwright  # noqa: F401
    except ImportError:
        return "playwright is not installed (pip install -e '.[browser]')"
    return None


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser of its own, with an empty profile."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chrome = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=list(FLAGS))
        try:
            yield chrome
        finally:
            chrome.close()
