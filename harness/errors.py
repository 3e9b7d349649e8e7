"""Every error a user can meet. Each message says what is wrong, the value received, and how to fix it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ShootoutError(Exception):
    """Root of all errors raised on purpose; `exit_code` is what the command line ends with."""

    exit_code = 1


class UsageError(ShootoutError):
    """The request itself is wrong: an unknown name, a bad value, a folder that can't be used."""

    exit_code = 2


class ModelError(ShootoutError):
    """The model can't be measured: a broken file, a degenerate oracle, inputs that don't fit."""

    exit_code = 2


class Interrupted(ShootoutError):
    """Ctrl-C or SIGTERM; what was measured is on disk."""

    exit_code = 130


class ArmFailed(ShootoutError):
    """One arm broke, hung, was killed or lied about what it ran; the others go on."""

    exit_code = 4


class Unavailable(ShootoutError):
    """What the whole command asked for isn't on this machine; the message ends with the fix."""

    exit_code = 6


class SkippedArm(ShootoutError):
    """One arm can't be asked here.

    Args:
        reason: why, in one line.
        fix: what the user can do about it, or "".
    """

    exit_code = 6

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.reason, self.fix = reason, fix


def install(extra: str) -> str:
    """The command that installs one of this package's extras; "" is the bare package."""
    return f"pip install 'shootout[{extra}]'" if extra else "pip install shootout"


def unknown(what: str, received: str, known: Iterable[str]) -> UsageError:
    """A usage error for a name that isn't known, with the nearest one that is."""
    names = sorted(known)
    near = difflib.get_close_matches(received, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UsageError(f"unknown {what} {received!r}: {hint}known: {', '.join(names) or 'none'}")
