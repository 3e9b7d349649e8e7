"""Tell the published experiments claim by claim (docs/evidence/claims.md), each figure out of a run that ships.

`python -m lab.claims_page` writes the page's tables again, between its two marks; a test holds the page to it. A claim
without a run says so. Nothing here is written by hand but what was published, what would confirm it, and why a claim
fails.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from statistics import NormalDist

import numpy as np
from scipy.special import stdtrit

from shootout.apps.judge.analysis import Analysed, analyse_cells
from shootout.core.constants import ALPHA
from shootout.core.contract import Array, Value
from shootout.core.journal import journal
from shootout.core.stats import verdicts
from shootout.core.stats.verdicts import Comparison
from shootout.core.units import duration, size
from shootout.tell.document import Row
from shootout.tell.ratios import tell_ratio

ROOT = Path(__file__).resolve().parents[1]
RUNS, PAGE = ROOT / "results" / "reference", ROOT / "docs" / "evidence" / "claims.md"
MARKS = ("<!-- written by python -m lab.claims_page -->", "<!-- to here -->")
FROM_PAGE = "../../results/reference"
SOON = 5
"""Calls: a change is found to within so many, so "after 2 or 3" can't be told from it."""
NO_RESULT = "no result kept yet"
Where = Mapping[str, Value]
"""The facts that a row must have: its model's parameters, and `model`, `batch`, `scenario` or `precision`."""
Range = tuple[float, float]


class Standing(StrEnum):
    """What a figure says of a claim."""

    HOLDS = "reproduced"
    FAILS = "contradicted"
    OPEN = "can't tell"


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure in the words of the screens, and its 95 % interval; the ends are None if there is none to go by."""

    label: str
    words: str
    low: float | None
    high: float | None

    def judge(self, within: Range) -> Standing:
        """Return what it says of a claim that has it in a range: the whole interval must lie on one side."""
        if self.low is None or self.high is None:
            return Standing.OPEN
        if within[0] <= self.low and self.high <= within[1]:
            return Standing.HOLDS
        return Standing.FAILS if self.high < within[0] or self.low > within[1] else Standing.OPEN

    def __str__(self) -> str:
        """Write `ONNX Runtime: 2.3x faster (1.6 to 3.2)`."""
        return f"{self.label}: {self.words}"


@cache
def read(name: str) -> Analysed | None:
    """Return a run that ships; None where there is none of that name."""
    return analyse_cells(RUNS / name) if (RUNS / name / journal.PACKED).exists() else None


def rows_of(name: str, arm: str, where: Where) -> list[Row]:
    """Return the rows with a time of a target in a run, of which `where` holds."""
    run = read(name)
    return [row for row in (run.document.rows if run else ()) if row.arm == arm and row.end_to_end and fits(row, where)]


def place_of(row: Row) -> dict[str, Value]:
    """Return where a row stands: its model's parameters and what else tells rows of a run apart."""
    more: dict[str, Value] = {
        "model": row.model,
        "batch": row.batch,
        "scenario": row.scenario,
        "precision": row.precision,
    }
    return {**row.parameters, **more}


def fits(row: Row, where: Where) -> bool:
    """Tell whether all of `where` holds of a row."""
    known = place_of(row)
    return all(known.get(name) == value for name, value in where.items())


def restart_times(name: str, row: Row) -> Array:
    """Return the logarithm of the median time (ns) of each restart of a row, shape (n,)."""
    run = read(name)
    assert run is not None
    blocks = run.groups[row.group].blocks_of("end_to_end", row.arm)
    return np.log([float(np.median(one)) for one in blocks.values()])


def unpaired(x: Array, y: Array, alpha: float = ALPHA) -> tuple[float, float | None, float | None]:
    """Return exp(mean of x − mean of y) with its interval by Welch's t, for rows that did not race each other.

    Args:
        x, y: log times by restart. With fewer than two of either there is no interval.
    """
    value = float(x.mean() - y.mean())
    if min(x.size, y.size) < 2:
        return math.exp(value), None, None
    parts = [float(one.var(ddof=1)) / one.size for one in (x, y)]
    spread = sum(parts)
    if not spread:
        return math.exp(value), math.exp(value), math.exp(value)
    degrees = spread**2 / sum(part**2 / (one.size - 1) for part, one in zip(parts, (x, y), strict=True))
    reach = float(stdtrit(degrees, 1 - alpha / 2)) * math.sqrt(spread)
    return math.exp(value), math.exp(value - reach), math.exp(value + reach)


