"""The faults that the benchmarks put into the harness: each has its place in the code, and tests that are to notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.mutations import MUTATIONS
from lab.mutations.mutation import Mutation

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("one", MUTATIONS, ids=lambda one: one.claim)
def test_a_mutation_changes_what_stands_there_once(one: Mutation):
    assert (ROOT / one.file).read_text().count(one.old) == 1
    assert one.old != one.new
    assert [test for test in one.tests if not (ROOT / test).exists()] == []
