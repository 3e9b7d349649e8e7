"""Shares of the ceiling from figures made by hand, and what the table and the journal make of them."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.races.made import ARMS, EXECUTED, ended, header, played, prepared, rounds, write

from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.rows import ceiling, staged, traffic
from shootout.core.contract import Arm
from shootout.core.exported.calls import Work
from shootout.tell import table
from shootout.tell.document import Document
from shootout.tell.machines import Bandwidth, Ceilings, Peak

WORK = Work(
    flops=1_000_000,
    elementwise_ops=0,
    weight_bytes=4_000_000,
    input_bytes=1_000,
    output_bytes=1_000,
    activation_bytes=20_000,
    widest_bytes=8_000,
)
"""10 us of arithmetic at 100 GFLOP/s; 200 us of weights in L3 and 0.2 us of activations in L1."""
CEILINGS = Ceilings(
    threads=1,
    cpus=(1,),
    measured="2026-01-01T00:00:00+00:00",
    peaks={"fp32": Peak(giga_ops=100, source="made"), "int8": Peak(giga_ops=400, source="made")},
    bandwidth=(
        Bandwidth(level="L1", holds_bytes=32_000, read_gbs=100, copy_gbs=90),
        Bandwidth(level="L2", holds_bytes=1_000_000, read_gbs=50, copy_gbs=40),
        Bandwidth(level="L3", holds_bytes=32_000_000, read_gbs=20, copy_gbs=10),
        Bandwidth(level="DRAM", holds_bytes=None, read_gbs=8, copy_gbs=10),
    ),
)
FP32 = {"fp32": 1.0}
THREADED = tuple(replace(arm, threads=1) for arm in ARMS)


def test_the_bound_is_the_longer_of_arithmetic_and_bytes():
    found = ceiling(WORK, 400_400, FP32, CEILINGS)
    assert found is not None
    assert (found.arithmetic_ns, found.bandwidth_ns) == (10_000, 200_200)
    assert found.share == pytest.approx(0.5)
    assert found.level == "L3"


@pytest.mark.parametrize(
    ("flops", "measured_ns", "binds"),
    [
        (1_000_000, 400_400, "bandwidth"),  # exactly half
        (1_000_000, 400_401, "overhead"),
        (30_000_000, 600_000, "arithmetic"),
        (20_020_000, 250_000, "arithmetic"),  # as long as the bytes
    ],
)
def test_what_binds_takes_half_of_the_time(flops: float, measured_ns: float, binds: str):
    found = ceiling(replace(WORK, flops=flops), measured_ns, FP32, CEILINGS)
    assert found is not None
    assert found.binds == binds


def test_narrow_precisions_have_their_own_peak_and_their_own_bytes():
    found = ceiling(WORK, 100_000, {"int8": 1.0}, CEILINGS)
    assert found is not None
    assert (found.arithmetic_ns, found.bandwidth_ns) == (2_500, (1_000_000 / 20) + (2_000 + 18_000 / 4) / 100)
    mixed = ceiling(WORK, 100_000, {"int8": 0.5, "fp32": 0.5}, CEILINGS)
    assert mixed is not None
    assert mixed.arithmetic_ns == 5_000 + 1_250


def test_weights_of_few_bits_are_read_narrow_and_activations_as_they_are():
    """A tenth of the operations are attention's, which has no weights and stays float."""
    work = replace(WORK, weight_flops=900_000.0, weight_bytes=80_000_000)
    four = ceiling(work, 2_000_000, {"int4": 0.9, "fp32": 0.1}, CEILINGS)
    assert four is not None
    assert four.arithmetic_ns == pytest.approx(10_000), "unpacked and multiplied in FP32"
    assert four.bandwidth_ns == pytest.approx(10_000_000 / 20 + 20_000 / 100)
    assert (four.level, four.gbs) == ("L3", pytest.approx(10_020_000 / 2_000_000))
    dynamic = ceiling(work, 2_000_000, {"int8-dynamic": 0.9, "fp32": 0.1}, CEILINGS)
    assert dynamic is not None
    assert dynamic.arithmetic_ns == pytest.approx(0.9 * 2_500 + 1_000)
    assert dynamic.bandwidth_ns == pytest.approx(20_000_000 / 20 + 20_000 / 100)
    untold = ceiling(replace(work, weight_flops=None), 2_000_000, {"int4": 0.9, "fp32": 0.1}, CEILINGS)
    assert untold is not None
    assert untold.bandwidth_ns == pytest.approx(17_000_000 / 20 + 20_000 / 100)


