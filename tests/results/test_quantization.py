"""What a precision costs and buys, joined from journals made by hand; and why, from figures made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.races.made import COPY, EXECUTED, GROUP, A, checked, ended, header, played, prepared, rounds, write

from shootout.apps.judge.accuracy import UNTOLD, find_why
from shootout.apps.judge.analysis import analyse
from shootout.core.contract import Arm, Executed, Precision, Target
from shootout.core.journal.records import Line
from shootout.core.messages import Scores
from shootout.core.stats.verdicts import Verdict
from shootout.core.study.group import GroupRecord
from shootout.tell import table
from shootout.tell.document import Ceiling, Document, Gpu, Ratio, Row
from shootout.tell.limits import Standing
from shootout.tell.wording import tell_gain, tell_metric

B32 = Arm(target=Target(backend="b"), model="identity")
B8 = Arm(target=Target(backend="b", precision=Precision.INT8), model="identity", quantizer="vendor")
ARMS = (A, B32, B8, COPY)
NOISE = (1.0, 1.001, 0.999, 1.0005, 0.9995, 1.0002)
CPU = {"cpu": {"flags": ["avx512_vnni"], "cache_bytes": {"L2": 1_000_000, "L3": 32_000_000}}}
FP32 = replace(EXECUTED, flops_by_precision={"fp32": 1e6}, artifact_bytes=4_000_000)
INT8 = replace(
    EXECUTED,
    compute_nodes_by_precision={"int8": 3, "fp32": 1},
    flops_by_precision={"int8": 9e5, "fp32": 1e5},
    artifact_bytes=1_100_000,
)


def race(eight: float, fp32: Executed, int8: Executed, restarts: int = 6) -> list[Line]:
    """A's calls take 1,000 ns, the other backend's 800 in FP32 and `eight` in INT8."""
    lines: list[Line] = []
    for g in range(restarts):
        noise = [NOISE[(g + shift) % len(NOISE)] for shift in range(4)]
        lines += [played(A, g, 1_000 * noise[0]), played(COPY, g, 1_000 * noise[1])]
        lines += [played(B32, g, 800 * noise[2], executed=fp32)]
        lines += [played(B8, g, eight * noise[3], executed=int8), rounds(g)]
    return lines


def document(
    folder: Path,
    eight: float,
    fp32: Executed = FP32,
    int8: Executed = INT8,
    environment: Any = CPU,
    restarts: int = 6,
    also: Sequence[Line] = (),
) -> Document:
    record = GroupRecord(name=GROUP, baseline=A.label, comparisons=3, arms=ARMS, references={B8.label: B32.label})
    top = header(ARMS, groups=(record,), environment={"machine": "made", **environment})
    lines = [prepared(arm) for arm in ARMS if not arm.control]
    folder.mkdir(exist_ok=True)
    return analyse(write(folder / "run", top, *lines, *also, *race(eight, fp32, int8, restarts), ended()))


def row(found: Document, arm: Arm = B8) -> Row:
    (only,) = [one for one in found.rows if one.arm == arm.label]
    return only


def why(folder: Path, eight: float, **facts: Any) -> str:
    """What a screen says of B8."""
    return tell(row(document(folder, eight, **facts)))


def tell(one: Row) -> str:
    return tell_gain(one.why) if one.why else ""


def own_ratio(one: Row) -> Ratio:
    assert one.end_to_end
    assert one.end_to_end.own_fp32_ratio
    return one.end_to_end.own_fp32_ratio


def test_a_quantized_row_has_a_verdict_against_its_own_fp32(tmp_path: Path):
    timing = row(document(tmp_path, 400)).end_to_end
    assert timing is not None
    assert timing.ratio is not None
    assert timing.own_fp32_ratio is not None
    assert (timing.ratio.verdict, timing.own_fp32_ratio.verdict) == (Verdict.FASTER, Verdict.FASTER)
    assert timing.ratio.value == pytest.approx(0.4, rel=0.01)
    assert timing.own_fp32_ratio.value == pytest.approx(0.5, rel=0.01)


def test_the_share_that_ran_quantized_is_the_runtimes(tmp_path: Path):
    found = document(tmp_path, 400)
    quantized = row(found).quantized
    assert quantized is not None
    assert (quantized.layers, quantized.flops) == (pytest.approx(0.75), pytest.approx(0.9))
    assert row(found, B32).quantized is None


def test_scores_of_the_users_own_are_compared_in_pairs(tmp_path: Path):
    scores = [(A, (1.0, 0.0, 4.0)), (B32, (1.0, 2.0, 3.0)), (B8, (1.0, 1.0, 2.5))]
    lines = [checked(arm, scores=Scores(name="m.py:cost", rows=rows)) for arm, rows in scores]
    found = document(tmp_path, 400, also=lines)
    metrics = [row(found, arm).fidelity.metric for arm, _ in scores]  # type: ignore[union-attr]
    assert [(one.name, one.value) for one in metrics if one] == [
        *(("m.py:cost", pytest.approx(mean)) for mean in (5 / 3, 2.0, 1.5))
    ]
    assert [one.change is None for one in metrics if one] == [True, True, False]
    change = metrics[-1] and metrics[-1].change
    assert change
    assert (change.value, change.rows) == (-0.5, 3), "against its own FP32"
    assert "-0.5 (" in shown(found)


def test_a_loss_is_one_against_plain_fp32_or_none(tmp_path: Path):
    """Two lower precisions say nothing of the model's own score, however alike they are."""
    a8 = replace(A, target=Target(backend="a", precision=Precision.INT8))
    arms = (a8, B8, replace(a8, control=True))
    lines = [checked(arm, scores=Scores(name="iou", rows=(0.9,) * 399 + (0.5,))) for arm in arms[:2]]
    for g, noise in enumerate(NOISE):
        lines += [*(played(arm, g, 1_000 * noise / (1 + (arm is B8))) for arm in arms), rounds(g)]
    record = GroupRecord(name=GROUP, baseline=a8.label, comparisons=1, arms=arms)
    found = analyse(write(tmp_path / "run", header(arms, groups=(record,)), *lines, ended()))
    metric = row(found).fidelity.metric  # type: ignore[union-attr]
    assert metric
    assert (metric.change, metric.standing) == (None, None)
    assert found.answer[0].ship
    assert (found.answer[0].ship.arm, found.answer[0].ship.admitted) == (B8.label, "alone")


