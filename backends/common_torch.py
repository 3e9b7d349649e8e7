"""An exported model's torch module, for PyTorch's own adapters and for those that take one over, as torchax does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shootout.core.contract import Artifact
from shootout.core.errors import one_line
from shootout.core.exported.model import ExportedModel
from shootout.core.exported.request import find_model, source_now

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


def float32_module(exported: ExportedModel) -> torch.nn.Module:
    """Return the module with its weights as they are stored, in eval mode."""
    import torch

    module = architecture(exported)
    if exported.is_file:  # its program brings its weights
        return module
    state = {name: torch.from_numpy(array) for name, array in exported.weights().items()}
    try:
        module.load_state_dict(state)
    except RuntimeError as error:  # what differs is in its words
        said = one_line(str(error))
        raise ValueError(f"{exported.model} makes another architecture each time it is called: {said}") from error
    return module.eval()


def architecture(exported: ExportedModel) -> torch.nn.Module:
    """Make the module without its weights; of a user's file, with them. For a user's own model this runs the user's
    code.

    Raises:
        ValueError: that code isn't the one that the exported model was made from.
    """
    if exported.is_file:
        return _as_module(exported_program(exported))
    if exported.source_sha256 and source_now(exported.model) != exported.source_sha256:
        raise ValueError(f"{exported.model} was changed after it was exported; run again")
    module: torch.nn.Module = find_model(exported.model).module(exported.parameters)
    return module


def exported_program(exported: ExportedModel) -> ExportedProgram:
    """Load the exported model's program and its weights."""
    from shootout.models.programs import read_program

    return read_program(exported.path(Artifact.PT2), exported.path(Artifact.MODULE))


def core_module(exported: ExportedModel, floats: str = "float32", *, as_program: bool = False) -> torch.nn.Module:
    """Return the module for libraries that take torch's core operators only.

    A user's file and a module given in Python are programs: their composite operators, which a module's Python would
    have taken apart, are decomposed here. Checks of values are dropped: no compiled function has them.

    Args:
        floats: the dtype that it will get its weights in; "": a file's own.
        as_program: take the program of a module whose Python runs otherwise, too.
    """
    import torch

    from shootout.quantize.retyping import retyped

    if not (exported.is_program or as_program):
        return float32_module(exported)
    converted = exported_program(exported).run_decompositions()
    for node in list(converted.graph.nodes):
        if node.target is torch.ops.aten._assert_async.msg:
            converted.graph.erase_node(node)
    module = _as_module(converted)
    return retyped(module, getattr(torch, floats), torch.device("cpu")) if floats else module


def _as_module(program: ExportedProgram) -> torch.nn.Module:
    """Return a program as a module in eval mode: it was exported in it, and takes no `eval()`."""
    module = program.module(check_guards=False)
    for part in module.modules():
        part.training = False
    return module
