"""A stream of calls through each backend's session: what a call gives is what the next one gets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from support.onnx_made import value, write

from shootout.core import backends
from shootout.core.contract import Arm, Target
from shootout.core.exported import client, fidelity
from shootout.core.exported.client import Request
from shootout.core.exported.model import ExportedModel
from shootout.core.host.environment import libraries
from shootout.core.worker.blocks import Blocks
from shootout.tell import registered
from shootout.testing.checks import warm_of
from shootout.testing.fresh import run_fresh

BACKENDS = (
    *("numpy", "onnxruntime", "openvino", "torch-eager", "jax-jit", "litert", "ncnn", "iree"),
    pytest.param("executorch", marks=pytest.mark.long),  # its compiler takes 6 s, and states flow by one code for all
)


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> list[ExportedModel]:
    """hn = h / 2 + x w; y = hn v: as a file, and as a torch module."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((4, 4)).astype(np.float32),
        "v": rng.standard_normal((4, 3)).astype(np.float32),
        "half": np.float32(0.5),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"]),
        helper.make_node("Mul", ["h", "half"], ["kept"]),
        helper.make_node("Add", ["kept", "xw"], ["hn"]),
        helper.make_node("MatMul", ["hn", "v"], ["y"]),
    ]
    ends = [value(name, (1, 4)) for name in ("x", "h")], [value("y", (1, 3)), value("hn", (1, 4))]
    path = write(tmp_path_factory.mktemp("model") / "m.onnx", nodes, *ends, weights)
    return [client.obtain(Request(model=str(path), module=module, steps=20)) for module in (False, True)]


def runs(exported: ExportedModel, arm: Arm, folder: Path) -> None:
    """Run through the clips twice, and hold each call's outputs against the reference."""
    runner = backends.runner(arm.target)
    session = runner.load(runner.build(exported, arm, folder))
    assert exported.stream
    sets, reference = exported.input_buffers(), exported.reference_outputs()
    blocks = Blocks(session, exported.pick(sets), stream=exported.stream, sets=sets)
    call = blocks.calls["end_to_end"]
    for _ in range(2):  # from the last clip to the first one again
        outputs = [{output: array.copy() for output, array in call(0).items()} for _ in sets]  # type: ignore[attr-defined]
        assert max(error or 0.0 for error in fidelity.errors_by_mark(outputs, reference, exported.stream)) < 1e-5
        right = exported.pick(reference)[3]
        assert (fidelity.set_error(blocks.answered(3), right, fidelity.sizes(reference)) or 0.0) < 1e-5
    session.close()


@pytest.mark.parametrize("name", BACKENDS)
def test_states_flow_through_the_session_that_is_timed(name: str, exports: list[ExportedModel], tmp_path: Path):
    if not registered.is_installed(name, libraries()):
        pytest.skip(f"{name} is not installed")
    consumed = {*backends.capabilities(name).consumes}
    exported = next(one for one in exports if consumed & {*one.artifacts})
    device, precision = backends.entry(name).default
    arm = Arm(target=Target(backend=name, device=device, precision=precision), model=exported.model)
    if name == "executorch":  # its compiler takes five seconds to import, and one process has it
        run_fresh(runs, exported, arm, tmp_path, warm=warm_of(arm.target))
    else:
        runs(exported, arm, tmp_path)
