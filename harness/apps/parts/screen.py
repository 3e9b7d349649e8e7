"""The answer for a program of several parts, as lines and as JSON values."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shootout.apps.parts.choice import Choice
from shootout.apps.parts.joint import USUAL, Agreement, Joint
from shootout.apps.parts.profile import RESTARTS, WORTH, Profile, Program
from shootout.core.contract import short
from shootout.core.stats.verdicts import Verdict
from shootout.core.units import counted, measured, number, span
from shootout.tell.formats import json_text
from shootout.tell.ratios import tell_ratio
from shootout.tell.report import WIDEST, Command, Line, write_lines

FOR_ALL = f"{USUAL} for all"
FACTS = "parts.json"
"""The file in the run's folder with what it is of, and the answer so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Hold what a command found of a program so far.

    Attributes:
        choices: of the parts, in order; none if there is nothing to gain.
        agreement, joint: of what was chosen; None if nothing was, or it wasn't measured.
    """

    program: Program
    profile: Profile
    threads: int
    run: str
    choices: Sequence[Choice] = ()
    agreement: Agreement | None = None
    joint: Joint | None = None

    @property
    def chosen(self) -> list[Choice]:
        """Return the choices that aren't as usual."""
        return [one for one in self.choices if one.target]

    @property
    def is_worth(self) -> bool:
        """Return whether there is anything to gain."""
        return self.profile.gain.most > WORTH

    @property
    def outcome(self) -> str:
        """Return `chosen`, `leads` (not significantly, or not confirmed yet), `usual`, or `open`: nothing is yet."""
        if not self.chosen:
            is_left = len(self.choices) < len(self.program.parts) or any(one.is_pending for one in self.choices)
            return "open" if self.is_worth and is_left else "usual"
        if self.agreement and not self.agreement.holds:
            return "usual"
        ratio = self.joint.ratio if self.joint else None
        if self.joint and self.joint.reason and not ratio:
            return "usual"
        if ratio and ratio.verdict is Verdict.FASTER:
            return "chosen"
        return "usual" if ratio and (ratio.verdict is not Verdict.CANT_TELL or ratio.value >= 1) else "leads"


def keep(folder: Path, facts: Mapping[str, Any], found: Found) -> None:
    """Write what is known so far into a run's folder, for `show`, and for the same command later."""
    told = "\n".join(line.plain for line in write_lines(write_answer(found), WIDEST))
    kept = {**facts, "answer": as_data(found), "screen": told}
    (folder / FACTS).write_text(json_text(kept), encoding="utf-8")


def read_kept(folder: Path) -> dict[str, Any]:
    """Return what `keep` wrote; nothing of another folder."""
    try:
        kept = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    kinds = {"key": str, "profile": str, "screen": str, "answer": dict}
    is_ours = isinstance(kept, dict) and all(isinstance(kept.get(name), kind) for name, kind in kinds.items())
    return kept if is_ours else {}


def name_choices(choices: Sequence[Choice]) -> str:
    """Write `det openvino, rec onnxruntime`."""
    return ", ".join(f"{one.name} {short(one.target) or USUAL}" for one in choices)


def write_answer(found: Found) -> list[Line]:
    """Write the answer's lines."""
    pages, timed = found.profile.pages, {*found.profile.timed}
    seen = f"{len(pages)} of {counted(len(found.program.pages), 'page')} looked at, {len(timed)} of these timed"
    return [
        _tell_ship(found),
        Line("Gain", [str(found.profile.gain), f"{counted(len(found.profile.call_ns), 'process')[:-1]}es"]),
        *(Line("" if number else "Parts", [*_tell_part(one)]) for number, one in enumerate(found.choices)),
        Line("Same", [*_tell_agreement(found)]),
        Line("Pages", [seen, counted(found.threads, "thread")]),
        Line("Noise", [f"{found.joint.noise}, {counted(found.joint.restarts, 'restart')}"] if found.joint else []),
        *_tell_next(found),
    ]


def as_data(found: Found) -> dict[str, Any]:
    """Return the answer as JSON values."""
    profile, gain, joint = found.profile, found.profile.gain, found.joint
    stays, chosen = found.outcome in ("usual", "open"), found.chosen
    return {
        "schema": 1,
        "run": found.run,
        "function": found.program.short,
        "outcome": found.outcome,
        "ship": dict.fromkeys(found.program.parts, USUAL) | ({} if stays else {one.name: one.target for one in chosen}),
        "threads": found.threads,
        "gain": {**asdict(gain), "restarts": len(profile.call_ns)},
        "page_ns": joint.page_ns if joint and not stays else _usual_ns(found),
        "pages": {"given": len(found.program.pages), "seen": len(profile.pages), "timed": len({*profile.timed})},
        "parts": [asdict(one) for one in found.choices],
        "agreement": asdict(found.agreement) if found.agreement else None,
        "joint": asdict(joint) if joint else None,
    }


