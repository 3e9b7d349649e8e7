"""`shootout run app.py:read --parts …`: several models with Python between them, each raced, then all together."""

from __future__ import annotations

import ast
import hashlib
import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Group

from shootout import studies
from shootout.apps.judge.racing import AnswerPurpose
from shootout.apps.parts import screen
from shootout.apps.parts.choice import Choice, choose, list_targets, list_usual, make_options
from shootout.apps.parts.joint import Agreement, compare_results, plan_joint, read_joint
from shootout.apps.parts.profile import PROFILE, WORTH, Profile, Program, take_profile
from shootout.apps.parts.screen import Found, name_choices
from shootout.backends._joint.parts import ChosenBuild
from shootout.commands import run as runs
from shootout.commands.machine_lock import machine_lock
from shootout.commands.output import print_answer, show_progress, width
from shootout.core import backends
from shootout.core.adapter import Built
from shootout.core.clock import Deadline, now_ns, utc_now
from shootout.core.constants import RACING_S
from shootout.core.errors import ArmFailed, ExitCode, Interrupted, ModelError, SkippedArm, UsageError, unknown
from shootout.core.exported.model import sha256
from shootout.core.host.environment import installed
from shootout.core.host.placement import Placement, widest
from shootout.core.journal.folder import START_OVER
from shootout.models import source
from shootout.models.data.data_files import RowFacts
from shootout.models.data.reading import list_files
from shootout.models.onnx import onnx_axes, onnx_files
from shootout.models.readers.reader import keep_rows
from shootout.scenarios.varying import OPEN, SIZES
from shootout.tell.progress import ProgressDisplay
from shootout.tell.report import Line, write_lines
from shootout.tell.run_folder import new_folder
from shootout.tell.study_options import DEFAULT, RunOptions, flags_of

TAKEN = ("parts", "images", "inputs", "backends", "threads", "metric", "max_time_s", "out", "fresh")
"""The options that mean something beside `--parts`."""
NOTHING = "means nothing beside --parts: leave it out"
PARTS_SHARE, LEAST_SHARE = 0.6, 0.2
"""The part of the time left that the parts' own runs get; the program as a whole has the rest. Each part gets its share
of that by its share of a call, and this much at least: its export and builds take as long as those of others.
"""


def run_parts(word: str, options: RunOptions, *, dry_run: bool, as_json: bool, others: Mapping[str, object]) -> int:
    """Choose a runtime for each part of a user's program, confirm the choice as a whole, print; return the exit code.

    Args:
        word: `file.py:read`.
        others: what the command has besides, by flag, none of which means anything here.

    Raises:
        UsageError: something in the request or in the user's function is wrong.
    """
    if strange := [flag for flag, value in others.items() if value]:
        raise UsageError(f"{strange[0]} {NOTHING}")
    limit, program, threads = Deadline(options.get("max_time_s")), read_program(word, options), _read_threads(options)
    named = options.get("backends") or list_usual(studies.load(DEFAULT).targets)
    placement, targets = widest([threads]), list_targets(named, is_open=False)
    if dry_run:
        asked = (program, targets, placement.threads, limit.seconds)
        return print_answer(_lines(screen.write_plan(*asked)), screen.plan_data(*asked), as_json=as_json)
    code = ExitCode.OK
    with show_progress() as progress:
        key, fresh = _make_key(program, placement.threads, targets), options.get("fresh", False)
        out = _choose_out(key, options.get("out"), fresh=fresh)
        steps = PartsRun(program, placement, threads, targets, out, key, fresh, progress, limit)
        try:
            with machine_lock(str(out), progress.wait) as waited_s:
                limit.put_off(waited_s)
                steps.run()
        except Interrupted as interrupted:
            progress.say(f"shootout: {interrupted}")
            code = interrupted.exit_code
        progress.say(f"run folder: {out}")
    return print_answer(_lines(screen.write_answer(steps.found)), screen.as_data(steps.found), as_json=as_json) or code


def _lines(lines: Sequence[Line]) -> Group:
    return Group(*write_lines(lines, width()))


