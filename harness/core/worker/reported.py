"""Checks of what an adapter says of itself, before the harness believes it: any third party may have written it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.core.contract import Capabilities, Executed
from shootout.core.errors import ArmFailed, shorten

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_LARGEST = 2**63 - 1
"""The largest integer that tables, Parquet and other programs' JSON can hold."""
MOST_LINES, MOST_LETTERS = 100, 500
"""The most fallbacks, layers or notes that are kept, and letters of each: people read them. The rest is counted."""
MOST_ACCOUNT_BYTES = 1 << 17
"""The most of an account without these lines, and of what is kept of a build: the journal has both for every arm."""
_AMOUNTS = ("threads", "artifact_bytes", "conversion_nodes")


def check_type(kind: Any, value: Any, place: str) -> Any:
    """Return a value of this type down to the last field of its records, which may have been made with any.

    Args:
        place: where it comes from, for the error.

    Raises:
        ArmFailed: it is of another.
        AttributeError: a record lacks a field.
    """
    from pydantic import ValidationError

    try:
        (checked,) = _type_adapter(kind).validate_python((value,))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(_replace_surrogates, map(str, first["loc"][1:])))
        what = f"{where} is {_show_value(first['input'])}: " if where else f"{_show_value(first['input'])}: "
        raise ArmFailed(f"{place}{what}{first['msg']}") from None
    return checked


@cache
def _type_adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter

    config = ConfigDict(revalidate_instances="always", arbitrary_types_allowed=True)
    return TypeAdapter(tuple[kind], config=config)  # a record by itself would not be looked into


def check_answer(kind: Any, said: Any, place: str) -> Any:
    """Return what a worker answered, of this type, if it can be kept and shown."""
    checked = check_type(kind, said, place)
    if fault := find_fault(checked):
        raise ArmFailed(place + fault)
    return checked


def check_account(executed: Executed) -> Executed:
    """Return the runtime's account with the types and amounts it must have to be kept and shown.

    Of many fallbacks, or layers, the first are kept, and the others counted.

    Raises:
        ArmFailed: it has others, and they mean nothing.
    """
    place = "its account of what it ran: "
    checked: Executed = check_answer(Executed, executed, place)
    fallbacks, layers = map(_limit_lines, (checked.fallbacks, checked.layers_in_float))
    checked = replace(checked, fallbacks=fallbacks, layers_in_float=layers)
    if below := [name for name in _AMOUNTS if (getattr(checked, name) or 0) < 0]:
        raise ArmFailed(f"{place}{below[0]} is negative")
    _check_size(asdict(replace(checked, fallbacks=(), layers_in_float=())), place)
    return checked


def _check_size(facts: Mapping[str, Any], place: str) -> None:
    if (size := len(json.dumps(facts))) > MOST_ACCOUNT_BYTES:
        raise ArmFailed(f"{place}it takes {size:,} bytes, and may take {MOST_ACCOUNT_BYTES:,}")


def _limit_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Cut lines that are too long, and count those that are too many."""
    kept = [shorten(one, MOST_LETTERS) for one in lines[:MOST_LINES]]
    more = len(lines) - len(kept)
    return (*kept, *([f"and {more:,} more"] if more else []))


def check_capabilities(can: Any) -> Capabilities:
    """Return what an adapter says it can be asked.

    Raises:
        ArmFailed: a plan can't be made of it.
    """
    if not isinstance(can, Capabilities):
        raise ArmFailed(f"its capabilities are a {type(can).__name__}, not Capabilities")
    place = "its capabilities: "
    if fault := find_fault(can):
        raise ArmFailed(place + fault)
    checked: Capabilities = check_type(Capabilities, can, place)
    if not checked.consumes or not (checked.targets or checked.native):
        raise ArmFailed(f"{place}there is nothing that it takes, or nothing that it runs")
    return checked


def check_facts(said: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a build says of itself, if the tables can be made of it and the journal can hold what it keeps of it.

    Raises:
        ArmFailed: they can't.
    """
    from pydantic import JsonValue

    kinds = {"artifact_bytes": int, "compute_nodes_by_precision": dict[str, int], "notes": tuple[str, ...]}
    place = "what it says of its build: "
    check_answer(dict[str, JsonValue], said, place)
    for name, kind in kinds.items():
        if said.get(name) is not None:
            check_type(kind, said[name], f"{place}{name}: ")
    _check_size({name: said.get(name) for name in kinds if name != "notes"}, place)
    return {**said, "notes": [*_limit_lines(said["notes"])]} if said.get("notes") else said


def find_fault(value: Any) -> str:
    """Return the first value that is no finite amount of at most 64 bits, or no Unicode, and the way to it; "" for
    none.

    Arrays are readings.
    """
    if is_dataclass(value):
        return _first_fault((one.name, getattr(value, one.name)) for one in fields(value))
    if isinstance(value, Mapping):
        return _first_fault((str(key), one) for key, inner in value.items() for one in (key, inner))
    if isinstance(value, list | tuple):
        return _first_fault((str(index), one) for index, one in enumerate(value))
    if isinstance(value, np.ndarray):
        are_readings = value.ndim == 1 and value.dtype.kind in "iuf" and value.size > 0
        if are_readings and bool(np.isfinite(value).all() and (value > 0).all()):
            return ""
        return "it has no readings, or some that no clock can give"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not an amount"
    if isinstance(value, int) and abs(value) > _LARGEST:
        return "a number of more than 64 bits"
    if isinstance(value, str) and value != _replace_surrogates(value):
        return "text that is no Unicode"
    return ""


def _first_fault(named: Iterable[tuple[str, Any]]) -> str:
    return next((f"{_replace_surrogates(name)}: {fault}" for name, value in named if (fault := find_fault(value))), "")


def _show_value(value: Any) -> str:
    """Return a value for people; if its repr fails, as that of an endless number does, its type."""
    try:
        return _replace_surrogates(repr(value))[:100]
    except Exception:
        return f"a {type(value).__name__}"


def _replace_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
