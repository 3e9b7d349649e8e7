"""What may be said of two runs, by what they have in common; and what is refused."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from support.console import here
from support.kept_screen import hold
from support.plain import as_plain
from support.races import made
from support.races.candidates import analysed
from support.races.cells import GROUP, row

from shootout.apps.judge.analysis import Analysed
from shootout.apps.judge.compare.compare import MOVED, compare
from shootout.apps.judge.compare.screen import render_compared
from shootout.core.contract import Arm, Capabilities, Device, Precision, Target
from shootout.core.errors import UsageError
from shootout.core.journal import samples
from shootout.core.stats.verdicts import Verdict
from shootout.core.study.target import parse_targets
from shootout.tell.document import Row
from shootout.tell.reproduce import options as options_of

ACCOUNT = {"library": "lib", "version": "1", "fallbacks": (), "compute_nodes_by_precision": {"fp32": 3}}


def timed(arm: str, ns: float, **account: Any) -> Row:
    return row(arm, ns, executed={**ACCOUNT, **account})


def run(name: str, *rows: Row, facts: Mapping[str, Any] | None = None, **how: Any) -> Analysed:
    return analysed(name, *rows, within=0.001, facts=facts, **how)


BEFORE = run("before", timed("a", 100), timed("b", 200), timed("c", 300))


def test_earlier_sessions_make_the_floor_and_others_have_no_part_in_it():
    after = run("after", timed("a", 108, version="2"), timed("b", 200), timed("c", 300))
    rows = [timed("a", 100), timed("b", 200), timed("c", 300)]
    history = [run(f"night {number}", *rows) for number in range(5)]
    elsewhere = [run("elsewhere", timed("a", 900), timed("b", 1), timed("c", 1), machine="other"), BEFORE]
    learned = compare(BEFORE, after, [*history, *elsewhere]).sessions[0].moved[0]
    assert learned.ratio
    assert (learned.arm, learned.sessions, learned.ratio.verdict) == ("a:cpu:fp32", 5, Verdict.SLOWER)
    found = compare(BEFORE, after, [*history[:4], *elsewhere])
    assert found.warnings == ("4 of --history are other sessions of the same here; a floor is learned from 5",)
    assert found.sessions[0].moved[0].ratio
    assert found.sessions[0].moved[0].ratio.verdict is Verdict.CANT_TELL


LARGER = "toy, batch 8"


def with_larger(one: Analysed) -> Analysed:
    """The same run with a second cell, of another batch, in which all came out alike."""
    cell, group, summary = one.cells[GROUP], one.groups[GROUP], one.document.groups[0]
    rows = [each.model_copy(update={"group": LARGER}) for each in cell.rows]
    record = SimpleNamespace(name=LARGER, arms=[replace(group.record.arms[0], batch=8)])
    answers = (one.document.answer[0], one.document.answer[0].model_copy(update={"group": LARGER}))
    groups = (summary, summary.model_copy(update={"name": LARGER}))
    return replace(
        one,
        cells={GROUP: cell, LARGER: replace(cell, group=LARGER, rows=rows)},
        groups={GROUP: group, LARGER: cast(Any, SimpleNamespace(**{**vars(group), "record": record}))},
        document=one.document.model_copy(
            update={"answer": answers, "groups": groups, "rows": (*one.document.rows, *rows)}
        ),
    )


def test_questions_share_the_error_probability():
    """Each interval is wider, the more there are."""
    after = run("after", timed("a", 113, version="2"), timed("b", 200), timed("c", 300))
    alone, among = (
        compare(one, other).sessions[0].moved[0]
        for one, other in ((BEFORE, after), (with_larger(BEFORE), with_larger(after)))
    )
    assert alone.ratio
    assert among.ratio
    assert alone.ratio.low > among.ratio.low
    assert (alone.ratio.verdict, among.ratio.verdict) == (Verdict.SLOWER, Verdict.CANT_TELL)


def test_earlier_sessions_count_where_both_arms_were_as_they_are():
    """In half of them another version of `a` ran, which all are held against: its times say nothing of this one's."""
    history = [
        run(f"night {number}", timed("a", 100, version=str(1 + number % 2)), timed("b", 200), timed("c", 300))
        for number in range(10)
    ]
    after = run("after", timed("a", 100), timed("b", 200), timed("c", 300))
    for given, sessions in ((history, 5), (history[:8], 0)):
        assert {one.sessions for one in compare(BEFORE, after, given).sessions[0].moved} == {sessions}


def test_earlier_sessions_of_another_scenario_make_no_floor():
    """Their ratios are of calls side by side, these of calls one after another."""
    side_by_side = {"arm": replace(made.A, scenario="throughput")}
    rows = [timed("a", 100), timed("b", 200), timed("c", 300)]
    history = [run(f"night {number}", *rows, facts=side_by_side) for number in range(5)]
    found = compare(BEFORE, run("after", *rows), history)
    assert {one.sessions for one in found.sessions[0].moved} == {0}
    with pytest.raises(UsageError, match=r"can't be compared: scenario differs: latency and throughput$"):
        compare(BEFORE, history[0])