def test_of_several_outputs_the_worst_decides_and_is_named(tmp_path: Path):
    """The first output keeps its scores, the second loses a tenth of them; then the other way round."""
    for broken, kept in (("price", "load"), ("load", "price")):
        lines = []
        for arm in (B32, B8):
            made = [
                Scores(name="iou", output=output, rows=(0.9 - 0.1 * (arm is B8 and output == broken),) * 399 + (0.5,))
                for output in ("load", "price")
            ]
            lines.append(checked(arm, scores=replace(made[0], other_outputs=(made[1],))))
        found = document(tmp_path / broken, 400, also=lines)
        metric = row(found).fidelity.metric  # type: ignore[union-attr]
        assert metric
        (other,) = metric.other_outputs
        assert (metric.output, metric.standing) == (broken, Standing.BROKEN)
        assert (other.output, other.standing) == (kept, Standing.MET)
        assert tell_metric(metric).startswith(f"iou of {broken} 0.7993, -0.1 (")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((), "m.py:cost gave no scores"),
        ((1.0, 1e200), "m.py:cost gave 1e+200 for a row, which is not a score"),
        ((float("inf"), float("-inf")), "m.py:cost gave inf for a row, which is not a score"),
        ((float("nan"), 1.0), "m.py:cost gave nan for a row, which is not a score"),
    ],
)
def test_scores_that_no_mean_is_of_are_a_note(tmp_path: Path, rows: tuple[float, ...], said: str):
    lines = [checked(arm, scores=Scores(name="m.py:cost", rows=rows)) for arm in (B32, B8)]
    found = document(tmp_path, 400, restarts=2, also=lines)
    assert [row(found, arm).notes[-1] for arm in (B32, B8)] == [f"metric: {said}"] * 2
    assert row(found).outcome == "measured"


