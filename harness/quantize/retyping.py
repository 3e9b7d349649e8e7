"""Convert a torch module to another float dtype if its exported program states dtypes and devices outright."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.fx.node import map_aggregate

CPU = torch.device("cpu")


def retyped(module: nn.Module, dtype: torch.dtype, device: torch.device) -> nn.Module:
    """Move a float32 module to a device and a dtype, with what a program states of either."""
    moved = module.to(device, dtype)
    retype_programs(moved, torch.float32, dtype, device)
    return moved


def retype_programs(module: nn.Module, old: torch.dtype, new: torch.dtype, device: torch.device = CPU) -> None:
    """Put `new` in place of `old` in every program within a module; weights and buffers stay as they are.

    A program holds `to(float32)` and checks of dtypes as its export saw them. In a module's Python they would follow
    the weights.
    """
    for part in _find_programs(module):
        for node in list(part.graph.nodes):
            if node.target is torch.ops.aten._assert_tensor_metadata.default:
                part.graph.erase_node(node)
            elif node.op == "get_attr":  # a constant that is neither a weight nor a buffer doesn't move with its module
                place, _, name = node.target.rpartition(".")
                owner = part.get_submodule(place)
                value = getattr(owner, name)
                if isinstance(value, torch.Tensor) and name in vars(owner):
                    setattr(owner, name, value.to(device, new) if value.dtype == old else value.to(device))
        _restate_program(part, {old: new}, device)


def place_programs(module: nn.Module, device: torch.device) -> None:
    """Let every program within a module make its tensors on a device; weights, buffers and constants stay."""
    for part in _find_programs(module):
        _restate_program(part, {}, device)


def _find_programs(module: nn.Module) -> list[fx.GraphModule]:
    return [part for part in module.modules() if isinstance(part, fx.GraphModule)]


def _restate_program(module: fx.GraphModule, dtypes: Mapping[torch.dtype, torch.dtype], device: torch.device) -> None:
    def other(value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return dtypes.get(value, value)
        return device if isinstance(value, torch.device) else value

    for node in module.graph.nodes:
        node.args, node.kwargs = map_aggregate(node.args, other), map_aggregate(node.kwargs, other)
    module.recompile()
