"""A user's own weights for a transformers config: where they are, that they fit, and that no code is run for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from shootout import models
from shootout.core.errors import UsageError
from shootout.core.exported.client import Request, check
from shootout.models.sources import hfconfig

VIT = {
    "model_type": "vit",
    "architectures": ["ViTForImageClassification"],
    "image_size": 8,
    "patch_size": 4,
    "num_channels": 1,
    "num_labels": 3,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "vit").mkdir()
    (tmp_path / "vit" / "config.json").write_text(json.dumps(VIT))
    return tmp_path / "vit"


def test_a_folder_has_them_in_one_file_or_in_several(tmp_path: Path):
    with pytest.raises(UsageError, match=r"expected model\*\.safetensors or pytorch_model\*\.bin"):
        hfconfig.weight_files(tmp_path)
    names = ("pytorch_model-1.bin", "pytorch_model-2.bin")
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    assert tuple(path.name for path in hfconfig.weight_files(tmp_path)) == names
    before = hfconfig.weights_digest(tmp_path)
    (tmp_path / names[1]).write_bytes(b"other")
    assert hfconfig.weights_digest(tmp_path) != before
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert [path.name for path in hfconfig.weight_files(tmp_path)] == ["model.safetensors"]
    for name, says in {"index.json": "not a file of weights", "none.bin": "no such file"}.items():
        with pytest.raises(UsageError, match=says):
            hfconfig.weight_files(tmp_path / name)


def test_a_folder_is_a_model_and_its_weights_are_part_of_what_it_is(folder: Path):
    save_file({"a": np.zeros(2, np.float32)}, folder / "model.safetensors")
    first = check(Request(model=str(folder)))
    assert len(first.content.hashes) == 2
    save_file({"a": np.ones(2, np.float32)}, folder / "model.safetensors")
    assert check(Request(model=str(folder))).content.hashes != first.content.hashes
    config = str(folder / "config.json")
    assert len(check(Request(model=config)).content.hashes) == 1, "random weights, whatever lies beside it"
    assert (
        check(Request(model=config, weights=folder)).content.hashes == check(Request(model=str(folder))).content.hashes
    )


@pytest.mark.parametrize("model", ["residual_mlp", "model.onnx"])
def test_other_models_have_their_own(tmp_path: Path, model: str):
    with pytest.raises(UsageError, match="--weights is for a transformers config"):
        check(Request(model=str(tmp_path / model) if "." in model else model, weights=tmp_path))


@pytest.mark.slow
def test_they_are_loaded_by_name_and_what_does_not_fit_is_named(folder: Path):
    torch = pytest.importorskip("torch")
    model = models.get(str(folder))
    asked: dict[str, Any] = {**model.defaults, "batch": 1}
    assert model.called
    seeded = model.called({**asked, "seed": 5})
    state = {name.removeprefix("module."): tensor for name, tensor in seeded.module.state_dict().items()}
    torch.save(state, folder / "pytorch_model.bin")
    found = model.called({**asked, "weights": str(folder)})
    assert found.notes == ("with the weights in vit",)
    for one, other in zip(seeded.module.state_dict().values(), found.module.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    bias = state.pop("classifier.bias")
    torch.save({**state, "classifier.weight": bias, "head.extra": bias}, folder / "other.pt")
    says = r"don't fit config\.json \(ViTForImageClassification\): classifier\.weight is \[3\]"
    with pytest.raises(UsageError, match=rf"{says}; there is no classifier\.bias"):
        model.called({**asked, "weights": str(folder / "other.pt")})
    torch.save({**state, "classifier.bias": bias, "head.extra": bias}, folder / "more.pt")
    assert "the model has no head.extra" in model.called({**asked, "weights": str(folder / "more.pt")}).notes[1]


def test_a_file_that_would_run_code_is_not_opened(tmp_path: Path):
    torch = pytest.importorskip("torch")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "whole.pt")
    with pytest.raises(UsageError, match=r"whole\.pt isn't read: it must hold tensors alone"):
        hfconfig.read_tensors(tmp_path / "whole.pt")
    torch.save([torch.zeros(1)], tmp_path / "list.pt")
    with pytest.raises(UsageError, match=r"list\.pt holds a list"):
        hfconfig.read_tensors(tmp_path / "list.pt")