@dataclass(frozen=True, slots=True)
class Spec:
    """Figures of a claim, and the runs that they are found in; a run that isn't kept yet has none.

    Attributes:
        says, within: as the claim's, in place of these.
    """

    runs: tuple[str, ...]
    find: Callable[[], Iterator[Figure]]
    says: str = ""
    within: Range | None = None


def say_of(says: str, within: Range | None, *specs: Spec) -> tuple[Spec, ...]:
    """Return specs with a sentence of their own, and where the claim has their figures."""
    return tuple(replace(spec, says=says, within=within) for spec in specs)


def race_figures(run: str, arm: str, against: str, places: Mapping[str, Where]) -> tuple[Spec, ...]:
    """Return how an arm compares with another one that it raced, by the label of each place."""

    def find(label: str, where: Where) -> Iterator[Figure]:
        for row in rows_of(run, arm, where):
            found = read(run)
            cell = found.cells.get(row.group) if found else None
            if ratio := cell.ratio(arm, against) if cell else None:
                yield Figure(label, tell_ratio(ratio), *(ratio.ends if ratio.reason is None else (None, None)))

    return tuple(Spec((run,), partial(find, label, where)) for label, where in places.items())


def place_figures(
    run: str, arms: Sequence[str], where: Where, against: Where, *, label: str = "", scale: float = 1.0
) -> tuple[Spec, ...]:
    """Return how an arm's time here compares with its time there × `scale`, which it didn't race; labeled by arm."""

    def find(arm: str) -> Iterator[Figure]:
        for row, other in zip(rows_of(run, arm, where)[:1], rows_of(run, arm, against)[:1], strict=False):
            x, y = restart_times(run, row), restart_times(run, other) + math.log(scale)
            value, low, high = unpaired(x, y)
            ends = (-math.inf, math.inf) if low is None or high is None else (math.log(low), math.log(high))
            ratio = Comparison(
                value=value,
                low=low,
                high=high,
                verdict=verdicts.judge(*ends, bias_floor=0.0, same_within=0.0),
                restarts_needed=None,
                sd=None,
                restarts=min(x.size, y.size),
            )
            yield Figure(label or NAMES[arm], tell_ratio(ratio), low, high)

    return tuple(Spec((run,), partial(find, arm)) for arm in arms)


def peak_figures(run: str, arms: Sequence[str], where: Where) -> tuple[Spec, ...]:
    """Return what share an arm reaches of what its machine was measured to do at most, in arithmetic or bandwidth."""

    def find(arm: str) -> Iterator[Figure]:
        for row in rows_of(run, arm, where)[:1]:
            if row.ceiling:
                times = restart_times(run, row)
                _, low, high = unpaired(np.full(2, times.mean()), times)
                share = row.ceiling.share
                yield _make_share(NAMES[arm], share, low and share * low, high and share * high)

    return tuple(Spec((run,), partial(find, arm)) for arm in arms)


def start_figures(*backends: str) -> tuple[Spec, ...]:
    """Return the share of a backend's starts that were steady within `SOON` calls after the first one."""

    def find(backend: str) -> Iterator[Figure]:
        if found := find_starts().get(backend, []):
            soon = sum(one is not None and one <= SOON for one in found)
            yield _make_share(backend, soon / len(found), *_wilson(soon, len(found), ALPHA))

    return tuple(Spec(STARTED, partial(find, backend)) for backend in backends)


def _wilson(right: int, count: int, alpha: float) -> tuple[float, float]:
    """Return a share's interval that errs on either side with `alpha` in all.

    Source: Wilson 1927, JASA 22.
    """
    z, share = NormalDist().inv_cdf(1 - alpha / 2), right / count
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    reach = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return max(middle - reach, 0.0), min(middle + reach, 1.0)


def _make_share(label: str, share: float, low: float | None, high: float | None) -> Figure:
    ends = "" if low is None or high is None else f" ({100 * low:.0f} to {100 * high:.0f})"
    return Figure(label, f"{100 * share:.0f} %{ends}", low, high)


