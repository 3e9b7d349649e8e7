"""What adapters say of themselves, in every wrong way: a failed arm, never another error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from shootout.core.contract import Executed
from shootout.core.errors import MOST_LETTERS, ArmFailed, explained
from shootout.core.worker import reported

EXECUTED = Executed(
    library="lib",
    version="1",
    device="cpu",
    threads=1,
    compute_nodes_by_precision={"fp32": 2},
    artifact_bytes=2**40,
    flops_by_precision={"fp32": 2e9},
    kernel_ns={"fp32": 1.5},
)


def test_what_can_be_kept_stays_as_it_is():
    assert reported.check_account(EXECUTED) == EXECUTED
    facts = {"artifact_bytes": 5, "notes": ["one"], "compute_nodes_by_precision": {"fp32": 1}, "own": {"x": [1, None]}}
    assert reported.check_facts(facts) == facts


def test_of_many_and_long_lines_the_first_are_kept_and_the_others_counted():
    """Every arm and restart has a line of the journal with them: 50,000 of 1 kB made one of 50 MB."""
    found = reported.check_account(replace(EXECUTED, fallbacks=("x" * 1_000,) * 50_000)).fallbacks
    assert found == ("x" * reported.MOST_LETTERS + "…",) * reported.MOST_LINES + ("and 49,900 more",)
    assert len(reported.check_facts({"notes": ["y"] * 1_000})["notes"]) == reported.MOST_LINES + 1
    with pytest.raises(ArmFailed, match=r"its account of what it ran: it takes [\d,]+ bytes, and may take 131,072"):
        reported.check_account(replace(EXECUTED, kernel_ns={str(number): 1.0 for number in range(50_000)}))
    assert len(explained(ValueError("z" * 10**6))) <= MOST_LETTERS + 1


def test_fallbacks_do_not_count_as_the_rest_of_an_account():
    """In JSON a letter that isn't ASCII may take six bytes."""
    told = ("é" * reported.MOST_LETTERS,) * reported.MOST_LINES
    assert reported.check_account(replace(EXECUTED, fallbacks=told)).fallbacks == told


def test_what_the_journal_keeps_of_a_build_is_bounded_and_the_rest_is_not():
    large = {"compute_nodes_by_precision": {str(number): 1 for number in range(50_000)}}
    with pytest.raises(ArmFailed, match=r"^what it says of its build: it takes [\d,]+ bytes, and may take 131,072"):
        reported.check_facts(large)
    assert reported.check_facts({"own": large}) == {"own": large}


ACCOUNT, BUILD = "its account of what it ran: .*", "what it says of its build: "


@pytest.mark.parametrize(
    ("told", "wrong", "says"),
    [
        (ACCOUNT, {"artifact_bytes": 10**5000}, "artifact_bytes"),
        (ACCOUNT, {"artifact_bytes": -1}, "artifact_bytes is negative"),
        (ACCOUNT, {"artifact_bytes": None}, "artifact_bytes is None"),
        (ACCOUNT, {"threads": "all"}, "threads is 'all'"),
        (ACCOUNT, {"flops_by_precision": {"fp32": math.nan}}, "flops_by_precision: fp32: nan is not an amount"),
        (ACCOUNT, {"compute_nodes_by_precision": [1]}, "compute_nodes_by_precision"),
        (ACCOUNT, {"version": "1\ud800"}, "version"),
        (ACCOUNT, {"kernel_ns": {"\ud800": 1.0}}, "kernel_ns"),
        (BUILD, {"artifact_bytes": 10**400}, "artifact_bytes"),
        (BUILD, {"artifact_bytes": "many"}, "artifact_bytes: 'many'"),
        (BUILD, {"notes": [1]}, "notes"),
        (BUILD, {"compute_nodes_by_precision": {"fp32": "x"}}, "compute_nodes_by_precision"),
        (BUILD, {"own": {"deep": [math.inf]}}, "own: deep: 0: inf"),
        (BUILD, {"own": "\ud800"}, "own: text"),
    ],
)
def test_what_cannot_be_kept_fails_its_arm(told: str, wrong: Mapping[str, Any], says: str):
    with pytest.raises(ArmFailed, match=f"^{told}{says}") as error:
        reported.check_account(replace(EXECUTED, **wrong)) if told is ACCOUNT else reported.check_facts(wrong)
    assert str(error.value).encode()  # and can be printed itself
