"""Decisions from Python: a policy as a file, as keys or as a `Policy` says the same; what is wrong with one is said."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from support.races import made

import shootout
import shootout.tell.page.figures
from shootout import api
from shootout.apps.judge.analysis import analyse
from shootout.core.errors import NothingMeasured, NotRun, NotRunKind, UsageError
from shootout.core.install import install
from shootout.core.journal.records import not_run
from shootout.tell import page

SHARED_OUTPUTS = Path(__file__).resolve().parents[1] / "results" / "reference"
POLICY = {"objective": "latency", "limits": {"size": "20MB", "max-error": "0.2"}}


@pytest.fixture(scope="module")
def run() -> shootout.Run:
    return shootout.load(SHARED_OUTPUTS / "efficientnet-quantization")


def test_a_policy_says_the_same_in_every_form(run: shootout.Run, tmp_path: Path):
    file = tmp_path / "deploy.toml"
    file.write_text('objective = "latency"\n[limits]\nsize = "20MB"\nmax-error = "0.2"\n')
    found = run.decide(POLICY)
    assert found.chosen == "litert:cpu:int8"
    assert repr(found) == "<Decided tied: litert:cpu:int8>"
    assert found.decision == run.decide(file).decision == run.decide(found.decision.policy).decision
    assert str(found).startswith("Leads   litert:cpu:int8 ")
    assert "<span" in found._repr_html_()
    assert repr(run.decide({"limits": {"size": "1kB"}})) == "<Decided infeasible: no candidate meets every limit>"


def test_without_what_draws_the_extra_is_named(run: shootout.Run, monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.startswith("shootout.tell.page.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "shootout.apps.judge.decide.figure", raising=False)
    monkeypatch.setattr(page, "figures", page.figures)  # as it is, to be so again: the import below makes another
    monkeypatch.delattr(page, "figures")
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(UsageError, match=re.escape(f"a figure needs altair: {install('report')}")):
        run.plot()
    with pytest.raises(UsageError, match="a figure needs altair"):
        run.decide({}).plot()


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"limits": {"sise": "20MB"}}, "unknown limit 'sise': did you mean 'size'?"),
        ({"limts": {}}, "unknown key 'limts': did you mean 'limits'?"),
        ({"limits": {"size": 20}}, "size is 20: write"),
        ({"limits": ["size"]}, "limits is a table"),
        ("nowhere.toml", "can't read the policy 'nowhere.toml'"),
        (20, "; received 20"),
    ],
)
def test_what_is_wrong_with_a_policy_is_said(run: shootout.Run, policy: Any, said: str):
    with pytest.raises(UsageError) as error:
        run.decide(policy)
    assert said in str(error.value)


def test_a_run_takes_a_policy_as_keys_too():
    with pytest.raises(UsageError, match="unknown limit 'p9': did you mean 'p99'"):
        shootout.plan("shootout", policy={"limits": {"p9": "5ms"}})


def test_runs_of_different_models_are_no_question(run: shootout.Run):
    with pytest.raises(UsageError, match="model differs: efficientnet and digits"):
        run.decide(POLICY, shootout.load(SHARED_OUTPUTS / "digits"))


def test_a_run_that_timed_nothing_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    why = NotRun(NotRunKind.TOO_BIG, "needs 9.0 GiB of memory, has 2.0 GiB")
    made.write(tmp_path / "run", made.header(), *(not_run(made.GROUP, arm, why) for arm in made.ARMS[:2]))
    monkeypatch.setattr(api, "plan_run", lambda *_: (None, None))
    monkeypatch.setattr(api, "measure_run", lambda *_, **__: analyse(tmp_path / "run"))
    with pytest.raises(NothingMeasured, match=r"nothing was measured: a:cpu:fp32: needs 9\.0 GiB of memory") as error:
        shootout.run("made", out=tmp_path / "run")
    assert error.value.exit_code == 3
    assert len(shootout.load(tmp_path / "run").rows) == 2


def test_a_run_is_found_after_the_working_directory_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(SHARED_OUTPUTS)
    run = shootout.load("gap-after")
    arms = [row.arm for row in run.rows if row.end_to_end][:2]
    before = run.verdict(*arms), run.decide({}).decision
    assert before[1].runs == ("gap-after",)
    monkeypatch.chdir(tmp_path)
    assert (run.verdict(*arms), run.decide({}).chosen) == (before[0], before[1].chosen)
    assert run.plot()
