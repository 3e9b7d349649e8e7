"""Check ONNX models that this project did not make: do the file path, ONNX Runtime and NumPy take them, and do they
agree?

They come from the installed `onnx` package: three sets of small networks that other frameworks exported, and some of
its operator cases. Each is written to a file and goes the way of a user's own file, with the case's own inputs. Each
backend then runs all of them in one worker, through the worker's own commands, beside two references: the exported
model's reference outputs, and the outputs that the package expects.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lab.common import Bench, Tables
from shootout.core.adapter import Built
from shootout.core.constants import BUILD_TIMEOUT_S, LOAD_TIMEOUT_S
from shootout.core.contract import Arm, Array, Arrays, Device, Precision, Target
from shootout.core.errors import ArmFailed, ShootoutError, SkippedArm
from shootout.core.exported import fidelity
from shootout.core.exported.client import obtain_all
from shootout.core.exported.model import REFERENCE, ExportedModel, save_sets
from shootout.core.exported.request import Request
from shootout.core.host import environment
from shootout.core.host.placement import Placement, child_environment
from shootout.core.host.store import cache_folder
from shootout.core.messages import Verified
from shootout.core.worker.process import WorkerProcess

SETS = ("simple", "pytorch-converted", "pytorch-operator")
NODE = "node"
NODE_CASES = (
    r"(attention_4d|attention_3d_gqa|attention_4d_causal|attention_4d_softcap)(_expanded)?",
    r"(layer_normalization_4d_axis1|group_normalization_example|rms_normalization_4d_axis1)(_expanded)?",
    r"(gelu_default_1|gelu_tanh_1|softmax_axis_1|logsoftmax_axis_1|swish|mish)(_expanded)?",
    r"lstm_defaults|lstm_with_peepholes|gru_defaults|gru_seq_length|simple_rnn_defaults",
    r"conv_with_strides_padding|convtranspose_group_2|convinteger_with_padding|qlinearconv|deform_conv_with_mask_bias",
    r"gemm_all_attributes|matmul_3d|matmulinteger|qlinearmatmul_2D_uint8_float32|einsum_batch_matmul",
    r"dynamicquantizelinear(_expanded)?|quantizelinear_axis|dequantizelinear_axis",
    r"resize_upsample_sizes_nearest|resize_upsample_scales_cubic|gridsample_bilinear|roialign_aligned_true",
    r"top_k|gather_elements_0|scatter_elements_with_axis|nonmaxsuppression_limit_output_size|cumsum_2d_axis_0",
    r"if|loop11|scan9_sum|batchnorm_example|instancenorm_example|lrn|rotary_embedding(_expanded)?",
)
"""The operator cases that are tried, of 1,884: recurrent, attention, convolution, quantized, normalization, control
flow; some as the functions they expand into, which are small graphs of many operators.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model with its inputs and the outputs that the package expects, one of each per data set."""

    source: str
    name: str
    model: Any
    inputs: tuple[tuple[Any, ...], ...]
    outputs: tuple[tuple[Any, ...], ...]


def stored_cases() -> Iterator[Case]:
    """Return the three sets of whole models that the package carries as files."""
    import onnx.backend.test
    from onnx import numpy_helper

    def read(files: Sequence[Path], kind: str) -> tuple[Any, ...]:
        wanted = sorted((file for file in files if file.name.startswith(kind)), key=_number_of)
        tensors = [onnx.TensorProto.FromString(file.read_bytes()) for file in wanted]
        return tuple(numpy_helper.to_array(tensor) if tensor.data_type else None for tensor in tensors)

    data = Path(onnx.backend.test.__file__).parent / "data"
    for source in SETS:
        for folder in sorted(entry for entry in (data / source).iterdir() if entry.is_dir()):
            sets = [list(found.iterdir()) for found in sorted(folder.glob("test_data_set_*"), key=_number_of)]
            yield Case(
                source=source,
                name=folder.name,
                model=onnx.load(folder / "model.onnx"),
                inputs=tuple(read(files, "input") for files in sets),
                outputs=tuple(read(files, "output") for files in sets),
            )


def node_cases(*, every: bool) -> Iterator[Case]:
    """Yield all operator cases, or the chosen ones; importing them makes the package generate all (seconds)."""
    from onnx.backend.test.case.node import collect_testcases

    wanted = re.compile(f"test_({'|'.join(NODE_CASES)})")
    for case in collect_testcases(None):
        if case.data_sets and (every or wanted.fullmatch(case.name)):
            inputs, outputs = zip(*case.data_sets, strict=True)
            yield Case(
                source=NODE,
                name=case.name,
                model=case.model,
                inputs=tuple(tuple(one) for one in inputs),
                outputs=tuple(tuple(one) for one in outputs),
            )


def _number_of(path: Path) -> int:
    return int(re.sub(r"\D", "", path.stem) or 0)


BACKENDS = ("onnxruntime", "numpy", "openvino")
BUILDERS = {"tensorrt": Target(backend="tensorrt", device=Device.CUDA)}
"""Backends that can only build here: their answer is `AGREES` for an engine whose layers are what was asked for."""
AGREES = "agrees"
AT_ONCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A case as an exported model, and the same exported model with the package's outputs in the reference's place."""

    exported: ExportedModel
    expected: ExportedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one case went: `file` is `AGREES` or why it is no exported model; then by backend `AGREES` or why not."""

    source: str
    name: str
    file: str
    backends: Mapping[str, str]

    @property
    def agrees(self) -> bool:
        """Tell whether every backend ran it and all agree with both references."""
        return all(answer == AGREES for answer in (self.file, *self.backends.values()))


def run(
    cases: Sequence[Case], folder: Path, placement: Placement, builders: Sequence[str] = tuple(BUILDERS)
) -> list[Result]:
    """Take every case and run it on every backend.

    Args:
        folder: empty; for the files, the built artifacts and the workers' output.
        builders: of `BUILDERS`, those that build every case too.
    """
    taken = take(cases, folder)
    exported_models = {name: one for name, one in taken.items() if isinstance(one, Taken)}
    answers = {backend: _ask_backend(backend, exported_models, folder, placement) for backend in (*BACKENDS, *builders)}
    return [
        Result(
            source=case.source,
            name=case.name,
            file=AGREES if isinstance(one := taken[case.name], Taken) else one,
            backends={backend: found[case.name] for backend, found in answers.items() if case.name in found},
        )
        for case in cases
    ]


def take(cases: Sequence[Case], folder: Path) -> dict[str, Taken | str]:
    """Export each case in one process for all; return the exported model, or the reason why there is none."""
    asked = {case.name: _make_request(case, folder / "files" / case.name) for case in cases}
    requests = {name: found for name, found in asked.items() if isinstance(found, Request)}
    exported_models = dict(zip(requests, obtain_all(list(requests.values())), strict=True))
    found: dict[str, Taken | str] = {}
    for case in cases:
        answer = exported_models.get(case.name, asked[case.name])
        found[case.name] = (
            _expected_model(case, answer, folder / "expected" / case.name)
            if isinstance(answer, ExportedModel)
            else told(answer, folder)
        )
    return found


def _make_request(case: Case, folder: Path) -> Request | str:
    """Write the case as a file and an .npz; return the request, or why its inputs can't be in an .npz."""
    import onnx

    folder.mkdir(parents=True)
    weights = {tensor.name for tensor in case.model.graph.initializer}
    infos = [info for info in case.model.graph.input if info.name not in weights]
    for index, info in enumerate(infos):
        values = [one[index] if index < len(one) else None for one in case.inputs]
        if not all(
            isinstance(value, np.ndarray | np.generic) and np.asarray(value).dtype.kind in "fiub" for value in values
        ):
            kind = info.type.WhichOneof("value") or "value of unknown type"
            what = kind.removesuffix("_type") if kind != "tensor_type" else "tensor that NumPy's file format can't hold"
            return f"input {info.name!r} is a {what}"
    onnx.save(case.model, folder / "model.onnx")
    sets = [dict(zip([info.name for info in infos], map(np.asarray, one), strict=False)) for one in case.inputs]
    npz = None
    if infos:
        npz = folder / "inputs.npz"
        stacks = {name: np.stack([one[name] for one in sets]) for name in sets[0]}
        np.savez(npz, **stacks)  # type: ignore[arg-type] # the stub takes the arrays for allow_pickle
    return Request(model=str(folder / "model.onnx"), inputs_npz=npz, parameters=_sizes_of_axes(infos, sets))


