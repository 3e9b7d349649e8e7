"""Attention, fused and written out: one function, that of the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shootout import models
from shootout.models.base import draw

SMALL: dict[str, Any] = {"tokens": 24, "heads": 3}


@pytest.mark.parametrize("form", ["fused", "written"])
def test_each_form_is_softmax_of_scores_times_values(form: str):
    import torch

    model = models.get("attention")
    parameters = model.check({**SMALL, "form": form})
    (given,) = draw(model.inputs(parameters, 2), 1, seed=0)
    query, keys, values = (array.astype(np.float64) for array in given.values())
    scores = query @ keys.transpose(0, 1, 3, 2) / 8.0
    shares = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    got = model.module(parameters).double()(*(torch.from_numpy(array).double() for array in given.values()))
    np.testing.assert_allclose(got.numpy(), shares @ values, rtol=1e-12, atol=1e-14)


def test_only_the_fused_form_is_one_operation():
    import torch

    model = models.get("attention")
    for form, count in (("fused", 1), ("written", 0)):
        parameters = model.check({**SMALL, "form": form})
        (given,) = draw(model.inputs(parameters, 1), 1, seed=0)
        program = torch.export.export(model.module(parameters), tuple(map(torch.from_numpy, given.values())))
        called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
        assert sum("scaled_dot_product_attention" in name for name in called) == count
