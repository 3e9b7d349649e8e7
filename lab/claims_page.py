"""Tell the published experiments claim by claim (docs/claims.md), each figure out of a run that ships.

`python -m lab.claims_page` writes the page's tables again, between its two marks; a test holds the page to it. A claim
without a run says so. Nothing here is written by hand but what was published, what would confirm it, and why a claim
fails.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, partial
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

from shootout.constants import ALPHA
from shootout.contract import Array, Scenario, Value
from shootout.decide.limits import wilson
from shootout.journal import journal
from shootout.messages import Scope
from shootout.results.analysis import Analysed, analyse_cells
from shootout.results.document import Row
from shootout.units import duration, size

ROOT = Path(__file__).resolve().parents[1]
RUNS, PAGE = ROOT / "results" / "reference", ROOT / "docs" / "claims.md"
MARKS = ("<!-- written by python -m lab.claims_page -->", "<!-- to here -->")
FROM_DOCS = "../results/reference"
SOON = 5
"""Calls: a change is found to within so many, so "after 2 or 3" can't be told from it."""
NO_RESULT = "no result kept yet"
Where = Mapping[str, Value]
"""What a row must have: its model's parameters, and `model`, `batch`, `scenario` or `precision`."""
Range = tuple[float, float]


class Standing(StrEnum):
    """What a figure says of a claim."""

    HOLDS = "reproduced"
    FAILS = "contradicted"
    OPEN = "can't tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure with its 95 % interval; the ends are None where there is none.

    Attributes:
        within: where the claim has it; None: it is shown for itself, and says nothing of the claim.
    """

    label: str
    value: float
    low: float | None
    high: float | None
    within: Range | None

    @property
    def standing(self) -> Standing | None:
        """Return what it says: the whole interval must lie on one side."""
        if self.within is None:
            return None
        if self.low is None or self.high is None:
            return Standing.OPEN
        if self.within[0] <= self.low and self.high <= self.within[1]:
            return Standing.HOLDS
        return Standing.FAILS if self.high < self.within[0] or self.low > self.within[1] else Standing.OPEN

    def __str__(self) -> str:
        """Write `ONNX Runtime 0.44 [0.31, 0.62]`."""
        ends = "no interval" if self.low is None or self.high is None else f"{self.low:.3g}, {self.high:.3g}"
        return f"{self.label} {self.value:.3g} [{ends}]"


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
    blocks = run.groups[row.group].blocks_of(Scope.END_TO_END, row.arm)
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
class Raced:
    """The time of `arm` ÷ that of `against` in one race: the run's own ratio and interval."""

    run: str
    arm: str
    against: str
    label: str
    where: Where = field(default_factory=dict)
    within: Range | None = None

    def figures(self) -> Iterator[Figure]:
        """Yield one for each group that has both."""
        for row in rows_of(self.run, self.arm, self.where):
            run = read(self.run)
            cell = run.cells.get(row.group) if run else None
            if found := cell.ratio(self.arm, self.against) if cell else None:
                trusted = found.reason is None
                yield Figure(
                    label=self.label,
                    value=found.value,
                    low=found.reading[0] if trusted else None,
                    high=found.reading[1] if trusted else None,
                    within=self.within,
                )


@dataclass(frozen=True, slots=True)
class Across:
    """The time of one row ÷ that of another of the same run, which didn't race each other, ÷ `scale`."""

    run: str
    arm: str
    where: Where
    against: Where
    label: str
    within: Range | None = None
    scale: float = 1.0
    against_arm: str = ""

    def figures(self) -> Iterator[Figure]:
        """Yield one if both rows are there."""
        ours = rows_of(self.run, self.arm, self.where)
        others = rows_of(self.run, self.against_arm or self.arm, self.against)
        for row, other in zip(ours[:1], others[:1], strict=False):
            found = unpaired(restart_times(self.run, row), restart_times(self.run, other))
            value, low, high = (None if one is None else one / self.scale for one in found)
            assert value is not None
            yield Figure(label=self.label, value=value, low=low, high=high, within=self.within)


