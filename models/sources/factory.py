"""A user's own factory, `net.py:make` or `package.module:make`: its source is read, none of its code is run here."""

from __future__ import annotations

import dataclasses

from shootout.core.contract import Artifact
from shootout.core.study.axes import BATCH
from shootout.models.base import Called, Model, Parameters, SameType
from shootout.models.sources import source
from shootout.models.sources.own import OwnModel


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
            return dataclasses.replace(run(place, asked), batch=batch)

        return Model(
            name=place.name,
            description=f"{place.short}, the user's own",
            parameters={key: SameType(default=default) for key, default in said.defaults.items()},
            parameter_count=lambda _: 0,
            inputs=lambda _, __: (),
            forward=None,
            module=lambda parameters: called(parameters).module,
            trained=lambda parameters: called(parameters).module,
            artifacts=(Artifact.MODULE, Artifact.ONNX, Artifact.PT2),
            takes_batch=said.takes_batch,
            called=called,
            source=place.digest,
            folder=place.tree,
        )
