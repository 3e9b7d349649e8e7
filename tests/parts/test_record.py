"""A user's program called as it is: what each part gets, how long it takes, and what is refused."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shootout.apps.parts.profile import RESULTS
from shootout.backends._joint import record
from shootout.backends._joint.backend import JointAdapter
from shootout.backends._joint.parts import ChosenBuild, ChosenPart, Part, Program, Task
from shootout.backends._joint.record import RecordedPart
from shootout.core import backends
from shootout.core.adapter import Built
from shootout.core.contract import Arm, Target, TensorSpec
from shootout.core.errors import SkippedArm, UsageError


def task_of(folder: Path, **changes: Any) -> Task:
    parts = {name: str(folder / f"{name}.onnx") for name in ("find", "rec")}
    pages = tuple(map(str, sorted((folder / "pages").iterdir())))
    fields: dict[str, Any] = {"function": str(folder / "app.py:read"), "parts": parts, "pages": pages, "threads": 1}
    return Task(**{**fields, **changes})


def test_a_program_is_looked_at_with_what_its_parts_get(here: Path):
    found = record.record(task_of(here), here / RESULTS, most_s=60.0)
    assert [Path(page).name for page in found["pages"]] == ["p0.npy", "p1.npy", "p2.npy"]
    assert [(one["inputs"], one["calls"]) for one in found["sizes"]["find"]] == [({"x": (1, 4)}, 3)]
    assert sorted(one["inputs"]["x"][0] for one in found["sizes"]["rec"]) == [1, 2, 3]
    assert np.load(here / "find.npz")["x"].shape == (3, 1, 4), "the inputs of each call"
    (restart,) = found["restarts"]
    inside = sum(restart["inside_ns"].values())
    assert 0 < inside < restart["call_ns"]
    assert restart["call_ns"] - inside > 2e6, "the sleep is in the call and in no part"


def test_results_are_compared_with_those_that_were_kept(here: Path):
    task = task_of(here)
    record.record(task, here / RESULTS, most_s=60.0)
    same = record.score(task, here / RESULTS, "")
    assert (same["scores"], same["alike"], same["differs"]) == ([1.0, 1.0], 3, "")
    kept = pickle.loads((here / RESULTS).read_bytes())
    kept[1][1]["best"] *= 1.01
    (here / RESULTS).write_bytes(pickle.dumps(kept))
    other = record.score(task, here / RESULTS, str(here / "app.py:score"))
    assert (other["alike"], other["differs"]) == (2, "p1.npy")
    assert other["scores"] == [1.0, 1.0], "the user's metric has the say"


BOTH = "find(np.load(page)[:1]), rec(np.load(page))"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise ValueError('no text')", r"p0.npy: wrong.py:read raised ValueError: no text \(wrong.py line 7\)"),
        ("return find(np.load(page)[:1])", "wrong.py:read never calls rec on these 3 pages: leave it out of --parts"),
        ("return time.time_ns()", "p0.npy: wrong.py:read gives another result the second time"),
        ("rec(find(np.zeros((1, 4), np.float32))[0])", "wrong.py:read raised InvalidArgument"),
        (f"{BOTH}; return memoryview(b'x')", r"wrong.py:read returns what can't be kept \(TypeError"),
        (f"{BOTH}; return [1, lambda: 0]", "wrong.py:read returns a function, which can't be compared with another"),
        (f"{BOTH}; return {{'all': (one for one in page)}}", "wrong.py:read returns a generator, which"),
    ],
)
def test_what_the_function_does_wrong_is_one_sentence(here: Path, body: str, says: str):
    text = f"import time\n\nimport numpy as np\n\n\ndef read(page, find, rec):\n    {body}\n"
    (here / "wrong.py").write_text(text)
    with pytest.raises(UsageError, match=says):
        record.record(task_of(here, function=str(here / "wrong.py:read")), here / RESULTS, most_s=60.0)


def test_constants_are_results_like_others(here: Path):
    body = f"    {BOTH}\n    return signal.SIGINT, Side.LEFT, None"
    text = "import enum\nimport signal\n\nimport numpy as np\n\n\nSide = enum.Enum('Side', 'LEFT')\n\n\n"
    (here / "sides.py").write_text(f"{text}def read(page, find, rec):\n{body}\n")
    found = record.record(task_of(here, function=str(here / "sides.py:read")), here / RESULTS, most_s=60.0)
    assert len(found["pages"]) == 3


def test_the_process_writes_an_answer_or_a_sentence(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(record, "leave_with", lambda _: None)
    monkeypatch.setattr(record.os, "dup2", lambda *_: None)
    monkeypatch.setattr(record.sys, "argv", ["", str(here / "task.json"), str(here / "answer.json"), "1"])
    task = task_of(here)
    fields = {name: getattr(task, name) for name in ("function", "parts", "pages", "threads")}
    (here / "task.json").write_text(json.dumps({**fields, "do": "time"}))
    record.main()
    assert json.loads((here / "answer.json").read_text())["call_ns"] > 2e6
    (here / "task.json").write_text(json.dumps({**fields, "function": str(here / "app.py:gone"), "do": "time"}))
    record.main()
    assert "unknown function in app.py 'gone'" in json.loads((here / "answer.json").read_text())["fault"]


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ([1.0, "a"], [1.0005, "a"], True),
        ([1.0, "a"], [1.01, "a"], False),
        ([1000], [1001], False),
        (np.array([1000, 2]), np.array([1001, 2]), False),
        (1000, 1000.5, True),
        ({"x": np.ones(3)}, {"x": np.ones(4)}, False),
        ([None, ("a", 2)], [None, ("a", 2)], True),
        (["a"], ["b"], False),
        ([[1], [1, 2]], [[1], [1, 2]], True),
    ],
)
def test_results_are_alike_if_their_numbers_nearly_are(one: Any, other: Any, alike: bool):
    assert record.are_alike(one, other) is alike


class Doubled:
    """A session for any size that is told from ONNX Runtime's by its outputs."""

    def __init__(self, sizes: list[Any]) -> None:
        self.sizes, self.execute = sizes, lambda inputs: {"y": 2 * inputs["x"]}

    def sized(self, exported: Any) -> Doubled:
        self.sizes.append((exported.inputs[0].shape, exported.outputs[0].shape))
        return self

    def stage(self, inputs: Any, _slot: int) -> Any:
        return inputs

    def synchronize(self) -> None: ...

    def fetch(self, raw: Any) -> Any:
        return raw


