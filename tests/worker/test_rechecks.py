"""Answers after the check: who stops computing once it is timed, or keeps its answers, is found out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.sessions import EchoSession

from shootout.core.constants import ROUNDS
from shootout.core.contract import Arm, Array, Arrays, OutputError, Target, TensorSpec
from shootout.core.messages import Verified
from shootout.core.worker import rechecks
from shootout.core.worker.blocks import Blocks
from shootout.core.worker.rechecks import Rechecks
from shootout.core.worker.verification import Claim
from shootout.models.sources.assembly import make_unseen
from shootout.scenarios.concurrent import Instances

INPUTS = [np.array([[1.1, 2.3, 4.7]], np.float32) * (1 + index) for index in range(4)]
TOKENS = [np.random.default_rng(index).integers(0, 99, (1, 16)) for index in range(4)]


def double(x: Array) -> Array:
    return 2 * x


class Session(EchoSession):
    """y = 2 x, or what a misbehaving one makes of it."""

    def __init__(self, run: Callable[[Array], Array] = double) -> None:
        self.run, self.gpu = run, None

    def stage(self, inputs: Arrays, _slot: int) -> Arrays:
        return {"x": inputs["x"].copy()}

    def execute(self, staged: Arrays) -> Arrays:
        return {"y": self.run(staged["x"])}


class Kept:
    """Keeps its answers by what it is asked; `computed` counts what it had to compute."""

    def __init__(self, key: Callable[[Array], Any]) -> None:
        self.key, self.known = key, dict[Any, Array]()
        self.computed = 0

    def __call__(self, x: Array) -> Array:
        if (key := self.key(x)) not in self.known:
            self.known[key], self.computed = 2 * x, self.computed + 1
        return self.known[key]


class Timed(Blocks):
    """Its seconds are planted: an answer that is kept takes one, any other ten."""

    def seconds_to_answer(self, buffer: int) -> float:
        run: Any = self._session.run  # type: ignore[attr-defined]
        before = getattr(run, "computed", 0)
        self.answered(buffer)
        return 10.0 if getattr(run, "computed", 1) > before else 1.0


def buffers_of(arrays: Sequence[Array] = INPUTS) -> list[dict[str, Array]]:
    return [{"x": array.copy()} for array in arrays]


def watching(arrays: Sequence[Array] = INPUTS, **changes: Any) -> Rechecks:
    """What looks after a verified arm: FP32, an error bound of 1e-5, enough time for all."""
    right = [{"y": (2 * array).astype(np.float64 if array.dtype.kind == "f" else array.dtype)} for array in arrays]
    exported = SimpleNamespace(
        outputs=(TensorSpec(name="y", shape=arrays[0].shape, dtype=str(arrays[0].dtype)),),
        trained=changes.pop("trained", ()),
        own_outputs=lambda: right,
        pick=list,
        unseen=lambda: make_unseen(buffers_of(arrays), lambda sets: [{"y": 2 * one["x"]} for one in sets], right[0]),
        is_judged=lambda *_: changes.get("is_judged", True),
        flips_of=lambda *_: changes.get("flips", {}),
    )
    claim: Any = Claim(
        arm=Arm(target=Target(backend="lib"), model="m"),
        exported=exported,  # type: ignore[arg-type]
        session=None,  # type: ignore[arg-type]
        buffers=[],
        strayed=None,
        together=None,
    )
    seen = OutputError(name="y", relative_l2=0.0, flipped=changes.pop("seen", 0.0))
    fidelity = SimpleNamespace(error_bound=1e-5, relative_l2=0.0, by_output=(seen,))
    verified: Any = Verified(executed=None, fidelity=fidelity, fault=None)  # type: ignore[arg-type]
    found = Rechecks.of(claim, verified)
    assert found
    return replace(found, **{name: value for name, value in changes.items() if name not in {"is_judged", "flips"}})


def looked(run: Callable[[Array], Array], arrays: Sequence[Array] = INPUTS, **changes: Any) -> str:
    """The first fault in so many turns."""
    rechecked, blocks = watching(arrays, **changes), Timed(Session(run), buffers_of(arrays))  # type: ignore[arg-type]
    return next(filter(None, (rechecked.look(blocks, 1e6) for _ in range(6))), "")


def fails_after(calls: int, wrong: Callable[[Array], Array]) -> Callable[[Array], Array]:
    made = iter(range(10**6))
    return lambda x: wrong(2 * x) if next(made) >= calls else 2 * x


def test_who_computes_is_left_alone_and_has_its_inputs_as_they_were():
    blocks = Timed(Session(), buffers_of())  # type: ignore[arg-type]
    rechecked = watching()
    assert [rechecked.look(blocks, 1e6) for _ in range(12)] == [""] * 12
    assert all(np.array_equal(one["x"], array) for one, array in zip(blocks.buffers, INPUTS, strict=True))
    assert all(np.array_equal(blocks.computed(slot)["y"], 2 * array) for slot, array in enumerate(INPUTS))


@pytest.mark.parametrize("calls", [0, 1, 5])
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda y: y * np.nan, "NaN or infinity"),
        (lambda y: np.full_like(y, 3.0), "relative L2 error"),
        (lambda y: y * np.float32(1.001), "relative L2 error 0.00.*, above 2e-05"),
        (lambda y: y[:, :2], "expected float32"),
    ],
)
def test_who_stops_computing_is_found_out(calls: int, wrong: Callable[[Array], Array], says: str):
    fault = looked(fails_after(calls, wrong))
    assert re.search(f"answered wrongly: .*{says}", fault), fault


def test_who_keeps_answers_by_where_the_inputs_lie_answers_new_ones_wrongly():
    class BySlot(Session):
        def __init__(self) -> None:
            super().__init__()
            self.known: dict[int, Arrays] = {}

        def stage(self, inputs: Arrays, slot: int) -> Arrays:
            return self.known.setdefault(slot, super().stage(inputs, slot))

    blocks = Timed(BySlot(), buffers_of())  # type: ignore[arg-type]
    assert watching().look(blocks, 1e6).startswith("to inputs that it had not seen it answered wrongly: relative L2")


def test_who_keeps_answers_by_what_the_inputs_hold_is_slow_on_new_ones():
    assert looked(Kept(lambda x: x.tobytes())) == "inputs that it had not seen took 10 times as long: it keeps answers"
    assert not looked(double)


def test_who_keeps_answers_of_long_calls_is_found_out_in_the_rounds_of_one_restart(
    monkeypatch: pytest.MonkeyPatch,
):
    """It plays turns of 26 ms, each of which would pay for 2.6 ms of the second that one real call takes."""
    run = Kept(lambda x: x.tobytes())

    class Stopwatch:
        """A second for each answer that is computed."""

        def __enter__(self) -> Stopwatch:
            self.before = run.computed
            return self

        def __exit__(self, *_: object) -> None:
            self.seconds = float(run.computed - self.before)

    monkeypatch.setattr(rechecks.clock, "Stopwatch", Stopwatch)
    rechecked, blocks = watching(call_s=1e-6), Timed(Session(run), buffers_of())  # type: ignore[arg-type]
    assert "it keeps answers" in "".join(rechecked.look(blocks, 0.026) for _ in range(ROUNDS))


WIDE = [np.random.default_rng(index).normal(size=(1, 64)).astype(np.float32) for index in range(8)]
KEYS: dict[str, Callable[[Array], Any]] = {
    "all": lambda x: x.tobytes(),
    "every 16th": lambda x: x.reshape(-1)[::16].tobytes(),
    "rounded": lambda x: np.round(x, 2).tobytes(),
    "the first": lambda x: x.reshape(-1)[:4].tobytes(),
    "the mean": lambda x: round(float(x.mean()), 5),
    "the sum": lambda x: round(float(x.sum()), 2),
    "rounded to one place": lambda x: np.round(x, 1).tobytes(),
}


@pytest.mark.parametrize("key", KEYS)
def test_an_arm_that_keeps_answers_by_a_part_of_the_inputs_is_slow_on_new_ones(key: str):
    assert looked(Kept(KEYS[key]), WIDE) == "inputs that it had not seen took 10 times as long: it keeps answers"


@pytest.mark.parametrize(
    "key",
    [
        lambda x: round(float(x.mean())),
        lambda x: int(np.argmax([float((x * known).sum()) for known in WIDE])),
        lambda x: np.sign(x.reshape(-1)[:2]).tobytes(),
    ],
    ids=["a coarse mean", "the most like it", "two signs"],
)
def test_an_arm_that_takes_new_inputs_for_known_ones_answers_wrongly(key: Callable[[Array], Any]):
    """Its key tells all the known inputs apart at best, so that the check before timing passes."""
    known = {key(x): 2 * x for x in WIDE}

    def run(x: Array) -> Array:
        is_known = any(np.array_equal(x, one) for one in WIDE)
        return 2 * x if is_known else known.get(key(x), 2 * x)

    fault = looked(run, WIDE)
    assert re.fullmatch(
        r"to inputs that it had not seen it answered wrongly: relative L2 error 0\.\d+, above 0\.\d+; "
        "it gave the answer to other inputs",
        fault,
    ), fault


def test_an_arm_whose_time_depends_on_its_inputs_is_left_alone():
    class Sparse(Timed):
        """Takes ten times as long where the first number is above zero."""

        def seconds_to_answer(self, buffer: int) -> float:
            return 10.0 if self.answered(buffer)["y"][0, 0] > 0 else 1.0

    rechecked, blocks = watching(WIDE), Sparse(Session(), buffers_of(WIDE))  # type: ignore[arg-type]
    assert [rechecked.look(blocks, 1e6) for _ in range(12)] == [""] * 12


STARTS = 60


def judged_starts(odds_of_a_slow_pair: float, pairs: int = rechecks.SHORT_PAIRS) -> list[float]:
    """What so many starts find whose pairs are slow this often."""
    rng = np.random.default_rng(0)
    slow = (rng.random((STARTS, rechecks.MOST_PAIRS)) < odds_of_a_slow_pair).astype(float)
    return [rechecks.judge_ratios(3 * one + 1, pairs) for one in slow]


@pytest.mark.parametrize("share", [1.0, 0.95, 0.85])
def test_most_pairs_that_are_slow_prove_it_though_noise_hits_some(share: float):
    assert sum(found == 4 for found in judged_starts(share)) >= 0.95 * STARTS


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 0.5])
@pytest.mark.parametrize("pairs", [rechecks.PAIRS, rechecks.SHORT_PAIRS])
def test_noise_that_hits_half_of_the_pairs_proves_nothing(share: float, pairs: int):
    assert not any(judged_starts(share, pairs))


class Noisy(Timed):
    """A kept answer takes 6 us and any other 23; one call of ten takes long, whichever it is, as on a busy CPU."""

    rng = np.random.default_rng(7)

    def seconds_to_answer(self, buffer: int) -> float:
        quiet_s = 23e-6 if super().seconds_to_answer(buffer) > 1 else 6e-6
        return quiet_s * self.rng.lognormal(0, 0.1) + (self.rng.random() < 0.1) * self.rng.exponential(1e-3)


@pytest.mark.parametrize("key", ["all", "every 16th", "rounded to three", "the sum"])
def test_kept_answers_are_found_on_a_noisy_cpu(key: str):
    keys = {**KEYS, "rounded to three": lambda x: np.round(x, 3).tobytes()}
    found = list[str]()
    for _ in range(10):
        blocks: Any = Noisy(Session(Kept(keys[key])), buffers_of(WIDE))  # type: ignore[arg-type]
        rechecked = watching(WIDE)
        found.append("".join(rechecked.look(blocks, 1e6) for _ in range(2)))
    assert sum("it keeps answers" in one for one in found) >= 9


def test_an_arm_that_computes_is_left_alone_on_a_noisy_cpu():
    for _ in range(60):
        rechecked, blocks = watching(WIDE), Noisy(Session(), buffers_of(WIDE))  # type: ignore[arg-type]
        assert [rechecked.look(blocks, 1e6) for _ in range(2)] == ["", ""]


def test_few_new_inputs_of_whole_numbers_are_held_against_the_median_of_known_calls():
    found = list[str]()
    for _ in range(20):
        blocks: Any = Noisy(Session(Kept(KEYS["all"])), buffers_of(TOKENS))  # type: ignore[arg-type]
        rechecked = watching(TOKENS)
        found.append("".join(rechecked.look(blocks, 1e6) for _ in range(2)))
    assert sum("it keeps answers" in one for one in found) >= 18


def test_a_forest_that_finds_its_branches_in_the_cache_is_left_alone():
    """Its answers are steps, so inputs that hardly differ get the same one; new branches take three times as long."""

    class Forest(Kept):
        def __call__(self, x: Array) -> Array:
            super().__call__(x)
            return np.round(2 * x, 1)

    branches = Forest(lambda x: np.round(x, 0).tobytes())
    blocks: Any = Timed(Session(branches), buffers_of(WIDE))  # type: ignore[arg-type]
    rechecked = watching(WIDE, is_judged=False)
    assert [rechecked.look(blocks, 1e6) for _ in range(6)] == [""] * 6
    assert branches.computed > len(WIDE)


def test_an_arm_that_only_sees_whether_its_input_has_changed_is_left_alone():
    class Last(Kept):
        def __call__(self, x: Array) -> Array:
            found = super().__call__(x)
            self.known = {self.key(x): found}
            return found

    assert not looked(Last(KEYS["all"]), WIDE)


@pytest.mark.parametrize(
    ("pattern", "meets_new"),
    [(lambda x: x == 0, False), (lambda x: x > 0.75, True)],
    ids=["zeros", "above a threshold"],
)
def test_an_arm_that_prepares_each_new_shape_is_left_alone(pattern: Callable[[Array], Array], meets_new: bool):
    """An inner layer picks some of the numbers, and its library prepares a kernel for each choice of them."""
    sparse = [x * (np.abs(x) > 0.5) for x in WIDE]

    class Shapes(Kept):
        def __call__(self, x: Array) -> Array:
            super().__call__(x)
            return 2 * x

    run = Shapes(lambda x: pattern(x).tobytes())
    assert not looked(run, sparse)
    assert (run.computed > len(sparse)) is meets_new


def test_an_arm_that_can_t_take_mixed_inputs_is_left_alone_and_has_its_own_again():
    """Nothing has shown that the model takes them."""
    valid = {array.tobytes() for array in WIDE}

    def picky(x: Array) -> Array:
        if x.tobytes() not in valid:
            raise ValueError("boxes: x1 must be below x2")
        return 2 * x

    rechecked, blocks = watching(WIDE), Timed(Session(picky), buffers_of(WIDE))  # type: ignore[arg-type]
    valid |= {inputs["x"].tobytes() for inputs, _ in rechecked.unseen}
    assert [rechecked.look(blocks, 1e6) for _ in range(6)] == [""] * 6
    assert all(np.array_equal(one["x"], array) for one, array in zip(blocks.buffers, WIDE, strict=True))


def test_each_unseen_input_is_used_once():
    """The second time it is as well known as any other."""
    rechecked, asked = watching(WIDE), list[bytes]()
    run = lambda x: asked.append(x.tobytes()) or 2 * x  # type: ignore[func-returns-value]  # noqa: E731
    blocks = Timed(Session(run), buffers_of(WIDE))  # type: ignore[arg-type]
    assert [rechecked.look(blocks, 1e6) for _ in range(8)] == [""] * 8
    assert [asked.count(inputs["x"].tobytes()) for inputs, _ in rechecked.unseen] == [1, 1]


def test_where_no_other_inputs_are_valid_those_of_another_buffer_are_asked():
    run = Kept(KEYS["all"])
    assert not looked(run, WIDE, unseen=[])
    assert set(run.known) <= {x.tobytes() for x in WIDE}


def test_who_stops_computing_after_the_last_look_is_found_out_at_the_end():
    rechecked, blocks = watching(), Timed(Session(), buffers_of())  # type: ignore[arg-type]
    assert not rechecked.look(blocks, 1e6)
    assert not rechecked.look_once_more(blocks)
    blocks._session.run = lambda x: x * np.nan  # type: ignore[attr-defined]
    assert "answered wrongly: the output has NaN" in rechecked.look_once_more(blocks)


def test_tokens_are_exchanged():
    assert not looked(double, TOKENS)
    assert "it keeps answers" in looked(Kept(KEYS["all"]), TOKENS)
    valid = {one.tobytes() for one in TOKENS} | {inputs["x"].tobytes() for inputs, _ in watching(TOKENS).unseen}
    run = Kept(KEYS["all"])
    looked(run, TOKENS)
    assert set(run.known) <= valid, "it gets no integers that no export has checked"
    assert "integer or boolean elements differ" in looked(fails_after(1, lambda y: y + 1), TOKENS)


def test_as_many_integers_may_flip_as_the_precision_explains():
    def flipped(y: Array) -> Array:
        return y + (np.arange(y.size) < 1).reshape(y.shape)

    share = 1 / TOKENS[0].size
    assert looked(fails_after(1, flipped), TOKENS)
    assert not looked(fails_after(1, flipped), TOKENS, flips={"y": share / 2})
    assert looked(fails_after(1, lambda y: y + 1), TOKENS, flips={"y": share / 2})


MAPS = [(np.arange(1000)[None] // 300 + 1 == at).astype(int) for at in range(3)]
"""Class maps the nearest of which differ in 300 elements of 1,000."""


@pytest.mark.parametrize(("wrong", "is_told"), [(100, False), (149, False), (160, True), (290, True)])
def test_no_more_may_differ_than_half_the_way_to_another_answer(wrong: int, is_told: bool):
    """Rounding explains 30 % here, and twice that would be more than any other inputs' answer is away."""

    def flipped(y: Array) -> Array:
        return y + (np.arange(y.size) >= y.size - wrong).reshape(y.shape)

    rechecked = watching(MAPS, flips={"y": 0.3})
    answers = [rechecked._find_fault(one, {"y": flipped(one.outputs["y"])}) for one in rechecked.right]
    assert [bool(told) for told in answers] == [is_told] * 3


