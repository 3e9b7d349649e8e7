"""Inference mode as a user's loop holds it: entered once, around all calls, and not anew by each of them.

The mode belongs to a thread, and so does whoever entered it: each thread that calls enters it with its first call, and
only that thread can leave it. Nothing may be built, loaded or trained in it: tensors made in it are of another kind,
which autograd refuses and Dynamo's guards tell from others. So inputs are staged in it as well.
"""

from __future__ import annotations

import threading
from typing import Any


class _Held(threading.local):
    """This thread's own, from when it entered the mode here; it ends with the thread."""

    mode: Any = None


_HELD = _Held()


def hold(torch: Any) -> None:
    """Enter the mode in this thread, until `leave`; for a thread that isn't in it."""
    _HELD.mode = torch.inference_mode()
    _HELD.mode.__enter__()


def leave() -> None:
    """Leave the mode where `hold` entered it in this thread."""
    if _HELD.mode is not None:
        _HELD.mode.__exit__(None, None, None)
        _HELD.mode = None
