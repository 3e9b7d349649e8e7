"""A third party's scenario: one file and an entry point, from the command line to the row."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.adapters.third_party import install
from support.console import deaf_here, spin_study

from shootout.commands import selection
from shootout.commands.options import list_scenario_options
from shootout.core.errors import UsageError
from shootout.core.journal import journal
from shootout.core.journal.records import Played
from shootout.core.journal.samples import Samples
from shootout.core.plugins import SCENARIOS
from shootout.core.scenario import find_scenario, scenario_names
from shootout.core.study.points import points
from shootout.core.study.schema import checked, options_model, study_options
from shootout.studies import load
from shootout.tell import reproduce
from shootout.tell.study_changes import change

OWN = '''
"""One call after the other, of which the slowest of each turn counts."""

from dataclasses import replace

from shootout.core.scenario import Scenario, StudyOption, Terms
from shootout.core.worker.blocks import Blocks


class Slowest(Scenario):
    name = "slowest"
    measures = "the slowest call of a turn"
    options = {"turns": StudyOption(kind=int, default=4, least=1, help="how many turns a restart has.")}
    scopes = ("end_to_end",)

    def terms(self, record, options, served, restart_s):
        return Terms(least=options["turns"], most=options["turns"])

    def open(self, built, sessions, seed):
        return Untold(sessions[0], built.exported.input_buffers())

    def values_ns(self, turns):
        return tuple(float(turn.latency_ns["end_to_end"].max()) for turn in turns)


class Untold(Blocks):
    def turn(self, ask):
        return replace(super().turn(ask), cpu_ns=None)
'''


DECLARED = """
from shootout.core.scenario import Scenario, StudyOption


class Half(Scenario):
    name = "half"
    options = {}
    %s
"""
FAULTS = {
    "name = 'whole'": "its own name is 'whole'",
    "options = [StudyOption()]": "AttributeError",
    "options = {'_hidden': StudyOption()}": "option '_hidden' of Half is no StudyOption with a public name",
    "options = {'calls': 4}": "option 'calls' of Half is no StudyOption with a public name",
    "options = {'calls': StudyOption(kind=object)}": "the kind of an option is bool, int, float or str",
}


def look_up_again() -> None:
    """Forget the scenarios that were found: a process looks them up once."""
    for cached in (find_scenario, scenario_names, study_options, options_model):
        cached.cache_clear()


@pytest.fixture(autouse=True)
def _own_look_up() -> Iterator[None]:
    look_up_again()
    yield
    look_up_again()


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (None, "ModuleNotFoundError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("Half = print", "it is a NoneType, no Scenario"),
        ("class Half:\n    name = 'half'", "it is a Half, no Scenario"),
        *((DECLARED % fault, why) for fault, why in FAULTS.items()),
    ],
)
def test_a_scenario_that_does_not_load_is_out_where_it_was_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: str | None, why: str
):
    install(tmp_path, "half-gone", {"half": "half_scenario:Half"}, SCENARIOS)
    if code:
        (tmp_path / "half_scenario.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "half_scenario", raising=False)
    assert "half" not in scenario_names()
    study = load("digits")
    assert change(study, seed=1).scenario == study.scenario
    told = capsys.readouterr().err
    assert told.count("left out: scenario 'half' of half-gone can't be loaded: ") == 1
    assert why in told
    with pytest.raises(UsageError, match="scenario 'half' of half-gone can't be loaded: "):
        change(study, scenario=("half",))
    sys.modules.pop("half_scenario", None)


BURST = """
from shootout.core.scenario import Scenario, StudyOption


class Burst(Scenario):
    name = "burst"
    measures = "the time of a burst"
    options = {"%s": StudyOption(kind=int, default=4, least=2, help="calls of one.", use="are calls of a burst")}
"""


@pytest.fixture
def burst(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a scenario with an option, `calls` or what the test says."""
    install(tmp_path, "bursts", {"burst": "burst_scenario:Burst"}, SCENARIOS)
    (tmp_path / "burst_scenario.py").write_text(BURST % getattr(request, "param", "calls"))
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("burst_scenario", None)