@dataclass(slots=True)
class PartsRun:
    """The steps of a run, which go on from what its folder and the cache hold.

    Attributes:
        threads: of each part, as a study has it.
        targets: that race for each part.
        key: what the folder must be of.
        found: what is known so far, from the first step on.
    """

    program: Program
    placement: Placement
    threads: Any
    targets: Sequence[str]
    out: Path
    key: str
    fresh: bool
    progress: ProgressDisplay
    limit: Deadline
    found: Found = field(init=False)

    def run(self) -> None:
        """Take all steps that are left, as far as the time goes."""
        profile = self._profile()
        self.found = Found(program=self.program, profile=profile, threads=self.placement.threads, run=str(self.out))
        self._keep()
        self.progress.say(str(profile.gain))
        if profile.gain.most <= WORTH:
            return
        shares = {name: profile.share_of(name) for name in self.program.parts}
        raced = {name: share for name, share in shares.items() if 1 / (1 - min(share, 0.999)) > WORTH}
        weights = {name: max(share, LEAST_SHARE * sum(raced.values())) for name, share in raced.items()}
        left = sum(weights.values()) / PARTS_SHARE
        for name, share in shares.items():
            choice = Choice(name=name, share=share, why=f"not raced: under {WORTH:.2f}x can be gained")
            if name in raced:
                choice = self._race_part(name, share, self.limit.part(weights[name] / left))
                left -= weights[name]
            self._keep(choices=[*self.found.choices, choice])
        self._confirm()

    def _keep(self, **changes: Any) -> None:
        """Add to what is found, and write it into the run's folder."""
        self.found = replace(self.found, **changes)
        self.out.mkdir(parents=True, exist_ok=True)
        facts = {"key": self.key, "profile": str(self.found.profile.folder)}
        screen.keep(self.out, facts, self.found)

    def _profile(self) -> Profile:
        """Return what the program does as usual: what this run has seen already, or what is seen now."""
        kept = screen.read_kept(self.out).get("profile")
        if kept and not self.fresh and (Path(kept) / PROFILE).exists():
            return Profile.read(Path(kept))
        facts = RowFacts(told=f"what {self.program.short} gives its parts", files=len(self.program.pages))

        def make(folder: Path) -> int:
            return take_profile(self.program, folder, self.placement, self.limit, self.progress.say)

        return Profile.read(keep_rows([self.key, utc_now(), now_ns()], facts, make))

    def _race_part(self, name: str, share: float, limit: Deadline) -> Choice:
        """Race a part by itself, and keep the build of what it gets.

        Raises:
            UsageError: its file or a target can't be what the user gives, or the folder holds another run.
        """
        path, out, built = self.program.parts[name], self.out / name, dict[str, Built]()
        purpose = AnswerPurpose(trace=lambda made: built.update(*made.values()))
        try:
            header = onnx_files.header(path)
            axes = [onnx_axes.sizes_of_shapes(header, one.inputs) for one in self.found.profile.sizes[name]]
            own, told = make_options(self.found.profile, name, axes, self.targets)
            options: Any = {**own, "threads": [self.threads], "out": out, "fresh": self.fresh}
            self.progress.say(f"part {name}: {told}")
            plan, _ = runs.plan_run(str(path), options, self.progress)
            asked: Any = {"fresh": self.fresh, "limit": limit, "progress": self.progress, "purpose": purpose}
            document = runs.measure(plan, out, **asked)
        except UsageError as error:
            raise UsageError(f"part {name}: {error}") from error
        except (ModelError, SkippedArm, ArmFailed) as error:
            return Choice(name=name, share=share, why=f"not raced: {error}")
        choice = choose(name, share, document, told, is_open="mix" in own)
        if choice.target not in built:
            return replace(choice.stay("has no build yet"), is_pending=choice.is_pending or bool(choice.target))
        self._build_file(name).write_bytes(pickle.dumps(_as_chosen(built[choice.target])))
        return choice

    def _confirm(self) -> None:
        """Compare the results with the chosen parts, and race the program with these; of the parts that keep them."""
        chosen = {one.name: str(self._build_file(one.name)) for one in self.found.chosen}
        if not chosen or self.limit.left_s <= 0:
            return
        agreement = self._compare(chosen)
        if not agreement.holds and len(chosen) > 1:
            alone = {name: file for name, file in chosen.items() if self._compare({name: file}).holds}
            if alone:
                changes = "changes the results"
                self._keep(choices=[one if one.name in alone else one.stay(changes) for one in self.found.choices])
                chosen, agreement = alone, self._compare(alone)
        self._keep(agreement=agreement)
        if agreement.holds and self.limit.left_s > 0:
            self._race_all(chosen)

    def _race_all(self, chosen: Mapping[str, str]) -> None:
        names = name_choices(self.found.choices)
        out = self.out / f"joint-{hashlib.sha256(names.encode()).hexdigest()[:8]}"  # another choice is another race
        plan = plan_joint(self.program, self.found.profile, chosen, names, self.out / "calls" / out.name, self.threads)
        self.progress.say(f"racing {self.program.short} as a whole: {names}")
        racing_s = RACING_S if self.limit.seconds is None else None
        asked: Any = {"fresh": self.fresh, "limit": self.limit, "progress": self.progress, "racing_s": racing_s}
        document = runs.measure(plan, out, **asked)
        self._keep(joint=read_joint(document, len(self.found.profile.timed)))

    def _compare(self, chosen: Mapping[str, str]) -> Agreement:
        names = name_choices([one for one in self.found.chosen if one.name in chosen])
        self.progress.say(f"comparing the results with {names}")
        try:
            return compare_results(self.program, self.found.profile, chosen, self.placement)
        except UsageError as error:
            raise UsageError(f"with {names}: {error}; name other targets by --backends if they are at fault") from error

    def _build_file(self, name: str) -> Path:
        own = hashlib.sha256(str(self.out.absolute()).encode()).hexdigest()[:12]
        return self.found.profile.folder / f"{name}-{own}.pickle"