@dataclass(frozen=True, slots=True)
class ShareOfPeak:
    """The share of what the machine was measured to do at most, in arithmetic or bandwidth, that a row reaches."""

    run: str
    arm: str
    where: Where
    label: str
    within: Range | None = None

    def figures(self) -> Iterator[Figure]:
        """Yield one if the run measured its machine's ceilings."""
        for row in rows_of(self.run, self.arm, self.where)[:1]:
            if row.ceiling is None:
                continue
            times = restart_times(self.run, row)
            value, low, high = unpaired(np.full(2, times.mean()), times)
            share = row.ceiling.share
            ends = (None if one is None else share * one / value for one in (low, high))
            yield Figure(label=self.label, value=share, low=next(ends), high=next(ends), within=self.within)


@dataclass(frozen=True, slots=True)
class Soon:
    """The share of a backend's starts that were steady within `SOON` calls after the first one."""

    backend: str

    def figures(self) -> Iterator[Figure]:
        """Yield one if there are any."""
        found = find_starts().get(self.backend, [])
        if not found:
            return
        soon = sum(one is not None and one <= SOON for one in found)
        low, high = wilson(soon, len(found), ALPHA)
        yield Figure(label=self.backend, value=soon / len(found), low=low, high=high, within=(0.95, 1.0))


Spec = Raced | Across | ShareOfPeak | Soon
ORT, TORCH, OPENVINO, NUMPY, JAX, LITERT = (
    f"{name}:cpu:fp32" for name in ("onnxruntime", "torch-eager", "openvino", "numpy", "jax-jit", "litert")
)
NAMES = {ORT: "ONNX Runtime", TORCH: "PyTorch", OPENVINO: "OpenVINO", NUMPY: "NumPy", JAX: "JAX", LITERT: "LiteRT"}
LESS, MORE = (0.0, 1.0), (1.0, math.inf)
ALIKE = (0.8, 1.25)
"""What "about the same" is taken for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Something that was published, and what here tells of it.

    Attributes:
        runs: whose figures tell.
        says: what the figures are: one clause, to which they are added.
        specs: which figures.
        more: gives further words of the same runs, which no verdict rests on.
        holds: gives what a run says that isn't a figure with an interval; None: nothing.
        needs: what is missing for the rest of the claim.
        why: shown where a figure contradicts it.
        covered: whether anything here is about it.
    """

    published: str
    runs: tuple[str, ...] = ()
    says: str = ""
    specs: tuple[Spec, ...] = ()
    more: Callable[[], str] = str
    holds: Callable[[], Standing | None] = lambda: None
    needs: str = ""
    why: str = ""
    covered: bool = True

    def figures(self) -> list[Figure]:
        """Return those that the runs that ship have."""
        return [figure for spec in self.specs for figure in spec.figures()]

    def row(self) -> str:
        """Return the claim's row of the table."""
        kept, figures = [name for name in self.runs if read(name)], self.figures()
        told = f"{self.says}: {'; '.join(map(str, figures))}" if figures else ""
        words = ". ".join(filter(None, [told, self.more() if kept else ""]))
        links = ", ".join(f"[`{name}`]({FROM_DOCS}/{name}), {_processor(name)}" for name in kept)
        return f"| {self.published} | {words or '–'} | {self._verdict(figures, kept)} | {links or '–'} |"

    def _verdict(self, figures: Sequence[Figure], kept: Sequence[str]) -> str:
        if not self.covered:
            return "not covered"
        found = [one for one in (*(figure.standing for figure in figures), self.holds()) if one]
        verdict = judge(found)
        if self.runs and not kept:
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
    return next((maker for maker in ("AMD", "Intel") if maker in model), model)


def _each(make: Callable[[str, str], Spec], *arms: str) -> tuple[Spec, ...]:
    """Return a spec for each of these arms, by its label and its name."""
    return tuple(make(arm, NAMES[arm]) for arm in arms)


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
        f"{one.group.partition(', batch')[0]} on {one.arm}, {one.accuracy:.1%}, {duration(one.median_ns)}"
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
    told = {("MLP" if row.file else "forest"): row.fidelity.accuracy for row in rows if row.fidelity}
    return ", ".join(f"{name}: {accuracy:.1%} right" for name, accuracy in told.items() if accuracy is not None)


