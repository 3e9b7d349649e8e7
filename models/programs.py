"""Torch's programs and modules: read one from files, and find what a call changes in one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.export import ExportedProgram

MOST_NAMED = 3
_OF_TORCH = frozenset(vars(nn.Module()))
"""The attributes that every module has."""


class Wrapped(nn.Module):
    """Wrap a module; what it holds is told by its own names."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def read_program(program_file: Path, weights_file: Path) -> ExportedProgram:
    """Load an exported program and its weights, from files of our own whose hashes were checked.

    The weights are copied: in the mapped file they begin anywhere, and where an array begins changes times.
    """
    program, weights = torch.export.load(program_file), load_file(weights_file)
    for name, blank in program.state_dict.items():
        if (weight := weights.get(name)) is not None:
            is_parameter, weight = isinstance(blank, nn.Parameter), weight.clone()
            program.state_dict[name] = nn.Parameter(weight, blank.requires_grad) if is_parameter else weight
    return program


def find_state(module: nn.Module, call: Callable[[], Any]) -> str:
    """Return the attributes and buffers of a module that a call changes, as `'calls' (3, then 4)`; "" if none.

    Args:
        module: it stays as the call leaves it.
        call: calls it once.
    """
    inner = module.module if isinstance(module, Wrapped) else module
    before = _read_state(inner)
    call()
    after = _read_state(inner)
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    texts = [
        f"{name!r} ({before[name]}, then {after[name]})"
        if isinstance(before.get(name), int | float) and isinstance(after.get(name), int | float)
        else repr(name)
        for name in changed[:MOST_NAMED]
    ]
    return ", ".join(texts) + (" and others" if len(changed) > MOST_NAMED else "")


def _read_state(module: nn.Module) -> dict[str, Any]:
    """Return what a module and its parts hold, by name; of arrays and collections a copy that can be compared."""
    found = dict[str, Any]()
    for place, part in module.named_modules():
        held = {**vars(part), **part._buffers, **part._parameters}
        prefix = f"{place}." if place else ""
        found |= {f"{prefix}{name}": _as_comparable(value) for name, value in held.items() if name not in _OF_TORCH}
    return found


def _as_comparable(value: Any) -> Any:
    if isinstance(value, Tensor):
        try:
            return tuple(value.shape), value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        except (RuntimeError, TypeError):  # quantized, sparse or without memory
            return id(value), value._version
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if isinstance(value, Mapping):
        return {str(key): _as_comparable(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | deque):
        return tuple(map(_as_comparable, value))
    return value if isinstance(value, int | float | str | bytes | None) else id(value)