def _usual_ns(found: Found) -> float:
    own = found.joint.usual_ns if found.joint else None
    return own or sum(found.profile.call_ns) / len(found.profile.call_ns)


def _tell_ship(found: Found) -> Line:
    joint, usual = found.joint, f"a page takes {measured(_usual_ns(found))}"
    if found.outcome == "open":
        return Line("Leads", [usual, "not all parts are raced yet: run the same command again"], subject=FOR_ALL)
    if found.outcome == "usual":
        is_known = not (joint and joint.ratio and joint.ratio.verdict is Verdict.CANT_TELL)
        return Line("Ship" if is_known else "Leads", [usual, *_tell_why_usual(found)], subject=FOR_ALL)
    label, subject = "Ship" if found.outcome == "chosen" else "Leads", name_choices(found.choices)
    if joint is None or joint.ratio is None or joint.page_ns is None:
        return Line(label, ["not confirmed yet: run the same command again"], subject=subject)
    told = tell_ratio(joint.ratio, FOR_ALL)
    return Line(label, [f"a page takes {measured(joint.page_ns)}, {told}"], subject=subject)


def _tell_why_usual(found: Found) -> Iterator[str]:
    names = name_choices(found.choices)
    if not found.is_worth:
        yield f"nothing can be gained: under {WORTH:.2f}x"
    elif not found.chosen:
        yield "no part measured faster in another runtime"
    elif found.agreement and not found.agreement.holds:
        yield f"{names} gives other results"
    elif found.joint and found.joint.ratio:
        yield f"{names} is {tell_ratio(found.joint.ratio)}"
    elif found.joint:
        yield f"{names}: {found.joint.reason}"


def _tell_part(one: Choice) -> Iterator[str]:
    yield f"{one.name} {100 * one.share:.0f} % of a call"
    if one.target:
        yield f"{short(one.target)}{f' {tell_ratio(one.ratio)}' if one.ratio else ''} by itself"
    yield one.why
    if one.is_pending:
        yield "the same command goes on with it"


def _tell_agreement(found: Found) -> Iterator[str]:
    agreement = found.agreement
    if agreement is None:
        return
    if found.program.metric:
        scores = [number(one) for one in (agreement.score, agreement.usual)]
        yield f"{Path(found.program.metric).name} gives {scores[0]}, {scores[1]} with {FOR_ALL}"
    yield f"{agreement.alike} of {counted(agreement.pages, 'page')} give the same result, fractions within 0.1 %"
    if agreement.differs:
        yield f"{agreement.differs} is the first that doesn't"
    if agreement.differs and not found.program.metric:
        yield "--metric file.py:score says what that costs"
    for name, share in agreement.by_usual.items():
        if share:
            yield f"{USUAL} makes {100 * share:.0f} % of the calls of {name}, since the target takes one size"


def _tell_next(found: Found) -> Iterator[Line]:
    if found.outcome != "chosen":
        return
    closed = [one for one in found.chosen if not one.is_open]
    commands = [
        Command(text=f"shootout ship {shlex.quote(one.run)} --target {one.target} -o {one.name}-1") for one in closed
    ]
    opened = [
        f"{one.name}: open {found.program.parts[one.name].name} in {one.target.partition(':')[0]} with "
        f"{counted(found.threads, 'thread')}, since a shipped folder takes one size"
        for one in found.chosen
        if one.is_open
    ]
    yield Line("Next", opened, commands)


def write_plan(program: Program, targets: Sequence[str], threads: int, max_time_s: float | None) -> list[Line]:
    """Write the steps of a run, and how long each takes."""
    raced = "90 s each" if max_time_s is None else f"{span(0.5 * max_time_s)} in all, by their shares"
    last = "90 s at most" if max_time_s is None else "the rest"
    return [
        Line("Plan", [f"{program.short} on {counted(len(program.pages), 'page')}", counted(threads, "thread")]),
        Line("1", [f"call it with ONNX Runtime in each part, in {RESTARTS} processes: what can be gained"]),
        Line("2", [f"race each part by itself: {', '.join(program.parts)}", ", ".join(map(short, targets)), raced]),
        Line("3", ["compare the results with those of ONNX Runtime"]),
        Line("4", ["race the program with what was chosen against ONNX Runtime for all", last]),
    ]


def plan_data(program: Program, targets: Sequence[str], threads: int, max_time_s: float | None) -> Mapping[str, Any]:
    """Return the same as JSON values."""
    parts = {name: str(path) for name, path in program.parts.items()}
    told = {"function": program.short, "parts": parts, "pages": len(program.pages), "targets": [*targets]}
    return {**told, "threads": threads, "max_time_s": max_time_s}
