"""`shootout bisect`: make environments of a package's releases, search for the one that changed a model, print."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shootout.apps.bisect.issue import PROGRAM, write_issue, write_program
from shootout.apps.bisect.releases import Environment, Environments, is_named, list_releases, read_whole
from shootout.apps.bisect.screen import FACTS, QUANTITIES, Asked, Bisection, as_data, read_kept, write_screen
from shootout.apps.bisect.search import CHANCE, LIMIT, UNTOLD, Found, Outcome, Skipped
from shootout.backends import QUANTIZERS
from shootout.backends.pythons import OLDEST_NUMPY, packages_of
from shootout.commands import selection
from shootout.commands.bisect_measure import Measuring, find_release
from shootout.commands.output import print_answer, show_progress, width
from shootout.commands.run import command_of
from shootout.core import backends
from shootout.core.clock import Deadline
from shootout.core.contract import SCALED, Target, TensorSpec
from shootout.core.errors import ExitCode, Interrupted, ShootoutError, UsageError, tell_refusal, unknown
from shootout.core.exported.model import open_exported, sha256
from shootout.core.host.store import cache_folder
from shootout.core.results.run import begun, read_run
from shootout.core.study import points
from shootout.core.study.plan import make_plan
from shootout.core.study.target import parse_targets
from shootout.tell.cache_limit import in_use
from shootout.tell.formats import json_text
from shootout.tell.progress import ProgressDisplay
from shootout.tell.report import WIDEST, render_plain
from shootout.tell.reproduce import limit_words, quote
from shootout.tell.run_folder import new_folder
from shootout.tell.study_options import DEFAULT, BisectOptions

ISSUE = "issue.md"
"""The text for an issue, in the search's folder."""
LEAST_TIME_S = 120
"""An environment takes up to 60 s, and so does a race."""
OWN = ("model", "what", "limit", "chance", "backends", "python", "max_time_s", "out", "fresh")
"""Options that aren't those of a run."""


def bisect(package: str, wanted: str, options: BisectOptions, *, as_json: bool) -> int:
    """Search and print; return the exit code.

    Raises:
        UsageError: something in the request is wrong; nothing is made then.
        NothingMeasured: fewer than two releases can be measured.
    """
    code: int = ExitCode.OK
    with show_progress() as progress, in_use():
        search = Search.read(package, wanted, options, progress)
        search.begin(fresh=(fresh := options.get("fresh", False)))
        try:
            found = search.measure()
        except (Interrupted, KeyboardInterrupt):
            progress.say(f"shootout: interrupted; the same command{' without --fresh' if fresh else ''} goes on")
            code = ExitCode.INTERRUPTED
            found = search.find(replace(search.measuring, deadline=Deadline(0.0)))
        told = search.tell(found)
    issue = search.write(told)
    print_answer(write_screen(told, issue, width()), as_data(told, issue), as_json=as_json)
    return code or (ExitCode.UNDECIDED if told.found.outcome in UNTOLD else ExitCode.OK)


