"""Users' factories as files, and the process as it was before their code ran."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shootout.models import source

HEAD = "import torch\nfrom torch import nn\n"
LINEAR = f"{HEAD}\ndef make(width=3, batch=1):\n    return nn.Linear(4, width), torch.randn(batch, 4)\n"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


OF_USERS = {"bad", "outputs", "plain", "fixed", "stuck", "nan", "random_", "batch"}
OF_USERS |= {"scales", "decays", "delta", "outside", "counts"}


@pytest.fixture
def apart() -> Iterator[None]:
    """What a user's code leaves in this process is taken away again."""
    path, loaded = list(sys.path), set(sys.modules)
    yield
    leave_nothing(path, loaded)


def leave_nothing(path: list[str], loaded: set[str]) -> None:
    sys.path[:] = path
    for name in (set(sys.modules) - loaded) & OF_USERS:
        del sys.modules[name]


def run(path: Path, function: str = "make", **parameters: int):
    from shootout.models.sources import called

    return called.run(source.find(f"{path}:{function}"), parameters)
