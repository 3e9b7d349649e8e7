"""Make what the pages of docs/recipes start from: small models and data, seeded, made in seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from lab.task_files import list_sentences
from lab.task_nets import DIGIT, SIDE, STRIDE, Detector, detection_loss, draw_scenes, find_cells, train_once
from shootout.core.contract import Array

LEARNED = 500
"""The scanned digits that a classifier learns from; the others are the labeled rows of a recipe."""
SECONDS_A_DAY = 86_400
SCENES, QUERIES = 800, 400
"""The pictures of the detector's data set, and the texts of the encoder's."""
TOKENS, PAIRS = 128, 24
"""The longest text that the encoder reads, and the texts of a step of its training."""
CITIES = {"Bern": 9_000, "Graz": 4_200, "Lyon": 4_800, "Porto": 3_600, "Turin": 2_400}
"""The price of a square meter."""
WORTH = {
    "balcony": 0.05,
    "garden": 0.1,
    "noisy": -0.08,
    "quiet": 0.04,
    "renovated": 0.12,
    "dark": -0.06,
    "garage": 0.05,
}
"""The price that a word of a flat's description adds."""


def make_service(folder: Path) -> None:
    """Write a classifier."""
    rows, classes = _digits()
    write_classifier(folder / "model.onnx", rows, classes, width=1_024)


def make_int8(folder: Path) -> None:
    """Write a wide classifier that INT8 breaks, and a small one that INT8 slows down.

    The wide one also reads the second of the day at which a digit was scanned. That column's range is 5,000 times that
    of a pixel, so one scale for all columns rounds the pixels away.
    """
    pixels, classes = _digits()
    seconds = np.random.default_rng(0).uniform(0, SECONDS_A_DAY, (len(pixels), 1)).astype(np.float32)
    rows = np.concatenate([pixels, seconds], axis=1)
    write_classifier(folder / "wide.onnx", rows, classes, width=1_024)
    write_classifier(folder / "small.onnx", pixels, classes, width=64)
    write_labeled(folder, rows, classes)


