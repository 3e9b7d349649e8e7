"""The bench's sections on adapters: what counts as reproduced, that no claim is lost, and the page that tells it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from lab.review import page
from lab.review.claims import CLAIMS
from lab.review.section import reproduced, unheard
from shootout.stats.verdicts import compare


def ratio(value: float, spread: float) -> Any:
    """A comparison of restarts around `value`."""
    return compare(math.log(value) + spread * np.array([-1.0, 0.5, 1.0, -0.5, 0.2, -0.2]), alpha=0.05, bias_floor=0.005)


@pytest.mark.parametrize(
    ("claim", "value", "spread", "told"),
    [
        (3.3, 1.5, 0.02, "reproduced"),
        (3.3, 0.5, 0.02, "refuted"),
        (0.44, 0.5, 0.02, "reproduced"),
        (1.4, 1.1, 0.5, "can't tell"),
        (1.4, 1.0, 0.002, "refuted"),
        (1.0, 1.0, 0.002, "reproduced"),
        (1.0, 1.5, 0.02, "refuted"),
        (1.0, 1.0, 0.5, "can't tell"),
    ],
)
def test_the_direction_of_a_claim_is_what_is_reproduced(claim: float, value: float, spread: float, told: str):
    assert reproduced(claim, ratio(value, spread)) == told


def test_a_claim_that_no_case_has_the_name_of_is_a_failed_row():
    first, *others = CLAIMS
    rows = [{"case": case, "is": way} for case, way in others]
    (missing,) = unheard(rows)
    assert (missing["case"], missing["is"]) == first
    assert missing["failed"]


def document(section: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A bench's file with one section."""
    environment = {"cpu": {"model": "A CPU", "logical_cpus": 2}, "date_utc": "2026-01-02T03:04:05"}
    return {"environment": environment, "sections": {section: {"tables": {"one": rows}}}}


def test_the_page_tells_every_case_and_what_broke():
    case = {"case": "JAX, 16 layers of 8, batch 2", "was": "(out, in)", "is": "(in, out)", "was_us": 20.0}
    case |= {"is_us": 10.0, "review": 1.9, "ratio": 2.0, "low": 1.8, "high": None, "holds": "reproduced"}
    now = {"model": "toy", "arm": "numpy", "scope": "end_to_end", "now ÷ before": 0.5, "low": 0.4, "high": 0.6}
    told = page.render(
        {
            "review": document("review", [case, {"case": "torch", "failed": "it broke"}]),
            "before": document(
                "before", [now | {"verdict": "faster"}, {"model": "toy", "arm": "jax-jit", "skipped": "no JAX"}]
            ),
        }
    )
    assert "| (out, in): 20 us | (in, out): 10 us | 1.90 | 2.00 [1.80, ?] | reproduced |" in told
    assert "Of 1: 1 reproduced, 0 refuted, 0 can't tell." in told
    assert "`torch`: it broke" in told
    assert "| numpy | **0.50 [0.40, 0.60]** |" in told
    assert "`jax-jit`, toy: no JAX" in told


def test_the_page_that_ships_is_what_its_figures_say():
    assert page.PAGE.read_text() == page.render(page.kept())
