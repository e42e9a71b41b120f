"""Writing files so that a reader never sees half of one, and nothing is overwritten unasked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import OptionError, OverlapscopeError

__all__ = ["check", "is_stream", "replacing", "write_bytes", "write_text"]

MOST_LINKS = 40
"""That Linux follows one after another; more are a circle."""

LONGEST_NAME = 255
"""Bytes that a file's name may have, on all file systems that Linux has."""


def is_stream(path: Path) -> bool:
    """Whether what is written there goes on elsewhere, as to /dev/stdout: there is nothing to replace or to rename."""
    for _ in range(MOST_LINKS):
        if os.path.abspath(path).startswith(("/dev/", "/proc/")):
            return path.exists()
        if not path.is_symlink():
            return path.exists() and not path.is_file()
        path = path.parent / path.readlink()
    return False


def check(path: Path, *, force: bool = False) -> None:
    """Refuse a path to which nothing could be written, before the work for it is done.

    Raises
    ------
    OptionError
        It exists and `force` is not set, is a folder, or its folder does not exist or is not writable.
    """
    if len(os.fsencode(path.name)) > LONGEST_NAME:
        raise OptionError("cannot be written: its name is too long", "choose another name", path)
    if path.is_dir():
        raise OptionError("is a folder", "name a file", path)
    if is_stream(path):
        return
    if path.exists() and not force:
        raise OptionError("exists already", "choose another name or pass --force to replace it", path)
    if not path.parent.is_dir():
        raise OptionError("cannot be written: its folder does not exist", "create the folder first", path)
    if not os.access(path.parent, os.W_OK):
        raise OptionError("cannot be written: permission denied", "choose another place", path)


@contextmanager
def replacing(path: Path, *, force: bool = False) -> Iterator[Path]:
    """A path beside `path` to write to; renamed to it when all went well, removed when not.

    Of a symbolic link what it leads to is replaced, and the link stays.

    Raises
    ------
    OptionError
        `path` exists and `force` is not set, is a folder, or its folder does not exist or is not writable.
    OverlapscopeError
        Writing failed half-way, as on a full disk.
    """
    check(path, force=force)
    if is_stream(path):
        try:
            yield path
        except OSError as error:
            raise OverlapscopeError(f"cannot be written ({error.strerror or error})", None, path) from error
        return
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    # A long name would be too long with what is added.
    beside = target.with_name(f".{target.name[:60]}.{os.getpid()}.part")
    try:
        yield beside
        os.replace(beside, target)
    except OSError as error:
        raise OverlapscopeError(f"cannot be written ({error.strerror or error})", None, path) from error
    finally:
        with suppress(OSError):
            beside.unlink()


def write_text(path: Path, text: str, *, force: bool = False) -> None:
    """Write a whole text file, UTF-8; bytes of a path that are not stand as escapes."""
    with replacing(path, force=force) as beside:
        beside.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_bytes(path: Path, content: bytes, *, force: bool = False) -> None:
    """Write a whole file that is no text."""
    with replacing(path, force=force) as beside:
        beside.write_bytes(content)