ORT, TORCH, OPENVINO, NUMPY, JAX, LITERT = (
    f"{name}:cpu:fp32" for name in ("onnxruntime", "torch-eager", "openvino", "numpy", "jax-jit", "litert")
)
COMPILE = "torch-compile:cpu:fp32"
ORT_GPU, TORCH_GPU, JAX_GPU, SCRIPT_GPU = (
    f"{name}:cuda:fp32" for name in ("onnxruntime", "torch-eager", "jax-jit", "torchscript")
)
GRAPHS, GRAPHS_FP16 = (f"torch-compile+cudagraphs:cuda:{precision}" for precision in ("fp32", "fp16"))
NAMES = {ORT: "ONNX Runtime", TORCH: "PyTorch", OPENVINO: "OpenVINO", NUMPY: "NumPy", JAX: "JAX", LITERT: "LiteRT"}
NAMES |= {GRAPHS_FP16: "PyTorch in FP16, with CUDA graphs"}
LESS, HALVED, GROWS = (0.0, 1.0), (0.0, 0.5), (4.0, math.inf)
SHORTER = (0.0, 0.7)
"""The ratios that count as "halves the time"."""
ALIKE = (0.8, 1.25)
"""The ratios that count as "about the same"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Something that was published, and what here tells of it.

    Attributes:
        says: what the figures are, in one sentence that they follow.
        specs: which figures.
        within: where the claim has each of them; None: they are shown for themselves, and say nothing of the claim.
        runs: others that tell of it.
        more: gives further words of the same runs, which no verdict rests on.
        holds: gives what a run says that isn't a figure with an interval; None: nothing.
        needs: what is missing for the rest of the claim.
        why: shown where a figure contradicts it.
        covered: whether anything here is about it.
    """

    published: str
    says: str = ""
    specs: tuple[Spec, ...] = ()
    within: Range | None = None
    runs: tuple[str, ...] = ()
    more: Callable[[], str] = str
    holds: Callable[[], Standing | None] = lambda: None
    needs: str = ""
    why: str = ""
    covered: bool = True

    @property
    def names(self) -> list[str]:
        """Return the runs that tell of it, each once."""
        return list(dict.fromkeys([*(run for spec in self.specs for run in spec.runs), *self.runs]))

    def row(self) -> str:
        """Return the claim's row of the table."""
        kept = [name for name in self.names if read(name)]
        figures = [(spec, figure) for spec in self.specs for figure in spec.find()]
        parts = groupby(figures, lambda pair: pair[0].says or self.says)
        told = [f"{says}. {'; '.join(str(figure) for _, figure in part)}" for says, part in parts]
        words = ". ".join(filter(None, [*told, self.more() if kept else ""]))
        links = ", ".join(f"[`{name}`]({FROM_PAGE}/{name}), {_processor(name)}" for name in kept)
        return f"| {self.published} | {words or '–'} | {self._verdict(figures, kept)} | {links or '–'} |"

    def _verdict(self, figures: Sequence[tuple[Spec, Figure]], kept: Sequence[str]) -> str:
        if not self.covered:
            return "not covered"
        ranges = [(figure, spec.within if spec.says else self.within) for spec, figure in figures]
        found = [figure.judge(within) for figure, within in ranges if within is not None]
        found += [one] if (one := self.holds()) else []
        verdict = judge(found)
        if self.names and not kept:
            return f"{NO_RESULT}; needs {self.needs}, too" if self.needs else NO_RESULT
        if Standing.FAILS in found and self.why:
            verdict = f"{verdict}: {self.why}"
        if not self.needs:
            return verdict or "shown"
        return f"{verdict}; the rest needs {self.needs}" if verdict else f"needs {self.needs}"


def judge(found: Sequence[Standing]) -> str:
    """Return what all figures of a claim say together; "" where none says anything."""
    held, failed = found.count(Standing.HOLDS), found.count(Standing.FAILS)
    if not found:
        return ""
    if held and failed:
        return f"**in part** ({held} of {len(found)} figures)"
    if held or failed:
        word, count = (Standing.HOLDS, held) if held else (Standing.FAILS, failed)
        return f"**{word}**" if count == len(found) else f"**{word}** ({count} of {len(found)} figures, the rest open)"
    return str(Standing.OPEN)


