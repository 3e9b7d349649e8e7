"""The backends that a run doesn't name: who of them could win here, and the command for those that aren't installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shootout import backends, models
from shootout.contract import Artifact, Device
from shootout.errors import install
from shootout.report.lines import NAMED, fold
from shootout.results.document import Row
from shootout.study.feasibility import FROM_FILE


def tell_untried(rows: Iterable[Row]) -> Iterator[str]:
    """`litert (not installed: pip install ...)` and `ncnn (not asked for)`; first those that could win.

    Args:
        rows: of the whole run.
    """
    every = list(rows)
    asked = {row.backend.partition("+")[0] for row in every}
    never = [name for name in backends.names() if name not in asked]
    fit = {name for name in never if _could_win(name, every)}
    absent = [name for name in never if name in fit and not backends.is_installed(name)]
    if absent:
        extras = dict.fromkeys(backends.entry(name).extra for name in absent)
        yield f"{', '.join(absent)} (not installed: {install(','.join(extras))})"
    if others := sorted((name for name in never if name not in absent), key=lambda name: name not in fit):
        yield f"{', '.join(fold(others, NAMED))} (not asked for)"


def _could_win(name: str, rows: Iterable[Row]) -> bool:
    """Whether a backend that ships runs anything of what was raced, on a device that has a time: the CPU is one."""
    if name not in backends.SHIPPED:
        return False  # only a process of its own could say
    can = backends.capabilities(name)
    return any(
        (row.device == Device.CPU or row.end_to_end is not None)
        and row.device in can.devices
        and row.scenario in can.scenarios
        and not set(can.consumes).isdisjoint(_forms(row.model))
        for row in rows
    )


def _forms(model: str) -> Iterable[Artifact]:
    """What a model can be given as; a user's own at least as these."""
    return models.get(model).artifacts if model in models.names() else FROM_FILE
