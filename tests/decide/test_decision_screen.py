"""A decision's screen: what it says of the best, of what may be as good, and of what is better and isn't shipped."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.plain import as_plain
from support.races.candidates import question
from support.races.cells import fidelity, row

from shootout.apps.judge.decide.candidates import Question
from shootout.apps.judge.decide.decision import decide
from shootout.apps.judge.decide.limits import Bounds, judge_figure
from shootout.apps.judge.decide.policy import read_policy, write_policy
from shootout.apps.judge.decide.screen import READING, render
from shootout.tell.document import Metric, tell_finding
from shootout.tell.limits import Limit, Standing
from shootout.tell.reproduce import Begun

SLOW, FAST = row("slow", 2e6), row("fast", 5e5)


def screen(asked: Question, width: int = 100, **keys: Any) -> str:
    policy = read_policy(None, {key.replace("_", "-"): value for key, value in keys.items()})
    return as_plain(render(decide(policy, asked), asked, width), width)


def part(text: str, label: str) -> str:
    """The items of a label, in one line; "" if the screen doesn't have it."""
    found = re.search(rf"^{re.escape(label)}\s(.*\n(?: .*\n)*)", text + "\n", re.MULTILINE)
    return " ".join(found[1].split()) if found else ""


def rough(**fields: Any) -> Any:
    return row("rough:cpu:int8", 2.5e5, fidelity=fidelity(1.87e-3, top1_agreement=1.0), **fields)


def agreeing(name: str, score: float, ns: float = 2.5e5) -> Any:
    """A lower precision whose outputs agree so with FP32's, by 200 rows."""
    agreed = {"name": "recall@10", "rows": 200, "lower_is_better": False, "against": "outputs", "limits": "agreement"}
    metric = Metric(**agreed, value=score, low=score - 0.01, high=score + 0.01, limit=0.995, standing=Standing.BROKEN)
    return row(name, ns, fidelity=fidelity(1e-3, metric=metric))


def test_what_accepts_a_loss_is_found_by_the_rule_that_decides_and_is_for_the_one_that_loses_least():
    """Four share the chance of an error, so that the interval of each is wider than in the run."""
    rough = [agreeing(f"rough{at}:cpu:int8", 0.97 - at / 1000, 2.5e5 + at) for at in range(3)]
    plain = [agreeing(one, 0.99, ns) for one, ns in (("slow", 2e6), ("fast", 5e5))]
    asked = question(*plain, *rough, agreeing("good:cpu:bf16", 0.98, 4e5))
    told = part(screen(asked, min_agreement="99.5%"), "Faster, not shipped")
    (value,) = re.findall(r"--min-agreement (\S+)", told)
    assert "(good:cpu:bf16" in told
    decided = decide(read_policy(None, {"min-agreement": value}), asked)
    assert decided.of("good:cpu:bf16").standing is Standing.MET
    assert decided.chosen == "good:cpu:bf16"


def test_a_reason_that_all_share_is_told_once():
    more = row("odd:cpu:int8", 2.6e5, fidelity=fidelity(3e-3), model="residual_mlp")
    told = part(screen(question(SLOW, FAST, rough(model="residual_mlp"), more)), "Faster, not shipped")
    assert told.count("random inputs can't show its accuracy") == 1
    assert told.endswith("--max-error 0.19% (rough:cpu:int8)")


def test_it_says_at_95_percent_what_it_is_faster_than_and_what_brackets_are():
    text = screen(question(SLOW, FAST, row("mid", 8e5)))
    assert part(text, "Sure").startswith(
        "at 95 %: fast is faster than each of the 2 other FP32 targets; "
        "the closest, mid, is 1.60x slower (1.57 to 1.63) · "
    )
    assert text.splitlines()[-1] == f"{READING}."


def test_sizes_have_no_interval_and_no_confidence():
    text = screen(question(row("a", 5e5, artifact_bytes=10), row("b", 6e5, artifact_bytes=20)), objective="size")
    assert "95 %" not in text
    assert READING not in text


