"""Sizes that vary: the order of their calls, what pads to what, and sizes that can't vary."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from support.exports import bare_exported

from shootout.core.contract import TensorSpec
from shootout.core.errors import ModelError
from shootout.core.exported.model import ExportedModel
from shootout.scenarios.varying import Arrivals, draw_arrivals


def sized(size: int, **facts: object) -> ExportedModel:
    spec = TensorSpec(name="x", shape=(1, size), dtype="int64")
    made = bare_exported({}, inputs=(spec,), outputs=(spec,), weights_sha256="same", export_s=1.0)
    return replace(made, key=str(size), **facts)  # type: ignore[arg-type] # a test's own words


def test_each_size_arrives_as_often_as_its_weight_asks_and_once_at_least():
    order = draw_arrivals({16: 50, 64: 30, 256: 20}, 50, seed=0)
    assert Counter(order) == {16: 25, 64: 15, 256: 10}
    assert order == draw_arrivals({16: 0.5, 64: 0.3, 256: 0.2}, 50, seed=0)
    assert order != draw_arrivals({16: 50, 64: 30, 256: 20}, 50, seed=1)
    assert list(order) != sorted(order)
    rare = Counter(draw_arrivals({8: 999, 512: 1}, 50, seed=0))
    assert rare == {8: 49, 512: 1}
    assert 0 not in Counter(draw_arrivals({8: 1, 9: 0}, 50, seed=0)).values()


def test_a_bucket_is_the_next_multiple():
    arrivals = Arrivals(axis="tokens", sizes=(40, 16, 64, 40))
    assert arrivals.runs(None) == {16: 16, 40: 40, 64: 64}
    assert arrivals.runs(32) == {16: 32, 40: 64, 64: 64}


def test_sizes_that_vary_are_the_model_of_the_largest():
    arrivals = Arrivals(axis="tokens", sizes=(40, 16, 64, 40))
    models = {size: sized(size) for size in (16, 32, 40, 64)}
    exported = arrivals.compose(models, 32)
    assert exported.varying
    assert exported.inputs == models[64].inputs
    assert exported.varying.arrivals == (1, 0, 2, 1)
    assert [*exported.varying.builds] == ["32", "64"]
    assert exported.varying.padding == pytest.approx(1 - 160 / 224)
    assert "padding: 29 % of the inputs' elements" in exported.notes
    assert exported.export_s == 4.0
    fixed = arrivals.compose({size: models[size] for size in (16, 40, 64)})
    assert fixed.varying
    assert [*fixed.varying.builds] == ["16", "40", "64"]
    assert fixed.varying.padding == 0
    assert fixed.notes == ("4 calls in a drawn order: 1 of tokens=16, 2 of tokens=40, 1 of tokens=64",)
    assert fixed.key != exported.key
    opened = arrivals.compose({size: models[size] for size in (16, 40, 64)}, is_open=True)
    assert opened.varying
    assert {opened.varying.name_build(one) for one in opened.varying.sizes} == {"open"}


def test_sizes_that_cannot_vary_are_refused():
    arrivals = Arrivals(axis="width", sizes=(16, 64))
    with pytest.raises(ModelError, match="has other weights for each width"):
        arrivals.compose({16: sized(16), 64: sized(64, weights_sha256="another")})
    with pytest.raises(ModelError, match="no input of m has width in its shape"):
        arrivals.compose({16: sized(64), 64: sized(64)})