@pytest.mark.parametrize("burst", ["rate", "seed"], indirect=True)
@pytest.mark.usefixtures("burst")
def test_an_option_whose_name_is_taken_is_refused_where_its_scenario_is_asked_for():
    study = load("digits")
    assert change(study, seed=1).scenario == study.scenario
    reason = "scenario 'burst' has an option '(rate|seed)', which is taken"
    with pytest.raises(UsageError, match=reason):
        change(study, scenario=("burst",))
    with pytest.raises(UsageError, match=reason):
        points(change(study, points=({"scenario": "burst"},)))


@pytest.mark.usefixtures("burst")
def test_an_option_is_read_from_a_file_and_from_set_and_written_again(tmp_path: Path):
    study = change(load("digits"), scenario=("burst",))
    assert study.options_of(find_scenario("burst")) == {"calls": 4}
    assert change(study, parameters={"calls": (8,)}).value_of("calls") == 8
    file = tmp_path / "own.toml"
    file.write_text('model = "digits"\ntargets = ["numpy"]\nscenario = "burst"\ncalls = 6\n')
    given = selection.choose(str(file), {}).given
    assert given == {"calls": 6}
    assert reproduce.write_given(given) == [("--set", "calls=6")]
    assert list_scenario_options(["--scenario=burst"]) == {"--set calls=VALUE": "burst: calls of one."}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"scenario": ("burst",), "parameters": {"calls": (1,)}}, "calls is 1: .* greater than or equal to 2"),
        ({"scenario": ("burst",), "parameters": {"calls": (2, 4)}}, "calls is .2, 4.: .* valid integer"),
        ({"parameters": {"calls": (8,)}}, "unknown parameter 'calls'"),
    ],
)
@pytest.mark.usefixtures("burst")
def test_what_an_option_can_not_be_is_refused(words: dict[str, Any], reason: str):
    with pytest.raises(UsageError, match=reason):
        points(change(load("digits"), **words))


@pytest.mark.usefixtures("burst")
def test_an_option_of_a_scenario_that_is_not_asked_for_is_refused():
    with pytest.raises(UsageError, match=r"calls are calls of a burst: add scenario burst .* leave them out"):
        checked({"name": "s", "model": "digits", "targets": ["numpy"], "calls": 8})


def test_a_scenario_of_one_file_runs_by_an_entry_point(tmp_path: Path):
    modules = install(tmp_path / "own", "slowest-of-all", {"slowest": "slowest_call:Slowest"}, SCENARIOS)
    (modules / "slowest_call.py").write_text(OWN)
    asked = ["run", spin_study(tmp_path, restarts=2), "--scenario", "slowest", "--set", "turns=2"]
    done = deaf_here(*asked, "--out", "out", "--json", cwd=tmp_path, modules=modules)
    assert done.code == 0, done.err
    rows = done.data["rows"]
    assert [(row["group"], row["scenario"], row["outcome"]) for row in rows] == [
        ("identity, batch 1, slowest", "slowest", "measured")
    ] * 2
    assert rows[1]["end_to_end"]["ratio"]["verdict"]
    assert all(row["compute"] is None and row["cpu"] is None for row in rows), "as it is opened and compared"
    played = [line for line in journal.read(tmp_path / "out").lines if isinstance(line, Played)]
    assert len(played) == 6, "two arms and a control, twice"
    assert {len(line.block_median_ns["end_to_end"]) for line in played} == {2}, "as the option has it"
    assert journal.read(tmp_path / "out").header.given == {"turns": 2}
    for line in played:
        read = Samples(tmp_path / "out").of(line.group, line.arm, "end_to_end", {0: line.samples})[0]
        assert max(line.block_median_ns["end_to_end"]) == pytest.approx(read.max())
    look_up_again()
    elsewhere = deaf_here("show", "out", cwd=tmp_path)
    assert elsewhere.code == 2
    assert "its header, has 'turns', which no scenario that is installed here takes" in elsewhere.err
