"""Define every error that a user can meet, and why an arm has no figures. Imports nothing: `shootout --help` loads it.

Each message says what is wrong, the value received, and how to fix it.
"""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum

_SPACES = "\n\t\xa0\u202f"
MOST_WORDS = 4_000
"""Keep so many letters of a library's log: the journal stores them."""
MOST_LETTERS = 300
"""Show so many letters of a library's error: a person reads them, and the log has the rest."""
_COLORS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The system's numbers for a disk, or a user's part of one, without room."""


class ExitCode(IntEnum):
    """Number the exit codes of all commands, here and nowhere else; docs/reference/exit-codes.md has them for users."""

    OK = 0
    ERROR = 1  # internal error, or a self-test got a verdict wrong
    USAGE = 2  # the request is wrong
    NOTHING = 3  # nothing was measured, or nothing meets the policy's limits
    FAILED = 4  # a target named in --backends failed; with --strict, any target
    REFUSED = 5  # the gate: the candidate must not replace the reference
    UNAVAILABLE = 6  # a target named in --backends can't run on this machine
    UNDECIDED = 7  # a verdict or decision was required, and the evidence isn't enough
    INTERRUPTED = 130  # Ctrl-C or SIGTERM

    __repr__ = int.__repr__


class NotRunKind(StrEnum):
    """Name the kinds of reasons for an arm without figures, for programs; `NotRun.reason` has the words for people."""

    UNAVAILABLE = "unavailable"  # what it needs of this machine isn't here
    NOT_INSTALLED = "not installed"  # its library, or one that it needs, isn't here
    BROKEN = "broken"  # its library is here and doesn't work, or is another build of it
    BUILT_ONLY = "built only"  # likewise, but `build` works all the same, and shows what it would ship
    UNSUPPORTED = "unsupported"  # the backend has no such mode, precision, scheme or scenario
    UNFIT = "unfit"  # the model isn't there in a form that the backend takes
    TOO_BIG = "too big"  # it needs more memory or CPUs than there are
    TOO_SLOW = "too slow"  # a call takes longer than the study's cap
    SOFTWARE = "software device"  # it ran and was proven, on a device that is a program: its time would mean nothing
    NOT_REACHED = "not reached"  # the run ended before it was measured
    NEVER_HELD = "never held"  # no rate of requests that was tried held the limit
    OFF_LIMITS = "off limits"  # it left the race because it breaks a limit of the policy that the run was for
    KILLED = "killed"  # its process was ended from outside each time
    FAILED = "failed"  # it was started, and broke or ran something else than it was to


COULD_RUN = frozenset({NotRunKind.NOT_REACHED, NotRunKind.NEVER_HELD})
"""Only the time and the luck of one run speak against these arms."""
FAILURES = frozenset({NotRunKind.KILLED, NotRunKind.FAILED})
"""All others are skips."""
TRIED_AGAIN = frozenset({NotRunKind.NOT_REACHED, NotRunKind.KILLED})
"""The same command tries an arm again that had no time, or was killed."""
NO_FAULT = TRIED_AGAIN | {NotRunKind.OFF_LIMITS}
"""An arm that left for one of these measured nothing wrong before, and is in again once it plays."""


@dataclass(frozen=True, slots=True)
class NotRun:
    """Give the reason for which an arm was skipped or failed: one type from the probe to the table.

    Attributes:
        reason: why, in one line.
        fix: what the user can do about it; "" where there is nothing.
        during: the step at which it left; "" where it never began.
    """

    kind: NotRunKind
    reason: str
    fix: str = ""
    during: str = ""

    @property
    def hung(self) -> bool:
        """Return whether the arm was begun and gave no answer within its part of `--max-time`."""
        return self.kind is NotRunKind.NOT_REACHED and bool(self.during)

    @property
    def failed(self) -> bool:
        """Return True if it ran and broke, was wrong or was killed; all else is a skip."""
        return self.kind in FAILURES

    @property
    def builds(self) -> bool:
        """Return True if its artifact can be made here though it can't run."""
        return self.kind is NotRunKind.BUILT_ONLY


class ShootoutError(Exception):
    """Root of all errors raised on purpose; `exit_code` is what the command line ends with."""

    exit_code = ExitCode.ERROR


class UsageError(ShootoutError):
    """Report that the request itself is wrong: an unknown name, a bad value, a folder that can't be used.

    Args:
        reason: what is wrong, in one clause.
        groups: the groups of a run of which the request names none.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, reason: str, groups: Iterable[str] = ()) -> None:
        named = ", ".join(map(repr, groups))
        super().__init__(f"{reason}; name one with --group: {named}" if named else reason)


class ModelError(ShootoutError):
    """Report that the model can't be measured: a broken file, degenerate reference outputs, inputs that don't fit.

    Args:
        reason: why, in one line.
        kind: what sort of reason it is: it broke, or its export was killed.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, reason: str, kind: NotRunKind = NotRunKind.FAILED) -> None:
        super().__init__(reason)
        self.kind = kind


class Interrupted(ShootoutError):
    """Report Ctrl-C or SIGTERM; what was measured is on disk."""

    exit_code = ExitCode.INTERRUPTED


class Unavailable(ShootoutError):
    """Report that the whole command needs something that isn't on this machine; the message ends with the fix."""

    exit_code = ExitCode.UNAVAILABLE