def _processor(name: str) -> str:
    run = read(name)
    model = str(run.document.environment["cpu"]["model"]) if run else ""
    maker = next((maker for maker in ("AMD", "Intel") if maker in model), model)
    gpus = run.document.environment.get("gpus") if run else ()
    return " and ".join([maker, *(str(gpu["name"]) for gpu in gpus or ())])


def _memory(name: str, arm: str, places: Mapping[str, Where]) -> str:
    """Say how much memory the processes of one target took at most."""
    found = {label: rows_of(name, arm, where) for label, where in places.items()}
    told = [
        f"{label} {size(rows[0].peak_rss_bytes)}" for label, rows in found.items() if rows and rows[0].peak_rss_bytes
    ]
    return f"Memory of the process at most: {', '.join(told)}" if told else ""


def _times(name: str, where: Where, *arms: str) -> str:
    """Say the median times of some targets."""
    found = {NAMES[arm]: rows_of(name, arm, where) for arm in arms}
    return ", ".join(
        f"{label} {duration(rows[0].end_to_end.median_ns)}"
        for label, rows in found.items()
        if rows and rows[0].end_to_end
    )


def _front() -> str:
    """Say which rows of the frontier nothing beats."""
    run = read("frontier")
    told = [
        f"{one.group.partition(', batch')[0]} on {one.arm}, {one.score:.1%}, {duration(one.median_ns)}"
        for one in (run.document.pareto if run else ())
    ]
    return f"The front: {'; '.join(told)}" if told else ""


def _front_is_moved(moves: Callable[[str], bool]) -> Standing | None:
    """Say whether a row of such a target is on the frontier."""
    run = read("frontier")
    if run is None or not run.document.pareto:
        return None
    return Standing.HOLDS if any(moves(one.arm) for one in run.document.pareto) else Standing.FAILS


def _accuracies() -> str:
    run = read("trees")
    rows = [row for row in (run.document.rows if run else ()) if row.fidelity and row.batch == 1]
    told = {("MLP" if row.file else "forest"): row.fidelity.metric for row in rows if row.fidelity}
    return ", ".join(f"{name}: {metric.value:.1%} right" for name, metric in told.items() if metric is not None)


def _sizes(name: str, model: str, *arms: str) -> str:
    found = {arm: rows_of(name, arm, {"model": model}) for arm in arms}
    told = [f"{arm} {size(rows[0].artifact_bytes)}" for arm, rows in found.items() if rows and rows[0].artifact_bytes]
    return f"Sizes: {', '.join(told)}" if told else ""


def _attention(form: str, tokens: int) -> Where:
    return {"form": form, "tokens": tokens}


def _precision_figures(run: str, precision: str, where: Where, *backends: str) -> tuple[Spec, ...]:
    """Return how a precision compares with FP32, of each backend."""
    pairs = ((f"{backend}:cpu:{precision}", f"{backend}:cpu:fp32") for backend in backends)
    return tuple(spec for arm, plain in pairs for spec in race_figures(run, arm, plain, {NAMES[plain]: where}))


def _on_h200(run: str, arms: Mapping[str, str]) -> tuple[Spec, ...]:
    """Return how targets on the GPU compare with ONNX Runtime on the CPU, the toy model at batch 1, by their label."""
    pairs = ((arm, {label: {"batch": 1}}) for label, arm in arms.items())
    return tuple(spec for arm, places in pairs for spec in race_figures(run, arm, ORT, places))


def _at_batch(*sizes: int) -> dict[str, Where]:
    return {f"batch {size}": {"batch": size} for size in sizes}


