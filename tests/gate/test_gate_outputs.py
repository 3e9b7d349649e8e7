"""What a CI job gets of a gate: a summary, workflow commands in which nothing begins another one, files."""

from __future__ import annotations

from contextlib import suppress
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from support.plain import as_plain
from support.races.cells import cell, comparison, document, row

from shootout.apps.judge.gate import github
from shootout.apps.judge.gate.evidence import Check
from shootout.apps.judge.gate.output import render, tell_outcome, write_gate
from shootout.apps.judge.gate.verdict import Gate, Outcome, tell_check
from shootout.core.errors import NothingMeasured, ShootoutError, Unavailable, Undecided, UsageError
from shootout.tell.document import ratio_of
from shootout.tell.limits import Standing

CHECKS = (
    Check(name="size", reference="1 MB", candidate="2 MB", limit="at most 10 % more", standing=Standing.BROKEN),
    Check(name="error", reference="1e-7", candidate="2e-7", standing=Standing.MET),
    Check(name="device", reference="cpu", candidate="cpu"),
)


def gate(
    outcome: Outcome = "fail", *reasons: str, notes: tuple[str, ...] = (), checks: tuple[Check, ...] = CHECKS
) -> Gate:
    return Gate(
        outcome=outcome,
        reasons=reasons,
        reference="a:cpu:fp32",
        candidate="b:cpu:fp32",
        recorded="run",
        ratio=ratio_of(comparison(1.2, 0.02)),
        limit=1.05,
        wall_s=90.0,
        restarts=5,
        checks=checks,
        notes=notes,
        run="out",
    )


RUN = document(cell(row("a", 1e6), row("b", 1.2e6)))


def test_the_first_line_has_the_ratio_its_interval_the_limit_and_the_minutes():
    slow = (*CHECKS[1:], Check(name="time", limit="at most 5 % slower", standing=Standing.BROKEN, reason="slower"))
    told = "1.200x slower than the reference (1.176x slower to 1.224x slower), limit 5 % slower · 5 restarts, 90 s"
    assert tell_outcome(gate(checks=slow)) == f"fail  {told}"
    named = gate(checks=slow).model_copy(update={"given": "build/new.onnx"})
    assert tell_outcome(named) == f"fail  build/new.onnx: {told}"
    assert "candidate: build/new.onnx, run as b:cpu:fp32;" in as_plain([render(named, 200)], 200)


LOST = Check(
    name="accuracy",
    reference="99.2%",
    candidate="54.8%",
    limit="at most 1 points lost",
    standing=Standing.BROKEN,
    reason="44.40 points lost [36.87, 51.22]",
)
RAN = Check(name="compute nodes", reference="5 fp32", candidate="3 fp32", limit="the same", standing=Standing.BROKEN)
SLOW = Check(name="time", candidate="9 us", limit="at most 5 % slower", standing=Standing.UNKNOWN)


@pytest.mark.parametrize(
    ("checks", "told"),
    [
        ((LOST, SLOW), "accuracy: 44.40 points lost [36.87, 51.22], limit at most 1 points lost · "),
        ((*CHECKS, SLOW), "size: 2 MB, limit at most 10 % more · "),
        ((RAN,), "compute nodes: 3 fp32, reference 5 fp32, limit the same · "),
        ((LOST, RAN), "accuracy: 44.40 points lost [36.87, 51.22], limit at most 1 points lost, and 1 other limit · "),
        (
            (LOST.model_copy(update={"name": "error", "reason": "it computes something else; add --max-error 2"}),),
            "error: it computes something else, limit at most 1 points lost · ",
        ),
    ],
    ids=["accuracy", "size", "what ran", "two", "error"],
)
def test_a_failure_leads_with_the_limit_that_is_broken(checks: tuple[Check, ...], told: str):
    assert tell_outcome(gate(checks=checks)).startswith(f"fail  {told}")
    assert tell_outcome(gate("undecided", checks=checks)).startswith("undecided  1.200x slower than the reference")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_width_breaks_the_name_of_a_limit(width: int):
    policy = Check(name="policy: max-drop", candidate="0.3 points", limit="at most 0.5 points")
    shown = as_plain([render(gate(checks=(*CHECKS, policy)), width)], width)
    assert {"reference", "candidate", "max-drop", "BROKEN"} <= set(shown.split())
    assert max(map(len, shown.splitlines())) <= width


JOB = {github.ACTIONS: "true"}


def test_the_summary_is_added_to_the_job_s_and_lines_are_printed_only_in_a_job(tmp_path: Path):
    summary, stream = tmp_path / "summary.md", StringIO()
    summary.write_text("before\n")
    found = gate("fail", "size is 2 MB", notes=("other versions",))
    github.tell(found, RUN, stream, {})
    assert stream.getvalue() == ""
    github.tell(found, RUN, stream, {github.SUMMARY: str(summary), **JOB})
    told = summary.read_text()
    assert told.startswith("before\n## fail size: 2 MB, limit at most 10 % more · ")
    assert "| size | 1 MB | 2 MB | at most 10 % more | BROKEN |" in told
    assert stream.getvalue().splitlines() == [
        "::error title=shootout gate::fail: b:cpu:fp32: size is 2 MB",
        "::warning title=shootout gate::other versions",
    ]
    (line,) = github.annotate(gate("fail", "size is 2 MB").model_copy(update={"given": "build/new.onnx"}))
    assert line.endswith("::fail: build/new.onnx: size is 2 MB"), "the file that was tested, not the folder made of it"


