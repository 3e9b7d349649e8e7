"""Read what a folder of Hugging Face or sentence-transformers says of texts: lengths, pooling, names of classes.

Files of JSON are read and no library is imported. Weights and tokenizers are read elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from shootout.core.errors import UsageError, shorten
from shootout.models.data.json_files import read_json, read_object

CONFIG, MODULES = "config.json", "modules.json"
POOLINGS: Mapping[str, str] = MappingProxyType(
    {
        "mean": "mean",
        "mean_tokens": "mean",
        "mean_sqrt_len_tokens": "mean",  # of another length, which no cosine sees
        "cls": "cls",
        "cls_token": "cls",
        "max": "max",
        "max_tokens": "max",
        "lasttoken": "last",
        "weightedmean": "weighted",
        "weightedmean_tokens": "weighted",
        "last": "last",
        "weighted": "weighted",
    }
)
"""A pooling's name in sentence-transformers, in old files behind `pooling_mode_`, and its name in the metrics."""
SCORED = ("Transformer", "Pooling", "Normalize")
"""The modules of a sentence-transformers folder that the metrics know; a cosine needs no `Normalize`."""
RESERVING = {"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "longformer", "data2vec-text"}
"""The types of models that keep positions for padding."""
RESERVED = 2
"""Keep so many."""
SENTENCE = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""The files in which sentence-transformers keeps the length of texts; the first that says something counts."""
NO_LIMIT = 1_000_000
"""A tokenizer without a limit says a longer one than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFolder:
    """Hold where the files beside a model are.

    Attributes:
        places: the folders to look in, the first one first.
    """

    places: tuple[Path, ...]

    @classmethod
    def of(cls, folder: Path) -> TextFolder:
        """Return what is beside the weights in a folder, whichever layout it has."""
        inner = find_transformer(folder)
        return cls(places=(inner, *([folder] if inner != folder else [])))

    def find(self, name: str) -> Path | None:
        """Return the first file of this name."""
        return next((place / name for place in self.places if (place / name).is_file()), None)

    def read(self, name: str) -> dict[str, Any]:
        """Return what the first file of this name holds; nothing if there is none.

        Raises:
            UsageError: it isn't a JSON object.
        """
        path = self.find(name)
        return read_object(path) if path else {}

    def read_entry(self, name: str, key: str) -> dict[str, Any]:
        """Return the object under a key of the first file of this name; nothing if there is none.

        Raises:
            UsageError: as `read`, or it isn't an object.
        """
        found = self.read(name).get(key) or {}
        if not isinstance(found, dict):
            raise UsageError(f"{self.find(name)}: expected an object as {key}, got {shorten(str(found))}")
        return found

    def read_sentence(self) -> dict[str, Any]:
        """Return what sentence-transformers says of a text; nothing if no file does."""
        return next(filter(None, map(self.read, SENTENCE)), {})

    def find_longest(self) -> int | None:
        """Return the most tokens that a text may have, special ones included; None if nothing limits them."""
        config = self.read(CONFIG)
        told = [self.read_sentence().get("max_seq_length")]
        told += [self.read("tokenizer_config.json").get("model_max_length")]
        found = [int(one) for one in told if isinstance(one, int | float) and 0 < one < NO_LIMIT]
        positions = next((config[key] for key in ("max_position_embeddings", "n_positions") if config.get(key)), None)
        if isinstance(positions, int) and positions > RESERVED:
            found.append(positions - RESERVED if str(config.get("model_type")) in RESERVING else positions)
        return min(found, default=None)

    def find_pooling(self) -> str | None:
        """Return how sentence-transformers pools, as the metrics call it; None if no folder says it.

        Raises:
            UsageError: the folder has a module or a pooling that the metrics don't know.
        """
        if (path := self.find(MODULES)) is None:
            return None
        pooling = None
        for module in _list_modules(path):
            kind = str(module.get("type", "")).rpartition(".")[2]
            if kind not in SCORED:
                raise UsageError(
                    f"{path} has the module {kind}, and only {', '.join(SCORED)} can be scored: export the whole "
                    "model to ONNX, with its output sentence_embedding"
                )
            if kind == "Pooling":
                pooling = _find_way(path.parent / str(module.get("path", "")) / CONFIG)
        return pooling

    def find_prompt(self) -> str:
        """Return what sentence-transformers puts in front of each text by default."""
        name = "config_sentence_transformers.json"
        return str(self.read_entry(name, "prompts").get(str(self.read(name).get("default_prompt_name"))) or "")


def find_transformer(folder: Path) -> Path:
    """Return the folder inside a sentence-transformers one that has the weights; of others that folder itself.

    Raises:
        UsageError: its list of modules can't be read.
    """
    if not (path := folder / MODULES).is_file():
        return folder
    kinds = {str(one.get("type", "")).rpartition(".")[2]: one for one in reversed(_list_modules(path))}
    return folder / str(kinds.get("Transformer", {}).get("path", ""))


def is_sentence_model(folder: Path) -> bool:
    """Return whether a folder with weights is one of sentence-transformers, which takes the network without a head."""
    return any((place / MODULES).is_file() for place in (folder, folder.parent))


def _list_modules(path: Path) -> list[dict[str, Any]]:
    found = read_json(path)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise UsageError(f"{path} isn't a list of modules, as sentence-transformers writes it")
    return found


def _find_way(path: Path) -> str:
    config = read_object(path)
    old = [name.removeprefix("pooling_mode_") for name, on in config.items() if name.startswith("pooling_mode_") and on]
    told = config.get("pooling_mode") or old
    ways = list(map(str, told)) if isinstance(told, list) else [str(told)]
    if len(ways) != 1 or ways[0] not in POOLINGS:
        raise UsageError(
            f"{path} pools by {' and '.join(ways) or 'nothing'}, and the metrics pool by one of "
            f"{', '.join(dict.fromkeys(POOLINGS.values()))}: export the whole model to ONNX, with its output "
            "sentence_embedding"
        )
    return POOLINGS[ways[0]]
