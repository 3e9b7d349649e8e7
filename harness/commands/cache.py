"""`shootout cache`: what is kept of exports and builds, how much that is, and making it less."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from shootout.commands.output import print_answer
from shootout.core.errors import UsageError, tell_refusal
from shootout.core.host.store import cache_folder
from shootout.core.units import counted, size
from shootout.tell.cache_limit import KINDS, LIMIT, CacheEntry, evict, kept, limit_bytes
from shootout.tell.columns import Cell, make_table

HEADERS = ("kept", "number", "size", "last used")


def cache(*, clear: bool, as_json: bool) -> int:
    """Print what the cache holds, or remove it; return the exit code.

    Raises:
        UsageError: it can't be cleared, since a command uses it, or the disk doesn't let us.
    """
    try:
        removed = evict(0) if clear else ()
    except OSError as error:
        raise UsageError(f"can't clear {cache_folder().parent}: {tell_refusal(error, 'remove it by hand')}") from error
    if removed is None:
        raise UsageError("a running command uses the cache: wait for it, then clear it")
    entries = kept()
    data = {
        "folder": str(cache_folder().parent),
        "limit_bytes": limit_bytes(),
        "size_bytes": _total_bytes(entries),
        "removed_bytes": _total_bytes(removed),
        "kinds": {
            kind: {"number": len(some), "size_bytes": _total_bytes(some)} for kind, some in _by_kind(entries).items()
        },
    }
    return print_answer(_render_entries(entries, removed, clear=clear), data, as_json=as_json)


def _render_entries(
    entries: Sequence[CacheEntry], removed_entries: Sequence[CacheEntry], *, clear: bool
) -> RenderableType:
    folder = cache_folder().parent
    removed = f"{folder}: {counted(len(removed_entries), 'thing')} removed, {size(_total_bytes(removed_entries))}."
    if not entries:
        return Text(removed if clear else f"{folder} is empty.")
    lines = [_kind_line(kind, some) for kind, some in _by_kind(entries).items() if some]
    held = f"{folder} holds {size(_total_bytes(entries))} of at most {size(limit_bytes())} ({LIMIT}, in GB)."
    how = "When a run ends above that, what was used longest ago is removed; `shootout cache --clear` removes all."
    return Group(Text(held), make_table(HEADERS, lines, left=("kept",)), Text(how))


def _kind_line(kind: str, entries: Sequence[CacheEntry]) -> dict[str, Cell]:
    last = datetime.fromtimestamp(max(entry.used_s for entry in entries)).astimezone().isoformat(" ", "minutes")[:16]
    return dict(zip(HEADERS, (kind, str(len(entries)), size(_total_bytes(entries)), last), strict=True))


def _by_kind(entries: Sequence[CacheEntry]) -> dict[str, list[CacheEntry]]:
    return {kind: [entry for entry in entries if entry.kind == kind] for kind in KINDS}


def _total_bytes(entries: Sequence[CacheEntry]) -> int:
    return sum(entry.size_bytes for entry in entries)
