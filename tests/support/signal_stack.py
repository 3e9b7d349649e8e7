"""Keep the stack on which this thread handles signals.

OpenVINO's CPU plugin gives the thread another one, and takes it back when its Core ends. Of two Cores that end in the
order in which they were made, the second gives back the first one's, which is gone by then: the next signal that Python
handles, or pytest's time-out, ends the process without a word.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable


class _Stack(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("bytes", ctypes.c_size_t))


def keep() -> Callable[[], None]:
    """Return what gives this thread the stack again that it has now, once all garbage is collected."""
    if sys.platform != "linux":
        return lambda: None
    libc, kept = ctypes.CDLL(None), _Stack()
    libc.sigaltstack(None, ctypes.byref(kept))

    def restore() -> None:
        now = _Stack()
        libc.sigaltstack(None, ctypes.byref(now))
        if now.start != kept.start:
            gc.collect()  # a Core that ends later would change it again
            libc.sigaltstack(ctypes.byref(kept), None)

    return restore
