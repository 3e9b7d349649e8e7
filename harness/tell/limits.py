"""The limits of a policy: the unit of each, which side of it is good, its option, and how a figure stands to it.

A `deploy.toml` is read by this table, and limits are judged and shown by it. Imports nothing heavy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal

from shootout.core.errors import UsageError
from shootout.core.units import duration, number, round_limit, size

_QUANTITY = re.compile(r"\s*(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([a-zA-Z%/]*)\s*")
MOST_DIGITS = 6
"""A limit with more digits was computed, as from a share of a mean, and is rounded."""


class Standing(StrEnum):
    """On which side of a limit an interval lies."""

    MET = "met"
    BROKEN = "broken"
    UNKNOWN = "unknown"


Interval = tuple[float | None, float | None]
"""The lower and the upper end of what a figure may be; None where that end isn't known."""


def judge_limit(interval: Interval, limit: float, *, at_most: bool = True) -> Standing:
    """Judge an interval against a limit: met or broken if it lies wholly on one side.

    Args:
        at_most: the limit is an upper one; else a lower one.
    """
    worst, best = reversed(interval) if at_most else interval
    if worst is not None and (worst <= limit if at_most else worst >= limit):
        return Standing.MET
    if best is not None and (best > limit if at_most else best < limit):
        return Standing.BROKEN
    return Standing.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Hold what a quantity is written in: each unit and what it is worth, "" where it has none.

    Attributes:
        what: as in "is not a time".
        examples: how it is written.
        told: a value as people read it, in so many digits; see `tell`.
        most: no value is larger.
    """

    what: str
    worth: Mapping[str, float]
    examples: str
    told: Callable[[float, int], str]
    most: float = float("inf")

    def read(self, key: str, given: Any, example: str = "") -> float:
        """Return a value with its unit → a number in the basic one.

        Args:
            example: how this one is written; "": as the unit's.

        Raises:
            UsageError: it is none, or has no unit, or another's.
        """
        match = _QUANTITY.fullmatch(given if isinstance(given, str) else str(given))
        is_number = isinstance(given, str | int | float) and not isinstance(given, bool)
        if not is_number or match is None or match[2] not in self.worth:
            raise UsageError(f"{key} is {given!r}: write {self.what} as {example or self.examples}")
        value = float(Decimal(match[1]) * Decimal(str(self.worth[match[2]])))  # exact: 0.19% is 0.0019
        if not 0 < value <= self.most or not math.isfinite(value):
            most = "" if self.most == float("inf") else f" and at most {self.tell(self.most)}"
            raise UsageError(f"{key} is {given!r}: it must be more than 0, finite{most}")
        return value

    def tell(self, value: float, digits: int = 3) -> str:
        """Write a value as people read it."""
        return self.told(value, digits)

    def tell_limit(self, value: float) -> str:
        """Write a limit as it was given."""
        return self.tell(value, limit_digits(value))

    def tell_apart(self, value: float, limit: float) -> tuple[str, str]:
        """Write a limit, and a value in as many digits as show which is larger; no value if six digits don't."""
        wanted = self.tell_limit(limit)
        for digits in range(3, 7):
            told = self.tell(value, digits)
            if self.tell(limit, digits) != told != wanted:
                return told, wanted
        return "", wanted  # all that is known of the value is on which side of the limit it lies


def _tell_share(value: float, digits: int) -> str:
    """Write a share in per cent; one below 100 % isn't rounded to that."""
    told = f"{100 * value:.{digits}g}"
    return f"{told} %" if told != "100" or not 0.99 < value < 1 or digits > 9 else _tell_share(value, digits + 1)


def _tell_error(value: float, digits: int) -> str:
    """Write a relative error in per cent: `0.188 %`, `1.3e-5 %`."""
    return f"{100 * value:.{digits}g} %".replace("e-0", "e-")


