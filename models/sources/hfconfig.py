"""Make a transformers model from its `config.json`: drawn inputs, seeded random weights or those on this disk, no
download.

Random weights are for fidelity and speed, they have no accuracy. Reading the config needs no transformers. A user's
weights are found and hashed in any process, and read where torch may be. Tensors alone are read: safetensors, or
torch's files with `weights_only`, which runs no code.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.core.constants import BATCH
from shootout.core.contract import Array
from shootout.core.errors import UsageError, explained
from shootout.core.exported.model import sha256
from shootout.core.exported.request import Request
from shootout.models.base import SEED, WEIGHTS_PARAMETER, Called, Choice, IntRange, Model, Parameters, seeded
from shootout.models.data.text_folder import MODULES, RESERVED, find_transformer, is_sentence_model
from shootout.models.source import read
from shootout.models.sources.own import OwnModel, describe_own

if TYPE_CHECKING:
    from torch import Tensor, nn

SAFE = ".safetensors"
TORCH = (".bin", ".pt", ".pth", ".ckpt")
IN_FOLDER = ("model*.safetensors", "pytorch_model*.bin")
"""The names of weight files in a folder; the first that exist count."""
FORM = "it must hold tensors alone, by name, as torch.save(model.state_dict(), 'weights.pt') writes them"
SEEDED = " with seeded weights: fidelity only"
SUFFIX, CONFIG = ".json", "config.json"
TOKENS, IMAGE_SIZE = 128, 224
"""Length of a text and side of an image where neither the config nor the user says another."""
LIMITS = ("max_position_embeddings", "n_positions")
LONGEST = 1 << 20
POOLER = "pooler"
"""The layer of BERT and its kin on the first token, behind the network."""
STATISTICS_IMAGES = 16
EXAMPLE_SEED, STATISTICS_SEED = 1, 4


class TransformersConfig(OwnModel):
    """A transformers model by its `config.json`, alone or in a folder with its weights."""

    takes_weights = True

    def claims(self, word: str) -> bool:
        """Return whether a word is meant as a config, or as the folder of one with its weights."""
        try:
            return word.endswith(SUFFIX) or (Path(word).expanduser() / CONFIG).is_file()
        except (OSError, RuntimeError):  # too long for a file's name, or `~` of an unknown user
            return False

    def model(self, word: str) -> Model:
        """Return the model of the config in a file, or of the config and the weights in a folder.

        Raises:
            UsageError: it can't be read, or is no transformers config.
        """
        place = Path(word).expanduser().absolute()
        folder = find_transformer(place) if place.is_dir() else None
        path = folder / CONFIG if folder else place
        config = _read_config(path)
        named = config.get("architectures")
        kind = str(named[0] if isinstance(named, list) and named else config["model_type"])
        root = place if folder else path.parent
        own = root.name if path.name == CONFIG else path.stem  # what separates it from others

        return describe_own(
            partial(_call_config, path),
            name=str(path),
            title=f"{kind} ({own})",
            description=f"transformers' {config['model_type']}{'' if folder else SEEDED}",
            parameters=_free_parameters(config),
            source=lambda: hashlib.sha256(path.read_bytes()).hexdigest(),
            weights=folder,
        )

    def hash_weights(self, request: Request) -> dict[str, str]:
        """Return the hash of the weights; see `OwnModel.hash_weights`."""
        return {WEIGHTS_PARAMETER: weights_digest(request.weights)} if request.weights else {}


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(read(path))
    except ValueError as error:
        raise UsageError(
            f"{path.name} is not JSON ({error}): expected the config.json of a transformers model"
        ) from None
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise UsageError(f"{path.name} has no model_type: expected the config.json of a transformers model")
    return config


def _free_parameters(config: dict[str, Any]) -> dict[str, IntRange | Choice]:
    found: dict[str, IntRange | Choice] = {"seed": SEED}
    if "vocab_size" in config:
        limit = next((int(config[key]) for key in LIMITS if isinstance(config.get(key), int)), LONGEST)
        default = max(min(TOKENS, limit - RESERVED), 1)
        found["sequence_length"] = IntRange(default=default, low=1, high=max(limit, 1))
    elif "image_size" not in config:
        found["image_size"] = IntRange(default=IMAGE_SIZE, low=8, high=4_096)
    return found


def _call_config(path: Path, parameters: Parameters) -> Called:
    """Build the module with its inputs."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # before the import: nothing is downloaded, whatever the config names
    import transformers

    quiet: Any = transformers.logging
    quiet.set_verbosity_error()
    try:
        return _make_module(path, parameters)
    except UsageError:
        raise
    except Exception as error:
        failed = f"{path.name}: transformers can't make or run this model from its config alone: {explained(error)}"
        raise UsageError(f"{failed}; write a factory that does (docs/your-own-model.md)") from error


