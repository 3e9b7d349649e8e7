"""Type one command for an agent, and print what came of it as one small JSON object.

`shootout mcp` starts this as a process of its own for each call of a tool: its process id, the tool, the arguments.
"""

from __future__ import annotations

import io
import itertools
import json
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from shootout import cli
from shootout.apps.explain.measure import Explanation
from shootout.apps.explain.screen import tell_lines
from shootout.apps.judge.analysis import analyse, analyse_cells
from shootout.apps.judge.claim import judge_claim, read_claim
from shootout.apps.judge.decide.policy import Policy
from shootout.apps.judge.decide.question import PolicyAnswer
from shootout.apps.judge.decide.screen import as_answer
from shootout.apps.judge.gate.output import tell_gate
from shootout.apps.judge.gate.verdict import TIME, Gate
from shootout.commands.ship import NEXT_STEPS
from shootout.commands.streams import tell
from shootout.commands.tools import MORE, TOOLS, Interval, Next, Outcome, ToolResult, keep_given, read_call
from shootout.core.constants import COPY
from shootout.core.contract import short
from shootout.core.errors import ExitCode, ShootoutError, UsageError
from shootout.core.host.child import leave_with
from shootout.core.results.run import begun
from shootout.core.stats.verdicts import Verdict
from shootout.core.units import counted, size, span
from shootout.tell import reproduce
from shootout.tell.answer import REFUSED, SHIPS, list_title_parts
from shootout.tell.document import Answer, Document
from shootout.tell.grid import may_ship
from shootout.tell.limits import Limit, Standing
from shootout.tell.page.contents import MeasuredRun, lay_out
from shootout.tell.report import Line, Table
from shootout.tell.table import compare_rows
from shootout.tell.wording import describe_noise

OPEN = ("Open", "Unknown", "Tied", "Skipped")
"""The labels of lines that tell what isn't known."""
OUTCOMES: Mapping[str, Outcome] = {
    "chosen": "ship",
    "tied": "ship",
    "undecided": "open",
    "infeasible": "broken",
    "pass": "met",
    "fail": "broken",
}
"""The verdict of a decision and of a gate, by their outcome."""
MARKS = f"{SHIPS}{REFUSED} "
FIGURES = {Limit.ERROR: "relative error of the outputs of {}", Limit.P99: "p99 of {}, ns"}
"""Name the figure of a claim that is none on speed."""
MOST_TIME = "5m"
"""The time of a race for a claim, if none is given."""
ON_RUN = ("claim", "a", "b", "run", "group")
"""The arguments of a claim on a run that is there."""


def call(name: str, arguments: Mapping[str, Any]) -> ToolResult:
    """Call a tool.

    Raises:
        ShootoutError: as the command, or the arguments aren't the tool's.
        SystemExit: the command ended without a result, and said why on stderr.
    """
    words = TOOLS[name].type(arguments)
    if name == "verify":
        return verify(arguments)
    code, data = type_words(words)
    told = TELLERS[name if "--dry-run" not in words else "plan"](data, words)
    broke = [row for row in data.get("rows", ()) if code == ExitCode.FAILED and row.get("outcome") == "failed"]
    told.open.extend(f"{row['arm']} was named, and failed: {row['reason']}" for row in broke)
    return told


