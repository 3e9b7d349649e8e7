"""Write the keys of every JSON document and file, from the models that write them: as tables, and as JSON Schema."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from shootout.compare.document import ComparedDocument, MergedDocument
from shootout.decide.decision import Decision
from shootout.gate.verdict import Gate
from shootout.journal import records
from shootout.results.document import Document
from shootout.study.schema import Study

PAGE_HEAD = """# JSON and file keys

Every key that shootout writes or reads, made from the models in its code. [Files and JSON](../file-formats.md) says which file
holds what, and which formats are stable. Times are nanoseconds or seconds, as the key's name says. A key is null if the figure
isn't known.
"""
DOCUMENTS: Mapping[str, tuple[str, str, Any]] = {
    "document": ("The document of a run", "`run --json`, `show RUN --json`, `--to FILE.json`", Document),
    "merged": ("Several machines", "`merge … --json`, `show DIR --json` of a merged folder", MergedDocument),
    "compared": ("Two runs compared", "`compare A B --json`", ComparedDocument),
    "decision": ("A decision", "`decide … --json`; `decision` in the document of `show RUN --policy … --json`", Decision),
    "gate": ("A gate", "`gate … --json`", Gate),
    "study": ("A study file", "`run my-study.toml`", Study),
    "journal": ("A line of the journal", "`journal.jsonl` in a run folder; `kind` says which line it is", records.Line),
}
"""By the name of its schema file: the title, what prints or reads it, and its model."""
SIMPLE = {bool: "true or false", int: "whole number", float: "number", str: "text", type(None): "null"}
_ATTRIBUTE = re.compile(r"    (\w+(?:, \w+)*): (.*)")


def write_keys() -> str:
    """Write a table of keys for every document, and one for each part that documents are made of."""
    told: set[Any] = set()
    lines = [PAGE_HEAD]
    for name, (title, printed, model) in DOCUMENTS.items():
        lines.append(f"## {title}\n\nOf {printed}. As JSON Schema: [{name}.json](schema/{name}.json).\n")
        for part in _list_parts(model):
            if part not in told:
                told.add(part)
                lines.append(_table(part))
    return "\n".join(lines)


def write_schemas() -> dict[str, dict[str, Any]]:
    """Return each document's JSON Schema, with the meaning of each key that has one."""
    return {name: _describe(TypeAdapter(model), model) for name, (_, _, model) in DOCUMENTS.items()}


def _describe(adapter: TypeAdapter[Any], model: Any) -> dict[str, Any]:
    schema = adapter.json_schema(mode="serialization", by_alias=True)
    parts = {part.__name__: part for part in _list_parts(model)}
    definitions = {**schema.get("$defs", {}), schema.get("title", ""): schema}
    for name, definition in definitions.items():
        keys = {key: meaning for key, _, meaning in list_keys(parts[name])} if name in parts else {}
        definition.pop("description", None)  # the class's whole docstring, of which each key now has its part
        for key, told in definition.get("properties", {}).items():
            if keys.get(key):
                told["description"] = keys[key]
    return schema


def list_keys(part: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the type and the meaning of each key of a model that is written to JSON."""
    meanings = read_meanings(part)
    for name, (annotation, info) in _fields(part).items():
        if info is not None and info.exclude:
            continue
        key = (info.serialization_alias if info else None) or name
        yield key, _name_type(annotation), meanings.get(name, "")


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


def _list_parts(model: Any) -> list[Any]:
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


def _name_type(annotation: Any) -> str:
    """Return a type in words for people."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in SIMPLE:
        return SIMPLE[annotation]
    if _is_part(annotation):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    if inspect.isclass(annotation) and issubclass(annotation, Enum):
        return " or ".join(f"`{one.value}`" for one in annotation)
    if origin is Literal:
        return " or ".join(f"`{one}`" for one in inner)
    if origin is typing.Annotated:
        return _name_type(inner[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_name_type, inner)))
    if origin in (tuple, list, Sequence, frozenset):
        return f"list of {' and '.join(dict.fromkeys(_name_type(one) for one in inner if one is not Ellipsis))}"
    if origin in (dict, Mapping):
        return f"object of {_name_type(inner[1])}"
    return "any" if annotation is Any else "text"


def _table(part: Any) -> str:
    rows = "".join(f"| `{key}` | {kind} | {_cell(meaning)} |\n" for key, kind, meaning in list_keys(part))
    summary = inspect.cleandoc(part.__doc__ or "").partition("\n\n")[0]
    return f"### {part.__name__}\n\n{summary}\n\n| key | type | meaning |\n|---|---|---|\n{rows}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