def test_what_is_not_known_beside_a_broken_limit_is_a_warning():
    accuracy = Check(name="accuracy", limit="at most 0.5 points lost", standing=Standing.UNKNOWN, reason="few rows")
    time = Check(name="time", limit="at most 5 % slower", standing=Standing.UNKNOWN, reason="the time was over")
    checks = (*CHECKS, accuracy, time)
    reasons = (tell_check(CHECKS[0]), "the time was over", tell_check(accuracy))
    lines = [line.split("::")[1:] for line in github.annotate(gate("fail", *reasons, checks=checks))]
    assert [head.split(" ")[0] for head, _ in lines] == ["error", "warning", "warning"]
    assert [told.split(":")[0] for _, told in lines] == ["fail", "undecided", "undecided"]
    assert "1.200x slower than the reference" in lines[1][1], "of the time, the figures"


@pytest.mark.parametrize("outcome", ["pass", "fail", "undecided"])
def test_a_gate_s_summary_ships_nothing_of_the_run_and_says_how_to_adopt_what_passed(outcome: Outcome):
    found = gate(outcome).model_copy(update={"folder": "gate/candidate/b c", "recorded": "model-1"})
    for told in (github.summarize(found, RUN), as_plain([render(found, 200)], 200)):
        assert "Ship" not in told
        assert "Next" not in told
        said = "the candidate is packed in gate/candidate/b c; to adopt it:"
        command = "cp -r 'gate/candidate/b c' model-1-new && rm -r model-1 && mv model-1-new model-1"
        assert (said in told and command in told) is (outcome == "pass")
    narrow = as_plain([render(found, 60)], 60)
    words = " ".join(line.strip().removesuffix("\\").strip() for line in narrow.splitlines())
    assert (command in words) is (outcome == "pass")
    assert all(line.endswith("\\") for line in narrow.splitlines() if line.strip().startswith("cp -r"))


@pytest.mark.parametrize(
    ("error", "heading"),
    [
        (UsageError("another\nmodel"), "## wrong use, exit code 2"),
        (Unavailable("no numpy"), "## can't run here, exit code 6"),
        (NothingMeasured("nothing"), "## no reference, exit code 3"),
        (Undecided("unknown"), "## undecided, exit code 7"),
    ],
)
def test_an_error_leaves_a_summary(tmp_path: Path, error: ShootoutError, heading: str):
    summary = tmp_path / "summary.md"
    github.tell_error(error, StringIO(), {github.SUMMARY: str(summary)})
    assert summary.read_text().splitlines() == [heading, "", f"- {' '.join(str(error).split())}"]


def test_undecided_is_a_warning_and_a_pass_is_none():
    assert [line.split(" ")[0] for line in github.annotate(gate("undecided", "the time was over"))] == ["::warning"]
    assert list(github.annotate(gate("pass"))) == []


def test_no_text_begins_another_command():
    line = github.command("error", "100 %\n::warning::x\r", title="a: b, c\n::error::")
    assert line == "::error title=a%3A b%2C c%0A%3A%3Aerror%3A%3A::100 %25%0A::warning::x"
    assert "\n" not in line


def test_what_is_printed_meanwhile_can_begin_no_command():
    stream = StringIO()
    with suppress(Undecided), github.muted(stream, JOB):
        stream.write("::error::of a model\n")
        raise Undecided("the machine")
    first, _, last = stream.getvalue().splitlines()
    word = first.removeprefix("::stop-commands::")
    assert len(word) >= 32
    assert last == f"::{word}::"
    with github.muted(stream := StringIO(), {}):
        pass
    assert stream.getvalue() == ""


def test_an_error_is_told_as_what_it_is():
    stream = StringIO()
    github.tell_error(Undecided("nobody knows"), stream, JOB)
    github.tell_error(Unavailable("no numpy"), stream, JOB)
    github.tell_error(Unavailable("no numpy"), stream, {})
    assert [line.split(" ")[0] for line in stream.getvalue().splitlines()] == ["::warning", "::error"]


def test_the_summary_keeps_below_what_github_takes():
    checks = tuple(Check(name=f"check {n}", reason="x" * 1_000) for n in range(10))
    rows = [row(f"arm{n}", 1e6, notes=("y" * 100_000,)) for n in range(12)]
    text = github.summarize(gate("fail", checks=checks), document(cell(*rows)))
    assert len(text.encode()) <= 900 * 1024
    assert "check 9" in text


@pytest.mark.parametrize(
    ("outcome", "kinds"), [("fail", ["failure", "failure", None]), ("pass", [None, "failure", None])]
)
def test_junit_has_a_case_for_each_thing_that_is_limited(tmp_path: Path, outcome: Outcome, kinds: list[str | None]):
    write_gate(gate(outcome), RUN, [tmp_path / "gate.xml", tmp_path / "bencher.json"])
    root = Xml.parse(tmp_path / "gate.xml").getroot()
    suite = root[0]
    assert suite.get("name") == "gate"
    assert [case.get("name") for case in suite] == ["outcome", "size", "error"]
    assert [next((one.tag for one in case), None) for case in suite] == kinds
    assert int(root.get("tests", "0")) == sum(int(one.get("tests", "0")) for one in root)
    assert int(root.get("failures", "0")) == sum(int(one.get("failures", "0")) for one in root)
    assert "latency" in (tmp_path / "bencher.json").read_text()


def test_an_undecided_gate_leads_with_what_is_open():
    few = LOST.model_copy(update={"standing": Standing.UNKNOWN, "reason": "0.00 points lost [-0.9, 0.9]; bring rows"})
    fast = SLOW.model_copy(update={"standing": Standing.MET})
    told = tell_outcome(gate("undecided", checks=(few, fast)))
    assert told.startswith("undecided  accuracy: 0.00 points lost [-0.9, 0.9], limit at most 1 points lost · ")
    assert tell_outcome(gate("undecided", checks=(few, SLOW))).startswith("undecided  1.200x slower than the reference")
