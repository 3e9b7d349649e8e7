"""The settings that are worth trying: threads, a backend's modes, and those of its options that it says to try.

Options that change what is computed (a precision hint, fast math that a probe would refuse) are not among them; another
precision is a knob of its own, tried only if the user names it: as it is, and under a limit with layers left in float.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import chain
from operator import itemgetter

from shootout.core import backends
from shootout.core.contract import Arm, Device, Precision, Target
from shootout.core.schemes import SHARED, write_floats
from shootout.core.study.plan import name_quantizer
from shootout.models.onnx.layers import Layer

FEW_THREADS = 8
"""Up to so many, every count is tried; above, powers of two and the largest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between a candidate and the default setting; what is None or empty stays.

    Attributes:
        knob: what is turned, so that no two values of one knob are ever combined.
        scheme: of the precision: the layers that stay in float, or the rule that chooses them.
    """

    knob: str
    threads: int | None = None
    mode: str | None = None
    precision: Precision | None = None
    scheme: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


def list_changes(
    default: Arm, most_threads: int, precisions: Collection[Precision] = (), mixes: Collection[str] = ()
) -> list[Change]:
    """Return every knob by itself.

    Args:
        default: the arm as it comes.
        most_threads: the largest number of threads an arm can have here; an option of several threads brings them along
            where the default has one, and is left out where there are no more.
        precisions: those that may be tried instead of the target's own.
        mixes: words of schemes that leave some layers of a quantized model in float, tried if the backend offers them.
    """
    target, changes = default.target, list[Change]()
    capabilities = backends.capabilities(target.backend)
    if target.device is Device.CPU:
        counts = thread_counts(most_threads)
        changes += [Change(knob="threads", threads=count) for count in counts if count != default.threads]
    if not target.mode:
        absent = frozenset[str]() if target.device is Device.CUDA else capabilities.cuda_modes
        single = sorted(mode for mode in capabilities.modes - absent if mode and not mode.endswith("*"))
        changes += [Change(knob="mode", mode=mode) for mode in single]
    schemes = [
        (place, Change(knob="precision", precision=precision, scheme=scheme))
        for precision in precisions
        if (target.device, precision) in capabilities.targets and precision is not target.precision
        for place, scheme in enumerate(_list_schemes(capabilities.schemes.get(precision, ()), mixes))
    ]
    changes += [change for _, change in sorted(schemes, key=itemgetter(0))]  # the plain ones first: builds take time
    for option in capabilities.options:
        if option.is_for(target) and option.name not in default.options and not (option.parallel and most_threads == 1):
            threads, name = most_threads if option.parallel and default.threads == 1 else None, option.name
            changes += [Change(knob=name, threads=threads, options={name: value}) for value in option.tries]
    return changes


def _list_schemes(offered: Collection[str], words: Iterable[str]) -> list[str]:
    """List the plain scheme of a precision, then those by which its backend offers these words.

    Without a quantizer of its own a backend takes the shared file, which is the plain scheme then.
    """
    plain = "shared" if any(one.startswith(SHARED) for one in offered) else ""
    return [*dict.fromkeys([plain, *filter(None, (find_offered(offered, word) for word in words))])]


def find_offered(offered: Iterable[str], word: str) -> str | None:
    """Return the scheme by which a backend that offers these words (as `schemes.unoffered`) has a word.

    That is the word itself, or `shared+` and the word if only the shared file has it; None if neither is offered.
    """
    return next((one for one in (word, SHARED + word) if any(fnmatchcase(one, known) for known in offered)), None)


def list_mixes(order: Sequence[Layer]) -> list[str]:
    """List the words that leave the most sensitive layers in float: the worst 1, 2, 4, 8 … and the worst blocks.

    At most half of them: with more in float there is little left to gain. A block's layers lie side by side, so that a
    runtime converts at its edges alone. A block is as sensitive as its worst layer.

    Args:
        order: all layers that a quantizer takes, the most sensitive first.

    Returns:
        The words, those with the fewest layers in float first: there may be no time to build all.
    """
    blocks: dict[str, list[int]] = {}
    for layer in order:
        blocks.setdefault(layer.block, []).append(layer.number)
    rungs = [[layer.number for layer in order[: 2**power]] for power in range(len(order).bit_length())]
    worst = [*blocks.values()]
    rungs += [list(chain.from_iterable(worst[: 2**power])) for power in range(len(worst).bit_length())]
    return [*dict.fromkeys(write_floats(rung) for rung in sorted(rungs, key=len) if len(rung) <= len(order) / 2)]


def thread_counts(most: int) -> list[int]:
    """Return thread counts to try."""
    if most <= FEW_THREADS:
        return list(range(1, most + 1))
    return sorted({2**power for power in range(most.bit_length())} | {most})


def combine(default: Arm, helped: Sequence[Change]) -> list[tuple[Change, ...]]:
    """Combine knobs that helped alone: the best with each other one, then the three, four … best.

    Args:
        helped: the best value of each knob, the largest gain first.
    """
    mates = [other for other in helped[1:] if _fits_together(apply_changes(default, [helped[0], other]))]
    wanted: list[tuple[Change, ...]] = [(helped[0], other) for other in mates]
    wanted += [(helped[0], *mates[:count]) for count in range(2, len(mates) + 1)]
    seen = {describe_setting(default, apply_changes(default, [change])) for change in helped}
    combinations = []
    for changes in wanted:
        arm = apply_changes(default, changes)
        if (name := describe_setting(default, arm)) not in seen and _fits_together(arm):
            seen.add(name)
            combinations.append(changes)
    return combinations


def apply_changes(default: Arm, changes: Iterable[Change]) -> Arm:
    """Return the default with these changes, one after the other; its label says how it differs."""
    target, threads, options = default.target, default.threads, dict(default.options)
    for change in changes:
        mode = target.mode if change.mode is None else change.mode
        scheme = "+".join(filter(None, (target.scheme, change.scheme)))
        target = replace(target, mode=mode, precision=change.precision or target.precision, scheme=scheme)
        threads, options = change.threads or threads, {**options, **change.options}
    own = [f"{name}={value}" for name, value in sorted(options.items()) if default.options.get(name) != value]
    words = [*([f"threads={threads}"] if threads != default.threads else []), *own]
    arm = replace(default, target=target, threads=threads, options=options, setting=", ".join(words))
    if target.precision is not default.target.precision:
        arm = replace(arm, quantizer=name_quantizer(target))
    return replace(arm, settings="tuned", ordinal=1)


def describe_setting(default: Arm, arm: Arm) -> str:
    """Describe how an arm differs from the default: `+aoti, bf16, threads=2, NUM_STREAMS=1`; "" if it doesn't."""
    mode = [f"+{arm.target.mode}"] if arm.target.mode != default.target.mode else []
    precision = [describe_precision(arm.target)] if arm.target.precision != default.target.precision else []
    return ", ".join([*mode, *precision, *([arm.setting] if arm.setting else [])])


def describe_precision(target: Target) -> str:
    """Describe a target's precision with its scheme: `int8/float-3.17`."""
    return f"{target.precision}/{target.scheme}" if target.scheme else str(target.precision)


def _fits_together(arm: Arm) -> bool:
    """Return True if the arm's mode has all of its options, and its threads suffice for them."""
    turned = [known for known in backends.capabilities(arm.target.backend).options if known.name in arm.options]
    return all(option.is_for(arm.target) and (arm.threads > 1 or not option.parallel) for option in turned)
