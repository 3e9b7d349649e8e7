"""Which arm is shipped: the named one, the policy's, the answer's; and a clear word where that is nobody."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from support.races import made
from support.races.made import A, B, ended, header, played, prepared, rounds

from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.decide.policy import Policy, read_policy
from shootout.apps.judge.to_ship import find_arm_to_ship
from shootout.core.contract import Fidelity
from shootout.core.errors import NothingMeasured, Undecided, UsageError
from shootout.core.journal.records import Line
from shootout.core.study.group import GroupRecord

KEPT = Path(__file__).parents[2] / "results" / "reference"

ERROR = Fidelity(max_abs=1e-7, relative_l2=1e-7, sqnr_db=None, cosine=1.0, top1_agreement=1.0, error_bound=1e-5)


def run(folder: Path, first_ns: float, second_ns: float, arms=(A, B, made.COPY), restarts: int = 6) -> Path:
    """A run of two arms and the baseline's copy."""
    timed = [*zip(arms, (first_ns, second_ns, first_ns), strict=True)]
    lines = [
        line
        for number in range(restarts)
        for line in (
            *(played(arm, number, ns * (1 + 0.001 * number), fidelity=ERROR) for arm, ns in timed),
            rounds(number),
        )
    ]
    return made.write(folder / "run", header(arms), *map(prepared, arms), *lines, ended())


def test_a_named_arm_is_shipped_by_its_short_name(tmp_path: Path):
    assert find_arm_to_ship(run(tmp_path, 1e6, 2e6), "b").arm == B


def test_a_policy_s_choice_is_shipped_out_of_its_own_cell(tmp_path: Path):
    """Both cells have an arm of that name."""
    cells = {f"identity, batch 1, {n} threads": [replace(arm, threads=n) for arm in (A, B, made.COPY)] for n in (2, 1)}
    lines: list[Line] = []
    for name, arms in cells.items():
        lines += [prepared(arm).model_copy(update={"group": name}) for arm in arms]
        for number in range(6):
            ns = 2e6 / arms[0].threads
            lines += [played(arm, number, ns * (1 + (arm == arms[1])), fidelity=ERROR, group=name) for arm in arms]
            lines.append(rounds(number).model_copy(update={"group": name}))
    groups = [GroupRecord(name=name, baseline=A.label, comparisons=1, arms=tuple(arms)) for name, arms in cells.items()]
    folder = made.write(tmp_path / "run", header(groups=tuple(groups)), *lines, ended())
    source = find_arm_to_ship(folder, policy=read_policy(None, {"memory": "1GB"}))
    assert (source.row.group, source.arm) == ("identity, batch 1, 2 threads", replace(A, threads=2))


def test_nobody_is_shipped_who_breaks_a_limit(tmp_path: Path):
    with pytest.raises(NothingMeasured, match=r"every limit, nearest is a: memory .*; this lets a in: shootout decide"):
        find_arm_to_ship(run(tmp_path, 1e6, 2e6), policy=read_policy(None, {"memory": "1kB"}))


@pytest.mark.parametrize("kept", ["shootout", "h200-shootout", "resnet-quantization", "trees"])
def test_a_printed_command_that_accepts_a_loss_ships_that_target(kept: str):
    """Its limits choose it, or it names it."""
    for answer in analyse(KEPT / kept).answer:
        for change in answer.would_change:
            if change.accept:
                _, command, folder, *words = shlex.split(change.accept)
                assert command == "ship"
                given = dict(zip(words[::2], words[1::2], strict=True))
                group, name, _ = given.pop("--group", None), given.pop("--target", None), given.pop("-o")
                limits = {name.removeprefix("--"): value for name, value in given.items()}
                policy = read_policy(None, limits) if limits else None
                shipped = find_arm_to_ship(Path(folder).expanduser(), name, policy, group)
                assert shipped.row.arm == change.arm, change.accept


def test_the_best_so_far_has_to_be_named(tmp_path: Path):
    folder = run(tmp_path, 1e6, 2e6, restarts=1)
    with pytest.raises(Undecided, match=r"a is only the best so far: b .*isn't ruled out; .*--target"):
        find_arm_to_ship(folder)  # as the answer says it
    assert find_arm_to_ship(folder, "a").arm == A


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"name": "nothing"}, "unknown target 'nothing'"),
        ({"name": "a", "policy": Policy()}, "pass --target, or else a policy's options"),
        ({"name": "a", "group": "elsewhere"}, "unknown group 'elsewhere'"),
    ],
)
def test_what_can_t_be_meant_is_refused(how: dict, words: str, tmp_path: Path):
    with pytest.raises(UsageError, match=words):
        find_arm_to_ship(run(tmp_path, 1e6, 2e6), **how)


def test_a_training_step_is_refused(tmp_path: Path):
    arms = tuple(replace(arm, scenario="train-step") for arm in (A, B, made.COPY))
    with pytest.raises(UsageError, match="training step"):
        find_arm_to_ship(run(tmp_path, 1e6, 2e6, arms), "a")


def test_a_mix_is_refused_with_the_command_that_races_its_largest_size():
    with pytest.raises(UsageError, match=r"a mix can't be shipped.*; the first is shootout run .*--set sequence=\d+ "):
        find_arm_to_ship(KEPT / "varying-encoder")
