"""Read `deploy.toml`: what a deployment needs, written down beside the model; and write one to start from.

Every value has its unit, and nothing has a price that the file doesn't give with its source and date.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from shootout.constants import INDIFFERENT
from shootout.decide.options import LIMITS, PER_SECOND, SHARE, Limit, write_option
from shootout.errors import UsageError, tell_refusal, unknown

UTILIZATION = 0.7
"""The share that is counted on of what a machine was measured to do at most."""

STALE_DAYS = 180
"""A price that is older is warned of."""

KEYS = ("objective", "indifferent", "load", "utilization", "limits", "machine")

MACHINE_KEYS = ("match", "price", "currency", "source", "as-of")


class Objective(StrEnum):
    """What is made best among those that meet every limit."""

    LATENCY = "latency"
    RATE = "rate"
    CPU = "cpu"
    COST = "cost"
    SIZE = "size"
    INSTALL = "install"


class Priced(BaseModel):
    """What a machine costs an hour, as it is rented.

    Attributes:
        match: what its key or its name holds.
        source, as_of: where the price stands, and when it did.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    match: str
    price: float
    currency: str
    source: str
    as_of: date

    def is_for(self, key: str, name: str) -> bool:
        """Tell whether it is a machine of this key and name."""
        return self.match == key or self.match.casefold() in name.casefold()


