"""What errors are made of: a library's words in short, and the one command that installs an extra."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from shootout.core import errors
from shootout.core.errors import NVIDIA_INDEX, install

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

    monkeypatch.setattr(errors, "distributions", distributions)
    monkeypatch.setattr(errors, "_find_wheel_version", errors._find_wheel_version.__wrapped__)
    assert [install("torch,jax"), install("tensorrt", NVIDIA_INDEX), install("")] == commands


def test_a_package_that_is_not_installed_is_installed_from_its_clone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(errors, "distributions", lambda name: [])
    monkeypatch.setattr(errors, "_find_wheel_version", errors._find_wheel_version.__wrapped__)
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
    monkeypatch.setattr(errors, "distributions", lambda name: [sent])
    assert install("litert") == "pip install 'ai-edge-litert<3,>=2.3' 'safetensors>=0.4.5'"
    assert install("litert,torch").endswith("'ai-edge-litert<3,>=2.3' 'safetensors>=0.4.5' 'torch<2.14,>=2.11'")


def test_a_library_error_is_its_first_line_and_its_innermost_cause():
    """skl2onnx writes all numbers of a model into its message, 2 MB of them, and leaves the reason to the cause."""
    numbers = ", ".join(map(str, range(400_000)))
    outer = ValueError(f"Unable to create node 'TreeEnsembleClassifier' with attributes={{'class_ids': [{numbers}]}}")
    middle = RuntimeError("in between")
    middle.__cause__ = TypeError("Field onnx.AttributeProto.ints: Expected an int, got a boolean.\n" + 99 * "more\n")
    outer.__cause__ = middle
    told = errors.explained(outer)
    assert told.startswith("ValueError: Unable to create node 'TreeEnsembleClassifier' with")
    assert told.endswith(", because of TypeError: Field onnx.AttributeProto.ints: Expected an int, got a boolean")
    assert len(told) <= errors.MOST_LETTERS
    log = "Failed to run:\n\n  CppError: no g++.\nand a log"
    assert errors.explained(ValueError(log)) == "ValueError: Failed to run: | CppError: no g++. | and a log"
    assert errors.explained(ValueError(log * 99)) == "ValueError: Failed to run: CppError: no g++"
    again = RuntimeError("it says: no g++ found")
    again.__cause__ = OSError("no g++ found")
    assert errors.explained(again) == "RuntimeError: it says: no g++ found"
    assert errors.explained(KeyError()) == "KeyError: "


def test_an_error_that_is_its_own_cause_is_told():
    itself, one, other = RuntimeError("broken"), ValueError("first"), OSError("second")
    itself.__cause__, one.__cause__, other.__cause__ = itself, other, one
    assert errors.explained(itself) == "RuntimeError: broken"
    assert errors.explained(one) == "ValueError: first, because of OSError: second"
    outer = TypeError("outer")
    outer.__cause__ = one
    assert errors.explained(outer) == "TypeError: outer, because of OSError: second"


def test_reasons_are_cut_between_words():
    assert errors.shorten("one two three", 13) == "one two three"
    assert errors.shorten("one two three", 12) == "one two…"
    assert errors.shorten("one two: three", 9) == "one two…"
    assert errors.shorten("onetwothree", 5) == "onetw…"
    assert errors.keep_end("one two three", 13) == "one two three"
    assert errors.keep_end("one two three", 8) == "…three"
    assert errors.keep_end("one two three", 9) == "…two three"
