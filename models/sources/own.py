"""A user's own model in Python: what all kinds of it share, and a factory, whose source is read here and never run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shootout.core.constants import BATCH
from shootout.core.contract import Artifact
from shootout.core.errors import UsageError
from shootout.core.exported.model import ExportedModel
from shootout.core.exported.request import Content, Request
from shootout.core.host.environment import installed
from shootout.models import source
from shootout.models.base import Called, Model, Parameters, SameType
from shootout.models.onnx.effort import Effort
from shootout.models.sources.user_data import DataSource, open_sweep, settle


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
            needs=(),
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
