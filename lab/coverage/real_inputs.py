"""Real inputs for packaged files, made of what lies at hand: scikit-learn's photographs, this project's own files and
lines of them set in a typeface, a package's recording of a voice.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shootout.contract import Array

from .packages import CORPUS, PIPECAT, fetch, unpack

ROOT = Path(__file__).parents[2]
RATE = 16_000
SPEECH = "pipecat/services/aws/nova_sonic/ready.wav"
SUFFIXES = {".py": "python", ".md": "markdown", ".toml": "toml", ".json": "json"}
PILLOW = ("pillow==13.0.0", "a625df9a2a5597fa5e5266e01aefc82604bb85d291e3547981e863560d75da6c")
"""What sets the text and reads the photographs; for CPython 3.11 on x86-64."""
LINES, LONGEST = 32, 20
PAGES = 16
FRAGMENT = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Real:
    """Real inputs of one file.

    Attributes:
        truth: what is true of each; None where nothing but the model's own FP32 says it.
        names: what the numbers of its outputs stand for.
    """

    samples: list[dict[str, Array]]
    truth: list[Any] | None = None
    names: Sequence[str] = ()


def show_pillow(wheels: Path) -> None:
    """Let Pillow be imported: the bench's alone, it is no dependency of the project."""
    place = wheels / "pillow"
    if not place.exists():
        with zipfile.ZipFile(fetch(PILLOW, wheels)) as packed:
            packed.extractall(place)
    sys.path.append(str(place))


def texts() -> list[str]:
    """Short lines of this project's own prose."""
    words = re.findall(r"[A-Za-z][A-Za-z ,]{8,18}[a-z]", (ROOT / "README.md").read_text())
    return [" ".join(one.split())[:LONGEST] for one in words[:LINES]]


def set_line(text: str, width: int, height: int = 48) -> Array:
    """A line of text, black on white, as bytes (height, width, 3)."""
    from PIL import Image, ImageDraw, ImageFont

    size = 32
    while (font := ImageFont.load_default(size)).getlength(text) > width - 8:
        size -= 1
    picture = Image.new("RGB", (width, height), "white")
    ImageDraw.Draw(picture).text((4, height / 2), text, "black", font, anchor="lm")
    return np.asarray(picture)


def _set_page(lines: Sequence[str], side: int = 320) -> Array:
    rows = [set_line(line, side, 30) for line in lines]
    return np.concatenate([*rows, np.full((side - 30 * len(rows), side, 3), 255, np.uint8)])


def photographs(side: int) -> list[Array]:
    """Squares out of scikit-learn's two photographs, as bytes (side, side, 3)."""
    from sklearn.datasets import load_sample_images

    pictures = load_sample_images().images
    return [
        np.ascontiguousarray(one[top : top + side, left : left + side])
        for one in pictures
        for top in range(0, one.shape[0] - side + 1, 64)
        for left in range(0, one.shape[1] - side + 1, 128)
    ]


def _signed(picture: Array) -> Array:
    """Bytes (height, width, 3) as one image in [-1, 1], channels first."""
    return np.ascontiguousarray(picture.transpose(2, 0, 1)[None] / np.float32(127.5) - 1, dtype=np.float32)


def lines(file: Path, wheels: Path) -> Real:
    """Lines as a recogniser gets them, and what they say, without spaces."""
    import onnx

    held = {one.key: one.value for one in onnx.load(str(file)).metadata_props}
    samples = [{"x": _signed(set_line(text, 320))} for text in texts()]
    return Real(samples=samples, truth=[re.sub(r"\s", "", one) for one in texts()], names=held["character"].split("\n"))