class Policy(BaseModel):
    """What a deployment needs; the limits in basic units (nanoseconds, bytes, shares, a second, an hour).

    Attributes:
        indifferent: of two that differ by no more than this share, either may be shipped.
        load: requests a second that are to be served; None: one call after another.
        utilization: of a machine's measured rate, the share that is counted on.
        shares: limits that are a share of plain FP32's own figure, and not in its unit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    objective: Objective = Objective.LATENCY
    indifferent: float = INDIFFERENT
    load: float | None = None
    utilization: float = UTILIZATION
    limits: Mapping[Limit, float] = {}
    shares: frozenset[Limit] = frozenset()
    machines: tuple[Priced, ...] = ()

    def warnings(self, today: date) -> Iterable[str]:
        """Yield prices that may not be so any more."""
        for one in self.machines:
            if (days := (today - one.as_of).days) > STALE_DAYS:
                yield f"the price of {one.match!r} is {days} days old ({one.source}, {one.as_of})"

    @property
    def asks_cost(self) -> bool:
        """Tell whether it counts the machines that the load takes."""
        return self.objective is Objective.COST or Limit.COST in self.limits

    @property
    def currency(self) -> str:
        """Return the currency of all prices; "" without any."""
        return next((one.currency for one in self.machines), "")


def write_policy(policy: Policy) -> list[str] | None:
    """Return the options of `shootout decide` that give a policy; None if it has prices, whose sources are long."""
    if policy.machines:
        return None
    usual = read_policy(None, {})
    objective = [f"--objective {policy.objective}"] if policy.objective is not usual.objective else []
    shares = [
        f"--{name} {100 * value:.12g}%"
        for name, value, other in (
            ("indifferent", policy.indifferent, usual.indifferent),
            ("utilization", policy.utilization, usual.utilization),
        )
        if value != other
    ]
    load = [] if policy.load is None else [f"--load {policy.load:.12g}/s"]
    return [*objective, *shares, *load, *(write_option(*one) for one in policy.limits.items())]


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
    keys, limits = {name: value for name, value in given.items() if name != "limits"}, given.get("limits", {})
    if not isinstance(limits, Mapping):
        raise UsageError(f"limits is a dict such as {{'p99': '5ms'}}; received {limits!r}")
    for name in limits:
        if name not in {*Limit}:
            raise unknown("limit", str(name), Limit)
    return read_policy(None, {**keys, **limits})


def read_policy(path: Path | None, changes: Mapping[str, Any]) -> Policy:
    """Return the policy of a file with changes on top, as its own keys; a limit's key changes that limit.

    Args:
        path: None: no file, the changes are all.

    Raises:
        UsageError: the file can't be read, a key that there isn't, or a value without its unit; names the key.
    """
    fields = dict(_read_file(path)) if path else {}
    source = f"{path}: " if path else ""
    if not isinstance(fields.get("limits", {}), dict):
        raise UsageError(f"{source}limits is a table: write [limits]")
    machines = _check_tables(source, fields.get("machine", ()))
    limits = {key: value for key, value in changes.items() if key in {*Limit}}
    own = {key: value for key, value in changes.items() if key not in limits}
    machines = [*_check_tables("", own.pop("machine", ())), *machines]
    merged = {**fields, **own, "limits": {**fields.get("limits", {}), **limits}, "machine": machines}
    try:
        return _check_fields(merged)
    except UsageError as error:
        raise UsageError(f"{source}{error}") from None


def _check_tables(source: str, machines: Any) -> Sequence[Mapping[str, Any]]:
    if isinstance(machines, list | tuple) and all(isinstance(one, Mapping) for one in machines):
        return machines
    raise UsageError(f"{source}machine is a list of tables: write [[machine]]")


def _read_file(path: Path) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for, a device has no end
            raise UsageError(f"can't read the policy {str(path)!r}: it is not a regular file: name a deploy.toml")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"can't read the policy {str(path)!r}: {tell_refusal(error)}") from None
    except UnicodeDecodeError:
        raise UsageError(f"can't read the policy {str(path)!r}: it is not a text file: save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None


def _check_fields(fields: Mapping[str, Any]) -> Policy:
    for key in fields:
        if key in {*Limit}:
            raise UsageError(f"{key} is a limit: write it below [limits]")
        if key not in KEYS:
            raise unknown("key", key, KEYS)
    for key in fields["limits"]:
        if key not in {*Limit}:
            raise unknown("limit", key, map(str, Limit))
    objective = fields.get("objective", Objective.LATENCY)
    if not isinstance(objective, str) or objective not in {*Objective}:
        raise unknown("objective", str(objective), map(str, Objective))
    machines = tuple(_read_machine(one) for one in fields["machine"])
    if len(currencies := sorted({one.currency for one in machines})) > 1:
        raise UsageError(f"prices are in {' and '.join(currencies)}: give all machines' prices in one currency")
    policy = Policy(
        objective=Objective(objective),
        indifferent=SHARE.read("indifferent", fields.get("indifferent", f"{100 * INDIFFERENT:g}%"), "5%"),
        load=PER_SECOND.read("load", fields["load"]) if "load" in fields else None,
        utilization=SHARE.read("utilization", fields.get("utilization", f"{100 * UTILIZATION:g}%")),
        limits={Limit(key): read_limit(Limit(key), value) for key, value in fields["limits"].items()},
        shares=frozenset(Limit(key) for key, value in fields["limits"].items() if _is_share(Limit(key), value)),
        machines=machines,
    )
    _refuse_costless(policy)
    return policy


def read_limit(limit: Limit, given: Any) -> float:
    """Return a limit in its basic unit; of a metric's drop it may be a share of plain FP32's mean.

    Raises:
        UsageError: it has no such unit.
    """
    return (LIMITS[limit].read_as or LIMITS[limit].unit).read(limit, given)


def _is_share(limit: Limit, given: Any) -> bool:
    return limit is Limit.METRIC_DROP and str(given).strip().endswith("%")


def _refuse_costless(policy: Policy) -> None:
    """Refuse a policy that needs a cost and gives nothing to reckon it from."""
    user = "objective cost" if policy.objective is Objective.COST else "a limit on cost"
    if not policy.asks_cost:
        return
    if policy.load is None:
        raise UsageError(f'{user} needs a load: write load = "200/s"')
    if not policy.machines:
        raise UsageError(f"{user} needs the price of each machine: a [[machine]] with {', '.join(MACHINE_KEYS)}")


def _read_machine(given: Mapping[str, Any]) -> Priced:
    name = f"the machine {given['match']!r}" if "match" in given else "a machine"
    for key in given:
        if key not in MACHINE_KEYS:
            raise unknown(f"key of {name}", key, MACHINE_KEYS)
    for key in MACHINE_KEYS:
        if given.get(key) in (None, ""):
            raise UsageError(f"{name} has no {key}: a price needs {', '.join(MACHINE_KEYS)}")
    price, as_of = given["price"], given["as-of"]
    if isinstance(price, bool) or not isinstance(price, int | float) or not 0 < price < float("inf"):
        raise UsageError(f"the price of {name} is {price!r}: write the price of an hour as a number, 0.0893")
    if isinstance(as_of, str):
        try:
            as_of = date.fromisoformat(as_of)
        except ValueError:
            raise UsageError(f"as-of of {name} is {as_of!r}: write a date as 2026-11-20") from None
    if type(as_of) is not date:
        raise UsageError(f"as-of of {name} is {as_of!r}: write a date as 2026-11-20")
    texts = {key: given[key] for key in ("match", "currency", "source")}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise UsageError(f"{key} of {name} is {value!r}: write a text")
    return Priced(price=float(price), as_of=as_of, **texts)
