"""Training steps of every backend that has them: right gradients, an optimizer that works, and lies that are caught."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shootout.core import backends
from shootout.core.adapter import RATE, TARGET, Adapter, Built
from shootout.core.constants import USEFUL_BOUND
from shootout.core.contract import Arm, Arrays, Capabilities, Executed, Precision, Target
from shootout.core.errors import ShootoutError, SkippedArm
from shootout.core.exported.client import Request, obtain_all
from shootout.core.exported.model import ExportedModel
from shootout.core.messages import Verified
from shootout.core.worker.worker import Worker
from shootout.testing.checks import warm_of
from shootout.testing.fresh import run_fresh

TORCH = warm_of(Target(backend="torch-eager"))
REQUESTS = {
    "residual_mlp": Request(model="residual_mlp", parameters={"d_model": 64, "n_layers": 4}, batch=2, training=True),
    "digits": Request(model="digits", parameters={"hidden": 32, "n_layers": 1}, batch=4, training=True),
    "digits_cnn": Request(model="digits_cnn", parameters={"channels": 8, "n_blocks": 2}, batch=2, training=True),
    "mlp": Request(model="mlp", training=True),
    "recurrent": Request(
        model="recurrent", parameters={"kind": "gru", "inputs": 8, "hidden": 12, "steps": 3}, batch=2, training=True
    ),
}
TRAINERS = [name for name in backends.names() if backends.get(name).capabilities.trains]
STEPS = 12


@cache
def exported_models() -> dict[str, ExportedModel]:
    """All that these tests train, exported in one process."""
    found = dict(zip(REQUESTS, obtain_all(list(REQUESTS.values())), strict=True))
    for one in found.values():
        if isinstance(one, ShootoutError):
            raise one
    return found  # type: ignore[return-value] # no error is among them


def arm_of(exported: ExportedModel, target: Target) -> Arm:
    return Arm(
        target=target,
        model=exported.model,
        parameters=exported.parameters,
        batch=exported.batch,
        scenario="train-step",
    )


def built_by(adapter: Adapter, exported: ExportedModel, target: Target, folder: Path) -> Built:
    folder.mkdir(parents=True)
    return adapter.build(exported, arm_of(exported, target), folder)


def verified(built: Built) -> Verified:
    """What a run's own worker says of it, in this process."""
    worker = Worker()
    worker.load(built)
    return worker.verify()


def behavior(built: Built) -> dict[str, Any]:
    """What the checks of every other session look at, and what only a training session does."""
    session: Any = backends.get(built.arm.target.backend).load(built)
    buffers, at_rest = built.exported.input_buffers(), built.exported.weights()
    staged = [session.stage(inputs, slot) for slot, inputs in enumerate(buffers)]

    def train(steps: int, handles: list[Any]) -> list[float]:
        return [float(session.fetch(session.execute(handles[step % len(handles)]))["loss"]) for step in range(steps)]

    session.reset()
    still = train(STEPS, staged)
    weights, momenta = session.state()
    kept = all(np.array_equal(weights[name], at_rest[name]) for name in built.exported.trained)
    session.reset()
    again, (_, same) = train(STEPS, staged), session.state()
    moving = session.stage({**buffers[0], RATE: np.asarray(np.float32(1e-3))}, len(buffers))
    falling = train(STEPS, [moving])
    moved = [name for name in weights if not np.array_equal(session.state()[0][name], at_rest[name])]
    session.reset()
    back = all(np.array_equal(array, at_rest[name]) for name, array in session.state()[0].items())
    refused = refusals(session, buffers[0])
    unchanged = all(
        np.array_equal(array, other[name])
        for one, other in zip(buffers, built.exported.input_buffers(), strict=True)
        for name, array in one.items()
    )
    session.close()
    session.close()
    return {
        "still": still,
        "again": again,
        "kept": kept,
        "survived": all(np.array_equal(momenta[name], same[name]) for name in momenta),
        "falling": falling,
        "moved": moved,
        "back": back,
        "refused": refused,
        "unchanged": unchanged,
    }


