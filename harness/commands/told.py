"""Run one command for an agent, and print what came of it as one small JSON object.

`shootout mcp` starts this as a process of its own for each call of a tool: its process id, the words of the command.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shootout import cli
from shootout.apps.explain.measure import Explanation
from shootout.apps.explain.screen import tell_lines
from shootout.apps.judge.analysis import analyse
from shootout.apps.judge.claim import JudgedClaim
from shootout.apps.judge.decide.limits import Bounds
from shootout.apps.judge.decide.question import PolicyAnswer
from shootout.apps.judge.decide.screen import as_answer
from shootout.apps.judge.gate.output import tell_gate
from shootout.apps.judge.gate.verdict import TIME, Gate
from shootout.commands.landing import NEXT, tell_choice
from shootout.commands.output import join_reasons, take_answers
from shootout.commands.ship import NEXT_STEPS
from shootout.commands.streams import tell
from shootout.commands.tools import Interval, Outcome, ToolResult, add_verify
from shootout.core.constants import COPY
from shootout.core.contract import short
from shootout.core.errors import ExitCode
from shootout.core.host.child import leave_with
from shootout.core.stats.verdicts import Comparison, Verdict
from shootout.core.units import counted, size
from shootout.tell import reproduce
from shootout.tell.answer import REFUSED, SHIPS, list_title_parts
from shootout.tell.document import Answer, Document, Finding
from shootout.tell.grid import may_ship
from shootout.tell.limits import Limit, Standing
from shootout.tell.page.contents import MeasuredRun, lay_out
from shootout.tell.report import Line, Table
from shootout.tell.table import tell_held_back
from shootout.tell.wording import describe_noise

OPEN = ("Open", "Unknown", "Tied", "Skipped")
"""The labels of lines that tell what isn't known."""
CHOICES: Mapping[str, Outcome] = {"chosen": "ship", "tied": "ship", "undecided": "open", "infeasible": "broken"}
GATES: Mapping[str, Outcome] = {"pass": "met", "fail": "broken", "undecided": "unknown"}
"""The verdict of a decision and of a gate, by their outcome."""
MARKS = f"{SHIPS}{REFUSED} "
FIGURES = {Limit.ERROR: "relative error of the outputs of {}", Limit.P99: "p99 of {}, ns"}
"""Name the figure of a claim that is none on speed."""


def call(words: Sequence[str]) -> ToolResult:
    """Run a command in this process, and return what came of it.

    Raises:
        SystemExit: it ended without a result, and said why on stderr.
    """
    sys.argv, code = ["shootout", *words[:1], "--json", *words[1:]], None  # a run's journal keeps them
    with take_answers() as found:
        try:
            cli.main(add_verify(cli.app))
        except SystemExit as ended:
            code = ended.code
    if not found and not code:
        typed = reproduce.quote(["shootout", *words])
        tell(f"`{typed}` prints a text and no result: leave out what asks for it, such as --help")
    if not found:
        raise SystemExit(code or ExitCode.USAGE)
    told = tell_found(found[-1], words)
    documents = found[-1].question.documents if isinstance(found[-1], PolicyAnswer) else found[-1:]
    rows = [row for one in documents if isinstance(one, Document) for row in one.rows if row.outcome == "failed"]
    told.open += [f"{row.arm} was named, and failed: {row.reason}" for row in rows if code == ExitCode.FAILED]
    return told


def tell_found(found: Any, words: Sequence[str]) -> ToolResult:
    """Tell what a command found."""
    match found:
        case Document():
            return tell_run(found, has_rows=words[0] == "show")
        case PolicyAnswer():
            return tell_decision(found)
        case JudgedClaim():
            return tell_claim(found)
        case (Gate() as gate, Document() | None as document):
            return tell_gated(gate, document)
        case Explanation():
            terms = tell_terms(analyse(Path(found.run)), found.group)
            return tell_report(list(tell_lines(found)), found.run, terms)
        case {"groups": _, "most_s": _}:
            return tell_plan(found, words)
        case {"checked": _, "doubt": _} | {"folder": _, "contenders": _}:
            return tell_written(found)
    return ToolResult(answer=f"This is no single run: read it by `shootout {reproduce.quote(words)}`.")


def tell_plan(data: Mapping[str, Any], words: Sequence[str]) -> ToolResult:
    """Tell what a run would do, from the data of `run --dry-run`."""
    groups = data["groups"]
    arms = dict.fromkeys(arm for group in groups for arm in group["arms"] if not arm.endswith(COPY))
    skipped = {arm: [why["reason"], why["fix"]] for group in groups for arm, why in group["skipped"].items()}
    return ToolResult(
        answer=f"{counted(len(arms), 'target')} would race: {', '.join(arms)}; {data['takes']}.",
        open=join_reasons({arm: "; ".join(filter(None, why)) for arm, why in skipped.items()}),
        notes=[note for group in groups[:1] for note in (group["model"] or {}).get("notes", ())],
        next=f"shootout {reproduce.quote(word for word in words if word != '--dry-run')}",
    )


