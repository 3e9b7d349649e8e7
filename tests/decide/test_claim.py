"""What a run says of a claim, by its one interval. Runs made by hand: `fast` takes half of what `slow` does."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.races import made

from shootout.apps.judge.analysis import Analysed, analyse_cells
from shootout.apps.judge.claim import JudgedClaim, judge_claim, read_claim
from shootout.core.contract import Arm, Fidelity, NotRunKind, Target
from shootout.core.errors import UsageError
from shootout.core.journal.records import Setback
from shootout.tell.limits import Limit, judge_limit

SLOW, FAST = (Arm(target=Target(backend=name), model="identity") for name in ("slow", "fast"))
COPY = Arm(target=Target(backend="slow"), model="identity", control=True)
ARMS = (SLOW, FAST, COPY)
Ns = tuple[float, float, float]


def run_of(
    folder: Path,
    *also: Setback,
    restarts: int = 6,
    sd: float = 0.02,
    ns: Ns = (2e6, 1e6, 2e6),
    of_slow: Fidelity = made.EXACT,
    **of_fast: Any,
) -> Analysed:
    """A run whose restarts scatter by `sd`.

    Args:
        also: lines that follow.
        ns: the times of the slow arm, the fast one and the slow one's copy.
        of_slow: the errors of the slow arm.
        of_fast: what differs in the lines of the fast arm.
    """
    rng, lines = np.random.default_rng(7), list[Any]()
    for number in range(restarts):
        for arm, mine_ns in zip(ARMS, ns, strict=True):
            changes = of_fast if arm is FAST else {"fidelity": of_slow}
            lines.append(made.played(arm, number, mine_ns * np.exp(rng.normal(0.0, sd)), **changes))
        lines.append(made.rounds(number))
    made.write(folder, made.header(ARMS), *lines, *also, made.ended())
    return analyse_cells(folder)


def judge(run: Analysed, text: str, *names: str) -> JudgedClaim:
    return judge_claim(run, read_claim(text), *(names or ("fast", "slow")))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    return run_of(tmp_path_factory.mktemp("run"))


@pytest.mark.parametrize(
    ("text", "names", "standing", "sentence"),
    [
        ("faster", ("fast", "slow"), "met", r"fast is 2\.\d+x faster than slow \(1\.\d+ to 2\.\d+\)"),
        ("1.5x faster", ("fast", "slow"), "met", r"fast is 2.* than slow \(.*\), at least 1\.5x"),
        ("2.5 x Faster", ("fast", "slow"), "broken", r"fast is 2.* than slow \(.*\), not 2\.5x faster"),
        ("slower", ("fast", "slow"), "broken", r"fast is 2.*x faster than slow \(.*\), not slower"),
        ("same speed", ("fast", "slow"), "broken", r"fast is 2.*x faster than slow \(.*\), not the same"),
        ("1.5x slower", ("slow:cpu:fp32", "fast"), "met", r"slow is 2.*x slower than fast \(.*\), at least 1\.5x"),
        ("1.2x faster", ("slow", "fast"), "broken", r"slow is 2.*x slower than fast \(.*\), not 1\.2x faster"),
        (
            "2x faster",
            ("fast", "slow"),
            "unknown",
            r"can't tell whether fast is 2x faster than slow: it is about 2",
        ),
    ],
)
def test_a_ratio_is_told_by_its_whole_interval(
    run: Analysed, text: str, names: Sequence[str], standing: str, sentence: str
):
    found = judge(run, text, *names)
    assert found.standing == standing
    assert re.match(sentence, str(found)), str(found)
    assert bool(found.reason) is (standing == "unknown")


def test_the_interval_that_is_returned_decides(run: Analysed):
    ends = judge(run, "faster").figure.low, judge(run, "faster").figure.high
    told = [judge(run, f"{factor:.3f}x faster").standing for factor in np.linspace(1.05, 3, 60)]
    assert told == [judge_limit(ends, factor, at_most=False) for factor in np.linspace(1.05, 3, 60)]
    assert {*told} == {"met", "unknown", "broken"}


def test_what_would_tell_is_a_race_for_that_claim(run: Analysed):
    found = judge(run, "1.95x faster")
    assert re.search(r"\); about \d+ restarts would tell, and 6 were played$", found.reason)
    assert re.search(r"--baseline fast --goal 'resolve [12]\.\d%' --max-time 5m$", found.next or "")
    assert judge(run, "2x faster").next is None, "the truth itself"


def test_an_unfinished_run_goes_on_before_the_two_race_anew(run: Analysed):
    cell = run.cells[made.GROUP]
    unfinished = dataclasses.replace(cell, complete=False, begun=dataclasses.replace(cell.begun, words=("run", "x")))
    found = judge(dataclasses.replace(run, cells={made.GROUP: unfinished}), "1.95x faster")
    assert re.fullmatch(r"run x --out \S+ --max-time 5m", found.next or "")


def test_a_difference_within_the_noise_is_neither(tmp_path: Path):
    noisy = run_of(tmp_path, sd=0.3, restarts=3)
    for text in ("faster", "slower", "same speed", "1.5x faster"):
        found = judge(noisy, text)
        assert (found.standing, ", open; about" in found.reason) == ("unknown", True), found
        assert found.next


def test_equals_are_the_same_and_not_faster(tmp_path: Path):
    same = run_of(tmp_path, sd=0.001, ns=(1e6, 1e6, 1e6))
    assert judge(same, "same speed").standing == "met"
    assert judge(same, "faster").standing == "broken"
    assert str(judge(same, "faster")).startswith("fast is as fast as slow (within")


def test_no_claim_on_times_stands_if_the_control_strays(tmp_path: Path):
    found = judge(run_of(tmp_path, ns=(2e6, 1e6, 3e6)), "1.5x faster")
    assert (found.standing, "control" in found.reason) == ("unknown", True)


@pytest.mark.parametrize("cause", [NotRunKind.SOFTWARE, NotRunKind.NOT_INSTALLED, NotRunKind.FAILED])
def test_what_has_no_time_is_unknown_with_the_reason(tmp_path: Path, cause: NotRunKind):
    out = Setback(kind="skip", group=made.GROUP, arm=FAST, reason="a program", fix="use a GPU", cause=cause)
    without = run_of(tmp_path, out)
    for text, names in (("faster", ("fast", "slow")), ("1.5x slower", ("slow", "fast")), ("p99 under 5s", ("fast",))):
        found = judge(without, text, *names)
        assert (found.standing, "a program" in found.reason, found.next) == ("unknown", True, None), found


@pytest.mark.parametrize(
    ("error", "text", "standing"),
    [
        (1e-6, "same outputs within 1e-4", "met"),
        (1e-3, "same outputs within 1e-4", "broken"),
        (1e-3, "same outputs within 0.1%", "met"),
        (None, "same outputs within 1e-4", "broken"),
    ],
)
def test_outputs_are_compared_with_the_reference_outputs(tmp_path: Path, error: float | None, text: str, standing: str):
    refused = {"standing": "refused"} if error is None else {}
    outputs = dataclasses.replace(made.EXACT, relative_l2=error, **refused)
    found = judge(run_of(tmp_path, restarts=1, fidelity=outputs), text, "fast")
    assert (found.standing, found.figure.value) == (standing, error)


@pytest.mark.parametrize(
    ("error", "standing", "sentence"),
    [
        (5e-5, "met", "fast and slow give the same outputs within 0.01 %: their errors against the reference outputs "),
        (1e-3, "broken", "fast and slow don't give the same outputs within 0.01 %: their errors against the reference"),
        (9.9e-5, "unknown", "can't tell whether fast and slow give the same outputs within 0.01 %: their errors "),
        (None, "broken", "fast: its outputs were refused"),
    ],
)
def test_outputs_of_two_differ_by_their_errors_together_at_most(
    tmp_path: Path, error: float | None, standing: str, sentence: str
):
    refused = {"standing": "refused"} if error is None else {}
    outputs = dataclasses.replace(made.EXACT, relative_l2=error, **refused)
    slow = dataclasses.replace(made.EXACT, relative_l2=2e-6)
    found = judge(run_of(tmp_path, restarts=1, fidelity=outputs, of_slow=slow), "same outputs within 1e-4")
    assert (found.standing, str(found)[: len(sentence)]) == (standing, sentence)


def test_a_percentile_takes_four_restarts(tmp_path: Path):
    found = judge(run_of(tmp_path, restarts=2), "p99 under 5ms", "fast")
    assert str(found) == "can't tell whether fast keeps p99 under 5 ms: 2 restarts, and a p99 takes 4"
    assert (found.next or "").endswith("--policy p99=5ms --max-time 5m")
    found = judge(run_of(tmp_path / "above", restarts=2), "p99 under 900us", "fast")
    assert re.fullmatch(r"fast: p99 9\d\d us > 900 us", str(found)), "no p99 lies below the median"
    assert (found.standing, found.figure.high) == ("broken", None)


def test_what_its_policy_ended_is_judged_by_what_it_played(tmp_path: Path):
    out = Setback(kind="skip", group=made.GROUP, arm=FAST, reason="breaks p99", cause=NotRunKind.OFF_LIMITS)
    ended = run_of(tmp_path, out, restarts=2)
    assert judge(ended, "p99 under 5ms", "fast").reason == "2 restarts, and a p99 takes 4"
    assert judge(ended, "faster").reason == "fast:cpu:fp32 left the race: breaks p99"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("better", "the claim 'better' can't be read: write 'faster', '1.15x faster'"),
        ("0.9x faster", "'0.9x faster' needs a factor above 1, such as 1.15; received '0.9'"),
        ("nanx slower", "the claim 'nanx slower' can't be read"),
        ("p99 under 5", "write a time with its unit as 5ms"),
        ("same outputs within 5ms", "write a relative error as 0.1% or 1e-3"),
        ("same outputs within -1", "it must be more than 0"),
    ],
)
def test_a_claim_that_cant_be_read_is_refused_with_what_can(text: str, told: str):
    with pytest.raises(UsageError, match=re.escape(told)):
        read_claim(text)


@pytest.mark.parametrize(
    ("text", "names", "told"),
    [
        ("faster", ("fast",), "the claim 'faster' compares two targets: name the one that 'fast' is compared with"),
        (
            "p99 under 5ms",
            ("fast", "slow"),
            "the claim 'p99 under 5 ms' is on one target: leave out 'slow', or judge it in its own call",
        ),
        ("faster", ("fast", "slo"), "unknown target 'slo': known: fast:cpu:fp32, slow:cpu:fp32"),
        ("faster", ("fast", "fast:cpu:fp32"), "'fast' is compared with itself: name another target"),
    ],
)
def test_a_claim_on_no_such_targets_is_refused(run: Analysed, text: str, names: Sequence[str], told: str):
    with pytest.raises(UsageError, match=re.escape(told)):
        judge(run, text, *names)


def test_a_claim_is_written_as_it_is_read():
    for text in ("faster", "1.15x slower", "same speed", "p99 under 5 ms", "same outputs within 0.01 %"):
        assert str(read_claim(text)) == text
    assert read_claim("p99 under 800us").limit is Limit.P99


@pytest.mark.parametrize(
    ("text", "value", "race"),
    [
        ("faster", 0.0, {"baseline": "b", "goal": "baseline"}),
        ("1.155x faster", 0.0, {"baseline": "a", "goal": "limit 15.5%"}),
        ("1.2x slower", 0.0, {"baseline": "b", "goal": "limit 20%"}),
        ("2x faster", 0.0, {"baseline": "b", "goal": "baseline"}),
        ("2x faster", 2.06, {"baseline": "a", "goal": "resolve 2.1%"}),
        ("2x faster", 8.0, {"baseline": "a", "goal": "resolve 5%"}),
        ("2x slower", 2.0001, {"baseline": "b", "goal": "resolve 0.5%"}),
        ("p99 under 5ms", 0.0, {"policy": "p99=5ms"}),
        ("same outputs within 1e-4", 0.0, {}),
    ],
)
def test_a_race_for_a_claim_ends_once_it_is_told(text: str, value: float, race: dict[str, str]):
    assert read_claim(text).race("a", "b", value=value) == race
