"""The settings that are worth trying: threads, a backend's modes, and those of its options that it says to try.

Options that change what is computed (a precision hint, fast math that a probe would refuse) are not among them; another
precision is a knob of its own, tried only where the user allows it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shootout import backends
from shootout.contract import Arm, Device, Option, Precision

FEW_THREADS = 8
"""Up to so many, every count is tried; above, powers of two and the largest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a candidate has other than the default setting; what is None or empty stays.

    Attributes:
        knob: what is turned, so that no two values of one knob are ever combined.
    """

    knob: str
    threads: int | None = None
    mode: str | None = None
    precision: Precision | None = None
    options: Mapping[str, str] = field(default_factory=dict)


def alone(default: Arm, most_threads: int, allowed: Collection[Precision] = ()) -> list[Change]:
    """Every knob by itself.

    Args:
        default: the arm as it comes.
        most_threads: the largest number of threads an arm can have here.
        allowed: precisions that may be tried instead of the target's own.
    """
    target = default.target
    capabilities = backends.get(target.backend).capabilities
    changes = []
    if target.device is Device.CPU:
        changes += [Change(knob="threads", threads=count) for count in counts(most_threads) if count != default.threads]
    if not target.mode:
        absent = frozenset[str]() if target.device is Device.CUDA else capabilities.cuda_modes
        changes += [Change(knob="mode", mode=mode) for mode in sorted(capabilities.modes - absent) if mode]
    changes += [
        Change(knob="precision", precision=precision)
        for precision in allowed
        if (target.device, precision) in capabilities.targets and precision is not target.precision
    ]
    for option in capabilities.options:
        if option.is_for(target) and option.name not in default.options:
            changes += _turned(option, default, most_threads)
    return changes


def _turned(option: Option, default: Arm, most_threads: int) -> list[Change]:
    if option.parallel and most_threads == 1:
        return []
    threads = most_threads if option.parallel and default.threads == 1 else None
    return [Change(knob=option.name, threads=threads, options={option.name: value}) for value in option.tries]


def counts(most: int) -> list[int]:
    """Thread counts to try."""
    if most <= FEW_THREADS:
        return list(range(1, most + 1))
    return sorted({2**power for power in range(most.bit_length())} | {most})


def together(default: Arm, helped: Sequence[Change]) -> list[tuple[Change, ...]]:
    """The combinations to try of knobs that helped alone: the best with each other one, then the three, four … best.

    Args:
        helped: the best value of each knob, the largest gain first.
    """
    mates = [other for other in helped[1:] if _goes(changed(default, [helped[0], other]))]
    wanted: list[tuple[Change, ...]] = [(helped[0], other) for other in mates]
    wanted += [(helped[0], *mates[:count]) for count in range(2, len(mates) + 1)]
    seen = {setting(default, changed(default, [one])) for one in helped}
    found = []
    for changes in wanted:
        arm = changed(default, changes)
        if (name := setting(default, arm)) not in seen and _goes(arm):
            seen.add(name)
            found.append(changes)
    return found


def changed(default: Arm, changes: Iterable[Change]) -> Arm:
    """The default with these changes, one after the other; its label says how it differs."""
    arm = default
    for change in changes:
        mode = arm.target.mode if change.mode is None else change.mode
        target = replace(arm.target, mode=mode, precision=change.precision or arm.target.precision)
        options = {**arm.options, **change.options}
        arm = replace(arm, target=target, threads=change.threads or arm.threads, options=options)
    own = [f"{name}={value}" for name, value in sorted(arm.options.items()) if default.options.get(name) != value]
    threads = [f"threads={arm.threads}"] if arm.threads != default.threads else []
    return replace(arm, settings="tuned", setting=", ".join([*threads, *own]), ordinal=1)


def setting(default: Arm, arm: Arm) -> str:
    """How an arm differs from the default, for people: `+aoti, bf16, threads=2, NUM_STREAMS=1`; "" if it doesn't."""
    mode = [f"+{arm.target.mode}"] if arm.target.mode != default.target.mode else []
    precision = [str(arm.target.precision)] if arm.target.precision != default.target.precision else []
    return ", ".join([*mode, *precision, *([arm.setting] if arm.setting else [])])


def _goes(arm: Arm) -> bool:
    """Whether the arm's mode has all of its options, and its threads suffice for them."""
    turned = [one for one in backends.get(arm.target.backend).capabilities.options if one.name in arm.options]
    return all(option.is_for(arm.target) and (arm.threads > 1 or not option.parallel) for option in turned)
