"""A user's own model, a factory in Python or a transformers config, as a `Model`.

Reading it, as the main process does, runs none of the user's code; its `module`, `trained` and `called` do.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

from shootout.contract import Artifact
from shootout.models.base import Like, Model, Parameters
from shootout.models.user import hfconfig, program, source

if TYPE_CHECKING:
    from shootout.models.user.called import Called
    from shootout.models.user.source import Source


def is_meant(name: str) -> bool:
    """Whether `name` is meant as a user's own model rather than a registered one."""
    return hfconfig.is_meant(name) or program.is_meant(name) or source.is_meant(name)


def model(name: str) -> Model:
    """The user's model called `name`.

    Raises:
        UsageError: the file, module, function or config isn't there or can't be read; says the nearest function.
    """
    if program.is_meant(name):
        return program.model(name)
    return hfconfig.model(name) if hfconfig.is_meant(name) else _of_factory(source.find(name))


@functools.cache
def source_now(name: str) -> str:
    """Hash of a user's own source when this process first asked, which a worker does before any clock runs."""
    found = model(name).source
    assert found, "a user's own model has a source"
    return found()


def _of_factory(place: Source) -> Model:
    said = source.signature(place)

    def called(parameters: Parameters) -> Called:
        from shootout.models.user.called import run

        asked = {key: value for key, value in parameters.items() if said.takes_batch or key != source.BATCH}
        batch = int(asked[source.BATCH]) if said.takes_batch else None
        return dataclasses.replace(run(place, asked), batch=batch)

    def exported(parameters: Parameters) -> Called:
        found = called(parameters)
        unseen = (
            f"{name} is loaded in a way that its source doesn't show: after a change of it, edit a comment in "
            f"{place.file.name} too"
            for name in place.unseen()
        )
        return dataclasses.replace(found, notes=(*found.notes, *unseen))

    return Model(
        name=place.name,
        description=f"{place.short}, the user's own",
        parameters={key: Like(default=default) for key, default in said.defaults.items()},
        parameter_count=lambda _: 0,
        inputs=lambda _, __: (),
        forward=None,
        module=lambda parameters: called(parameters).module,
        trained=lambda parameters: called(parameters).module,
        artifacts=(Artifact.MODULE, Artifact.ONNX, Artifact.PT2),
        takes_batch=said.takes_batch,
        called=exported,
        source=place.digest,
        imports=place.imports,
    )
