"""Define the words that adapters and the harness share: what is asked, what ran, how right it was.

Imports NumPy at most, so that any worker can load it. What `load` returns is in `shootout.core.adapter`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from shootout.core.constants import COPY, SHIPPED, USUAL_SCENARIO
from shootout.core.errors import COULD_RUN as COULD_RUN  # why an arm did not run is part of the contract
from shootout.core.errors import NotRun as NotRun
from shootout.core.errors import NotRunKind as NotRunKind

Value = int | float | str | bool
"""The types of a model parameter."""
Array = NDArray[Any]
Arrays = Mapping[str, Array]
"""Tensors by the model's own input or output names, in the model's order."""


class Device(StrEnum):
    """Name where a session computes."""

    CPU = "cpu"
    CUDA = "cuda"
    VULKAN = "vulkan"
    XPU = "xpu"  # an Intel GPU, in PyTorch's word
    NPU = "npu"

    @property
    def is_gpu(self) -> bool:
        """Return whether it has memory and a queue of its own, and is waited for; an NPU is handled as a GPU is."""
        return self is not Device.CPU

    @classmethod
    def _missing_(cls, value: object) -> Device | None:
        """Read `gpu` as another name of CUDA."""
        return cls.CUDA if value == "gpu" else None


class Precision(StrEnum):
    """Name what a target's label promises about its matmul-like compute nodes."""

    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"  # E4M3 weights and activations, scaled
    INT8 = "int8"
    INT8_DYNAMIC = "int8-dynamic"
    INT4 = "int4"  # weights only; activations stay float
    NATIVE = "native"  # an ONNX file in its own precisions: what ran is told, nothing is promised


INTEGERS = (Precision.INT8, Precision.INT8_DYNAMIC, Precision.INT4)
SCALED = (*INTEGERS, Precision.FP8)
"""The precisions that a quantizer makes: numbers of a few bits, and scales."""


class Artifact(StrEnum):
    """Name the forms in which an exported model holds a model."""

    FORWARD = "forward"  # the model's `forward(xp, weights, x)` and its safetensors weights
    MODULE = "module"  # the torch module and its safetensors weights
    ONNX = "onnx"
    OPEN = "open"  # an ONNX graph with open axes, which all sizes of a sweep share
    PT2 = "pt2"
    SKLEARN = "sklearn"  # these three: the library's own file, of which `onnx` is a conversion
    LIGHTGBM = "lightgbm"
    XGBOOST = "xgboost"
    NONE = "none"  # the backend ignores the model (the spin backend)


_dtype = cache(np.dtype)
"""Cached, because each call checks its inputs, and looking a dtype up by name takes longer than the rest of the
check.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Name, shape (no symbolic axes) and NumPy dtype name of one input or output."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def matches(self, array: Array) -> bool:
        """Return whether `array` has this shape and dtype."""
        return array.shape == self.shape and array.dtype == _dtype(self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Name what runs a model: `backend[+mode][@python]:device:precision[/scheme]`, or `shipped[@python]:DIR`.

    Attributes:
        python: the name that the user gave another interpreter (`--python new=path`), "" for our own.
        folder: the shipped folder that runs it by its own `load.py`, as an absolute path, "" for an adapter. The other
            words are those of the arm that it was made from.
    """

    backend: str
    device: Device = Device.CPU
    precision: Precision = Precision.FP32
    mode: str = ""
    scheme: str = ""
    python: str = ""
    folder: str = ""

    def __str__(self) -> str:
        if self.folder:
            python = f"@{self.python}" if self.python else ""
            return f"{SHIPPED}{python}:{self.folder.rpartition('/')[2]}"
        words = (("+", self.mode), ("@", self.python), ("/", self.scheme))
        mode, python, scheme = (f"{sign}{word}" if word else "" for sign, word in words)
        return f"{self.backend}{mode}{python}:{self.device}:{self.precision}{scheme}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Describe a target on a model at one batch with given threads and options: one table line, one process.

    Attributes:
        file: where a group races several ONNX files, the name of this arm's, unless that is the first.
        ordinal: 2, 3 … when the same target is given again (A/A), shown as `#2`.
        control: the hidden copy of the baseline, shown as `#control`.
        parameters: the model's parameters, complete (defaults filled in).
        options: the backend's own knobs, `NUM_STREAMS` → `2`.
        threads: compute threads of one instance; 0: as many as its library takes by itself.
        instances: sessions that work at once, each on inputs of its own (throughput and serve only).
        setting: what tells this arm from others of its target in its group, for people: `batch=8, instances=2`.
    """

    target: Target
    model: str
    file: str = ""
    parameters: Mapping[str, Value] = field(default_factory=dict)
    batch: int = 1
    threads: int = 1
    options: Mapping[str, str] = field(default_factory=dict)
    ordinal: int = 1
    control: bool = False
    settings: str = "closed"
    quantizer: str = "none"
    scenario: str = USUAL_SCENARIO
    instances: int = 1
    setting: str = ""

    @property
    def cpus(self) -> int:
        """Return how many CPUs it gets, each instance threads of its own; 0: all that the process sees."""
        return self.threads * self.instances

    @property
    def label(self) -> str:
        """Return the arm's name inside its group, such as `numpy:cpu:fp32#2` or `openvino:cpu:fp32{threads=2}`."""
        told = f"{self.target}{f'({self.file})' if self.file else ''}" + (f"{{{self.setting}}}" if self.setting else "")
        return told + (COPY if self.control else f"#{self.ordinal}" if self.ordinal > 1 else "")


