"""Run `shootout list` and `shootout cache`: what a study can name, and what is kept of exports and builds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from shootout import models, studies
from shootout.commands.output import print_answer
from shootout.core import backends
from shootout.core.contract import NotRun, Option, Precision
from shootout.core.errors import UsageError, tell_refusal, unknown
from shootout.core.host.store import cache_folder
from shootout.core.scenario import find_scenario, scenario_names
from shootout.core.units import counted, size
from shootout.models.metrics import METRICS
from shootout.tell.cache_limit import KINDS as CACHED
from shootout.tell.cache_limit import LIMIT, CacheEntry, evict, kept, limit_bytes
from shootout.tell.columns import Cell, make_table
from shootout.tell.registered import settable

KINDS = ("studies", "models", "scenarios", "backends", "modes", "schemes", "options", "metrics")


def catalog(kind: str | None = None, *, as_json: bool) -> int:
    """Print all that a study can name; `kind`: one of `KINDS` alone.

    Raises:
        UsageError: there is no such kind.
    """
    if kind is not None and kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    wanted = KINDS if kind is None else (kind,)
    options = {f"{name}.{option.name}": option for name in backends.names() for option in settable(name)}
    known = {
        "studies": studies.names(),
        "models": {name: models.get(name).description for name in models.names()},
        "scenarios": {name: find_scenario(name).measures for name in scenario_names()},
        "backends": {name: _describe_offer(name) for name in backends.names()},
        "modes": {name: modes for name in backends.names() if (modes := _list_modes(name))},
        "schemes": dict(_list_schemes()),
        "metrics": {one.form or one.name: one.help for one in METRICS.values()},
    }
    told = {**known, "options": {name: option.help for name, option in options.items()}}
    lines = []
    for name, found in told.items():
        if name not in wanted:
            continue
        width = max(map(len, found))
        lines.append(f"{name}\n" + "".join(f"  {name:<{width}} {what}\n" for name, what in found.items()))
    data = {**known, "options": {name: _option_data(option) for name, option in options.items()}}
    return print_answer("\n".join(lines), {name: data[name] for name in wanted}, as_json=as_json)


def _describe_offer(name: str) -> str:
    """Return a backend's devices and precisions, or why there are none."""
    can = backends.describe(name)
    if isinstance(can, NotRun):
        return f"broken: {can.reason}"
    native = {(device, Precision.NATIVE) for device in can.native}
    return ", ".join(sorted(f"{device}:{precision}" for device, precision in can.targets | native))


def _list_modes(name: str) -> str:
    """Return what may follow the backend's name; "" if nothing may."""
    can = backends.capabilities(name)
    return ", ".join(f"+{mode}{' (cuda)' if mode in can.cuda_modes else ''}" for mode in sorted(can.modes) if mode)


def _list_schemes() -> Iterator[tuple[str, str]]:
    """Return what may follow the slash after each backend's precision."""
    for name in backends.names():
        for precision, words in backends.capabilities(name).schemes.items():
            yield f"{name} {precision}", ", ".join(sorted(words))


def _option_data(option: Option) -> dict[str, Any]:
    return {
        "help": option.help,
        "expects": option.expects,
        "devices": sorted(option.devices),
        "modes": None if option.modes is None else sorted(option.modes),
        "precisions": None if option.precisions is None else sorted(option.precisions),
        "tries": list(option.tries),
    }


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
    return {kind: [entry for entry in entries if entry.kind == kind] for kind in CACHED}


def _total_bytes(entries: Sequence[CacheEntry]) -> int:
    return sum(entry.size_bytes for entry in entries)