def test_a_metric_that_broke_is_a_note_and_costs_the_row_nothing(tmp_path: Path):
    broken = checked(B8, scores=Scores(name="m.py:cost", fault="m.py:cost raised KeyError: 'y' (m.py line 3)"))
    found = row(document(tmp_path, 400, also=[broken]))
    assert found.notes[-1] == "metric: m.py:cost raised KeyError: 'y' (m.py line 3)"
    assert (found.outcome, found.fidelity and found.fidelity.metric) == ("measured", None)


GPU = {**CPU, "gpus": [{"visible": True, "l2_bytes": 60_000_000}]}


@pytest.mark.parametrize(
    ("weights", "busy_ns", "says"),
    [
        (4_000_000, None, "no faster: FP32's weights (4 MB) fit in the GPU's L2 cache already"),
        (400_000_000, None, f"no faster: {UNTOLD}"),
        (
            4_000_000,
            100.0,
            "no faster: most of a call is launching and copying, FP32's takes 800 ns, 100 ns on the GPU",
        ),
    ],
)
def test_a_row_on_a_gpu_is_explained_by_the_gpu(tmp_path: Path, weights: int, busy_ns: float | None, says: str):
    int8 = {"compute_nodes_by_precision": {"int8": 1}, "flops_by_precision": {"int8": 1e6}}
    found = document(tmp_path, 800, int8=replace(FP32, **int8))
    on_gpu = {"device": "cuda", "artifact_bytes": weights, "gpu": Gpu(event_ns=busy_ns)}
    one, own = (row(found, arm).model_copy(update=on_gpu) for arm in (B8, B32))
    facts = {"cpu": {"flags": ["sse2"], "cache_bytes": CPU["cpu"]["cache_bytes"]}, **GPU}
    told = find_why(one, own, own_ratio(one), found.rows, facts)
    assert told is not None
    assert tell_gain(told).startswith(says)


def kernels(product: float, conversion: float = 0.0, other: float = 0.0, name: str = "fp32") -> dict[str, float]:
    return {name: product, "conversion": conversion, "other": other}


@pytest.mark.parametrize(
    ("eight", "fp32", "int8", "says"),
    [
        (
            900,
            {},
            {"conversion_nodes": 9},
            "slower: Q/DQ is not fused, 9 nodes more than in FP32 only convert, next to 4 products (int8, fp32)",
        ),
        (
            900,
            {"kernel_ns": kernels(700)},
            {"kernel_ns": kernels(500, 400, name="int8")},
            "slower: converting between types costs 400 ns more, the products save 200 ns",
        ),
        (
            900,
            {"kernel_ns": kernels(700)},
            {"kernel_ns": kernels(800, name="int8")},
            "slower: the kernels are slower here, its products take 800 ns, FP32's 700 ns",
        ),
        (
            800,
            {"kernel_ns": kernels(200, other=500)},
            {"kernel_ns": kernels(150, other=550, name="int8")},
            "most of a call is no product, FP32's take 200 ns of a call of 800 ns",
        ),
        (800, {"artifact_bytes": 900_000}, {}, "FP32's weights (900 kB) fit in the L2 cache already"),
        (
            900,
            {"kernel_ns": kernels(700, other=50)},
            {"kernel_ns": kernels(500, other=400, name="int8")},
            "slower: all that isn't a product takes 350 ns more, the products save 200 ns",
        ),
        (
            800,
            {},
            {"flops_by_precision": {"int8": 5e5, "fp32": 5e5}, "layers_in_float": ("up", "down", "a", "b", "c")},
            ": 50% of the operations are left in float (up, down, a and 2 more)",
        ),
        (
            800,
            {"kernel_ns": kernels(700)},
            {"kernel_ns": {"int8": 300, "fp32": 350}, "layers_in_float": ("head",)},
            ": 10% of the operations are left in float (head) and take 350 ns of 650 ns",
        ),
        (
            900,
            {"fallbacks": ("Loop 'a' on CPU",)},
            {"fallbacks": ("Loop 'a' on CPU", "Softmax 'b' on CPU")},
            "slower: not all of it runs where it was asked to, Softmax 'b' on CPU",
        ),
        (
            900,
            {"compute_nodes_by_precision": {"fp32": 4}, "kernel_ns": kernels(600)},
            {
                "compute_nodes_by_precision": {"fp32": 4},
                "other_nodes_by_precision": {"int8": 8},
                "conversion_nodes": 8,
                "kernel_ns": kernels(700, 20),
            },
            "slower: Q/DQ is not fused, 8 nodes more than in FP32 only convert, next to 4 products (fp32)",
        ),
        (
            800,
            {"compute_nodes_by_precision": {"fp32": 4}, "kernel_ns": kernels(600)},
            {"compute_nodes_by_precision": {"fp32": 4}, "kernel_ns": kernels(700)},
            ": its products run in fp32, as FP32's do",
        ),
        (
            800,
            {"flops_by_precision": {"fp32": 160}},
            {},
            ": most of a call is no arithmetic, its FP32 does 0.2 GFLOP/s, one core without vectors could do 2",
        ),
        (900, {"artifact_bytes": 10**9}, {}, f"slower: {UNTOLD}"),
    ],
)
def test_the_reason_rests_on_the_rows_figures(tmp_path: Path, eight: float, fp32: Any, int8: Any, says: str):
    assert says in why(tmp_path, eight, fp32=replace(FP32, **fp32), int8=replace(INT8, **int8))


