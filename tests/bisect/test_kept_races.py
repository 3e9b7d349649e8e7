"""Kept races: the quantities that they show of their releases, those that left, and what a search reads of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.races import made
from support.releases import find, plant

from shootout.apps.bisect.racing import name_python, read_race
from shootout.apps.bisect.releases import Environment
from shootout.apps.bisect.search import Outcome, Question, Raced, Side, Skipped
from shootout.core.contract import Arm, NotRunKind, Target
from shootout.core.journal.records import Setback
from shootout.core.results.run import Run, read_run

ENDS = Question(good="1.0", bad="1.1")
BASES = {"time": 1e6, "ready": 0.2, "memory": 1e8, "outputs": 1e-8}


def show(kind: str, figure: float) -> Mapping[str, Any]:
    """The part of a restart's line that shows this figure."""
    match kind:
        case "ready":
            return {"load_s": figure / 2, "first_call_s": figure / 2}
        case "memory":
            return {"rss_before_bytes": 10**7, "peak_rss_bytes": 10**7 + int(figure)}
        case "outputs":
            return {"fidelity": replace(made.EXACT, relative_l2=figure, error_bound=1e-6)}
    return {}


def arm_of(release: str) -> Arm:
    return Arm(target=Target(backend="a", python=name_python(release)), model="identity")


def make_environments(releases: Sequence[str]) -> dict[str, Environment]:
    return {at: Environment(release=at, python="/gone/bin/python", packages={}, size_bytes=0) for at in releases}


def race(
    folder: Path,
    kind: str,
    factors: Mapping[str, float],
    gone: Sequence[tuple[str, NotRunKind]] = (),
    *,
    restarts: int = 10,
    during: str = "",
) -> Run:
    """Restarts of releases, the good end first, with these factors of the figure, under noise of 0.5 %; some leave."""
    rng, lines, arms = np.random.default_rng(5), list[Any](), [arm_of(release) for release in factors]
    arms.append(replace(arms[0], control=True))
    for restart in range(restarts):
        for arm, factor in zip(arms, [*factors.values(), 1.0], strict=True):
            noise = 1.0 if kind == "outputs" else np.exp(rng.normal(0.0, 0.005))
            figure = float(BASES[kind] * factor * noise)
            lines.append(made.played(arm, restart, figure if kind == "time" else 1e6, **show(kind, figure)))
        lines.append(made.rounds(restart))
    for release, cause in gone:
        why: Any = {"reason": "no /home/me/libfake.so.3", "cause": cause, "during": during}
        lines.append(Setback(kind="failure", group=made.GROUP, arm=arm_of(release), **why))
    return read_run(made.write(folder, made.header(arms), *lines, made.ended()))


@pytest.mark.parametrize(("kind", "factor"), [("time", 1.1), ("ready", 1.1), ("memory", 1.1), ("outputs", 1e4)])
def test_a_difference_of_each_quantity_is_read_and_no_difference_too(tmp_path: Path, kind: str, factor: float):
    found = read_race(replace(ENDS, kind=kind), race(tmp_path / "run", kind, {"1.0": 1.0, "1.1": factor}))
    assert isinstance(found, Raced)
    assert (found.side, found.restarts, found.is_over) == (Side.BAD, 10, True)
    assert found.figures == {
        "1.0": pytest.approx(BASES[kind], rel=0.01),
        "1.1": pytest.approx(BASES[kind] * factor, rel=0.01),
    }
    same = read_race(replace(ENDS, kind=kind), race(tmp_path / "same", kind, {"1.0": 1.0, "1.1": 1.0}))
    assert isinstance(same, Raced)
    assert same.side is Side.GOOD


@pytest.mark.parametrize("restarts", [0, 1, 10])
@pytest.mark.parametrize(
    ("whys", "during", "is_out"),
    [
        ("FAILED", "", True),
        ("KILLED", "", False),
        ("KILLED KILLED", "", True),
        ("NOT_REACHED KILLED", "", False),
        ("KILLED NOT_REACHED KILLED", "", True),
        ("KILLED", "build", True),
    ],
)
def test_a_release_leaves_once_it_failed_or_was_killed_in_two_restarts_in_a_row(
    tmp_path: Path, whys: str, during: str, restarts: int, *, is_out: bool
):
    gone = [("1.1", NotRunKind[why]) for why in whys.split()]
    run = race(tmp_path, "time", {"1.0": 1.0, "1.1": 1.05}, gone, restarts=restarts, during=during)
    found = read_race(ENDS, run)
    assert found == Skipped("1.1", "no libfake.so.3") if is_out else isinstance(found, Raced) and not found.is_over


def test_a_search_reads_each_race_that_is_told_and_races_again_what_an_end_has_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    raced, gone = list[str](), [("1.3", NotRunKind.FAILED)]
    factors = plant(releases := ("1.0", "1.1", "1.2", "1.3"), "1.2", 1e4)
    environments = make_environments(releases)

    def play(question: Question, _: object, out: Path, __: object) -> None:
        raced.append(question.subject)
        race(out, "outputs", {at: factors[at] for at in question.releases}, gone if question.suspects else ())

    first = find(tmp_path / "out", environments, "outputs", race=play)
    assert (first.outcome, first.skipped, raced) == (Outcome.RANGE, {}, ["the ends", "1.2"])
    gone.clear()
    found = find(tmp_path / "out", environments, "outputs", race=play)
    assert (found.outcome, found.last_good, found.first_bad, found.questions) == (Outcome.NAMED, "1.1", "1.2", 4)
    assert raced[2:] == ["1.2", "1.1", "1.1 and 1.2"]
    bad = found.readings["1.2"]
    assert (bad.side, bad.folder, bad.figure) == (Side.BAD, str(tmp_path / "out" / "1.1-1.2"), pytest.approx(1e-4))
    assert find(tmp_path / "out", environments, "outputs", race=play) == found
    none = find(tmp_path / "none", environments, "outputs", race=play, seconds=5)
    assert (none.outcome, none.questions, len(raced)) == (Outcome.OPEN, 0, 5)
    assert "no race of the ends yet: --max-time leaves" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_a_skipped_release_is_said_when_it_is_new_and_not_when_it_is_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    def play(question: Question, _: object, out: Path, __: object) -> None:
        factors = {at: 1e4 if at == "1.2" else 1.0 for at in question.releases}
        race(out, "outputs", factors, [("1.1", NotRunKind.FAILED)] if question.suspects else ())

    environments, said = make_environments(("1.0", "1.1", "1.2")), list[int]()
    for _ in range(2):
        found = find(tmp_path / "out", environments, "outputs", race=play)
        assert (found.outcome, found.between, [*found.skipped]) == (Outcome.NAMED, ("1.1",), ["1.1"])
        said.append(capsys.readouterr().err.count("1.1 is skipped: no libfake.so.3"))
    assert said == [1, 0]