@pytest.mark.parametrize(
    ("shares", "outside", "cache", "arithmetic_ns"),
    [
        ({"int8": 0.9, "fp32": 0.1}, "fp32", 800_000, 3.25),
        ({"int4": 0.9, "bf16": 0.1}, "bf16", 400_000, 5),
        ({"bf16": 1.0}, "bf16", 400_000, 5),
        ({"bf16": 1.0}, "fp32", 800_000, 5),
    ],
)
def test_a_cache_is_read_as_it_is_handed_over_however_products_compute(
    shares: dict[str, float], outside: str, cache: int, arithmetic_ns: float
):
    """Much cache, little arithmetic. What isn't quantized tells what INT4's products are multiplied in."""
    peaks = {**CEILINGS.peaks, "bf16": Peak(giga_ops=200, source="made")}
    work = replace(WORK, flops=1_000.0, input_bytes=799_000, weight_bytes=0, activation_bytes=800_000)
    found = ceiling(work, 100_000, shares, CEILINGS.model_copy(update={"peaks": peaks}), outside)
    assert found is not None
    assert found.arithmetic_ns == pytest.approx(arithmetic_ns)
    assert found.bandwidth_ns == pytest.approx(cache / 50)
    assert found.gbs == pytest.approx(cache / 100_000)


@pytest.mark.parametrize(
    ("precision", "told", "found"),
    [
        ("bf16", "fp32", "fp32"),
        ("int4", "", "fp32"),
        ("int8", "", "fp32"),
    ],
)
def test_what_is_staged_is_the_runtimes_word_else_the_labels(tmp_path: Path, precision: str, told: str, found: str):
    row = run(tmp_path, staged=told).rows[0]
    assert staged(row.model_copy(update={"precision": precision})) == found


@pytest.mark.parametrize(
    ("weight_bytes", "widest_bytes", "level"),
    [(20_000, 12_000, "L1"), (20_001, 12_000, "L2"), (31_000_000, 1_000_000, "L3"), (32_000_001, 8_000, "DRAM")],
)
def test_the_level_holds_weights_and_the_widest_activations(weight_bytes: int, widest_bytes: int, level: str):
    work = replace(WORK, weight_bytes=weight_bytes, widest_bytes=widest_bytes)
    found = ceiling(work, 1e9, FP32, CEILINGS)
    assert found is not None
    assert found.level == level


def test_nothing_is_said_where_the_bound_is_not_known():
    assert ceiling(replace(WORK, flops=None), 1e6, FP32, CEILINGS) is None
    assert ceiling(WORK, 1e6, {"bf16": 1.0}, CEILINGS) is None
    assert ceiling(WORK, 1e6, {"fp32": 0.5, "odd": 0.5}, CEILINGS) is None
    caches = CEILINGS.model_copy(update={"bandwidth": CEILINGS.bandwidth[:2]})
    assert ceiling(WORK, 1e6, FP32, caches) is None


def test_a_model_without_products_is_bound_by_its_inputs_and_outputs():
    work = replace(WORK, flops=0.0, weight_bytes=0, activation_bytes=0, widest_bytes=0, input_bytes=500_000)
    assert traffic(work, 1.0, 0.25) == (501_000, 501_000)
    found = ceiling(work, 20_040, {"bf16": 1.0}, CEILINGS, "bf16")
    assert found is not None
    assert (found.arithmetic_ns, found.bandwidth_ns, found.level) == (0.0, 250_500 / 50, "L2")


def run(folder: Path, *, known: bool = True, arms: tuple[Arm, ...] = THREADED, **executed: Any) -> Document:
    ran = replace(EXECUTED, **executed)
    stored = {"1": CEILINGS.model_dump(mode="json")} if known else {}
    lines = [prepared(arm).model_copy(update={"work": WORK}) for arm in arms if not arm.control]
    games = [played(arm, g, 400_400, executed=ran) for g in range(5) for arm in arms]
    ends = [rounds(g) for g in range(5)]
    top = header(arms, environment={"machine": "made", "ceilings": stored})
    return analyse(write(folder, top, *lines, *games, *ends, ended()))


def shown(document: Document) -> str:
    console = Console(width=300, file=StringIO())
    with console.capture() as capture:
        console.print(table.render(document, 300, full=True))
    return capture.get()


def test_a_row_has_its_work_and_its_share_of_the_ceiling(tmp_path: Path):
    found = run(tmp_path)
    for row in found.rows:
        assert row.work == WORK
        assert row.ceiling == ceiling(WORK, 400_400, FP32, CEILINGS)
    text = shown(found)
    assert "of peak" in text
    assert "50% bandwidth" in text
    assert "Ceilings at 1 thread: fp32 100 GFLOP/s (made), int8 400 GOP/s (made); L1 100 GB/s" in text


def test_without_ceilings_no_row_has_a_share(tmp_path: Path):
    found = run(tmp_path, known=False)
    assert [row.ceiling for row in found.rows] == [None, None]
    assert "of peak" not in shown(found)
