"""Exports of models with a state: clips, their states, what a precision explains step by step, users' rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from support.exports import obtain
from support.onnx_made import value, write

from shootout.core.errors import UsageError
from shootout.core.exported.calls import Stream
from shootout.core.exported.client import Request, obtain_all
from shootout.core.exported.model import ExportedModel
from shootout.core.exported.request import checked
from shootout.models.metrics.scoring import report_outputs
from shootout.models.sources.onnx_file import OnnxFile

RNG = np.random.default_rng(0)
STATE = {"h": "hn"}
WEIGHTS = {"w": RNG.standard_normal((4, 4)).astype(np.float32), "v": RNG.standard_normal((4, 3)).astype(np.float32)}


def recurrent(path: Path, keeps: float = 0.5, state: Any = ("batch", 4), made: str = "hn") -> Path:
    """hn = keeps · h + x w; y = hn v."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"]),
        helper.make_node("Mul", ["h", "keeps"], ["kept"]),
        helper.make_node("Add", ["kept", "xw"], [made]),
        helper.make_node("MatMul", [made, "v"], ["y"]),
    ]
    ends = [value("x", ("batch", 4)), value("h", state)], [value("y", ("batch", 3)), value(made, state)]
    return write(path, nodes, *ends, {**WEIGHTS, "keeps": np.float32(keeps)})


def states_of(sets: list[dict[str, Any]], keeps: float, steps: int, start: Any) -> list[Any]:
    """The state that each call of these clips gets."""
    found, state = [], start
    for at, one in enumerate(sets):
        state = start if at % steps == 0 else state
        found.append(state)
        state = keeps * state + one["x"] @ WEIGHTS["w"]
    return found


def check(exported: ExportedModel, keeps: float, start: float = 0.0) -> None:
    """The sets hold the states of their clips, and the outputs are theirs."""
    assert exported.stream
    sets = exported.input_buffers()
    wanted = states_of(sets, keeps, exported.stream.steps, np.full_like(sets[0]["h"], start))
    for one, right, state in zip(sets, exported.reference_outputs(), wanted, strict=True):
        np.testing.assert_allclose(one["h"], state, rtol=1e-4, atol=1e-4)
        after = keeps * state + one["x"] @ WEIGHTS["w"]
        np.testing.assert_allclose(right["y"], after @ WEIGHTS["v"], rtol=1e-4, atol=1e-4)


def test_a_state_makes_calls_a_stream(tmp_path: Path):
    exported = obtain(str(recurrent(tmp_path / "m.onnx")), {}, 1, state=STATE)
    assert exported.stream == Stream(steps=100, state={"h": "hn"})
    assert len(exported.input_buffers()) == 200
    check(exported, 0.5)
    assert any("h is hn of the call before" in note for note in exported.notes)
    assert any(one["h"].any() for one in exported.calibration()), "ranges are those of states on the way"
    assert set(exported.bounds_by_step) == {1, 10}
    assert len(exported.pick(exported.input_buffers())) == 8


def test_sizes_of_a_file_with_a_state_share_its_weights(tmp_path: Path):
    """A size's graph lies in the folder that all sizes share, and calibration runs it there."""
    sweep = {"batch": (1, 2)}
    file = str(recurrent(tmp_path / "m.onnx"))
    how: dict[str, Any] = {"model": file, "state": STATE, "steps": 50, "sweep": sweep}
    for exported in obtain_all([Request(batch=size, **how) for size in (1, 2)]):
        assert isinstance(exported, ExportedModel), exported
        assert exported.shared
        check(exported, 0.5)
        assert any(one["h"].any() for one in exported.calibration())


@pytest.mark.parametrize(("keeps", "grows"), [(0.5, False), (1.0, True)])
def test_what_a_precision_explains_grows_as_errors_do(keeps: float, grows: bool, tmp_path: Path):
    """A state that is halved forgets an error, one that adds up keeps all of them."""
    exported = obtain(str(recurrent(tmp_path / "m.onnx", keeps)), {}, 1, state=STATE, steps=50)
    assert exported.stream
    bounds = [exported.up_to(step).error_bounds for step in exported.stream.marks]
    for precision in ("fp32", "bf16", "int8-dynamic"):
        first, ten, whole = (one[precision] or np.nan for one in bounds)
        assert first <= ten <= whole
    assert ((bounds[2]["bf16"] or 0) > 1.7 * (bounds[1]["bf16"] or 1)) is grows, bounds


def test_a_state_that_is_none_after_all_is_refused(tmp_path: Path):
    """The file doesn't tell the shape of the output, which is another one."""
    nodes = [
        helper.make_node("Add", ["x", "h"], ["y"]),
        helper.make_node("Concat", ["y", "y"], ["hn"], axis=1),
    ]
    ends = [value("x", (1, 4)), value("h", (1, 4))], [value("y", (1, 4)), value("hn", None)]
    path = str(write(tmp_path / "m.onnx", nodes, *ends))
    with pytest.raises(UsageError, match=r"input h is float32\[1, 4\] and output hn is float32\[1, 8\]"):
        obtain(path, {}, 1, state={"h": "hn"})