class NothingMeasured(ShootoutError):
    """Report that no target has a time, or that `--max-time` was over before, or that a policy's limits allow none."""

    exit_code = ExitCode.NOTHING


class Undecided(ShootoutError):
    """Report that a required verdict can't be given; what was measured is on disk."""

    exit_code = ExitCode.UNDECIDED


class ArmFailed(ShootoutError):
    """Report that an arm broke, hung, was killed, or ran something else than it was to; the others go on.

    Args:
        reason: why, in one line.
        kind: what sort of reason it is.
        hung: whether it gave no answer in time.
    """

    exit_code = ExitCode.FAILED

    def __init__(self, reason: str, kind: NotRunKind = NotRunKind.FAILED, *, hung: bool = False) -> None:
        super().__init__(reason)
        self.why = NotRun(kind, reason)
        self.hung = hung


class SkippedArm(ShootoutError):
    """Report that an arm can't run here; the others go on.

    Args:
        reason: why, in one line.
        fix: what the user can do about it, or "".
        kind: what sort of reason it is.
    """

    exit_code = ExitCode.UNAVAILABLE

    def __init__(self, reason: str, fix: str = "", kind: NotRunKind = NotRunKind.UNAVAILABLE) -> None:
        super().__init__(reason)
        self.reason, self.fix, self.why = reason, fix, NotRun(kind, reason, fix)


def tell_refusal(error: OSError, instead: str = "") -> str:
    """Return why the system refused a file or folder, and what to do about it.

    Args:
        instead: what to do otherwise, such as `choose another --out`.
    """
    fix = ""
    if error.errno in DISK_FULL:
        fix = "make room there"
    elif error.errno in (errno.EACCES, errno.EPERM):
        fix = "give this user the right to it"
    what = ", or ".join(filter(None, [fix, instead]))
    return f"{error.strerror or one_line(str(error))}{f'; {what}' if what else ''}"


def unknown(what: str, received: str, known: Iterable[str]) -> UsageError:
    """Return a usage error for a name that isn't known, with the nearest one that is."""
    names = sorted(map(str, known))
    near = difflib.get_close_matches(received, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UsageError(f"unknown {what} {received!r}: {hint}known: {', '.join(names) or 'none'}")


def one_line(text: str) -> str:
    """Return a library's words on one line, without the colors and control characters that would steer a terminal."""
    lines = (line.strip() for line in _COLORS.sub("", text).splitlines())
    told = " | ".join("".join(letter for letter in line if letter.isprintable()) for line in lines if line)
    return told if len(told) <= MOST_WORDS else f"{shorten(told, MOST_WORDS)} ({len(told) - MOST_WORDS:,} more letters)"


def shorten(text: str, most: int = MOST_LETTERS) -> str:
    """Return the beginning of a text, cut between two words if it has more than `most` letters."""
    if len(text) <= most:
        return text
    kept = text[: most + 1].rpartition(" ")[0] or text[:most]
    return f"{kept.rstrip(' |,;:([{')}…"


def keep_end(text: str, most: int) -> str:
    """Return the end of a text, cut between two words if it has more than `most` letters."""
    if len(text) <= most:
        return text
    return f"…{text[-most - 1 :].partition(' ')[2] or text[-most:]}"


def printable(text: str) -> str:
    """Return text without what would steer a terminal or hide what is written: control, format and private letters."""
    if text.isprintable():
        return text
    return "".join(letter for letter in text if letter.isprintable() or letter in _SPACES)


def explained(error: BaseException) -> str:
    """Return an error's kind and its words; see `tell_words`."""
    return f"{type(error).__name__}: {tell_words(error, MOST_LETTERS - len(type(error).__name__) - 2).rstrip('.')}"


def tell_words(error: BaseException, most: int = MOST_LETTERS) -> str:
    """Return the words of an error and those of its innermost cause on one line, in at most `most` letters.

    Of many words the first line is shown. A library may write a whole model into its message, and what went wrong into
    the cause alone.
    """
    causes = [error]
    while (further := causes[-1].__cause__) and not any(further is one for one in causes):  # an error may be its own
        causes.append(further)
    inner = causes[-1]
    first, cause = _read_beginning(str(error), most), _read_beginning(str(inner), most // 2)
    if inner is error or cause in _cut_middle(first, most):
        return _cut_middle(first, most)
    because = _cut_middle(f"because of {type(inner).__name__}: {cause}", most // 2)
    return f"{shorten(first, most - len(because) - 2).rstrip('.')}, {because}"


def _cut_middle(text: str, most: int) -> str:
    """Return the beginning and the end of a text, cut between words if it has more than `most` letters.

    What is wrong may stand at the end, behind the names of the library's own functions.
    """
    if len(text) <= most:
        return text
    begun = shorten(text, most // 2 - 1)
    return f"{begun} {keep_end(text, most - len(begun) - 2)[1:]}"


def _read_beginning(text: str, most: int) -> str:
    """Return a message of at most `most` letters on one line, else its first line that isn't empty.

    A line that ends in a colon goes on in the next.
    """
    if len(text) <= most:
        return one_line(text)
    lines = [line for line in map(str.strip, _COLORS.sub("", text).splitlines()) if line]
    last = next((at for at, line in enumerate(lines) if not line.endswith(":")), len(lines) - 1)
    return "".join(letter for letter in " ".join(lines[: last + 1]) if letter.isprintable())