def turned_lines(file: Path, wheels: Path) -> Real:
    """Lines of which every second pair stands upside down: 1 for such a one."""
    turns = [index // 2 % 2 for index in range(len(texts()))]
    pictures = [np.rot90(set_line(text, 192), 2 * turn) for text, turn in zip(texts(), turns, strict=True)]
    return Real(samples=[{"x": _signed(one)} for one in pictures], truth=turns)


def pages(file: Path, wheels: Path) -> Real:
    """Pages of 2 to 9 lines, and how many each has."""
    counts = [2 + index // 2 % 8 for index in range(PAGES)]
    pictures = [_set_page(texts()[index : index + count]) for index, count in enumerate(counts)]
    return Real(samples=[{"x": _signed(one)} for one in pictures], truth=counts)


def turned_pages(file: Path, wheels: Path) -> Real:
    """Pages turned clockwise, and by how many degrees; named as the file names them."""
    import onnx

    held = {one.key: one.value for one in onnx.load(str(file)).metadata_props}
    mean, scale = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)
    turns = [index // 2 % 4 for index in range(2 * PAGES)]
    pictures = [np.rot90(_set_page(texts()[index : index + 7], 224), -turn) for index, turn in enumerate(turns)]
    images = [((one / np.float32(255) - mean) / scale).transpose(2, 0, 1)[None] for one in pictures]
    samples = [{"x": np.ascontiguousarray(one, np.float32)} for one in images]
    return Real(samples=samples, truth=[str(90 * turn) for turn in turns], names=held["character"].split())


def codes(file: Path, wheels: Path) -> Real:
    """Captchas' worth of letters, grey."""
    words = ["".join(one.split())[:6] for one in texts()]
    return Real(samples=[{"input1": _signed(set_line(one, 160, 64))[:, :1]} for one in words])


def contents(file: Path, wheels: Path) -> Real:
    """Files of this project as Magika is given them: their first and last 1,024 bytes, and what they are."""
    wheel = fetch(next(one.wheel for one in CORPUS if one.name == "magika.onnx"), wheels)
    with zipfile.ZipFile(wheel) as packed:
        names = json.loads(packed.read("magika/models/standard_v3_3/config.min.json"))["target_labels_space"]
    paths = [one for suffix in SUFFIXES for one in sorted(ROOT.glob(f"[dhrt]*/**/*{suffix}"))[:16]]
    samples = []
    for path in paths:
        content = path.read_bytes()
        first, last = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
        codes = [*first, *[256] * (1024 - len(first)), *[256] * (1024 - len(last)), *last]
        samples.append({"bytes": np.array([codes], np.int32)})
    return Real(samples=samples, truth=[SUFFIXES[path.suffix] for path in paths], names=names)


def scenes(file: Path, wheels: Path) -> Real:
    """Photographs as Open-NSFW gets them: blue first, less their mean."""
    mean = np.array([104, 117, 123], np.float32)
    return Real(samples=[{"input_0": (one[:, :, ::-1] - mean)[None].astype(np.float32)} for one in photographs(224)])


def marked(file: Path, wheels: Path) -> Real:
    """Photographs into which the package's writer wrote 32 bits, stored as bytes, and these bits."""
    import onnxruntime

    writer = next(one for one in CORPUS if one.name == "rivagan_encoder.onnx")
    session = onnxruntime.InferenceSession(unpack(writer, file.parent, wheels), providers=["CPUExecutionProvider"])
    rng, samples, bits = np.random.default_rng(0), [], []
    for picture in photographs(128):
        bits.append(tuple(rng.integers(0, 2, 32).tolist()))
        asked = {"frame": _signed(picture)[:, :, None], "data": np.array([bits[-1]], np.float32)}
        stored = ((session.run(None, asked)[0].clip(-1, 1) + 1) * 127.5).astype(np.uint8)
        samples.append({"frame": stored / np.float32(127.5) - 1})
    return Real(samples=samples, truth=bits)


def _speech(wheels: Path) -> Array:
    """What a voice says in a package's own recording, in [-1, 1] at 16 kHz."""
    from scipy.io import wavfile
    from scipy.signal import resample_poly

    with zipfile.ZipFile(fetch(PIPECAT, wheels)) as packed, packed.open(SPEECH) as sound:
        rate, samples = wavfile.read(sound)
    mono = samples.reshape(len(samples), -1)[:, 0]
    return np.asarray(resample_poly(mono / 32768, RATE, rate), dtype=np.float32)


def voiced(file: Path, wheels: Path) -> Real:
    """Speech and faint noise in pieces, each with the state that the pieces before it left."""
    import onnxruntime

    rng, speech = np.random.default_rng(0), _speech(wheels)
    noise = rng.standard_normal(RATE // 2).astype(np.float32) * np.float32(0.003)
    sound = np.concatenate([noise, speech, noise, speech * np.float32(0.3), noise])
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    samples, state = list[dict[str, Array]](), np.zeros((2, 1, 128), np.float32)
    for first in range(0, len(sound) - FRAGMENT, FRAGMENT):
        samples.append({"input": sound[None, first : first + FRAGMENT], "state": state})
        state = session.run(None, samples[-1])[1]
    return Real(samples=samples)


def graded(file: Path, wheels: Path) -> Real:
    """Nine seconds of the same speech under more and more noise."""
    rng, speech = np.random.default_rng(0), np.resize(_speech(wheels), 144_160)
    noisy = [speech + level * rng.standard_normal(speech.size) for level in np.geomspace(1e-4, 0.3, 16)]
    return Real(samples=[{"input_1": one.astype(np.float32)[None]} for one in noisy])
