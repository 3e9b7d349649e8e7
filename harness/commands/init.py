"""Run `shootout init`: write a study file for one model, with what can run here and a comment on what to change."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from shootout import models
from shootout.commands.output import show_progress
from shootout.contract import Arm, Device, NotRun, Precision, Target
from shootout.decide.policy import make_template
from shootout.errors import ExitCode, UsageError
from shootout.export.client import is_file
from shootout.export.request import input_texts
from shootout.formats.files import write_file
from shootout.models.base import Choice
from shootout.study import schema, selection
from shootout.study.options import ModelOptions
from shootout.study.plan import Plan, PlannedGroup, make_plan
from shootout.study.points import describe
from shootout.study.schema import Study

POLICY = "deploy.toml"
"""The name of the policy that is written next to a study."""
BAR = 78
"""Letters in a line of a comment."""


def init(options: ModelOptions, out: Path) -> int:
    """Write the study; return the exit code.

    Raises:
        UsageError: the model can't be read, or `out` already exists or can't be written.
    """
    if out.suffix != schema.SUFFIX:
        raise UsageError(f"--out {str(out)!r}: a study's file ends in .toml")
    if out.exists():
        raise _is_there(out)
    if not out.parent.is_dir():
        raise UsageError(f"can't write {out}: No such file or directory; make its folder, or give another --out")
    chosen = selection.choose(selection.DEFAULT, options)
    with show_progress() as progress:
        progress.stage("looking which backends work here")
        plan = make_plan(chosen)
    text = render(plan, out)
    schema.read_text(text, out.stem, str(out))  # what is written is a study, or this raises
    if not write_file(out, text.encode(), replaces=False):  # it came while the backends were looked at
        raise _is_there(out)
    policy = out.with_name(POLICY)
    beside = _write_policy(policy, out)
    sys.stdout.write(f"wrote {out}{f' and {policy}' if beside else ''}\n")
    command = f"shootout run {shlex.quote(str(out))}"
    sys.stdout.write(f"edit it, then: {command}\n")
    if beside:
        sys.stdout.write(f"or, to decide by your own limits: {command} --policy {shlex.quote(str(policy))}\n")
    return ExitCode.OK


def _is_there(out: Path) -> UsageError:
    return UsageError(f"{out} already exists: remove it, or give another --out")


def _write_policy(policy: Path, study: Path) -> bool:
    """Write a policy to fill in next to the study; return False if there is one, which stays."""
    return write_file(policy, make_template(shlex.quote(str(study))).encode(), replaces=False)


def render(plan: Plan, out: Path) -> str:
    """Render the study of a plan as TOML, for people to change.

    Args:
        plan: of one model.
        out: where it will be.
    """
    study, group = plan.study, plan.groups[0]
    (model,) = study.model
    parts = [
        _comment_lines(f"Which backend should {Path(model).name} ship on? Run this:", gap=False),
        f"#   shootout run {shlex.quote(str(out))}",  # whole, however long, to be copied
        _comment_lines("Paths of files start at the folder where you run it.", gap=False),
        f"model = {_toml_value(model)}",
        *_target_lines(group),
        *_what_a_call_gets(study),
        *_when_to_stop(),
        *_parameter_lines(study, model),
    ]
    return "\n".join(parts) + "\n"


def _target_lines(group: PlannedGroup) -> Iterator[str]:
    """Write the targets that can run here, others to add, and why the rest can't."""
    yield _comment_lines(
        "Targets to measure, as backend:device:precision, or backend+mode:device:precision/scheme. Delete those you "
        "wouldn't ship; add others from `shootout list`. Each row shows the error that its precision causes."
    )
    arms = [arm for arm in group.record.arms if not arm.control]
    playing = [arm for arm in arms if arm.label not in group.skips]
    yield "targets = ["
    yield from (f"    {_toml_value(str(arm.target))}," for arm in playing)
    yield from (f"    # {', '.join(map(_toml_value, texts))}," for texts in _further_precisions(playing))
    yield "]"
    for why, labels in _group_reasons(arms, group).items():
        yield _comment_lines(f"Can't run here: {', '.join(labels)}: {why}", gap=False)
    yield _comment_lines("Target that speed-ups are relative to. Default: a usual one that runs.")
    yield f"# baseline = {_toml_value(group.record.baseline or 'onnxruntime:cpu:fp32')}"


