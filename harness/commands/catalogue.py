"""`shootout list`: the studies, models, backends and their options that there are."""

from __future__ import annotations

from typing import Any

from shootout import backends, models
from shootout.commands.output import print_answer
from shootout.contract import Option
from shootout.errors import unknown
from shootout.study import schema

KINDS = ("studies", "models", "backends", "options")


def catalogue(kind: str | None = None, *, as_json: bool) -> int:
    """Print the studies, models, backends and their options by name; `kind`: one of these alone.

    Raises:
        UsageError: there is no such kind.
    """
    if kind is not None and kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    wanted = KINDS if kind is None else (kind,)
    options = {
        f"{name}.{option.name}": option
        for name in backends.names()
        for option in backends.get(name).capabilities.settable().values()
    }
    known = {
        "studies": schema.names(),
        "models": {name: models.get(name).description for name in models.names()},
        "backends": {name: _offers(name) for name in backends.names()},
    }
    told = {**known, "options": {name: option.help for name, option in options.items()}}
    lines = []
    for name, found in told.items():
        if name not in wanted:
            continue
        width = max(map(len, found))
        lines.append(f"{name}\n" + "".join(f"  {name:<{width}} {what}\n" for name, what in found.items()))
    data = {**known, "options": {name: _described(option) for name, option in options.items()}}
    return print_answer("\n".join(lines), {name: data[name] for name in wanted}, as_json=as_json)


def _offers(name: str) -> str:
    targets = sorted(f"{device}:{precision}" for device, precision in backends.get(name).capabilities.targets)
    return ", ".join(targets)


def _described(option: Option) -> dict[str, Any]:
    return {
        "help": option.help,
        "expects": option.expects,
        "devices": sorted(option.devices),
        "modes": None if option.modes is None else sorted(option.modes),
        "precisions": None if option.precisions is None else sorted(option.precisions),
        "tries": list(option.tries),
    }
