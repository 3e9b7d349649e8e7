"""What an adapter says of itself is checked before the harness believes it: it may be anybody's code."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from shootout.contract import Capabilities, Executed
from shootout.errors import ArmFailed, explained
from shootout.trace_events import Event

_LARGEST = 2**63 - 1
"""What tables, Parquet and other programs' JSON can hold."""
_ACCOUNT = "its account of what it ran: "
_AMOUNTS = ("threads", "artifact_bytes", "conversion_nodes")


def account(executed: Executed) -> Executed:
    """The runtime's account with the types and amounts it must have, or it could not be kept and shown.

    Raises:
        ArmFailed: it has others, and they mean nothing.
    """
    found: Executed = _typed(Executed, asdict(executed), _ACCOUNT)
    fault = _fault(asdict(found)) or next((f"{name} is negative" for name in _AMOUNTS if _below(found, name)), "")
    if fault:
        raise ArmFailed(_ACCOUNT + fault)
    return found


def capabilities(said: Mapping[str, Any]) -> Capabilities:
    """What an adapter says it can be asked, `rest` as pairs.

    Raises:
        ArmFailed: a plan can't be made of it.
    """
    place = "its capabilities: "
    if fault := _fault(said):
        raise ArmFailed(place + fault)
    try:
        rest = dict(_pairs(said["rest"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ArmFailed(f"{place}rest: {explained(error)}") from None
    found: Capabilities = _typed(Capabilities, {**said, "rest": rest}, place)
    if not found.consumes or not (found.targets or found.native):
        raise ArmFailed(f"{place}there is nothing that it takes, or nothing that it runs")
    return found


def _pairs(said: Any) -> Iterable[tuple[Any, Any]]:
    return ((tuple(key), value) for key, value in said)


def facts(said: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a build says of itself, if the tables can be made of it.

    Raises:
        ArmFailed: they can't.
    """
    kinds = {"artifact_bytes": int, "compute_nodes_by_precision": dict[str, int], "notes": tuple[str, ...]}
    place = "what it says of its build: "
    if fault := _fault(said):
        raise ArmFailed(place + fault)
    for name, kind in kinds.items():
        if said.get(name) is not None:
            _typed(kind, said[name], f"{place}{name}: ")
    return said


def events(told: Iterable[Event]) -> tuple[Event, ...]:
    """What a profiler tells, as plain JSON values.

    Raises:
        ArmFailed, TypeError, ValueError: nothing can be drawn of it.
    """
    found: list[Event] = json.loads(json.dumps([dict(one) for one in told], allow_nan=False))
    if fault := _fault(found):
        raise ArmFailed(fault)
    for one in found:
        lasts = one.get("ph") == "X" and one.get("dur") is not None
        _typed(str, one.get("name"), "an event's name: ")
        for name in ("ts", "dur") if lasts else ():
            _typed(float, one.get(name), f"an event's {name}: ")
    return tuple(found)


def amounts(told: Iterable[Any]) -> list[float]:
    """Numbers that a session tells.

    Raises:
        ArmFailed: one is no finite amount, or negative.
    """
    found: list[float] = _typed(list[float], list(told), "")
    if wrong := [one for one in found if not math.isfinite(one) or one < 0]:
        raise ArmFailed(f"{wrong[0]} is no amount")
    return found


def _typed(kind: Any, value: Any, place: str) -> Any:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(_safe, map(str, first["loc"])))
        told = f"{where} is {_shown(first['input'])}: " if where else f"{_shown(first['input'])}: "
        raise ArmFailed(f"{place}{told}{first['msg']}") from None


def _below(executed: Executed, name: str) -> bool:
    amount: int | None = getattr(executed, name)
    return amount is not None and amount < 0


def _fault(told: Any) -> str:
    """The first value that is no finite amount of at most 64 bits, or no Unicode, and the way to it; "" for none."""
    if isinstance(told, Mapping):
        return _first((str(key), one) for key, value in told.items() for one in (key, value))
    if isinstance(told, list | tuple):
        return _first((str(index), one) for index, one in enumerate(told))
    if isinstance(told, float) and not math.isfinite(told):
        return f"{told} is no amount"
    if isinstance(told, int) and abs(told) > _LARGEST:
        return "a number of more than 64 bits"
    if isinstance(told, str) and told != _safe(told):
        return "text that is no Unicode"
    return ""


def _first(named: Iterable[tuple[str, Any]]) -> str:
    return next((f"{_safe(name)}: {fault}" for name, value in named if (fault := _fault(value))), "")


def _shown(value: Any) -> str:
    """A value for people; one whose own words break, as those of an endless number do, by its type."""
    try:
        return _safe(repr(value))[:100]
    except Exception:
        return f"a {type(value).__name__}"


def _safe(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