def saved(path: Path, arrays: Mapping[str, Any]) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def test_rows_are_the_calls_of_clips_and_states_may_be_given(tmp_path: Path):
    rows = RNG.standard_normal((45, 4)).astype(np.float32)
    path, data = str(recurrent(tmp_path / "m.onnx")), saved(tmp_path / "d.npz", {"x": rows})
    exported = obtain(path, {}, 1, inputs_npz=data, state=STATE, steps=20)
    assert np.array_equal(np.concatenate([one["x"] for one in exported.input_buffers()]), rows[:40])
    check(exported, 0.5)
    begun = saved(tmp_path / "b.npz", {"x": rows, "h": np.full((1, 4), 2, np.float32)})
    check(obtain(path, {}, 1, inputs_npz=begun, state=STATE, steps=20), 0.5, 2.0)


def test_clips_stay_whole_where_a_metric_scores_them(tmp_path: Path):
    rows = RNG.standard_normal((410, 4)).astype(np.float32)
    data = saved(tmp_path / "d.npz", {"x": rows})
    how = {"inputs_npz": data, "state": STATE, "steps": 10, "scored": "outputs"}
    exported = obtain(str(recurrent(tmp_path / "m.onnx")), {}, 1, **how)
    report = exported.report()
    assert report
    assert report.rows.tolist() == [row for row in range(410) if row // 10 % 2 == 0]
    assert report.shared == {"h"}
    call = report.take(np.array([3]))
    assert (call["x"][0].tolist(), call["h"].shape) == (rows[3].tolist(), (1, 4))
    wanted = states_of([{"x": rows[row : row + 1]} for row in report.rows], 0.5, 10, np.zeros((1, 4)))
    after = [0.5 * state + rows[row : row + 1] @ WEIGHTS["w"] for state, row in zip(wanted, report.rows, strict=True)]
    own = report_outputs(exported)
    assert own
    np.testing.assert_allclose(own["y"], np.concatenate(after) @ WEIGHTS["v"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"state": {"h": "z"}}, "output in --state"),
        ({"state": {"z": "hn"}}, "input in --state"),
        ({"state": {"h": "y"}}, r"input h is float32\[1, 4\] and output y is float32\[1, 3\]"),
        ({"state": {"h": "hn"}, "inputs_npz": "x"}, "--state needs --stream N"),
        (
            {"state": STATE, "steps": 100, "inputs_npz": "x"},
            "--stream 100 takes a clip of 100 rows.* hold 40",
        ),
        (
            {"state": STATE, "steps": 10, "inputs_npz": "wrong"},
            r"state 'h': expected float32\[1, 4\], its value when",
        ),
        ({"steps": 10**9}, "--stream 1000000000 takes"),
    ],
)
def test_what_makes_no_stream_is_refused_before_anything_is_exported(asked: dict[str, Any], says: str, tmp_path: Path):
    rows = RNG.standard_normal((40, 4)).astype(np.float32)
    files = {"x": {"x": rows}, "wrong": {"x": rows, "h": rows}}
    if name := asked.get("inputs_npz"):
        asked = {**asked, "inputs_npz": saved(tmp_path / "d.npz", files[name])}
    with pytest.raises(UsageError, match=says):
        OnnxFile().check_sizes(Request(model=str(recurrent(tmp_path / "m.onnx")), **asked))


def test_a_named_model_has_no_state():
    found = checked(Request(model="digits", steps=10))
    assert isinstance(found, UsageError)
    assert "--state and --stream are for a model of your own" in str(found)


def test_a_torch_module_hands_on_its_state_too(tmp_path: Path, own_cache: Path):
    (tmp_path / "net.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 3)\n"
        "    def forward(self, x, h):\n"
        "        h = 0.5 * h + self.first(x)\n"
        "        return {'y': self.last(h), 'hn': h}\n"
        "def make():\n"
        "    return Net(), (torch.randn(1, 4), torch.ones(1, 4))\n",
        encoding="utf-8",
    )
    exported = obtain(f"{tmp_path / 'net.py'}:make", {}, 1, state=STATE, steps=12)
    assert exported.stream == Stream(steps=12, state={"h": "hn"})
    sets, outputs = exported.input_buffers(), exported.reference_outputs()
    assert (sets[0]["h"] == 1).all()
    assert (sets[12]["h"] == 1).all()
    for at in range(1, 12):
        np.testing.assert_allclose(sets[at]["h"], outputs[at - 1]["hn"], rtol=1e-5, atol=1e-6)
    assert outputs[1]["hn"].dtype == np.float64
    assert {step: sorted(bounds) for step, bounds in exported.bounds_by_step.items()}.keys() == {1, 10}
