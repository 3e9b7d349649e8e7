"""Each check finds its own fault, the first fault is told, and an arm that is true to its label has none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from support.exports import bare_exported
from support.sessions import EchoSession

from shootout.core.contract import Arm, Arrays, Device, Executed, Precision, Target, TensorSpec
from shootout.core.exported.calls import NAMES
from shootout.core.exported.model import ReportRows
from shootout.core.worker.blocks import Caller
from shootout.core.worker.verification import CHECKS, Claim, verify
from shootout.scenarios import train_step
from shootout.scenarios.train_step import TrainStep

RIGHT = {"y": np.array([[1.0, 2.0]], np.float32)}
ACCOUNT = Executed(library="lib", version="1", device="cpu", threads=1, compute_nodes_by_precision={"fp32": 1})


class Session(EchoSession):
    """Answers what it was made with; `staged` keeps the slots."""

    def __init__(self, answer: Arrays = RIGHT, executed: Executed = ACCOUNT) -> None:
        self.answer, self.executed = answer, executed
        self.staged: list[int] = []

    def stage(self, inputs: Arrays, slot: int) -> Arrays:
        self.staged.append(slot)
        return inputs

    def fetch(self, _raw: Any) -> Arrays:
        return self.answer


def exported(reference: Arrays | None = None) -> Any:
    return SimpleNamespace(
        outputs=(TensorSpec(name="y", shape=(1, 2), dtype="float32"),),
        batch=1,
        trained=(),
        drawn=True,
        stream=None,
        pick=list,
        original="",
        own_outputs=lambda: [RIGHT, RIGHT],
        error_bound=lambda *_, **__: (1e-3, 0.0),
        flips_of=lambda *_: {},
        is_judged=lambda *_: True,
        reference_outputs=lambda: [RIGHT, RIGHT],
        shared_outputs=lambda: reference and [reference, reference],
        number_row=lambda row: 2 * row + 1,
        report=lambda: ReportRows(
            inputs={"x": np.zeros((3, 1))}, rows=np.arange(3), other_rows=np.arange(3), labels=np.array([1, 1, 0])
        ),
    )


def claim(session: Any = None, **changes: Any) -> Claim:
    arm = Arm(target=Target(backend="lib"), model="m")
    made = Claim(
        arm=arm, exported=exported(), session=session or Session(), buffers=[{}, {}], strayed=None, together=None
    )
    return replace(made, **changes)


UNJUDGED = [(0.8, False, 0.0, True), (0.8, False, 0.9, False), (0.4, False, 0.0, False), (0.8, True, 0.0, False)]


def off_by(error: float) -> Arrays:
    return {"y": RIGHT["y"] * np.float32(1 + error)}


def test_an_arm_that_is_true_has_no_fault_and_its_figures():
    found = verify(claim(together=lambda: [[RIGHT, RIGHT]] * 2))
    assert (found.fault, found.executed) == (None, ACCOUNT)
    assert found.fidelity.relative_l2 == 0.0


def test_the_worst_row_has_its_number_in_the_users_data():
    class Odd(Session):
        def execute(self, staged: Arrays) -> Arrays:
            return off_by(1e-4) if self.slot else RIGHT

        def stage(self, inputs: Arrays, slot: int = 0) -> Arrays:
            self.slot = slot
            return inputs

        def fetch(self, raw: Any) -> Arrays:
            return raw  # type: ignore[no-any-return]

    (found,) = verify(claim(Odd())).fidelity.by_output
    assert (found.name, found.row) == ("y", 3)
    assert found.relative_l2 == pytest.approx(1e-4, rel=1e-2)


def test_an_error_in_any_buffer_closes_the_gate():
    """The session gives back what it is given, so that each buffer has an answer of its own."""
    echo = Session()
    echo.fetch = lambda raw: raw  # type: ignore[method-assign]
    assert verify(claim(echo, buffers=[RIGHT, RIGHT])).fault is None
    found = verify(claim(echo, buffers=[RIGHT, off_by(0.1)]))
    assert "relative L2 error 0.07" in str(found.fault) or "relative L2 error 0.1" in str(found.fault)


def test_a_fault_on_inputs_with_missing_values_says_so():
    """A conversion may send NaN to the other branch of a tree than the library does."""
    echo = Session()
    echo.fetch = lambda raw: {"y": np.nan_to_num(raw["y"], nan=9.0)}  # type: ignore[method-assign]
    missing = {"y": np.array([[np.nan, 2.0]], np.float32)}
    told = str(verify(claim(echo, buffers=[RIGHT, missing])).fault)
    assert told.endswith("(for inputs with NaN, a missing value, which it takes otherwise than the reference does)")
    assert "NaN" not in str(verify(claim(echo, buffers=[off_by(0.1), RIGHT])).fault)


def test_a_row_that_drawn_inputs_cannot_judge_is_let_through_and_never_reads_as_met():
    made = claim(Session(off_by(0.4)), together=lambda: [[off_by(0.4)] * 2] * 2)
    assert verify(made).fault
    made.exported.is_judged = lambda *_: False
    found = verify(made)
    assert found.fault is None
    assert (found.fidelity.standing, found.fidelity.error_bound) == ("not judged", 1e-3)
    assert verify(claim()).fidelity.standing == "met"


@pytest.mark.parametrize(("error", "drawn", "allowed", "is_refused"), UNJUDGED)
def test_real_inputs_show_an_answer_like_zeros_though_nothing_was_predicted(
    error: float, drawn: bool, allowed: float, is_refused: bool
):
    """There was no time to predict what its precision explains: a row of this error may not look like any other."""
    made = claim(Session(off_by(error)), together=lambda: [[off_by(error)] * 2], max_error=allowed)
    made.exported.is_judged, made.exported.drawn = (lambda *_: False), drawn
    found = verify(made)
    assert (found.fault or "").endswith("(outputs of zeros alone would err by 1)" if is_refused else "")
    assert bool(found.fault) is is_refused
    assert found.fidelity.standing == ("refused" if is_refused else "not judged")


def test_a_row_that_a_metric_scores_may_err_as_much_as_its_precision_explains():
    """Probabilities near zero err by more than themselves where nobody speaks, and tell speech all the same."""
    made = claim(Session(off_by(1.2)), buffers=[{}, {}])
    made.exported.error_bound = lambda *_, **__: (9.9, 0.0)
    assert verify(made).fault
    scored = replace(made, is_scored=True)
    found = verify(scored)
    assert found.fault is None
    assert found.fidelity.standing == "tolerated"


def test_what_the_user_allows_is_measured_and_flagged_and_no_more():
    """The fake's error bound is 1e-3."""
    made = claim(Session(off_by(0.01)), together=lambda: [[off_by(0.01)] * 2] * 2)
    refused = verify(replace(made, max_error=0.009))
    assert "relative L2 error 0.01 is above --max-error 0.009" in str(refused.fault), "the limit in force"
    assert refused.fidelity.standing == "refused"
    found = verify(replace(made, max_error=0.011))
    assert (found.fault, found.fidelity.standing) == (None, "tolerated")
    assert verify(claim(max_error=0.011)).fidelity.standing == "met"