def test_an_arm_of_another_export_is_no_control():
    """Its runtime's version stayed, and what it runs didn't."""
    after = run(
        "after", timed("a", 100), timed("b", 200).model_copy(update={"artifact_bytes": 1_500_000}), timed("c", 300)
    )
    moved = {one.arm[0]: one for one in compare(BEFORE, after).sessions[0].moved}
    assert [(one.what, one.a, one.b) for one in moved["b"].changes] == [("artifact", "1 MB", "1.5 MB")]
    assert (moved["a"].control, moved["c"].control) == ("c:cpu:fp32", "a:cpu:fp32")
    one, other = (run(name, timed("a", 100), timed("b", 200), facts={"exported": name}) for name in ("before", "after"))
    (warning,) = compare(one, other).warnings
    assert "their exports differ, in weights, data, exporter, or only in the precisions" in warning


def settled(arm: Arm = made.A, **how: Any) -> list[str]:
    """The words of the race that is advised where the only arms of a run have another version each."""
    label = str(arm.target).removesuffix(":cpu:fp32")
    before, after = (
        run(called, timed(label, 1, version=version), facts={"arm": arm}, **how)
        for called, version in (("before", "1"), ("after", "2"))
    )
    return shlex.split(compare(with_larger(before), with_larger(after)).settle or "")


def test_the_race_that_is_advised_can_be_typed():
    """One run races the arm as it is and under an interpreter with the other version: no folder needs be made."""

    def again(labels: Sequence[str]) -> Sequence[tuple[str, str]]:
        (arm,) = (one for one in (made.A, new) if one.label == labels[0])
        return options_of([arm], {"pythons": {"new": "new/python"}})

    new = replace(made.A, target=Target(backend="a", python="new"))
    words = settled(again=again)
    assert words[:4] == ["shootout", "run", "--model", made.A.model]
    able = Capabilities(consumes=(), targets=frozenset({(Device.CPU, Precision.FP32)}))
    named = words[words.index("--backends") + 1].split(",")
    targets = [one for text in named for one in parse_targets(text, lambda _: (able, Target(backend="a")), ["other"])]
    assert targets == [Target(backend="a"), Target(backend="a", python="other")]
    assert words[-2:] == ["--python", "other=PATH"]
    words = settled(new, again=again)
    assert words[words.index("--backends") + 1] == "a@new:cpu:fp32,a@other:cpu:fp32"
    assert [word for word in words if word.endswith(("python", "PATH"))] == [
        "--python",
        "new=new/python",
        "--python",
        "other=PATH",
    ]
    assert not settled(replace(made.A, target=Target(backend="a", folder="model-1"))), "a folder is of one version"


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


def test_a_machine_that_moved_to_another_processor_is_another_one():
    cpu = {"model": "AMD EPYC", "allowed_cpus": [0, 1], "cache_bytes": {"L1d": 49152}}
    found = compare(BEFORE, run("other", timed("a", 1), timed("b", 2), facts={"cpu": cpu}))
    assert (found.level, found.warnings) == (2, (MOVED,))


def test_other_questions_are_refused_by_the_names_of_their_fields():
    with pytest.raises(UsageError, match="before and before are the same run: `shootout show before` has its verdicts"):
        compare(BEFORE, BEFORE)
    larger = replace(made.A, batch=8)
    for name, facts, given, told in (
        (
            "model",
            {"arm": replace(made.A, model="digits", parameters={"hidden": 4})},
            {},
            "model differs: identity and digits$",
        ),
        ("two", {"arm": larger}, {"inputs": "x.npz"}, "batch differs: 1 and 8; inputs differs: None and x"),
        ("calibrated", {}, {"calibration": "c.npz"}, "calibration differs: None and c"),
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
    assert "0 of --history" in ended.out
    data = here("compare", one, elsewhere, "--json", cwd=tmp_path).data
    assert (data["schema"], data["level"]) == ("shootout.compared/4", 2)
    assert data["merged"]["cells"][0]["pairs"][0]["fate"] == "holds"


def test_screens_of_what_moved_and_what_flips_are_those_that_are_kept():
    """A version that is slower, one that is faster, nothing that stayed, a run that doesn't count; two machines."""
    history = [run(f"night {number}", timed("a", 100), timed("b", 200), timed("c", 300)) for number in range(5)]
    moved = timed("a", 130, version="2"), timed("b", 150, version="2"), timed("c", 300), timed("d", 10)
    others = {
        "two versions": run("after", *moved, facts={"libraries": {"lib": "2"}}),
        "nothing stayed": run("after", *(timed(name, 100, version="2") for name in "abc")),
        "no control": run("after", timed("a", 300), timed("b", 200), unvouched="the copy came out different"),
        "two machines": run("other", timed("a", 900), timed("b", 400), timed("c", 300), machine="3"),
    }
    told = []
    for name, other in others.items():
        document = compare(BEFORE, other, history)
        told.append(f"=== {name}\n{as_plain(render_compared(document, 100, full=False), 100)}\n")
    hold("compared", "\n".join(told))
