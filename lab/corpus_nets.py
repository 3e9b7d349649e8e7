"""Make the nets that services run, with seeded weights: what an embedder or a diffusion net asks of a machine
doesn't depend on what its weights say.

Each becomes an ONNX file of fixed sizes, by torch's own exporter. Where transformers has the architecture, it is taken
from there; the others are written here after the papers named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn import functional

from lab.task_nets import SIDE, STRIDE, Detector, UNet
from shootout.core.contract import Array

EAGER: Mapping[str, Any] = {"attn_implementation": "eager"}
"""Attention is products and a softmax, which every runtime reads."""
Example = tuple[Tensor, ...]
Made = tuple[nn.Module, Example]


@dataclass(frozen=True, slots=True, kw_only=True)
class Net:
    """One net of the corpus.

    Attributes:
        kind: what people use it for.
        make: writes its file.
        source: where the architecture is from.
        suffix: how the file's name ends.
    """

    kind: str
    make: Callable[[Path], None]
    source: str
    suffix: str = ".onnx"

    def write(self, folder: Path, name: str) -> Path:
        """Write the net's file, its weights beside it where they are many, unless it is there."""
        file = folder / f"{name}{self.suffix}"
        if not file.exists():
            torch.manual_seed(0)
            folder.mkdir(parents=True, exist_ok=True)
            self.make(file)
        return file


def export_to_file(make: Callable[[], Made]) -> Callable[[Path], None]:
    """Return what writes a torch module as an ONNX file."""

    def write(file: Path) -> None:
        module, example = make()
        program = torch.onnx.export(module.eval(), example, dynamo=True, verbose=False)
        assert program is not None
        weight_bytes = sum(one.nbytes for one in module.state_dict().values())
        program.save(file, external_data=weight_bytes > 1 << 30)

    return write


