"""Lay out a user's rows as the clips of a stream, as many as memory takes, each call with the state before it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shootout.core.contract import Array, Arrays
from shootout.core.errors import UsageError
from shootout.core.exported.calls import CLIPS, Stream
from shootout.core.units import counted, size

HALF_ROWS = 16
"""If a half of the rows had fewer (or fewer than two batches), the same ones serve both purposes."""
MOST_BYTES = 1 << 30
"""All clips of these take no more memory, which every arm needs."""


def note(stream: Stream) -> str:
    """Return what rows should say of a stream."""
    told = ", ".join(f"{name} is {made} of the call before" for name, made in stream.state.items())
    return f"calls are clips of {stream.steps}{f': {told}, and begins anew with each clip' if told else ''}"


def fill(stream: Stream, sets: Sequence[Arrays], outputs: Sequence[Arrays]) -> list[dict[str, Array]]:
    """Return the sets with the states that each call got.

    Args:
        outputs: of all of these calls, made one after the other.
    """
    return [
        {**one, **{name: outputs[at - 1][made].astype(one[name].dtype) for name, made in stream.state.items()}}
        if at % stream.steps
        else dict(one)
        for at, one in enumerate(sets)
    ]


def in_order(stream: Stream, rows: Array, batch: int) -> Array:
    """Return rows in the order in which calls take them: each call takes the next row of each of `batch` clips.

    Args:
        rows: the numbers of rows, clip by clip. Those that fill no clip, or clips that fill no call, are left out.
    """
    groups = len(rows) // (stream.steps * batch)
    whole = rows[: groups * batch * stream.steps].reshape(groups, batch, stream.steps)
    return np.ascontiguousarray(whole.transpose(0, 2, 1)).reshape(-1)


def require_rows(stream: Stream, count: int, batch: int) -> None:
    """Refuse data that hold no whole clip for each row of a call.

    Raises:
        UsageError: they are too few.
    """
    if count < stream.steps * batch:
        clips = "" if batch == 1 else f" for each of the {batch} rows of a call"
        raise UsageError(
            f"--stream {stream.steps} takes a clip of {counted(stream.steps, 'row')}{clips}, "
            f"{stream.steps * batch:,} in all; the data hold {counted(count, 'row')}: give more, or shorter clips"
        )


def count_clips(stream: Stream, set_bytes: int) -> int:
    """Return on how many clips the error is measured, as far as memory allows.

    Raises:
        UsageError: not even one fits.
    """
    needed = stream.steps * set_bytes
    if needed > MOST_BYTES:
        most = max(MOST_BYTES // max(set_bytes, 1), 1)
        raise UsageError(
            f"--stream {stream.steps} takes {size(needed)} of inputs for each target, and {size(MOST_BYTES)} is the "
            f"most: give --stream {most} or less"
        )
    return CLIPS if CLIPS * needed <= MOST_BYTES else 1
