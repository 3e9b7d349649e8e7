"""What the environment tells is what a journal's header checks: the two are written apart."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel

from shootout.backends.devices import cuda
from shootout.backends.devices.cpu import cpu_facts
from shootout.core.journal.records import ENVIRONMENT, GPU
from shootout.tell import machines


def untyped(facts: BaseModel, at: str = "") -> Iterator[str]:
    """The names of the facts that have no type, as `cpu.model`."""
    yield from (at + name for name in facts.model_extra or ())
    for name in type(facts).model_fields:
        if isinstance(value := getattr(facts, name), BaseModel):
            yield from untyped(value, f"{at}{name}.")


def test_every_fact_of_a_machine_is_typed_in_its_journal():
    assert [*untyped(ENVIRONMENT.model_validate(machines.facts()))] == []
    unlike: Any = {**machines.facts(), "planted": 1, "cpu": {**cpu_facts(), "planted": 1}}
    assert [*untyped(ENVIRONMENT.model_validate(unlike))] == ["planted", "cpu.planted"]


def test_every_fact_of_a_gpu_is_typed():
    silent = SimpleNamespace(NVMLError=OSError, NVMLLibraryMismatchError=OSError)
    told = cuda._describe_gpu(silent, 0, None, visible=False)
    assert sorted(told.keys() - GPU.model_fields.keys()) == []
