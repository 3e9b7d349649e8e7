"""Bring a user's own model, once run, and its example inputs into the one form that the harness takes.

Export process and workers only: this is where the user's code runs.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shootout.core.errors import UsageError
from shootout.models.base import Called, Parameters
from shootout.models.programs import Wrapped
from shootout.models.source import FactorySource, call, find_function, kind_of

FORM = "expected (torch module, example inputs) or (torch module, example inputs, labels)"
SEED = 0
Key = str | int


class Flat(Wrapped):
    """Wrap a module so that it is called by position and returns a tuple of tensors.

    Args:
        copied: the places of the inputs that it changes, of which it gets copies.
    """

    def __init__(
        self,
        module: nn.Module,
        names: Sequence[str] | None,
        paths: Sequence[Sequence[Key]],
        copied: Collection[int] = (),
    ) -> None:
        super().__init__(module)
        self.names, self.paths, self.copied = names, paths, copied

    def forward(self, *inputs: Tensor) -> Any:
        """Return the outputs in order; a single one by itself."""
        if self.copied:
            inputs = tuple(one.clone() if at in self.copied else one for at, one in enumerate(inputs))
        raw = self.module(*inputs) if self.names is None else self.module(**dict(zip(self.names, inputs)))  # noqa: B905
        found = [_value_at(raw, path) for path in self.paths]
        return tuple(found) if len(found) > 1 else found[0]


def open_shapes(module: nn.Module, open_dims: Sequence[Sequence[int]]) -> tuple[Any, ...]:
    """Return what torch.export calls the dynamic shapes of a module's inputs.

    Args:
        open_dims: of each input in order, the axes that may have any size in a call.
    """
    shapes = tuple(dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for axes in open_dims)
    kinds = [one.kind for one in inspect.signature(module.forward).parameters.values()]
    return (shapes,) if inspect.Parameter.VAR_POSITIONAL in kinds else shapes  # of `Flat`


def run(source: FactorySource, parameters: Parameters) -> Called:
    """Call a factory on the CPU, whatever device is torch's default just now.

    Raises:
        UsageError: the user's code raises, or returns something else than a module and its inputs; in one line.
    """
    torch.manual_seed(SEED)  # weights without a seed of their own are the same in every process
    with torch.device("cpu"):
        factory = find_function(source, "returns the module and its inputs")
        given = call(source, lambda: factory(**parameters))
        if not isinstance(given, tuple) or len(given) not in (2, 3):
            raise UsageError(f"{source.short} returned {kind_of(given)}: {FORM}")
        module, inputs, labels = given if len(given) == 3 else (*given, None)
        if not isinstance(module, nn.Module):
            raise UsageError(f"{source.short} returned {kind_of(module)} as the module: {FORM}")
        found: Called = call(source, lambda: checked(source.short, module, inputs, labels))
        return found


def checked(name: str, module: nn.Module, inputs: Any, labels: Any = None) -> Called:
    """Bring a module and its example inputs into the harness's form.

    Args:
        name: of the model, for messages.
        inputs: a tensor, a tuple of them, or a dict by the names of `forward`'s parameters.
        labels: one class per row, or None.

    Raises:
        UsageError: something that isn't a tensor where one is expected, or a dtype that no backend computes in.
    """
    notes = []
    if module.training:
        notes.append("the module was in train mode; eval() was called on it")
    if any(tensor.is_floating_point() and tensor.dtype != torch.float32 for tensor in module.state_dict().values()):
        notes.append("weights that were not float32 were converted to it")
    module = module.to("cpu").float().eval()
    by_name = isinstance(inputs, Mapping)
    example = {key: _as_plain_tensor(name, key, tensor) for key, tensor in _named_inputs(name, module, inputs).items()}
    given = {key: tensor.clone() for key, tensor in example.items()}
    with torch.no_grad():
        raw = module(**given) if by_name else module(*given.values())
    leaves = _tensors_in(name, raw, ())
    if not leaves:
        raise UsageError(f"{name}: the module returned no tensor: return at least one")
    # torch counts each write to an input, also if the numbers stayed the same
    before = {key: tensor.numpy().tobytes() for key, tensor in example.items()}
    changed = [key for key, one in given.items() if one._version > 0 or one.numpy().tobytes() != before[key]]
    notes += [f"forward changes its input {key!r} in place, so each call gets a copy of it" for key in changed]
    if by_name or changed or not isinstance(raw, Tensor):
        copied = [at for at, key in enumerate(example) if key in changed]
        module = Flat(module, list(example) if by_name else None, list(leaves), copied).eval()
    return Called(
        module=module,
        inputs={key: tensor.numpy() for key, tensor in example.items()},
        outputs=tuple(_output_name(path) for path in leaves),
        dtypes=tuple(str(tensor.dtype).removeprefix("torch.") for tensor in leaves.values()),
        labels=None if labels is None else np.asarray(labels),
        notes=tuple(notes),
    )


def _named_inputs(name: str, module: nn.Module, inputs: Any) -> dict[str, Any]:
    """Name the inputs: by the user's names, or those of `forward`'s parameters."""
    if isinstance(inputs, Mapping):
        return {str(key): value for key, value in inputs.items()}
    values = list(inputs) if isinstance(inputs, tuple | list) else [inputs]
    if not values:
        raise UsageError(f"{name} returned no example inputs: {FORM}")
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(module.forward).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind in positional]
    known += [f"x{index}" for index in range(len(known), len(values))]
    return dict(zip(known, values, strict=False))


def _as_plain_tensor(name: str, key: str, tensor: Any) -> Tensor:
    """Convert an input to a dense CPU tensor; floats become float32."""
    if not isinstance(tensor, Tensor):
        raise UsageError(f"{name}: input {key!r} is {kind_of(tensor)}, expected a torch tensor")
    if tensor.is_complex() or tensor.layout is not torch.strided:
        raise UsageError(
            f"{name}: input {key!r} is {tensor.dtype} {tensor.layout}, which no backend takes: "
            "give a dense one of floats, integers or booleans"
        )
    plain = tensor.detach().to("cpu").contiguous()
    return plain.float() if plain.is_floating_point() else plain


def _tensors_in(name: str, value: Any, path: tuple[Key, ...]) -> dict[tuple[Key, ...], Tensor]:
    """Return the tensors in an output by their places in it; None is left out."""
    if isinstance(value, Tensor):
        return {path: value}
    if value is None:
        return {}
    parts: Sequence[tuple[Key, Any]]
    if isinstance(value, Mapping):
        parts = list(value.items())
    elif isinstance(value, tuple | list):
        parts = list(enumerate(value))
    elif dataclasses.is_dataclass(value):
        parts = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    else:
        where = f" at {_output_name(path)!r}" if path else ""
        raise UsageError(
            f"{name}: the module returned {kind_of(value)}{where}, expected tensors: "
            "return them alone, in a tuple or in a dict"
        )
    return {place: tensor for key, one in parts for place, tensor in _tensors_in(name, one, (*path, key)).items()}


def _output_name(path: Sequence[Key]) -> str:
    """Return `y` for a tensor by itself, `y0`, `y1` … in a tuple, its own name in a dict or dataclass."""
    if all(isinstance(key, int) for key in path):
        return "y" + "_".join(map(str, path))
    return ".".join(map(str, path))


def _value_at(value: Any, path: Sequence[Any]) -> Any:
    for key in path:
        value = value[key] if isinstance(value, dict | tuple | list) else getattr(value, key)
    return value
