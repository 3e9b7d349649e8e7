"""A scheme's word leaves exactly the layers in float that it names, in every backend that offers it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from shootout.core import backends
from shootout.core.contract import Arm, Precision, Target
from shootout.core.errors import ShootoutError
from shootout.core.exported.client import Request
from shootout.core.exported.model import ExportedModel
from shootout.core.schemes import parse, shown_as
from shootout.core.study.target import own_words
from shootout.models.onnx.layers import LEFT_IN_FLOAT
from shootout.testing.checks import OURS, call, exported_models
from shootout.testing.fresh import run_fresh

pytestmark = pytest.mark.long  # quantizes with a vendor's tools, beyond the INT8 of the conformance suite

DIGITS = Request(model="digits", parameters={"hidden": 64, "n_layers": 2}, batch=2)
CNN = Request(model="digits_cnn", batch=2)
OFFERED = [
    "onnxruntime:int8/float-1",
    "onnxruntime:int8/weights-only+float-1",
    "onnxruntime:int8/shared+float-1",
    "onnxruntime:int8-dynamic/float-1",
    "onnxruntime:int4/float-1",
    "openvino:int8/float-1",
    "openvino:int8/shared+float-1",
    "openvino:int4/float-1",
    "litert:int8/float-1",
    "litert:int8-dynamic/float-1",
    "torch-eager:int8-dynamic/float-1",
]
CONVOLVED = [
    "onnxruntime:int8/float-0.2",
    "onnxruntime:int8/shared+float-0.2",
    "openvino:int8/float-0.2",
    "litert:int8/float-0.2",
]


@dataclass(frozen=True)
class Ran:
    """What an arm came to: nodes by precision and notes, or what it was told instead."""

    nodes: dict[str, int]
    notes: tuple[str, ...] = ()
    told: str = ""


def target_of(label: str) -> Target:
    backend, _, rest = label.partition(":")
    precision, _, scheme = rest.partition("/")
    return Target(backend=backend, precision=Precision(precision), scheme=scheme)


def run_arms(work: list[tuple[ExportedModel, Target]]) -> list[Ran]:
    found = []
    for exported, target in work:
        with TemporaryDirectory() as folder:
            arm = Arm(target=target, model=exported.model, parameters=exported.parameters, batch=exported.batch)
            adapter = backends.get(target.backend)
            try:
                built = adapter.build(exported, arm, Path(folder))
            except (ValueError, ShootoutError) as error:
                found.append(Ran({}, told=str(error)))
                continue
            session = adapter.load(built)
            call(session, exported.input_buffers()[0])
            notes = (*exported.notes, *built.facts["notes"])
            found.append(Ran(dict(session.executed.compute_nodes_by_precision), notes))
    return found


@cache
def everything() -> dict[str, Ran]:
    """All arms of one backend in one process, since importing the quantizers takes as long as several of them."""
    asked = [(DIGITS, label) for label in (*OFFERED, "onnxruntime:int8/float-7")] + [(CNN, one) for one in CONVOLVED]
    targets = [target_of(label) for _, label in asked]
    schemes = [parse(one.scheme, own=own_words(backends.capabilities(one.backend))) for one in targets]
    requests = [
        Request(model=request.model, parameters=request.parameters, batch=request.batch, variant=scheme.made)
        for (request, _), scheme in zip(asked, schemes, strict=True)
    ]
    exported = exported_models(*requests)
    found: dict[str, Ran] = {}
    for backend in dict.fromkeys(one.backend for one in targets):
        mine = [at for at, one in enumerate(targets) if one.backend == backend]
        ran: list[Ran] = run_fresh(run_arms, [(exported[at], targets[at]) for at in mine], warm=OURS)
        found |= {f"{asked[at][0].model} {asked[at][1]}": one for at, one in zip(mine, ran, strict=True)}
    return found


@pytest.mark.parametrize("label", OFFERED)
def test_the_named_layer_computes_in_float_and_the_others_do_not(label: str) -> None:
    ran, target = everything()[f"digits {label}"], target_of(label)
    (floats,) = {*ran.nodes} - {shown_as(target.precision, target.scheme)}
    assert ran.nodes[floats] == 1, ran
    assert floats == "fp32"
    assert f"{LEFT_IN_FLOAT}layers.1 (1)" in ran.notes


@pytest.mark.parametrize("label", CONVOLVED)
def test_convolutions_beside_the_named_ones_stay_in_integers(label: str) -> None:
    ran = everything()[f"digits_cnn {label}"]
    assert ran.nodes["fp32"] == 2, ran
    assert ran.nodes["int8"] == sum(ran.nodes.values()) - 2 > 0


def test_a_layer_that_is_not_there_is_answered_with_those_that_are() -> None:
    told = everything()["digits onnxruntime:int8/float-7"].told
    assert told == "layer 7: the model has 3 layers: 0 layers.0, 1 layers.1, 2 layers.2"
