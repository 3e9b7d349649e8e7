"""Builds by a worker of the test's own, in place of a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

from shootout.core.build.builder import Builder


@contextmanager
def built_by(worker: Any) -> Iterator[None]:
    """Let every builder ask this worker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Builder, "worker", lambda *_: nullcontext(worker))
        yield
