"""Train small nets of five kinds that people ship, on digits and temperatures that packages ship.

Each takes seconds, is seeded, and becomes an ONNX file with a free batch.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from lab import task_metrics
from lab.packages import fetch
from lab.task_case import Case, measure_boxes, measure_iou, measure_text, read_ctc
from shootout.core.contract import Array, Arrays

ROWS, MANY_ROWS = 1_200, 1_600
"""The rows of a case; every other one is scored. Errors have no upper end, so they take more rows."""
BATCH = 16
TEMPERATURES = ("vega_datasets==0.9.0", "3d7c63917be6ca9b154b565f4779a31fedce57b01b5b9d99d8a34a7608062a1d")
SIDE, DIGIT, STRIDE = 32, 8, 4
"""A scene's side, a digit's in it, and a detector's step, in pixels."""
PAST_H, AHEAD_H = 72, 24
SYMBOLS, WIDTH = 5, 80
DIGITS_SOURCE = "scikit-learn's 1,797 scanned digits"


def train_once(
    file: Path,
    net: nn.Module,
    case: tuple[Arrays, list[str]],
    draw: Callable[[np.random.Generator, int], tuple[list[Array], Array]],
    loss: Callable[[Any, Tensor], Tensor],
    steps: int,
) -> Path:
    """Train a net on fresh batches and write it as an ONNX file with a free batch, unless it is there.

    Args:
        case: inputs by name, and the outputs' names.
        draw: makes inputs and targets of so many rows.
        loss: of outputs and targets.
    """
    if file.exists():
        return file
    torch.set_num_threads(1)  # several wait for each other where other programs run
    rng, optimizer = np.random.default_rng(1), torch.optim.Adam(net.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    net.train()
    for _ in range(steps):
        arrays, target = draw(rng, BATCH)
        optimizer.zero_grad()
        loss(net(*map(torch.from_numpy, arrays)), torch.from_numpy(target)).backward()  # type: ignore[no-untyped-call] # torch's own
        optimizer.step()
        schedule.step()
    (inputs, outputs), batch = case, torch.export.Dim("batch")
    torch.onnx.export(
        net.eval(),
        tuple(torch.from_numpy(array[:2]) for array in inputs.values()),
        file,
        dynamo=True,
        external_data=False,
        verbose=False,
        input_names=list(inputs),
        output_names=outputs,
        dynamic_shapes=tuple({0: batch} for _ in inputs),
    )
    return file


def _digits(part: int) -> tuple[Array, Array]:
    """Return scanned digits (count, 8, 8) in [0, 1] and what they are: four of five to train (0), the rest to try."""
    found = load_digits()
    keep = np.arange(len(found.target)) % 5 == 4
    keep = keep if part else ~keep
    return (found.images[keep] / 16).astype(np.float32), found.target[keep]


def draw_scenes(rng: np.random.Generator, rows: int, part: int) -> tuple[Array, Array, list[list[list[float]]]]:
    """Draw scenes of one to four digits on noise: images, masks, and boxes as (x1, y1, x2, y2, 1, class)."""
    images, classes = _digits(part)
    scenes = rng.uniform(0, 0.35, (rows, 1, SIDE, SIDE)).astype(np.float32)
    masks = np.zeros((rows, 1, SIDE, SIDE), np.uint8)
    boxes: list[list[list[float]]] = [[] for _ in range(rows)]
    for row in range(rows):
        for quarter in rng.permutation(4)[: rng.integers(1, 5)]:
            which = int(rng.integers(len(images)))
            shape = images[which] * rng.uniform(0.6, 1.0)
            top, left = (int(16 * half + rng.integers(0, 9)) for half in divmod(int(quarter), 2))
            place = (row, 0, slice(top, top + DIGIT), slice(left, left + DIGIT))
            scenes[place] = np.maximum(scenes[place], shape.astype(np.float32))
            masks[place] = shape > 0.3
            boxes[row].append([left, top, left + DIGIT, top + DIGIT, 1, int(classes[which])])
    return scenes, masks, boxes


def conv_block(inside: int, outside: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True)
    )


