"""A torch module given in Python: kept by its content, opened from our own folder alone, the same model as it was."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from shootout import api, models
from shootout.core.errors import UsageError
from shootout.models.sources import own, torch_files


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop = nn.Linear(3, 2), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": self.drop(self.first(x)) * scale, "z": x}


class Plus(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class Counting(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if float(x.sum()) > 0 else -x


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "cache"))


def example() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(6.0).reshape(2, 3), torch.full((2, 2), 2.0)


def test_a_module_is_kept_once_and_comes_back_the_same():
    net, inputs = Net().double(), example()
    name = own.store(net, inputs)
    assert Path(name).name == "Net.pt2"
    assert (net.training, net.first.weight.dtype) == (True, torch.float64), "the caller's own stays as it is"
    os.utime(Path(name).parent, (1, 1))
    assert own.store(net, {"x": inputs[0], "scale": inputs[1]}) == name
    assert Path(name).parent.stat().st_mtime > 1, "it is used, and others go first where the cache is full"
    found = models.get(name)
    assert found.title == "Net"
    assert found.called
    kept = found.called({})
    assert (list(kept.inputs), kept.outputs, kept.batch) == (["x", "scale"], ("y", "z"), None)
    assert own.KEPT in kept.notes
    assert any("train mode" in note for note in kept.notes)
    y, z = kept.module.eval()(*map(torch.from_numpy, kept.inputs.values()))
    right = net.float().eval()(*inputs)
    torch.testing.assert_close((y, z), (right["y"], right["z"]))
    with torch.no_grad():
        net.first.weight += 1
    assert own.store(net, inputs) != name


def test_modules_that_differ_in_name_alone_are_both_kept():
    class Twin(Plus):
        pass

    names = [own.store(kind(), torch.ones(2)) for kind in (Plus, Twin)]
    assert [models.get(name).title for name in names] == ["Plus", "Twin"]


def test_what_cannot_be_kept_says_why_and_what_to_do():
    with pytest.raises(UsageError, match="give example inputs too"):
        own.store(Net(), None)
    with pytest.raises(UsageError, match=r"torch.export can't take Counting.*write a factory"):
        own.store(Counting(), torch.ones(2))


def test_a_program_from_elsewhere_or_a_changed_one_is_not_opened(tmp_path: Path):
    (tmp_path / "m.pt2").write_bytes(b"")
    with pytest.raises(UsageError, match=r"m\.pt2 isn't opened, it may run code"):
        models.get(str(tmp_path / "m.pt2"))
    name = own.store(Net(), example())
    Path(name).write_bytes(Path(name).read_bytes() + b" ")
    with pytest.raises(UsageError, match="was changed after it was kept"):
        models.get(name).called({})  # type: ignore[misc]


def test_python_takes_a_module_with_its_example_inputs(tmp_path: Path):
    asked: Any = {"model": Net(), "inputs": example(), "batch": 2, "backends": ("numpy",)}
    assert [group["name"] for group in api.plan(**asked)["groups"]] == ["Net, batch 2"]
    assert asked["inputs"] is not None
    (kept,) = (tmp_path / "cache").rglob("Net.pt2")
    facts = json.loads((kept.parent / own.FACTS).read_text())
    assert set(facts["files"]) == {"Net.pt2", "inputs.npz"}
    assert np.load(kept.parent / own.INPUTS)["x"].shape == (2, 3)


class Stating(nn.Module):
    """A module whose program names float32 outright: in a check, a cast and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x).to(x.dtype).softmax(-1) + torch.tensor([1 / 3, 2 / 3]).to(x.dtype)


def test_the_reference_outputs_of_a_program_that_states_float32_are_float64_throughout():
    net, x = Stating(), torch.linspace(-1, 1, 6).reshape(2, 3)
    found = models.get(own.store(net, x))
    assert found.called
    kept = found.called({})
    assert "float32" in kept.module.code  # type: ignore[operator] # a graph's module has its code as text
    (reference,), (error_bounds,), *_ = torch_files.reference_and_error_bounds(kept.module, [kept.inputs], [])
    right = net.double()(x.double()).detach().numpy()
    assert reference["y"].dtype == np.float64
    np.testing.assert_allclose(reference["y"], right, rtol=1e-7)  # the constant itself was float32
    np.testing.assert_allclose(reference["y"].sum(-1), right.sum(-1), rtol=1e-14)
    assert 0 < (error_bounds["fp32"] or 0) < (error_bounds["bf16"] or 0)