PLAIN = f":{Device.CPU}:{Precision.FP32}"
"""The target that a bare backend name means, if the backend has code for it."""


def family(label: str) -> str:
    """Return a label without its setting: what is alike in all settings of a target."""
    head, brace, rest = label.partition("{")
    return head + rest.rpartition("}")[2] if brace else label


def short(label: str) -> str:
    """Shorten a label, or a target, by what a bare backend name means anyway."""
    head, plain, rest = label.partition(PLAIN)
    return head + rest if plain and not rest.startswith("/") else label


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Say whether a backend works on a device here.

    Attributes:
        version: of its library; "" where that isn't installed.
        why: why it can't run, `built only` where `build` works all the same; None when it can.
    """

    version: str = ""
    why: NotRun | None = None

    @property
    def ok(self) -> bool:
        """Return whether it can run."""
        return self.why is None

    @property
    def builds(self) -> bool:
        """Return whether it can't run here, but build."""
        return self.why is not None and self.why.builds

    @property
    def reason(self) -> str:
        """Return why it can't run; "" if it can."""
        return self.why.reason if self.why else ""

    @property
    def fix(self) -> str:
        """Return what the user can do about that; "" if there is nothing to do."""
        return self.why.fix if self.why else ""


def is_among(mode: str, modes: Collection[str]) -> bool:
    """Return whether these modes hold `mode`, or a beginning of it that ends in `*`."""
    return mode in modes or any(one.endswith("*") and mode.startswith(one[:-1]) for one in modes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Describe one of a backend's own knobs, `--option backend.name=value`: what the adapter takes, what the tuner
    tries.

    Attributes:
        name: as the library calls it; with a `*` at its end, all names that begin so.
        help: what it does, for people.
        values: the words that it may be; empty where `form` or the library itself checks them.
        form: a regular expression that a value must match as a whole.
        takes: `form` for people.
        devices: where it means something.
        modes: the target's modes that have it, in the words of `Capabilities`; None: all.
        precisions: those of the target in which it does something; None: all.
        settled: why a user can't set it, "" where he can.
        tries: values that may change how long a call takes and leave what it computes; the default is not among them.
        parallel: it matters (or is accepted) with several threads only.
    """

    name: str
    help: str
    values: tuple[str, ...] = ()
    form: str = ""
    takes: str = ""
    devices: frozenset[Device] = frozenset(Device)
    modes: frozenset[str] | None = None
    precisions: frozenset[Precision] | None = None
    settled: str = ""
    tries: tuple[str, ...] = ()
    parallel: bool = False

    @property
    def expects(self) -> str:
        """Describe the possible values for people; "" if only the library knows them."""
        *others, last = self.values or (self.takes,)
        return f"{', '.join(others)} or {last}" if others else last

    def covers(self, name: str) -> bool:
        """Return whether an option of this name is meant."""
        return name.startswith(self.name[:-1]) if self.name.endswith("*") else name == self.name

    def is_for(self, target: Target) -> bool:
        """Return whether it has a meaning on the target's device, in its mode and in its precision."""
        return (
            target.device in self.devices
            and (self.modes is None or is_among(target.mode, self.modes))
            and (self.precisions is None or target.precision in self.precisions)
        )

    def allows(self, value: str) -> bool:
        """Return whether it may be this, as far as that is known before the library sees it."""
        return value in self.values if self.values else not self.form or re.fullmatch(self.form, value) is not None


Rests = Mapping[tuple[Device, Precision], Precision]
"""By device and label of a quantized model, the precision that computes the parts that aren't quantized."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Declare what an adapter can do.

    Attributes:
        consumes: the artifacts it can load. It reads the first one that an exported model has, and no other: other
            machines are sent no more. A model with none of them is skipped.
        targets: every (device, precision) it has code for.
        native: the devices on which it runs a user's ONNX file in the precisions that the file itself holds.
        modes: the `+mode` suffixes it knows, "" (the plain one) among them; one may end in `*`, for all that begin so.
        cuda_modes: those of them that are for CUDA only.
        schemes: by precision, the words it offers in a `/scheme` (see `shootout.core.schemes`); one may end in `*`.
        trains: whether what it loads can take a training step, too.
        options: its own knobs. Of several that cover a name, the first one that is for the target counts.
        rest: what its quantized models compute in otherwise, if not BF16 (GPU) or FP32 (CPU); schemes may tell.
        variables: of the environment that it needs too (see `placement.passed_on`); one may end in `*`.
        classical: whether it reads ONNX files with operators of `ai.onnx.ml`, such as ensembles of trees.
        portable: whether a build for the CPU is a file that any CPU runs, so that one machine can build for another.
        opens: the precisions in which a loaded model takes any size of an open axis (the word `dynamic` of a scheme):
            what `load` returns is then an `OpenSession` of `shootout.scenarios.varying`.
    """

    consumes: tuple[Artifact, ...]
    targets: frozenset[tuple[Device, Precision]]
    native: frozenset[Device] = frozenset()
    modes: frozenset[str] = frozenset({""})
    cuda_modes: frozenset[str] = frozenset()
    schemes: Mapping[Precision, frozenset[str]] = field(default_factory=dict)
    trains: bool = False
    options: tuple[Option, ...] = ()
    rest: Rests = field(default_factory=dict)
    variables: tuple[str, ...] = ()
    classical: bool = False
    portable: bool = False
    opens: frozenset[Precision] = frozenset()

    @property
    def devices(self) -> frozenset[Device]:
        """Return the devices that it has any code for."""
        return frozenset(device for device, _ in self.targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """Hold what the runtime itself reports that it runs: read back from it, never an echo of the request.

    Attributes:
        device: as the runtime names it, e.g. `CPUExecutionProvider`; on a GPU with our word for its kind in it, `cuda`.
        software: whether that device is a program on the CPU, which proves what an arm computes and is never timed.
        threads: compute threads the runtime reports; None where it can't be read.
        compute_nodes_by_precision: matmul- and convolution-like nodes by the precision they compute in.
        other_nodes_by_precision: the rest of the graph, where the runtime tells (a quantized model's float remainder).
        fallbacks: graph breaks, nodes on another provider: one line each.
        layers_in_float: of a model in integers, the layers whose products run in float; () where nothing tells.
        flops_by_precision: of the compute nodes in one call, two for each multiply-add; empty where nothing tells.
        conversion_nodes: executed nodes that only change a tensor's type or layout; None where nothing tells.
        kernel_ns: of one call, by the runtime's profiler: compute nodes by precision, "conversion", "other"; or empty.
        staged: the precision of float inputs as `stage` hands them over, and of outputs; "": the label's, or FP32.
    """

    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "ignore", "revalidate_instances": "always"}
    """Older journals count recompilations, too; what a worker sends is looked into."""
    library: str
    version: str
    device: str
    threads: int | None
    compute_nodes_by_precision: Mapping[str, int]
    other_nodes_by_precision: Mapping[str, int] = field(default_factory=dict)
    fallbacks: tuple[str, ...] = ()
    layers_in_float: tuple[str, ...] = ()
    artifact_bytes: int = 0
    flops_by_precision: Mapping[str, float] = field(default_factory=dict)
    conversion_nodes: int | None = None
    kernel_ns: Mapping[str, float] = field(default_factory=dict)
    staged: str = ""
    software: bool = False


BoundStanding = Literal["met", "tolerated", "refused", "not judged"]
"""The comparison of a row with the error that its label explains, which the user may tolerate to be larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputError:
    """Compare one output with the reference's, over all input buffers.

    Attributes:
        relative_l2: as `Fidelity` has it; None when NaN or infinity is not where the reference has it, 0 of integers.
        mismatches: integer or boolean elements that differ; of floats those that are NaN or infinite at other places
            than the reference.
        elements: of the output in all input buffers.
        flipped: the largest share of integer or boolean elements that differ in one input buffer; those of few elements
            are taken together.
        row: the number of the row that is furthest off, from 0: of the user's data, or of the inputs that are timed.
    """

    name: str
    relative_l2: float | None
    mismatches: int = 0
    row: int = 0
    elements: int = 0
    flipped: float = 0.0

    @property
    def rank(self) -> tuple[float, int]:
        """Return what sorts outputs by their errors; (0, 0) of one without any."""
        return math.inf if self.relative_l2 is None else self.relative_l2, self.mismatches


@dataclass(frozen=True, slots=True, kw_only=True)
class StepError:
    """Compare the first calls of a stream's clips with the reference's.

    Attributes:
        step: how many calls of a clip.
        relative_l2: the largest error of any of these calls, relative to the outputs' size over the whole stream; None
            if an output has NaN or infinity.
        error_bound: the largest that the label explains so soon; None if nothing useful is known.
    """

    step: int
    relative_l2: float | None
    error_bound: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """Compare outputs with the reference outputs, over all input buffers; float outputs unless said otherwise.

    NaN and infinity that both have at the same places are no error.

    Attributes:
        max_abs: largest absolute error; None when an output has NaN or infinity elsewhere, as are the next four.
        relative_l2: largest norm(error) of any buffer and output ÷ the RMS of that output's norm over all buffers.
        sqnr_db: 10 log10(sum reference² / sum error²); None also when there is no error at all.
        cosine: of all outputs as one vector; None also when one side is zero.
        top1_agreement: share of rows of the first output with the reference's largest class, None unless (batch,
            classes).
        shared_l2: as `relative_l2`, but against what the shared quantized model, or a file that races its original,
            gives as it is written; None for other rows.
        mismatches: integer or boolean output elements that differ from the reference's.
        error_bound: the largest `relative_l2` that the label explains; None: nothing is known.
        standing: to that error bound (see `ExportedModel.is_judged`, and `--max-error`).
        gradient_l2: of a training step, the worst gradient's error for the middle buffer; `relative_l2` is no smaller.
        by_output: in the model's order.
        by_step: of a stream, the errors of its clips' first 1, 10, 100 … calls; the last is of all.
    """

    max_abs: float | None
    relative_l2: float | None
    sqnr_db: float | None
    cosine: float | None
    top1_agreement: float | None
    mismatches: int = 0
    shared_l2: float | None = None
    gradient_l2: float | None = None
    error_bound: float | None = None
    standing: BoundStanding = "met"
    by_output: tuple[OutputError, ...] = ()
    by_step: tuple[StepError, ...] = ()

    @property
    def worst_output(self) -> OutputError | None:
        """Return the output that is furthest off; None without outputs."""
        return max(self.by_output, key=lambda one: one.rank, default=None)
