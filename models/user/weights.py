"""Weights of a user's own on this disk, for a transformers config: found and hashed anywhere, read where torch may be.

Tensors alone are read: safetensors, or torch's files with `weights_only`, which runs no code. Nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

SAFE = ".safetensors"
TORCH = (".bin", ".pt", ".pth", ".ckpt")
INDEX = ".index.json"
"""Ends the name of a file that tells which of several holds which weight."""
IN_FOLDER = ("model.safetensors", f"model.safetensors{INDEX}", "pytorch_model.bin", f"pytorch_model.bin{INDEX}")
"""What transformers calls them; the first that is there."""
FORM = "it must hold tensors alone, by name, as torch.save(model.state_dict(), 'weights.pt') writes them"
INSIDE = ("state_dict", "model_state_dict", "model")
"""Under which of these words training scripts put the weights among other things."""


def files_of(path: Path) -> list[Path]:
    """The files that hold the weights: of a folder, an index or a file alone.

    Raises:
        UsageError: there are none, or an index names some outside its folder.
    """
    if path.is_dir():
        found = next((path / name for name in IN_FOLDER if (path / name).is_file()), None)
        if found is None:
            raise UsageError(f"no weights in {path}: expected {IN_FOLDER[0]} or {IN_FOLDER[2]}")
        return files_of(found)
    if path.name.endswith(INDEX):
        return _shards(path)
    return [_one_file(path)]


def digest(path: Path) -> str:
    """Hash of all these files' contents.

    Raises:
        UsageError: they can't be read, or as `files_of`.
    """
    whole = hashlib.sha256()
    for file in files_of(path):
        try:
            with file.open("rb") as stored:
                whole.update(hashlib.file_digest(stored, "sha256").digest())
        except OSError as error:
            raise UsageError(f"can't read {file}: {error.strerror}") from error
    return whole.hexdigest()


def read(path: Path) -> dict[str, Tensor]:
    """The weights by name.

    Raises:
        UsageError: a file can't be read, or holds anything but tensors; or as `files_of`.
    """
    found: dict[str, Tensor] = {}
    for file in files_of(path):
        found |= _read(file)
    return found


def told(names: Mapping[str, Any] | list[str], most: int = 6) -> str:
    """Some names of weights, and how many more."""
    names = sorted(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _shards(index: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
        if any(name in ("", "..") or Path(name).name != name for name in names):
            raise UsageError(f"{index.name} names files outside its folder: refused")
    except OSError as error:
        raise UsageError(f"can't read {index}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{index.name} is no index of weights: it has no weight_map of file names") from error
    return [_one_file(index.parent / name) for name in names]  # a folder or an index again might come back here


def _one_file(path: Path) -> Path:
    """Itself, where it can hold weights."""
    if path.suffix not in (SAFE, *TORCH):
        raise UsageError(f"{path.name} is no file of weights: expected {', '.join((SAFE, *TORCH))}, or a folder")
    if not path.is_file():
        raise UsageError(f"can't read {path}: there is no such file")
    return path


def _read(file: Path) -> dict[str, Tensor]:
    import torch

    try:
        if file.suffix == SAFE:
            from safetensors.torch import load_file

            return dict(load_file(file))
        stored: Any = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise UsageError(f"{file.name} isn't read: {FORM} ({type(error).__name__}: {said})") from error
    if not isinstance(stored, Mapping):
        raise UsageError(f"{file.name} holds a {type(stored).__name__}: {FORM}")
    held: Mapping[Any, Any] = next((stored[word] for word in INSIDE if isinstance(stored.get(word), Mapping)), stored)
    if odd := [str(name) for name, one in held.items() if not isinstance(one, torch.Tensor)]:
        raise UsageError(f"{file.name} also holds {told(odd)}: {FORM}")
    return {str(name): tensor for name, tensor in held.items()}
