"""Race each part by itself, and choose the target that it gets by that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shootout.apps.parts.profile import Profile
from shootout.backends import BASELINE_OF_FILES
from shootout.core import backends
from shootout.core.contract import Artifact, Device, Precision, short
from shootout.core.errors import UsageError
from shootout.core.study.points import describe
from shootout.core.study.target import parse_targets
from shootout.tell.document import Document, Ratio

ANY_SIZE = "dynamic"
"""The scheme of a session that takes any size."""
MOST_SIZES = 2
"""Sizes at which a part that takes any is raced, each for an equal share of its calls: each has to be exported."""
LEAST_GAIN = 0.98
"""A target must measure this much of ONNX Runtime's time at most, or the part stays as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Hold what a part gets.

    Attributes:
        share: which part of a call it takes as usual.
        target: "" if it stays as it is, in ONNX Runtime.
        ratio: the target's time ÷ ONNX Runtime's, in the part's own race.
        why: why it stays, or at which sizes it was raced.
        run: the folder of its run; "" if it wasn't raced.
        is_open: whether the target takes any size, so that no folder can be shipped.
        is_pending: whether its race had no time yet.
    """

    name: str
    share: float
    target: str = ""
    ratio: Ratio | None = None
    why: str = ""
    run: str = ""
    is_open: bool = False
    is_pending: bool = False

    def stay(self, why: str) -> Choice:
        """Return the choice of ONNX Runtime in place of a target that does something wrong."""
        return self if not self.target else replace(self, target="", ratio=None, why=f"{self.why}; {self.target} {why}")


def list_targets(given: Sequence[str], *, is_open: bool) -> list[str]:
    """Return the targets that race for a part: those that are given, and ONNX Runtime first.

    Args:
        is_open: sizes vary, so that each target must take any size; those that can't are left out.

    Raises:
        UsageError: a target isn't known, or doesn't run an ONNX file itself.
    """
    every = dict.fromkeys(one for text in (BASELINE_OF_FILES, *given) for one in parse_targets(text, describe))
    can = {one: backends.capabilities(one.backend) for one in every}
    if strange := [one for one in every if Artifact.ONNX not in can[one].consumes or one.folder or one.python]:
        raise UsageError(f"{strange[0]} can't take the place of a part: name a backend that runs an ONNX file itself")
    if not is_open:
        return [*map(str, every)]
    return [str(replace(one, scheme=ANY_SIZE)) for one in every if one.precision in can[one].opens and not one.scheme]


def list_usual(targets: Sequence[str]) -> list[str]:
    """Return which of these targets run an ONNX file itself, on the CPU in FP32."""
    every = [one for text in targets for one in parse_targets(text, describe)]
    plain = [one for one in every if (one.device, one.precision) == (Device.CPU, Precision.FP32)]
    return [str(one) for one in plain if {*backends.capabilities(one.backend).consumes} == {Artifact.ONNX}]


def make_options(
    profile: Profile, name: str, axes: Sequence[Mapping[str, int]], given: Sequence[str]
) -> tuple[dict[str, Any], str]:
    """Return the options of a part's own run, and what to tell of its sizes.

    Args:
        axes: of each size of the part, the sizes of the axes that its file leaves open.
        given: targets that the user names.
    """
    sizes, common = profile.sizes[name], dict(axes[0])
    varies = {axis: Counter[int]() for axis in common}
    for size, own in zip(sizes, axes, strict=True):
        for axis in varies:
            varies[axis][own[axis]] += size.calls
    counts = {axis: found for axis, found in varies.items() if len(found) > 1}
    if not counts:
        inputs = {"inputs": str(profile.folder / f"{name}.npz")}
        options = {"backends": list_targets(given, is_open=False), "parameters": common, **inputs}
        return options, f"always {', '.join('x'.join(map(str, shape)) for shape in sizes[0].inputs.values())}"
    axis = max(counts, key=lambda one: len(counts[one]))
    few = choose_sizes(counts[axis])
    others = {one: size for one, size in common.items() if one != axis}
    options = {
        "backends": list_targets(given, is_open=True),
        "parameters": others,
        "mix": f"{axis}={','.join(f'{size}:{weight}' for size, weight in few.items())}",
    }
    fixed = ", ".join(f"{one}={others[one]}" for one in counts if one != axis)
    raced = f"raced on random inputs at {axis}={'/'.join(map(str, few))}{f' with {fixed}' if fixed else ''}"
    return options, f"called at {len(sizes)} sizes; {raced}"


def choose_sizes(counts: Mapping[int, int]) -> dict[int, int]:
    """Return `MOST_SIZES` of these sizes, the largest of its share each, with the calls that each stands for."""
    ranked = sorted(counts.items())
    if len(ranked) <= MOST_SIZES:
        return dict(ranked)
    whole, seen, found = sum(counts.values()), 0, dict[int, int]()
    bins = Counter[int]()
    for size, calls in ranked:
        place = min(int(MOST_SIZES * (seen + calls / 2) / whole), MOST_SIZES - 1)
        seen += calls
        bins[place] += calls
        found[place] = size
    chosen = {found[place]: calls for place, calls in sorted(bins.items())}
    return chosen if len(chosen) > 1 else {ranked[0][0]: 1, ranked[-1][0]: max(1, whole - 1)}


def choose(name: str, share: float, document: Document, told: str, *, is_open: bool) -> Choice:
    """Return what a part gets by its own run: the answer's target, if that measured faster than ONNX Runtime.

    It need not be significant here: the joint race, of other restarts, has the say.
    """
    answer = next(iter(document.answer), None)
    stays = Choice(name=name, share=share, run=document.run, why=told)
    if answer is None or answer.ship is None:
        why = answer.reason if answer else "nothing was timed"
        return replace(stays, why=f"{told}; {why}", is_pending=not document.complete)
    rows = {row.arm: row for row in document.rows_of(answer.group)}
    row, rivals = rows[answer.ship.arm], [one for arm, one in rows.items() if arm != document.baseline]
    ratio = row.end_to_end.ratio if row.end_to_end else None
    if row.arm == document.baseline or ratio is None or ratio.value > LEAST_GAIN:
        untimed = [one for one in rivals if one.outcome != "measured"]
        found = "nothing measured faster" if len(untimed) < len(rivals) else "nothing else was timed"
        reasons = [f"{short(one.arm)} {one.outcome}: {one.reason}" for one in untimed if one.reason]
        is_pending = not document.complete and untimed == rivals and any(one.outcome == "not timed" for one in rivals)
        return replace(stays, why="; ".join([told, found, *reasons]), is_pending=is_pending)
    return replace(stays, target=row.arm, ratio=ratio, is_open=is_open)
