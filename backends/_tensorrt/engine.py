"""From an ONNX file to a TensorRT engine on disk, and never one in another precision than its label's.

Networks are strongly typed: the graph's own types are what runs, and a float32 graph gives a float32 engine without a
word. So the parsed network's types are checked before anything is built from it. A network only asks for what is
quantized, so for that also what TensorRT made of it is checked.

Which TensorRT is here: the full one, which needs a GPU to build an engine, or TensorRT-RTX, which doesn't.

They offer one API under several package names. The logger keeps what the library complains of, since its functions
answer None or False and leave the reason in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from shootout.backends._tensorrt.account import (
    HEADING,
    TYPED_AS,
    EngineLayer,
    count_layers,
    read_log,
    read_network,
    require_precision,
)
from shootout.backends.common_onnx import rest_note
from shootout.backends.cuda_memory import COPIES, FIRST_FLOAT8, lacks_float8
from shootout.core.contract import SCALED, Option, Precision, TensorSpec
from shootout.core.errors import NotRunKind, SkippedArm
from shootout.core.install import NVIDIA_INDEX, install

GRAPH = "cuda_graph"
OPTIONS = (
    Option(
        name="builder_optimization_level",
        help="how long TensorRT looks for kernels (3)",
        values=tuple("012345"),
        tries=("5",),
    ),
    Option(name=GRAPH, help="replay a CUDA graph for each input buffer", values=("0", "1"), tries=("1",)),
    Option(
        name="compute_capability",
        help="the GPUs that TensorRT-RTX builds for",
        form=r"SM\d+(,SM\d+)*",
        takes="names such as SM86,SM120",
    ),
    COPIES,
    Option(name="timing_cache", help="a file of what the full TensorRT timed in an earlier build on the same GPU"),
)
TIMINGS = "timing.cache"
"""File of what the full TensorRT timed while it built: `timing_cache` gives it to a later build on the same GPU."""
PORTABLE = "portable"
"""TensorRT-RTX's own choice of targets: Ampere and later consumer GPUs (8.0, 8.6, 8.9, 12.0), not Turing."""
WITH_FLOAT8 = ("SM89", "SM90", "SM100", "SM120")
"""GPUs that FP8 is built for on a machine without one, as far as the library knows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan:
    """Say what to make of an ONNX file.

    Attributes:
        rest: what INT8 leaves in float computes in.
        inputs: the shapes that symbolic axes get.
        current: build for the GPU of this machine; else for TensorRT-RTX's portable targets, or WITH_FLOAT8.
        options: by name, of OPTIONS; `compute_capability` takes names such as SM86,SM120.
    """

    precision: Precision
    rest: Precision = Precision.FP32
    inputs: tuple[TensorSpec, ...]
    current: bool
    options: Mapping[str, str]


def compile_engine(library: Library, source: Path, plan: EnginePlan, folder: Path) -> dict[str, Any]:
    """Write `engine.plan` and its network's facts into the folder, and the timing cache where the library keeps one.

    Returns:
        Facts for the record: what the engine's layers are and do (or, where the build doesn't list them, the
        network's), targets, versions, warnings.

    Raises:
        RuntimeError: TensorRT can't parse or build it (in its words), or a product isn't in the plan's precision.
    """
    trt = library.module
    builder = library.start("Builder")
    parsed = builder.create_network(_strongly_typed(trt))
    parser = trt.OnnxParser(parsed, library.log)
    if not parser.parse_from_file(str(source)):
        errors = [parser.get_error(index) for index in range(parser.num_errors)]
        faults = [
            f"{error.node_operator()} {error.node_name()!r}: {join_errors(error.desc().splitlines())}"
            for error in errors
        ]
        raise RuntimeError(f"{library.name} can't parse the model: {'; '.join(faults) or library.errors_text()}")
    network = read_network(parsed)
    asked = require_precision(network, plan.precision, plan.rest)
    config = _make_config(library, builder, parsed, plan)
    engine = builder.build_serialized_network(parsed, config)
    if engine is None:
        raise RuntimeError(f"{library.name} built no engine: {library.errors_text()}")
    layers = library.log.layers()
    counts = count_layers(layers, network) if layers else {"compute_nodes_by_precision": asked}
    _require_scaled(library, plan.precision, counts["compute_nodes_by_precision"])
    (folder / "engine.plan").write_bytes(engine)
    network.save(folder)
    if not library.is_rtx:  # where it does nothing
        (folder / TIMINGS).write_bytes(config.get_timing_cache().serialize())
    return {
        "library": library.name,
        "version": library.version,
        **counts,
        "network_nodes_by_precision": asked,
        "artifact_bytes": (folder / "engine.plan").stat().st_size,
        "network_layers": parsed.num_layers,
        "compute_capabilities": _targets_of(library, config),
        "builder_optimization_level": config.builder_optimization_level,
        "notes": [rest_note(plan.rest)] if plan.precision is Precision.INT8 else [],
        "warnings": list(dict.fromkeys(library.log.warnings)),
    }


def _require_scaled(library: Library, precision: Precision, counts: Mapping[str, int]) -> None:
    """Refuse an engine that dequantizes first and multiplies wider floats: that is no INT8, INT4 or FP8."""
    if precision in SCALED and TYPED_AS[precision][0] not in counts:
        ran = ", ".join(f"{count} in {name}" for name, count in sorted(counts.items())) or "none at all"
        raise RuntimeError(f"labeled {precision}, but {library.name} built its products otherwise: {ran}")


def _make_config(library: Library, builder: Any, network: Any, plan: EnginePlan) -> Any:
    trt, options = library.module, plan.options
    foreign = "timing_cache" if library.is_rtx else "compute_capability"
    if foreign in options:
        raise ValueError(f"option {foreign!r}: {library.name} has no such thing")
    config = builder.create_builder_config()
    tf32 = plan.precision is Precision.TF32
    (config.set_flag if tf32 else config.clear_flag)(trt.BuilderFlag.TF32)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED  # or the inspector shows no types
    if "builder_optimization_level" in options:
        config.builder_optimization_level = int(options["builder_optimization_level"])
    if library.is_rtx:
        _set_targets(library, config, plan)
        if options.get(GRAPH) == "1":  # else an engine may allocate while it runs, which no graph can hold
            config.set_flag(trt.BuilderFlag.REQUIRE_USER_ALLOCATION)
    else:
        _start_timings(library, config, options.get("timing_cache"))
    _add_profile(builder, network, config, plan.inputs)
    return config


def _start_timings(library: Library, config: Any, path: str | None) -> None:
    """Begin with what an earlier build timed, or with nothing; only then TensorRT gives its timings back."""
    stored = Path(path).read_bytes() if path else b""
    if config.set_timing_cache(config.create_timing_cache(stored), ignore_mismatch=False):
        return
    if path:
        raise ValueError(f"timing_cache {path!r} is another GPU's or version's")
    raise RuntimeError(f"{library.name} takes no timing cache: {library.errors_text()}")


def _set_targets(library: Library, config: Any, plan: EnginePlan) -> None:
    """Set TensorRT-RTX's target GPUs."""
    known = library.module.ComputeCapability.__members__
    asked = plan.options.get("compute_capability", "CURRENT" if plan.current else "")
    names = [name for name in asked.split(",") if name]
    if not names and plan.precision is Precision.FP8:
        names = [name for name in WITH_FLOAT8 if name in known]
    for name in names:
        if name not in known:
            raise ValueError(f"compute_capability {name!r}: {library.name} knows {', '.join(known)}")
        if plan.precision is Precision.FP8 and lacks_float8(name):
            raise ValueError(f"compute_capability {name!r} multiplies no FP8: SM{FIRST_FLOAT8} and later do")
    config.num_compute_capabilities = len(names)
    for index, name in enumerate(names):
        config.set_compute_capability(known[name], index)


