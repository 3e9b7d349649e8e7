"""One exported model in one line, as tests of all that comes after an export want it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shootout.core.contract import Value
from shootout.core.exported import client
from shootout.core.exported.client import Request
from shootout.core.exported.model import ExportedModel


def obtain(model: str, parameters: Mapping[str, Value], batch: int, **how: Any) -> ExportedModel:
    return client.obtain(Request(model=model, parameters=parameters, batch=batch, **how))


def bare_exported(error_bounds: Mapping[str, float | None], **facts: Any) -> ExportedModel:
    """An exported model of facts alone, with nothing on disk."""
    made = ExportedModel(
        folder=Path("nowhere"),
        key="0",
        model="m",
        parameters={},
        batch=1,
        error_bounds=error_bounds,
        versions={},
        origin="file" if facts.get("model", "").endswith(".onnx") else "code",
    )
    return replace(made, **facts)
