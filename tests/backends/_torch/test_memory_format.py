"""Convolutions with their channels last: what is laid out so, and where the option would do nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shootout.core import backends
from shootout.core.contract import Arm, Precision, Target
from shootout.core.exported.client import Request, obtain_all
from shootout.core.exported.model import ExportedModel
from shootout.testing.checks import case_of, warm_of
from shootout.testing.fresh import run_fresh

EAGER = Target(backend="torch-eager")
OPTION = {"memory_format": "channels_last"}


def filters_and_error(exported: ExportedModel, folder: Path) -> tuple[bool, float]:
    """Whether all filters lie with their channels last, and how far the outputs are from the reference's."""
    import torch

    arm = Arm(target=EAGER, model=exported.model, options=OPTION)
    adapter, inputs = backends.get("torch-eager"), exported.input_buffers()[0]
    session = adapter.load(adapter.build(exported, arm, folder))
    got = session.fetch(session.execute(session.stage(inputs, 0)))["y"]
    weights = [one for one in session._run.parameters() if one.ndim == 4]
    wanted = exported.reference_outputs()[0]["y"]
    laid = all(one.is_contiguous(memory_format=torch.channels_last) for one in weights)
    return bool(weights) and laid, float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


def test_filters_lie_with_their_channels_last(tmp_path: Path):
    (exported,) = obtain_all([Request(model="digits_cnn", parameters={"channels": 4, "n_blocks": 2}, batch=2)])
    assert isinstance(exported, ExportedModel), exported
    laid, error = run_fresh(filters_and_error, exported, tmp_path, warm=warm_of(EAGER))
    assert laid
    assert error < 1e-5


def refusal(exported: ExportedModel, arm: Arm, folder: Path) -> str:
    adapter = backends.get("torch-eager")
    with pytest.raises(ValueError, match="memory_format") as refused:
        adapter.load(adapter.build(exported, arm, folder))
    return str(refused.value)


@pytest.mark.parametrize(
    ("precision", "words"), [(Precision.FP32, "has no Conv2d layer"), (Precision.INT8_DYNAMIC, "not for int8-dynamic")]
)
def test_an_order_that_changes_nothing_is_refused(precision: Precision, words: str, tmp_path: Path):
    target = Target(backend="torch-eager", precision=precision)
    arm = Arm(target=target, model="residual_mlp", options=OPTION)
    assert words in run_fresh(refusal, case_of(EAGER).exported, arm, tmp_path, warm=warm_of(EAGER))