@pytest.mark.parametrize("is_open", [True, False])
def test_a_chosen_part_learns_a_new_size_from_onnx_runtime(
    here: Path, monkeypatch: pytest.MonkeyPatch, make_exported: Callable[..., Any], is_open: bool
):
    sizes: list[Any] = []
    monkeypatch.setattr(record, "Fake", lambda: SimpleNamespace(load=lambda _: Doubled(sizes)), raising=False)
    built = Built(arm=Arm(target=Target(backend="x"), model=""), exported=make_exported(), folder=here)
    chosen = ChosenBuild(adapter=f"{record.__name__}:Fake", built=built, is_open=is_open)
    part = ChosenPart(str(here / "rec.onnx"), 1, chosen)
    known, new = np.ones((1, 4), np.float32), np.ones((2, 4), np.float32)
    assert np.array_equal(part(known)[0], 2 * known), "the size that it was built for"
    usual = Part(str(here / "rec.onnx"), 1)
    for _ in range(2):
        assert np.array_equal(part(x=known)[0], 2 * known)
        again = part.run(["y"], {"x": new})[0]
    assert np.array_equal(again, 2 * new if is_open else usual(new)[0])
    assert sizes == ([((2, 4), (2, 3))] if is_open else [])
    assert (part.usual_calls, part.calls) == (0 if is_open else 2, 5)


class Slotted(Doubled):
    """A session with one place for its inputs, as ours are: another call in between changes the outputs."""

    def stage(self, inputs: Any, _slot: int) -> Any:
        self.staged = inputs
        time.sleep(0.001)
        return self.staged


def test_a_chosen_part_answers_each_thread_with_its_own_outputs(
    here: Path, monkeypatch: pytest.MonkeyPatch, make_exported: Callable[..., Any]
):
    monkeypatch.setattr(record, "Fake", lambda: SimpleNamespace(load=lambda _: Slotted([])), raising=False)
    built = Built(arm=Arm(target=Target(backend="x"), model=""), exported=make_exported(), folder=here)
    part = ChosenPart(
        str(here / "rec.onnx"), 1, ChosenBuild(adapter=f"{record.__name__}:Fake", built=built, is_open=True)
    )
    given = [np.full((1, 4), number, np.float32) for number in range(16)]
    with ThreadPoolExecutor(4) as threads:
        found = [one[0] for one in threads.map(part, given)]
    assert np.array_equal(found, [2 * one for one in given])
    assert part.calls == 16


def test_calls_at_the_same_time_count_once(here: Path, monkeypatch: pytest.MonkeyPatch):
    now = iter([0, 10, 30, 60])
    monkeypatch.setattr(record, "now_ns", lambda: next(now))
    meter = record.Meter()
    find, rec = (RecordedPart(str(here / f"{name}.onnx"), 1, meter) for name in ("find", "rec"))
    with meter.count(find), meter.count(rec):
        pass
    assert (find.inside_ns, rec.inside_ns) == (10 + 10 + 30, 10)


@pytest.fixture
def make_exported() -> Callable[..., Any]:
    """What a build was exported from, as far as a part asks."""
    from dataclasses import dataclass

    @dataclass
    class Exported:
        inputs: tuple[TensorSpec, ...] = (TensorSpec(name="x", shape=(1, 4), dtype="float32"),)
        outputs: tuple[TensorSpec, ...] = (TensorSpec(name="y", shape=(1, 3), dtype="float32"),)
        model: str = "net.onnx"

    return Exported


def test_a_call_of_the_race_is_a_pass_over_the_pages(here: Path, make_exported: Callable[..., Any]):
    (here / "counted.py").write_text("seen = []\n\n\ndef read(page, find, rec):\n    seen.append(page[-6:])\n")
    task = task_of(here, function=str(here / "counted.py:read"))
    fields = {name: getattr(task, name) for name in ("function", "parts", "pages", "threads")}
    (here / "task.json").write_text(json.dumps(fields))
    arm = Arm(target=Target(backend="joint"), model="identity", options={"task": str(here / "task.json")})
    adapter = backends.get("joint")
    assert isinstance(adapter, JointAdapter)
    with pytest.raises(SkippedArm, match="joint races programs of several models only"):
        adapter.build(make_exported(), replace(arm, options={}), here)
    session = adapter.load(adapter.build(make_exported(), arm, here))
    inputs = {"x": np.ones((1, 4), np.float32)}
    session.execute(session.stage(inputs, 0))
    import counted  # type: ignore[import-not-found]

    assert counted.seen == ["p0.npy", "p1.npy", "p2.npy"]
    assert Program(task).parts.keys() == {"find", "rec"}