def refusals(session: Any, inputs: Arrays) -> dict[str, str]:
    wrong = {
        "shape": {**inputs, TARGET: inputs[TARGET][..., :-1]},
        "dtype": {**inputs, RATE: inputs[RATE].astype(np.float64)},
        "missing": {name: array for name, array in inputs.items() if name != TARGET},
    }
    said = {}
    for what, given in wrong.items():
        try:
            session.stage(given, 0)
        except ValueError as error:
            said[what] = str(error)
    return said


def trained_by(
    backend: str, found: dict[str, ExportedModel], folder: Path
) -> tuple[dict[str, Verified], dict[str, Any]]:
    """Each exported model's verdict, and the first one's behavior; all in one process."""
    verdicts: dict[str, Verified] = {}
    first: dict[str, Any] = {}
    for name, exported in found.items():
        built = built_by(backends.get(backend), exported, Target(backend=backend), folder / name)
        verdicts[name] = verified(built)
        first = first or behavior(built)
    return verdicts, first


def models_for(backend: str) -> list[str]:
    """All of them; one for what compiles, which takes seconds for each."""
    return list(REQUESTS) if backend == "torch-eager" else ["residual_mlp"]


COMPILED = pytest.param("torch-compile", marks=pytest.mark.slow)  # compiles for a minute


@pytest.fixture(scope="module", params=[*(name for name in TRAINERS if name != "torch-compile"), COMPILED])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any, Any]:
    backend = request.param
    found = {name: exported_models()[name] for name in models_for(backend)}
    folder, warm = tmp_path_factory.mktemp(backend), warm_of(Target(backend=backend))
    return backend, *run_fresh(trained_by, backend, found, folder, timeout_s=600, warm=warm)


def test_gradients_are_the_reference_s(trained: tuple[str, dict[str, Verified], Any]):
    backend, verdicts, _ = trained
    assert list(verdicts) == models_for(backend)
    hold_gradients(verdicts)


def hold_gradients(verdicts: dict[str, Verified]) -> None:
    for name, found in verdicts.items():
        assert found.fault is None, f"{name}: {found.fault}"
        assert found.fidelity.gradient_l2 is not None
        assert 0 < found.fidelity.gradient_l2 < 1e-5, name


@pytest.mark.long
def test_gradients_of_further_models_are_the_reference_s_in_jax_too(tmp_path: Path):
    further = {name: one for name, one in exported_models().items() if name not in models_for("jax-jit")}
    verdicts, _ = run_fresh(
        trained_by, "jax-jit", further, tmp_path, timeout_s=600, warm=warm_of(Target(backend="jax-jit"))
    )
    assert verdicts
    hold_gradients(verdicts)


def test_the_account_counts_the_backward_pass_too(trained: tuple[str, dict[str, Verified], Any]):
    backend, verdicts, _ = trained
    executed: Executed = verdicts["residual_mlp"].executed
    products = 4 + 3 + 4  # forward, gradients of the inputs of all layers but the first, gradients of the weights
    assert executed.compute_nodes_by_precision == {"fp32": products}
    breaks = [line for line in executed.fallbacks if not line.startswith("graph break: Call to `torch._dynamo.graph")]
    assert breaks == []
    assert len(executed.fallbacks) == (backend == "torch-compile")  # torch's own, at the start of optimizer.step


def test_a_learning_rate_of_zero_changes_nothing_but_the_momenta(trained: tuple[str, Any, dict[str, Any]]):
    found = trained[2]
    assert found["kept"]
    assert found["unchanged"]
    assert found["survived"], "the same steps from rest give the same momenta, and state() gives copies"
    buffers = len(exported_models()["residual_mlp"].input_buffers())
    np.testing.assert_allclose(found["still"][buffers:], found["still"][: STEPS - buffers], rtol=1e-6)
    assert found["again"] == found["still"]


def test_a_learning_rate_trains_every_weight_and_reset_takes_it_back(trained: tuple[str, Any, dict[str, Any]]):
    found = trained[2]
    assert found["moved"] == list(exported_models()["residual_mlp"].trained)
    assert found["falling"][-1] < found["falling"][0]
    assert found["back"]


