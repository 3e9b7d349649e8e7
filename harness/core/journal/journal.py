"""The run folder's memory: one JSON line per fact, on disk before anything else happens, so that no crash loses it.

A restart's lines go out in one write that ends with its `rounds` line; without that line they don't count. Each ends
with a checksum, since after a power cut any page of a write may be missing. A tail that isn't whole is cut off when the
run is resumed. In a packed run (see `shootout.apps.judge.compare.merged`) the same file lies compressed; to resume it
unpacks it.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from pydantic import ValidationError

from shootout.core.errors import ArmFailed, ShootoutError, UsageError, tell_refusal
from shootout.core.host import environment
from shootout.core.journal.records import (
    LINE,
    SCHEMA,
    Confirming,
    Ended,
    Header,
    Line,
    Played,
    Rounds,
    Setback,
    is_possible,
)
from shootout.core.study.group import GroupRecord
from shootout.core.study.schema import told_keys

NAME, PACKED, UNPACKING = "journal.jsonl", "journal.jsonl.gz", "journal.jsonl.tmp"
MOST_BYTES, MOST_LINE_BYTES = 1 << 26, 1 << 25
"""The most of a journal, without its compression, and of a line. The largest in `results/reference` has an 80th of it.
As Python's objects a journal may take twenty times its size: 1.3 GB at most."""
_BEGINNING = b'{"kind":"header"'
_SUM = re.compile(rb',"sum":"([0-9a-f]{8})"}\n\Z')


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A journal as read: complete facts only.

    Attributes:
        damaged: lines in the middle that aren't as they were written, by number; they are left out.
        sound_bytes: length of the part that ends with a complete fact; a resumed run goes on from there.
    """

    header: Header
    lines: tuple[Line, ...]
    damaged: tuple[int, ...]
    sound_bytes: int
    _by_group: dict[str, list[Line]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for line in self.lines:
            if isinstance(name := getattr(line, "group", None), str):
                self._by_group.setdefault(name, []).append(line)

    def of_group(self, name: str) -> Sequence[Line]:
        """Return the lines of one group, in order, without a search: a grid has thousands."""
        return self._by_group.get(name, ())

    @property
    def groups(self) -> tuple[GroupRecord, ...]:
        """Return the groups planned at the start, then those that were added later, in the journal's order."""
        return (*self.header.groups, *(line.group for line in self.lines if isinstance(line, Confirming)))

    @property
    def budget_s(self) -> float | None:
        """Return the seconds of racing after which the run stopped by itself; None if it is over, or was stopped."""
        ends = [line for line in self.lines if isinstance(line, Ended)]
        return ends[-1].budget_s if ends and self.lines[-1] is ends[-1] and not self.complete else None

    @property
    def untouched(self) -> bool:
        """Return whether the run only began, and so can start over in its folder."""
        return all(isinstance(one, Header) or (isinstance(one, Setback) and one.kind == "skip") for one in self.lines)

    @property
    def complete(self) -> bool:
        """Return whether the run came to its end with every verdict; any other one goes on."""
        return any(isinstance(line, Ended) and line.complete and line.settled for line in self.lines)

    @property
    def played_out(self) -> bool:
        """Return whether everything was once measured as often as the study allows, whatever the verdicts."""
        return any(isinstance(line, Ended) and line.complete for line in self.lines)


def is_from_here(history: History) -> bool:
    """Return whether a run was begun on this machine, with the versions that are here."""
    begun_on = environment.fingerprint(history.header.environment)
    return begun_on == environment.fingerprint(environment.facts())


def begun(folder: Path) -> bool:
    """Return whether there is a journal; one whose very first line is torn holds nothing yet and counts as none."""
    _refuse_odd(folder / NAME)
    try:
        with (folder / NAME).open("rb") as file:
            line = file.readline(MOST_LINE_BYTES + 1)
    except FileNotFoundError:
        _refuse_odd(folder / PACKED)
        return (folder / PACKED).exists()
    except OSError as error:
        raise UsageError(f"can't read {str(folder / NAME)!r}: {tell_refusal(error, 'choose another --out')}") from None
    is_torn = not line.strip(b"\0") or line[: len(_BEGINNING)] == _BEGINNING[: len(line)]
    return line.endswith(b"\n") or len(line) > MOST_LINE_BYTES or not is_torn