def _make_module(path: Path, parameters: Parameters) -> Called:
    import torch
    import transformers

    from shootout.models.sources.called import checked

    config: Any = transformers.AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    config.use_cache = False  # what a call returns for the next one is no tensor
    is_network = is_sentence_model(path.parent)
    known = getattr(transformers, next(iter(() if is_network else config.architectures or ()), ""), None)
    auto: Any = transformers.AutoModel
    given, notes = parameters.get(WEIGHTS_PARAMETER), tuple[str, ...]()
    with seeded(parameters), torch.device("meta" if given else "cpu"):
        module: Any = known(config) if known else auto.from_config(config)
    if given:
        spared = POOLER if is_network else ""
        module, notes = _load_weights(path, type(module), config, Path(str(given)), spared)
    if is_network and "add_pooling_layer" in inspect.signature(type(module)).parameters:
        module.pooler = None  # sentence-transformers pools what comes before it
    module.eval()
    _repair_pooling(module, config)
    batch = int(parameters[BATCH])

    def draw(count: int, seed: int) -> list[dict[str, Array]]:
        rng = np.random.default_rng([int(parameters["seed"]), seed])
        return [_draw_inputs(path.name, module.main_input_name, config, parameters, rng, batch) for _ in range(count)]

    if not given:
        module.float()
        _settle_norms(module, config, parameters, path.name)
    example = {name: torch.from_numpy(array) for name, array in draw(1, EXAMPLE_SEED)[0].items()}
    found = checked(path.name, module, example)
    return dataclasses.replace(found, batch=batch, draw=draw, notes=(*notes, *found.notes))


def _load_weights(path: Path, kind: Any, config: Any, place: Path, spared: str) -> tuple[Any, tuple[str, ...]]:
    """Build the module with the weights at `place`; return it, and the notes on its rows.

    Args:
        spared: a layer that is taken out, whose weights may be missing; "" for none.

    Raises:
        UsageError: some of its weights aren't there, or have another shape; names them.
    """
    stored = {name: tensor for file in weight_files(place) for name, tensor in read_tensors(file).items()}
    module, found = kind.from_pretrained(
        None, config=config, state_dict=stored, output_loading_info=True, ignore_mismatched_sizes=True
    )
    odd = {str(one[0]): list(one[1]) for one in found["mismatched_keys"]}
    missing = set(found["missing_keys"]) - odd.keys()
    lost = sorted(name for name in missing if not (spared and name.startswith(f"{spared}.")))
    told = [*(f"{name} is {shape}" for name, shape in odd.items()), *(f"there is no {name}" for name in lost)]
    if told:
        raise UsageError(f"the weights in {place.name} don't fit {path.name} ({kind.__name__}): {'; '.join(told[:6])}")
    unused = sorted(found["unexpected_keys"])
    more = (f"of {place.name}'s weights the model has no {', '.join(unused[:6])}",) if unused else ()
    return module, (f"with the weights in {place.name}", *more)