def test_wrong_inputs_are_refused_and_close_twice_is_harmless(trained: tuple[str, Any, dict[str, Any]]):
    refused = trained[2]["refused"]
    assert set(refused) == {"shape", "dtype", "missing"}
    assert all(name in refused[what] for what, name in {"shape": TARGET, "dtype": RATE, "missing": TARGET}.items())


def test_a_backend_that_says_nothing_of_training_has_none():
    assert {"torch-eager", "torch-compile", "jax-jit"} <= set(TRAINERS)
    assert not Capabilities(consumes=(), targets=frozenset()).trains


def mixed(found: dict[str, ExportedModel], folder: Path) -> dict[str, tuple[Verified, str]]:
    """What the worker says of each in BF16, and the type of its momenta."""
    target = Target(backend="torch-eager", precision=Precision.BF16)
    verdicts = {}
    for name, exported in found.items():
        built = built_by(backends.get("torch-eager"), exported, target, folder / name)
        session: Any = backends.get("torch-eager").load(built)
        kinds = {str(array.dtype) for arrays in session.state() for array in arrays.values()}
        verdicts[name] = verified(built), ", ".join(sorted(kinds))
    return verdicts


def test_a_mixed_step_multiplies_in_bf16_forward_and_backward_and_keeps_its_weights_in_float32(tmp_path: Path):
    asked = exported_models()
    for name, (found, kinds) in run_fresh(mixed, asked, tmp_path, warm=TORCH).items():
        assert found.fault is None, f"{name}: {found.fault}"
        assert set(found.executed.compute_nodes_by_precision) == {"bf16"}, name
        assert kinds == "float32"
        bound = asked[name].error_bounds[Precision.BF16]
        assert 1e-4 < (found.fidelity.gradient_l2 or 0) < (bound or 0) < USEFUL_BOUND, name


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP16])
def test_jax_has_no_mixed_step(tmp_path: Path, precision: Precision):
    with pytest.raises(SkippedArm, match="no mixed precision"):
        built_by(
            backends.get("jax-jit"),
            exported_models()["mlp"],
            Target(backend="jax-jit", precision=precision),
            tmp_path / precision,
        )


def detached(session: Any) -> None:
    layers = session._student.module.layers
    layers[2].register_forward_pre_hook(lambda _, given: (given[0].detach(),))


def doubled(session: Any) -> None:
    for weight in session._student.weights.values():
        weight.register_hook(lambda gradient: gradient * 2)


def drifting(session: Any) -> None:
    run = session._step
    session._step = lambda *inputs: run(*inputs[:-1], 1e-4)


def forgetful(session: Any) -> None:
    run, momenta = session._step, session._student.momenta

    def step(*inputs: Any) -> Any:
        for momentum in momenta.values():
            momentum.zero_()
        return run(*inputs)

    session._step = step


def honest(_: Any) -> None:
    pass


LIES: dict[str, tuple[Callable[[Any], None], str]] = {
    "honest": (honest, ""),
    "detached": (detached, "above the"),
    "doubled": (doubled, "above the"),
    "drifting": (drifting, "a learning rate of 0 changed the weight"),
    "forgetful": (forgetful, "a second step"),
}


def faults_of_liars(exported: ExportedModel, folder: Path) -> dict[str, str | None]:
    """What the worker says of an eager step that lies in each of these ways."""
    found = {}
    for name, (lie, _) in LIES.items():
        adapter = backends.get("torch-eager")
        built, load = built_by(adapter, exported, Target(backend="torch-eager"), folder / name), adapter.load

        def lying(built: Built, load: Any = load, lie: Callable[[Any], None] = lie) -> Any:
            session = load(built)
            lie(session)
            return session

        adapter.load = lying  # type: ignore[method-assign]
        backends.get = lambda _, adapter=adapter: adapter  # type: ignore[assignment,misc]
        found[name] = verified(built).fault
        backends.get = GET
    return found


GET = backends.get


def test_a_wrong_step_is_caught(tmp_path: Path):
    found = run_fresh(faults_of_liars, exported_models()["residual_mlp"], tmp_path, warm=TORCH)
    assert found["honest"] is None
    for name, (_, words) in LIES.items():
        assert words in (found[name] or ""), f"{name}: {found[name]}"