def _sizes(name: str, model: str, *arms: str) -> str:
    found = {arm: rows_of(name, arm, {"model": model}) for arm in arms}
    told = [f"{arm} {size(rows[0].artifact_bytes)}" for arm, rows in found.items() if rows and rows[0].artifact_bytes]
    return f"Sizes: {', '.join(told)}" if told else ""


def _int8(name: str, model: str, within: Range | None, *backends: str) -> tuple[Spec, ...]:
    """Return INT8 ÷ FP32 of each backend."""
    return tuple(
        Raced(
            name, f"{backend}:cpu:int8", f"{backend}:cpu:fp32", NAMES[f"{backend}:cpu:fp32"], {"model": model}, within
        )
        for backend in backends
    )


LAST, FIRST = {"n_layers": 1024}, {"n_layers": 128}
WIDE, DEEP = {"d_model": 16384}, {"d_model": 256}
YOLO, SSD = {"kind": "yolo"}, {"kind": "ssd"}
STEP: Where = {"scenario": "train-step", "batch": 256}
CALL: Where = {"scenario": "latency", "batch": 256}
BIG_LINEAR, SMALL_LINEAR = {"batch": 256}, {"batch": 1}
TREE, MLP = ORT, f"{ORT}(mlp.onnx)"
STARTED = (
    *("shootout", "batch-sweep", "width-sweep", "runtimes", "runtimes-batches", "runtimes-widths", "small-networks"),
    *("depth-sweep", "linear-precision", "attention", "detectors", "matmul-large"),
)
"""The runs whose starts are counted for the warm-up."""
STEADY = (
    "Each start of a process warms its target up, call by call, until the last change in the calls' times is found\n"
    "([how](measurement.md#the-hierarchy)). The first call, which may compile, is counted apart; a change is found to\n"
    "within 5 calls."
)
CLAIMS = (
    Claim(
        published="A residual MLP at batch 1 to 2048: CPU and GPU are equal up to 64, then the CPU's time alone grows",
        runs=("batch-sweep",),
        says="time at batch 1024 ÷ time at batch 16",
        specs=_each(
            lambda arm, name: Across("batch-sweep", arm, {"batch": 1024}, {"batch": 16}, name, (4.0, math.inf)),
            ORT,
            TORCH,
            JAX,
        ),
        needs="a GPU",
    ),
    Claim(
        published="d_model 64 to 4096 at batch 1: from 512 on the CPU's time grows and the GPU's hardly does",
        runs=("width-large",),
        says="time at 2048 ÷ time at 512, for 16 times the weights",
        specs=_each(
            lambda arm, name: Across("width-large", arm, {"d_model": 2048}, {"d_model": 512}, name, (4.0, math.inf)),
            ORT,
            OPENVINO,
            TORCH,
        ),
        needs="a GPU",
    ),
    Claim(
        published="128 to 3840 layers: time is linear in them",
        runs=("depth-sweep",),
        says="time of a layer at 1024 ÷ time of a layer at 128",
        specs=_each(lambda arm, name: Across("depth-sweep", arm, LAST, FIRST, name, ALIKE, 8.0), ORT, TORCH, NUMPY),
        more=lambda: "3840 layers take over four minutes to export, and weren't timed",
        why="the weights of 128 layers stay in the cache, those of 1024 don't",
    ),
    Claim(published="128 to 3840 layers: the GPU is slower than the CPU throughout", needs="a GPU"),
    Claim(
        published="2^31 parameters: fewer, wider layers are faster",
        runs=("fixed-parameters",),
        says="with 2^28 (what 24 GiB hold), time of 4096 layers of 256 ÷ time of one of 16,384",
        specs=_each(lambda arm, name: Across("fixed-parameters", arm, DEEP, WIDE, name, MORE), ORT, TORCH, NUMPY),
    ),
    Claim(
        published="PyTorch's matrix product takes as long as NumPy's",
        runs=("matmul-large",),
        says="PyTorch ÷ NumPy",
        specs=tuple(Raced("matmul-large", TORCH, NUMPY, f"n = {n}", {"n": n}, ALIKE) for n in (1, 64, 1024, 4096)),
        why="of small matrices a call is overhead, and NumPy has less",
    ),
    Claim(
        published="Products of 2^0 to 2^15: a GPU wins at large sizes alone, and half of its time is copies; "
        "a timer that doesn't wait shows a constant",
        needs="a GPU",
    ),
    Claim(
        published="torch.compile gains little on a GPU",
        runs=("shootout",),
        says="compiled ÷ eager, on a CPU",
        specs=(Raced("shootout", "torch-compile:cpu:fp32", TORCH, "128 small layers"),),
        needs="a GPU",
    ),
    Claim(
        published="Backward takes twice as long as forward",
        runs=("training",),
        says="(training step, optimizer and all) ÷ call, published as about 3, at batch 256",
        specs=_each(lambda arm, name: Across("training", arm, STEP, CALL, name, (2.5, 3.5)), TORCH, JAX),
        more=lambda: _memory("training", TORCH, {"call": CALL, "step": STEP}),
        why="the step has an optimizer, too",
    ),
    Claim(
        published="Training in mixed precision is faster",
        runs=("training",),
        says="step in BF16 ÷ step in FP32, PyTorch",
        specs=tuple(
            Raced(
                "training",
                "torch-eager:cpu:bf16",
                TORCH,
                f"batch {batch}",
                {"scenario": "train-step", "batch": batch},
                LESS,
            )
            for batch in (1, 256)
        ),
        why="a small batch has little to multiply, and autocast rounds all weights in each step",
    ),
    Claim(
        published="Large batches reach the machine's FP32 peak",
        runs=("batch-sweep",),
        says="share of the measured peak at batch 1024",
        specs=_each(
            lambda arm, name: ShareOfPeak("batch-sweep", arm, {"batch": 1024}, name, (0.8, math.inf)),
            ORT,
            OPENVINO,
            TORCH,
        ),
        why="eager PyTorch multiplies and then adds in passes of their own",
    ),
    Claim(
        published="FP16 and BF16 units make 256×1024 · 1024×2048 faster",
        runs=("linear-precision",),
        says="BF16 ÷ FP32",
        specs=tuple(
            Raced(
                "linear-precision", f"{name}:cpu:bf16", f"{name}:cpu:fp32", NAMES[f"{name}:cpu:fp32"], BIG_LINEAR, LESS
            )
            for name in ("torch-eager", "openvino", "jax-jit")
        ),
        needs="a GPU",
    ),
    Claim(
        published="One row waits for memory; larger batches use what was read",
        runs=("linear-precision",),
        says="time of a row of 256 ÷ time of a single one",
        specs=_each(
            lambda arm, name: Across("linear-precision", arm, BIG_LINEAR, SMALL_LINEAR, name, (0.0, 0.5), 256.0),
            ORT,
            TORCH,
            OPENVINO,
        ),
    ),
    Claim(
        published="Fused attention saves the way to memory and back",
        runs=("attention",),
        says="PyTorch, fused ÷ written out",
        specs=tuple(
            Across(
                "attention",
                TORCH,
                {"form": "fused", "tokens": n},
                {"form": "written", "tokens": n},
                f"{n} tokens",
                LESS,
            )
            for n in (128, 512, 2048)
        ),
        more=lambda: _memory(
            "attention",
            TORCH,
            {form: {"form": form, "tokens": 2048} for form in ("fused", "written")},
        ),
        why="few scores stay in the cache as they are",
    ),
    Claim(
        published="Trees and preprocessing belong on a CPU",
        runs=("trees",),
        says="ONNX Runtime, forest of 100 trees ÷ MLP of 64 units on the same rows",
        specs=tuple(Raced("trees", TREE, MLP, f"batch {batch}", {"batch": batch}) for batch in (1, 64)),
        more=_accuracies,
        needs="a GPU",
    ),
    Claim(
        published="EfficientNet-B2 takes three times as long on a CPU as on a T4",
        runs=("efficientnet-quantization",),
        more=lambda: _times("efficientnet-quantization", {"model": "efficientnet"}, ORT, OPENVINO),
        needs="a GPU",
    ),
    Claim(
        published="Quantization makes EfficientNet-B2 smaller, and hardly faster",
        runs=("efficientnet-quantization", "runtimes-efficientnet"),
        says="INT8 ÷ FP32",
        specs=(
            *_int8("efficientnet-quantization", "efficientnet", ALIKE, "onnxruntime", "openvino"),
            *_int8("runtimes-efficientnet", "efficientnet", ALIKE, "litert"),
        ),
        more=lambda: _sizes("efficientnet-quantization", "efficientnet", ORT, "onnxruntime:cpu:int8"),
        why="it is a matter of kernels: LiteRT's are more than twice as fast",
    ),
    Claim(
        published="The gap between CPU and GPU falls from 3 to 2.8 times by compiling and quantizing",
        runs=("gap-before", "gap-after"),
        says="as an analogue, PyTorch ÷ ONNX Runtime of a small CNN",
        specs=(
            Raced("gap-before", TORCH, ORT, "as they come"),
            Raced("gap-after", "torch-compile:cpu:int8", "onnxruntime:cpu:int8", "compiled, INT8"),
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
        runs=("resnet-quantization",),
        says="without AMX, INT8 ÷ FP32",
        specs=_int8("resnet-quantization", "resnet", None, "onnxruntime", "openvino"),
        needs="a CPU with AMX",
    ),
    Claim(
        published="INT8 with AMX: BERT 3.5 times as fast",
        runs=("bert-quantization",),
        says="without AMX, INT8 ÷ FP32",
        specs=_int8("bert-quantization", "bert", None, "onnxruntime", "openvino"),
        needs="a CPU with AMX",
    ),
    Claim(
        published="YOLOv5 and SSD change ranks between an i7 and an i5",
        runs=("detectors",),
        says="YOLO ÷ SSD on this CPU",
        specs=_each(lambda arm, name: Across("detectors", arm, YOLO, SSD, name), ORT, OPENVINO, LITERT, TORCH),
        needs="a run on another kind of CPU, and `shootout merge` of both",
    ),
    Claim(
        published="sin four times over: fusing halves the time",
        runs=("nested-sin",),
        says="torch.compile ÷ eager",
        specs=tuple(
            Raced("nested-sin", "torch-compile:cpu:fp32", TORCH, f"2^{power}", {"elements": 2**power}, (0.0, 0.7))
            for power in (10, 20, 26)
        ),
        why="of 1,024 numbers the compiled call itself takes longer than the four passes",
    ),
    Claim(
        published="sin four times over: TorchScript fuses",
        runs=("nested-sin",),
        says="TorchScript ÷ eager",
        specs=tuple(
            Raced("nested-sin", "torchscript:cpu:fp32", TORCH, f"2^{power}", {"elements": 2**power}, (0.0, 0.7))
            for power in (10, 20, 26)
        ),
        why="on a CPU it calls the same kernels one after the other",
    ),
    Claim(published="sin four times over: the CPU wins once copies count; streams change little", needs="a GPU"),
    Claim(
        published="An MLP or RNN of 100 units is too small for a GPU",
        runs=("small-networks",),
        says="NumPy ÷ PyTorch, MLP of 64 inputs at batch 1",
        specs=(Raced("small-networks", NUMPY, TORCH, "a call", {"model": "mlp", "inputs": 64, "batch": 1}),),
        needs="a GPU",
    ),
    Claim(published="A reinforcement-learning net trains 10 times as fast on the CPU", needs="a GPU"),
    Claim(published="PCIe's bandwidth is what binds transfers", needs="a GPU"),
    Claim(
        published="Two or three calls are warm-up enough",
        runs=STARTED,
        says=f"share of starts that were steady from the first {SOON} calls after the first one on",
        specs=tuple(Soon(backend) for backend in ("onnxruntime", "torch-eager", "torch-compile", "jax-jit")),
        why="how many it takes differs by backend, and from start to start",
    ),
    Claim(published="Architecture search makes a net 2 to 3 times as fast", covered=False),
)


def find_starts() -> dict[str, list[int | None]]:
    """Return by backend the first steady call of each start in the runs told here; None where there was none."""
    starts: dict[str, list[int | None]] = defaultdict(list)
    for run in filter(None, map(read, STARTED)):
        for group in run.groups.values():
            backends = {arm.label: arm.target.backend for arm in group.record.arms if arm.scenario is Scenario.LATENCY}
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
