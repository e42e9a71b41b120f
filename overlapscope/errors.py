"""The one tree of errors.

::

    OverlapscopeError                 exit code 1: work that failed
    ├── UserError                     exit code 2: a mistake the user can mend
    │   ├── InputError                a file that cannot be read as the trace it should be
    │   │   └── NotATraceError        a file of another kind; found in a folder, it is passed over and counted
    │   ├── OptionError               an option, or options together, that make no sense
    │   └── RulesError                a rules file that cannot be used
    └── RunError                      a run that was asked for rightly and failed
    Interrupted                       exit code 128 + its number: a signal, which nothing takes for a failure

A message is one line: what it is about (file, option, rank), what is wrong, and what to do. The command
line prints it and exits with the class's code; nothing else decides exit codes.
"""

from __future__ import annotations

import os
import signal

__all__ = [
    "InputError",
    "Interrupted",
    "NotATraceError",
    "OptionError",
    "OverlapscopeError",
    "RulesError",
    "RunError",
    "UserError",
]


class OverlapscopeError(Exception):
    """Base of every error this project raises on purpose.

    Parameters
    ----------
    what : str
        What is wrong, without a full stop.
    remedy : str, optional
        What to do about it.
    about : path or str, optional
        What it is about: the file, the option or the rank. It opens the message.
    """

    exit_code = 1
    told_elsewhere = False
    """Another process says it, so that this one, which has the exit code of it, need not."""

    def __init__(
        self, what: str, remedy: str | None = None, about: str | os.PathLike[str] | None = None
    ) -> None:
        self.what = what
        self.remedy = remedy
        self.about = None if about is None else os.fspath(about)
        super().__init__(self._message())

    def owned_by(self, who: str) -> None:
        """Say in front whose it is."""
        self.about = who if self.about is None else f"{who}: {self.about}"
        self.args = (self._message(),)

    def _message(self) -> str:
        head = f"{self.about}: " if self.about is not None else ""
        tail = f"; {self.remedy}" if self.remedy else ""
        return f"{head}{self.what}{tail}"


class UserError(OverlapscopeError):
    """A mistake the user can mend."""

    exit_code = 2


class InputError(UserError):
    """A file that cannot be read as the trace it should be."""


class NotATraceError(InputError):
    """A file of another kind; found in a folder, it is passed over and counted."""


class OptionError(UserError):
    """An option, or options together, that make no sense."""


class RulesError(UserError):
    """A rules file that cannot be used."""


class RunError(OverlapscopeError):
    """A run that was asked for rightly and failed.

    ``detail`` holds what the failing part itself said (a rank's traceback, nsys's own message); it is shown
    under the one line, because it is the user's program speaking, not ours.
    """

    def __init__(
        self,
        what: str,
        remedy: str | None = None,
        about: str | os.PathLike[str] | None = None,
        *,
        detail: str | None = None,
    ) -> None:
        self.detail = detail
        super().__init__(what, remedy, about)

    @classmethod
    def of(cls, end: Interrupted, remedy: str | None = None) -> RunError:
        """A run that a signal cut short; it keeps the signal's exit code."""
        error = cls(str(end), remedy)
        error.exit_code = end.exit_code
        return error


class Interrupted(BaseException):
    """Ctrl-C, SIGTERM or SIGHUP. No Exception, so that nothing that handles failures catches it by chance."""

    def __init__(self, number: int) -> None:
        self.exit_code = 128 + number  # as shells have it
        name = signal.Signals(number).name
        super().__init__("interrupted" if number == signal.SIGINT else f"ended by {name}")
