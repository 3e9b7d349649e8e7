"""Write the keys of every JSON document and file, from the models that write them: as lists, and as JSON Schema."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter, create_model
from pydantic.fields import FieldInfo

from shootout.apps.judge.compare.compare import ComparedDocument
from shootout.apps.judge.compare.merge import MergedDocument
from shootout.apps.judge.decide.decision import Decision
from shootout.apps.judge.gate.verdict import Gate
from shootout.core.journal import records
from shootout.core.study.schema import Study, options_model
from shootout.tell.document import Document

PAGE_HEAD = """# JSON and file keys

The keys of what shootout writes or reads, made from the models in its code. [Files and JSON](../file-formats.md) says
which file holds what, and which formats are stable. The JSON Schema beside each title has the types, when a key is
null, and the rest of each meaning. A link leads to the keys of a part. [The journal's](schema/journal.json) stand in
its schema alone.
"""
DOCUMENTS: Mapping[str, tuple[str, str, Any]] = {
    "document": ("The document of a run", "`run --json`, `show RUN --json`, `--to FILE.json`", Document),
    "merged": ("Several machines", "`merge … --json`, `show DIR --json` of a merged folder", MergedDocument),
    "compared": ("Two runs compared", "`compare A B --json`", ComparedDocument),
    "decision": ("A decision", "`decide … --json`; as `decision`, also `run … --policy … --json`", Decision),
    "gate": ("A gate", "`gate … --json`", Gate),
    "study": (
        "A study file",
        "`run my-study.toml`",
        create_model("Study", __base__=(Study, options_model()), __doc__=Study.__doc__),
    ),
    "journal": ("A line of the journal", "`journal.jsonl` in a run folder; `kind` says which line it is", records.Line),
}
"""By the name of its schema file: the title, what prints or reads it, and its model."""
SHORT = 16
"""Words of a meaning that stand on the page whole."""
SCHEMA_ONLY = ("journal",)
"""Documents that only shootout reads, and so have no part of the page."""
COMMON = {
    "a": "the first of the two.",
    "a_ns": "its median in the first run.",
    "aim": "what must be known before the race ends.",
    "allocator_peak_bytes": "the most that the library's allocator held.",
    "arm": "the arm's label: what tables call the target, with its settings.",
    "arms": "labels of arms.",
    "artifact_bytes": "size of what is loaded.",
    "b": "the second of the two.",
    "b_ns": "its median in the second run.",
    "backend": "the backend's name.",
    "baseline": "the arm that ratios refer to.",
    "batch": "rows in one call.",
    "candidate": "the target that may take the reference's place, or that may be shipped.",
    "candidates": "all that were judged.",
    "cause": "what kind of reason it is.",
    "cells": "a question each: the same model with the same inputs at one size.",
    "changes": "what is another in the second run.",
    "chosen_by": "what chose among those that are tied.",
    "control": "the baseline's hidden copy.",
    "created": "when the run began, in UTC.",
    "description": "the question that the study answers.",
    "device": "where it computes.",
    "environment": "machine, operating system, CPU and GPU, memory, and versions of libraries.",
    "everywhere": "the one target to ship in all places; null with a `reason`.",
    "executed": "what the runtime itself says that it runs.",
    "export_s": "seconds to export the model.",
    "fate": "what becomes of the verdict on the pair from one place to another.",
    "fault": "what forbids to ship it besides the limits.",
    "fidelity": "its error against the reference outputs.",
    "first_call_s": "seconds of the first call.",
    "group": "the group's name.",
    "groups": "the groups of arms that are raced against each other.",
    "implied": "whether the policy limits nothing of the kind, so that the default does.",
    "kind": "which of its kinds it is.",
    "library": "the runtime's name.",
    "limit": "the most or the least that it may be.",
    "limits": "what it must keep to.",
    "load_s": "seconds to load it in a fresh process.",
    "machine": "the machine's key or name.",
    "median_ns": "the median of its restarts' median times.",
    "mode": "the word behind `+`.",
    "model": "the model's name, or the path of its file.",
    "moved": "the arms that both sessions timed.",
    "name": "its name.",
    "not_raced": "arms without a time, by reason.",
    "objective": "what is made least.",
    "outcome": "what became of it.",
    "output_bytes": "the model's outputs.",
    "pairs": "arms, two by two.",
    "parameters": "the model's parameters.",
    "place": "the place's name.",
    "places": "the runs, each on its machine.",
    "policy": "the policy that it was decided by, in basic units.",
    "precision": "what its label promises.",
    "probe": "what the permutation or grid probe found of the precision.",
    "quantizer": "`none`, `shared` (one model for all runtimes) or `vendor`.",
    "ratio": "its time ÷ the other's.",
    "ratios": "a's time ÷ b's, by place.",
    "reason": "why, in one line.",
    "recorded": "the folder that the reference came from.",
    "reference": "what the candidate is held against.",
    "restart": "the restart's number, from 0.",
    "restarts": "how many restarts it has.",
    "rows": "one for each arm, measured or not.",
    "run": "the run's folder.",
    "runs": "the runs' folders.",
    "scenario": "what is measured, in the word of `--scenario`.",
    "schema": "the version of this form.",
    "scheme": "the words behind the slash of its target.",
    "sessions": "how many earlier sessions the floor was learned from; 0: it is assumed.",
    "settings": "`closed` (vendor defaults) or `tuned`.",
    "standing": "how its figure stands to the limit.",
    "study": "the study's name.",
    "sure": "how well founded the choice is.",
    "target": "the target, in its parts.",
    "title": "what is decided, in words.",
    "value": "the figure as measured.",
    "verdict": "what its interval says.",
    "version": "of the library.",
    "wall_s": "seconds in all.",
    "warnings": "what a reader must know, a line each.",
    "what": "what differs.",
    "within": "of `resolve`, 0.03 is ±3 %; of `limit`, 0.05 is 5 % slower.",
    "work": "what one call of the model takes, whatever runs it.",
    "would_change": "what else would be shipped, and when.",
}
"""Meanings of keys that bear one name in several parts, for each part whose own docstring says nothing of it."""
_ATTRIBUTE = re.compile(r"    (\w+(?:, \w+)*): (.*)")


def write_keys() -> str:
    """Write a list of keys for every document, and one for each part that documents are made of."""
    told: set[Any] = set()
    lines = [PAGE_HEAD]
    for name, (title, printed, model) in DOCUMENTS.items():
        if name not in SCHEMA_ONLY:
            lines.append(f"## {title}\n\n{printed}: [{name}.json](schema/{name}.json).\n")
            for part in list_parts(model):
                if part not in told:
                    lines.append(_list(part, told))
                    told.add(part)
    return "\n".join(lines)


def write_schemas() -> dict[str, dict[str, Any]]:
    """Return each document's JSON Schema, with the meaning of each key that has one."""
    return {name: _describe(TypeAdapter(model), model) for name, (_, _, model) in DOCUMENTS.items()}


def _describe(adapter: TypeAdapter[Any], model: Any) -> dict[str, Any]:
    schema = adapter.json_schema(mode="serialization", by_alias=True)
    parts = {part.__name__: part for part in list_parts(model)}
    definitions = {**schema.get("$defs", {}), schema.get("title", ""): schema}
    for name, definition in definitions.items():
        keys = dict(list_keys(parts[name])) if name in parts else {}
        definition.pop("description", None)  # the class's whole docstring, of which each key now has its part
        for key, told in definition.get("properties", {}).items():
            if keys.get(key):
                told["description"] = keys[key]
    return schema


def list_keys(part: Any) -> Iterator[tuple[str, str]]:
    """Yield the name and the meaning of each key of a model that is written to JSON."""
    meanings = read_meanings(part)
    for name, (_, info) in _fields(part).items():
        if info is None or not info.exclude:
            key = (info.serialization_alias if info else None) or name
            yield key, meanings.get(name) or (info and info.description) or COMMON.get(key, "")


def read_meanings(part: Any) -> dict[str, str]:
    """Return what the docstrings of a class and of the classes that it extends say of each attribute."""
    found: dict[str, str] = {}
    for kind in reversed(part.__mro__):
        names: tuple[str, ...] = ()
        told = kind.__dict__.get("__doc__") or ""
        _, _, attributes = inspect.cleandoc(told).partition("Attributes:\n")
        for line in attributes.splitlines():
            if started := _ATTRIBUTE.match(line):
                names = tuple(started[1].split(", "))
                found |= dict.fromkeys(names, started[2].strip())
            elif line.startswith("        "):
                found |= {name: f"{found[name]} {line.strip()}" for name in names}
            elif line:
                break
    return found


def _fields(part: Any) -> dict[str, tuple[Any, FieldInfo | None]]:
    """Return the type of each field, and what pydantic was told of it."""
    if issubclass(part, BaseModel):
        return {name: (info.annotation, info) for name, info in part.model_fields.items()}
    hints = typing.get_type_hints(part, include_extras=True)
    found = {}
    for one in dataclasses.fields(part):
        annotation, *extras = typing.get_args(hints[one.name]) if _is_annotated(hints[one.name]) else (hints[one.name],)
        found[one.name] = (annotation, next((extra for extra in extras if isinstance(extra, FieldInfo)), None))
    return found


def _is_annotated(annotation: Any) -> bool:
    return typing.get_origin(annotation) is typing.Annotated


def _is_part(annotation: Any) -> bool:
    is_class = inspect.isclass(annotation) and not issubclass(annotation, Enum)
    return is_class and (issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation))


