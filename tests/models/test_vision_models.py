"""The models that are written out here against transformers', and that what they put out can tell backends apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shootout import models
from shootout.models.zoo import bert, efficientnet, resnet

SMALL: dict[str, dict[str, Any]] = {
    "efficientnet": {"variant": "b0", "image_size": 64, "classes": 17},
    "resnet": {"variant": "14", "image_size": 64, "classes": 17},
    "bert": {"layers": 2, "hidden": 128, "tokens": 24, "vocabulary": 100},
}
NATIVE = {"b0": 224, "b1": 240, "b2": 260}
PUBLISHED = {
    # parameters in torchvision's table of weights (EfficientNet, ResNet)
    ("efficientnet", "b0", 224): 5_288_548,
    ("efficientnet", "b1", 240): 7_794_184,
    ("efficientnet", "b2", 260): 9_109_994,
    ("resnet", "50", 224): 25_557_032,
}


def small(name: str, **more: Any) -> tuple[Any, dict[str, Any]]:
    model = models.get(name)
    return model, model.check({**SMALL[name], **more})


def outputs(module: Any, sets: list[dict[str, Any]]) -> list[Any]:
    import torch

    with torch.no_grad():
        return [module(*(torch.from_numpy(array) for array in one.values())).numpy() for one in sets]


def same_weights(ours: Any, theirs: Any) -> None:
    """Ours into theirs: the layers come in the same order, under other names."""
    taken, into = ours.state_dict(), theirs.state_dict()
    assert [tensor.shape for tensor in taken.values()] == [tensor.shape for tensor in into.values()]
    theirs.load_state_dict(dict(zip(into, taken.values(), strict=True)))


@pytest.mark.long
@pytest.mark.parametrize(("variant", "size"), [("b0", 64), ("b2", 100)])  # all sides even; some odd
def test_efficientnet_is_that_of_transformers(variant: str, size: int):
    import torch
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    model, parameters = small("efficientnet", variant=variant, image_size=size)
    width, depth = efficientnet.VARIANTS[variant]
    body = list(efficientnet.blocks(parameters))
    config = EfficientNetConfig(
        width_coefficient=width,
        depth_coefficient=depth,
        hidden_dim=efficientnet._round_channels(efficientnet.TOP, parameters),
        depthwise_padding=tuple(index for index, block in enumerate(body) if block.stride > 1 and block.odd),
        num_labels=parameters["classes"],
    )
    theirs = EfficientNetForImageClassification(config).eval()
    theirs.efficientnet.pooler = torch.nn.AdaptiveAvgPool2d(1)  # OpenVINO takes no kernel beyond the image
    agree(model.trained(parameters), theirs, model.draw(parameters, 2)[0])


@pytest.mark.long
@pytest.mark.parametrize("variant", ["14", "26"])
def test_resnet_is_that_of_transformers(variant: str):
    from transformers import ResNetConfig, ResNetForImageClassification

    model, parameters = small("resnet", variant=variant)
    config = ResNetConfig(depths=resnet.DEPTHS[variant], num_labels=parameters["classes"])
    agree(model.trained(parameters), ResNetForImageClassification(config).eval(), model.draw(parameters, 2)[0])


@pytest.mark.long
def test_bert_is_that_of_transformers():
    from transformers import BertConfig, BertModel

    model, parameters = small("bert")
    config = BertConfig(
        num_hidden_layers=parameters["layers"],
        hidden_size=parameters["hidden"],
        num_attention_heads=parameters["hidden"] // bert.HEAD,
        intermediate_size=parameters["hidden"] * bert.WIDENED,
        vocab_size=parameters["vocabulary"],
        max_position_embeddings=parameters["tokens"],
    )
    theirs = BertModel(config, add_pooling_layer=False).eval()
    agree(model.trained(parameters), theirs, model.draw(parameters, 3)[0])


def agree(ours: Any, theirs: Any, inputs: dict[str, Any]) -> None:
    import torch

    same_weights(ours, theirs)
    (wanted,) = outputs(ours, [inputs])
    with torch.no_grad():
        got = theirs(*(torch.from_numpy(array) for array in inputs.values()))[0].numpy()
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "variant", "size"), PUBLISHED)
def test_the_size_is_the_published_one(name: str, variant: str, size: int):
    model = models.get(name)
    parameters = model.check({"variant": variant, "image_size": size})
    assert model.parameter_count(parameters) == PUBLISHED[name, variant, size]


@pytest.mark.parametrize(("variant", "padded"), [("b0", []), ("b1", [16]), ("b2", [5, 8, 16])])
def test_odd_images_are_padded_alike_where_the_released_checkpoints_do(variant: str, padded: list[int]):
    _, parameters = small("efficientnet", variant=variant, image_size=NATIVE[variant])
    body = enumerate(efficientnet.blocks(parameters))
    assert [index for index, block in body if block.stride > 1 and block.odd] == padded


@pytest.mark.parametrize("name", SMALL)
def test_weights_and_inputs_follow_the_seed_and_torch_is_left_alone(name: str):
    import torch

    model, parameters = small(name)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    first, second, other = (model.trained(p).state_dict() for p in (parameters, parameters, {**parameters, "seed": 1}))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    drawn = [np.stack([*one.values()]) for one in (*model.draw(parameters, 2), *model.calibration(parameters, 2))]
    assert len({array.tobytes() for array in drawn}) == len(drawn)


def test_bert_masks_the_padding():
    model, parameters = small("bert")
    one = model.draw(parameters, 4)[0]
    padding = one["attention_mask"] == 0
    assert 0 < padding.mean() < 0.5
    assert (one["input_ids"][padding] == 0).all()
    changed = {**one, "input_ids": np.where(padding, 7, one["input_ids"])}
    unmasked = {**one, "attention_mask": np.ones_like(one["attention_mask"])}
    wanted, same, other = (found[~padding] for found in outputs(model.trained(parameters), [one, changed, unmasked]))
    np.testing.assert_allclose(same, wanted, rtol=1e-5, atol=1e-5)
    assert np.linalg.norm(other - wanted) > 0.01 * np.linalg.norm(wanted)
