"""Read `deploy.toml`: what a deployment needs, written down beside the model. All values but the price have a unit."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from shootout.core.constants import INDIFFERENT
from shootout.core.errors import UsageError, tell_refusal, unknown
from shootout.tell.limits import AN_HOUR, LIMITS, PER_SECOND, SHARE, Limit, write_limit

HOUR_S, MILLION = 3_600, 1e6

KEYS = ("objective", "indifferent", "load", "price", "contenders", "limits")
FEWEST_CONTENDERS, MOST_CONTENDERS, DEFAULT_CONTENDERS = 2, 4, 3


class Objective(StrEnum):
    """Name what is made best among those that meet every limit."""

    LATENCY = "latency"
    RATE = "rate"
    COST = "cost"
    SIZE = "size"
    INSTALL = "install"


EXACT = frozenset({Objective.SIZE, Objective.INSTALL})
"""Objectives that nothing measured is noisy of."""
BY_RATE = frozenset({Objective.RATE, Objective.COST})
TIMED = frozenset({Limit.P99, Limit.RATE, Limit.COST})
"""Limits that rest on how long calls take."""


class Policy(BaseModel):
    """Hold what a deployment needs; the limits in basic units (nanoseconds, bytes, shares, a second, per million).

    Attributes:
        indifferent: of two that differ by no more than this share, either may be shipped.
        load: requests a second that are to be served; None: one call after another.
        price: of the runs' machine, for an hour.
        contenders: how many targets a folder that chooses on landing holds. Three are the answer, the safe one and the
            next runtime; each one more has its own packages to install, and a share of the seconds to race.
        shares: limits that are a share of plain FP32's own figure, and not in its unit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    objective: Objective = Objective.LATENCY
    indifferent: float = INDIFFERENT
    load: float | None = None
    price: float | None = None
    contenders: int = DEFAULT_CONTENDERS
    limits: Mapping[Limit, float] = {}
    shares: frozenset[Limit] = frozenset()

    @property
    def asks_cost(self) -> bool:
        """Tell whether it optimizes or limits a cost."""
        return self.objective is Objective.COST or Limit.COST in self.limits

    @property
    def asks_time(self) -> bool:
        """Tell whether the objective or a limit rests on how long calls take."""
        return self.objective not in EXACT or bool(TIMED & self.limits.keys())

    def cost_at(self, rate: float) -> float:
        """Return the cost of a million items at so many a second; given a cost, the rate that has it."""
        return (self.price or 0.0) / (rate * HOUR_S) * MILLION

    def tell(self) -> str:
        """Write what it optimizes, its load and its limits on one line."""
        told = [f"policy: objective {self.objective}"]
        told += [f"load {PER_SECOND.tell(self.load)}"] if self.load else []
        for name, wanted in self.limits.items():
            told.append(f"{name} {'≤' if LIMITS[name].side == 'most' else '≥'} {LIMITS[name].unit.tell(wanted)}")
        return ", ".join(told)


def write_policy(policy: Policy) -> list[tuple[str, str]]:
    """Return the options of `shootout decide` that give a policy, names and values."""
    found = {**_write_keys(policy), **_write_limits(policy)}
    return [(f"--{key}", value) for key, value in found.items() if key != "contenders"]  # of no decision


def _write_keys(policy: Policy) -> dict[str, str]:
    """Write what a policy has beside its limits and other than by default."""
    usual = Policy()
    found = {
        "objective": str(policy.objective),
        "indifferent": f"{100 * policy.indifferent:.12g}%",
        "load": f"{policy.load or 0:.12g}/s",
        "price": f"{policy.price or 0:.12g}",
        "contenders": str(policy.contenders),
    }
    return {key: value for key, value in found.items() if getattr(policy, key) != getattr(usual, key)}


def _write_limits(policy: Policy) -> dict[str, str]:
    return {
        str(limit): write_limit(limit, value, is_share=limit in policy.shares) for limit, value in policy.limits.items()
    }


def write_toml(policy: Policy) -> str:
    """Return the text of a `deploy.toml` that gives a policy."""
    found = (_write_keys(policy), _write_limits(policy))
    keys, limits = ([f'{key} = "{value}"' for key, value in one.items()] for one in found)
    return "\n".join([*keys, "[limits]", *limits, ""])