def _targets_of(library: Library, config: Any) -> list[str]:
    if not library.is_rtx:
        return ["CURRENT"]
    count = config.num_compute_capabilities
    return [config.get_compute_capability(index).name for index in range(count)] or [PORTABLE]


def _add_profile(builder: Any, network: Any, config: Any, specs: tuple[TensorSpec, ...]) -> None:
    """Give each symbolic axis the one size that is run; a static network needs no profile."""
    shapes = {spec.name: spec.shape for spec in specs}
    profile = builder.create_optimization_profile()
    tensors = [network.get_input(index) for index in range(network.num_inputs)]
    for name in (tensor.name for tensor in tensors if -1 in tuple(tensor.shape)):
        profile.set_shape(name, shapes[name], shapes[name], shapes[name])
    if any(-1 in tuple(tensor.shape) for tensor in tensors):
        config.add_optimization_profile(profile)


def _strongly_typed(trt: ModuleType) -> int:
    """Return the flags of a strongly typed network; a version that knows no other kind may have no flag for it."""
    flag = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    return 0 if flag is None else 1 << int(flag)


FULL = ("tensorrt", "tensorrt_bindings")
RTX = ("tensorrt_rtx", "tensorrt_rtx_bindings")
NO_CUDA = "cudaError 35"
INSTALL_RTX = install("tensorrt-rtx")
INSTALL_FULL = install("tensorrt", options=NVIDIA_INDEX)


