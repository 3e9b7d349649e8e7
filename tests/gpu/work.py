"""One step's command line: a study with the arms that matter on a GPU machine, or another command of ours."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shootout.contract import Availability, Device
from shootout.host import environment
from shootout.host.placement import allowed_cpus, place
from shootout.report import dry_run
from shootout.study import schema
from shootout.study.feasibility import Here
from shootout.study.plan import Plan, plan_groups
from shootout.study.points import describe
from shootout.study.schema import Study
from shootout.study.target import parse_targets, provider

from .steps import Step

HERE = Path(__file__).resolve().parent
SHOOTOUT = (sys.executable, "-P", "-c", "from shootout.cli import main; main()")
STUDIES = "studies"
PLANNING_S = 30.0
"""`--max-time` begins after planning, which asks every backend whether it works here: about so long, or a third."""


def command(step: Step, out: Path, share_s: float) -> list[str]:
    """The words that start a step; of a race, its study is written into the campaign's folder first.

    Args:
        out: the campaign's folder.
        share_s: seconds that it may take.
    """
    if not step.study:
        return _other(*(word.format(out=out, here=HERE) for word in step.command))
    file = out / STUDIES / f"{step.name}.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(toml(changed(schema.load(step.study), step)))
    return [*SHOOTOUT, "run", str(file), "--out", str(out / step.name), "--max-time", f"{measuring_s(share_s):.0f}s"]


def _other(program: str, *words: str) -> list[str]:
    if program == "shootout":
        return [*SHOOTOUT, *words]
    return [sys.executable, *([] if program.endswith(".py") else ["-m"]), program, *words]


def measuring_s(share_s: float) -> float:
    """What is left of a share when planning is over."""
    return share_s - min(PLANNING_S, share_s / 3)


def least_s(step: Step) -> tuple[float, float]:
    """Seconds that a step's race needs at least where all its arms run, and of the exports and builds before it.

    By rule of thumb from CPUs; nothing is asked or measured, so that it can be told without a GPU.
    """
    chosen = Study(**changed(schema.load(step.study), step), name=step.name)
    targets = [parse_targets(text, describe)[0] for text in chosen.targets]
    here = Here(
        available={provider(target): Availability() for target in targets},
        threads=place(None).threads,
        cpus=len(allowed_cpus()),
        memory_bytes=environment.memory_available_bytes(),
    )
    groups, placement = plan_groups(chosen, here), place(None)
    planned = Plan(study=chosen, groups=groups, available=here.available, placement=placement, here=here, identity="")
    return dry_run.seconds(planned), dry_run.preparing_s(planned)


def changed(whole: Study, step: Step) -> dict[str, Any]:
    """The fields of the study that the step races: fewer arms and pairs, and no ceilings, which take minutes."""
    fields = whole.model_dump(mode="json", exclude_unset=True, exclude={"name", "ceilings"})
    fields["targets"] = raced(whole, step)
    if step.targets:
        fields["baseline"] = step.targets[0]
    if whole.crossover:
        fields["crossover"]["pairs"] = mixed(whole)
    return fields


def mixed(whole: Study) -> list[tuple[str, str]]:
    """The study's pairs with a GPU in them."""
    pairs = whole.crossover.pairs if whole.crossover else ()
    return [pair for pair in pairs if any(_device(text) is Device.CUDA for text in pair)]


def raced(whole: Study, step: Step) -> list[str]:
    """The targets that the step races, in the study's order: those on a GPU, and of the CPU's those that it needs.

    Raises:
        ValueError: the step names targets that the study doesn't have.
    """
    if step.targets:
        return list(step.targets)
    on_gpu = {text for text in whole.targets if _device(text) is Device.CUDA}
    if unknown := [*({*step.leave} - on_gpu), *({*step.cpu} - {*whole.targets} | {*step.cpu} & on_gpu)]:
        told = f"step {step.name} names {', '.join(sorted(unknown))}"
        raise ValueError(f"{told}: not among the study's targets on that device, {', '.join(whole.targets)}")
    kept = {*step.cpu, *_needed(whole)}
    on_gpu -= {*step.leave}
    return [text for text in whole.targets if text in kept or text in on_gpu]


def _needed(whole: Study) -> Iterator[str]:
    """The targets that the step's question can't do without."""
    if whole.baseline:
        yield whole.baseline
    for pair in mixed(whole):
        yield from pair


def _device(text: str) -> Device:
    return parse_targets(text, describe)[0].device


def toml(fields: Mapping[str, Any]) -> str:
    """Fields as TOML, whose values are written as JSON's except for tables."""
    return "".join(f"{json.dumps(name)} = {_value(value)}\n" for name, value in fields.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{json.dumps(name)} = {_value(one)}' for name, one in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value)