def test_only_what_measured_within_the_margin_is_tied():
    text = screen(question(FAST, row("near", 5.1e5), row("far", 6e5), sd=0.0, within=0.3))
    assert part(text, "Tied").startswith("near: about 1.02x slower, open")
    assert "far" not in part(text, "Tied")
    assert part(text, "Unsure") == "far: about 1.2x slower, open"
    assert "far" not in part(text, "Not")


@pytest.mark.parametrize(
    ("limit", "low", "wanted", "told"),
    [
        (Limit.ERROR, 0.20004, 0.2, "max-error 0.20004 > 0.2"),
        (Limit.DROP, 0.0100003, 0.01, "max-drop 0.0100003 > 0.01"),
        (Limit.SIZE, 12_340_100, 12_340_000, "size 12.3401 MB > 12.34 MB"),
        (Limit.P99, 5e6 * (1 + 1e-12), 5e6, "p99 > 5 ms"),
        (Limit.ERROR, 0.3, 0.2, "max-error 0.3 > 0.2"),
        (Limit.AGREEMENT, 0.95, 0.9855, "min-agreement 95 % < 98.55 %"),
        (Limit.P99, 6e6, 5_255_000, "p99 6 ms > 5.255 ms"),
        (Limit.METRIC, 0.97, 0.98125, "min-metric 0.97 < 0.98125"),
        (Limit.AGREEMENT, 0.98549, 0.9855, "min-agreement 98.5 % < 98.55 %"),
    ],
)
def test_a_broken_limit_is_told_in_as_many_digits_as_show_it(limit: Limit, low: float, wanted: float, told: str):
    assert tell_finding(judge_figure(limit, wanted, Bounds(value=low, low=low, high=low))) == told


def test_what_goes_on_with_a_run_is_followed_by_the_decision_with_the_limits_that_it_was_given():
    """The command of the run has its own limits, which a decision's may differ from."""
    asked, settle = question(SLOW, FAST), "shootout run toy --out made --max-time 5m"
    unfinished = asked.documents[0].model_copy(update={"resume": settle})
    asked = replace(asked, documents=(unfinished,))
    given = {
        "load": "20/s",
        "price": 0.0893,
        "utilization": "55%",
        "min-agreement": "95.15%",
        "ready": "2500ms",
        "size": "13MB",
    }
    for keys in ({}, given):
        policy = read_policy(None, keys)
        found = decide(policy, asked).model_copy(update={"settle": settle})
        text = part(as_plain(render(found, asked, 200), 200), "Next")
        limits = "--utilization 55% --load 20/s --price 0.0893 --min-agreement 95.15% --ready 2.5s --size 13MB"
        assert (f"{settle} shootout decide made {limits}" in text) is bool(keys)
        assert ("shootout decide" in text) is bool(keys)
        options = write_policy(policy) or []
        assert read_policy(None, dict(option.removeprefix("--").split() for option in options)) == policy


def test_a_step_of_training_has_no_next_command():
    steps = [one.model_copy(update={"scenario": "train-step"}) for one in (SLOW, FAST)]
    assert "Next" not in screen(question(*steps), objective="size")


def test_a_single_candidate_is_said_to_be_compared_with_nothing():
    told = "no other target was measured, so nothing was compared"
    assert part(screen(question(FAST)), "Sure").startswith(told)
    assert told not in " ".join(screen(question(SLOW, FAST)).split())
    assert told not in " ".join(screen(question(FAST, rough())).split()), "one that may not be shipped was compared"


def test_what_goes_on_under_another_policy_is_a_new_run_under_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    words = ["shootout", "run", "net.onnx"]
    own = Begun(folder=Path("results/a"), words=[*words, "--policy", "deploy.toml"])
    assert own.under(Path("./deploy.toml")) == own
    other = own.under(Path("strict.toml")).resume("5m")
    assert other == "shootout run net.onnx --policy strict.toml --max-time 5m"
    without = Begun(folder=Path("a"), words=words).under(Path("strict.toml"))
    assert without.resume("") == "shootout run net.onnx --out a"
