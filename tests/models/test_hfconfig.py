"""A transformers model from its config alone: read without transformers, made without a download."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.exports import obtain

from shootout import models
from shootout.core.contract import Artifact
from shootout.core.errors import UsageError
from shootout.core.exported import client
from shootout.core.exported.client import Request

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
BERT = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "vocab_size": 50, **SMALL}
RESNET = {
    "model_type": "resnet",
    "architectures": ["ResNetForImageClassification"],
    "embedding_size": 8,
    "hidden_sizes": [8, 16],
    "depths": [1, 1],
    "layer_type": "basic",
}
OTHERS: dict[str, dict[str, Any]] = {
    "distilbert": {"vocab_size": 50, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16},
    "gpt2": {"vocab_size": 50, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 1, "eos_token_id": 1},
    "vit": {"image_size": 16, "patch_size": 8, **SMALL},
    "resnet": RESNET,
    "efficientnet": {"image_size": 32, "width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320},
}


def write(folder: Path, config: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


def test_its_parameters_are_read_without_transformers(tmp_path: Path):
    path = write(tmp_path, {**BERT, "max_position_embeddings": 40})
    code = (
        "import sys; from shootout import models; print(models.get(sys.argv[1]).defaults); "
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True).stdout
    assert said.strip() == str({"seed": 0, "sequence_length": 38})
    with pytest.raises(UsageError, match="sequence_length must be a whole number from 1 to 40"):
        models.get(str(path)).check({"sequence_length": 41})
    assert models.get(str(write(tmp_path, RESNET))).defaults == {"seed": 0, "image_size": 224}


@pytest.mark.parametrize(
    ("text", "says"), [("{", "is not JSON"), ("[1]", "has no model_type"), ('{"a": 1}', "has no model_type")]
)
def test_what_is_no_config_is_refused(tmp_path: Path, text: str, says: str):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError, match=says):
        client.check(Request(model=str(tmp_path / "config.json")))
    with pytest.raises(UsageError, match="can't read"):
        client.check(Request(model=str(tmp_path / "none.json")))


def test_bert_gets_tokens_a_mask_and_named_outputs(tmp_path: Path):
    exported = obtain(str(write(tmp_path, BERT)), {"sequence_length": 6}, 2)
    assert [(spec.name, spec.shape) for spec in exported.inputs] == [("input_ids", (2, 6)), ("attention_mask", (2, 6))]
    assert [(spec.name, spec.shape) for spec in exported.outputs] == [("logits", (2, 2))]
    assert set(exported.artifacts) == {Artifact.MODULE, Artifact.ONNX, Artifact.PT2}
    buffers = exported.input_buffers()
    ids = np.stack([one["input_ids"] for one in buffers])
    assert 1 <= ids.min() <= ids.max() < 50
    assert len({one["attention_mask"].tobytes() for one in buffers}) > 1


def test_a_model_that_it_does_not_know_says_so(tmp_path: Path):
    with pytest.raises(UsageError, match=r"transformers can't make or run this model from its config alone: .*nope"):
        obtain(str(write(tmp_path, {"model_type": "nope"})), {}, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", OTHERS)
def test_others_are_exported_too(tmp_path: Path, kind: str):
    config = {"model_type": kind, **OTHERS[kind]}
    given = {"sequence_length": 6} if "vocab_size" in config else {"image_size": 32} if kind == "resnet" else {}
    exported = obtain(str(write(tmp_path, config)), given, 2)
    assert set(exported.artifacts) == {Artifact.MODULE, Artifact.ONNX, Artifact.PT2}
