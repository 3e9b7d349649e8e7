"""What may be said of two runs, by what they have in common; and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.console import here
from support.races import made
from support.races.candidates import analysed
from support.races.cells import row

from shootout.compare.document import Fate
from shootout.compare.levels import MOVED, NO_CONTROL, compare
from shootout.errors import UsageError
from shootout.journal import samples
from shootout.results.analysis import Analysed
from shootout.results.document import Row
from shootout.stats.verdicts import Verdict

ACCOUNT = {"library": "lib", "version": "1", "fallbacks": (), "compute_nodes_by_precision": {"fp32": 3}}


def timed(arm: str, ns: float, **account: Any) -> Row:
    return row(arm, ns, executed={**ACCOUNT, **account})


def run(name: str, *rows: Row, facts: Mapping[str, Any] | None = None, **how: Any) -> Analysed:
    return analysed(name, *rows, within=0.001, facts=facts, **how)


BEFORE = run("before", timed("a", 100), timed("b", 200), timed("c", 300))


def test_a_new_version_is_held_against_what_stayed():
    """All is twice as slow that day; `a`, of a new version, three times."""
    after = run("after", timed("a", 300, version="2"), timed("b", 400), timed("c", 600))
    (session,) = compare(BEFORE, after).sessions
    moved = {one.arm[0]: one for one in session.moved}
    assert [(one.what, one.a, one.b) for one in moved["a"].changes] == [("version", "1", "2")]
    assert {name: one.ratio.verdict for name, one in moved.items() if one.ratio} == {
        "a": Verdict.SLOWER,
        "b": Verdict.CANT_TELL,
        "c": Verdict.CANT_TELL,
    }
    assert moved["a"].ratio
    assert moved["a"].ratio.value == pytest.approx(1.5)
    assert {one.control for one in moved.values()} == {"b:cpu:fp32", "c:cpu:fp32"}


def test_earlier_sessions_make_the_floor_and_others_have_no_part_in_it():
    after = run("after", timed("a", 108, version="2"), timed("b", 200), timed("c", 300))
    rows = [timed("a", 100), timed("b", 200), timed("c", 300)]
    history = [run(f"night {number}", *rows) for number in range(5)]
    elsewhere = [run("elsewhere", timed("a", 900), timed("b", 1), timed("c", 1), machine="other"), BEFORE]
    learnt = compare(BEFORE, after, [*history, *elsewhere]).sessions[0].moved[0]
    assert learnt.ratio
    assert (learnt.arm, learnt.sessions, learnt.ratio.verdict) == ("a:cpu:fp32", 5, Verdict.SLOWER)
    found = compare(BEFORE, after, [*history[:4], *elsewhere])
    assert found.warnings == ("4 of --history are other sessions of the same here; a floor is learnt from 5",)
    assert found.sessions[0].moved[0].ratio
    assert found.sessions[0].moved[0].ratio.verdict is Verdict.CANT_TELL


def test_where_nothing_stayed_nothing_is_said_but_how_to_tell():
    after = run(
        "after", timed("a", 100, version="2"), timed("b", 200, version="2"), timed("c", 300, fallbacks=("Add",))
    )
    found = compare(BEFORE, after)
    assert {one.reason for one in found.sessions[0].moved} == {NO_CONTROL}
    assert found.settle == "shootout gate before --arm a --candidate a@other --python other=PATH"


def test_what_an_older_run_does_not_tell_is_no_change():
    after = run("after", *(timed(name, ns, staged="fp32") for name, ns in (("a", 100), ("b", 200), ("c", 300))))
    assert all(one.ratio for one in compare(BEFORE, after).sessions[0].moved)


def test_figures_that_do_not_count_give_no_verdict():
    after = run("after", timed("a", 300), timed("b", 200), unvouched="the copy came out different")
    assert {one.reason for one in compare(BEFORE, after).sessions[0].moved} == {"the copy came out different"}


def test_what_changed_comes_first_and_what_one_alone_tells_of_last():
    facts = {"libraries": {"torch": "2.8", "new": "1"}, "os": {"kernel": "6.1"}, "cuda_driver": "550"}
    one = run("one", timed("a", 1), timed("b", 1), facts={**facts, "libraries": {"torch": "2.7", "old": "1"}})
    other = run("other", timed("a", 1), timed("b", 1), facts={**facts, "os": {"kernel": "6.2"}, "cuda_driver": "560"})
    told = [(change.what, change.a, change.b) for change in compare(one, other).changes]
    assert told == [
        ("torch", "2.7", "2.8"),
        ("cuda_driver", "550", "560"),
        ("os.kernel", "6.1", "6.2"),
        ("new", "-", "1"),
        ("old", "1", "-"),
    ]


def test_of_two_machines_none_is_called_slower():
    other = run("other", timed("a", 900), timed("b", 400), timed("c", 300), machine="3")
    found = compare(BEFORE, other)
    assert (found.level, found.sessions) == (2, ())
    assert {one.fate for one in found.cells[0].pairs} == {Fate.FLIPS}
    assert not found.warnings


def test_a_machine_that_moved_to_another_processor_is_another_one():
    cpu = {"model": "AMD EPYC", "allowed_cpus": [0, 1], "cache_bytes": {"L1d": 49152}}
    found = compare(BEFORE, run("other", timed("a", 1), timed("b", 2), facts={"cpu": cpu}))
    assert (found.level, found.warnings) == (2, (MOVED,))


def test_other_questions_are_refused_by_the_names_of_their_fields():
    with pytest.raises(
        UsageError, match="before and before are one race, which has its verdicts: shootout show before"
    ):
        compare(BEFORE, BEFORE)
    larger = replace(made.A, batch=8)
    for name, facts, given, told in (
        (
            "model",
            {"arm": replace(made.A, model="digits", parameters={"hidden": 4})},
            (),
            "model differs: identity and digits$",
        ),
        ("two", {"arm": larger}, ("--inputs", "x.npz"), "batch differs: 1 and 8; inputs differs: None and x"),
        ("calibrated", {}, ("--calibration", "c.npz"), "calibration differs: None and c"),
    ):
        with pytest.raises(UsageError, match=told):
            compare(BEFORE, run(name, timed("a", 1), facts=facts, given=given))
    with pytest.raises(UsageError, match="threads differs: 1 and 4"):
        compare(BEFORE, run("threads", row("a", 1, threads=4)))


def test_the_command_shows_a_screen_or_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(samples, "read", lambda *_: np.array([]))
    one, other = made.raced(tmp_path / "one", "m", 1_000, 2_000), made.raced(tmp_path / "two", "m", 2_000, 4_000)
    elsewhere = made.raced(tmp_path / "elsewhere", "other", 1_000, 2_000)
    ended = here("compare", one, other, "--history", elsewhere, cwd=tmp_path)
    assert ended.code == 0, ended.err
    for words in (
        "One machine, two sessions",
        "Changed  nothing that",
        "against",
        "±10.0%",
        "0 of --history",
    ):
        assert words in ended.out
    data = here("compare", one, elsewhere, "--json", cwd=tmp_path).data
    assert (data["schema"], data["level"], len(data["cells"])) == ("shootout.compared/1", 2, 1)
    assert data["cells"][0]["pairs"][0]["fate"] == "holds"
