"""ONNX Runtime's sessions and graphs: how they are opened, optimised once, and where their nodes run.

Kept apart from the session protocol, because "which provider" has a trap of its own: silent fall-back to the CPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shootout.backends._onnxruntime import providers, quantize
from shootout.contract import Arm
from shootout.exported.workload import is_product

MODEL, ENGINES = "model.onnx", "engines"
"""In a build's folder: the graph that sessions run, and what TensorRT built of it."""
QUIET = 3
"""Errors only."""
_UNINFERRED = "InferenceError"
"""In what ONNX Runtime says where a graph's own sizes contradict each other."""
SHOWN = 3
"""So many nodes are named in a message."""


def optimise(source: Path, arm: Arm, folder: Path, without: str = "") -> Path:
    """Write the graph that ONNX Runtime makes of `source`, every optimisation on but `without`; returns its path.

    A model with branches for inputs of several sizes may not fit any one of them: a branch that the fixed sizes never
    take breaks its shape inference. Such a one is optimised with free sizes, as its own users load it.
    """
    try:
        return _optimise(source, arm, folder, without)
    except Exception as error:
        if _UNINFERRED not in str(error) or not (loose := _loosened(source, folder)):
            raise
    try:
        return _optimise(loose, arm, folder, without)
    finally:
        loose.unlink()


def _optimise(source: Path, arm: Arm, folder: Path, without: str) -> Path:
    from shootout.exported import onnx_files

    options, path = _options(arm), folder / MODEL
    if without:
        options.add_session_config_entry("optimization.disable_specified_optimizers", without)
    options.optimized_model_filepath = str(path)
    if onnx_files.is_big(source):
        prefix = "session.optimized_model_external_initializers"
        options.add_session_config_entry(f"{prefix}_file_name", f"{path.name}.data")
        options.add_session_config_entry(f"{prefix}_min_size_in_bytes", "1024")
    _open(source, arm, options, providers.given(arm, folder / ENGINES, graph=False))
    return path


def _loosened(source: Path, folder: Path) -> Path | None:
    """The model in `folder`, with inputs of any size; None where it has no branches, or its weights beside it."""
    import onnx

    from shootout.exported import onnx_axes, onnx_files

    if onnx_files.is_big(source):
        return None
    model = onnx.load(source)
    if not any(node.op_type == "If" for node in model.graph.node):
        return None
    for info in onnx_axes.true_inputs(model):
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            dim.dim_param = f"{info.name}.{axis}"
    del model.graph.value_info[:]
    for info in model.graph.output:
        info.type.tensor_type.ClearField("shape")
    path = folder / "loosened.onnx"
    onnx.save(model, path)
    return path


def open_session(
    model: Path | bytes, arm: Arm, profile: Path | None = None, *, graph: bool = False, stream: int | None = None
) -> Any:
    """A session on a graph as it is, which records the provider of every node.

    Args:
        model: its path, or all of it.
        arm: whose provider and options it gets.
        profile: write a profile, of this name and a time.
        graph: capture a CUDA graph for each binding that runs.
        stream: the CUDA stream that its providers compute on; None: one of their own.

    Raises:
        RuntimeError: the arm's provider couldn't be loaded, can't take the graph, or has no memory for it; or it leaves
            a product to the CPU.
    """
    options = _options(arm, optimised=not providers.names_plugin(arm.target))
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if profile:
        options.enable_profiling, options.profile_file_prefix = True, str(profile)
    engines = Path() if isinstance(model, bytes) else model.parent / ENGINES
    session = _open(model, arm, options, providers.given(arm, engines, graph=graph, stream=stream))
    if providers.of(arm.target) != providers.CPU:
        _require_products_off_cpu(session)
    return session


def fallbacks(session: Any, provider: str) -> tuple[str, ...]:
    """Nodes that this session gave to another provider than the one that was asked for."""
    subgraphs = [part for part in session.get_provider_graph_assignment_info() if part.ep_name != provider]
    return tuple(f"{node.op_type} {node.name!r} on {part.ep_name}" for part in subgraphs for node in part.get_nodes())


def _require_products_off_cpu(session: Any) -> None:
    """Refuse a session whose products, or some of them, the CPU computes.

    Other nodes it may: ONNX Runtime gives chains that compute shapes to the CPU on purpose, though CUDA has kernels for
    them (microsoft/onnxruntime pull request 13590), and `fallbacks` names each.
    """
    parts = [part for part in session.get_provider_graph_assignment_info() if part.ep_name == providers.CPU]
    names = [f"{node.op_type} {node.name!r}" for part in parts for node in part.get_nodes() if is_product(node.op_type)]
    if names:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        raise RuntimeError(f"ONNX Runtime leaves products to the CPU: {', '.join(names[:SHOWN])}{more}")


def settings_of(arm: Arm, *, optimised: bool = False) -> dict[str, Any]:
    """What an arm's sessions are told, by the names of ONNX Runtime's `SessionOptions`; its configuration `entries`.

    Args:
        optimised: the graph is run as it is.
    """
    own = {name: value for name, value in arm.options.items() if not providers.is_provider_option(name)}
    threads = {name: int(own.pop(name)) for name in providers.THREADS if name in own}
    own.pop(quantize.BLOCK_SIZE, None)
    return {
        "log_severity_level": QUIET,
        "execution_mode": "ORT_SEQUENTIAL",
        "graph_optimization_level": "ORT_DISABLE_ALL" if optimised else "ORT_ENABLE_ALL",
        "intra_op_num_threads": arm.threads,
        "inter_op_num_threads": 1,
        **threads,
        "entries": own,
    }


def _options(arm: Arm, *, optimised: bool = False) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    settings = settings_of(arm, optimised=optimised)
    for name, value in settings.pop("entries").items():
        options.add_session_config_entry(name, value)
    for name, value in settings.items():
        kind = type(getattr(options, name))  # of some an enumeration
        setattr(options, name, getattr(kind, value) if isinstance(value, str) else value)
    return options


def _open(model: Path | bytes, arm: Arm, options: Any, given: list[tuple[str, dict[str, str]]]) -> Any:
    """A session that has the arm's provider; by itself, ONNX Runtime would print an error and take the CPU."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(QUIET)
    providers.prepare(arm.target)
    wanted, source = given[0][0], model if isinstance(model, bytes) else str(model)
    if providers.names_plugin(arm.target):
        providers.register_plugin(arm.target, arm.options)
    how: dict[str, Any] = {"providers": given}
    if providers.names_plugin(arm.target) or wanted not in onnxruntime.get_available_providers():
        for name, settings in given:
            providers.attach_plugin(options, name, arm.target.device, settings)
        how = {}
    try:
        session = onnxruntime.InferenceSession(source, options, enable_fallback=0, **how)
    except Exception as error:
        if why := providers.load_fault(wanted):
            raise RuntimeError(f"{wanted} can't be loaded: {why}") from error
        raise
    if session.get_providers()[0] != wanted:
        why = providers.load_fault(wanted) or "ONNX Runtime gives no reason"
        raise RuntimeError(f"ONNX Runtime runs on {session.get_providers()[0]} instead of {wanted}: {why}")
    return session
