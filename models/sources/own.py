"""A user's own model in Python: what all kinds of it share; a factory, whose source is read here and never run; and a
module that a Python caller hands over.

Other processes measure that module, so it has to become a file. A pickle of it would run whatever it names. So the file
holds what `torch.export` sees with the example inputs: the operators of a call at these shapes, and the weights.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout.core.constants import BATCH
from shootout.core.contract import Artifact
from shootout.core.errors import UsageError, explained
from shootout.core.exported.model import ExportedModel, sha256
from shootout.core.exported.request import Content, Request
from shootout.core.host.environment import installed
from shootout.core.host.folders import Scratch
from shootout.core.host.store import cache_folder, mark_used
from shootout.models import source
from shootout.models.base import Called, Model, Parameters, SameType
from shootout.models.onnx.effort import Effort
from shootout.models.sources.user_data import DataSource, open_sweep, settle

if TYPE_CHECKING:
    from torch import nn

PROGRAM_SUFFIX = ".pt2"
FACTS, INPUTS = "facts.json", "inputs.npz"
KEPT = "kept of the module: the operators of a call at these shapes, and the weights (torch.export)"
INSTEAD = "write a factory, as in net.py:make (docs/your-own-model.md)"


class OwnModel(DataSource):
    """A kind of models that the user's code makes, in processes of its own alone."""

    runs_code = True
    takes_weights = False

    def model(self, word: str) -> Model:
        """Return what is known of a model without running any of its code; see `Source.model`."""
        raise NotImplementedError

    def check(self, request: Request, known: dict[str, Any]) -> Request:
        """Return a request with the hashes of the model's source and weights; see `Source.check`."""
        model = self.model(request.model)
        if request.weights and not self.takes_weights:
            raise UsageError(f"--weights is for a transformers config: {model.name} loads its own")
        if model.name not in known:
            assert model.source, "a user's own model has a source"
            place = {"folder": str(model.folder or "")}
            known[model.name] = Content(source_sha256=model.source(), runs_with={**installed(), **place})
        weights = request.weights or model.weights
        own = replace(
            request,
            model=model.name,
            parameters=model.check(request.parameters),
            weights=weights.expanduser() if weights else None,
            **self.labeling(request),
            module=False,
            content=known[model.name],
        )
        found = settle(replace(own, content=replace(own.content, data=self.hash_weights(own))))
        return replace(found, opened=open_sweep(found))

    def hash_weights(self, request: Request) -> dict[str, str]:
        """Return the hash of the weights that are no part of the source, by the field that names them."""
        del request
        return {}

    def export(self, request: Request, effort: Effort) -> ExportedModel:
        """Run the user's code and export its module; see `Source.export`."""
        from shootout.models.sources import open_axes, user_torch

        return open_axes.take(request) if request.is_open else user_torch.take(request, effort)


def describe_own(called: Callable[[Parameters], Called], **known: Any) -> Model:
    """Return what is known of a model of which only running it tells the inputs and the weights.

    Args:
        called: runs it.
        known: the other fields of `Model`.
    """
    return Model(
        parameter_count=lambda _: 0,
        inputs=lambda _, __: (),
        module=lambda parameters: called(parameters).module,
        trained=lambda parameters: called(parameters).module,
        artifacts=(Artifact.MODULE, Artifact.ONNX, Artifact.PT2),
        called=called,
        **known,
    )


class Factory(OwnModel):
    """A function of the user's that makes a torch module and its inputs."""

    def claims(self, word: str) -> bool:
        """Return whether a word is meant as such a function."""
        return source.is_meant(word)

    def model(self, word: str) -> Model:
        """Return what the function's source tells; a UsageError says the nearest function."""
        place = source.find(word)
        said = source.signature(place)

        def called(parameters: Parameters) -> Called:
            from shootout.models.sources.called import run

            asked = {key: value for key, value in parameters.items() if said.takes_batch or key != BATCH}
            batch = int(asked[BATCH]) if said.takes_batch else None
            return replace(run(place, asked), batch=batch)

        return describe_own(
            called,
            name=place.name,
            description=f"{place.short}, the user's own",
            parameters={key: SameType(default=default) for key, default in said.defaults.items()},
            takes_batch=said.takes_batch,
            source=place.digest,
            folder=place.tree,
        )


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

        return describe_own(
            lambda _: _open_program(path),
            name=str(path),
            title=path.stem,
            description=f"{path.stem}, a module of the user's own",
            parameters={},
            takes_batch=False,
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