def _sizes_of_axes(infos: Sequence[Any], sets: Sequence[Arrays]) -> dict[str, int]:
    """Return the sizes that the case's own inputs give to the file's symbolic axes."""
    return {
        dim.dim_param or f"{info.name}.{axis}": sets[0][info.name].shape[axis]
        for info in infos
        for axis, dim in enumerate(info.type.tensor_type.shape.dim)
        if dim.dim_value == 0
    }


def _expected_model(case: Case, exported: ExportedModel, folder: Path) -> Taken | str:
    """Return the exported model beside its twin with the package's outputs, if the reference outputs agree with
    those.
    """
    names = [spec.name for spec in exported.outputs]
    sets = [dict(zip(names, map(_as_float64, one), strict=True)) for one in case.outputs]
    reference_outputs = exported.reference_outputs()
    if [one[name].shape for one in sets for name in names] != [
        one[name].shape for one in reference_outputs for name in names
    ]:
        return "the reference's outputs have other shapes than the package expects"
    if why := fidelity.gate(fidelity.compare(reference_outputs, sets), exported.error_bounds[Precision.FP32]):
        return f"the reference outputs beside the package's outputs: {why}"
    shutil.copytree(exported.folder, folder)
    save_sets(folder / REFERENCE, sets)
    return Taken(exported=exported, expected=replace(exported, folder=folder))


