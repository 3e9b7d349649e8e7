"""Say how the quantities are told that may have become worse: time, time until ready, memory, error of outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shootout.core.units import measured, size
from shootout.tell.ratios import SPEED, Words
from shootout.tell.wording import tell_error


@dataclass(frozen=True, slots=True)
class Quantity:
    """Say how a quantity that may have become worse is told.

    Attributes:
        name: of its column.
        what: it is, in the line below the answer.
        more, less: what a package does since a release that made it larger, or smaller.
        words: the directions of its ratios; None: it is right or wrong, so no ratio is told.
    """

    name: str
    what: str
    more: str
    less: str
    write: Callable[[float], str]
    words: Words | None = SPEED


QUANTITIES = {
    "time": Quantity("time", "time of a call", "is slower", "is faster", measured),
    "ready": Quantity(
        "ready", "time until the first answer", "starts slower", "starts faster", lambda value: measured(1e9 * value)
    ),
    "memory": Quantity(
        "memory",
        "peak memory",
        "takes more memory",
        "takes less memory",
        lambda value: size(int(value)),
        Words(less="less", more="more", even="as much"),
    ),
    "outputs": Quantity("error", "error of the outputs", "errs more", "errs less", tell_error, None),
}
"""Quantities by the word of `--for`."""