class UNet(nn.Module):
    """Two steps down, two up, with skips: a map of logits from an image."""

    def __init__(self, inside: int, width: int = 16) -> None:
        super().__init__()
        self.first, self.second = conv_block(inside, width), conv_block(width, 2 * width, 2)
        self.deep = nn.Sequential(conv_block(2 * width, 4 * width, 2), conv_block(4 * width, 4 * width))
        self.up, self.last = conv_block(6 * width, 2 * width), conv_block(3 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(first)
        up = self.up(torch.cat([functional.interpolate(self.deep(second), scale_factor=2.0), second], 1))
        found: Tensor = self.head(self.last(torch.cat([functional.interpolate(up, scale_factor=2.0), first], 1)))
        return found


def segment_digits(folder: Path, wheels: Path) -> Case:
    """Make a segmentation U-Net: which pixels are ink."""
    torch.manual_seed(0)

    def draw(rng: np.random.Generator, rows: int) -> tuple[list[Array], Array]:
        scenes, masks, _ = draw_scenes(rng, rows, 0)
        return [scenes], masks.astype(np.float32)

    scenes, masks, _ = draw_scenes(np.random.default_rng(2), ROWS, 1)
    loss, case = functional.binary_cross_entropy_with_logits, ({"image": scenes}, ["mask"])
    return Case(
        model=train_once(wheels / "unet.onnx", UNet(1), case, draw, loss, 150),
        inputs={"image": scenes},
        truth=masks,
        measure=("--metric", "iou"),
        score=lambda outputs, right: measure_iou(outputs["mask"].ravel() > 0, right.ravel() > 0),
        source=f"scenes drawn of {DIGITS_SOURCE}",
    )


class Detector(nn.Module):
    """A YOLO-like head: a box, a score and a class in each cell of a grid."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv_block(1, width),
            conv_block(width, 2 * width, 2),
            conv_block(2 * width, 4 * width, 2),
            conv_block(4 * width, 4 * width),
            conv_block(4 * width, 4 * width),
        )
        self.head = nn.Conv2d(4 * width, 15, 1)
        cells = torch.arange(SIDE // STRIDE) * float(STRIDE) + STRIDE / 2
        self.register_buffer("centers", torch.stack(torch.meshgrid(cells, cells, indexing="xy"), -1).reshape(1, -1, 2))

    def forward(self, x: Tensor) -> Tensor:
        raw = self.head(self.body(x)).flatten(2).transpose(1, 2)
        if self.training:
            return raw  # type: ignore[no-any-return] # untyped modules
        middle = self.centers + STRIDE * torch.tanh(raw[:, :, :2])  # type: ignore[operator] # a buffer
        half = DIGIT / 2 * torch.exp(raw[:, :, 2:4].clamp(-1, 1))
        score = torch.sigmoid(raw[:, :, 4:5])
        best = raw[:, :, 5:].argmax(-1, keepdim=True).float()
        return torch.cat([middle - half, middle + half, score, best], -1)


def find_cells(boxes: list[list[list[float]]]) -> Array:
    """Return what the cell at each box's middle should say: offsets (2), sizes (2), 1, and the class."""
    wide = SIDE // STRIDE
    found = np.zeros((len(boxes), wide * wide, 6), np.float32)
    for row, mine in enumerate(boxes):
        for left, top, right, bottom, _, kind in mine:
            middle = np.array([(left + right) / 2, (top + bottom) / 2])
            column, line = np.minimum(middle // STRIDE, wide - 1).astype(int)
            offset = middle - (np.array([column, line]) * STRIDE + STRIDE / 2)
            found[row, line * wide + column] = (*(offset / STRIDE), 0, 0, 1, kind)
    return found


def detection_loss(raw: Tensor, target: Tensor) -> Tensor:
    held = target[:, :, 4] > 0
    score = functional.binary_cross_entropy_with_logits(raw[:, :, 4], target[:, :, 4], reduction="mean")
    mine, right = raw[held], target[held]
    place = functional.mse_loss(torch.tanh(mine[:, :2]), right[:, :2]) + functional.mse_loss(
        mine[:, 2:4], right[:, 2:4]
    )
    return 5 * score + 5 * place + functional.cross_entropy(mine[:, 5:], right[:, 5].long())


def detect_digits(folder: Path, wheels: Path) -> Case:
    """Make a detector: where digits are, and which."""
    torch.manual_seed(0)

    def draw(rng: np.random.Generator, rows: int) -> tuple[list[Array], Array]:
        scenes, _, boxes = draw_scenes(rng, rows, 0)
        return [scenes], find_cells(boxes)

    scenes, _, boxes = draw_scenes(np.random.default_rng(2), ROWS, 1)

    def score(outputs: Arrays, right: list[list[float]]) -> float:
        return measure_boxes([box for box in outputs["boxes"][0].tolist() if box[4] >= 0.25], right)

    return Case(
        model=train_once(
            wheels / "detector.onnx", Detector(), ({"image": scenes}, ["boxes"]), draw, detection_loss, 400
        ),
        inputs={"image": scenes},
        truth=boxes,
        measure=("--metric", "boxes.py:boxes"),
        score=score,
        files={"boxes.py": task_metrics.BOXES},
        source=f"scenes drawn of {DIGITS_SOURCE}",
    )


class Forecast(nn.Module):
    """Three days of hours to the next day's: the middle and the 90 % quantile."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(PAST_H, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.middle, self.high = nn.Linear(width, AHEAD_H), nn.Linear(width, AHEAD_H)

    def forward(self, past: Tensor) -> tuple[Tensor, Tensor]:
        last = past[:, -1:]
        found = self.body((past - last) / 10)
        return last + 10 * self.middle(found), last + 10 * self.high(found)


def _temperatures(wheels: Path) -> Array:
    with zipfile.ZipFile(fetch(TEMPERATURES, wheels)) as packed:
        lines = csv.reader(io.TextIOWrapper(packed.open("vega_datasets/_data/seattle-temps.csv")))
        next(lines)
        return np.array([float(value) for _, value in lines], np.float32)


def forecast_temperatures(folder: Path, wheels: Path) -> Case:
    """Make a forecast with two outputs: the last fifth of a year is what it is tried on."""
    torch.manual_seed(0)
    hours = _temperatures(wheels)
    known = len(hours) * 4 // 5

    def window(starts: Array) -> tuple[Array, Array]:
        past = np.stack([hours[start : start + PAST_H] for start in starts])
        return past, np.stack([hours[start + PAST_H : start + PAST_H + AHEAD_H] for start in starts])

    def draw(rng: np.random.Generator, rows: int) -> tuple[list[Array], Array]:
        past, ahead = window(rng.integers(0, known - PAST_H - AHEAD_H, rows))
        return [past], ahead

    def loss(found: Tensor, ahead: Tensor) -> Tensor:
        middle, high = found
        over = ahead - high
        return functional.l1_loss(middle, ahead) + torch.maximum(0.9 * over, -0.1 * over).mean()

    starts = np.linspace(known, len(hours) - PAST_H - AHEAD_H, ROWS).astype(int)
    past, ahead = window(starts)

    def score(outputs: Arrays, right: Array) -> float:
        over = right.astype(np.float64) - outputs["high"][0]
        return float(np.where(over > 0, 0.9 * over, -0.1 * over).mean())

    return Case(
        model=train_once(wheels / "forecast.onnx", Forecast(), ({"past": past}, ["middle", "high"]), draw, loss, 600),
        inputs={"past": past},
        truth=ahead,
        measure=("--metric", "pinball.py:pinball"),
        score=score,
        lower_is_better=True,
        files={"pinball.py": task_metrics.PINBALL},
        source="a year of Seattle's temperatures by the hour, of vega_datasets",
    )


class Denoiser(nn.Module):
    """A diffusion step's block: the noise in an image, given how much of it there is."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.net, self.time = UNet(2, width), nn.Sequential(nn.Linear(1, 32), nn.SiLU(), nn.Linear(32, 256))

    def forward(self, image: Tensor, level: Tensor) -> Tensor:
        found: Tensor = self.net(torch.cat([image, self.time(level).reshape(-1, 1, 16, 16)], 1))
        return found


def denoise_digits(folder: Path, wheels: Path) -> Case:
    """Make a diffusion block: how much noise each pixel has."""
    torch.manual_seed(0)

    def noisy(rng: np.random.Generator, rows: int, part: int) -> tuple[list[Array], Array]:
        images = _digits(part)[0]
        clean = np.kron(images[rng.integers(0, len(images), rows)], np.ones((1, 2, 2), np.float32))[:, None] * 2 - 1
        level = rng.uniform(0.1, 0.95, (rows, 1)).astype(np.float32)
        noise, share = rng.standard_normal(clean.shape).astype(np.float32), level[:, :, None, None]
        return [(np.sqrt(1 - share) * clean + np.sqrt(share) * noise).astype(np.float32), level], noise

    def draw(rng: np.random.Generator, rows: int) -> tuple[list[Array], Array]:
        return noisy(rng, rows, 0)

    (image, level), noise = noisy(np.random.default_rng(2), MANY_ROWS, 1)
    inputs = {"image": image, "level": level}
    return Case(
        model=train_once(wheels / "denoiser.onnx", Denoiser(), (inputs, ["noise"]), draw, functional.mse_loss, 250),
        inputs=inputs,
        truth=noise,
        measure=("--metric", "rmse"),
        score=lambda outputs, right: float(np.sqrt(np.mean((outputs["noise"][0].astype(np.float64) - right) ** 2))),
        lower_is_better=True,
        source=f"{DIGITS_SOURCE} with noise drawn onto them",
    )


class Recognizer(nn.Module):
    """A CRNN: columns of an image through convolutions and an LSTM to a class a step, 0 of them the blank."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv_block(1, width), conv_block(width, 2 * width, 2), conv_block(2 * width, 2 * width, 2)
        )
        self.recurrent = nn.LSTM(8 * width, 64, batch_first=True, bidirectional=True)
        self.head = nn.Linear(128, 11)

    def forward(self, x: Tensor) -> Tensor:
        columns = self.body(x).flatten(1, 2).transpose(1, 2)
        found: Tensor = self.head(self.recurrent(columns)[0]).log_softmax(-1)
        return found


def read_numbers(folder: Path, wheels: Path) -> Case:
    """Make a text recognizer: strings of three to five digits."""
    torch.manual_seed(0)

    def strings(rng: np.random.Generator, rows: int, part: int) -> tuple[Array, Array]:
        images, classes = _digits(part)
        lines, texts = rng.uniform(0, 0.3, (rows, 1, 16, WIDTH)).astype(np.float32), np.full((rows, SYMBOLS), -1)
        for row in range(rows):
            left = 0
            for place in range(int(rng.integers(3, SYMBOLS + 1))):
                which = int(rng.integers(len(images)))
                shape = np.kron(images[which], np.ones((2, 2), np.float32))
                lines[row, 0, :, left : left + 16] = np.maximum(lines[row, 0, :, left : left + 16], shape)
                texts[row, place] = classes[which] + 1
                left += int(rng.integers(13, 17))
        return lines, texts

    def draw(rng: np.random.Generator, rows: int) -> tuple[list[Array], Array]:
        lines, texts = strings(rng, rows, 0)
        return [lines], texts

    def loss(logs: Tensor, texts: Tensor) -> Tensor:
        steps = torch.full((len(logs),), logs.shape[1])
        return functional.ctc_loss(logs.transpose(0, 1), texts.clamp(min=0), steps, (texts >= 0).sum(1))

    lines, texts = strings(np.random.default_rng(2), ROWS, 1)
    return Case(
        model=train_once(wheels / "recognizer.onnx", Recognizer(), ({"line": lines}, ["letters"]), draw, loss, 800),
        inputs={"line": lines},
        truth=texts,
        measure=("--metric", "text.py:text"),
        score=lambda outputs, right: measure_text(read_ctc(outputs["letters"][0]), right[right >= 0].tolist()),
        files={"text.py": task_metrics.TEXT},
        source=f"lines drawn of {DIGITS_SOURCE}",
    )