def _as_float64(value: Any) -> Array:
    array = np.asarray(value)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def answers_of(asked: Mapping[str, Callable[[WorkerProcess], str]], log: Path, placement: Placement) -> dict[str, str]:
    """Return one worker's answer to each case, or why there is none; a worker that dies is replaced for the next."""
    found: dict[str, str] = {}
    worker: WorkerProcess | None = None
    for name, ask in asked.items():
        worker = worker or WorkerProcess(child_environment(placement.threads, 0), placement.arms, log)
        try:
            found[name] = ask(worker)
        except (ArmFailed, SkippedArm) as error:
            found[name] = told(error, log.parent)
            if "raised" not in str(error):
                worker.kill()
                worker = None
    if worker:
        worker.kill()
    return found


def _ask_backend(backend: str, taken: Mapping[str, Taken], folder: Path, placement: Placement) -> dict[str, str]:
    """Return a backend's answer to every case."""
    built = folder / "built" / backend
    asked = {name: partial(_ask_worker, backend=backend, taken=one, folder=built / name) for name, one in taken.items()}
    return answers_of(asked, folder / f"{backend}.log", placement)


def _ask_worker(worker: WorkerProcess, backend: str, taken: Taken, folder: Path) -> str:
    """Return `AGREES`, or which reference it disagrees with, and how far."""
    folder.mkdir(parents=True)
    target = BUILDERS.get(backend, Target(backend=backend))
    arm = Arm(target=target, model=taken.exported.model, parameters=taken.exported.parameters)
    facts, _ = worker.ask("build", BUILD_TIMEOUT_S, exported=taken.exported, arm=arm, folder=folder)
    if backend in BUILDERS:
        return AGREES
    for reference, exported in (("the reference outputs", taken.exported), ("the package's outputs", taken.expected)):
        worker.ask("load", LOAD_TIMEOUT_S, built=Built(arm=arm, exported=exported, folder=folder, facts=facts))
        verified: Verified = worker.ask("verify", LOAD_TIMEOUT_S)
        worker.ask("close", LOAD_TIMEOUT_S)
        if verified.fault:
            return f"beside {reference}: {verified.fault}"
    return AGREES


def told(why: ShootoutError | Request | str, folder: Path) -> str:
    """Write a reason in one line, without this run's folders in it."""
    text = str(why).replace(f"{folder}/", "").replace(f"{cache_folder()}/", "")
    return " ".join(re.sub(r"making-\w+/\w+/", "", text).split())


def figures(bench: Bench) -> Tables:
    """Take the package's whole models and some of its operator cases."""
    return _take_all(bench, [] if bench.quick else list(node_cases(every=False)))


def all_figures(bench: Bench) -> Tables:
    """Take the package's whole models and all operator cases."""
    return _take_all(bench, list(node_cases(every=True)))


def _take_all(bench: Bench, nodes: Sequence[Case]) -> Tables:
    """Return the counts for each set of models, and every case that not all agree on, with the reason.

    A part of the cases at a time, so that the files of all never lie there at once.
    """
    cases, results = [*stored_cases(), *nodes], []
    for first in range(0, len(cases), AT_ONCE):
        place = bench.folder / "onnx" / str(first)
        place.mkdir(parents=True)
        results += run(cases[first : first + AT_ONCE], place, bench.placement)
        shutil.rmtree(place)
    sources = list(dict.fromkeys(result.source for result in results))
    counts = [_count_results(source, [one for one in results if one.source == source]) for source in sources]
    return {
        f"onnx {environment.libraries()['onnx']}: models from outside": [*counts, _count_results("all", results)],
        "not taken, or not agreed on": [
            {"set": one.source, "case": one.name, "at": at, "reason": why[:300]}
            for one in results
            for at, why in {"file": one.file, **one.backends}.items()
            if why != AGREES
        ],
    }


def _count_results(source: str, results: Sequence[Result]) -> dict[str, Any]:
    row: dict[str, Any] = {"set": source, "models": len(results)}
    row["taken as a file"] = sum(one.file == AGREES for one in results)
    for backend in (*BACKENDS, *BUILDERS):
        verb = "builds" if backend in BUILDERS else "agrees"
        row[f"{backend} {verb}"] = sum(one.backends.get(backend) == AGREES for one in results)
    return {**row, "all agree": sum(one.agrees for one in results)}
