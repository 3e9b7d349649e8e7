"""`shootout cache`: what is kept of exports and builds, how much that is, and making it less."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from shootout.commands.output import print_answer
from shootout.errors import UsageError
from shootout.host.store import KINDS, LIMIT, CacheEntry, cache_folder, evict, kept, limit_bytes
from shootout.report.figures import Cell, make_table
from shootout.units import counted, size

HEADERS = ("kept", "number", "size", "last used")


def cache(*, clear: bool, as_json: bool) -> int:
    """Print what the cache holds, or remove it; returns the exit code.

    Raises:
        UsageError: it can't be cleared, since a command uses it, or the disk doesn't let us.
    """
    try:
        gone = evict(0) if clear else ()
    except OSError as error:
        raise UsageError(f"can't clear {cache_folder().parent}: {error.strerror}") from error
    if gone is None:
        raise UsageError("a running command uses the cache: wait for it, then clear it")
    found = kept()
    data = {
        "folder": str(cache_folder().parent),
        "limit_bytes": limit_bytes(),
        "size_bytes": _total_bytes(found),
        "removed_bytes": _total_bytes(gone),
        "kinds": {
            kind: {"number": len(some), "size_bytes": _total_bytes(some)} for kind, some in _by_kind(found).items()
        },
    }
    return print_answer(_render_entries(found, gone, clear=clear), data, as_json=as_json)


def _render_entries(found: Sequence[CacheEntry], gone: Sequence[CacheEntry], *, clear: bool) -> RenderableType:
    folder = cache_folder().parent
    removed = f"{folder}: {counted(len(gone), 'thing')} removed, {size(_total_bytes(gone))}."
    if not found:
        return Text(removed if clear else f"{folder} is empty.")
    lines = [_kind_line(kind, some) for kind, some in _by_kind(found).items() if some]
    held = f"{folder} holds {size(_total_bytes(found))} of at most {size(limit_bytes())} ({LIMIT}, in GB)."
    how = "What was used longest ago goes when a run ends above that; `shootout cache --clear` removes all of it."
    return Group(Text(held), make_table(HEADERS, lines, left=("kept",)), Text(how))


def _kind_line(kind: str, found: Sequence[CacheEntry]) -> dict[str, Cell]:
    last = datetime.fromtimestamp(max(one.used_s for one in found)).astimezone().isoformat(" ", "minutes")[:16]
    return dict(zip(HEADERS, (kind, str(len(found)), size(_total_bytes(found)), last), strict=True))


def _by_kind(found: Sequence[CacheEntry]) -> dict[str, list[CacheEntry]]:
    return {kind: [one for one in found if one.kind == kind] for kind in KINDS}


def _total_bytes(found: Sequence[CacheEntry]) -> int:
    return sum(one.size_bytes for one in found)
