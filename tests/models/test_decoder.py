from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shootout import models
from shootout.constants import INPUT_BUFFERS
from shootout.contract import Array, Arrays
from shootout.errors import UsageError
from shootout.export import torch_files
from shootout.models.base import set_bytes
from shootout.models.zoo import decoder
from shootout.quantize import torch_error_bounds

TINY = {"d_model": 128, "n_layers": 2, "vocabulary": 50, "seed": 3}
CASES = [
    ("decoder_prefill", {"tokens": 5}),
    ("decoder_step", {"context": 4}),
    ("decoder_step", {"context": 4, "cache": "copied"}),
]
NAMED = pytest.mark.parametrize(("name", "chosen"), CASES)


def made(name: str, **chosen: Any) -> tuple[Any, dict[str, Any], Any]:
    model = models.get(name)
    parameters = model.check({**TINY, **chosen})
    return model, parameters, model.trained(parameters)


def reference_outputs(name: str, inputs: Arrays, **chosen: Any) -> dict[str, Array]:
    model, parameters, module = made(name, **chosen)
    return torch_error_bounds.run(module.double(), inputs, names=model.output_names(parameters))


@pytest.mark.parametrize("cache", [decoder.KEPT, decoder.COPIED])
def test_a_step_after_a_prefill_is_the_prefill_of_one_token_more(cache: str):
    tokens = np.random.default_rng(0).integers(0, TINY["vocabulary"], (2, 6), dtype=np.int32)
    before = reference_outputs("decoder_prefill", {"tokens": tokens[:, :5]}, tokens=5)
    right = reference_outputs("decoder_prefill", {"tokens": tokens}, tokens=6)
    past = {f"past_{key}": array for key, array in before.items() if key != "scores"}
    found = reference_outputs("decoder_step", {"token": tokens[:, 5:], **past}, context=5, cache=cache)
    assert list(found) == list(right) == ["scores", "keys_0", "values_0", "keys_1", "values_1"]
    for name, array in right.items():
        expected = array[:, :, -1:] if cache == decoder.KEPT and name != "scores" else array
        np.testing.assert_allclose(found[name], expected, rtol=1e-10, atol=1e-12)
    assert not np.allclose(right["scores"], before["scores"], atol=0.1)


@NAMED
def test_forward_in_numpy_is_the_torch_module(name: str, chosen: dict[str, Any]):
    agrees(np, name, **chosen)


def test_forward_in_jax_is_the_torch_module():
    import jax

    agrees(jax.numpy, "decoder_step", compiled=jax.jit, context=4)


def agrees(xp: Any, name: str, compiled: Any = lambda run: run, **chosen: Any) -> None:
    model, parameters, module = made(name, **chosen)
    weights = {key: tensor.numpy() for key, tensor in module.state_dict().items()}
    inputs = model.draw(parameters, 2)[0]
    run = compiled(lambda weights, inputs: model.forward(xp, weights, parameters)(inputs))
    found, right = run(weights, inputs), reference_outputs(name, inputs, **chosen)
    assert set(found) == set(right)
    for output, array in right.items():
        assert found[output].dtype == np.float32
        assert np.linalg.norm(found[output] - array) < 1e-5 * np.linalg.norm(array)


@NAMED
def test_outputs_of_several_sets_at_once_are_those_of_each(name: str, chosen: dict[str, Any], monkeypatch: Any):
    """Several outputs, in one run and in parts of one."""
    model, parameters, module = made(name, **chosen)
    sets, names = model.draw(parameters, 2)[:3], model.output_names(parameters)
    apart = [torch_error_bounds.run(module, one, names=names) for one in sets]
    for limit in (1, 1 << 20):
        monkeypatch.setattr(torch_error_bounds, "RUN_BYTES", limit)
        together = list(torch_error_bounds.outputs(module, sets, by_rows=True, names=names))
        for found, right in zip(together, apart, strict=True):
            assert list(found) == list(right)
            for output, array in right.items():
                np.testing.assert_allclose(found[output], array, rtol=1e-3, atol=1e-5)


def test_each_precision_has_a_error_bound():
    model, parameters, module = made("decoder_step", context=4)
    sets = model.draw(parameters, 1)[:2]
    names = model.output_names(parameters)
    _, (error_bounds,), *_ = torch_files.reference_and_error_bounds(
        module, sets, sets, by_rows=model.by_rows, names=names
    )
    exact, brain, eight, four = (error_bounds[name] or 0.0 for name in ("fp32", "bf16", "int8", "int4"))
    assert 0 < exact < brain < min(eight, four)


def test_sets_of_a_long_context_stay_small():
    model = models.get("decoder_step")
    parameters = model.check({"context": 1_024, "d_model": 256})
    specs = model.inputs(parameters, 1)
    assert [spec.shape for spec in specs] == [(1, 1), *[(1, 4, 1_024, 64)] * 4]
    assert len(model.draw(parameters, 1)) == INPUT_BUFFERS
    assert len(model.calibration(parameters, 1)) == decoder.CALIBRATION_BYTES // set_bytes(specs) < 256


def test_a_width_that_heads_cannot_share_is_refused():
    model = models.get("decoder_step")
    with pytest.raises(UsageError, match="d_model must be a multiple of 64"):
        model.inputs(model.check({"d_model": 100}), 1)