def type_words(words: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """Run a command line in this process; return its exit code and the JSON document that it prints.

    Raises:
        SystemExit: it printed none, and said why on stderr.
        UsageError: it printed something else, such as its help.
    """
    sys.argv = ["shootout", *words, "--json"]  # a run's journal keeps them
    code: int | str | None = 0
    with redirect_stdout(io.StringIO()) as printed:
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code
    if not (text := printed.getvalue()):
        raise SystemExit(code or ExitCode.ERROR)
    try:
        return int(code or 0), json.loads(text)
    except ValueError:
        typed = reproduce.quote(["shootout", *words])
        raise UsageError(f"`{typed}` prints a text and no result: leave out what asks for it, such as --help") from None


def tell_plan(data: Mapping[str, Any], words: Sequence[str]) -> ToolResult:
    """Tell what a run would do, from the document of `run --dry-run`."""
    groups = data["groups"]
    arms = dict.fromkeys(arm for group in groups for arm in group["arms"] if not arm.endswith(COPY))
    takes = f"about {span(data['estimate_s'])} at least and {span(data['most_s'])} at most"
    before = f"exports and builds take {span(data['prepare_s'])} before that"
    skips: dict[str, list[str]] = {}
    for arm, why in {arm: why for group in groups for arm, why in group["skipped"].items()}.items():
        skips.setdefault("; ".join(filter(None, [why["reason"], why["fix"]])), []).append(arm)
    asked = [word for word in words if word != "--dry-run"]
    return ToolResult(
        answer=f"{counted(len(arms), 'target')} would race: {', '.join(arms)}; {takes}, and {before}.",
        open=[f"{', '.join(out)}: {why}" for why, out in skips.items()],
        notes=[note for group in groups[:1] for note in (group["model"] or {}).get("notes", ())],
        next=make_next(f"shootout {reproduce.quote(asked)}"),
    )


def tell_run(data: Mapping[str, Any], words: Sequence[str]) -> ToolResult:
    """Tell a run's answer: by its policy if it has one, else by its own.

    `show` adds a row for each target, or for each group of several.
    """
    if "groups" not in data or "answer" not in data:
        return ToolResult(answer=f"This is no single run: read it by `shootout {reproduce.quote(words)}`.")
    if "decision" in data:
        return tell_decision(data["decision"], words)
    document = analyse(Path(data["run"]))
    report, answers = lay_out(MeasuredRun(document)), document.answer
    ships = bool(answers) and all(map(may_ship, answers))
    told = tell_report([*report.lines, *report.missing], document.run, tell_terms(document))
    rows = [row for table in ([report.answers] if report.answers else report.tables) for row in list_rows(table)]
    return told.model_copy(
        update={
            "verdict": "ship" if ships else "open",
            "interval": find_interval(answers[0]) if ships and len(answers) == 1 else None,
            "rows": rows if words[0] == "show" else None,
        }
    )


def tell_decision(data: Mapping[str, Any], words: Sequence[str]) -> ToolResult:
    """Tell what a policy decides."""
    group = next((after for word, after in itertools.pairwise(words) if word == "--group"), None)
    found = PolicyAnswer.of_runs([Path(run) for run in data["runs"]], Policy.model_validate(data["policy"]), group)
    report = found.lay_out()
    (document, *others), cells = found.question.documents, found.question.cells
    terms = None if others else tell_terms(document, cells[0].group)
    told = tell_report(report.lines, data["runs"][0], terms)
    rows = [row for table in report.tables for row in list_rows(table)]
    candidates = [one.row.model_copy(update={"arm": one.label}) for one in found.question.candidates]
    is_sure = found.decision.chosen and found.decision.policy.asks_time
    interval = find_interval(as_answer(found.decision, found.question, candidates)) if is_sure else None
    return told.model_copy(update={"verdict": OUTCOMES[found.decision.outcome], "interval": interval, "rows": rows})


def tell_gated(data: Mapping[str, Any], _: Sequence[str]) -> ToolResult:
    """Tell a gate's outcome."""
    gate = Gate.model_validate({"schema_version": data["schema"], **{k: v for k, v in data.items() if k != "schema"}})
    document = analyse(Path(gate.run)) if begun(Path(gate.run)) else None
    told = tell_report(list(tell_gate(gate, document)), gate.run, tell_terms(document) if document else None)
    is_judged = any(one.name == TIME and one.standing in (Standing.MET, Standing.BROKEN) for one in gate.checks)
    of = "time of the candidate ÷ time of the reference"
    ratio = gate.ratio if is_judged else None
    interval = bound(of, ratio.value, ratio.low, ratio.high) if ratio else None
    return told.model_copy(update={"verdict": OUTCOMES.get(gate.outcome, "unknown"), "interval": interval})


def tell_explained(data: Mapping[str, Any], _: Sequence[str]) -> ToolResult:
    """Tell two targets layer by layer."""
    found = TypeAdapter(Explanation).validate_python(data)
    return tell_report(list(tell_lines(found)), found.run, tell_terms(analyse(Path(found.run)), found.group))


def tell_shipped(data: Mapping[str, Any], _: Sequence[str]) -> ToolResult:
    """Tell what was written, and whether the run is sure of it: any target can be shipped, a slower one too."""
    folder, doubt = data["folder"], data["doubt"]
    check, gate = (command.format(reproduce.quote([folder])) for command in NEXT_STEPS.values())
    return ToolResult(
        answer=f"{folder} holds {data['target']}, {size(data['size_bytes'])}; its check passed: {data['checked']}.",
        verdict="written",
        open=[f"{data['target']} only leads: {doubt}"] if doubt else [],
        notes=[f"check it where it runs: `{check}`"],
        next=make_next(gate),
        folder=folder,
    )


TELLERS = {
    "plan": tell_plan,
    "run": tell_run,
    "show": tell_run,
    "decide": tell_decision,
    "explain": tell_explained,
    "ship": tell_shipped,
    "gate": tell_gated,
}
"""By tool, what makes a short result of its command's document and words."""


def verify(arguments: Mapping[str, Any]) -> ToolResult:
    """Judge a claim by a run, which is raced first if a model is given.

    Raises:
        UsageError: as `read_claim` and `judge_claim`, an argument is no text, neither a run nor a model is given or
            both are, a run comes with what only a race takes, or the race made no run here.
    """
    given = keep_given(arguments)
    if wrong := [name for name in ON_RUN if not isinstance(given.get(name, ""), str)]:
        raise UsageError(f"the argument {wrong[0]!r} is a text; received {given[wrong[0]]!r}")
    claim, a, b = read_claim(given["claim"]), given["a"], given.get("b")
    if bool(folder := given.get("run")) == ("model" in given):
        raise UsageError("verify needs either run, a folder that holds the targets, or model, to race them on")
    race = {name: value for name, value in given.items() if name not in ON_RUN}
    if folder and race:
        name, value = next(iter(race.items()))
        raise UsageError(f"{name} is for a race, and the run is measured already: leave out one; received {value!r}")
    claim.refuse_unfit(a, b)  # before anything is measured
    if not folder:
        goal = [word for name, value in claim.race(a, b).items() for word in (f"--{name}", value)]
        more = [*race.pop(MORE, []), *goal]
        asked = {"max_time": MOST_TIME, **race, "backends": [a, b] if b else a, MORE: more}
        folder = type_words(TOOLS["run"].type(asked))[1].get("run")
    if not folder:
        raise UsageError("no single run was measured: leave out of options what asks for that, such as --dry-run")
    run = analyse_cells(Path(folder))
    judged = judge_claim(run, claim, a, b, given.get("group"))
    is_known = judged.standing is not Standing.UNKNOWN
    first, second = (b, a) if claim.verdict is Verdict.FASTER else (a, b)
    of = FIGURES[claim.limit].format(a if b is None else f"{a} against {b}")
    of = f"time of {first} ÷ time of {second}" if claim.verdict else of
    return ToolResult(
        answer=f"{judged.sentence}.",
        terms=tell_terms(run.document, judged.group),
        verdict=judged.standing.value,
        interval=bound(of, judged.value, judged.low, judged.high) if is_known else None,
        open=[judged.reason] if judged.reason else [],
        notes=list(dict.fromkeys(tell_refusals(run.document, {a, b}))),
        next=make_next(judged.next) if judged.next else None,
        folder=str(folder),
    )


def tell_refusals(document: Document, names: Container[str | None]) -> Iterator[str]:
    """Tell which of these targets may not be shipped, however fast they are."""
    for found in (compare_rows(group, document) for group in document.groups):
        for row in found.rows:
            if (row.arm in names or short(row.arm) in names) and (why := found.tell_refusal(row)):
                yield f"{short(row.arm)} may not be shipped: {why}"


def tell_terms(document: Document, group: str | None = None) -> str | None:
    """Tell what the figures of a group hold for; None if there are several groups and none is named."""
    answers = [one for one in document.answer if group in (None, one.group)]
    if len(answers) != 1:
        return None
    rows = document.rows_of(answers[0].group)
    parts = list_title_parts(answers[0], rows, document.environment)
    if pinned := {len(row.cpus) for row in rows if row.cpus}:
        parts.append(f"each process pinned to {counted(max(pinned), 'CPU')}")
    noise = describe_noise([one for one in document.groups if one.name == answers[0].group])
    return "; ".join([*parts, *([] if noise.startswith("low") else [f"noise {noise}"])])


def tell_report(lines: Sequence[Line], folder: str, terms: str | None) -> ToolResult:
    """Make a result of the lines of a screen: the first is the answer, with how sure it is; `Next` has the command."""
    first, *others = [line for line in lines if not (terms and line.parts and line.parts[-1].startswith("saved in "))]
    nexts = [command.text for line in lines if line.label == "Next" for command in line.commands]
    told = [line for line in others if line.parts and not {one.text for one in line.commands} & {*nexts}]
    answer = [write_line(first), *(write_line(replace(line, label="")) for line in told if line.label == "Sure")]
    # A lower precision that is held back comes with the commands that would let it in.
    open_ = [line for line in told if line.label in OPEN or (line.commands and line.label != "Next")]
    return ToolResult(
        answer=" ".join(f"{part[:1].upper()}{part[1:]}." for part in answer),
        terms=terms,
        open=[write_line(line) for line in open_],
        notes=[write_line(line) for line in told if line not in open_ and line.label != "Sure"],
        next=make_next(nexts[0]) if nexts else None,
        folder=folder,
    )


def write_line(line: Line) -> str:
    """Write a line of a screen as a sentence, with the commands below it."""
    parts = [*line.parts]
    for one in line.commands if line.label != "Next" else ():
        typed = f"{one.label} `{one.text}` {one.remark}".strip()
        parts = [*parts, typed] if one.label or not parts else [*parts[:-1], f"{parts[-1]}: {typed}"]
    label = "" if line.subject == "no answer" else line.label.removeprefix("Answer")
    begun = " ".join(filter(None, [label, line.subject]))
    return ": ".join(filter(None, [begun, "; ".join(parts)]))


def list_rows(table: Table) -> list[dict[str, str]]:
    """List the rows of a table by its headers, without empty cells, and with why one may not be shipped."""
    rows, names = list[dict[str, str]](), [name or "answer" for name in table.headers]
    for row, remark in itertools.zip_longest(table.rows, table.remarks):
        cells = zip([*names, "not shipped"], [*row, remark or ""], strict=True)
        rows.append({name: text for name, cell in cells if (text := str(cell).strip(MARKS))})
    return rows


def find_interval(answer: Answer) -> Interval | None:
    """Return the interval of what ships against the usual choice, or else the second; None without a verdict."""
    usual = answer.otherwise if answer.otherwise and answer.otherwise.ratio else answer.sure.closest
    if usual is None or answer.ship is None or usual.ratio is None or not usual.ratio.decided:
        return None
    of = f"time of {short(usual.arm)} ÷ time of {short(answer.ship.arm)}"
    return bound(of, usual.ratio.value, usual.ratio.low, usual.ratio.high)


def bound(of: str, *ends: float | None) -> Interval:
    """Return a figure, its low and its high end, each in four digits."""
    value, low, high = (None if end is None else float(f"{end:.4g}") for end in ends)
    return Interval(of=of, value=value, low=low, high=high)


def make_next(command: str) -> Next:
    """Return a command with the call of a tool that types it, if there is one."""
    tool, arguments = read_call(command) or (None, None)
    return Next(command=command, tool=tool, arguments=arguments)


def main() -> None:
    """Call the tool that this process was started for."""
    parent, name, arguments = sys.argv[1:]
    leave_with(int(parent))
    try:
        told = call(name, json.loads(arguments))
    except ShootoutError as error:
        tell(str(error))
        raise SystemExit(error.exit_code) from None
    sys.stdout.write(f"{told.model_dump_json(exclude_none=True)}\n")


if __name__ == "__main__":
    main()
