"""A bundle's torch module, for PyTorch's own adapters and for those that take one over, as torchax does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shootout.bundle.bundle import ModelBundle
from shootout.contract import Artifact

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


def float32_module(bundle: ModelBundle) -> torch.nn.Module:
    """The module with its weights as they are stored, in eval mode."""
    import torch

    module = architecture(bundle)
    if bundle.is_file:  # its program brings its weights
        return module
    state = {name: torch.from_numpy(array) for name, array in bundle.weights().items()}
    if bundle.source_sha256 and (odd := _odd_weights(module.state_dict(), state)):
        raise ValueError(f"{bundle.model} makes another architecture each time it is called: {odd} differs")
    module.load_state_dict(state)
    return module.eval()


def architecture(bundle: ModelBundle) -> torch.nn.Module:
    """The module without its weights; of a user's file, with them. Of a user's own model, this runs the user's code.

    Raises:
        ValueError: that code isn't the one that the bundle was made from.
    """
    if bundle.is_file:
        return _as_module(exported_program(bundle))
    from shootout import models
    from shootout.models.user import factory

    if bundle.source_sha256 and factory.source_now(bundle.model) != bundle.source_sha256:
        raise ValueError(f"{bundle.model} was changed after it was exported; run again")
    return models.get(bundle.model).module(bundle.parameters)


def exported_program(bundle: ModelBundle) -> ExportedProgram:
    """The bundle's program, from a file of its own, whose hash was checked."""
    import torch

    return torch.export.load(bundle.path(Artifact.PT2))


def core_module(bundle: ModelBundle, floats: str = "float32") -> torch.nn.Module:
    """Return the module for libraries that take torch's core operators only.

    A user's file and a module given in Python are programs: their composite operators, which a module's Python would
    have taken apart, are decomposed here.

    Args:
        floats: the dtype that it will get its weights in; "": a file's own.
    """
    import torch

    from shootout.models.user import program

    if not (bundle.is_file or program.is_meant(bundle.model)):
        return float32_module(bundle)
    module = _as_module(exported_program(bundle).run_decompositions())
    return retyped(module, getattr(torch, floats), torch.device("cpu")) if floats else module


def retyped(module: torch.nn.Module, dtype: torch.dtype, device: torch.device) -> torch.nn.Module:
    """A module on a device and in a dtype, with what a program says of either outright."""
    import torch

    moved = module.to(device, dtype)
    for part in moved.modules():
        if isinstance(part, torch.fx.GraphModule):
            _retype(part, dtype, device)
    return moved


def _as_module(program: ExportedProgram) -> torch.nn.Module:
    """A program as a module in eval mode: it was exported in it, and takes no `eval()`."""
    module = program.module(check_guards=False)
    for part in module.modules():
        part.training = False
    return module


def _retype(module: torch.fx.GraphModule, dtype: torch.dtype, device: torch.device) -> None:
    import torch
    from torch.fx.node import map_aggregate

    def other(value: Any) -> Any:
        if value == torch.float32:
            return dtype
        return device if isinstance(value, torch.device) else value

    for node in list(module.graph.nodes):
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            module.graph.erase_node(node)
        elif node.op == "get_attr":
            _retype_constant(module, node.target, dtype, device)
        else:
            node.args, node.kwargs = map_aggregate(node.args, other), map_aggregate(node.kwargs, other)
    module.recompile()


def _retype_constant(module: torch.fx.GraphModule, path: str, dtype: torch.dtype, device: torch.device) -> None:
    """Constants that are neither weights nor buffers don't move with their module."""
    import torch

    place, _, name = path.rpartition(".")
    owner = module.get_submodule(place)
    value = getattr(owner, name)
    if isinstance(value, torch.Tensor) and name in vars(owner):
        setattr(owner, name, value.to(device, dtype) if value.dtype == torch.float32 else value.to(device))


def _odd_weights(made: Mapping[str, torch.Tensor], stored: Mapping[str, torch.Tensor]) -> str:
    """The first weight that only one of two modules has, or in another shape; "" where there is none."""
    shapes = [{name: tensor.shape for name, tensor in one.items()} for one in (made, stored)]
    return next((name for name in {**made, **stored} if shapes[0].get(name) != shapes[1].get(name)), "")