def make_ci(folder: Path) -> None:
    """Write a classifier, one that learned from twice the rows, and labeled rows."""
    rows, classes = _digits()
    write_classifier(folder / "model.onnx", rows, classes, width=256, learned=LEARNED // 2)
    write_classifier(folder / "new.onnx", rows, classes, width=256)
    write_labeled(folder, rows, classes)


def make_variants(folder: Path) -> None:
    """Write one classifier in the files that a model's folder on a hub has, one of them cut off."""
    import onnx
    from onnxruntime.quantization import quantize_dynamic
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from onnxruntime.transformers.float16 import convert_float_to_float16

    rows, classes = _digits()
    (folder / "onnx").mkdir()
    plain = folder / "onnx" / "model.onnx"
    write_classifier(plain, rows, classes, width=1_024)
    write_labeled(folder, rows, classes)
    onnx.save(convert_float_to_float16(onnx.load(plain), keep_io_types=True), plain.with_stem("model_fp16"))
    quantize_dynamic(plain, plain.with_stem("model_quantized"))
    few = MatMulNBitsQuantizer(onnx.load(plain), block_size=32, is_symmetric=True)
    few.process()
    few.model.save_model_to_file(str(plain.with_stem("model_q4")))
    plain.with_stem("model_bnb4").write_bytes(plain.read_bytes()[:1_000])


def make_trees(folder: Path) -> None:
    """Fit a pipeline to columns of numbers, categories and texts of flats, and write it and a table of others."""
    import joblib
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    rng, count = np.random.default_rng(0), 4_000
    area, rooms = rng.uniform(20, 160, count).round(1), rng.integers(1, 6, count)
    city = rng.choice([*CITIES], count)
    words = rng.choice([*WORTH], (count, 4))
    worth = np.array([sum(WORTH[word] for word in line) for line in words])
    price = area * np.array([CITIES[one] for one in city]) * (1 + worth) + 9_000 * rooms + rng.normal(0, 9_000, count)
    told = [" ".join(line) for line in words]
    table = pd.DataFrame({"area": area, "rooms": rooms, "city": city, "description": told, "price": price.round()})
    learned, others = table[: count // 2], table[count // 2 :]
    columns = ColumnTransformer(
        [
            ("city", OneHotEncoder(handle_unknown="ignore"), ["city"]),
            ("description", TfidfVectorizer(), "description"),
            ("numbers", "passthrough", ["area", "rooms"]),
        ]
    )
    forest = make_pipeline(columns, RandomForestRegressor(50, max_depth=10, random_state=0, n_jobs=1))
    joblib.dump(forest.fit(learned.drop(columns="price"), learned["price"]), folder / "forest.joblib")
    others.to_parquet(folder / "table.parquet", index=False)


class YoloHead(Detector):
    """A detector of digits with the raw head of YOLO: in each cell a box's middle and size, and ten scores."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raw = self.head(self.body(x.mean(1, keepdim=True))).flatten(2).transpose(1, 2)
        if self.training:
            return raw  # type: ignore[no-any-return] # untyped modules
        middle = self.centers + STRIDE * torch.tanh(raw[:, :, :2])  # type: ignore[operator] # a buffer
        size = DIGIT * torch.exp(raw[:, :, 2:4].clamp(-1, 1))
        scores = torch.sigmoid(raw[:, :, 4:5]) * torch.softmax(raw[:, :, 5:], -1)
        return torch.cat([middle, size, scores], -1).transpose(1, 2)


def make_detector(folder: Path) -> None:
    """Train a detector of digits with YOLO's head, and draw a data set as YOLO reads it."""
    import onnx
    from PIL import Image

    def draw(rng: np.random.Generator, rows: int) -> tuple[list[Array], Array]:
        scenes, _, boxes = draw_scenes(rng, rows, 0)
        return [np.repeat(scenes, 3, 1)], find_cells(boxes)

    torch.manual_seed(0)
    file = folder / "best.onnx"
    case = {"images": np.zeros((2, 3, SIDE, SIDE), np.float32)}, ["output0"]
    train_once(file, YoloHead(), case, draw, detection_loss, 400)
    model = onnx.load(file)
    names = {number: str(number) for number in range(10)}
    facts = {"task": "detect", "names": str(names), "imgsz": str([SIDE, SIDE]), "stride": str(STRIDE)}
    onnx.helper.set_model_props(model, facts)
    onnx.save(model, file)
    for part in ("images", "labels"):
        (folder / part / "val").mkdir(parents=True)
    scenes, _, boxes = draw_scenes(np.random.default_rng(2), SCENES, 1)
    for number, (scene, mine) in enumerate(zip(scenes, boxes, strict=True)):
        pixels = Image.fromarray((255 * scene[0].clip(0, 1)).astype(np.uint8)).convert("RGB")
        pixels.resize((2 * SIDE, 2 * SIDE)).save(folder / f"images/val/{number:04}.png")
        lines = (
            f"{kind} {(left + right) / 2 / SIDE} {(top + bottom) / 2 / SIDE} {DIGIT / SIDE} {DIGIT / SIDE}\n"
            for left, top, right, bottom, _, kind in mine
        )
        (folder / f"labels/val/{number:04}.txt").write_text("".join(lines))
    (folder / "data.yaml").write_text(f"path: .\nval: images/val\nnames: {[*names.values()]}\n")


def make_texts(folder: Path) -> None:
    """Train a small sentence encoder on halves of sentences, and write it as sentence-transformers does, with texts."""
    from transformers import BertConfig, BertModel

    texts = list(list_sentences())
    place = folder / "my-minilm"
    tokenizer = _write_tokenizer(place, texts)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    sizes: dict[str, Any] = {
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 512,
    }
    net = BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=TOKENS, **sizes))

    def embed(some: list[str]) -> torch.Tensor:
        coded = tokenizer(some, padding=True, truncation=True, return_tensors="pt")
        mask = coded["attention_mask"].unsqueeze(-1)
        hidden = net(coded["input_ids"], attention_mask=coded["attention_mask"]).last_hidden_state
        return nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)

    optimizer, rng, pairs = torch.optim.Adam(net.parameters(), lr=5e-4), np.random.default_rng(0), torch.arange(PAIRS)
    for _ in range(80):
        words = [texts[row].split() for row in rng.integers(0, len(texts), PAIRS)]
        even, odd = (embed([" ".join(one[part::2]) for one in words]) for part in (0, 1))
        optimizer.zero_grad()
        nn.functional.cross_entropy(20 * even @ odd.T, pairs).backward()  # type: ignore[no-untyped-call] # torch's own
        optimizer.step()
    net.eval().save_pretrained(place)  # type: ignore[no-untyped-call] # transformers' own
    kinds = ("base.modules.transformer.Transformer", "sentence_transformer.modules.pooling.Pooling")
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.{kind}"}
        for number, (path, kind) in enumerate(zip(("", "1_Pooling"), kinds, strict=True))
    ]
    (place / "modules.json").write_text(json.dumps(modules))
    (place / "1_Pooling").mkdir()
    pooling = {"embedding_dimension": sizes["hidden_size"], "pooling_mode": "mean"}
    (place / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "queries.txt").write_text("".join(f"{text}\n" for text in texts[:QUERIES]))


