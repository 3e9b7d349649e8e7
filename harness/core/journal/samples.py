"""Raw samples: one .npz file per group and restart, written before the journal names it.

A run that was packed (see `shootout.apps.judge.compare.merged`) has one file instead; whatever is measured later comes
beside it. Both hold their numbers in parts, one behind the other. `words` are texts, and a row of `parts` has the
numbers of the part's words, then whole numbers of its own, the last of which is its count.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from shootout.core.contract import Array
from shootout.core.errors import ShootoutError, tell_refusal
from shootout.core.host import untrusted
from shootout.core.host.untrusted import resolve_inside
from shootout.core.journal.journal import sync_folder
from shootout.core.messages import Turn

FOLDER, PACKED = "samples", "samples.npz"
"""The folder of a run's samples, and the one file of a packed run."""
_UNREADABLE = (OSError, LookupError, ValueError, EOFError, RuntimeError, OverflowError, zipfile.BadZipFile, zlib.error)
"""The errors of reading a file that is gone or damaged."""
SINGLE = "single"
"""In place of a scope: calls end to end, read one by one after the rounds, of an arm whose readings hold several."""
MOST_ROWS = 1 << 26
"""The most readings, parts and words that one call of `Samples.of` takes; the largest run has a thirtieth. A file of
1 MB can hold 10^8 of them, and a journal can name it for any number of restarts."""
MOST_PARTS = 1 << 20
"""The most parts of a file: one for each arm of a group, scope and restart, or round."""
_MOST_WORD_BYTES = 1 << 24
UNKNOWN = -1
"""In place of a restart: an older version packed these readings, and didn't keep restarts apart."""


def write(
    folder: Path, name: str, turns: Iterable[tuple[str, Sequence[Turn]]], single_ns: Iterable[tuple[str, Array]] = ()
) -> None:
    """Write the readings of one restart.

    Args:
        folder: the run folder.
        name: the file's path inside it, e.g. `samples/g0-003.npz`.
        turns: by arm label, one `Turn` per round.
        single_ns: by arm label, calls read one by one after that: of round -1.

    Raises:
        ShootoutError: the disk is full or gone; nothing of the file is left.
    """
    readings: dict[tuple[str, str, int], Array] = {
        (label, scope, index): latency
        for label, rounds in turns
        for index, turn in enumerate(rounds)
        for scope, latency in turn.latency_ns.items()
    }
    readings |= {(label, SINGLE, -1): latency for label, latency in single_ns}
    path = folder / name
    temporary = path.with_suffix(".tmp")
    try:
        if not path.parent.exists():
            path.parent.mkdir()
            sync_folder(folder)
        with temporary.open("wb") as file:
            np.savez(file, **name_parts(readings, texts=2, numbers=2), latency_ns=join(readings, np.float64))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ShootoutError(
            f"can't write {str(path)!r}: {tell_refusal(error)}. Everything measured before this restart is "
            "kept; run the same command again to resume"
        ) from None


def name_parts(readings: Mapping[Any, Array], texts: int, numbers: int) -> dict[str, Any]:
    """Return what a file says of its parts: so many texts and numbers of each, the last of which is its count."""
    named = np.array([key[:texts] for key in readings], dtype=np.str_).reshape(-1, texts)
    words, places = np.unique(named, return_inverse=True)
    own = [[*key[texts:], part.size] for key, part in readings.items()]
    table = np.array(own, dtype=np.int64).reshape(-1, numbers)
    return {"words": words, "parts": np.hstack([places.reshape(named.shape), table])}


def join(readings: Mapping[Any, Array], dtype: type) -> Array:
    """Return the readings of all parts, one behind the other."""
    return np.concatenate([np.array([], dtype), *readings.values()], dtype=dtype)


class Samples:
    """The readings of a run, from either form of its files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lost: set[str] = set()

    @property
    def lost(self) -> tuple[str, ...]:
        """Return the files that are gone or can't be read, in order: their readings are in no percentile."""
        return tuple(sorted(self._lost))

    def of(self, group: str, arm: str, scope: str, names: Mapping[int, str]) -> dict[int | None, Array]:
        """Return one arm's readings (ns) in one scope by restart; files that are gone or damaged count as empty.

        All files together, with the one of a packed run, have `MOST_ROWS` at most; a file beyond that is lost.

        Args:
            scope: or `SINGLE`.
            names: the files of its restarts, as the journal names them.

        Returns:
            Under None what an older version has packed: nothing tells its restarts apart.
        """
        packed, taken = self._packed
        readings, left = dict(packed.get((group, arm, scope), {})), MOST_ROWS - taken
        for restart, name in names.items():
            try:
                own, taken = _read_restart_file(self._folder, name, arm, scope, left)
            except _UNREADABLE:
                if not self._packed_restarts_by_group.get(group, set()) & {None, restart}:  # as None all may be there
                    self._lost.add(name)
                continue
            left -= taken
            if own.size:
                readings[restart] = own
        return readings

    @cached_property
    def _packed_restarts_by_group(self) -> dict[str, set[int | None]]:
        by_group: dict[str, set[int | None]] = {}
        for (group, _, _), restarts in self._packed[0].items():
            by_group.setdefault(group, set()).update(restarts)
        return by_group

    @cached_property
    def _packed(self) -> tuple[dict[tuple[str, str, str], dict[int | None, Array]], int]:
        """Return what the one file of a packed run holds, by group, arm and scope, and by restart; and its rows."""
        try:
            return _read_packed(self._folder)
        except _UNREADABLE:
            if (self._folder / PACKED).exists():
                self._lost.add(PACKED)
            return {}, 0