def _refuse_odd(path: Path) -> None:
    """Refuse a file whose reading would never end, a pipe or a device, a link, and a file in place of a folder."""
    try:
        odd = path.exists() and not path.is_file()
        file = next((place for place in path.parents if place.is_file()), None)
    except OSError as error:  # no name that a file can have
        raise UsageError(f"can't read {str(path)!r}: {tell_refusal(error)}") from None
    if file:
        folder = f"its folder, {str(file.parent)!r}" if file.name in (NAME, PACKED) else "one made by `shootout run`"
        raise UsageError(f"{str(file)!r} is a file, and a run is a folder; name {folder}")
    if odd:
        raise UsageError(f"{path} is not a regular file; name a folder made by `shootout run`")
    if path.is_symlink():
        raise UsageError(f"{path} is a link, and a run's journal lies in its own folder: copy it there")


def read(folder: Path) -> History:
    """Read a run folder's journal.

    Raises:
        UsageError: no journal there, one of another version, larger than any run's, or whose header can't be read.
    """
    path = folder / (PACKED if (folder / PACKED).exists() and not (folder / NAME).exists() else NAME)
    try:
        _refuse_odd(path)
        return _read_history(path, _read_lines(path))
    except PermissionError as error:
        raise UsageError(f"can't read {str(path)!r}: {tell_refusal(error)}") from None
    except OSError as error:
        inside = ", ".join(sorted(str(path.parent) for path in folder.glob(f"*/{NAME}")))  # as a tuning's stages
        whole = f"; `shootout show {folder}` tells the answer of all" if any(folder.glob("*.json")) else ""
        fix = f"name one of those in it: {inside}{whole}" if inside else "name a folder made by `shootout run`"
        why = fix if isinstance(error, FileNotFoundError) and folder.is_dir() else tell_refusal(error, fix)
        raise UsageError(f"no run in {str(folder)!r}: {why}") from None


def _read_history(path: Path, texts: Iterator[bytes]) -> History:
    first = next(texts, b"")
    header = _parse_header(path, first.removesuffix(b"\n"))
    lines, damaged, sound, pending = [], [], 0, []
    spoilt, doubtful = False, list[Line]()
    position = unreadable = 0
    for number, text in enumerate(chain([first], texts), start=1):
        if unreadable:  # and more follows: it isn't the torn end of a write
            damaged.append(unreadable)
            unreadable = 0
        position += len(text)
        line = _parse_line(text)
        if line is None:
            spoilt, unreadable = True, number
            continue
        pending.append(line)
        if isinstance(line, Played):
            continue
        *played, last = pending
        mine = (last.group, last.restart) if isinstance(last, Rounds) else None  # without their own such line they go
        closed = (one for one in played if isinstance(one, Played) and (one.group, one.restart) == mine)
        fact, pending = [*closed, last], []
        if spoilt:  # it counts only where more was written behind it: a power cut may have spoilt the last one
            spoilt, doubtful = False, [*doubtful, *fact]
        else:
            lines += [*doubtful, *fact]
            sound, doubtful = position, []
    return History(header=header, lines=tuple(lines), damaged=tuple(damaged), sound_bytes=sound)


def _read_lines(path: Path) -> Iterator[bytes]:
    """Yield a journal's lines, packed or not, one at a time: Ctrl-C is heard in between.

    Raises:
        UsageError: a packed one is damaged, or it is larger than any run's, as one that was made to fill the memory.
        OSError: it can't be read.
    """
    left = MOST_BYTES
    try:
        with gzip.open(path) if path.name == PACKED else path.open("rb") as file:
            while text := file.readline(MOST_LINE_BYTES + 1):
                left -= len(text)
                if left < 0 or len(text) > MOST_LINE_BYTES:
                    what, most = ("holds", MOST_BYTES) if left < 0 else ("has a line of", MOST_LINE_BYTES)
                    why = f"{what} more than {most >> 20} MiB, which no run of this program does"
                    raise UsageError(f"{path} {why}: name another")
                yield text
    except (gzip.BadGzipFile, EOFError, zlib.error):
        why, fix = "it can't be decompressed", "copy it again, or measure again with another --out"
        raise UsageError(f"{path} is damaged: {why}; {fix}") from None


