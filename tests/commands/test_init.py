"""A study that is written for a user: it says what can run here, and it is one as it stands."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import onnx_made
from support.console import here
from support.factories import LINEAR, write

from shootout.commands import init
from shootout.contract import Availability, Device, NotRun, NotRunKind
from shootout.study import plan, schema

NO_GPU = NotRun(NotRunKind.UNAVAILABLE, "there is no GPU", "get one")


WROTE = """\
wrote shootout.toml and deploy.toml
edit it, then: shootout run shootout.toml
or, to decide by your own limits: shootout run shootout.toml --policy deploy.toml
"""


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything works on the CPU, and there is no GPU."""

    def found(pairs: Collection[Any], *_: object, **__: object) -> dict[Any, Availability]:
        return {pair: Availability(version="1", why=NO_GPU if pair[1] is Device.CUDA else None) for pair in pairs}

    monkeypatch.setattr(plan, "known_available", found)


@pytest.mark.parametrize(
    ("words", "model", "keys"),
    [
        ("recurrent --set kind=gru --batch 2", "recurrent", ('kind = ["gru"]', "# hidden = [100]", "batch = [2]")),
        ("m.py:make", "m.py:make", ("# width = [3]", '# inputs = "inputs.npz"')),
        ("f.onnx --shape x=1x8x4", "f.onnx", ("x = [1, 8, 4]", "Here: x float32[batch, length, 4].")),
        ("", "residual_mlp", ("# d_model = [128]",)),
    ],
)
def test_what_is_written_runs_as_it_stands(tmp_path: Path, words: str, model: str, keys: tuple[str, ...]) -> None:
    write(tmp_path / "m.py", LINEAR)
    onnx_made.linear(tmp_path / "f.onnx", ("batch", "length", 4), ("batch", "length", 3))
    done = here("init", *words.split(), cwd=tmp_path)
    assert (done.code, done.out) == (0, WROTE)
    text = (tmp_path / "shootout.toml").read_text()
    assert "\n#   shootout run shootout.toml\n" in text, "a line of its own, to be copied"
    for key in keys:
        assert key in " ".join(text.replace("\n# ", " ").split()) or key in text
    assert max(len(line) for line in text.splitlines() if not line.startswith("    ")) <= 80
    shown = here("run", "shootout.toml", "--dry-run", "--json", cwd=tmp_path).data
    (group,) = shown["groups"]
    assert not [arm for arm in group["arms"] if "cuda" in arm]
    assert group["skipped"] == {}, "only what can run here is a target"
    assert f'model = "{model}"' in text
    assert "there is no GPU. Fix: get one" in " ".join(text.replace("\n# ", " ").split())


def test_every_key_that_is_commented_out_can_be_taken_in(tmp_path: Path) -> None:
    write(tmp_path / "m.py", LINEAR)
    here("init", "m.py:make", cwd=tmp_path)
    lines = (tmp_path / "shootout.toml").read_text().splitlines()
    bare = [re.sub(r"^(    )?# (?=\w+ = |\")", r"\1", line) for line in lines]
    assert bare != lines
    study = schema.read_text("\n".join(bare), "s", "here")
    assert (study.labels, study.threads, study.p99_limit_ms) == ("labels.npz", (1, "all"), 5.0)
    assert "onnxruntime:cpu:int4" in study.targets
    assert "jax-jit:cpu:int8" in study.targets
    assert not {"jax-jit:cpu:int4", "jax-jit:cpu:fp8"} & {*study.targets}, "they can't run on any CPU"


def test_the_users_data_and_weights_are_taken_over(tmp_path: Path) -> None:
    onnx_made.linear(tmp_path / "f.onnx")
    np.savez(tmp_path / "x.npz", x=np.ones((20, 4), np.float32))
    np.savez(tmp_path / "l.npz", labels=np.zeros(20, np.int64))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit", "architectures": ["ViTModel"]}))
    (tmp_path / "w.safetensors").write_bytes(b"weights")
    labeled = here("init", "f.onnx", "--inputs", "x.npz", "--labels", "l.npz", "--out", "a.toml", cwd=tmp_path)
    weighed = here("init", "config.json", "--weights", "w.safetensors", "--out", "b.toml", cwd=tmp_path)
    assert (labeled.code, weighed.code) == (0, 0), labeled.err + weighed.err
    assert schema.load(str(tmp_path / "a.toml")).labels == "l.npz"
    assert schema.read_text((tmp_path / "b.toml").read_text(), "b", "here").weights == "w.safetensors"
    refused = here("sensitivity", "linear", "--weights", "w.safetensors", cwd=tmp_path)
    assert "--weights is for a transformers config: linear has its own" in refused.err, "it is an option there too"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("linear", "shootout.toml already exists: remove it, or give another --out"),
        ("linear --out study.txt", "a study's file ends in .toml"),
        ("batch-sweep --out new.toml", "'batch-sweep' is a study, not a model"),
        ("gone.onnx --out new.toml", "can't read"),
        ("linear --out gone/new.toml", "can't write gone/new.toml: No such file"),
    ],
)
def test_what_can_not_be_written_is_told_and_nothing_is(tmp_path: Path, words: str, says: str) -> None:
    (tmp_path / "shootout.toml").write_text("mine")
    done = here("init", *words.split(), cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["shootout.toml"]
    assert (tmp_path / "shootout.toml").read_text() == "mine"


@pytest.mark.parametrize("name", ["shootout.toml", "deploy.toml"])
def test_a_file_that_comes_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    make_plan = init.make_plan

    def plan_slowly(*chosen: Any, **more: Any) -> Any:
        (tmp_path / name).write_text("mine")
        return make_plan(*chosen, **more)

    monkeypatch.setattr(init, "make_plan", plan_slowly)
    done = here("init", "linear", cwd=tmp_path)
    assert (tmp_path / name).read_text() == "mine"
    refused = "shootout.toml already exists: remove it, or give another --out"
    assert (done.code, refused in done.err) == ((2, True) if name == "shootout.toml" else (0, False))
    assert "deploy.toml" not in done.out
