"""Convolutions with their channels last: what is laid out so, and where the option would do nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shootout.core import backends
from shootout.core.contract import Arm, Target
from shootout.core.exported.client import Request, obtain_all
from shootout.core.exported.model import ExportedModel
from shootout.testing.checks import warm_of
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
