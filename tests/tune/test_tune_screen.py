"""The screen of a tuning run: each gain with its interval, whatever its verdict, and one way on."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.plain import as_plain

from shootout.apps.judge.decide.question import judge_stage
from shootout.apps.tune import table
from shootout.apps.tune.results import TuneOutcome, Tuning, read_tuning
from shootout.tell.ratios import tell_ratio


@pytest.fixture(scope="module")
def tuning() -> Tuning:
    return read_tuning(Path(__file__).parents[2] / "results" / "reference" / "tune", judge_stage)


@pytest.mark.parametrize("width", [60, 140])
def test_each_gain_has_its_interval_and_no_word_is_broken(tuning: Tuning, width: int):
    text = as_plain([table.render(tuning, width)], width)
    gains = {tuned.conclusion.outcome: tuned.gain for tuned in tuning.found.values() if tuned.gain}
    assert set(gains) >= {TuneOutcome.BETTER, TuneOutcome.CANT_TELL}
    assert [told for gain in gains.values() if (told := tell_ratio(gain)) not in text] == []
    assert "session.use_device_allocator_for_initializers=1" in text
    assert "xla_cpu_prefer_vector_width=512," in text
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("'")]  # a command's word isn't broken
    assert max(map(len, lines)) <= width
