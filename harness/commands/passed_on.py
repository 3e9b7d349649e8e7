"""Pass variables of the user's on to every process that a command starts (`--env`)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from shootout.core.errors import UsageError
from shootout.core.host.placement import MORE


def pass_on(names: Iterable[str]) -> None:
    """Pass these variables on to every process that is started from here, too.

    Raises:
        UsageError: one isn't set.
    """
    wanted = list(names)
    if absent := [name for name in wanted if name not in os.environ]:
        raise UsageError(f"--env {absent[0]}: this variable isn't set: set it, or leave it out")
    os.environ[MORE] = ",".join(filter(None, [os.environ.get(MORE), *wanted]))


@contextmanager
def passing_on_ends() -> Iterator[None]:
    """Restore at the end which variables are passed on, because a notebook's process goes on."""
    before = os.environ.get(MORE)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(MORE, None)
        else:
            os.environ[MORE] = before