STEP: Where = {"scenario": "train-step", "batch": 256}
CALL: Where = {"scenario": "latency", "batch": 256}
EFFICIENTNET: Where = {"model": "efficientnet"}
SIN_SIZES: Mapping[str, Where] = {f"2^{power}": {"elements": 2**power} for power in (10, 20, 26)}
H200 = "An H200 against 15 threads, ONNX Runtime on both"
STARTED = (
    *("shootout", "batch-sweep", "width-sweep", "runtimes", "runtimes-batches", "runtimes-widths", "small-networks"),
    *("depth-sweep", "linear-precision", "attention", "detectors", "matmul-large"),
)
"""The runs whose starts are counted for the warm-up."""
STEADY = (
    "Each start of a process warms its target up, call by call, until the last change in the calls' times is found\n"
    "([how](../measurement.md#the-hierarchy)). The first call, which may compile, is counted apart; a change is found\n"
    "to within 5 calls."
)
CLAIMS = (
    Claim(
        published="A residual MLP at batch 1 to 2048: CPU and GPU are equal up to 64, then the CPU's time alone grows",
        says="Batch 1024 against batch 16",
        specs=(
            *place_figures("batch-sweep", (ORT, TORCH, JAX), {"batch": 1024}, {"batch": 16}),
            *say_of(H200, ALIKE, *race_figures("h200-batch", ORT_GPU, ORT, _at_batch(1, 16))),
            *say_of(H200, LESS, *race_figures("h200-batch", ORT_GPU, ORT, _at_batch(256, 1024))),
        ),
        within=GROWS,
        why="at batch 1 the GPU's 128 launches take longer than the CPU's products",
        needs="more restarts on a GPU",
    ),
    Claim(
        published="d_model 64 to 4096 at batch 1: from 512 on the CPU's time grows and the GPU's hardly does",
        says="2048 against 512, with 16 times the weights",
        specs=place_figures("width-large", (ORT, OPENVINO, TORCH), {"d_model": 2048}, {"d_model": 512}),
        within=GROWS,
        needs="a GPU",
    ),
    Claim(
        published="128 to 3840 layers: time is linear in them",
        says="A layer of 1024 against a layer of 128",
        specs=place_figures("depth-sweep", (ORT, TORCH, NUMPY), {"n_layers": 1024}, {"n_layers": 128}, scale=8.0),
        within=ALIKE,
        more=lambda: "3840 layers take over four minutes to export, and weren't timed",
        why="the weights of 128 layers stay in the cache, those of 1024 don't",
    ),
    Claim(
        published="128 to 3840 layers: the GPU is slower than the CPU throughout",
        says="128 layers on an H200 against ONNX Runtime on 15 threads",
        specs=(
            *_on_h200("h200-batch", {"ONNX Runtime": ORT_GPU, "PyTorch": TORCH_GPU}),
            *_on_h200("h200-shootout", {"TorchScript": SCRIPT_GPU, "JAX": JAX_GPU, "PyTorch with CUDA graphs": GRAPHS}),
        ),
        within=(1.0, math.inf),
        needs="a GPU",
    ),
    Claim(
        published="2^31 parameters: fewer, wider layers are faster",
        says="With 2^28 (what 24 GiB hold), one layer of 16,384 against 4096 layers of 256",
        specs=place_figures("fixed-parameters", (ORT, TORCH, NUMPY), {"d_model": 16384}, {"d_model": 256}),
        within=LESS,
    ),
    Claim(
        published="PyTorch's matrix product takes as long as NumPy's",
        says="PyTorch against NumPy",
        specs=race_figures("matmul-large", TORCH, NUMPY, {f"n = {n}": {"n": n} for n in (1, 64, 1024, 4096)}),
        within=ALIKE,
        why="of small matrices a call is overhead, and NumPy has less",
    ),
    Claim(
        published="Products of 2^0 to 2^15: a GPU wins at large sizes alone, and half of its time is copies; "
        "a timer that doesn't wait shows a constant",
        needs="a GPU",
    ),
    Claim(
        published="torch.compile gains little on a GPU",
        says="Compiled against eager, on a CPU",
        specs=(
            *race_figures("shootout", COMPILE, TORCH, {"128 small layers": {}}),
            *say_of(
                "On an H200, with CUDA graphs",
                ALIKE,
                *race_figures("h200-shootout", GRAPHS, TORCH_GPU, {"128 small layers": {}}),
            ),
        ),
        needs="more restarts on a GPU",
    ),
    Claim(
        published="Backward takes twice as long as forward",
        says="A training step (optimizer and all) against a call, published as about 3x, at batch 256",
        specs=place_figures("training", (TORCH, JAX), STEP, CALL),
        within=(2.5, 3.5),
        more=lambda: _memory("training", TORCH, {"call": CALL, "step": STEP}),
        why="the step has an optimizer, too",
    ),
    Claim(
        published="Training in mixed precision is faster",
        says="A step in BF16 against one in FP32, PyTorch",
        specs=race_figures(
            "training", "torch-eager:cpu:bf16", TORCH, {f"batch {n}": {**STEP, "batch": n} for n in (1, 256)}
        ),
        within=LESS,
        why="a small batch has little to multiply, and autocast rounds all weights in each step",
    ),
    Claim(
        published="Large batches reach the machine's FP32 peak",
        says="Share of the measured peak at batch 1024",
        specs=peak_figures("batch-sweep", (ORT, OPENVINO, TORCH), {"batch": 1024}),
        within=(0.8, math.inf),
        why="eager PyTorch multiplies and then adds in passes of their own",
    ),
    Claim(
        published="FP16 and BF16 units make 256×1024 · 1024×2048 faster",
        says="BF16 against FP32",
        specs=_precision_figures("linear-precision", "bf16", {"batch": 256}, "torch-eager", "openvino", "jax-jit"),
        within=LESS,
        runs=("h200-linear",),
        more=lambda: f"On an H200 one precision was timed, at batch 1024. {_times('h200-linear', {}, GRAPHS_FP16)}",
        needs="a GPU",
    ),
    Claim(
        published="One row waits for memory; larger batches use what was read",
        says="A row of 256 against a single one",
        specs=place_figures("linear-precision", (ORT, TORCH, OPENVINO), {"batch": 256}, {"batch": 1}, scale=256.0),
        within=HALVED,
    ),
    Claim(
        published="Fused attention saves the way to memory and back",
        says="PyTorch, fused against written out",
        specs=tuple(
            spec
            for n in (128, 512, 2048)
            for spec in place_figures(
                "attention", (TORCH,), _attention("fused", n), _attention("written", n), label=f"{n} tokens"
            )
        ),
        within=LESS,
        more=lambda: _memory("attention", TORCH, {form: _attention(form, 2048) for form in ("fused", "written")}),
        why="few scores stay in the cache as they are",
    ),
    Claim(
        published="Trees and preprocessing belong on a CPU",
        says="ONNX Runtime, a forest of 100 trees against an MLP of 64 units on the same rows",
        specs=race_figures("trees", ORT, f"{ORT}(mlp.onnx)", {f"batch {n}": {"batch": n} for n in (1, 64)}),
        more=_accuracies,
        needs="a GPU",
    ),
    Claim(
        published="EfficientNet-B2 takes three times as long on a CPU as on a T4",
        runs=("efficientnet-quantization",),
        says="As an analogue, BERT: an H200 against 15 threads",
        specs=race_figures("h200-bert", ORT_GPU, ORT, {"ONNX Runtime": {}}),
        more=lambda: (
            "On one thread of a CPU, EfficientNet-B2: "
            + _times("efficientnet-quantization", {"model": "efficientnet"}, ORT, OPENVINO)
        ),
        needs="a GPU",
    ),
    Claim(
        published="Quantization makes EfficientNet-B2 smaller, and hardly faster",
        says="INT8 against FP32",
        specs=(
            *_precision_figures("efficientnet-quantization", "int8", EFFICIENTNET, "onnxruntime", "openvino"),
            *_precision_figures("runtimes-efficientnet", "int8", EFFICIENTNET, "litert"),
        ),
        within=ALIKE,
        more=lambda: _sizes("efficientnet-quantization", "efficientnet", ORT, "onnxruntime:cpu:int8"),
        why="it is a matter of kernels: LiteRT's are more than twice as fast",
    ),
    Claim(
        published="The gap between CPU and GPU falls from 3 to 2.8 times by compiling and quantizing",
        says="As an analogue, PyTorch against ONNX Runtime on a small CNN",
        specs=(
            *race_figures("gap-before", TORCH, ORT, {"as they come": {}}),
            *race_figures("gap-after", "torch-compile:cpu:int8", "onnxruntime:cpu:int8", {"compiled, INT8": {}}),
        ),
        needs="a GPU",
    ),
    Claim(
        published="Compiled models move the front of accuracy against latency",
        runs=("frontier",),
        more=_front,
        holds=partial(_front_is_moved, lambda arm: not arm.startswith("torch-eager")),
    ),
    Claim(
        published="Quantized models move the front of accuracy against latency",
        runs=("frontier",),
        holds=partial(_front_is_moved, lambda arm: ":int8" in arm),
        why="these calls take 10 to 30 us, most of it overhead that INT8 adds to",
    ),
    Claim(
        published="INT8 with AMX: ResNet-50 3.35 times as fast",
        says="INT8 against FP32, without AMX",
        specs=_precision_figures("resnet-quantization", "int8", {"model": "resnet"}, "onnxruntime", "openvino"),
        needs="a CPU with AMX",
    ),
    Claim(
        published="INT8 with AMX: BERT 3.5 times as fast",
        says="INT8 against FP32, without AMX",
        specs=_precision_figures("bert-quantization", "int8", {"model": "bert"}, "onnxruntime", "openvino"),
        needs="a CPU with AMX",
    ),
    Claim(
        published="YOLOv5 and SSD change ranks between an i7 and an i5",
        says="YOLO against SSD on this CPU",
        specs=place_figures("detectors", (ORT, OPENVINO, LITERT, TORCH), {"kind": "yolo"}, {"kind": "ssd"}),
        needs="a run on another kind of CPU, and `shootout merge` of both",
    ),
    Claim(
        published="sin four times over: fusing halves the time",
        says="torch.compile against eager",
        specs=race_figures("nested-sin", COMPILE, TORCH, SIN_SIZES),
        within=SHORTER,
        why="of 1,024 numbers the compiled call itself takes longer than the four passes",
    ),
    Claim(
        published="sin four times over: TorchScript fuses",
        says="TorchScript against eager",
        specs=race_figures("nested-sin", "torchscript:cpu:fp32", TORCH, SIN_SIZES),
        within=SHORTER,
        why="on a CPU it calls the same kernels one after the other",
    ),
    Claim(published="sin four times over: the CPU wins once copies count; streams change little", needs="a GPU"),
    Claim(
        published="An MLP or RNN of 100 units is too small for a GPU",
        says="NumPy against PyTorch, an MLP of 64 inputs at batch 1",
        specs=race_figures("small-networks", NUMPY, TORCH, {"a call": {"model": "mlp", "inputs": 64, "batch": 1}}),
        needs="a GPU",
    ),
    Claim(published="A reinforcement-learning net trains 10 times as fast on the CPU", needs="a GPU"),
    Claim(published="PCIe's bandwidth is what binds transfers", needs="a GPU"),
    Claim(
        published="Two or three calls are warm-up enough",
        says=f"Share of the starts that were steady within {SOON} calls after the first one",
        specs=start_figures("onnxruntime", "torch-eager", "torch-compile", "jax-jit"),
        within=(0.95, 1.0),
        why="how many it takes differs by backend, and from start to start",
    ),
    Claim(published="Architecture search makes a net 2 to 3 times as fast", covered=False),
)