@pytest.mark.parametrize(
    ("precision", "flags", "says"),
    [("bf16", ["avx2"], "BF16"), ("bf16", ["avx512_bf16"], ""), ("int8", ["avx2"], "INT8")],
)
def test_a_cpu_without_products_in_a_precision_is_said(tmp_path: Path, precision: str, flags: list[str], says: str):
    found = document(tmp_path, 900)
    one, own = row(found).model_copy(update={"precision": precision}), row(found, B32)
    told = find_why(one, own, own_ratio(one), found.rows, {"cpu": {"flags": flags}})
    assert told
    assert told.text.startswith(f"this CPU has no instruction for {says}") if says else told.cause is None


def ceiling(binds: Any, bandwidth_ns: float, share: float = 0.9) -> Ceiling:
    facts: dict[str, Any] = {"arithmetic_ns": 1.0, "level": "DRAM", "gbs": 12.0}
    return Ceiling(share=share, binds=binds, bandwidth_ns=bandwidth_ns, **facts)


@pytest.mark.parametrize(
    ("eight", "own", "mine", "told"),
    [
        (
            800,
            ceiling("bandwidth", 700),
            ceiling("bandwidth", 700),
            ("memory", "FP32 reads DRAM at 12 GB/s, 90% of what it gives, this precision reads as many bytes"),
        ),
        (
            800,
            ceiling("overhead", 7, 0.1),
            ceiling("overhead", 7, 0.1),
            ("overhead", "most of a call is overhead, FP32's 800 ns would be 80 ns at this machine's measured rates"),
        ),
    ],
)
def test_what_binds_fp32_is_a_cause(tmp_path: Path, eight: float, own: Ceiling, mine: Ceiling, told: Any):
    found = document(tmp_path, eight)
    one, plain = row(found).model_copy(update={"ceiling": mine}), row(found, B32).model_copy(update={"ceiling": own})
    why = find_why(one, plain, own_ratio(one), found.rows, CPU)
    assert why
    assert (why.cause, why.text) == told


def test_where_there_is_no_verdict_none_is_explained_away(tmp_path: Path):
    assert row(document(tmp_path / "none", 900, restarts=1)).why is None, "nothing is known, so nothing is said"
    assert row(document(tmp_path / "faster", 400)).why is None


def shown(found: Document, *, full: bool = False) -> str:
    console = Console(width=250)
    with console.capture() as captured:
        console.print(table.render(found, 250, full=full))
    return captured.get()
