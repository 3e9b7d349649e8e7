"""Timed calls of a stream, and the check of an arm that has a state: over whole clips, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.exports import bare_exported
from support.sessions import EchoSession

from shootout.core.contract import Arm, Arrays, Executed, Target, TensorSpec
from shootout.core.exported.calls import Stream
from shootout.core.exported.model import ExportedModel
from shootout.core.worker.blocks import Blocks
from shootout.core.worker.verification import Claim, verify
from shootout.models.data.data_files import fill_states

STREAM = Stream(steps=10, state={"h": "hn"})
ACCOUNT = Executed(library="lib", version="1", device="cpu", threads=1, compute_nodes_by_precision={"fp32": 1})


def right(inputs: Arrays) -> dict[str, Any]:
    """A running sum that forgets: y = hn = 0.9 h + x."""
    hn = np.asarray(0.9 * inputs["h"] + inputs["x"], np.float32)
    return {"y": 2 * hn, "hn": hn}


class Session(EchoSession):
    """Computes what it is given; `asked` has the inputs of all calls, `slots` where they were staged."""

    executed, gpu = ACCOUNT, None

    def __init__(self, run: Callable[[Arrays], dict[str, Any]] = right) -> None:
        self.run = run
        self.asked: list[dict[str, float]] = []
        self.slots: list[int] = []

    def stage(self, inputs: Arrays, slot: int) -> Arrays:
        self.slots.append(slot)
        return inputs

    def execute(self, staged: Arrays) -> dict[str, Any]:
        self.asked.append({name: float(array[0]) for name, array in staged.items()})
        return self.run(staged)


def clips() -> list[dict[str, Any]]:
    """Two clips of ten calls, with the states that the reference had."""
    numbers = np.random.default_rng(0).standard_normal((20, 1)).astype(np.float32)
    sets = [{"x": one, "h": np.full(1, 3.0, np.float32)} for one in numbers]
    return fill_states(STREAM, sets, list(map(STREAM.carry(right), sets)))


def test_timed_calls_go_on_from_block_to_block_and_begin_anew_with_each_clip():
    session, sets = Session(), clips()
    blocks = Blocks(session, STREAM.pick(sets), stream=STREAM, sets=sets)
    session.asked.clear()
    call = blocks.calls["end_to_end"]
    for buffer in (0, 1, 2, 0, 1, 2, 0):  # a block ends, and the next one begins with the first buffer again
        call(buffer)
    for _ in range(23):
        call(0)
    wanted = [{name: pytest.approx(float(array[0]), rel=1e-5) for name, array in one.items()} for one in sets]
    assert session.asked == [*wanted, *wanted[:10]]
    assert [one["h"] for one in session.asked[::10]] == [3.0] * 3
    assert float(sets[1]["h"][0]) == pytest.approx(session.asked[1]["h"]), "the stored state is the reference's"


def test_other_calls_leave_the_stream_alone():
    session, sets = Session(), clips()
    blocks = Blocks(session, STREAM.pick(sets), stream=STREAM, sets=sets)
    call = blocks.calls["end_to_end"]
    call(0)
    before = session.slots[-1]
    assert before == len(blocks.buffers), "a slot of its own"
    assert float(blocks.answered(3)["hn"][0]) == pytest.approx(float(right(blocks.buffers[3])["hn"][0]))
    assert float(blocks.computed(3)["hn"][0]) == pytest.approx(float(right(blocks.buffers[3])["hn"][0]))
    call(0)
    assert session.asked[-1]["h"] == pytest.approx(float(sets[1]["h"][0]))


def test_few_inputs_are_staged_for_the_rest():
    session = Session()
    Blocks(session, STREAM.pick(clips()), stream=STREAM, sets=clips())
    assert len(session.slots) == 8


def claim(run: Callable[[Arrays], dict[str, Any]], bounds: tuple[float, float] = (1e-5, 1e-3)) -> Claim:
    """An arm that runs so; `bounds`: what its precision explains in the first call of a clip, and in all."""
    sets = clips()
    reference = [{name: array.astype(float) for name, array in right(one).items()} for one in sets]

    class Exported(ExportedModel):
        """An exported model whose arrays are in memory."""

        __slots__ = ()

        def reference_outputs(self) -> Any:
            return reference

        own_outputs = reference_outputs

        def shared_outputs(self) -> None:
            return None

    plain = bare_exported({"fp32": bounds[1]}, stream=STREAM, bounds_by_step={1: {"fp32": bounds[0]}})
    specs = tuple(TensorSpec(name=name, shape=(1,), dtype="float32") for name in ("y", "hn"))
    facts = {name: getattr(plain, name) for name in plain.__dataclass_fields__} | {"outputs": specs}
    arm = Arm(target=Target(backend="lib"), model="m")
    session: Any = Session(run)
    return Claim(arm=arm, exported=Exported(**facts), session=session, buffers=sets, strayed=None, together=None)


def test_a_true_arm_has_an_error_for_each_mark():
    found = verify(claim(right))
    assert found.fault is None
    assert [(one.step, one.error_bound) for one in found.fidelity.by_step] == [(1, 1e-5), (10, 1e-3)]
    assert all(one.relative_l2 == pytest.approx(0.0, abs=1e-6) for one in found.fidelity.by_step)
    assert found.fidelity.by_step[-1].relative_l2 == found.fidelity.relative_l2


def test_an_arm_that_ignores_its_state_is_refused():
    found = verify(claim(lambda one: right({**one, "h": 0 * one["h"]})))
    assert "above the error bound of this precision, 0.001" in str(found.fault)


def test_an_error_that_grows_is_held_to_what_its_step_explains():
    """A weight that is a little off shows at once, though ten calls may explain as much."""
    found = verify(claim(lambda one: right({**one, "x": one["x"] * np.float32(1 + 2e-4)})))
    assert "in the first call of a clip is above the error bound of this precision there, 1e-05" in str(found.fault)
    (first, whole) = found.fidelity.by_step
    assert 1e-5 < (first.relative_l2 or 0) < (whole.relative_l2 or 0) < 1e-3
    assert verify(claim(right, (1e-3, 1e-3))).fault is None


def test_what_the_whole_stream_does_not_prove_its_first_call_may():
    """After ten calls anything may be explained, after one it isn't."""
    off = claim(lambda one: right({**one, "x": one["x"] * np.float32(1 + 2e-4)}), (1e-5, 0.9))
    assert "in the first call of a clip" in str(verify(off).fault)
    assert [one.error_bound for one in verify(claim(right, (1e-5, 0.9))).fidelity.by_step] == [
        1e-5,
        None,
    ]


def test_numbers_that_run_away_are_told():
    calls = iter(range(100))
    found = verify(claim(lambda one: right({**one, "x": one["x"] * (np.nan if next(calls) == 7 else 1)})), False)
    assert [one.relative_l2 is None for one in found.fidelity.by_step] == [False, True]
    assert "NaN or infinity" in str(found.fault)