def _write_tokenizer(place: Path, texts: list[str]) -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=4_000, special_tokens=[*special.values()])
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    whole = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=TOKENS, **special)  # type: ignore[no-untyped-call] # its own
    whole.save_pretrained(place)
    return whole


def _digits() -> tuple[Array, Array]:
    """Return scikit-learn's scanned digits, rows of 64 pixels from 0 to 16, and what they are."""
    found = load_digits()
    return found.data.astype(np.float32), found.target


def write_labeled(folder: Path, rows: Array, classes: Array) -> None:
    """Write the rows that no classifier has learned from, and their classes."""
    np.savez(folder / "rows.npz", rows=rows[LEARNED:])
    np.savez(folder / "labels.npz", labels=classes[LEARNED:])


class Product(nn.Module):
    """A layer as a MatMul and an Add, which is what the tools that quantize files look for."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(layer.weight.detach().T.contiguous()), layer.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


def write_classifier(file: Path, rows: Array, classes: Array, *, width: int, learned: int = LEARNED) -> None:
    """Train three layers on the first rows, and write them as an ONNX file that takes rows as they are."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # several wait for each other where other programs run
    mean, spread = torch.from_numpy(rows.mean(0)), torch.from_numpy(rows.std(0) + 1)
    known, right = (torch.from_numpy(rows[:learned]) - mean) / spread, torch.from_numpy(classes[:learned])
    first = nn.Linear(rows.shape[1], width)
    net = nn.Sequential(first, nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(200):
        some = torch.randint(learned, (64,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(known[some]), right[some]).backward()  # type: ignore[no-untyped-call] # torch's own
        optimizer.step()
    with torch.no_grad():
        first.weight.div_(spread)
        first.bias.sub_(first.weight @ mean)
    layers = (Product(layer) if isinstance(layer, nn.Linear) else layer for layer in net)
    export(nn.Sequential(*layers), torch.from_numpy(rows[:1]), file, ("rows", "scores"))


def export(net: nn.Module, example: torch.Tensor, file: Path, names: tuple[str, str]) -> None:
    """Write a net of one input and one output as an ONNX file with a free batch."""
    torch.onnx.export(
        net.eval(),
        (example,),
        file,
        dynamo=True,
        external_data=False,
        verbose=False,
        input_names=[names[0]],
        output_names=[names[1]],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
    )
