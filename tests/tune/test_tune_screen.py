"""The screen of a tuning run: each gain with its interval, whatever its verdict, and one way on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from support.plain import as_plain

from shootout.contract import Precision
from shootout.results.wording import tell_ratio
from shootout.tune import table
from shootout.tune.results import TuneOutcome, Tuning, read_tuning


@pytest.fixture(scope="module")
def tuning() -> Tuning:
    return read_tuning(Path(__file__).parents[2] / "results" / "reference" / "tune")


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_each_gain_has_its_interval_and_no_word_is_broken(tuning: Tuning, width: int):
    text = as_plain([table.render(tuning, width)], width)
    gains = {tuned.conclusion.outcome: tuned.gain for tuned in tuning.found.values() if tuned.gain}
    assert set(gains) >= {TuneOutcome.BETTER, TuneOutcome.CANT_TELL}
    assert [told for gain in gains.values() if (told := tell_ratio(gain)) not in text] == []
    assert "session.use_device_allocator_for_initializers=1" in text
    assert "xla_cpu_prefer_vector_width=512," in text
    assert max(map(len, text.splitlines())) <= width


def test_what_several_targets_share_is_told_once(tuning: Tuning):
    text = as_plain([table.render(tuning, 140)], 140)
    assert text.count("its interval is too wide yet") == 1
    assert "Next" not in text, "what goes on is this tuning"
    assert text.count("To run a backend with its faster setting:") == 1
    assert text.count("shootout run --model residual_mlp") == 3


def test_a_setting_that_is_a_target_of_its_own_is_run_beside_the_default(tuning: Tuning):
    tuned = next(one for one in tuning.found.values() if one.held and one.default.target == one.ship.target)
    assert table._name_arms(tuned) == [tuned.ship], "a knob holds for all targets of its backend"
    mix = replace(tuned.default, target=replace(tuned.default.target, precision=Precision.INT8, scheme="float-3"))
    other = Mock(default=tuned.default, ship=mix)
    assert table._name_arms(other) == [tuned.default, mix]