@dataclass(slots=True)
class Search:
    """A search, which goes on from what its folder and the cache hold.

    Attributes:
        releases: all that were asked for.
        before_s: seconds of earlier attempts.
    """

    releases: Sequence[str]
    environments: Environments
    measuring: Measuring
    before_s: float

    @classmethod
    def read(cls, package: str, wanted: str, options: BisectOptions, progress: ProgressDisplay) -> Search:
        """Read the request, and what is known of it.

        Raises:
            UsageError: something in the request is wrong.
        """
        limit, target = Deadline(options.get("max_time_s")), _choose_target(package, options)
        asked = _read_request(package, wanted, target, options, progress)
        out, kept = _choose_out(asked, options)
        row = backends.entry(target.backend)
        every = kept.get("releases") or list_releases(package, wanted, asked.python)
        environments = Environments(
            package=package,
            needs=_list_needs(package, target),
            python=asked.python,
            imports=row.loads[""][0] if row.loads else "",
            say=progress.say,
            pins=kept.get("pins", {}),
            made=_recall(kept),
            deadline=limit,
        )
        measuring = Measuring(asked=asked, out=out, deadline=limit, progress=progress)
        return cls(every, environments, measuring, kept.get("took_s", 0.0))

    @property
    def go_on(self) -> str:
        """Return the command that goes on."""
        longer = limit_words(_name_time(self.measuring.deadline.seconds))
        return quote(["shootout", *command_of(sys.argv[1:]), "--out", str(self.measuring.out), *longer])

    def begin(self, *, fresh: bool) -> None:
        """Write what is asked into the folder, and remove an earlier search's races from it if this one starts over.

        Raises:
            UsageError: the folder can't be written.
        """
        out = self.measuring.out
        try:
            for race in [one for one in out.glob("*/") if begun(one)] if fresh else []:
                shutil.rmtree(race)
            self._keep()
        except OSError as error:
            raise UsageError(f"can't write into {str(out)!r}: {tell_refusal(error, 'choose another --out')}") from None

    def measure(self) -> Found:
        """Make the ends and the middle, search, and return what was found.

        Raises:
            Interrupted, KeyboardInterrupt: what was measured, and the environments, are kept.
        """
        every, say, out = self.releases, self.measuring.progress.say, self.measuring.out
        first, *_, last = every
        middle = [] if self.measuring.deadline.seconds else [every[len(every) // 2]]
        soon = list(dict.fromkeys([first, *middle, last]))
        say(f"{self.environments.package} {first} to {last}: {len(every)} releases; the search's folder is {out}")
        if not self.environments.made:
            self.measuring.progress.stage(f"making environments of {', '.join(soon)}")
            self.environments.make(soon)
        return self.find(self.measuring)

    def find(self, measuring: Measuring) -> Found:
        """Return what is found, measured as far as the time goes."""
        return find_release(measuring, self.releases, self._make)

    def _make(self, release: str) -> Environment | Skipped | None:
        if release not in self.environments.made:
            self.measuring.progress.stage(f"making an environment of {release}")
        made = self.environments(release)
        self._keep()
        return made

    def tell(self, found: Found) -> Bisection:
        """Return what was found, with what it was about."""
        asked, every, made = self.measuring.asked, self.releases, self.environments.made
        raced = next((read_run(Path(one.folder)) for one in found.readings.values()), None)
        first = next(iter(raced.rows), None) if raced else None
        unmade = {release: one.reason for release, one in made.items() if isinstance(one, Skipped)}
        shorter = f"{found.last_good},{found.first_bad}" if found.outcome is Outcome.NAMED else asked.wanted
        again = [shorter if word == asked.wanted else without_folders(word) for word in command_of(sys.argv[1:])]
        return Bisection(
            asked=asked,
            releases=every,
            found=replace(found, skipped={**unmade, **found.skipped}),
            environments={release: one for release in every if isinstance(one := made.get(release), Environment)},
            facts=raced.facts.environment if raced else {},
            threads=first.arm.threads if first else 0,
            inputs=_read_inputs(first.prepared.exported) if first and first.prepared else (),
            operators=_count_operators(Path(asked.model).expanduser()),
            pinned_cpus=len(first.played[0].cpus or ()) if first and first.played else 0,
            folder=str(self.measuring.out),
            again=quote(["shootout", *again]),
            go_on=self.go_on,
            took_s=self.before_s + self.measuring.deadline.elapsed_s,
        )

    def write(self, told: Bisection) -> str:
        """Write what is known into the folder; return the file of the text for an issue, "" if there is none."""
        issue = self.measuring.out / ISSUE
        is_worse = told.found.sign and told.is_later_more
        texts = {ISSUE: write_issue(told), PROGRAM: write_program(told)} if is_worse else {}
        for name in (ISSUE, PROGRAM):  # none of an earlier answer stays
            (self.measuring.out / name).unlink(missing_ok=True)
            if text := texts.get(name):
                (self.measuring.out / name).write_text(text, encoding="utf-8")
        text = str(issue) if issue.exists() else ""
        is_done = told.found.is_spent or told.found.outcome not in UNTOLD
        answer = {"answer": as_data(told, text), "screen": render_plain(write_screen(told, text, WIDEST))}
        self._keep(done=is_done, took_s=told.took_s, **answer)
        return text

    def _keep(self, **more: Any) -> None:
        """Write what the same command needs to go on."""
        made = {release: one for release, one in self.environments.made.items() if isinstance(one, Environment)}
        facts = {
            "asked": _as_kept(self.measuring.asked),
            "releases": self.releases,
            "pins": self.environments.pins,
            "go_on": self.go_on,
            "environments": {release: Path(one.python).parents[1].name for release, one in made.items()},
        }
        self.measuring.out.mkdir(parents=True, exist_ok=True)
        new = self.measuring.out / f"{FACTS}.new"
        new.write_text(json_text({**facts, "took_s": self.before_s, **more}), encoding="utf-8")
        new.replace(self.measuring.out / FACTS)  # whole at any moment


def _as_kept(asked: Asked) -> Any:
    """Return what is asked as the folder's file holds it."""
    return json.loads(json.dumps(asdict(asked), default=str))


def _recall(kept: Mapping[str, Any]) -> dict[str, Environment | Skipped]:
    """Return the environments that a search has made, as far as the cache still holds them."""
    found = (read_whole(cache_folder().parent / name) for name in kept.get("environments", {}).values())
    return {one[0].release: one[0] for one in found if one}


def _read_inputs(key: str) -> Sequence[TensorSpec]:
    """Return the inputs of an export; none if the cache has it no more."""
    try:
        return open_exported(cache_folder() / key, is_whole=False).inputs
    except (OSError, ValueError, KeyError, ShootoutError):
        return ()


def _count_operators(model: Path) -> dict[str, int]:
    """Count a graph's operators, the most frequent first; none of a model that is no ONNX file."""
    if model.suffix != ".onnx" or not model.is_file():
        return {}
    from shootout.models.sources.onnx_file import open_header

    return dict(Counter(node.op_type for node in open_header(str(model))[1].graph.node).most_common())


def _name_time(given_s: float | None) -> str:
    """Return the time that going on should have: as much as was given, but enough for an environment and a race."""
    if given_s is None:
        return ""
    time_s = max(round(given_s), LEAST_TIME_S)
    return f"{time_s}s" if time_s % 60 else f"{time_s // 60}m"


def without_folders(word: str) -> str:
    """Return a word of a command with its files named without their folders, which name users: `--inputs=x.npz`."""
    return "".join(part.rstrip("/").rpartition("/")[2] or part for part in re.split("([=:,])", word))


def _read_request(
    package: str, wanted: str, target: Target, options: BisectOptions, progress: ProgressDisplay
) -> Asked:
    """Return what is searched for.

    Raises:
        UsageError: something in it can't be used.
    """
    model, kind = options.get("model"), options.get("what", "time")
    if not model:
        raise UsageError("bisect needs a model: --model net.onnx, or another that `shootout run` takes")
    if kind not in QUANTITIES:
        raise unknown("quantity --for", kind, QUANTITIES)
    limit, chance = options.get("limit", LIMIT), options.get("chance", CHANCE)
    for name, share in (("limit", limit), ("chance", chance)):
        if not 0 < share < 1:
            raise UsageError(f"--{name} is a share between 0 and 100%, such as 5%: got {share:.0%}")
    run = {name: value for name, value in options.items() if name not in OWN}
    file, python = Path(model).expanduser(), options.get("python") or sys.executable
    return Asked(
        package=package,
        wanted=wanted,
        kind=kind,
        target=str(target),
        model=model,
        sha256=sha256(file) if file.is_file() else "",
        files=_check_files({**run, "model": model, "backends": [str(target)]}, progress),
        python=shutil.which(python) or python,
        limit=limit,
        chance=chance,
        run=run,
    )


def _check_files(options: Mapping[str, Any], progress: ProgressDisplay) -> list[str]:
    """Return the hashes of a run's files; a model or data that can't be raced is refused before anything is made.

    Raises:
        UsageError: it can't be used, or there are several sizes or numbers of threads.
    """
    plan = make_plan(selection.choose(DEFAULT, options), options["backends"], progress=progress)
    if len(plan.groups) != 1:
        names = ", ".join(group.record.name for group in plan.groups)
        raise UsageError(f"bisect follows one model of one size on one number of threads; these are {names}")
    return [digest for one in plan.here.facts.values() for digest in one.hashes]


def _choose_target(package: str, options: BisectOptions) -> Target:
    """Return the target that runs the model.

    Raises:
        UsageError: no target that the package runs is named, or several.
    """
    providers = [name for name in backends.names() if provides(name, package)]
    if not providers:
        raise UsageError(f"{package} isn't the package of a runtime here: onnxruntime and openvino are, for example")
    named = options.get("backends") or providers
    if any("@" in one for one in named):
        raise UsageError(f"--backends {','.join(named)}: leave @NAME out, since each release has its own interpreter")
    if len(named) != 1:
        raise UsageError(f"bisect follows one target, and these are {', '.join(named)}: name one with --backends")
    found = parse_targets(named[0], points.describe)
    if len(found) != 1 or found[0].backend not in providers:
        raise UsageError(f"--backends {named[0]} isn't one target that {package} runs: name {' or '.join(providers)}")
    return found[0]


def provides(backend: str, package: str) -> bool:
    """Return whether a package is a backend's own library, or of a third party's backend what its adapter needs."""
    row = backends.entry(backend)
    if row.package:
        return any(is_named(one, package) for one in (row.package, *row.makers))
    device, precision = row.default
    first = row.installed(Target(backend=backend, device=device, precision=precision))[:1]
    return any(is_named(one.partition("[")[0], package) for some in first for one in some.split("|"))


def _list_needs(package: str, target: Target) -> list[str]:
    """List what an environment needs beside the package."""
    row = backends.entry(target.backend)
    stand_in = [one for one in row.distributions(target) if provides(target.backend, one)]  # of which one is enough
    left_out = [package, *stand_in, *(() if target.precision in SCALED else QUANTIZERS)]
    needed = [one for one in packages_of(row) if not any(is_named(one, other) for other in left_out)]
    return [f"numpy>={'.'.join(map(str, OLDEST_NUMPY))}", *needed]


def _choose_out(asked: Asked, options: BisectOptions) -> tuple[Path, dict[str, Any]]:
    """Return the folder of a search and what it holds: the named one, or the newest that isn't done, or a new one.

    Raises:
        UsageError: the named folder holds another search.
    """
    parent, fresh = Path("results") / "bisect", options.get("fresh", False)
    if named := options.get("out"):
        kept = read_kept(Path(named))
        if not kept and Path(named).exists() and (not Path(named).is_dir() or any(Path(named).iterdir())):
            raise UsageError(
                f"{named} holds something else than a search of bisect: give another --out, or an empty one"
            )
        if kept and not fresh and kept["asked"] != _as_kept(asked):
            raise UsageError(f"{named} holds another search: give another --out, or start over with --fresh")
        return Path(named), {} if fresh else kept
    for file in [] if fresh else sorted(parent.glob(f"*/{FACTS}"), reverse=True):
        kept = read_kept(file.parent)
        if kept.get("asked") == _as_kept(asked) and not kept.get("done"):
            return file.parent, kept
    return new_folder(parent), {}
