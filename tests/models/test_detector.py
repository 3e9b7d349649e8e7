"""The two detectors: what they give, and that it tells images and seeds apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shootout import models
from shootout.core.errors import UsageError

BOXES = {"yolo": 3 * (8**2 + 4**2 + 2**2), "ssd": 3 * (4**2 + 2**2 + 1 + 1)}
"""Of 64 pixels a side: three for each place of the feature maps."""


def outputs(kind: str, seed: int = 0) -> list[Any]:
    import torch

    model = models.get("detector")
    parameters = model.check({"kind": kind, "image_size": 64, "classes": 7, "seed": seed})
    module = model.trained(parameters)
    assert model.draw
    with torch.no_grad():
        return [module(torch.from_numpy(one["x"])).numpy() for one in model.draw(parameters, 2)]


@pytest.mark.parametrize("kind", BOXES)
def test_each_box_has_a_place_a_score_and_its_classes_and_they_follow_image_and_seed(kind: str):
    first, second, *_ = outputs(kind)
    assert first.shape == (2, BOXES[kind], 4 + 1 + 7)
    assert 0.05 < first.std() < 20
    assert np.linalg.norm(first - second) > 0.2 * np.linalg.norm(first)
    assert (outputs(kind)[0] == first).all()
    assert np.linalg.norm(outputs(kind, seed=1)[0] - first) > 0.2 * np.linalg.norm(first)


def test_a_size_at_which_features_can_not_be_joined_is_refused():
    model = models.get("detector")
    with pytest.raises(UsageError, match="image_size must be a multiple of 32 for yolo, got 100"):
        model.inputs(model.check({"image_size": 100}), 1)
    assert model.inputs(model.check({"image_size": 100, "kind": "ssd"}), 1)
