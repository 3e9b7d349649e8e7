"""One export for all sizes of a sweep: weights shared, each size true; where there can be none, each size says why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from support import onnx_made
from support.factories import HEAD, write

from shootout.core.contract import Artifact, Value
from shootout.core.errors import ShootoutError
from shootout.core.exported.client import Request, obtain_all
from shootout.core.exported.model import ALONE, ExportedModel

pytestmark = pytest.mark.usefixtures("own_cache")

ENCODER = f"""{HEAD}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.mix, self.out = nn.Embedding(100, 16), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, ids, mask):
        x = self.words(ids)
        scores = (self.mix(x) @ x.transpose(1, 2)).masked_fill(mask[:, None] == 0, -1e4)
        return self.out(scores.softmax(-1) @ x)

def make(tokens=8, batch=1):
    ids = torch.randint(1, 100, (batch, tokens))
    mask = torch.ones_like(ids)
    mask[:, tokens - 2:] = 0
    return Net(), {{"ids": ids, "mask": mask}}
"""


def ask(model: str, axis: str, sizes: Sequence[int], **how: Any) -> list[Request]:
    """The requests of a sweep, as a study's points make them."""
    sweep = {axis: (min(sizes), max(sizes))}
    if axis == "batch":
        return [Request(model=model, batch=size, sweep=sweep, **how) for size in sizes]
    parameters: Mapping[str, Value] = how.pop("parameters", {})
    return [Request(model=model, parameters={**parameters, axis: size}, sweep=sweep, **how) for size in sizes]


def export(requests: Sequence[Request]) -> list[ExportedModel]:
    found = obtain_all(requests)
    errors = [str(one) for one in found if isinstance(one, ShootoutError)]
    assert not errors
    return [one for one in found if isinstance(one, ExportedModel)]


def require_right(exported: ExportedModel, artifact: Artifact = Artifact.ONNX) -> None:
    session = onnxruntime.InferenceSession(exported.path(artifact))
    for inputs, right in zip(exported.input_buffers(), exported.reference_outputs(), strict=True):
        outputs = session.run([*right], inputs)
        for given, wanted in zip(outputs, right.values(), strict=True):
            assert given.shape == wanted.shape
            np.testing.assert_allclose(given, wanted, atol=1e-4)


def operators(exported: ExportedModel) -> Counter[str]:
    graph = onnx.load(exported.path(Artifact.ONNX), load_external_data=False).graph
    return Counter(node.op_type for node in graph.node if node.op_type != "Constant")


def places(found: Sequence[ExportedModel], artifact: Artifact) -> set[Path]:
    """The files that these have their artifact in."""
    return {one.path(artifact) for one in found}


def own_bytes(exported: ExportedModel) -> int:
    return sum(path.stat().st_size for path in exported.folder.iterdir() if path.suffix != ".npz")


def test_sizes_of_a_zoo_model_share_one_export():
    found = export(ask("residual_mlp", "batch", (1, 4, 7), parameters={"d_model": 64, "n_layers": 2}))
    for exported in found:
        assert not [note for note in exported.notes if note.startswith(ALONE)]
        require_right(exported)
        require_right(exported, Artifact.OPEN)
    for artifact in (Artifact.MODULE, Artifact.PT2, Artifact.OPEN):
        assert len(places(found, artifact)) == 1
    weights = 4 * found[0].parameter_count
    assert all(own_bytes(one) + one.path(Artifact.ONNX).stat().st_size < weights / 2 for one in found)
    (alone,) = export([Request(model="residual_mlp", batch=4, parameters={"d_model": 64, "n_layers": 2})])
    assert operators(found[1]) == operators(alone)
    assert Artifact.OPEN not in alone.artifacts


def test_lengths_of_a_users_module_share_one_export(tmp_path: Path):
    made = write(tmp_path / "encoder.py", ENCODER)
    found = export(ask(f"{made}:make", "tokens", (5, 8, 16)))
    assert [one.inputs[0].shape for one in found] == [(1, 5), (1, 8), (1, 16)]
    for exported in found:
        require_right(exported)
        require_right(exported, Artifact.OPEN)
    assert len(places(found, Artifact.MODULE)) == len(places(found, Artifact.OPEN)) == 1
    (alone,) = export([Request(model=f"{made}:make", parameters={"tokens": 8})])
    assert operators(found[1]) == operators(alone)


def test_sizes_of_a_users_file_share_its_weights(tmp_path: Path):
    weight = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])]
    inputs = [onnx_made.value("x", ("batch", "length", 64))]
    path = onnx_made.write(
        tmp_path / "m.onnx", nodes, inputs, [onnx_made.value("y", ("batch", "length", 32))], {"w": weight}
    )
    found = export(ask(str(path), "length", (3, 9)))
    assert [one.inputs[0].shape for one in found] == [(1, 3, 64), (1, 9, 64)]
    for exported in found:
        require_right(exported)
        require_right(exported, Artifact.OPEN)
    assert len(places(found, Artifact.OPEN)) == 1


BRANCHING = f"""{HEAD}

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, width)

    def forward(self, x):
        return self.layer(x) * (2 if x.shape[1] > 5 else 3)

def make(tokens=8, width=4):
    return Net(width), torch.randn(1, tokens, 4)
"""


def test_a_module_that_goes_by_its_size_is_exported_for_each(tmp_path: Path):
    """Torch may fix the size or the one branch: each size's own outputs decide."""
    made = write(tmp_path / "branching.py", BRANCHING)
    found = export(ask(f"{made}:make", "tokens", (3, 8)))
    for exported in found:
        require_right(exported)
    assert any(note.startswith(ALONE) for exported in found for note in exported.notes)


@pytest.mark.long
def test_a_parameter_that_makes_other_weights_is_no_open_axis(tmp_path: Path):
    made = write(tmp_path / "widths.py", BRANCHING)
    found = export(ask(f"{made}:make", "width", (3, 8)))
    for exported in found:
        require_right(exported)
        assert any(note.startswith(ALONE) for note in exported.notes)
    zoo = export(ask("residual_mlp", "d_model", (64, 128), parameters={"n_layers": 2}))
    assert not [note for exported in zoo for note in exported.notes if note.startswith(ALONE)]
    assert all(Artifact.OPEN not in exported.artifacts for exported in zoo)


def test_a_variant_of_a_size_is_made_of_the_shared_weights():
    asked = ask("residual_mlp", "batch", (2, 4), parameters={"d_model": 64, "n_layers": 2})
    for plain, made in zip(export(asked), export([replace(one, variant="shared") for one in asked]), strict=True):
        assert plain.shared
        assert not made.shared
        graph = onnx.load(made.path(Artifact.ONNX)).graph
        assert "DequantizeLinear" in {node.op_type for node in graph.node}
