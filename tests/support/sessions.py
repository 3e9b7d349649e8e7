"""A session without a library, for tests of what the harness does with one."""

from __future__ import annotations

from typing import Any


class EchoSession:
    """Gives back what it is given; the base of sessions that do one thing otherwise."""

    gpu: Any = None

    def stage(self, inputs: Any, slot: int) -> Any:
        return inputs

    def execute(self, staged: Any) -> Any:
        return staged

    def synchronize(self) -> None:
        """Nothing is queued."""

    def fetch(self, raw: Any) -> Any:
        return raw

    def close(self) -> None:
        """Nothing is held."""
