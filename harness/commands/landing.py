"""`shootout ship --choose-on-landing`: several targets of a run in one folder, which race where it lands."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shootout.apps.judge.cell import Cell
from shootout.apps.judge.contenders import Proposals, propose_contenders
from shootout.apps.judge.decide.policy import FEWEST_CONTENDERS, MOST_CONTENDERS, Policy
from shootout.apps.judge.to_ship import ArmToShip, find_arm_to_ship
from shootout.apps.ship.folder import find_built, is_there, new_folder, write_folder
from shootout.apps.ship.landing import CHOOSE, LIMIT_S, Contender, name_contender, write_landing
from shootout.backends.shipped import CONTENDERS, REQUIREMENTS, ShippedFolder
from shootout.commands.output import join_reasons, print_written, show_progress
from shootout.commands.ship import check_folder, collect_evidence, run_program
from shootout.core.contract import short
from shootout.core.errors import ArmFailed, NothingMeasured, SkippedArm, UsageError
from shootout.core.units import counted, seconds, size
from shootout.tell.cache_limit import in_use
from shootout.tell.progress import ProgressDisplay
from shootout.tell.ratios import NEVER_TOGETHER, tell_ratio

KEPT = "SHOOTOUT_LANDING"
"""The variable that names another folder in which `choose.py` keeps its choice."""
NEXT = f"pip install -r {{0}}/{REQUIREMENTS} && python {{0}}/{CHOOSE}"
"""The command that takes the folder {0}, where it runs."""


def refuse_options(*, choose_on_landing: bool, target: str | None, on: str | None) -> None:
    """Refuse options of `ship` that don't go together with a folder of several targets.

    Raises:
        UsageError: they don't; says what does.
    """
    if not choose_on_landing:
        raise UsageError("--contenders is of a folder of several targets: add --choose-on-landing")
    if target:
        raise UsageError(f"--choose-on-landing takes several targets: leave --target {target} out, or ship it alone")
    if on:
        raise UsageError(f"--choose-on-landing can't be combined with --on {on}: run it there, and copy the folder")


@dataclass(kw_only=True)
class Packing:
    """Pack targets side by side, each as a whole shipped folder that passes its own check here.

    Attributes:
        folder: that holds their folders.
        evidence: what each takes along, see `write_folder`.
        proposals: the targets that may go along.
        packed: what was packed, by its short label.
        left_out: why another one wasn't.
    """

    folder: Path
    evidence: Mapping[str, bytes]
    proposals: Proposals
    progress: ProgressDisplay
    packed: dict[str, ShippedFolder] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def take(self, source: ArmToShip) -> bool:
        """Pack a target; return whether it could be, and passed.

        Raises:
            UsageError: the first one can't be packed, as on another machine than the one that measured.
        """
        target, label = source.arm.target, short(source.arm.label)
        place = self.folder / CONTENDERS / name_contender(target.backend, target.precision)
        self.progress.stage(f"shipping {label}")
        try:
            built = find_built(source, self.progress, beside=[one.arm for one in self.proposals.targets])
            shipped = write_folder(source, built, place, self.evidence, anywhere=True)
            check_folder(shipped)
            if self.packed and _call_of(shipped) != _call_of(first := next(iter(self.packed.values()))):
                raise SkippedArm(f"it isn't called as {short(first.arm.label)} is: other inputs or outputs")
        except (SkippedArm, ArmFailed, UsageError) as error:
            if isinstance(error, UsageError) and not self.packed:
                raise
            shutil.rmtree(place, ignore_errors=True)
            self.left_out[label] = str(error).removeprefix(f"{place} was written, but ")
            return False
        self.packed[label] = shipped
        self.left_out.pop(label, None)
        return True

    def take_all(self, count: int) -> ArmToShip:
        """Pack the safe one, the answer, then different runtimes before a second precision of one; return the safe one.

        Raises:
            NothingMeasured: there is no safe one, or nothing beside it; says why.
        """
        proposals = self.proposals
        self.left_out |= proposals.left_out
        names = {short(one.arm.label) for one in (*proposals.plain, *proposals.targets)}
        if proposals.plain and len(names) < FEWEST_CONTENDERS:  # before anything is built
            raise self._refuse(f"{next(iter(names))} alone can go along")
        safe = next(filter(self.take, proposals.plain), None)
        if safe is None:
            raise self._refuse("no plain FP32 target can go along, and one has to be the safe one")
        every = proposals.targets
        for targets, is_runtime_new in ((every[:1], False), (every, True), (every, False)):
            for one in targets:
                if not self._is_settled(one) and len(self.packed) < count:
                    self._take_new(one, is_runtime_new=is_runtime_new)
        if len(self.packed) < FEWEST_CONTENDERS:
            raise self._refuse(f"{short(safe.arm.label)} alone can go along")
        self._leave_rest([one for one in every if not self._is_settled(one)], count)
        return safe

    def _is_settled(self, source: ArmToShip) -> bool:
        return short(source.arm.label) in {**self.packed, **self.left_out}

    def _leave_rest(self, rest: Sequence[ArmToShip], count: int) -> None:
        """Say of the rest that others go along, and of the next one that one more would take it, if that is so."""
        full = f"{len(self.packed)} others go along"
        for one in rest if count < MOST_CONTENDERS else ():
            self._take_new(one, is_runtime_new=False)
            if shipped := self.packed.pop(label := short(one.arm.label), None):
                shutil.rmtree(shipped.folder)
                self.left_out[label] = f"{full}; --contenders {count + 1} takes it, too"
                break
        self.left_out |= {short(one.arm.label): full for one in rest if not self._is_settled(one)}

    def _take_new(self, source: ArmToShip, *, is_runtime_new: bool) -> None:
        """Pack a target unless its runtime goes along in this precision; or at all, if that has to be new."""
        mine, safe = source.arm.target, next(iter(self.packed.values()))
        of_runtime = [one.target for one in self.packed.values() if one.target.backend == mine.backend]
        if any(one.precision == mine.precision for one in of_runtime):
            self.left_out[short(source.arm.label)] = f"another {mine.backend} in {mine.precision} goes along"
        elif self.proposals.cell.compare(source.arm.label, safe.arm.label) is None:
            self.left_out[short(source.arm.label)] = f"{NEVER_TOGETHER} with {short(safe.arm.label)}"
        elif not (is_runtime_new and of_runtime):
            self.take(source)

    def _refuse(self, what: str) -> NothingMeasured:
        others = "; ".join(join_reasons(self.left_out)) or "no other was raced"
        return NothingMeasured(f"{what}: {others}; race others with it (--backends), or leave out --choose-on-landing")


def _call_of(shipped: ShippedFolder) -> tuple[object, ...]:
    """Return what a caller sees of a folder: arrays in and out, or a table's columns in place of them."""
    return shipped.inputs, shipped.outputs, "columns" in shipped.runtime.options