PolicyLike = Policy | Mapping[str, Any] | str | PathLike[str]
"""A policy, its keys, or the path of its file."""


def as_policy(given: PolicyLike) -> Policy:
    """Return the policy as such.

    Raises:
        UsageError: as `read_policy`, or it is none of these.
    """
    if isinstance(given, Policy):
        return given
    if isinstance(given, str | PathLike):
        return read_policy(Path(given), {})
    if not isinstance(given, Mapping):
        raise UsageError(f"a policy is the path of a deploy.toml, or its keys as a dict; received {given!r}")
    return read_policy(None, given)


def read_policy(path: Path | None, changes: Mapping[str, Any]) -> Policy:
    """Return the policy of a file with changes on top, as its own keys; a limit's key changes that limit.

    Args:
        path: None: no file, the changes are all.

    Raises:
        UsageError: the file can't be read, a key that there isn't, or a value without its unit; names the key.
    """
    fields, limits = dict[str, Any](), dict[str, Any]()
    source = f"{path}: " if path else ""
    for given in (_read_file(path) if path else {}, changes):
        if not isinstance(own := given.get("limits", {}), Mapping):
            raise UsageError(f"{source}limits is a table: write [limits], or {{'p99': '5ms'}}; received {own!r}")
        limits |= {**own, **{key: value for key, value in given.items() if key in {*Limit}}}
        fields |= {key: value for key, value in given.items() if key not in {*Limit, "limits"}}
    try:
        return _check_fields(fields, limits)
    except UsageError as error:
        raise UsageError(f"{source}{error}") from None


def write_words(policy: Policy) -> str:
    """Return a policy as the words that may stand for its file: `p99=5ms,objective=size`."""
    return ",".join(f"{key}={value}" for key, value in {**_write_limits(policy), **_write_keys(policy)}.items())


def _read_file(path: Path) -> dict[str, Any]:
    """Read a policy's file, or the words that stand for it (`write_words`) if there is no file of that name."""
    if "=" in str(path) and path.suffix != ".toml" and not path.exists():
        return {key.strip(): value for key, _, value in (word.partition("=") for word in str(path).split(","))}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"can't read the policy {str(path)!r}: {tell_refusal(error)}") from None
    except ValueError as error:  # no text, or no TOML
        raise UsageError(f"{path} is not valid TOML: {error}") from None


def _check_fields(fields: Mapping[str, Any], limits: Mapping[str, Any]) -> Policy:
    for key in fields:
        if key not in KEYS:
            raise unknown("key", key, [*KEYS, *Limit])
    for key in limits:
        if key not in {*Limit}:
            raise unknown("limit", str(key), map(str, Limit))
    objective = fields.get("objective", Objective.LATENCY)
    if not isinstance(objective, str) or objective not in {*Objective}:
        raise unknown("objective", str(objective), map(str, Objective))
    units = {"indifferent": (SHARE, "5%"), "load": (PER_SECOND, ""), "price": (AN_HOUR, "")}
    policy = Policy(
        objective=Objective(objective),
        limits={Limit(key): read_limit(Limit(key), value) for key, value in limits.items()},
        shares=frozenset({Limit.DROP} if str(limits.get(Limit.DROP, "")).strip().endswith("%") else ()),
        contenders=_read_count(fields.get("contenders", DEFAULT_CONTENDERS)),
        **{key: unit.read(key, fields[key], example) for key, (unit, example) in units.items() if key in fields},
    )
    if policy.asks_cost and policy.price is None:
        user = "objective cost" if policy.objective is Objective.COST else "a limit on cost"
        raise UsageError(f"{user} needs the price of this machine an hour: write price = 0.0893, or --price 0.0893")
    return policy


def _read_count(given: Any) -> int:
    if isinstance(given, bool) or str(given) not in map(str, range(FEWEST_CONTENDERS, MOST_CONTENDERS + 1)):
        raise UsageError(f"contenders is a number from {FEWEST_CONTENDERS} to {MOST_CONTENDERS}, received {given!r}")
    return int(given)


def read_limit(limit: Limit, given: Any) -> float:
    """Return a limit in its basic unit; of a metric's drop it may be a share of plain FP32's mean.

    Raises:
        UsageError: it has no such unit.
    """
    return (LIMITS[limit].read_as or LIMITS[limit].unit).read(limit, given)