def _parse_header(path: Path, text: bytes) -> Header:
    try:
        raw = json.loads(text)
        version = int(raw["schema_version"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise UsageError(
            f"{path} does not begin with a shootout header; name a folder made by `shootout run`"
        ) from None
    if version != SCHEMA:
        raise UsageError(
            f"{path} was written by another version of shootout (schema {version}, this one reads {SCHEMA}): "
            "read it with that version, or measure again with another --out"
        )
    line = _parse_line(text + b"\n")
    if not isinstance(line, Header):
        given = raw.get("given")
        strange = sorted({*given} - {*told_keys()}) if isinstance(given, dict) else []
        why = "is not as this program wrote it: copy the run again, or measure again with --fresh"
        if strange:
            why = f"has {strange[0]!r}, which no scenario that is installed here takes: install the package of its own"
        raise UsageError(f"line 1 of {path}, its header, {why}")
    return line


def _parse_line(text: bytes) -> Line | None:
    """Parse a line; None if it isn't as it was written."""
    summed = _SUM.search(text, max(0, len(text) - 24))
    if summed is None:
        return None
    text = text[: summed.start()] + b"}"
    if zlib.crc32(text) != int(summed[1], 16):
        return None
    try:
        line = LINE.validate_json(text)
    except ValidationError:
        return None
    return line if is_possible(line) else None


def sync_folder(folder: Path) -> None:
    """Wait until a folder's list of names is on disk: else a power cut may lose a file that was written itself."""
    with suppress(OSError):  # not every file system can
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Journal:
    """Appends lines to a run folder's journal; each call is on disk when it returns."""

    def __init__(self, folder: Path, sound_bytes: int = 0) -> None:
        self._path = folder / NAME
        try:
            _unpack_journal(folder)
            self._file = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UsageError(f"can't write to {str(folder)!r}: {tell_refusal(error, 'choose another --out')}") from None
        os.ftruncate(self._file, sound_bytes)
        self._size = os.lseek(self._file, 0, os.SEEK_END)
        sync_folder(folder)

    def append(self, *lines: Line) -> None:
        """Write the lines in one go and wait for the disk.

        Raises:
            ArmFailed: a line is longer than it may be, such as a target's with millions of labeled rows; nothing is
                written.
            ShootoutError: the disk is full or gone, or the journal is as large as it may be; what was written before is
                intact.
        """
        texts = [text[:-1] + b',"sum":"%08x"}\n' % zlib.crc32(text) for text in map(LINE.dump_json, lines)]
        data = b"".join(texts)
        if (longest := max(map(len, texts), default=0)) > MOST_LINE_BYTES:
            raise ArmFailed(
                f"a line of {longest:,} bytes in {str(self._path)!r} couldn't be read again "
                f"(at most {MOST_LINE_BYTES:,}): give fewer labeled rows"
            )
        if self._size + len(data) > MOST_BYTES:
            raise ShootoutError(
                f"{str(self._path)!r} would hold more than {MOST_BYTES >> 20} MiB, and couldn't be read again. "
                "Everything measured so far is kept; choose another --out, or fewer targets, sizes or labeled rows"
            )
        try:
            position, left = self._size, data
            while left:  # a write may stop short
                written = os.pwrite(self._file, left, position)
                left, position = left[written:], position + written
            os.fsync(self._file)
            self._size = position
        except OSError as error:
            self._truncate_file()
            raise ShootoutError(
                f"can't write {str(self._path)!r}: {tell_refusal(error)}. Everything measured so far is kept; "
                "run the same command again to resume"
            ) from None
        except BaseException:  # Ctrl-C: half a line must not stand before the next one
            self._truncate_file()
            raise

    def _truncate_file(self) -> None:
        """Take back what was written of the last lines; if even that fails, reading leaves it out."""
        with suppress(OSError):
            os.ftruncate(self._file, self._size)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _unpack_journal(folder: Path) -> None:
    """Put the journal of a packed run back into its plain form."""
    packed, temporary = folder / PACKED, folder / UNPACKING
    if packed.exists() and not (folder / NAME).exists():
        with temporary.open("wb") as file:
            file.writelines(_read_lines(packed))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(folder / NAME)
    packed.unlink(missing_ok=True)
