"""A transformers model from its `config.json`: drawn inputs, seeded random weights or those on this disk, no download.

Random weights are for fidelity and speed, they have no accuracy. Reading the config needs no transformers.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.contract import Array, Artifact
from shootout.errors import UsageError
from shootout.models.base import SEED, Model, OneOf, Parameters, Whole
from shootout.models.seeding import seeded
from shootout.models.user import weights
from shootout.models.user.source import BATCH

if TYPE_CHECKING:
    from torch import nn

    from shootout.models.user.called import Called

SUFFIX, CONFIG = ".json", "config.json"
WEIGHTS = "weights"
"""Among the parameters of a call: where its weights are; random ones without."""
TOKENS, IMAGE_SIZE = 128, 224
"""Length of a text and side of an image where neither the config nor the user says another."""
LIMITS = ("max_position_embeddings", "n_positions")
LONGEST = 1 << 20
SPECIAL = 2
"""Positions that some models (RoBERTa) keep for padding."""
STATISTICS_IMAGES = 16
EXAMPLE_SEED, STATISTICS_SEED = 1, 4


def is_meant(name: str) -> bool:
    """Whether `name` is meant as a config, or as the folder of one with its weights."""
    try:
        return name.endswith(SUFFIX) or (Path(name).expanduser() / CONFIG).is_file()
    except (OSError, RuntimeError):  # too long for a file's name, or `~` of nobody
        return False


def model(name: str) -> Model:
    """The model of the config in the file `name`, or of the config and the weights in the folder `name`.

    Raises:
        UsageError: it can't be read, or is no transformers config.
    """
    place = Path(name).expanduser().absolute()
    folder = place if place.is_dir() else None
    path = place / CONFIG if folder else place
    config = _read(path)

    def called(parameters: Parameters) -> Called:
        return _called(path, parameters)

    return Model(
        name=str(path),
        title=f"{_architecture(config)} ({folder.name if folder else _place(path)})",
        description=f"transformers' {config['model_type']}{'' if folder else ' with seeded weights: fidelity only'}",
        parameters=_parameters(config),
        parameter_count=lambda _: 0,
        inputs=lambda _, __: (),
        forward=None,
        module=lambda parameters: _called(path, parameters, settle=False).module,
        trained=lambda parameters: called(parameters).module,
        artifacts=(Artifact.MODULE, Artifact.ONNX, Artifact.PT2),
        called=called,
        source=lambda: hashlib.sha256(path.read_bytes()).hexdigest(),
        imports=lambda: frozenset({"transformers"}),
        weights=folder,
    )


def _architecture(config: dict[str, Any]) -> str:
    named = config.get("architectures")
    return str(named[0] if isinstance(named, list) and named else config["model_type"])


def _place(path: Path) -> str:
    """What tells a config from others: its own name, or its folder's where all are called the same."""
    return path.parent.name if path.name == CONFIG else path.stem


def _read(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path.name} is not JSON: {error}") from None
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise UsageError(f"{path.name} has no model_type: expected the config.json of a transformers model")
    return config


def _parameters(config: dict[str, Any]) -> dict[str, Whole | OneOf]:
    found: dict[str, Whole | OneOf] = {"seed": SEED}
    if "vocab_size" in config:
        limit = next((int(config[key]) for key in LIMITS if isinstance(config.get(key), int)), LONGEST)
        default = max(min(TOKENS, limit - SPECIAL), 1)
        found["sequence_length"] = Whole(default=default, low=1, high=max(limit, 1))
    elif "image_size" not in config:
        found["image_size"] = Whole(default=IMAGE_SIZE, low=8, high=4_096)
    return found


