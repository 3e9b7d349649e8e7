"""Any two arms of a run against each other, from the restarts that both played."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.races.made import COPY, A, B, ended, header, played, rounds, write

import shootout
from shootout.core.contract import Arm, Target
from shootout.core.errors import NotRun, NotRunKind, UsageError
from shootout.core.journal.records import not_run
from shootout.core.stats.verdicts import Verdict
from shootout.core.study.group import GroupRecord

C = Arm(target=Target(backend="c"), model="identity")
TIMES = ((A, 1_000), (COPY, 1_001), (B, 500), (C, 250))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> shootout.Run:
    """Three arms and the baseline's copy in five restarts, and one that failed; two of them also alone."""
    gone = replace(C, target=Target(backend="d"))
    first = header((A, B, C, gone, COPY))
    other = GroupRecord(name="other", baseline=B.label, comparisons=1, arms=(B, C))
    lines = [line for g in range(5) for line in (*(played(arm, g, ns + g) for arm, ns in TIMES), rounds(g))]
    failure = not_run(first.groups[0].name, gone, NotRun(NotRunKind.FAILED, "it broke", during="load"))
    folder = tmp_path_factory.mktemp("run") / "run"
    return shootout.load(
        write(folder, first.model_copy(update={"groups": (*first.groups, other)}), failure, *lines, ended())
    )


def test_any_two_arms_of_a_group_have_a_verdict_and_the_baseline_the_one_of_its_row(run: shootout.Run):
    assert run.verdict("b", "a:cpu:fp32") == run.verdicts["identity, batch 1", "b:cpu:fp32"]
    found = run.verdict("c", "b", group="identity, batch 1")
    assert found.verdict is Verdict.FASTER
    assert found.low < 0.5 < found.high
    back = run.verdict("b", "c", group="identity, batch 1")
    assert back.verdict is Verdict.SLOWER
    assert back.value == pytest.approx(1 / found.value)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("b:cpu:fp23", "a"), "unknown arm 'b:cpu:fp23': did you mean 'b:cpu:fp32'"),
        (("a:cpu:fp32#control", "b"), "unknown arm"),
        (("b", "c"), "raced in several groups; name one: 'identity, batch 1', 'other'"),
        (("b", "b:cpu:fp32"), "are one arm"),
        (("a", "d"), "'d:cpu:fp32' has no time to compare: it broke"),
    ],
)
def test_what_did_not_race_has_none_and_why_is_said(run: shootout.Run, names: tuple[str, str], said: str):
    with pytest.raises(UsageError) as error:
        run.verdict(*names)
    assert said in str(error.value)


def test_a_group_is_named_as_it_is(run: shootout.Run):
    with pytest.raises(UsageError, match="unknown group 'othr': did you mean 'other'"):
        run.verdict("b", "c", group="othr")
    with pytest.raises(UsageError, match="never timed in the same restart"):
        run.verdict("b", "c", group="other")
    with pytest.raises(UsageError, match="unknown arm 'a'"):
        run.verdict("a", "b", group="other")
