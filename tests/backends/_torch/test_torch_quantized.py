"""Torchao's quantization on torch-eager and torch-compile: what runs, what is stored, what can't be quantized."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shootout.backends._torch import quantize
from shootout.core import backends
from shootout.core.adapter import Built
from shootout.core.contract import Arm, Executed, Precision, Target
from shootout.core.exported import fidelity
from shootout.core.exported.client import Request
from shootout.core.exported.model import ExportedModel
from shootout.models import probes
from shootout.models.probes import GRID_BATCH
from shootout.testing.checks import call, exported_models, warm_of
from shootout.testing.fresh import run_fresh

pytestmark = pytest.mark.long  # quantizes with a vendor's tools, beyond the INT8 of the conformance suite

DIGITS = Request(model="digits", parameters={"hidden": 64, "n_layers": 1}, batch=2)
PROBE = Request(model="grid_probe", batch=GRID_BATCH)
STATIC = Target(backend="torch-compile", precision=Precision.INT8)
DYNAMIC = Target(backend="torch-eager", precision=Precision.INT8_DYNAMIC)
INT4 = Target(backend="torch-eager", precision=Precision.INT4)
FLOAT = Target(backend="torch-eager")


@cache
def exported_of(request_model: str) -> ExportedModel:
    """The digits or the probe; both are exported at once."""
    digits, probe = exported_models(DIGITS, PROBE)
    return digits if request_model == "digits" else probe


def built_in(exported: ExportedModel, target: Target, folder: Path) -> Built:
    arm = Arm(target=target, model=exported.model, parameters=exported.parameters, batch=exported.batch)
    return backends.get(target.backend).build(exported, arm, folder)


def ran(built: Built) -> tuple[Executed, str | None]:
    """What a process that only loads says it runs, and why its error isn't its precision's."""
    session, exported = backends.get(built.arm.target.backend).load(built), built.exported
    outputs = [call(session, inputs, slot) for slot, inputs in enumerate(exported.input_buffers())]
    found = fidelity.compare(outputs, exported.reference_outputs())
    return session.executed, fidelity.gate(found, *exported.error_bound(built.arm.target))


def probed(exported: ExportedModel, target: Target, folder: Path) -> str:
    session = backends.get(target.backend).load(built_in(exported, target, folder))
    return probes.READERS[exported.model](call(session, exported.input_buffers()[0]))


def run_on_digits(target: Target, folder: Path, *, warm_load: bool = False) -> tuple[Executed, str | None, Built]:
    """Loading has to register torchao's own by importing it: unless `warm_load`, no more than torch is there."""
    built = run_fresh(built_in, exported_of("digits"), target, folder, warm=warm_of(target))
    executed, fault = run_fresh(ran, built, warm=warm_of(target if warm_load else FLOAT))
    return executed, fault, built


def test_dynamic_int8_multiplies_integers_and_stores_them(tmp_path: Path):
    executed, fault, built = run_on_digits(DYNAMIC, tmp_path, warm_load=True)  # INT4's load has the same imports
    assert fault is None
    assert dict(executed.compute_nodes_by_precision) == {"int8": 2}
    assert executed.conversion_nodes
    stored = sum(path.stat().st_size for path in built.folder.iterdir())
    assert executed.artifact_bytes == stored < 4 * built.exported.parameter_count


def test_int4_says_which_layer_its_kernel_can_t_take(tmp_path: Path):
    executed, fault, _ = run_on_digits(INT4, tmp_path)
    assert fault is None
    assert executed.staged == "bf16", "as its rest computes"
    assert dict(executed.compute_nodes_by_precision) == {"int4": 1, "bf16": 1}  # ten outputs are no multiple of 16


def test_static_int8_is_int8_in_inductor_s_own_list(tmp_path: Path):
    executed, fault, built = run_on_digits(STATIC, tmp_path)
    assert fault is None
    assert dict(executed.compute_nodes_by_precision) == {"int8": 2}
    assert executed.conversion_nodes == 1
    assert executed.fallbacks == ()
    assert not built.facts["graph_cached"]  # oneDNN's packed weights can't be cached: the load said what it scheduled


@pytest.mark.parametrize("scheme", ["", "per-tensor", "asymmetric"])
def test_the_grid_probe_counts_8_bits_of_weights_and_activations(scheme: str, tmp_path: Path):
    assert (
        run_fresh(probed, exported_of("probe"), replace(DYNAMIC, scheme=scheme), tmp_path, warm=warm_of(DYNAMIC))
        == "int8"
    )


def operations_packed(exported: ExportedModel, target: Target) -> list[str]:
    """The operations of the program that AOTInductor is given."""
    from shootout.backends._torch import compile as torch_compile

    arm = Arm(target=target, model=exported.model, parameters=exported.parameters, batch=exported.batch)
    return [
        str(node.target)
        for node in torch_compile._export_program(exported, arm).graph.nodes
        if node.op == "call_function"
    ]


@pytest.mark.parametrize(("precision", "words"), [(Precision.INT8_DYNAMIC, "_int_mm"), (Precision.INT4, "int4")])
def test_a_package_is_made_of_the_quantized_program(precision: Precision, words: str):
    target = Target(backend="torch-compile", mode="aoti", precision=precision)
    told = run_fresh(operations_packed, exported_of("digits"), target, warm=warm_of(target))
    assert any(words in name for name in told), told


def test_the_grid_probe_counts_4_bits_of_weights_and_float_activations(tmp_path: Path):
    assert run_fresh(probed, exported_of("probe"), INT4, tmp_path, warm=warm_of(INT4)) == "int4"


def reloaded(folder: Path) -> list[str]:
    """What a module's buffer is, that no state dict has, after a way through the file."""
    import torch

    class Placed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(2, 2)
            self.inner.register_buffer("places", torch.arange(3.0), persistent=False)

    quantize.architecture = lambda exported: Placed()  # type: ignore[assignment] # in a process of its own
    quantize.save_module(Placed().to(torch.bfloat16), folder)
    places: Any = quantize.load_module(SimpleNamespace(), folder).inner.places  # type: ignore[arg-type,union-attr]
    return [str(places.dtype), str(places.tolist())]


def test_buffers_that_a_state_dict_leaves_out_are_those_of_the_quantized_module(tmp_path: Path):
    """Made anew they would be float32, or nowhere: positions of a decoder, say, beside bfloat16 weights."""
    assert run_fresh(reloaded, tmp_path, warm=warm_of(INT4)) == ["torch.bfloat16", "[0.0, 1.0, 2.0]"]


def refusal(exported: ExportedModel, target: Target, layer: str, folder: Path) -> str:
    """The words for a model with another body: its adapter gets it in place of the exported model's."""
    import torch

    from shootout.backends._torch import quantize

    bodies: dict[str, Any] = {
        "relu": torch.nn.ReLU(),
        "narrow": torch.nn.Linear(64, 10),
        "bare": torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()),
    }
    quantize.float32_module = lambda _: bodies[layer]  # type: ignore[assignment]
    try:
        built_in(exported, target, folder)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("asked", "layer", "words"),
    [(DYNAMIC, "relu", "linear"), (INT4, "narrow", "16"), (STATIC, "relu", "quantizer")],
)
def test_a_model_with_nothing_to_quantize_is_refused(asked: Target, layer: str, words: str, tmp_path: Path):
    said = run_fresh(refusal, exported_of("digits"), asked, layer, tmp_path, warm=warm_of(asked))
    assert "nothing to quantize" in said
    assert words in said