def _further_precisions(playing: Sequence[Arm]) -> Iterator[list[str]]:
    """Return further precisions of each backend that runs on the CPU."""
    there = {arm.target for arm in playing}
    for name in dict.fromkeys(arm.target.backend for arm in playing if arm.target.device is Device.CPU):
        can = describe(name)[0].targets
        every = (Target(backend=name, precision=precision) for precision in Precision if (Device.CPU, precision) in can)
        if more := [str(target) for target in every if target not in there]:
            yield more


def _group_reasons(arms: Iterable[Arm], group: PlannedGroup) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for arm in arms:
        if arm.label in group.skips:
            reasons.setdefault(_tell_reason(group.skips[arm.label]), []).append(arm.label)
    return reasons


def _tell_reason(why: NotRun) -> str:
    return f"{why.reason}. Fix: {why.fix}" if why.fix else why.reason


def _what_a_call_gets(study: Study) -> Iterator[str]:
    (model,) = study.model
    yield _comment_lines('Rows of a call. Several, as in [1, 8] or "1..64 x2", are measured one after the other.')
    yield f"batch = {_toml_value(study.batch)}"
    yield _comment_lines('Threads of each target; "all" for every CPU. Default: CPUs - 1.')
    yield '# threads = [1, "all"]'
    if is_file(model) or models.get(model).called:
        told = f" Here: {'; '.join(input_texts(model).values())}." if is_file(model) else ""
        yield _comment_lines(
            f"Your own data: .npz files with one array for each input.{told} With labels, the class of each row, every "
            "target gets an accuracy, which shows what a narrower precision costs."
        )
        yield from _data_file_lines(study)
    yield _comment_lines(
        "What to measure: latency, one call after another; throughput; serve, the requests a second that keep a limit "
        "on p99."
    )
    yield f"# scenario = {_toml_value(['latency', 'serve'])}"
    yield "# p99_limit_ms = 5.0"


def _data_file_lines(study: Study) -> Iterator[str]:
    for name in ("inputs", "labels", "calibration"):
        path = getattr(study, name)
        yield f"{'' if path else '# '}{name} = {_toml_value(path or f'{name}.npz')}"
    for name in ("read", "truth", "rows_by", "metric", "scores", "max_drop", "min_agreement"):
        if given := getattr(study, name):
            yield f"{name} = {_toml_value(given)}"
    if study.weights:
        yield f"weights = {_toml_value(study.weights)}"


def _when_to_stop() -> Iterator[str]:
    yield _comment_lines(
        "What to find out. best: the fastest target, or several that are as good; baseline: a verdict for each target "
        "against the baseline; 'resolve 3%': every speed-up to within 3 %. Limit the time with --max-time 2m."
    )
    yield 'goal = "best"'


def _parameter_lines(study: Study, model: str) -> Iterator[str]:
    if study.shapes:
        yield _comment_lines("Sizes that the file leaves open.")
        yield "[shapes]"
        yield from (f"{_toml_key(name)} = {_toml_value(shape)}" for name, shape in study.shapes.items())
    known = {} if is_file(model) else models.get(model).parameters
    if known or study.parameters:
        words = "axes" if is_file(model) else "parameters"
        yield _comment_lines(f"The model's {words}. Several values are measured one after the other.")
        yield "[parameters]"
    yield from (f"{_toml_key(name)} = {_toml_value(values)}" for name, values in study.parameters.items())
    for name, parameter in known.items():
        if name not in study.parameters:
            choices = f"  # of {', '.join(parameter.choices)}" if isinstance(parameter, Choice) else ""
            yield f"# {_toml_key(name)} = {_toml_value([parameter.default])}{choices}"


def _comment_lines(text: str, *, gap: bool = True) -> str:
    """Return a comment over as many lines as it takes, after an empty one."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) >= BAR:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return ("\n" if gap else "") + "\n".join(f"# {line}" for line in lines)


def _toml_value(value: Any) -> str:
    """Return a value as TOML, whose texts, numbers and lists are written as JSON's."""
    return json.dumps(value, ensure_ascii=False)


def _toml_key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _toml_value(name)
