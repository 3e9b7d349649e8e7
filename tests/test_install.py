"""The one command that installs an extra."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from shootout.core import install as install_module
from shootout.core.install import NVIDIA_INDEX, install

CLONE = json.dumps({"url": "file:///clone", "dir_info": {"editable": True}})
WHEEL = json.dumps({"url": "file:///dist/shootout-1.2.whl", "archive_info": {}})


@pytest.mark.parametrize(
    ("origin", "commands"),
    [
        (
            CLONE,
            [
                ".venv/bin/pip install -e '.[torch,jax]'",
                f".venv/bin/pip install {NVIDIA_INDEX} -e '.[tensorrt]'",
                ".venv/bin/pip install -e .",
            ],
        ),
        *(
            (
                origin,
                [
                    "pip install 'shootout-1.2-py3-none-any.whl[torch,jax]'",
                    f"pip install {NVIDIA_INDEX} 'shootout-1.2-py3-none-any.whl[tensorrt]'",
                    "pip install shootout-1.2-py3-none-any.whl",
                ],
            )
            for origin in (WHEEL, None)
        ),
    ],
)
@pytest.mark.parametrize("in_clone", [True, False])
def test_an_extra_is_installed_from_the_clone_or_the_wheel(
    monkeypatch: pytest.MonkeyPatch, origin: str | None, commands: list[str], in_clone: bool
):
    """No package index has the package: its name there may become another's.

    In a clone's folder Python finds `shootout.egg-info` first, which has no origin.
    """

    def distributions(name: str) -> list[Any]:
        assert name == "shootout"
        origins = [None, origin] if in_clone else [origin]
        return [
            SimpleNamespace(
                version="1.2", read_text=lambda file, text=text: text if file == "direct_url.json" else None
            )
            for text in origins
        ]

    monkeypatch.setattr(install_module, "distributions", distributions)
    monkeypatch.setattr(install_module, "_find_wheel_version", install_module._find_wheel_version.__wrapped__)
    assert [install("torch,jax"), install("tensorrt", NVIDIA_INDEX), install("")] == commands


def test_a_package_that_is_not_installed_is_installed_from_its_clone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(install_module, "distributions", lambda name: [])
    monkeypatch.setattr(install_module, "_find_wheel_version", install_module._find_wheel_version.__wrapped__)
    assert install("report") == ".venv/bin/pip install -e '.[report]'"


def test_where_the_package_was_sent_to_an_extra_is_its_own_packages(monkeypatch: pytest.MonkeyPatch):
    """There is neither a clone nor a wheel on such a machine."""
    requirements = [
        "numpy>=2",
        "ai-edge-litert<3,>=2.3; extra == 'litert'",
        "safetensors>=0.4.5; extra == 'litert'",
        "torch<2.14,>=2.11; extra == 'torch'",
        "safetensors>=0.4.5; extra == 'torch'",
    ]
    sent = SimpleNamespace(version="1.2", requires=requirements, read_text=lambda file: "x" if file == "SENT" else None)
    monkeypatch.setattr(install_module, "distributions", lambda name: [sent])
    assert install("litert") == "pip install 'ai-edge-litert<3,>=2.3' 'safetensors>=0.4.5'"
    assert install("litert,torch").endswith("'ai-edge-litert<3,>=2.3' 'safetensors>=0.4.5' 'torch<2.14,>=2.11'")