def read_program(word: str, options: Mapping[str, Any]) -> Program:
    """Check a request for a program of several parts, before anything is run.

    Raises:
        UsageError: it is wrong; says what, and how to fix it.
    """
    flags = flags_of(RunOptions)
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    if strange := [name for name in given if name not in TAKEN]:
        raise UsageError(f"{flags[strange[0]].name} {NOTHING}")
    place = source.find(word)
    parts = _check_parts(place, dict(options["parts"]))
    metric = source.find(str(given["metric"])) if "metric" in given else None
    if metric:
        source.definition(metric, "scores the results")
    folders = [given[name] for name in ("images", "inputs") if name in given]
    if len(folders) != 1:
        got = "both" if folders else "none"
        raise UsageError(f"give the pages of {place.short} by --images FOLDER or --inputs FOLDER, got {got}")
    pages = list_files(Path(folders[0]).expanduser().absolute())
    if not pages:
        raise UsageError(f"{folders[0]} holds no files for {place.short}: name a folder that holds some")
    scorer = metric.name if metric else ""
    return Program(function=place.name, short=place.short, parts=parts, pages=pages, metric=scorer)


def _check_parts(place: source.FactorySource, parts: Mapping[str, str]) -> dict[str, Path]:
    """Return the parts' files by the parameters that get them."""
    node, found = source.definition(place, "reads a page"), dict[str, Path]()
    if isinstance(node, ast.FunctionDef):
        own = [*node.args.posonlyargs, *node.args.args]
        names = [one.arg for one in (*own[1:], *node.args.kwonlyargs)]
        if node.args.kwarg is None and (strange := [name for name in parts if name not in names]):
            raise unknown(f"part of {place.short}", strange[0], names)
        needed = [one.arg for one in own[1 : len(own) - len(node.args.defaults)]]
        if missing := [name for name in needed if name not in parts]:
            raise UsageError(f"{place.short} needs {', '.join(missing)}: give it in --parts {missing[0]}=file.onnx")
    for name, given in parts.items():
        path = Path(given).expanduser().absolute()
        if path.suffix != ".onnx" or not path.is_file():
            why = "is no .onnx file" if path.exists() else "isn't there"
            raise UsageError(f"--parts {name}={given}: the file {why}: name an ONNX file")
        onnx_axes.require_tensor_outputs(onnx_files.header(path))
        found[name] = path
    return found


def _read_threads(options: Mapping[str, Any]) -> Any:
    """Return the threads of each part, one value.

    Raises:
        UsageError: there are several.
    """
    given = options.get("threads")
    several = [*given] if isinstance(given, list | tuple) else [given]
    if len(several) > 1:
        raise UsageError(f"--threads {','.join(map(str, several))}: a program runs on one number of threads: give one")
    return several[0]


def _make_key(program: Program, threads: int, targets: Sequence[str]) -> str:
    """Hash of all that decides what a program does, and of what it is asked."""
    models = [file for path in program.parts.values() for file in (path, *onnx_files.external_files(path).values())]
    files = [(str(path), sha256(path)) for path in (*models, *program.pages)]
    asked = [program.function, program.metric, [*program.parts], threads, *targets]
    whole = [source.find(program.function).digest(), installed(), files, asked]
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()


def _choose_out(key: str, given: Any, *, fresh: bool) -> Path:
    """Return the folder that is named, or the newest of this request under `results/parts`, or a new one.

    Raises:
        UsageError: the named one holds another run.
    """
    if given:
        out = Path(given)
        if out.is_dir() and any(out.iterdir()) and not fresh and screen.read_kept(out).get("key") != key:
            raise UsageError(f"{str(out)!r} holds something else: {START_OVER}")
        return out
    parent = Path("results") / "parts"
    kept = [] if fresh else sorted(parent.glob("*"), reverse=True)
    return next((folder for folder in kept if screen.read_kept(folder).get("key") == key), None) or new_folder(parent)


def _as_chosen(built: Built) -> ChosenBuild:
    """Return what opens a build in the user's program: of sizes that vary the one for all."""
    adapter = backends.entry(built.arm.target.backend).path
    if not built.exported.varying:
        return ChosenBuild(adapter=adapter, built=built, is_open=False)
    inner = Built(arm=built.arm, exported=built.exported, folder=built.folder / OPEN, facts=built.facts[SIZES][OPEN])
    return ChosenBuild(adapter=adapter, built=inner, is_open=True)
