"""Compute the right losses and gradients of a model's training step in float64; runs in the export process only.

The module stays in eval mode: no dropout, and batch norm with its stored statistics, so that every step of every
backend is the same function. The loss is the mean squared error against a drawn target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from shootout.core.adapter import LOSS, RATE, TARGET
from shootout.core.contract import Array, Arrays, Artifact, Precision, TensorSpec
from shootout.core.errors import UsageError
from shootout.core.exported.calls import buffer_count
from shootout.core.exported.fidelity import worst_error
from shootout.core.exported.model import GRADIENTS, ExportedModel
from shootout.core.exported.request import Request
from shootout.models.base import Model, Parameters, buffer_notes, draw, get
from shootout.models.sources import torch_files
from shootout.models.sources.assembly import assemble, begin, require_telling
from shootout.quantize.error_bounds import off, sketch, widened, with_floor
from shootout.quantize.torch_error_bounds import Rounded, fp32_floor, to_dtype, to_tf32

INPUT_SEED, TARGET_SEED = 1, 3
ARTIFACTS = (Artifact.FORWARD, Artifact.MODULE)
StepOutputs = tuple[dict[str, Array], dict[str, Array]]
"""The loss, and the sketches of the gradients, of one input buffer."""


def take(request: Request) -> ExportedModel:
    """Make the exported model of a model's training step.

    Raises:
        UsageError: a model that has none: a user's own, a changed one, one without weights.
        ModelError: a loss or gradients that prove nothing.
    """
    model, parameters, batch = get(request.model), request.parameters, request.batch
    if model.write or model.called or request.variant:
        raise UsageError(f"{request.variant} {model.name}: only a shipped model as it is has a training step".strip())
    if not model.parameter_count(parameters):
        raise UsageError(
            f"{model.name} has no weights to train: only a model with weights has a training step: choose another model"
        )
    module = model.trained(parameters).eval().requires_grad_(True)
    specs = model.inputs(parameters, batch)
    buffers, output = _make_buffers(model, parameters, batch, module)
    torch_files.write_weights(module, request.folder)
    module.double()
    trained = _trained_weights(module, buffers[0])
    reference_outputs = [step(module, trained, one) for one in buffers]
    losses, gradients = [loss for loss, _ in reference_outputs], [found for _, found in reference_outputs]
    require_telling(f"{model.name}'s training step", _float_specs(losses[0]), losses)
    require_telling(f"{model.name}'s training step", _float_specs(gradients[0]), gradients)
    found = replace(
        begin(request),
        parameters=parameters,
        inputs=(
            *specs,
            TensorSpec(name=TARGET, shape=output, dtype="float32"),
            TensorSpec(name=RATE, shape=(), dtype="float32"),
        ),
        outputs=_float_specs(losses[0]),
        artifacts=tuple(one for one in model.artifacts if one in ARTIFACTS),
        error_bounds=_error_bounds(module, trained, buffers, reference_outputs),
        parameter_count=model.parameter_count(parameters),
        trained=tuple(gradients[0]),
        notes=buffer_notes(specs),
    )
    return assemble(request, found, buffers, losses, others={GRADIENTS: gradients})


def step(
    module: nn.Module, trained: Mapping[str, nn.Parameter], inputs: Arrays, rounding: TorchDispatchMode | None = None
) -> StepOutputs:
    """Compute the loss and the gradients' sketches on one input buffer, rounding every operation if `rounding` is
    given.
    """
    with rounding or nullcontext():
        loss = _compute_loss(module, inputs)
        found = torch.autograd.grad(loss, list(trained.values()))
    gradients = {name: gradient.numpy() for name, gradient in zip(trained, found, strict=True)}
    return {LOSS: loss.detach().numpy()}, sketch(gradients)


def _compute_loss(module: nn.Module, inputs: Arrays) -> Tensor:
    """Compare the module's (first) output with the target, which follows the model's own inputs."""
    tensors = [torch.from_numpy(array) for name, array in inputs.items() if name != RATE]
    *given, target = (one.double() if one.is_floating_point() else one for one in tensors)
    raw = module(*given)
    return nn.functional.mse_loss(raw[0] if isinstance(raw, tuple) else raw, target)


def _trained_weights(module: nn.Module, inputs: Arrays) -> dict[str, nn.Parameter]:
    """Return the weights that the loss depends on, by name in the module's order."""
    weights = dict(module.named_parameters())
    found = torch.autograd.grad(_compute_loss(module, inputs), list(weights.values()), allow_unused=True)
    return {name: weight for (name, weight), one in zip(weights.items(), found, strict=True) if one is not None}


def _make_buffers(
    model: Model, parameters: Parameters, batch: int, module: nn.Module
) -> tuple[list[dict[str, Array]], tuple[int, ...]]:
    """Return the model's own input buffers, each with a drawn target and a learning rate of 0; and the target's
    shape.
    """
    specs = model.inputs(parameters, batch)
    own = model.draw(parameters, batch) if model.draw else draw(specs, buffer_count(specs), INPUT_SEED)
    with torch.no_grad():
        raw = module(*(torch.from_numpy(array) for array in own[0].values()))
    shape = tuple((raw[0] if isinstance(raw, tuple) else raw).shape)
    targets = draw((TensorSpec(name=TARGET, shape=shape, dtype="float32"),), len(own), TARGET_SEED)
    rate = {RATE: np.zeros((), np.float32)}
    return [{**one, **target, **rate} for one, target in zip(own, targets, strict=True)], shape


def _error_bounds(
    module: nn.Module,
    trained: Mapping[str, nn.Parameter],
    buffers: Sequence[Arrays],
    reference_outputs: Sequence[StepOutputs],
) -> dict[str, float | None]:
    """Predict the largest error of any loss and gradient, widened, as `torch_error_bounds.error_bounds` does for
    outputs.

    TF32 and BF16 round the inputs of products, and BF16 their results; everything is rounded so here, which gives a
    little more.
    """
    single = Rounded(to_dtype(torch.float32))
    modes = {
        Precision.FP32: single,
        Precision.TF32: Rounded(to_tf32),
        Precision.BF16: Rounded(to_dtype(torch.bfloat16)),
    }
    found: dict[str, float | None] = {}
    for precision, mode in modes.items():
        steps = [step(module, trained, one, mode) for one in buffers]
        losses = worst_error([got[0] for got in steps], [right[0] for right in reference_outputs])
        gradients = [off(got[1], right[1]) for got, right in zip(steps, reference_outputs, strict=True)]
        known = [error for error in (losses, *gradients) if error is not None]
        if len(known) == 1 + len(gradients):
            # Float32 rounds a ReLU's input to the other side of zero in few buffers, and it may do so in others than
            # here: the worst counts. Coarser ones do it in most, so that the middle one is what will be judged.
            gradient = max(known[1:]) if precision is Precision.FP32 else float(np.median(known[1:]))
            found[precision.value] = widened(max(known[0], gradient))
        else:
            found[precision.value] = None
    return with_floor(found, fp32_floor(found[Precision.FP32], single.longest_sum))


def _float_specs(tensors: Arrays) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name=name, shape=array.shape, dtype="float32") for name, array in tensors.items())