def _read_packed(folder: Path) -> tuple[dict[tuple[str, str, str], dict[int | None, Array]], int]:
    """Read what `Samples._packed` holds; raises one of `_UNREADABLE`."""
    words, parts, steps = _read_file(resolve_inside(folder, PACKED), MOST_ROWS, "steps", texts=3, numbers=3)
    readings: dict[tuple[str, str, str], dict[int | None, list[Array]]] = {}
    if np.any(parts[:, -2] < 1):
        raise ValueError("no call shares a reading")
    ends = np.cumsum(parts[:, -1]).tolist()
    for (*places, restart, calls, _), (begin, end) in zip(parts.tolist(), pairwise([0, *ends]), strict=True):
        reading_ns = np.cumsum(steps[begin:end])
        if steps.dtype == np.uint64:
            reading_ns = reading_ns.view(np.float64)
        _refuse_no_times(reading_ns)
        group, arm, scope = (words[place] for place in places)
        own = readings.setdefault((group, arm, scope), {})
        own.setdefault(None if restart == UNKNOWN else restart, []).append(reading_ns / calls)
    joined = {key: {g: np.concatenate(arrays) for g, arrays in own.items()} for key, own in readings.items()}
    return joined, steps.size + len(parts) + len(words)


def read(folder: Path, name: str, arm: str, scope: str) -> Array:
    """Return one arm's readings (ns) in one scope of one restart's file, in order; none if it is gone or damaged.

    Args:
        folder: the run folder.
        name: the file's path inside it, as the journal has it; one that leads elsewhere counts as gone.
    """
    try:
        return _read_restart_file(folder, name, arm, scope, MOST_ROWS)[0]
    except _UNREADABLE:
        return np.array([])


def _read_restart_file(folder: Path, name: str, arm: str, scope: str, most: int) -> tuple[Array, int]:
    """Read as `read` does, with the rows of the whole file, at most so many; or raise one of `_UNREADABLE`."""
    words, parts, latency_ns = _read_file(resolve_inside(folder, name), most, "latency_ns", texts=2, numbers=2)
    _refuse_no_times(latency_ns)
    is_arm, is_scope = (np.array([word == one for word in words], dtype=bool) for one in (arm, str(scope)))
    wanted = is_arm[parts[:, 0]] & is_scope[parts[:, 1]]
    readings_ns: Array = latency_ns[np.repeat(wanted, parts[:, -1])].astype(np.float64)
    return readings_ns, latency_ns.size + len(parts) + len(words)


def _refuse_no_times(readings_ns: Array) -> None:
    """Refuse readings that no clock gives.

    Raises:
        ValueError: one isn't finite and above 0.
    """
    if not np.all((readings_ns > 0) & (readings_ns < np.inf)):
        raise ValueError("it holds readings that are no times")


def _read_file(path: Path, most: int, name: str, texts: int, numbers: int) -> tuple[list[str], Array, Array]:
    """Read a file's words, parts and readings.

    Args:
        most: how many readings, parts and words it may have together.
        name: of the readings.
        texts, numbers: how many of each a part has.

    Raises:
        OSError, LookupError, ValueError, EOFError: one of `_UNREADABLE`: it isn't one of ours, or is too large.
    """
    columns = texts + numbers
    most_bytes = {"words": _MOST_WORD_BYTES, "parts": 8 * columns * MOST_PARTS, name: 8 * most}
    words, parts, values = untrusted.read_arrays(path, most_bytes).values()
    if words.dtype.kind != "U" or words.ndim != 1 or parts.dtype != np.int64 or parts.shape[1:] != (columns,):
        raise ValueError("its parts have other columns")
    places, counts = parts[:, :texts], parts[:, -1]
    if places.size and not 0 <= places.min() <= places.max() < len(words):
        raise ValueError("a part has a word that isn't there")
    if values.dtype.kind not in "fiu" or values.ndim != 1 or np.any(parts[:, texts:] < UNKNOWN):
        raise ValueError("it holds other numbers")
    if np.any(counts < 0) or np.any(counts > values.size) or counts.sum() != values.size:
        raise ValueError("its parts don't fill it")
    if values.size + len(parts) + len(words) > most:
        raise ValueError(f"more than {MOST_ROWS} rows")
    return words.tolist(), parts, values
