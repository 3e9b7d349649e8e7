"""One answer over a mix of sizes, from whole campaigns whose times are planted: the winner flips at batch 750."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.console import here
from support.races import fakes
from support.races.planted import LINES, Budget, ByBatch, on_stage, run, study

import shootout
from shootout.decide.mix import answer_mix, find_unmet, is_broken
from shootout.decide.policy import read_policy
from shootout.decide.racing import find_barred
from shootout.errors import UsageError
from shootout.journal import journal
from shootout.journal.records import Rounds
from shootout.page import markdown
from shootout.page.opening import open_run
from shootout.report.answer import render_answers
from shootout.results.analysis import analyse
from shootout.results.document import MixAnswer
from shootout.stats.verdicts import Verdict
from shootout.study.mix import read_any

NUMPY, ORT = "numpy:cpu:fp32", "onnxruntime:cpu:fp32"
SIZES = (1, 4_096)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> list[ByBatch]:
    """The stage that campaigns play on."""
    return on_stage(monkeypatch)


def raced(out: Path, mix: str | None = "batch=1:90,4096:10", **fields: Any) -> Path:
    assert run(out, study(*SIZES, mix=mix, **fields))
    return out


def only(out: Path, text: str | None = None) -> MixAnswer:
    (found,) = analyse(out, read_any(text) if text else None).mix
    return found


def cost(backend: str, weights: tuple[float, float]) -> float:
    a, b = LINES[backend]
    return sum(weight * (a + b * size) for weight, size in zip(weights, SIZES, strict=True)) / sum(weights)


def shown(out: Path, text: str | None = None) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    for part in render_answers(analyse(out, read_any(text) if text else None), 100):
        console.print(part)
    return " ".join(console.export_text().split())


def test_one_target_ships_by_what_its_calls_cost_together_and_a_router_that_gains_has_its_line(
    stage: list[ByBatch], tmp_path: Path
):
    found = only(raced(tmp_path / "out"))
    assert found.answer.ship
    assert (found.answer.ship.arm, found.answer.reason) == (NUMPY, None)
    assert found.answer.ship.median_ns == pytest.approx(cost("numpy", (90, 10)), rel=0.02)
    (other,) = (one for one in found.targets if one.arm == ORT)
    assert other.ratio
    assert other.ratio.verdict is Verdict.SLOWER
    assert other.ratio.value == pytest.approx(cost("onnxruntime", (90, 10)) / cost("numpy", (90, 10)), rel=0.02)
    assert found.sizes == {1: 0.9, 4096: 0.1}
    route = found.router
    assert route
    assert (route.below, route.above, route.up_to) == (NUMPY, ORT, 1)
    best = 0.9 * (LINES["numpy"][0] + LINES["numpy"][1]) + 0.1 * (LINES["onnxruntime"][0] + 4_096 * 20.0)
    low, high = route.ratio.reading
    assert low
    assert high
    assert low < best / cost("numpy", (90, 10)) < high
    text = shown(tmp_path / "out")
    assert "Ship numpy:cpu:fp32" in text
    assert "Router numpy up to 1, onnxruntime above: " in text
    assert "faster than numpy alone" in text
    assert text.count("Ship ") == 1, "and each size has its line in the grid"


def test_other_weights_ship_another_target_of_the_same_run(stage: list[ByBatch], tmp_path: Path):
    out = raced(tmp_path / "out", mix=None)
    assert not analyse(out).mix, "none was asked for"
    large = only(out, "batch=1:10,4096:90")
    assert large.answer.ship
    assert large.answer.ship.arm == ORT
    rare = only(out, "batch=1:1,4096:99")
    assert rare.answer.ship
    assert (rare.answer.ship.arm, rare.router) == (ORT, None), "a router gains 0.4 % there"


def test_a_log_goes_by_the_sizes_that_were_raced(stage: list[ByBatch], tmp_path: Path):
    out = raced(tmp_path / "out", mix=None)
    log = tmp_path / "sizes.txt"
    log.write_text("1\n700\n4000\n1\n")
    found = only(out, str(log))
    assert (found.axis, found.sizes) == ("batch", {1: 0.5, 4096: 0.5})
    assert "sizes.txt in 2 bins: each call counts as the largest batch of its bin" in shown(out, str(log))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("batch=1:1,64:1", "the run has no batch 64: it has 1, 4096"),
        ("sequence=1:1", "unknown axis of the run, for --mix 'sequence'"),
    ],
)
def test_a_mix_of_what_was_not_raced_is_refused(stage: list[ByBatch], tmp_path: Path, text: str, why: str):
    out = raced(tmp_path / "out", mix=None)
    with pytest.raises(UsageError, match=why):
        only(out, text)


class FailsAtLarge(ByBatch):
    """ONNX Runtime breaks at the larger size."""

    def spawn(self, arm: Any, restart: int, padding: int) -> Any:
        self.fails = {(ORT, "load"): "it broke"} if arm.batch == SIZES[1] else {}
        return super().spawn(arm, restart, padding)


def test_a_target_that_lacks_a_size_is_named_and_not_chosen(stage: list[ByBatch], tmp_path: Path):
    stage[0] = FailsAtLarge()
    out = raced(tmp_path / "out", mix="batch=1:1,4096:99")
    found = only(out)
    assert found.answer.ship
    assert found.answer.ship.arm == NUMPY, "though it costs more than the other one would"
    (lost,) = (one for one in found.targets if one.arm == ORT)
    assert lost.cost_ns is None
    assert lost.reason == "no time at batch 4096: it broke"
    assert "onnxruntime: failed: no time at batch 4096: it broke" in shown(out)


def restarts(out: Path) -> dict[str, int]:
    lines = [line for line in journal.read(out).lines if isinstance(line, Rounds)]
    return {name: sum(line.group == name for line in lines) for name in {line.group for line in lines}}


def test_the_race_goes_on_until_the_mix_has_its_answer_though_each_size_has_its_own(
    stage: list[ByBatch], tmp_path: Path
):
    """The two lie far apart at each size, and within 12 % over the mix."""
    stage[0] = ByBatch(seed=3, restart_sd=0.02)
    alone = raced(tmp_path / "alone", mix=None)
    stage[0] = ByBatch(seed=3, restart_sd=0.02)
    together = raced(tmp_path / "together", mix="batch=1:78,4096:22")
    assert max(restarts(alone).values()) < max(restarts(together).values()) < 60
    found = only(together)
    assert not found.waits_for
    assert found.answer.ship
    assert found.answer.ship.arm == ORT
    assert [one.ratio.verdict for one in found.targets if one.ratio] == [Verdict.SLOWER]
    assert len(set(restarts(together).values())) == 1, "a size that lags behind is played first"
    before = only(alone, "batch=1:78,4096:22")
    assert before.waits_for, "by what each size alone took"


def test_sizes_play_in_step_so_that_a_run_cut_short_has_as_many_restarts_of_each(stage: list[ByBatch], tmp_path: Path):
    """Both sizes are near the crossover, so neither has an answer of its own soon."""
    out, sizes = tmp_path / "out", (700, 800)
    stage[0] = ByBatch(seed=5, restart_sd=0.03)
    asked = study(*sizes, mix="batch=700:1,800:1")
    assert not run(out, asked, allowed=Budget(stage[0], 15))
    most, least = max(restarts(out).values()), min(restarts(out).values())
    assert least >= 6
    assert most - least <= 1


def test_by_the_p99_of_all_calls(stage: list[ByBatch], tmp_path: Path):
    out = raced(tmp_path / "out", mix="batch=1:80,4096:20", mix_by="p99")
    found = only(out)
    assert found.answer.ship
    assert (found.by, found.answer.ship.arm) == ("p99", ORT), "the slowest hundredth are large calls"
    assert found.answer.ship.median_ns == pytest.approx(LINES["onnxruntime"][0] + 4_096 * 20.0, rel=0.05)
    assert min(restarts(out).values()) >= 4
    assert only(out, "batch=1:80,4096:20").answer.ship != found.answer.ship
    timings = [row.end_to_end for row in found.rows if row.end_to_end]
    assert timings
    assert all(one.low_ns < one.median_ns < one.high_ns for one in timings), "each restart has a p99 of its own"
    assert "p99 of the mix" in shown(out)


def test_too_few_calls_for_a_p99_are_named(stage: list[ByBatch], tmp_path: Path):
    out = raced(tmp_path / "out", mix=None)
    asked = read_any("batch=1:999,4096:1")
    (found,) = analyse(out, replace(asked, by="p99")).mix
    assert found.answer.ship is None
    assert {one.reason for one in found.targets} == {"too few calls were read one by one for a p99 over the mix"}


def test_the_document_the_page_and_the_summary_have_the_mix(stage: list[ByBatch], tmp_path: Path):
    out = raced(tmp_path / "out")
    loaded = shootout.load(out)
    (found,) = loaded.mix
    assert "ship numpy:cpu:fp32" in repr(loaded)
    data = json.loads(loaded.document.model_dump_json(by_alias=True))["mix"][0]
    assert (data["axis"], data["by"], data["answer"]["ship"]["arm"]) == ("batch", "mean", NUMPY)
    assert data["router"]["above"] == ORT
    assert {"rows", "waits_for"}.isdisjoint(data)
    opening = open_run(loaded.document, 100)
    assert opening.title == "Ship numpy:cpu:fp32"
    assert "batch mix (1: 90 %, 4096: 10 %)" in opening.where
    assert {"Router", "Mix", "Changes"} <= {line.plain.split(" ")[0] for line in opening.lines}
    summary = markdown.render([loaded.document])
    assert "\nRouter  " in summary
    assert "| target | mean of the mix | against numpy |" in summary
    assert len(found.groups) == 2


def test_the_page_has_the_table_of_the_mix(stage: list[ByBatch], tmp_path: Path):
    raced(tmp_path / "out")
    assert here("report", "out", "-o", "page.html", cwd=tmp_path).code == 0
    page = (tmp_path / "page.html").read_text()
    _, table = page.split("<caption>What a call costs: digits, batch mix (1: 90 %, 4096: 10 %)</caption>")
    rows = table.split("</table>")[0].split("<tr")
    assert [("ships" in row, "numpy" in row.split("</th>")[0]) for row in rows[2:]] == [(True, True), (False, False)]


def test_what_the_sizes_take_together_is_what_a_service_with_a_session_for_each_holds(
    stage: list[ByBatch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fakes, "EXECUTED", replace(fakes.EXECUTED, artifact_bytes=1_000))
    found = only(raced(tmp_path / "out"))
    assert found.answer.ship
    assert (found.answer.ship.artifact_bytes, found.answer.ship.ready_s) == (2_000, pytest.approx(0.202))
    assert {row.artifact_bytes for row in found.rows} == {2_000}
    assert "2 models, one a size, 2 kB · ready in 0.2 s" in shown(tmp_path / "out")


def test_a_blank_line_stands_before_the_table_and_what_the_mix_says_comes_once(stage: list[ByBatch], tmp_path: Path):
    text = here("show", raced(tmp_path / "out"), cwd=tmp_path).out
    lines = text.splitlines()
    assert not lines[lines.index(next(line for line in lines if line.startswith("target "))) - 1].strip()
    for label in ("Sure ", "Skipped ", "Next "):
        assert sum(line.startswith(label) for line in lines) == 1


def test_a_first_place_without_a_verdict_does_not_ship(stage: list[ByBatch], tmp_path: Path):
    out = tmp_path / "out"
    assert not run(out, study(*SIZES, mix="batch=1:90,4096:10"), allowed=Budget(stage[0], 2))
    assert re.search(r"numpy +[\d.]+ us +fastest so far", shown(out))
    assert " ships" not in shown(out).split("What to ship")[0]


def test_the_next_commands_ship_the_target_for_each_size(stage: list[ByBatch], tmp_path: Path):
    found = only(raced(tmp_path / "out"))
    assert found.answer.next
    first, second = found.answer.next.split(" && ")
    for command, size, group in ((first, 1, found.groups[0]), (second, 4_096, found.groups[1])):
        assert command.startswith("shootout ship ")
        assert f"--group '{group}' --target {NUMPY} -o model-{size}" in command


def test_a_policy_allows_what_meets_its_limits_at_every_size(stage: list[ByBatch], tmp_path: Path):
    out = raced(tmp_path / "out", least_restarts=8)
    mix = read_any("batch=1:90,4096:10")
    (found,), _ = answer_mix(read_policy(None, {"p99": "10ms"}), out, mix)
    assert found.answer.ship
    assert (found.answer.ship.arm, found.answer.ship.admitted) == (NUMPY, "policy")
    (found,), _ = answer_mix(read_policy(None, {"p99": "200us"}), out, mix)
    refused = {one.arm: one.reason for one in found.targets}
    assert refused[NUMPY]
    assert refused[NUMPY].startswith("batch 4096: p99 ")
    with pytest.raises(UsageError, match="not by size"):
        answer_mix(read_policy(None, {"objective": "size"}), out, mix)


def test_commands_that_read_a_run_take_a_mix_and_end_with_its_code(stage: list[ByBatch], tmp_path: Path):
    raced(tmp_path / "out", least_restarts=8)
    found = here("show", "out", "--mix", "batch=1:10,4096:90", "--json", cwd=tmp_path)
    assert (found.code, found.data["mix"][0]["answer"]["ship"]["arm"]) == (0, ORT)
    shown = here("show", "out", cwd=tmp_path)
    assert "batch mix (1: 90 %, 4096: 10 %)" in shown.out, "what the run was asked for"
    decided = here("decide", "out", "--mix", "batch=1:90,4096:10", "--p99", "10ms", "--json", cwd=tmp_path)
    assert (decided.code, decided.data["mix"][0]["answer"]["ship"]["arm"]) == (0, NUMPY)
    own = here("decide", "out", "--p99", "10ms", "--json", cwd=tmp_path)
    assert own.data == decided.data, "a run's own mix need not be said again"
    none = here("decide", "out", "--mix", "batch=1:90,4096:10", "--p99", "10us", cwd=tmp_path)
    assert none.code == 3
    assert "no answer: batch 1: p99 " in none.out
    unknown = here("decide", "out", "--mix", "batch=1:90,4096:10", "--min-accuracy", "90%", cwd=tmp_path)
    assert unknown.code == 7


def test_a_run_with_a_policy_answers_its_mix_by_it_and_bars_at_all_sizes_what_breaks_a_limit_at_one(
    stage: list[ByBatch], tmp_path: Path
):
    out = raced(tmp_path / "out", least_restarts=8)
    for limit, code, ship in (("10ms", 0, NUMPY), ("200us", 0, ORT), ("10us", 3, None)):
        (tmp_path / "p.toml").write_text(f"[limits]\np99 = '{limit}'\n")
        found = here("show", "out", "--policy", "p.toml", "--json", cwd=tmp_path)
        chosen = found.data["mix"][0]["answer"]["ship"]
        assert (found.code, chosen and chosen["arm"]) == (code, ship)
    groups = analyse(out).mix[0].groups
    assert "What to ship, in" not in here("show", "out", "--policy", "p.toml", cwd=tmp_path).out
    assert find_barred(read_policy(None, {"p99": "10ms"}), out) == {name: set() for name in groups}
    assert find_barred(read_policy(None, {"p99": "200us"}), out) == {name: {NUMPY} for name in groups}


def test_a_target_that_surely_breaks_a_limit_at_one_size_leaves_nothing_open_at_another(
    stage: list[ByBatch], tmp_path: Path
):
    out = raced(tmp_path / "out", least_restarts=2)
    policy = read_policy(None, {"p99": "10us"})
    (found,), is_open = answer_mix(policy, out, read_any("batch=1:90,4096:10"))
    assert found.answer.ship is None
    unmet = [find_unmet(policy, out, group, 2) for group in found.groups]
    assert is_open is not all(any(is_broken(one.get(arm, ())) for one in unmet) for arm in (NUMPY, ORT))


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        ({}, 0, "one answer over a mix of batch"),
        ({"objective": "size"}, 2, "a mix is chosen by the time of its calls, not by size"),
        ({"objective": "rate"}, 2, "a mix is chosen by the time of its calls, not by rate"),
        ({"load": "20/s"}, 2, "leave the load out"),
    ],
)
def test_a_run_takes_a_policy_beside_a_mix(options: dict[str, str], code: int, told: str, tmp_path: Path):
    lines = [f"{key} = {value!r}" for key, value in options.items()]
    (tmp_path / "p.toml").write_text("\n".join([*lines, "[limits]", "p99 = '5ms'"]))
    words = ("run", "digits", "--backends", "numpy", "--mix", "batch=1:1,8:1", "--policy", "p.toml", "--dry-run")
    found = here(*words, cwd=tmp_path)
    assert found.code == code
    assert told in found.out + found.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("show", "out", "--mix", "batch=1:1,64:1"), "the run has no batch 64"),
        (("show", "out", "--mix-by", "p99"), "--mix-by says how a mix of sizes is judged"),
        (("show", "out", "--mix", "batch=1:1", "--mix-by", "p90"), "did you mean 'p99'"),
        (("show", "out", "--mix", "batch=1:1", "--policy", "x.toml"), "pass only one of them"),
        (("decide", "out", "--mix", "batch=1:1", "--group", "digits"), "pass only one of them"),
        (("decide", "out", "out", "--mix", "batch=1:1"), "2 are given: name one"),
        (("decide", "out", "--mix", "batch=1:1", "--objective", "size"), "not by size"),
        (("decide", "out", "--mix", "batch=1:1", "--load", "20/s"), "leave the load out"),
        (("show", "out", "--mix", "x.toml"), "can't read the lengths in 'x.toml'"),
    ],
)
def test_what_contradicts_a_mix_is_a_usage_error(
    stage: list[ByBatch], tmp_path: Path, words: tuple[str, ...], why: str
):
    raced(tmp_path / "out", mix=None)
    found = here(*words, cwd=tmp_path)
    assert found.code == 2
    assert why in found.err
