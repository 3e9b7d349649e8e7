"""A share of the campaign, always the same, and what once broke something."""

from __future__ import annotations

from pathlib import Path

import pytest

from shootout.errors import ShootoutError

from .campaign import error_of, explore
from .kinds import KINDS

CORPUS = sorted((Path(__file__).parent / "corpus").iterdir())
INPUTS = 200
"""Of all kinds together, by their shares."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KINDS)
def test_only_our_own_errors_come_out(name: str):
    shares = sum(kind.share for kind in KINDS.values())
    found = explore(KINDS[name], INPUTS * KINDS[name].share // shares, 0)
    assert found.inputs
    assert found.faults == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_what_once_broke_something_does_no_more(path: Path):
    error = error_of(KINDS[path.name.partition("-")[0]], path.read_bytes())
    assert error is None or isinstance(error, ShootoutError)
