"""Raw samples: one Parquet file per group and generation, a row per reading, written before the journal names it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shootout.contract import Array
from shootout.errors import ShootoutError
from shootout.messages import Scope, Turn


def write(folder: Path, name: str, turns: Iterable[tuple[str, Sequence[Turn]]]) -> None:
    """Write the readings of one generation's valid rounds.

    Args:
        folder: the run folder.
        name: the file's path inside it, e.g. `samples/g0-003.parquet`.
        turns: by arm label, one `Turn` per valid round.

    Raises:
        ShootoutError: the disk is full or gone; nothing of the file is left.
    """
    import pyarrow
    import pyarrow.parquet

    columns = _columns(turns)
    types = {"arm": pyarrow.string(), "scope": pyarrow.string(), "round": pyarrow.int16()}
    schema = pyarrow.schema({**types, "latency_ns": pyarrow.float64()})
    path = folder / name
    temporary = path.with_suffix(".tmp")
    try:
        path.parent.mkdir(exist_ok=True)
        with temporary.open("wb") as file:
            pyarrow.parquet.write_table(pyarrow.table(columns, schema=schema), file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ShootoutError(
            f"can't write {str(path)!r}: {error.strerror or error}. Everything measured before this generation is "
            "kept; make room and run the same command again to resume"
        ) from None


def _columns(turns: Iterable[tuple[str, Sequence[Turn]]]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {"arm": [], "scope": [], "round": [], "latency_ns": []}
    for label, rounds in turns:
        for index, turn in enumerate(rounds):
            for scope, latency in turn.latency_ns.items():
                columns["arm"] += [label] * latency.size
                columns["scope"] += [scope.value] * latency.size
                columns["round"] += [index] * latency.size
                columns["latency_ns"] += latency.tolist()
    return columns


def read(folder: Path, names: Iterable[str], label: str, scope: Scope) -> Array:
    """All readings (ns) of one arm in one scope, shape (n,); files that are gone or damaged count as empty."""
    return np.concatenate([np.array([]), *(_read(folder / name, label, scope) for name in names)])


def _read(path: Path, label: str, scope: Scope) -> Array:
    import pyarrow.parquet

    wanted = [("arm", "=", label), ("scope", "=", scope.value)]
    try:
        found: Array = pyarrow.parquet.read_table(path, columns=["latency_ns"], filters=wanted)["latency_ns"].to_numpy()
    except (OSError, pyarrow.ArrowException):
        return np.array([])
    return found