def ship_to_choose(run: Path, out: Path, *, policy: Policy | None, group: str | None, as_json: bool = False) -> int:
    """Write the folder of the targets that could win elsewhere, and let it choose once here; return the exit code.

    Args:
        out: the folder to make.
        policy, group: see `find_arm_to_ship`.
        as_json: print what was written.

    Raises:
        UsageError: `out` already exists, or the run asks for something else than the time of a call.
        NothingMeasured: fewer than two targets can go along.
        ArmFailed: the folder's own program fails here; the folder stays.
    """
    if out.exists():
        raise is_there(out)
    answer = find_arm_to_ship(run, None, policy, group, takes_leader=True)
    proposals = propose_contenders(answer)
    with show_progress() as progress, in_use():
        with new_folder(out):
            packing = Packing(folder=out, evidence=collect_evidence(answer), proposals=proposals, progress=progress)
            safe = packing.take_all((policy or Policy()).contenders)
            contenders = _compare_with_safe(packing, proposals.cell, safe.arm.label)
            landing = write_landing(out, contenders, answer.run.history.header.bias_floor)
        progress.stage(f"choosing here, at most {LIMIT_S:.0f} s")
        with tempfile.TemporaryDirectory() as kept:  # not in the folder: it lands on another machine
            chosen = json.loads(run_program(out, CHOOSE, "--json", **{KEPT: kept}))
    for line in _tell(answer, out, contenders, join_reasons(packing.left_out), chosen):
        sys.stderr.write(f"{line}\n")
    written = {"folder": str(out), "group": answer.row.group, "size_bytes": _size_of(out), "safe": landing["safe"]}
    written |= {"contenders": landing["contenders"], "left_out": packing.left_out, "chosen_here": chosen}
    return print_written(written, as_json=as_json)


def _compare_with_safe(packing: Packing, cell: Cell, safe: str) -> list[Contender]:
    """Return what was packed, the fastest first, with the run's ratios to the safe one."""
    found = [
        Contender(shipped=one, ratio=None if one.arm.label == safe else cell.ratio(one.arm.label, safe))
        for one in packing.packed.values()
    ]
    return sorted(found, key=lambda one: one.ratio.value if one.ratio else 1.0)


def _size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _tell(
    answer: ArmToShip, out: Path, contenders: Sequence[Contender], left_out: Sequence[str], chosen: Mapping[str, Any]
) -> Iterator[str]:
    """Tell which targets go along and which don't, what the folder chooses here, and the command that comes next."""
    told = {short(one.shipped.arm.label): one.ratio for one in contenders}
    safe = next(label for label, ratio in told.items() if ratio is None)
    wide = max(map(len, told))
    yield f"{out}: {size(_size_of(out))}, {counted(len(told), 'contender')}, each checked here"
    choice = answer.choice
    is_open = choice is not None and bool(choice.reason or choice.unsettled)
    yield f"in the run {answer.folder}{', which has not decided' if is_open else ''}:"
    for label, ratio in told.items():
        yield f"  {label:{wide}}  {tell_ratio(ratio, safe) if ratio else 'the safe one, taken if there is no verdict'}"
    yield from (f"left out  {line}" for line in left_out)
    yield tell_choice(chosen)
    yield f"next, where it runs:  {NEXT.format(shlex.quote(str(out)))}"


def tell_choice(chosen: Mapping[str, Any]) -> str:
    """Tell what the folder chose here, from what its program printed."""
    is_safe = chosen["restarts"] and chosen["chosen"] in (None, chosen["safe"])
    told = f"{chosen['reason']}{'; the safe one is taken' if is_safe else ''}"
    return f"in a race of {seconds(chosen['seconds'])} here, just now: {told}"
