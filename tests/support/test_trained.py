"""The training that remembers: the same weights as really trained ones, once for all that decides about them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from shootout.models.zoo import digits
from support.trained import trained_once

SMALL = {"hidden": 8, "n_layers": 1, "seed": 0}
ASKED = [(SMALL, 1), (SMALL, 1), ({**SMALL, "seed": 1}, 1), ({**SMALL, "hidden": 4}, 1), (SMALL, 2)]


def test_it_trains_once_for_each_seed_size_and_length_and_gives_what_it_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SHOOTOUT_TEST_CACHE", str(tmp_path))
    made: list[torch.nn.Module] = []

    def train(module, parameters, epochs):
        made.append(module(parameters).requires_grad_(False))
        for weight in made[-1].parameters():
            weight += len(made) + epochs
        return made[-1]

    found = [trained_once(train, digits.DIGITS.module, parameters, epochs) for parameters, epochs in ASKED]
    assert len(made) == len(ASKED) - 1
    for got, right in zip(found, [made[0], *made], strict=True):
        assert got.state_dict().keys() == right.state_dict().keys()
        assert all(torch.equal(weight, right.state_dict()[name]) for name, weight in got.state_dict().items())
        assert not got.training
        assert not any(weight.requires_grad for weight in got.parameters())
