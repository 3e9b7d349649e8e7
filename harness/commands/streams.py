"""Standard output as a command needs it: in any locale, and with a sentence when it can't be written to.

If a pipe's reader has gone, the command ends without a sentence: `| head` has what it wanted.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from shootout.core.errors import ExitCode, ShootoutError, printable, tell_refusal


class _Output(io.TextIOWrapper):
    """Standard output that shows what the locale can't as `?`, and fails with an error of ours."""

    def __init__(self, binary: Any, encoding: str, *, is_terminal: bool) -> None:
        super().__init__(binary, encoding=encoding, errors="replace", line_buffering=is_terminal)

    def write(self, text: str) -> int:
        with _report_write_errors(self):
            return super().write(text)

    def flush(self) -> None:
        with _report_write_errors(self):
            super().flush()


@contextmanager
def _report_write_errors(output: _Output) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())  # Python flushes it once more as it ends
        if isinstance(error, BrokenPipeError):  # the reader has what it wanted, as `head` does
            raise SystemExit(ExitCode.ERROR) from None
        raise ShootoutError(
            f"can't write to standard output: {tell_refusal(error)}. What was measured is kept"
        ) from None


@contextmanager
def standard_streams() -> Iterator[None]:
    """Make standard output fail with an error of ours, and flush it at the end.

    Raises:
        ShootoutError: standard output can't be written to.
    """
    if (real := sys.__stdout__) is not None and sys.stdout is real:
        sys.stdout = _Output(real.buffer, real.encoding, is_terminal=real.isatty())
    try:
        yield
    finally:
        sys.stdout.flush()


def tell(text: str) -> None:
    """Say why a command ends, on standard error if that can still be written to."""
    with suppress(OSError):
        sys.stderr.write(f"shootout: {printable(text)}\n")
        sys.stderr.flush()