def test_what_differed_before_timing_may_differ_again():
    """Two maps that hardly differ leave no room between them, and the flips of an honest arm are known."""
    alike = [MAPS[0], MAPS[0] + (np.arange(1000) < 2)]
    rechecked = watching(alike, flips={"y": 0.1}, seen=0.05)
    (first, _), right = rechecked.right, rechecked.right[0].outputs["y"]
    assert rechecked._find_fault(first, {"y": right + (np.arange(1000) < 50)}) is None
    assert rechecked._find_fault(first, {"y": right + (np.arange(1000) < 51)})
    label = watching([np.array([[at]]) for at in range(3)], flips={"y": 0.1}, seen=0.01).right[0]
    assert rechecked._find_fault(first, first.outputs) is None
    assert label.mismatches == {"y": 1}, "one label of a hundred was turned"


def test_what_nobody_can_judge_has_to_stay_finite():
    assert not looked(fails_after(0, lambda y: y * 3), is_judged=False)
    assert "NaN or infinity" in looked(fails_after(0, lambda y: y * np.nan), is_judged=False)
    assert not looked(fails_after(0, lambda y: y * np.nan), is_judged=False, is_finite=False)


def test_it_takes_its_share_of_the_time_and_no_more(monkeypatch: pytest.MonkeyPatch):
    class Stopwatch:
        seconds = 1.0

        def __enter__(self) -> Stopwatch:
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(rechecks.clock, "Stopwatch", Stopwatch)
    rechecked, asked = watching(call_s=0.1), []
    blocks: Any = SimpleNamespace(at_once=lambda job: asked.append(job.__name__) or [""])
    for _ in range(100):
        rechecked.look(blocks, 2.0)
    assert len(asked) == 21  # of a second each, in 200 seconds, the first one for nothing
    assert asked[:3] == ["_check_answers", "_check_kept_answers", "_check_answers"]


def test_calls_that_are_long_are_not_read():
    calls = list[Array]()
    run = lambda x: calls.append(x) or 2 * x  # type: ignore[func-returns-value]  # noqa: E731
    rechecked, blocks = watching(call_s=1.0), Timed(Session(run), buffers_of())  # type: ignore[arg-type]
    for looks in range(1, 6):
        assert not rechecked.look(blocks, 1e6)
        assert len(calls) == 2 * looks


def test_every_instance_is_asked():
    sessions: Any = [Session(), Session(fails_after(6, lambda y: y * 3))]
    instances = Instances(sessions, [buffers_of(), buffers_of()], 1)
    rechecked = watching()
    found = [rechecked.look(instances, 1e6) for _ in range(8)]
    assert any("answered wrongly" in fault for fault in found)
