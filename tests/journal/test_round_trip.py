"""Every record comes back as it was written, whatever is in it that a run can have measured."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from pydantic import BaseModel, ValidationError
from support.races.made import header, rounds, write

from shootout.core.contract import Arm, Value
from shootout.core.journal import journal
from shootout.core.journal.records import SCHEMA, Header, Line, Played, Record
from shootout.core.messages import Scores
from shootout.core.stats.goals import Goal
from shootout.core.study.group import GroupRecord

KINDS: tuple[type[Record], ...] = typing.get_args(typing.get_args(Line)[0])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
WHOLE = st.integers(0, 2**63 - 1)
PLAIN = st.recursive(TEXT | WHOLE | st.none() | st.booleans(), lambda inner: st.lists(inner, max_size=2), max_leaves=3)
LEAVES: Mapping[Any, SearchStrategy[Any]] = {
    str: TEXT,
    int: WHOLE,
    float: st.floats(0.0, 2.0**62),
    bool: st.booleans(),
    NoneType: st.none(),
    Any: PLAIN,
    Value: WHOLE | st.floats(allow_nan=False, allow_infinity=False) | TEXT | st.booleans(),
    Goal: st.sampled_from([Goal()]),
    object: PLAIN,
}
"""By type; no number is negative or without end (`records.is_possible`)."""


@cache
def of(kind: Any) -> SearchStrategy[Any]:
    """Values of a type, as the records' fields have them."""
    if kind in LEAVES:
        return LEAVES[kind]
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return of(inner[0])
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, UnionType):
        return st.one_of([of(one) for one in inner])
    if origin is tuple and inner[-1] is Ellipsis:
        least = 1 if inner[0] in (GroupRecord, Arm) else 0
        return st.lists(of(inner[0]), min_size=least, max_size=2, unique_by=repr).map(tuple)
    if origin is tuple:
        return st.tuples(*map(of, inner))
    if origin is not None:
        return st.dictionaries(of(inner[0]), of(inner[1]), max_size=2)
    if issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    hints = typing.get_type_hints(kind, include_extras=True)
    if issubclass(kind, BaseModel):
        names = list(kind.model_fields)
    else:
        names = [one.name for one in dataclasses.fields(kind) if one.init]
    if kind is Scores:  # of several outputs: one holds the others
        names.remove("other_outputs")
    fixed = {"schema_version": st.just(SCHEMA)} if kind is Header else {}
    return st.fixed_dictionaries({**{name: of(hints[name]) for name in names}, **fixed}).flatmap(
        lambda facts: _made(kind, facts)
    )


def _made(kind: Any, facts: dict[str, Any]) -> SearchStrategy[Any]:
    try:
        return st.just(kind(**facts))
    except (ValidationError, ValueError):
        return st.nothing()


@settings(max_examples=5)
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_it_comes_back(kind: type[Record], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    line = data.draw(of(kind))
    end = [rounds(line.restart).model_copy(update={"group": line.group})] if isinstance(line, Played) else []
    found = journal.read(write(tmp_path_factory.mktemp("run"), *([] if kind is Header else [header()]), line, *end))
    assert not found.damaged
    assert repr(found.lines[-1 - len(end)]) == repr(line)
