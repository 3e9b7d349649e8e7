"""ONNX Runtime's sessions and graphs: how they are opened, optimised once, and read back.

Kept apart from the session protocol, because the answers to "which kernels, which types, which provider" have their own
traps: silent fall-back to the CPU, and fusions that only the optimised graph shows.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shootout.backends.common import COMPUTE_OPS, precision_of
from shootout.contract import Arm, Arrays, Device, Precision

PROVIDERS = {Device.CPU: "CPUExecutionProvider", Device.CUDA: "CUDAExecutionProvider"}
THREAD_OPTIONS = ("intra_op_num_threads", "inter_op_num_threads")
CONFIG_PREFIXES = ("session.", "optimization.", "ep.", "mlas.")
DTYPES = {"float": "float32", "double": "float64"}
"""ONNX Runtime's names of dtypes, where they aren't NumPy's."""
INT8_OPS = r"^Q|Integer|DynamicQuantize"
SINGLE_FILE_BYTES = 1_500_000_000
"""Bigger models keep their weights beside the graph: one protobuf message ends at 2 GB."""
QUIET = 3
"""Errors only."""


def optimise(source: Path, arm: Arm, folder: Path) -> Path:
    """Write the graph that ONNX Runtime makes of `source` with every optimisation on; returns its path."""
    options, path = _options(arm), folder / "model.onnx"
    options.optimized_model_filepath = str(path)
    if sum(file.stat().st_size for file in source.parent.iterdir() if file.is_file()) > SINGLE_FILE_BYTES:
        prefix = "session.optimized_model_external_initializers"
        options.add_session_config_entry(f"{prefix}_file_name", f"{path.name}.data")
        options.add_session_config_entry(f"{prefix}_min_size_in_bytes", "1024")
    _open(source, arm, options)
    return path


def open_session(model: Path | bytes, arm: Arm) -> Any:
    """A session on a graph as it is, which records the provider of every node.

    Raises:
        RuntimeError: ONNX Runtime fell back to another provider than the arm's.
    """
    options = _options(arm, optimised=True)
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return _open(model, arm, options)


def count_kernels(path: Path, arm: Arm, inputs: Arrays) -> Mapping[str, int]:
    """Compute kernels by precision in one profiled run on `inputs`, from the runtime's own profile."""
    options = _options(arm, optimised=True)
    options.enable_profiling, options.profile_file_prefix = True, str(path.parent / "profile")
    session = _open(path, arm, options)
    session.run(None, dict(inputs))
    profile = Path(session.end_profiling())
    events = json.loads(profile.read_text())
    profile.unlink()
    kernels = {event["name"]: event["args"] for event in events if event["name"].endswith("_kernel_time")}
    tf32 = session.get_provider_options().get(PROVIDERS[Device.CUDA], {}).get("use_tf32") == "1"
    found = (_precision(kernel, tf32) for kernel in kernels.values() if re.search(COMPUTE_OPS, kernel["op_name"]))
    return dict(Counter(found))


def fallbacks(session: Any, device: Device) -> tuple[str, ...]:
    """Nodes that this session gave to another provider than the device's."""
    subgraphs = [part for part in session.get_provider_graph_assignment_info() if part.ep_name != PROVIDERS[device]]
    return tuple(f"{node.op_type} {node.name!r} on {part.ep_name}" for part in subgraphs for node in part.get_nodes())


def _precision(kernel: Mapping[str, Any], tf32: bool) -> str:
    """By operand types: int8 where any is, else the first one's; weights that were prepacked are not listed."""
    types = [name for operand in kernel["input_type_shape"] for name in operand]
    if re.search(INT8_OPS, kernel["op_name"]) or {"int8", "uint8"} & set(types):
        return Precision.INT8.value
    precision = precision_of(DTYPES.get(types[0], types[0]))
    return Precision.TF32.value if tf32 and precision == Precision.FP32 else precision


def _options(arm: Arm, *, optimised: bool = False) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = QUIET
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_DISABLE_ALL if optimised else levels.ORT_ENABLE_ALL
    options.intra_op_num_threads, options.inter_op_num_threads = arm.threads, 1
    if arm.target.device is Device.CUDA:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    for name, value in arm.options.items():
        _set(options, name, value)
    return options


def _set(options: Any, name: str, value: str) -> None:
    if name in THREAD_OPTIONS:
        setattr(options, name, int(value))
    elif name.startswith(CONFIG_PREFIXES):
        options.add_session_config_entry(name, value)
    else:
        known = ", ".join((*THREAD_OPTIONS, *(f"{prefix}*" for prefix in CONFIG_PREFIXES)))
        raise ValueError(f"unknown option {name!r}: onnxruntime takes {known}")


def _open(model: Path | bytes, arm: Arm, options: Any) -> Any:
    import onnxruntime

    onnxruntime.set_default_logger_severity(QUIET)
    wanted, provider_options = PROVIDERS[arm.target.device], {}
    if arm.target.device is Device.CUDA:
        onnxruntime.preload_dlls()
        provider_options = {"use_tf32": str(int(arm.target.precision is Precision.TF32))}
    source = model if isinstance(model, bytes) else str(model)
    session = onnxruntime.InferenceSession(source, options, providers=[(wanted, provider_options)])
    if session.get_providers()[0] != wanted:
        raise RuntimeError(f"ONNX Runtime runs on {session.get_providers()[0]} instead of {wanted}")
    session.disable_fallback()
    return session