def tell_run(document: Document, *, has_rows: bool) -> ToolResult:
    """Tell a run's answer, and a row for each target, or for each group of several."""
    report, answers = lay_out(MeasuredRun(document)), document.answer
    told = tell_report([*report.lines, *report.missing], document.run, tell_terms(document))
    if has_rows:
        told.rows = list_rows([report.answers] if report.answers else report.tables)
    told.verdict = "ship" if answers and all(map(may_ship, answers)) else "open"
    told.interval = find_interval(answers[0]) if told.verdict == "ship" and len(answers) == 1 else None
    return told


def tell_decision(found: PolicyAnswer) -> ToolResult:
    """Tell what a policy decides."""
    decision, question, report = found.decision, found.question, found.lay_out()
    (document, *others), cells = question.documents, question.cells
    told = tell_report(report.lines, document.run, None if others else tell_terms(document, cells[0].group))
    told.rows, told.verdict = list_rows(report.tables), CHOICES[decision.outcome]
    if decision.chosen and decision.policy.asks_time:
        candidates = [one.row.model_copy(update={"arm": one.label}) for one in question.candidates]
        told.interval = find_interval(as_answer(decision, question, candidates))
    return told


def tell_gated(gate: Gate, document: Document | None) -> ToolResult:
    """Tell a gate's outcome."""
    told = tell_report(list(tell_gate(gate, document)), gate.run, tell_terms(document) if document else None)
    told.verdict, ratio = GATES[gate.outcome], gate.ratio
    if ratio and any(one.name == TIME and one.standing in (Standing.MET, Standing.BROKEN) for one in gate.checks):
        told.interval = bound("time of the candidate ÷ time of the reference", ratio)
    return told


def tell_written(data: Mapping[str, Any]) -> ToolResult:
    """Tell what a folder holds, and what isn't sure of it: any target can be shipped, a slower one too."""
    folder, quoted = data["folder"], reproduce.quote([data["folder"]])
    told = ToolResult(answer="", verdict="written", folder=folder)
    if "contenders" in data:  # what it chose here holds for no other machine
        labels = {one["name"]: short(one["label"]) for one in data["contenders"]}
        safe = f"without a verdict it takes {labels[data['safe']]}"
        told.answer = f"{folder} chooses among {', '.join(labels.values())} where it lands; {safe}."
        told.open, told.notes = join_reasons(data["left_out"]), [tell_choice(data["chosen_here"])]
        told.next = NEXT.format(quoted)
    else:
        target, doubt, (check, gate) = data["target"], data["doubt"], NEXT_STEPS.values()
        told.answer = f"{folder} holds {target}, {size(data['size_bytes'])}; its check passed: {data['checked']}."
        told.open = [f"{target} {doubt}"] if doubt else []
        told.notes = [f"check it where it runs: `{check.format(quoted)}`"]
        told.next = gate.format(quoted)
    return told


def tell_claim(judged: JudgedClaim) -> ToolResult:
    """Tell what a run says of a claim, and which of its targets may not be shipped, however fast they are."""
    document, claim, names = judged.run.document, judged.claim, [short(arm) for arm in judged.arms]
    times = " ÷ ".join(f"time of {name}" for name in (names[::-1] if claim.verdict is Verdict.FASTER else names))
    of = times if claim.verdict else FIGURES[claim.limit].format(" against ".join(names))
    refused = [(row, tell_held_back(document, row)) for row in judged.rows]
    return ToolResult(
        answer=f"{judged}.",
        terms=tell_terms(document, judged.cell.group),
        verdict=judged.standing.value,
        interval=None if judged.reason else bound(of, judged.figure),
        open=[judged.reason] if judged.reason else [],
        notes=[f"{short(row.arm)} may not be shipped: {why}" for row, why in refused if why],
        next=judged.next,
        folder=str(judged.run.folder),
    )


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
        next=nexts[0] if nexts else None,
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


def list_rows(tables: Iterable[Table]) -> list[dict[str, str]]:
    """List the rows of tables by their headers, without empty cells, and with why one may not be shipped."""
    rows = list[dict[str, str]]()
    for table in tables:
        names = [*(name or "answer" for name in table.headers), "not shipped"]
        for row, remark in itertools.zip_longest(table.rows, table.remarks):
            cells = zip(names, [*row, remark or ""], strict=True)
            rows.append({name: text for name, cell in cells if (text := str(cell).strip(MARKS))})
    return rows


def find_interval(answer: Answer) -> Interval | None:
    """Return the interval of what ships against the usual choice, or else the second; None without a verdict."""
    usual = answer.otherwise if answer.otherwise and answer.otherwise.ratio else answer.sure.closest
    if usual is None or answer.ship is None or usual.ratio is None or not usual.ratio.decided:
        return None
    return bound(f"time of {short(usual.arm)} ÷ time of {short(answer.ship.arm)}", usual.ratio)


def bound(of: str, figure: Comparison | Finding | Bounds) -> Interval:
    """Return a figure with its ends."""
    return Interval(of=of, value=figure.value, low=figure.low, high=figure.high)


def main() -> None:
    """Run the command that this process was started for."""
    parent, *words = sys.argv[1:]
    leave_with(int(parent))
    told = call(words)  # which puts another standard output in place of the first
    sys.stdout.write(f"{told.model_dump_json(exclude_none=True)}\n")


if __name__ == "__main__":
    main()