def test_whole_numbers_may_flip_as_explained_and_beyond_what_proves_something_only_for_a_metric():
    right = [{"y": np.array([[at, 5, 5, 5]])} for at in range(2)]
    made = exported()
    made.outputs = (TensorSpec(name="y", shape=(1, 4), dtype="int64"),)
    made.reference_outputs = made.own_outputs = lambda: right
    made.flips_of = lambda *_: {"y": 0.5}
    wrong = [{"y": one["y"] + np.array([[0, 0, 1, 1]])} for one in right]
    session, known = Session(), iter([*wrong, *wrong])
    session.fetch = lambda _: next(known)  # type: ignore[method-assign]
    told = verify(claim(session, exported=made)).fault or ""
    assert told.startswith("4 of 8 integer or boolean elements of output 'y' differ")
    assert told.endswith("this precision explains 12.5 %"), "half of what different inputs move"
    assert verify(claim(session, exported=made, is_scored=True)).fault is None


def test_a_row_stands_as_the_worst_of_its_instances():
    answers = iter([[[RIGHT, RIGHT], [RIGHT, off_by(0.01)]]])  # they run once
    made = claim(max_error=0.011, together=lambda: next(answers))
    assert verify(made).fidelity.standing == "tolerated"


def test_rows_that_a_metric_scores_run_in_a_slot_of_their_own(tmp_path: Path):
    session = Session()
    verify(claim(session), tmp_path)
    assert session.staged == [0, 1, 2, 2, 2]
    assert (tmp_path / NAMES).exists()


