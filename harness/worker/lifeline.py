"""A child process that can't outlive its parent, whatever kills that one."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def leave_with(parent: int) -> None:
    """Die when the process `parent` does, even while stopped; ignore the terminal's Ctrl-C, the parent decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
