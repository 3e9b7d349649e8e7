"""What an arm under requests has come to over its restarts: whether it held its limit, and who remembers it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.races import fakes
from support.races.made import header, played, rounds, write

from shootout.apps.judge import rows
from shootout.core.contract import Arm, NotRunKind
from shootout.core.journal.records import Line
from shootout.core.messages import LoadTestResult, TriedRate
from shootout.core.race.race import Race
from shootout.core.results.run import read_run
from shootout.scenarios import load_search as p99_limit
from shootout.tell.document import Timing


def serves(backend: str, **how: bool) -> Arm:
    return replace(fakes.arm(backend, **how), scenario="serve")


@pytest.mark.parametrize(("steps", "never"), [((False, False), True), ((False, True), False), ((), False)])
def test_an_arm_has_a_rate_only_if_one_held_in_some_restart(steps: tuple[bool, ...], never: bool):
    tried = [TriedRate(rate_per_s=500.0, requests=1_000, bound_ns=2e6, held=held) for held in steps]
    done = [LoadTestResult(limit_ns=5e6, unloaded_ns=1e6, steps=(one,)) for one in tried]
    assert p99_limit.never_held(done) is never


@pytest.mark.parametrize("held", [True, False])
def test_a_given_rate_does_not_hold_where_the_queue_grew(*, held: bool) -> None:
    step = TriedRate(rate_per_s=500.0, requests=1_000, bound_ns=2e6, held=held)
    done = LoadTestResult(given_per_s=500.0, limit_ns=5e6, unloaded_ns=1e6, steps=(step,) * 3)
    figures = dict.fromkeys(("p99_ns", "ratio"))
    timing = Timing(median_ns=2e6, low_ns=1e6, high_ns=3e6, confidence=0.9, samples=1, restarts=1, **figures)
    found = rows.serving([done] * 2, timing, p99_limit.hold([done] * 2, timing.median_ns, 0.0))
    assert found.holds is held


@pytest.mark.parametrize(
    ("held", "late_ns", "holds", "p99_ns"),
    [
        ((True, True, False), None, True, 2e6),
        ((True, False, False), 9e6, False, 9e6),
        ((True, False, False), None, False, None),
        ((True, False), 9e6, False, 5.5e6),
    ],
)
def test_a_search_holds_its_limit_only_if_some_rate_did_in_most_restarts(
    *, held: tuple[bool, ...], late_ns: float | None, holds: bool, p99_ns: float | None
) -> None:
    served = []
    for ok in held:
        step = TriedRate(rate_per_s=500.0, requests=1_000, bound_ns=2e6 if ok else late_ns, held=ok)
        worse = TriedRate(rate_per_s=900.0, requests=1_000, bound_ns=8e6, held=False)
        served.append(LoadTestResult(limit_ns=5e6, unloaded_ns=1e6, steps=(worse, step)))
    figures = dict.fromkeys(("p99_ns", "ratio"))
    timing = Timing(median_ns=2e6, low_ns=1e6, high_ns=3e6, confidence=0.9, samples=1, restarts=1, **figures)
    found = rows.serving(served, timing, p99_limit.hold(served, timing.median_ns, 0.0))
    assert (found.holds, found.p99_ns) == (holds, p99_ns)


def restart(*, held: bool, disturbed: bool, given: float | None = None, rate: float = 500.0) -> LoadTestResult:
    one = TriedRate(rate_per_s=rate, requests=1_000, bound_ns=2e6 if held else 9e6, held=held, counts=not disturbed)
    return LoadTestResult(given_per_s=given, limit_ns=5e6, unloaded_ns=1e6, steps=(one,) * 3)


@pytest.mark.parametrize("given", [None, 500.0])
@pytest.mark.parametrize(
    ("calm", "disturbed", "is_out", "holds"),
    [(0, 9, False, None), (1, 2, False, None), (2, 1, False, False), (3, 0, True, False), (3, 9, True, False)],
)
def test_disturbed_restarts_alone_break_no_limit(
    given: float | None, calm: int, disturbed: int, is_out: bool, holds: bool | None
):
    done = [restart(held=False, disturbed=False, given=given)] * calm
    done += [restart(held=False, disturbed=True, given=given)] * disturbed
    assert p99_limit.breaks(done, 9e6) is is_out
    assert p99_limit.known_to_hold(done, 9e6, 0.2) is holds
    assert p99_limit.only_disturbed(done) is (calm == 0)


@pytest.mark.parametrize("given", [None, 500.0])
def test_a_target_that_held_in_calm_restarts_is_not_out_for_its_disturbed_ones(given: float | None):
    done = [restart(held=True, disturbed=False, given=given)] * 3
    done += [restart(held=False, disturbed=True, given=given)] * 9
    assert p99_limit.breaks(done, 9e6) is False


@pytest.mark.parametrize(("calm", "upper"), [(3, None), (4, 500.0)])
def test_a_rate_is_bounded_by_enough_calm_restarts_whatever_the_disturbed_ones(calm: int, upper: float | None):
    done = [restart(held=False, disturbed=False)] * calm + [restart(held=False, disturbed=True, rate=60.0)] * 5
    assert p99_limit.bounding_rate(done) == upper


@pytest.mark.parametrize(("disturbed", "known"), [(True, ", in disturbed rounds alone"), (False, "")])
def test_a_row_whose_rates_failed_in_disturbed_rounds_alone_says_so(tmp_path: Path, disturbed: bool, known: str):
    arms = [serves("a"), serves("a", control=True)]
    lines: list[Line] = []
    for g in range(2):
        done = restart(held=False, disturbed=disturbed)
        lines += [played(arm, g, 2e6, served=done) for arm in arms]
        lines.append(rounds(g))
    run = read_run(write(tmp_path, header(arms), *lines))
    row = rows.make_row(run, run.rows[0])
    assert row.cause is (NotRunKind.NOT_REACHED if disturbed else NotRunKind.NEVER_HELD)
    assert row.reason
    assert row.reason.removeprefix("no rate that was tried held the limit on p99").startswith(known)


@pytest.mark.parametrize(
    ("bounds", "highest"),
    [((2e6, 2e6, 4e6, 3e6), 4e6), ((2e6, 2e6, 4e6), None), ((2e6, 2e6, None, 3e6), None)],
)
@pytest.mark.parametrize("given", [None, 500.0])
def test_a_limit_under_load_goes_by_the_worst_of_four_restarts(
    given: float | None, bounds: tuple[float | None, ...], highest: float | None
) -> None:
    steps = [TriedRate(rate_per_s=500.0, requests=1_000, bound_ns=ns, held=ns is not None) for ns in bounds]
    facts = {"given_per_s": given, "limit_ns": 5e6, "unloaded_ns": 1e6}
    done = [LoadTestResult(**facts, steps=(one,)) for one in steps]
    assert p99_limit.highest_p99_ns(done) == highest


@pytest.mark.parametrize("given", [None, 500.0])
@pytest.mark.parametrize(
    ("held", "failed", "calm_failed", "highest", "holds"),
    [(4, 9, 0, 2e6, True), (3, 9, 0, None, None), (4, 0, 1, 9e6, True), (4, 0, 5, 9e6, None), (4, 9, 4, 9e6, None)],
)
def test_a_limit_that_held_in_four_disturbed_restarts_is_met_whatever_failed_in_others(
    given: float | None, held: int, failed: int, calm_failed: int, highest: float | None, holds: bool | None
):
    """A neighbor makes requests late and none early; a failure without a neighbor counts as ever."""
    done = [restart(held=False, disturbed=True, given=given)] * failed
    done += [restart(held=False, disturbed=False, given=given)] * calm_failed
    done += [restart(held=True, disturbed=True, given=given)] * held
    worst_ns = 2e6 if 2 * held > len(done) else 9e6
    assert p99_limit.highest_p99_ns(done) == highest
    assert p99_limit.known_to_hold(done, worst_ns, 0.9) is holds


@pytest.mark.parametrize(("disturbed", "highest"), [(True, 3e6), (False, 9e6)])
def test_a_step_that_held_beside_a_neighbor_shows_that_the_given_rate_holds(disturbed: bool, highest: float):
    """As in a search; without a neighbor it is the middle step that counts."""
    steps = [
        TriedRate(rate_per_s=500.0, requests=1_000, bound_ns=ns, held=ns < 5e6, counts=not disturbed)
        for ns in (9e6, 3e6, 9e6)
    ]
    one = LoadTestResult(given_per_s=500.0, limit_ns=5e6, unloaded_ns=1e6, steps=tuple(steps))
    assert p99_limit.highest_p99_ns([one] * 4) == highest
    assert p99_limit.known_to_hold([one] * 4, 9e6, 0.0) is disturbed


@pytest.mark.parametrize(
    ("held", "failed", "calm_failed", "why"),
    [
        (1, 2, 0, "3 of 4 restarts"),
        (3, 13, 0, "the limit held in 3 of 16 restarts, and 4 are needed; 13 failed in disturbed rounds alone"),
        (4, 0, 2, "the limit failed in 2 of 6 restarts"),
    ],
)
def test_why_no_p99_is_known_counts_the_restarts(held: int, failed: int, calm_failed: int, why: str):
    done = [restart(held=True, disturbed=True)] * held + [restart(held=False, disturbed=True)] * failed
    assert p99_limit.explain_unknown(done + [restart(held=False, disturbed=False)] * calm_failed) == why


def test_a_race_that_goes_on_remembers_who_broke_the_limit(tmp_path: Path) -> None:
    """Else it would lead again, and draw restarts, after every interrupt."""
    arms = [serves("a"), serves("b"), serves("c"), serves("a", control=True)]
    lines = []
    for g in range(4):
        for arm, ns, ok in zip(arms, (9e6, 2e6, 2e6 * 1.1 ** (g % 2), 9e6), (True, False, True, True), strict=True):
            tried = TriedRate(rate_per_s=500.0, requests=1_000, bound_ns=2e6 if ok else 9e6, held=ok)
            done = LoadTestResult(limit_ns=5e6, unloaded_ns=1e6, steps=(tried,))
            lines.append(played(arm, g, ns, served=done))
        lines.append(rounds(g))
    (found,) = read_run(write(tmp_path, header(arms), *lines)).groups.values()
    assert Race(arms={arm.label: arm for arm in arms}, group=found, seed="0").evidence.unsound == {"b:cpu:fp32"}
