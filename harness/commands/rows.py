"""Find the reader of what a user gives as `--texts`, `--images` or `--data`, which makes a study's rows of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shootout.core import plugins
from shootout.core.errors import UsageError
from shootout.models.data.columns import as_file, names_column
from shootout.models.readers.reader import Reader

READERS = "shootout.models.readers"
OPTIONS = ("texts", "images", "data")
"""The keywords of `run` that readers take."""


def take_rows(model: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a study that take the place of readers' options; none if there are no such options.

    Args:
        model: see `Reader.read`.
        given: the keywords of `run` that were given.

    Raises:
        UsageError: as `Reader.read`, or two options give rows, or one means nothing here.
    """
    given = {name: value for name, value in given.items() if value is not None}
    named = [option for option in OPTIONS if option in given]
    both = [*named, *(["inputs"] if "inputs" in given else [])]
    if named and len(both) > 1:
        raise UsageError(f"--{both[0]} and --{both[1]} both give the model's inputs: pass only one of them")
    found = _find_reader(named[0], str(given[named[0]])) if named else None
    if "target" in given and (not found or "target" not in found.also):
        raise UsageError("--target names a column of a table: give the table too, with --data table.parquet")
    if found:
        return found.read(model, given)
    return {"labels": as_file(labels)} if names_column(labels := str(given.get("labels", ""))) else {}


def _find_reader(option: str, given: str) -> Reader:
    readers = [one for one in plugins.usable(READERS, Reader).values() if one.option == option]
    if found := next((one for one in readers if one.claims(given)), None):
        return found
    known = " or ".join(sorted(one.takes for one in readers))
    raise UsageError(f"--{option} {given!r}: expected {known}; arrays are given by --inputs")