def _called(path: Path, parameters: Parameters, *, settle: bool = True) -> Called:
    """The module with its inputs.

    Args:
        settle: measure the statistics of its batch normalization; not needed where weights are loaded afterwards.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"  # before the import: nothing is downloaded, whatever the config names
    import transformers

    quiet: Any = transformers.logging
    quiet.set_verbosity_error()
    try:
        return _made(path, parameters, settle)
    except UsageError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        failed = f"{path.name}: transformers can't make or run this model from its config alone: {said}"
        raise UsageError(f"{failed}; write a factory that does (docs/your-own-model.md)") from error


def _loaded(path: Path, kind: Any, config: Any, place: Path) -> tuple[Any, tuple[str, ...]]:
    """The module with the weights at `place`, and what a row has to say of them.

    Raises:
        UsageError: some of its weights aren't there, or have another shape; names them.
    """
    stored = weights.read(place)
    module, found = kind.from_pretrained(
        None, config=config, state_dict=stored, output_loading_info=True, ignore_mismatched_sizes=True
    )
    wanted = {name: list(tensor.shape) for name, tensor in module.state_dict().items()}
    odd = {str(one[0]): one for one in found["mismatched_keys"]}
    told = [f"{name} is {list(one[1])} instead of {wanted.get(name, list(one[2]))}" for name, one in odd.items()]
    if lost := sorted(set(found["missing_keys"]) - odd.keys()):
        told.append(f"there is no {weights.told(lost)}")
    if told:
        raise UsageError(f"the weights in {place.name} don't fit {path.name} ({kind.__name__}): {'; '.join(told[:4])}")
    unused = sorted(found["unexpected_keys"])
    more = (f"of {place.name}'s weights the model has no {weights.told(unused)}",) if unused else ()
    return module, (f"with the weights in {place.name}", *more)


def _made(path: Path, parameters: Parameters, settle: bool) -> Called:
    import torch
    import transformers

    from shootout.models.user.called import checked

    config: Any = transformers.AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    config.use_cache = False  # what a call returns for the next one is no tensor
    known = getattr(transformers, next(iter(config.architectures or ()), ""), None)
    auto: Any = transformers.AutoModel
    given, notes = parameters.get(WEIGHTS), tuple[str, ...]()
    with seeded(parameters), torch.device("meta" if given else "cpu"):
        module: Any = known(config) if known else auto.from_config(config)
    if given:
        module, notes = _loaded(path, type(module), config, Path(str(given)))
    module.eval()
    _repair(module, config)
    batch = int(parameters[BATCH])

    def draw(count: int, seed: int) -> list[dict[str, Array]]:
        rng = np.random.default_rng([int(parameters["seed"]), seed])
        return [_inputs(path.name, module.main_input_name, config, parameters, rng, batch) for _ in range(count)]

    if not given:
        module.float()
        if settle:
            _settle(module, config, parameters, path.name)
    example = {name: torch.from_numpy(array) for name, array in draw(1, EXAMPLE_SEED)[0].items()}
    found = checked(path.name, module, example)
    return dataclasses.replace(found, batch=batch, draw=draw, notes=(*notes, *found.notes))


def _inputs(
    name: str, main: str, config: Any, parameters: Parameters, rng: np.random.Generator, batch: int
) -> dict[str, Array]:
    """Random tokens, each row padded after a length of its own, or standard normal pixels."""
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


def _repair(module: nn.Module, config: Any) -> None:
    """EfficientNet's global pooling has a kernel as wide as its channels, which OpenVINO refuses: as others have it."""
    from torch import nn

    for parent in module.modules():
        for name, layer in parent.named_children():
            if isinstance(layer, nn.AvgPool2d) and layer.kernel_size == getattr(config, "hidden_dim", None):
                setattr(parent, name, nn.AdaptiveAvgPool2d(1))


def _settle(module: nn.Module, config: Any, parameters: Parameters, name: str) -> None:
    """Batch normalization gets the statistics of drawn images: with 0 and 1 a deep net's output fades to a constant."""
    import torch
    from torch import nn

    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    rng = np.random.default_rng([int(parameters["seed"]), STATISTICS_SEED])
    main: Any = module.main_input_name
    drawn = _inputs(name, main, config, parameters, rng, STATISTICS_IMAGES)
    for norm in norms:
        norm.momentum = 1.0  # the statistics of this one batch
    with torch.no_grad():
        module.train()(**{key: torch.from_numpy(array) for key, array in drawn.items()})
    module.eval()
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