class Mlp(nn.Sequential):
    """Three layers, of which the middle one has most of the weights."""

    def __init__(self, width: int) -> None:
        super().__init__(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


class Embedder(nn.Module):
    """A BERT whose tokens are averaged: all-MiniLM-L6."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        self.body = BertModel(
            BertConfig(
                hidden_size=384,
                num_hidden_layers=layers,
                num_attention_heads=12,
                intermediate_size=1536,
                **EAGER,
            ),
            add_pooling_layer=False,
        )

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.body(ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        return functional.normalize((hidden * weights).sum(1) / weights.sum(1))


class Reranker(nn.Module):
    """A cross-encoder of a question and a passage: ms-marco-MiniLM-L12."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = Embedder(12).body, nn.Linear(384, 1)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        score: Tensor = self.head(torch.tanh(self.body(ids, attention_mask=mask).last_hidden_state[:, 0]))
        return score


def _tokens(count: int) -> Example:
    return torch.randint(1_000, 30_000, (1, count)), torch.ones(1, count, dtype=torch.int64)


class Hidden(nn.Module):
    """A transformers module that gives its last hidden state alone."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.body(x).last_hidden_state
        return found


def _whisper_encoder(width: int, layers: int, heads: int) -> Made:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(
        d_model=width,
        encoder_layers=layers,
        encoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        **EAGER,
    )
    return Hidden(WhisperEncoder(config)), (torch.randn(1, 80, 3_000),)


def _vit(width: int, layers: int, heads: int) -> Made:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        **EAGER,
    )
    return Hidden(ViTModel(config, add_pooling_layer=False)), (torch.randn(1, 3, 224, 224),)


def _forecast() -> Made:
    from transformers import PatchTSTConfig, PatchTSTForPrediction

    class Middle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            config = PatchTSTConfig(
                num_input_channels=7,
                context_length=512,
                patch_length=16,
                patch_stride=8,
                prediction_length=96,
                d_model=128,
                num_hidden_layers=3,
                num_attention_heads=16,
                ffn_dim=256,
                loss="mse",
            )
            self.body = PatchTSTForPrediction(config)

        def forward(self, past: Tensor) -> Tensor:
            found: Tensor = self.body(past_values=past).prediction_outputs
            return found

    return Middle(), (torch.randn(1, 512, 7).cumsum(1),)


def _heads_of(x: Tensor, heads: int) -> Tensor:
    rows, count, width = x.shape
    return x.reshape(rows, count, heads, width // heads).transpose(1, 2)


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1)
    return (scores @ v).transpose(1, 2).flatten(2)


class DecoderLayer(nn.Module):
    """One token's way through a layer: over the tokens before it, over the sound, and through a feed-forward part."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.own, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.asks, self.told = nn.Linear(width, width), nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.body = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, past: Tensor, sound: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = self.own(self.norms[0](x)).chunk(3, -1)
        keys = torch.cat([past[:, 0], _heads_of(k, self.heads)], 2)
        values = torch.cat([past[:, 1], _heads_of(v, self.heads)], 2)
        x = x + self.out(_attend(_heads_of(q, self.heads), keys, values))
        asked = _heads_of(self.asks(self.norms[1](x)), self.heads)
        x = x + self.told(_attend(asked, sound[:, 0], sound[:, 1]))
        return x + self.body(self.norms[2](x)), torch.stack([keys, values], 1)


class DecoderStep(nn.Module):
    """A step of a decoder like Whisper's (Radford et al. 2022, arXiv:2212.04356): one token, with what was kept of
    those before it and of the sound.
    """

    def __init__(self, width: int, layers: int, heads: int, words: int) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(words, width), nn.LayerNorm(width)
        self.layers = nn.ModuleList(DecoderLayer(width, heads) for _ in range(layers))

    def forward(self, token: Tensor, past: Tensor, sound: Tensor) -> tuple[Tensor, Tensor]:
        x, kept = self.words(token), []
        for index, layer in enumerate(self.layers):
            x, own = layer(x, past[:, index], sound[:, index])
            kept.append(own)
        return self.norm(x) @ self.words.weight.T, torch.stack(kept, 1)


def _decoder_step(width: int, layers: int, heads: int, *, tokens: int = 32, pieces: int = 1_500) -> Made:
    each = width // heads
    past, sound = (torch.randn(1, layers, 2, heads, count, each) for count in (tokens, pieces))
    return DecoderStep(width, layers, heads, 51_865), (torch.randint(0, 50_000, (1, 1)), past, sound)


class DiffusionBlock(nn.Module):
    """A block that the step of the diffusion shifts and scales."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = (nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.own, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.body = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
        self.moves = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        shift, scale, gate, shift2, scale2, gate2 = self.moves(step).unsqueeze(1).chunk(6, -1)
        q, k, v = (_heads_of(one, self.heads) for one in self.own(self.first(x) * (1 + scale) + shift).chunk(3, -1))
        x = x + gate * self.out(_attend(q, k, v))
        found: Tensor = x + gate2 * self.body(self.second(x) * (1 + scale2) + shift2)
        return found


class Diffusion(nn.Module):
    """A diffusion transformer (Peebles and Xie 2023, arXiv:2212.09748), of the size S/2 on 32 x 32 latents."""

    def __init__(self, width: int = 384, layers: int = 12, heads: int = 6) -> None:
        super().__init__()
        self.patches, self.time = nn.Conv2d(4, width, 2, 2), nn.Linear(256, width)
        self.blocks = nn.ModuleList(DiffusionBlock(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, 2 * 2 * 8)

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        tokens, moved = self.patches(x).flatten(2).transpose(1, 2), self.time(step)
        for block in self.blocks:
            tokens = block(tokens, moved)
        found: Tensor = self.head(tokens)
        return found


MOST_BOXES = 16


def _write_detector(file: Path) -> None:
    """Write a detector that sorts overlapping boxes out in the graph: the best ones, in the order of their scores.

    What is no box any more has a score of 0, so that the output has one shape.
    """
    scene = torch.rand(1, 1, SIDE, SIDE)
    export_to_file(lambda: (Detector(), (scene,)))(file)
    model = onnx.load(file)
    graph, raw = model.graph, model.graph.output[0].name
    count = (SIDE // STRIDE) ** 2
    numbers: Mapping[str, Array] = {
        "zero": np.array([0], np.int64),
        "four": np.array([4], np.int64),
        "five": np.array([5], np.int64),
        "last": np.array([2], np.int64),
        "of_box": np.array([2], np.int64),
        "most": np.array([MOST_BOXES], np.int64),
        "overlap": np.array([0.5], np.float32),
        "least": np.array([0.0], np.float32),
        "nothing": np.zeros((1, count), np.float32),
        "one": np.ones((1, 1), np.float32),
        "flat": np.array([1, -1], np.int64),
        "column": np.array([1, MOST_BOXES, 1], np.int64),
        "list": np.array([-1], np.int64),
    }
    graph.initializer.extend(numpy_helper.from_array(array, f"nms/{name}") for name, array in numbers.items())

    def add(kind: str, inputs: str, output: str, **attributes: Any) -> None:
        names = [name if name == raw else f"nms/{name}" for name in inputs.split()]
        graph.node.append(onnx.helper.make_node(kind, names, [f"nms/{output}"], **attributes))

    add("Slice", f"{raw} zero four of_box", "places")
    add("Slice", f"{raw} four five of_box", "score")
    add("Reshape", "score flat", "scores")
    add("Transpose", "score", "by_class", perm=[0, 2, 1])
    add("NonMaxSuppression", "places by_class most overlap least", "chosen")
    add("Gather", "chosen last", "kept", axis=1)
    add("Reshape", "kept flat", "index")
    add("Shape", "index", "length")
    add("Expand", "one length", "ones")
    add("ScatterElements", "nothing index ones", "is_kept", axis=1)
    add("Mul", "scores is_kept", "left")
    graph.node.append(onnx.helper.make_node("TopK", ["nms/left", "nms/most"], ["nms/best", "nms/places_of"], axis=1))
    add("Reshape", "places_of list", "rows")
    add("Gather", "places rows", "boxes", axis=1)
    add("Reshape", "best column", "scored")
    graph.node.append(onnx.helper.make_node("Concat", ["nms/boxes", "nms/scored"], ["found"], axis=2))
    del graph.output[:]
    graph.output.append(onnx.helper.make_tensor_value_info("found", onnx.TensorProto.FLOAT, [1, MOST_BOXES, 5]))
    onnx.save(model, file)


def _write_forest(file: Path) -> None:
    """Write a random forest that was fitted to scikit-learn's digits."""
    import joblib
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier

    digits = load_digits()
    joblib.dump(RandomForestClassifier(100, random_state=0).fit(digits.data.astype(np.float32), digits.target), file)


_TRANSFORMERS = "transformers"
NETS: Mapping[str, Net] = {
    "forest": Net(kind="tree ensemble", make=_write_forest, source="scikit-learn, 100 trees", suffix=".joblib"),
    "detector": Net(kind="detector with NMS", make=_write_detector, source="lab, a YOLO-like head"),
    "mlp-1m": Net(kind="table net", make=export_to_file(lambda: (Mlp(448), (torch.randn(1, 64),))), source="here"),
    "forecast": Net(kind="forecast", make=export_to_file(_forecast), source=f"{_TRANSFORMERS}, PatchTST"),
    "unet": Net(
        kind="U-Net",
        make=export_to_file(lambda: (UNet(3, 64), (torch.rand(1, 3, 256, 256),))),
        source="lab, Ronneberger et al. 2015",
    ),
    "whisper-encoder": Net(
        kind="speech encoder",
        make=export_to_file(lambda: _whisper_encoder(384, 4, 6)),
        source=f"{_TRANSFORMERS}, whisper-tiny",
    ),
    "embedder": Net(
        kind="embedder",
        make=export_to_file(lambda: (Embedder(6), _tokens(64))),
        source=f"{_TRANSFORMERS}, all-MiniLM-L6",
    ),
    "diffusion": Net(
        kind="diffusion step",
        make=export_to_file(lambda: (Diffusion(), (torch.randn(1, 4, 32, 32), torch.randn(1, 256)))),
        source="here, DiT-S/2",
    ),
    "reranker": Net(
        kind="reranker",
        make=export_to_file(lambda: (Reranker(), _tokens(128))),
        source=f"{_TRANSFORMERS}, ms-marco-MiniLM-L12",
    ),
    "whisper-decoder": Net(
        kind="speech decoder step",
        make=export_to_file(lambda: _decoder_step(512, 6, 8)),
        source="here, of whisper-base's sizes",
    ),
    "vit-base": Net(
        kind="image encoder",
        make=export_to_file(lambda: _vit(768, 12, 12)),
        source=f"{_TRANSFORMERS}, ViT-B/16",
    ),
    "decoder-large": Net(
        kind="decoder step",
        make=export_to_file(lambda: _decoder_step(1_024, 9, 16, pieces=500)),
        source="here, of whisper-medium's width",
    ),
    "vit-large": Net(
        kind="image encoder",
        make=export_to_file(lambda: _vit(1_024, 24, 16)),
        source=f"{_TRANSFORMERS}, ViT-L/16",
    ),
}
"""By name, the smallest first."""