@dataclass(frozen=True, slots=True)
class Library:
    """An imported TensorRT, and the logger that collects its words."""

    module: ModuleType
    log: Any

    @property
    def name(self) -> str:
        """Return the name that it is imported by."""
        return self.module.__name__

    @property
    def version(self) -> str:
        """Return its own version."""
        return str(self.module.__version__)

    @property
    def is_rtx(self) -> bool:
        """Return whether this is TensorRT-RTX."""
        return self.name in RTX

    def runs_on(self, capability: str) -> bool:
        """Return whether it has code for a compute capability, e.g. `SM89`; the full TensorRT is not asked."""
        return not self.is_rtx or capability in self.module.ComputeCapability.__members__

    def start(self, kind: str) -> Any:
        """Start a `Builder` or `Runtime`, and CUDA with it.

        Raises:
            RuntimeError: it can't, for example because the driver is too old (CUDA's error 35); in its words.
        """
        try:
            return getattr(self.module, kind)(self.log)
        except TypeError as error:  # its bindings' word for a null pointer
            raise RuntimeError(f"{self.name} can't start here: {self.errors_text()}") from error

    def errors_text(self) -> str:
        """Return the errors it logged since it was opened, or the warnings: some versions only warn if CUDA doesn't
        start.
        """
        return join_errors(self.log.errors or self.log.warnings) or "it gave no reason"


def join_errors(lines: Iterable[str]) -> str:
    """Join the lines of an error, each once.

    If CUDA can't be started, each error comes with a line about that, which only matters if it is alone.
    """
    distinct = list(dict.fromkeys(lines))
    return "; ".join([line for line in distinct if NO_CUDA not in line] or distinct)


def open_library(*, gpu: bool) -> Library:
    """Import TensorRT: the full one first if there is a GPU, else TensorRT-RTX, which alone can build without one.

    Raises:
        SkippedArm: none is installed.
    """
    for name in (*FULL, *RTX) if gpu else (*RTX, *FULL):
        try:
            return reopen(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
    reason, fix = "TensorRT is not installed (neither tensorrt nor tensorrt_rtx)", INSTALL_FULL if gpu else INSTALL_RTX
    raise SkippedArm(reason, fix, NotRunKind.NOT_INSTALLED)


def reopen(name: str) -> Library:
    """Import the TensorRT that is called `name`, one of FULL and RTX; each has a log of its own."""
    module = import_module(name)
    return Library(module, _make_logger(module))


def _make_logger(trt: Any) -> Any:
    serious = (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR)

    class Logger(trt.ILogger):  # type: ignore[misc] # its base is known at run time only
        """Keeps errors for the exception that follows, warnings for the record, and what it says of the last engine."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []
            self.warnings: list[str] = []
            self._list = ""

        def log(self, severity: Any, message: str) -> None:
            """Keep a line; TensorRT calls this from any of its threads."""
            if severity in serious:
                self.errors.append(message)
            elif severity == trt.ILogger.WARNING:
                self.warnings.append(message)
            elif message.startswith(HEADING):
                self._list = message

        def layers(self) -> list[EngineLayer]:
            """Return the layers of the engine that was built last, as TensorRT lists them at the end of a build."""
            return read_log(self._list)

    return Logger()