@pytest.mark.parametrize("is_scored", [True, False])
def test_a_metric_judges_a_row_for_which_nothing_could_be_predicted(is_scored: bool):
    made = claim(Session(off_by(0.1)), is_scored=is_scored)
    made.exported.error_bound = lambda *_, **__: (None, 0.0)
    found = verify(made)
    assert ("no error bound is known" not in str(found.fault)) is is_scored
    assert found.fidelity.standing == ("tolerated" if is_scored else "refused")


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "check_place": ({"strayed": "has threads elsewhere"}, "has threads elsewhere"),
    "check_account": ({"session": Session(executed=replace(ACCOUNT, threads=2))}, "asked for 1 threads"),
    "check_error": (
        {"session": Session(off_by(0.1))},
        "relative L2 error 0.1 is above the error bound of this precision, 0.001",
    ),
    "check_reference": ({"exported": exported(off_by(0.1))}, "off the shared model's own"),
    "check_instances": ({"together": lambda: [[RIGHT, RIGHT], [RIGHT, off_by(0.1)]]}, "of 2 instances at once: relat"),
}


@pytest.mark.parametrize("check", FAULTS)
def test_each_check_finds_its_fault(check: str):
    changes, says = FAULTS[check]
    assert says in (verify(claim(**changes)).fault or "")


def test_the_first_fault_is_told_and_no_instance_runs_for_nothing():
    def forbidden() -> Any:
        raise AssertionError("the gate is closed already")

    found = verify(claim(Session(off_by(0.1)), strayed="strayed", together=forbidden))
    assert found.fault == "strayed"


def test_what_is_never_timed_may_have_threads_anywhere():
    software = replace(ACCOUNT, software=True)
    assert verify(claim(Session(executed=software), strayed="has threads elsewhere")).fault is None


def test_a_training_step_that_leaves_other_weights_is_a_fault(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(train_step, "judged", lambda found, *_: (found, "moved its weights"))
    trained = exported()
    trained.trained = ("w",)
    verified, _ = TrainStep().verify(claim(exported=trained), cast("Caller", None), None)
    assert verified.fault == "moved its weights"
    untold = [check.__name__ for check in CHECKS if check.__name__ not in FAULTS]
    assert untold == ["check_step", "check_first_calls"], "the second one has tests beside those of streams"


def test_outputs_of_another_shape_are_not_even_compared():
    found = verify(claim(Session({"y": RIGHT["y"][:, :1]}), strayed="strayed"))
    assert "expected float32[1, 2], got float32[1, 1]" in (found.fault or "")
    assert found.fidelity.relative_l2 is None


@pytest.mark.parametrize(
    ("precision", "scheme", "rest", "error", "counts", "caught"),
    [
        ("int8", "shared", "bf16", 5e-4, {"int8": 4}, True),
        ("int8", "shared", "bf16", 5e-2, {"int8": 4}, False),
        ("int8", "shared", "bf16", 5e-4, {"int8": 1, "fp16": 3}, False),
        ("int8", "shared+float-1", "bf16", 5e-4, {"int8": 4}, False),
        ("int8", "shared+rest-fp32", "bf16", 5e-4, {"int8": 4}, False),
        ("fp8", "", "fp16", 5e-4, {"fp8": 4}, True),
        ("fp8", "", "bf16", 5e-4, {"fp8": 4}, False),
    ],
)
def test_a_network_in_half_under_a_quantized_label_is_too_exact_on_a_gpu(
    precision: str, scheme: str, rest: str, error: float, counts: dict[str, int], caught: bool
):
    """Its account says what the label says. Where a rest in BF16 errs by nearly as much, nothing can be told."""
    target = Target(backend="lib", device=Device.CUDA, precision=Precision(precision), scheme=scheme)
    account = replace(ACCOUNT, device="cuda", compute_nodes_by_precision=counts)
    error_bounds = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 2e-2, "int8": 0.3, "fp8": 0.1}
    known = exported()
    known.error_bound = bare_exported(error_bounds).error_bound
    made = claim(
        Session(off_by(error), account), exported=known, rests={(Device.CUDA, Precision(precision)): Precision(rest)}
    )
    found = verify(replace(made, arm=replace(made.arm, target=target)))
    assert ("nothing was rounded" in (found.fault or "")) is caught
    assert caught or found.fault is None


def test_a_file_beside_its_original_is_judged_by_what_it_gives_itself():
    quantized = off_by(0.3)
    beside = exported(quantized)
    beside.original, beside.own_outputs = "a.onnx", lambda: [quantized, quantized]
    found = verify(claim(Session(quantized), exported=beside))
    assert (found.fault, found.fidelity.shared_l2) == (None, 0.0)
    assert found.fidelity.standing == "met", "no tolerance was given, and none was needed"
    assert found.fidelity.relative_l2 == pytest.approx(0.3, rel=1e-3)
    assert "above the error bound of this precision, 0.001" in (verify(claim(exported=beside)).fault or ""), (
        "the original's own"
    )
    together = claim(Session(quantized), exported=beside, together=lambda: [[quantized, quantized]])
    assert verify(together).fault is None
