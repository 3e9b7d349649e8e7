"""Keep a torch module that a Python caller hands over as an exported program, and open it from our own folder alone.

Other processes measure it, so it has to become a file. A pickle of the module would run whatever it names. So the file
holds what `torch.export` sees with the example inputs: the operators of a call at these shapes, and the weights.
"""

from __future__ import annotations

import copy
import hashlib
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout.core.contract import Artifact
from shootout.core.errors import UsageError, explained
from shootout.core.exported.model import sha256
from shootout.core.host.folders import Scratch
from shootout.core.host.store import cache_folder, mark_used
from shootout.models.base import Called, Model, Parameters
from shootout.models.sources.own import OwnModel

if TYPE_CHECKING:
    from torch import nn

PROGRAM_SUFFIX = ".pt2"
FACTS, INPUTS = "facts.json", "inputs.npz"
KEPT = "kept of the module: the operators of a call at these shapes, and the weights (torch.export)"
INSTEAD = "write a factory, as in net.py:make (docs/your-own-model.md)"


class Program(OwnModel):
    """A torch module that a Python caller handed over, kept as an exported program."""

    origin = "program"

    def claims(self, word: str) -> bool:
        """Return whether a word is meant as such a program."""
        return word.endswith(PROGRAM_SUFFIX)

    def model(self, word: str) -> Model:
        """Return the program kept under a name; see `store`.

        Raises:
            UsageError: it isn't one that `store` wrote: to open it might run anybody's code.
        """
        path = Path(word)
        if path.parent.parent != cache_folder() or not path.is_file():
            raise UsageError(f"{word} isn't opened, it may run code: give the module itself, in Python, or {INSTEAD}")

        def called(_: Parameters) -> Called:
            return _open_program(path)

        return Model(
            name=str(path),
            title=path.stem,
            description=f"{path.stem}, a module of the user's own",
            parameters={},
            parameter_count=lambda _: 0,
            inputs=lambda _, __: (),
            forward=None,
            module=lambda parameters: called(parameters).module,
            trained=lambda parameters: called(parameters).module,
            artifacts=(Artifact.MODULE, Artifact.ONNX, Artifact.PT2),
            takes_batch=False,
            called=called,
            source=lambda: sha256(path.parent / FACTS),
        )


def store(module: Any, inputs: Any) -> str:
    """Keep a module; the same one twice is kept once.

    Args:
        module: a `torch.nn.Module`; it stays as it is.
        inputs: example inputs: a tensor, a tuple of them, or a dict by the names of `forward`'s parameters.

    Returns:
        What the model is called from now on.

    Raises:
        UsageError: the inputs don't fit it, or torch can't export it.
    """
    import numpy as np
    import torch

    from shootout.models.sources.called import checked

    name = type(module).__name__
    if inputs is None:
        raise UsageError(f"{name}: give example inputs too: run(model=module, inputs=(tensor,))")
    try:
        found = checked(name, copy.deepcopy(module), inputs)
        program = torch.export.export(found.module, tuple(map(torch.from_numpy, found.inputs.values())))
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"torch.export can't take {name}, so other processes can't have it: {explained(error)}; {INSTEAD}"
        ) from error
    with Scratch(cache_folder()) as made:
        torch.export.save(program, made / f"{name}{PROGRAM_SUFFIX}")
        np.savez(made / INPUTS, **found.inputs)  # type: ignore[arg-type] # as in save_sets
        facts = {"outputs": found.outputs, "dtypes": found.dtypes, "notes": (*found.notes, KEPT)}
        files = {path.name: sha256(path) for path in made.iterdir()}
        (made / FACTS).write_text(json.dumps({**facts, "files": files}), encoding="utf-8")
        place = cache_folder() / f"program-{_digest_program(name, program, found)}"
        if not place.exists():
            made.rename(place)
        mark_used(place)
    return str(place / f"{name}{PROGRAM_SUFFIX}")


def _open_program(path: Path) -> Called:
    import numpy as np
    import torch

    facts = json.loads((path.parent / FACTS).read_text(encoding="utf-8"))
    if any(sha256(path.parent / name) != digest for name, digest in facts["files"].items()):
        raise UsageError(f"{path.stem} was changed after it was kept: remove {path.parent} and run again")
    mark_used(path.parent)
    module = torch.export.load(path).module(check_guards=False)
    for part in module.modules():  # a program takes no eval(): it was exported in it
        part.training = False
        setattr(part, "train", partial(_keep_mode, part))  # noqa: B010 - no method of the class's
        setattr(part, "eval", partial(_keep_mode, part))  # noqa: B010
    with np.load(path.parent / INPUTS, allow_pickle=False) as stored:
        inputs = {name: stored[name] for name in stored.files}
    return Called(
        module=module,
        inputs=inputs,
        outputs=tuple(facts["outputs"]),
        dtypes=tuple(facts["dtypes"]),
        notes=tuple(facts["notes"]),
    )


def _keep_mode(module: nn.Module, mode: bool = False) -> nn.Module:  # noqa: ARG001 - as torch has it
    return module


def _digest_program(title: str, program: Any, found: Called) -> str:
    """Hash the program and its title; the file itself has times in it."""
    whole = hashlib.sha256(f"{title}\n{program.graph_module.code}".encode())
    arrays = {**found.inputs, **{name: tensor.numpy() for name, tensor in found.module.state_dict().items()}}
    for name, array in arrays.items():
        whole.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    constants = {name: one for name, one in program.constants.items() if hasattr(one, "numpy")}
    for name, tensor in constants.items():
        whole.update(name.encode() + tensor.numpy().tobytes())
    whole.update(json.dumps([found.outputs, found.dtypes, found.notes]).encode())
    return whole.hexdigest()[:32]