def _draw_inputs(
    name: str, main: str, config: Any, parameters: Parameters, rng: np.random.Generator, batch: int
) -> dict[str, Array]:
    """Draw random tokens, each row padded after a length of its own, or standard normal pixels."""
    if main == "input_ids" and "sequence_length" in parameters:
        length = int(parameters["sequence_length"])
        lengths = rng.integers((length + 1) // 2, length + 1, (batch, 1))
        mask = (np.arange(length) < lengths).astype(np.int64)
        ids = rng.integers(1, config.vocab_size, mask.shape)
        decoder = {"decoder_input_ids": rng.integers(1, config.vocab_size, mask.shape)}
        return {"input_ids": ids, "attention_mask": mask, **(decoder if config.is_encoder_decoder else {})}
    if main != "pixel_values":
        asked = "expected a model of texts alone (input_ids, vocab_size) or of images alone (pixel_values)"
        raise UsageError(f"{name}: its main input is {main!r}: {asked}")
    size = getattr(config, "image_size", None) or parameters["image_size"]
    sides = tuple(size) if isinstance(size, list | tuple) else (int(size), int(size))
    return {"pixel_values": rng.standard_normal((batch, int(config.num_channels), *sides), dtype=np.float32)}


def _repair_pooling(module: nn.Module, config: Any) -> None:
    """Replace EfficientNet's global pooling: its kernel is as wide as its channels, which OpenVINO refuses."""
    from torch import nn

    for parent in module.modules():
        for name, layer in parent.named_children():
            if isinstance(layer, nn.AvgPool2d) and layer.kernel_size == getattr(config, "hidden_dim", None):
                setattr(parent, name, nn.AdaptiveAvgPool2d(1))


def _settle_norms(module: nn.Module, config: Any, parameters: Parameters, name: str) -> None:
    """Give batch normalization the statistics of drawn images: with 0 and 1 a deep net's output fades to a constant."""
    import torch
    from torch import nn

    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    rng = np.random.default_rng([int(parameters["seed"]), STATISTICS_SEED])
    main: Any = module.main_input_name
    drawn = _draw_inputs(name, main, config, parameters, rng, STATISTICS_IMAGES)
    for norm in norms:
        norm.momentum = 1.0  # the statistics of this one batch
    with torch.no_grad():
        module.train()(**{key: torch.from_numpy(array) for key, array in drawn.items()})
    module.eval()
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def list_files(folder: Path) -> list[Path]:
    """Return the files of a folder that make its model.

    Raises:
        UsageError: as `weight_files`.
    """
    place, modules = find_transformer(folder), folder / MODULES
    return [place / CONFIG, *weight_files(place), *([modules] if modules.is_file() else [])]


def weight_files(path: Path) -> list[Path]:
    """Return the files that hold the weights: of a folder, or a file alone.

    Raises:
        UsageError: there are none.
    """
    if path.is_dir():
        if found := next(filter(None, (sorted(path.glob(pattern)) for pattern in IN_FOLDER)), None):
            return found
        raise UsageError(f"no weights in {path}: expected {' or '.join(IN_FOLDER)}")
    if path.suffix not in (SAFE, *TORCH):
        raise UsageError(f"{path.name} is not a file of weights: expected {', '.join((SAFE, *TORCH))}, or a folder")
    if not path.is_file():
        raise UsageError(f"can't read {path}: there is no such file")
    return [path]


def weights_digest(path: Path) -> str:
    """Hash of all these files' contents; a UsageError as of `weight_files`."""
    return hashlib.sha256("".join(map(sha256, weight_files(path))).encode()).hexdigest()


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Read the weights of a file by name; a UsageError if it holds anything but tensors."""
    import torch

    try:
        if file.suffix == SAFE:
            from safetensors.torch import load_file

            return dict(load_file(file))
        stored: Any = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UsageError(f"{file.name} isn't read: {FORM} ({explained(error)})") from error
    if not isinstance(stored, Mapping):
        raise UsageError(f"{file.name} holds a {type(stored).__name__}: {FORM}")
    if odd := [str(name) for name, one in stored.items() if not isinstance(one, torch.Tensor)]:
        raise UsageError(f"{file.name} also holds {', '.join(odd[:6])}: {FORM}")
    return {str(name): tensor for name, tensor in stored.items()}