def find_starts() -> dict[str, list[int | None]]:
    """Return by backend the first steady call of each start in the runs told here; None where there was none."""
    starts: dict[str, list[int | None]] = defaultdict(list)
    for run in filter(None, map(read, STARTED)):
        for group in run.groups.values():
            backends = {arm.label: arm.target.backend for arm in group.record.arms if arm.scenario == "latency"}
            for label, found in group.steady_from.items():
                if label in backends:
                    starts[backends[label]] += found
    return dict(sorted(starts.items()))


def write_tables() -> str:
    """Return the page's tables: a row for each claim, and one for each backend's warm-up."""
    claims = ["| published | here | verdict | run |", "|---|---|---|---|", *(claim.row() for claim in CLAIMS)]
    starts = [
        "| backend | starts | steady from the first call | within 5 | half of them within | 95 % within | never |"
    ]
    starts += ["|---|---|---|---|---|---|---|", *(_steady_row(*one) for one in find_starts().items())]
    return "\n".join([*claims, "", "## Calls until steady, by backend", "", STEADY, "", *starts])


def _steady_row(backend: str, found: Sequence[int | None]) -> str:
    known = np.array([one for one in found if one is not None])
    half, most = (math.ceil(np.percentile(known, percent)) for percent in (50, 95)) if known.size else ("–", "–")
    first, soon = (np.count_nonzero(known <= calls) / len(found) for calls in (0, SOON))
    never = len(found) - known.size
    return f"| {backend} | {len(found)} | {first:.0%} | {soon:.0%} | {half} | {most} | {never or '–'} |"


def written() -> str:
    """Return the page with its tables made again."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}\n\n{write_tables()}\n\n{MARKS[1]}{after}"


def write_page() -> None:
    """Write the page's tables again; runs that were read before are read again."""
    read.cache_clear()
    PAGE.write_text(written(), encoding="utf-8")


if __name__ == "__main__":
    write_page()
