"""Sessions that take any size of an open axis: each size's outputs are right, in any order of the sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.factories import HEAD, write

from shootout.core import backends
from shootout.core.contract import Arm, Arrays, Target
from shootout.core.errors import ShootoutError
from shootout.core.exported.client import Request, obtain_all
from shootout.core.exported.model import ExportedModel
from shootout.scenarios import varying
from shootout.scenarios.varying import Arrivals

NET = f"""{HEAD}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x, mask):
        hidden = torch.relu(self.first(x)) * mask[:, :, None]
        return self.last(hidden), hidden.sum(1) / mask.sum(1, keepdim=True)

def make(tokens=8, batch=1):
    net = Net()
    mask = torch.ones(batch, tokens)
    mask[:, tokens - 1:] = 0
    return net, {{"x": torch.randn(batch, tokens, 8), "mask": mask}}
"""
SIZES = (3, 5, 12)
ORDER = (5, 12, 3, 3, 12, 5)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[int, ExportedModel]:
    made = write(tmp_path_factory.mktemp("open") / "open_net.py", NET)
    sizes = (*SIZES, 4, 8)  # and the buckets
    found = obtain_all(
        [Request(model=f"{made}:make", parameters={"tokens": size}, sweep={"tokens": (3, 12)}) for size in sizes]
    )
    assert not [str(one) for one in found if isinstance(one, ShootoutError)]
    return {size: one for size, one in zip(sizes, found, strict=True) if isinstance(one, ExportedModel)}


def call(session: varying.VaryingSession, inputs: Arrays, slot: int) -> Arrays:
    raw = session.execute(session.stage(inputs, slot))
    session.synchronize()
    return session.fetch(raw)


def require_right(name: str, scheme: str, models: dict[int, ExportedModel], folder: Path) -> varying.VaryingSession:
    arrivals = Arrivals(axis="tokens", sizes=ORDER)
    bucket = 4 if scheme.startswith("bucket") else None
    asked = {size: models[size] for size in {*arrivals.runs(None), *arrivals.runs(bucket).values()}}
    exported = arrivals.compose(asked, bucket, is_open=scheme == "dynamic")
    assert exported.varying
    arm = Arm(target=Target(backend=name, scheme=scheme), model="m", scenario="varying")
    runner = backends.get(name)
    folder.mkdir(exist_ok=True)
    session = varying.load(runner, varying.build(runner, exported, arm, folder))
    for slot, index in enumerate(exported.varying.arrivals):
        one = exported.varying.sizes[index].exported
        inputs, right = one.input_buffers()[slot % 2], one.reference_outputs()[slot % 2]
        outputs = call(session, inputs, slot)
        for output, wanted in right.items():
            assert outputs[output].shape == wanted.shape
            np.testing.assert_allclose(outputs[output], wanted, atol=1e-5)
    return session


@pytest.mark.parametrize("name", ["onnxruntime", "openvino", "torch-eager"])
def test_one_session_takes_all_sizes(name: str, models: dict[int, ExportedModel], tmp_path: Path):
    session = require_right(name, "dynamic", models, tmp_path / "built")
    assert len([*(tmp_path / "built").iterdir()]) == 1
    session.close()
    session.close()


@pytest.mark.slow
def test_a_compiler_takes_all_sizes_at_once(models: dict[int, ExportedModel], tmp_path: Path):
    session = require_right("torch-compile", "dynamic", models, tmp_path / "built")
    session.close()


@pytest.mark.long  # beside test_one_session_takes_all_sizes
def test_litert_takes_all_sizes_of_a_file_without_shapes_as_constants(tmp_path: Path):
    """The model's file holds no shape as a constant."""
    asked = [
        Request(model="residual_mlp", batch=size, parameters={"d_model": 64, "n_layers": 2}, sweep={"batch": (3, 12)})
        for size in SIZES
    ]
    models = {one.batch: one for one in obtain_all(asked) if isinstance(one, ExportedModel)}
    session = require_right("litert", "dynamic", models, tmp_path / "built")
    session.close()


@pytest.mark.parametrize("name", ["onnxruntime", "openvino", "torch-eager"])
def test_any_backend_pads_to_buckets(name: str, models: dict[int, ExportedModel], tmp_path: Path):
    require_right(name, "bucket-4", models, tmp_path / "built")
