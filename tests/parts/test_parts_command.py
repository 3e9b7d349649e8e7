"""`shootout run app.py:read --parts`: its refusals, its plan, its steps, and what it tells."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import pytest
from support.console import here as command

from shootout import api
from shootout.apps.parts import profile as profiles
from shootout.apps.parts import screen
from shootout.apps.parts.choice import Choice, choose, choose_sizes, list_usual, make_options
from shootout.apps.parts.joint import Agreement, Joint
from shootout.apps.parts.profile import Profile, Program, Size
from shootout.apps.parts.screen import Found
from shootout.commands import parts
from shootout.commands.parts import PartsRun
from shootout.core.clock import Deadline
from shootout.core.errors import UsageError
from shootout.core.host.placement import place
from shootout.core.stats.verdicts import Verdict
from shootout.tell.document import Ratio
from shootout.tell.progress import ProgressDisplay

PARTS = "find=find.onnx,rec=rec.onnx"


def run(*words: str) -> Any:
    return command("run", "app.py:read", *words, cwd=Path())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--parts", "find=find.onnx,word=rec.onnx", "--images", "pages"], "unknown part of app.py:read 'word'"),
        (["--parts", "find=find.onnx", "--images", "pages"], "app.py:read needs rec: give it in --parts rec=file.onnx"),
        (
            ["--parts", "find=find.onnx,rec=gone.onnx", "--images", "pages"],
            "--parts rec=gone.onnx: the file isn't there",
        ),
        (
            ["--parts", "find=find.onnx,rec=app.py", "--images", "pages"],
            "--parts rec=app.py: the file is no .onnx file",
        ),
        (["--parts", "find", "--images", "pages"], "--parts 'find': give each part once, as NAME=FILE.onnx"),
        (["--parts", PARTS], "give the pages of app.py:read by --images FOLDER or --inputs FOLDER, got none"),
        (["--parts", PARTS, "--images", "empty"], "empty holds no files for app.py:read"),
        (["--parts", PARTS, "--images", "gone"], "gone: there is no such file"),
        (["--parts", PARTS, "--images", "pages", "--batch", "8"], "--batch means nothing beside --parts"),
        (["--parts", PARTS, "--images", "pages", "--on", "ssh://a"], "--on means nothing beside --parts"),
        (["--parts", PARTS, "--images", "pages", "--threads", "1,2"], "--threads 1,2: a program runs on one number"),
        (["--parts", PARTS, "--images", "pages", "--metric", "app.py:no"], "unknown function in app.py 'no'"),
        (["--parts", PARTS, "--images", "pages", "--backends", "openvin"], "did you mean 'openvino'"),
        (
            ["--parts", PARTS, "--images", "pages", "--backends", "torch-eager"],
            "torch-eager:cpu:fp32 can't take the place of a part",
        ),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_called(here: Path, words: list[str], says: str):
    (here / "empty").mkdir()
    ended = run(*words)
    assert ended.code == 2
    assert says in ended.err
    assert ended.err.count("\n") == 1
    assert not (here / "results").exists()


def test_an_unknown_function_and_python_are_refused(here: Path):
    assert "did you mean 'read'" in command("run", "app.py:raed", "--parts", PARTS, "--images", "pages", cwd=here).err
    with pytest.raises(UsageError, match=r"by the command line: shootout run app.py:read --parts"):
        api.run("app.py:read", parts={"find": "find.onnx"}, images="pages")


def test_a_dry_run_tells_the_steps_and_calls_nothing(here: Path):
    ended = run("--parts", PARTS, "--images", "pages", "--dry-run", "--max-time", "10m")
    assert "race each part by itself: find, rec" in ended.out
    assert "5 min in all, by their shares" in ended.out
    assert run("--parts", PARTS, "--images", "pages", "--dry-run", "--json").data["pages"] == 3
    assert not (here / "results").exists()


def profile_of(share: float, folder: Path = Path(), **sizes: list[Size]) -> Profile:
    """A program with this share of inference, which differs by a tenth of a percent between processes."""
    inside = [10e6 * share * (1 + 0.001 * at) for at in (-1, 0, 1, 0, 0)]
    sizes = sizes or {"find": [Size(inputs={"x": (1, 4)}, calls=3)]}
    return Profile(
        folder=folder,
        pages=["a", "b"],
        timed=["a"],
        sizes=sizes,
        call_ns=[10e6] * 5,
        inside_ns={name: [one / len(sizes) for one in inside] for name in sizes},
    )


def test_the_gain_is_what_is_left_without_inference():
    gain = profile_of(0.12).gain
    assert str(gain) == "inference is 12 % of a call (11 to 13): at most 1.14x"
    assert gain.low < 0.12 < gain.high < 0.125
    assert profile_of(0.6).gain.most == pytest.approx(2.5, rel=0.02)
    assert profile_of(0.01).gain.most < profiles.WORTH


def test_nothing_to_gain_is_an_answer(here: Path, monkeypatch: pytest.MonkeyPatch):
    calls: list[str] = []

    def call(task: Any, folder: Path, _placement: Any) -> Any:
        calls.append(task["do"])
        restart = {"call_ns": 1e9, "inside_ns": {"find": 1e6, "rec": 2e6}}
        sizes = {name: [{"inputs": {"x": (1, 4)}, "calls": 1, "ns": 1}] for name in ("find", "rec")}
        return (
            restart
            if task["do"] == "time"
            else {"pages": task["pages"], "timed": task["pages"][:1], "sizes": sizes, "restarts": [restart]}
        )

    monkeypatch.setattr(profiles, "call", call)
    ended = run("--parts", PARTS, "--images", "pages", "--out", "run", "--json")
    assert (ended.code, ended.data["outcome"]) == (0, "usual")
    assert ended.data["ship"] == {"find": "onnxruntime", "rec": "onnxruntime"}
    assert calls == ["record", *["time"] * 4]
    again = run("--parts", PARTS, "--images", "pages", "--out", "run")
    assert len(calls) == 5, "the same command goes on with what is known"
    assert "nothing can be gained: under 1.02x" in again.out
    assert command("show", "run", cwd=here).out == again.out
    assert command("show", "run", "--json", cwd=here).data == ended.data
    other = run("--parts", PARTS, "--images", "pages", "--out", "run", "--backends", "onnxruntime")
    assert "'run' holds something else" in other.err
    run("--parts", PARTS, "--images", "pages", "--out", "run", "--fresh")
    assert len(calls) == 10


def test_a_part_is_raced_at_its_size_or_over_the_axis_that_varies_most():
    usual = list_usual(["numpy", "onnxruntime", "openvino", "openvino:cpu:int8", "onnxruntime:cuda:fp32"])
    assert usual == ["onnxruntime:cpu:fp32", "openvino:cpu:fp32"]
    one = [Size(inputs={"x": (1, 4)}, calls=3)]
    options, told = make_options(profile_of(0.5, Path("/c"), rec=one), "rec", [{"n": 1}], usual)
    assert options == {"backends": usual, "parameters": {"n": 1}, "inputs": "/c/rec.npz"}
    assert told == "always 1x4"
    sizes = [Size(inputs={"x": (n, w)}, calls=c) for n, w, c in ((1, 320, 9), (1, 96, 4), (2, 96, 1))]
    axes = [{"n": n, "w": w} for n, w in ((1, 320), (1, 96), (2, 96))]
    options, told = make_options(profile_of(0.5, rec=sizes), "rec", axes, [*usual, "numpy", "openvino:cpu:int8"])
    assert options["mix"] == "n=1:13,2:1"
    assert options["parameters"] == {"w": 320}
    assert options["backends"] == ["onnxruntime:cpu:fp32/dynamic", "openvino:cpu:fp32/dynamic"]
    assert "called at 3 sizes" in told


@pytest.mark.parametrize(
    ("outcome", "complete", "says", "is_pending"),
    [
        ("not timed", False, "always 1x4; nothing else was timed", True),
        ("failed", False, "always 1x4; nothing else was timed; openvino failed: no memory", False),
        ("measured", False, "always 1x4; nothing measured faster", False),
        ("not timed", True, "always 1x4; nothing else was timed", False),
    ],
)
def test_a_part_is_open_until_something_else_was_timed(outcome: str, complete: bool, says: str, is_pending: bool):
    usual = SimpleNamespace(arm="onnxruntime:cpu:fp32", end_to_end=None, outcome="measured", reason=None)
    reason = "no memory" if outcome == "failed" else None
    other = SimpleNamespace(arm="openvino:cpu:fp32", end_to_end=None, outcome=outcome, reason=reason)
    document: Any = SimpleNamespace(
        answer=[SimpleNamespace(group="g", ship=usual)],
        rows_of=lambda _: [usual, other],
        baseline=usual.arm,
        complete=complete,
        run="run/rec",
    )
    choice = choose("rec", 0.5, document, "always 1x4", is_open=False)
    assert (choice.target, choice.why, choice.is_pending) == ("", says, is_pending)


@pytest.mark.parametrize("kept", ["[1]", '{"screen": 3, "answer": 4}', '{"key": "", "screen": "", "answer": 1}', "{"])
def test_an_odd_file_of_a_run_is_none(tmp_path: Path, kept: str):
    (tmp_path / screen.FACTS).write_text(kept)
    assert screen.read_kept(tmp_path) == {}
    (tmp_path / "find").mkdir()
    (tmp_path / "find" / "journal.jsonl").touch()
    ended = command("report", str(tmp_path), cwd=tmp_path)
    assert f"name one of those in it: {tmp_path}/find; `shootout show {tmp_path}` tells the answer of all" in ended.err


@pytest.mark.parametrize(
    ("counts", "chosen"),
    [
        ({8: 1, 16: 5}, {8: 1, 16: 5}),
        ({1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1}, {3: 3, 6: 3}),
        ({8: 1, 16: 1000, 24: 1, 32: 1}, {16: 1001, 32: 2}),
    ],
)
def test_few_sizes_stand_for_many(counts: dict[int, int], chosen: dict[int, int]):
    assert choose_sizes(counts) == chosen


RATIO = Ratio(value=0.7, low=0.65, high=0.77, verdict=Verdict.FASTER, sd=0.02, restarts=5, restarts_needed=None)
JOINT = Joint(
    ratio=RATIO, page_ns=212e6, usual_ns=303e6, restarts=5, noise="low", control_holds=True, reason="", run="run/joint"
)
SAME = Agreement(score=1.0, usual=1.0, alike=2, pages=2, differs="", by_usual={"det": 0.0})


def found(**changes: Any) -> Found:
    program = Program(
        function="/a/app.py:read",
        short="app.py:read",
        parts={"det": Path("det.onnx"), "rec": Path("rec.onnx")},
        pages=[Path("a"), Path("b")],
    )
    choices = [
        Choice(name="det", share=0.5, target="openvino:cpu:fp32", ratio=RATIO, why="always 1x4", run="run/det"),
        Choice(name="rec", share=0.1, why="nothing measured faster", run="run/rec"),
    ]
    program = replace(program, metric=changes.pop("metric", ""))
    own: dict[str, Any] = {"choices": choices, "agreement": SAME, "joint": JOINT, **changes}
    return Found(program=program, profile=profile_of(0.6), threads=1, run="run", **own)


OPEN = replace(JOINT, ratio=replace(RATIO, value=0.9, low=0.7, high=1.2, verdict=Verdict.CANT_TELL))
SLOW = replace(JOINT, ratio=replace(RATIO, value=1.1, low=0.7, high=1.7, verdict=Verdict.CANT_TELL))
LOST = replace(SAME, score=0.5, alike=1, differs="b")
NONE = [Choice(name=name, share=0.5, why="nothing measured faster") for name in ("det", "rec")]
LATE = [NONE[0], replace(NONE[1], is_pending=True)]


@pytest.mark.parametrize(
    ("changes", "outcome", "says"),
    [
        ({}, "chosen", "det openvino, rec onnxruntime a page takes 212 ms, 1.43x faster than onnxruntime for all"),
        ({"joint": OPEN}, "leads", "about 1.1x faster than onnxruntime for all, open"),
        (
            {"joint": SLOW},
            "usual",
            "Leads onnxruntime for all a page takes 303 ms · det openvino, rec onnxruntime is about",
        ),
        ({"joint": None}, "leads", "not confirmed yet: run the same command again"),
        ({"agreement": LOST, "joint": None}, "usual", "det openvino, rec onnxruntime gives other results"),
        ({"agreement": replace(LOST, usual=0.5)}, "chosen", "b is the first that doesn't"),
        (
            {"joint": replace(JOINT, ratio=replace(RATIO, value=1.2, verdict=Verdict.SLOWER))},
            "usual",
            "onnxruntime for all",
        ),
        ({"joint": replace(JOINT, ratio=None, reason="out of memory")}, "usual", "rec onnxruntime: out of memory"),
        (
            {"agreement": LOST, "metric": "/a/app.py:score"},
            "usual",
            "app.py:score gives 0.5, 1 with onnxruntime for all",
        ),
        ({"choices": LATE, "agreement": None, "joint": None}, "open", "not all parts are raced yet"),
        ({"choices": NONE[:1], "agreement": None, "joint": None}, "open", "not all parts are raced yet"),
        ({"choices": NONE, "agreement": None, "joint": None}, "usual", "no part measured faster in another runtime"),
    ],
)
def test_the_answer_is_what_was_confirmed(changes: dict[str, Any], outcome: str, says: str):
    one = found(**changes)
    lines = [f"{line.label} {line.subject} {' · '.join(line.parts)}" for line in screen.write_answer(one)]
    assert one.outcome == outcome
    assert says in "\n".join(lines), lines
    data = json.loads(json.dumps(screen.as_data(one)))
    assert data["outcome"] == outcome
    assert (data["ship"]["det"] == "onnxruntime") is (outcome in ("usual", "open"))


def test_what_comes_next_ships_each_part():
    is_open = [replace(found().choices[0], is_open=True), *found().choices[1:]]
    (last,) = [line for line in screen.write_answer(found()) if line.label == "Next"]
    assert [one.text for one in last.commands] == ["shootout ship run/det --target openvino:cpu:fp32 -o det-1"]
    (opened,) = [line for line in screen.write_answer(found(choices=is_open)) if line.label == "Next"]
    assert opened.parts == ["det: open det.onnx in openvino with 1 thread, since a shipped folder takes one size"]
    assert not opened.commands


@pytest.mark.long
def test_a_program_is_answered_from_the_command(here: Path):
    ended = run("--parts", PARTS, "--images", "pages", "--out", "run", "--max-time", "40s", "--json")
    assert ended.code == 0, ended.err
    assert [one["name"] for one in ended.data["parts"]] == ["find", "rec"]
    assert 0 < ended.data["gain"]["low"] < ended.data["gain"]["high"] < 0.5, "2 ms of a page are a sleep"
    if ended.data["agreement"]:
        assert ended.data["agreement"]["alike"] == 3
    assert "the program was looked at" not in ended.err


@pytest.mark.parametrize(("at_fault", "stays"), [((), []), (("rec",), ["rec"]), (("det", "rec"), ["det", "rec"])])
def test_a_part_that_changes_the_results_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_fault: tuple[str, ...], stays: list[str]
):
    asked: list[list[str]] = []

    def compare(_: Any, __: Any, chosen: dict[str, str], ___: Any) -> Agreement:
        asked.append([*chosen])
        return LOST if {*chosen} & {*at_fault} else SAME

    raced: list[list[str]] = []
    monkeypatch.setattr(parts, "compare_results", compare)
    monkeypatch.setattr(PartsRun, "_race_all", lambda _, chosen: raced.append([*chosen]))
    whole = found(joint=None, agreement=None)
    steps = PartsRun(
        whole.program, place(1), 1, [], tmp_path, "key", False, create_autospec(ProgressDisplay), Deadline(None)
    )
    both = [whole.choices[0], replace(whole.choices[0], name="rec")]
    steps.found = replace(whole, choices=both)
    steps._confirm()
    assert [one.name for one in steps.found.choices if not one.target] == (stays if len(stays) < 2 else [])
    assert raced == ([] if len(stays) == 2 else [[name for name in ("det", "rec") if name not in stays]])
    assert steps.found.outcome == ("usual" if len(stays) == 2 else "leads")
    assert len(asked) == {0: 1, 1: 4, 2: 3}[len(stays)]
