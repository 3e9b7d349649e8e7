"""What the conformance suite runs on stays while it runs."""

from __future__ import annotations

import fcntl

import pytest

from shootout.host import store
from shootout.testing.test_conformance import cache_in_use  # noqa: F401 - a fixture


@pytest.mark.usefixtures("cache_in_use")
def test_nobody_takes_anything_out_of_the_cache_while_the_suite_runs():
    with (store.cache_folder() / ".lock").open("r+b") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