NANOSECONDS = Unit(
    what="a time with its unit", worth={"us": 1e3, "ms": 1e6, "s": 1e9}, examples="5ms, 800us or 2s", told=duration
)
BYTES = Unit(
    what="a size with its unit",
    worth={"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
    examples="250MB or 2GB",
    told=lambda value, digits: size(round(value), digits),
)
SHARE = Unit(
    what="a share with its unit",
    worth={"%": 0.01},
    examples="95%",
    told=_tell_share,
    most=1.0,
)
SCORE = replace(SHARE, what="a share", worth={"%": 0.01, "": 1.0}, examples="95% or 0.95")
"""Metrics give such scores as parts of one too; of a margin, a bare 1 may be meant as 1 %."""
PER_SECOND = Unit(
    what="a rate with its unit",
    worth={"/s": 1.0},
    examples="200/s",
    told=lambda value, digits: f"{number(value, digits)}/s",
)
PER_MILLION = Unit(
    what="a cost with its unit",
    worth={"/million": 1.0},
    examples="0.05/million",
    told=lambda value, digits: f"{value:.{digits}g} per million",
)
BARE = Unit(
    what="a plain number",
    worth={"": 1.0},
    examples="1e-3",
    told=lambda value, digits: f"{value:.{digits}g}".replace("e-0", "e-"),
)
RELATIVE = replace(BARE, what="a relative error", worth={"": 1.0, "%": 0.01}, examples="0.1% or 1e-3")
AN_HOUR = replace(BARE, what="the price of this machine an hour", examples="0.0893")


class Limit(StrEnum):
    """A figure that a policy can limit."""

    P99 = "p99"
    METRIC = "min-metric"
    MOST_METRIC = "max-metric"
    DROP = "max-drop"
    ERROR = "max-error"
    AGREEMENT = "min-agreement"
    MEMORY = "memory"
    SIZE = "size"
    INSTALL = "install"
    READY = "ready"
    RATE = "rate"
    COST = "cost"


@dataclass(frozen=True, slots=True)
class Quantity:
    """One key: its unit, an example, its words, and whether a value may be at `most` or must be at `least` this.

    Attributes:
        read_as: how it is written, if also in another unit than it is told in.
    """

    unit: Unit
    example: str
    words: str
    side: Literal["most", "least"] = "most"
    read_as: Unit | None = None

    @property
    def help(self) -> str:
        """Return its sentence."""
        return f"{self.words}, at {self.side}."


_DROP = replace(
    BARE,
    what="a drop in the metric's own unit, or a share of FP32's mean,",
    worth={"": 1.0, "pp": 0.01, "%": 0.01},
    examples="0.005, 0.5pp or 1%",
)
_P99 = "99th percentile of latency, under `load` if that is given"
_METRIC = "Mean of a metric of which higher is better, such as accuracy"
_LOSS = "Loss of the metric against plain FP32 on the same rows: 0.5pp, 0.005, or 1% of FP32's mean"
_ERROR = "Relative error against the FP64 reference outputs: 0.1% or 1e-3"
_AGREEMENT = "Metric against FP32's own outputs, or else the share of inputs with the reference's first class"
LIMITS: Mapping[Limit, Quantity] = {
    Limit.P99: Quantity(NANOSECONDS, "5ms", _P99),
    Limit.METRIC: Quantity(BARE, "0.9", _METRIC, "least"),
    Limit.MOST_METRIC: Quantity(BARE, "0.1", "Mean of a metric of which lower is better"),
    Limit.DROP: Quantity(BARE, "0.005", _LOSS, read_as=_DROP),
    Limit.ERROR: Quantity(replace(BARE, told=_tell_error), "0.1%", _ERROR, read_as=RELATIVE),
    Limit.AGREEMENT: Quantity(SCORE, "99%", _AGREEMENT, "least"),
    Limit.MEMORY: Quantity(BYTES, "500MB", "Peak memory of all its processes"),
    Limit.SIZE: Quantity(BYTES, "50MB", "Size of the model's files"),
    Limit.INSTALL: Quantity(BYTES, "250MB", "Disk space of the runtime and all that it needs"),
    Limit.READY: Quantity(NANOSECONDS, "2s", "Slowest start: time to load and answer a call"),
    Limit.RATE: Quantity(PER_SECOND, "200/s", "Items or requests a second", "least"),
    Limit.COST: Quantity(PER_MILLION, "0.05/million", "Cost of a million items or requests, by `price` and the rate"),
}


def write_limit(limit: Limit, value: float, *, is_share: bool = False) -> str:
    """Return a limit as it was given: `13MB`.

    Args:
        is_share: it is a share of plain FP32's own figure.
    """
    if is_share or (limit is Limit.ERROR and value >= LEAST_PER_CENT):
        return f"{100 * value:.12g}%"
    unit, worth = _choose_unit(limit, value)
    return f"{value / worth:.12g}{unit}".replace("e-0", "e-")


def write_loose_limit(limit: Limit, value: float) -> str:
    """Return the tightest limit of two digits that a figure above 0 meets: `13MB`."""
    if limit is Limit.ERROR and value >= LEAST_PER_CENT:
        return f"{(100 * Decimal(round_limit(value))).normalize():f}%"
    if LIMITS[limit].unit is SCORE and value < 1:  # of what lacks two digits count, or 99.93 % would be 99 %
        return f"{100 * (1 - float(round_limit(round(1 - value, 12)))):.10g}%"
    unit, worth = _choose_unit(limit, value)
    return f"{round_limit(value / worth, up=LIMITS[limit].side == 'most')}{unit}"


def _choose_unit(limit: Limit, value: float) -> tuple[str, float]:
    """Return the largest decimal unit of a limit that a value fills, and what it is worth."""
    decimal = [(worth, name) for name, worth in LIMITS[limit].unit.worth.items() if not name.endswith("iB")]
    worth, name = max((one for one in decimal if one[0] <= value), default=min(decimal))
    return name, worth


LEAST_PER_CENT = 1e-4
"""A smaller relative error is written as `1.3e-7`."""


FIDELITY = frozenset({Limit.METRIC, Limit.MOST_METRIC, Limit.DROP, Limit.ERROR, Limit.AGREEMENT})
"""The limits of what a precision costs."""


def limit_digits(value: float, least: int = 3) -> int:
    """Return in how many digits a limit is written as it was given: 4 for 99.95 %, whose last digit counts."""
    digits = len(Decimal(f"{value:.12g}").normalize().as_tuple().digits)
    return max(digits, least) if digits <= MOST_DIGITS else least
