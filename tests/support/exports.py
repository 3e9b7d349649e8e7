"""One bundle in one line, as tests of all that comes after an export want it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shootout.bundle.bundle import ModelBundle
from shootout.contract import Value
from shootout.export import client
from shootout.export.client import Request


def obtain(model: str, parameters: Mapping[str, Value], batch: int, **how: Any) -> ModelBundle:
    return client.obtain(Request(model=model, parameters=parameters, batch=batch, **how))


def bare_bundle(bands: Mapping[str, float | None], **facts: Any) -> ModelBundle:
    """A bundle of facts alone, with nothing on disk."""
    made = ModelBundle(
        folder=Path("nowhere"),
        key="0",
        model="m",
        parameters={},
        batch=1,
        inputs=(),
        outputs=(),
        artifacts=(),
        bands=bands,
        parameter_count=0,
        weights_sha256="",
        versions={},
        export_s=0.0,
    )
    return replace(made, **facts)
