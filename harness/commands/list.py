"""Run `shootout list`: print the studies, models, and backends with their modes, schemes and options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shootout import models, studies
from shootout.commands.output import print_answer
from shootout.core import backends
from shootout.core.contract import NotRun, Option, Precision
from shootout.core.errors import unknown
from shootout.core.scenario import find_scenario, scenario_names
from shootout.models.metrics import METRICS
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
