"""What a CI job gets of a gate: a summary, workflow commands in which nothing begins another one, files."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
from support.kept_screen import hold
from support.plain import as_plain
from support.races.cells import cell, comparison, document, row

from shootout.apps.judge.gate.output import ACTIONS, SUMMARY, render, tell_github, write_command, write_gate
from shootout.apps.judge.gate.verdict import Check, Gate, Outcome, _list_reasons
from shootout.tell.document import ratio_of
from shootout.tell.limits import Standing

SIZE = Check(name="size", reference="1 MB", candidate="2 MB", limit="at most 10 % more", standing=Standing.BROKEN)
ERROR = Check(name="error", reference="1e-7", candidate="2e-7", limit="at most 1e-5", standing=Standing.MET)
DEVICE = Check(name="device", reference="cpu", candidate="cpu")
CHECKS = (SIZE, ERROR, DEVICE)
LOST = Check(
    name="metric accuracy",
    reference="0.992",
    candidate="0.548",
    limit="at most 0.01 lost",
    standing=Standing.BROKEN,
    reason="-0.44 [-0.51, -0.37]; needs about 290 more scored rows",
)
RAN = Check(name="compute nodes", reference="5 fp32", candidate="3 fp32", limit="the same", standing=Standing.BROKEN)
FEW = LOST.model_copy(update={"name": "policy: max-drop", "standing": Standing.UNKNOWN})
SLOW = Check(
    name="time",
    reference="8 us",
    candidate="9 us",
    limit="at most 5 % slower",
    standing=Standing.UNKNOWN,
    reason="1.200x slower than the reference (1.176 to 1.224); the time was over",
)
FAST, LATE = (
    SLOW.model_copy(update={"standing": standing, "reason": "1.200x slower than the reference (1.176 to 1.224)"})
    for standing in (Standing.MET, Standing.BROKEN)
)


def gate(outcome: Outcome = "fail", checks: tuple[Check, ...] = CHECKS, **facts: Any) -> Gate:
    reasons = tuple(told for _, told in _list_reasons(checks))
    usual: dict[str, Any] = {
        "reasons": reasons, "reference": "a:cpu:fp32", "candidate": "b:cpu:fp32", "recorded": "model-1",
        "ratio": ratio_of(comparison(1.2, 0.02)), "limit": 1.05, "wall_s": 90.0, "restarts": 5, "run": "out",
    }  # fmt: skip
    return Gate(outcome=outcome, checks=checks, **{**usual, **facts})


ADOPT = "cp -r 'b c' model-1-new && rm -r model-1 && mv model-1-new model-1"
GATES = {
    "passed, and packed": gate("pass", (ERROR, FAST), folder="b c", next=ADOPT, given="build/new.onnx"),
    "slower": gate("fail", (ERROR, LATE)),
    "several limits": gate("fail", (SIZE, LOST, RAN, FEW, SLOW), given="build/new.onnx", notes=("other versions",)),
    "what ran": gate("fail", (RAN, FAST)),
    "no time yet": gate("undecided", (ERROR, FEW, SLOW), next="shootout gate model-1 --out out --max-time 20m"),
    "few rows": gate("undecided", (FEW, FAST)),
    "nothing raced": gate("undecided", (), reasons=("nothing was raced: no time",), ratio=None, restarts=0, wall_s=0.0),
}
RUN = document(cell(row("a", 1e6), row("b", 1.2e6)))
JOB = {ACTIONS: "true"}


def test_screens_and_what_github_shows_are_those_that_are_kept(tmp_path: Path):
    told = []
    for number, (name, found) in enumerate(GATES.items()):
        summary, stream = tmp_path / f"{number}.md", StringIO()
        tell_github(found, None, stream, {SUMMARY: str(summary), **JOB})
        screen = as_plain([render(found, RUN if found.ratio else None, 100)], 100)
        told.append(f"=== {name}\n{screen}\n--- on GitHub\n{stream.getvalue()}{summary.read_text()}")
    hold("gate", "\n".join(told))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_width_breaks_the_name_of_a_limit_or_a_command(width: int):
    shown = as_plain([render(GATES["several limits"], RUN, width)], width)
    assert {"reference", "candidate", "max-drop", "BROKEN"} <= set(shown.split())
    assert max(map(len, shown.splitlines())) <= width
    passed = as_plain([render(GATES["passed, and packed"], RUN, width)], width)
    words = " ".join(line.strip().removesuffix("\\").strip() for line in passed.splitlines())
    assert ADOPT in words


def test_the_summary_is_added_to_the_job_s_and_lines_are_printed_only_in_a_job(tmp_path: Path):
    summary, stream = tmp_path / "summary.md", StringIO()
    summary.write_text("before\n")
    tell_github(gate(), RUN, stream, {SUMMARY: str(summary)})
    assert stream.getvalue() == ""
    assert summary.read_text().startswith("before\n## fail ")


def test_no_text_begins_another_command():
    line = write_command("error", "100 %\n::warning::x\r")
    assert line == "::error title=shootout gate::100 %25%0A::warning::x"
    assert "\n" not in line


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
