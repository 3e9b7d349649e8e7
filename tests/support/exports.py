"""One bundle in one line, as tests of all that comes after an export want it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shootout.bundle.bundle import ModelBundle
from shootout.contract import Value
from shootout.export import client
from shootout.export.client import Request


def obtain(model: str, parameters: Mapping[str, Value], batch: int, **how: Any) -> ModelBundle:
    return client.obtain(Request(model=model, parameters=parameters, batch=batch, **how))