def list_parts(model: Any) -> list[Any]:
    """Return the models that a document is made of, the outermost first and each once."""
    found: list[Any] = []
    queue = _inner_parts(model)
    while queue:
        part = queue.pop(0)
        if part not in found:
            found.append(part)
            kept = (kind for kind, info in _fields(part).values() if info is None or not info.exclude)
            queue += [inner for kind in kept for inner in _inner_parts(kind)]
    return found


def _inner_parts(annotation: Any) -> list[Any]:
    if _is_part(annotation):
        return [annotation]
    return [part for inner in typing.get_args(annotation) for part in _inner_parts(inner)]


def _list(part: Any, told: Collection[Any]) -> str:
    """Write the keys of a part, without those of a part that it extends and that the page has told."""
    below = next((kind for kind in part.__mro__[1:] if kind in told), None)
    inherited = _fields(below) if below else {}
    types = {(info and info.serialization_alias) or name: kind for name, (kind, info) in _fields(part).items()}
    also = f"The keys of [{below.__name__}](#{below.__name__.lower()}), and:\n\n" if below else ""
    own = [(key, _shorten(meaning)) for key, meaning in list_keys(part) if key not in inherited]
    lines = [f"- `{key}`: {meaning}{_link(types[key], meaning)}\n" for key, meaning in own]
    return f"### {part.__name__}\n\n{also}{''.join(lines)}"


def _shorten(meaning: str) -> str:
    """Return the first sentence of a meaning in JSON's words; of a long one what stands before its semicolon."""
    first = re.split(r"(?<=[\w`)])(?:\. |\.$|; null )", meaning)[0]
    if len(first.split()) > SHORT:
        first = first.partition("; ")[0]
    return re.sub(r"\bNone\b", "null", first)


def _link(annotation: Any, meaning: str) -> str:
    """Return where the keys of a key's parts stand, or the words that it may be, if its meaning has none of them."""
    words = [f"`{one}`" for one in _inner_words(annotation)]
    told = [f"[{part.__name__}](#{part.__name__.lower()})" for part in _inner_parts(annotation)] or words
    return f" ({', '.join(told)})" if told and not any(one in meaning for one in words) else ""


def _inner_words(annotation: Any) -> list[str]:
    if inspect.isclass(annotation) and issubclass(annotation, Enum):
        return [str(one.value) for one in annotation]
    inner = typing.get_args(annotation)
    if typing.get_origin(annotation) is Literal:
        return list(map(str, inner))
    return [word for one in inner for word in _inner_words(one)]
