"""`shootout bisect`: read the options, plan the races of a search over a package's releases, measure them, print."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from shootout.apps.bisect.bisection import PROCESS_S, Asked, Bisection, choose_folder
from shootout.apps.bisect.issue import keep_answer, name_files
from shootout.apps.bisect.racing import QuestionPurpose, name_python
from shootout.apps.bisect.releases import Environments, is_named, list_releases, read_wanted
from shootout.apps.bisect.screen import QUANTITIES, write_screen
from shootout.apps.bisect.search import CHANCE, LIMIT, MOST_RESTARTS, UNTOLD, Outcome, Question
from shootout.backends import QUANTIZERS
from shootout.backends.pythons import OLDEST_NUMPY, packages_of
from shootout.commands import selection
from shootout.commands.output import print_answer, show_progress, width
from shootout.commands.run import command_of, measure
from shootout.core import backends
from shootout.core.clock import Deadline
from shootout.core.contract import SCALED, Target
from shootout.core.errors import ExitCode, Interrupted, UsageError, unknown
from shootout.core.exported.model import sha256
from shootout.core.study import points
from shootout.core.study.plan import make_plan
from shootout.core.study.target import parse_targets
from shootout.core.units import span
from shootout.tell.cache_limit import in_use
from shootout.tell.progress import ProgressDisplay
from shootout.tell.reproduce import limit_words, quote
from shootout.tell.study_options import DEFAULT, BisectOptions

LEAST_TIME_S = 120
"""An environment takes up to 60 s, and so does a race."""
ANY_ERROR = 1e6
"""Outputs that err by less stay in the race, so that their error is known in each restart."""
OLDEST = ".".join(map(str, OLDEST_NUMPY))
OWN = ("model", "what", "limit", "chance", "backends", "python", "max_time_s", "out", "fresh")
"""Options that aren't those of a run."""


def bisect(package: str, wanted: str, options: BisectOptions, *, as_json: bool) -> int:
    """Search and print; return the exit code.

    Raises:
        UsageError: something in the request is wrong; nothing is made then.
        NothingMeasured: fewer than two releases can be measured.
    """
    begun: Bisection | None = None
    try:
        with show_progress() as progress, in_use():
            one = begun = read_search(package, wanted, options, progress)
            ends = f"{one.releases[0]} to {one.releases[-1]}"
            progress.say(f"{package} {ends}: {len(one.releases)} releases; the search's folder is {one.folder}")
            one.find()
        code = ExitCode.UNDECIDED if one.found.outcome in UNTOLD else ExitCode.OK
        answer = _write_answer(one, options)
    except (Interrupted, KeyboardInterrupt):
        if begun is None:
            raise
        one, code = begun, ExitCode.INTERRUPTED
        one.before_s, one.deadline = one.took_s, Deadline(0.0)
        one.find()  # what is known is read
        same = f"; the same command{' without --fresh' if options.get('fresh') else ''} goes on"
        one.progress.say(f"shootout: interrupted{'' if one.is_done else same}")
        answer = _write_answer(one, options)
    print_answer(write_screen(one, answer["issue"], width()), answer, as_json=as_json)
    return code


def read_search(package: str, wanted: str, options: BisectOptions, progress: ProgressDisplay) -> Bisection:
    """Read the request, and what is known of it; write it into the search's folder.

    Raises:
        UsageError: something in the request is wrong.
    """
    read_wanted(wanted)
    limit_s, least_s = options.get("max_time_s"), 3 * PROCESS_S  # for a race of two releases and a copy
    if limit_s is not None and limit_s < least_s:
        raise UsageError(f"--max-time {limit_s:g}s is too short for a race of about {span(least_s)}: give 2m, or 5m")
    deadline, target = Deadline(limit_s), _choose_target(package, options)
    asked = _read_request(package, wanted, target, options, progress)
    folder, kept = choose_folder(asked, options.get("out"), fresh=options.get("fresh", False))
    releases, index = kept.get("releases"), kept.get("index", [])
    if not releases:
        progress.stage(f"asking the index for the releases of {package}")
        releases, index = list_releases(package, wanted, asked.python)
    if is_named(package, "numpy") and Version(releases[0]) < Version(OLDEST):
        raise UsageError(f"numpy {releases[0]} is too old for any run: name releases from {OLDEST} on, as {OLDEST}..")
    loads, needs = backends.entry(target.backend).loads, _list_needs(package, target)
    module = loads[""][0] if loads else ""
    one = Bisection(
        asked=asked,
        folder=folder,
        releases=releases,
        index=index,
        environments=Environments(package, needs, asked.python, module, say=progress.say, deadline=deadline),
        race=partial(race, asked, progress),
        progress=progress,
        deadline=deadline,
        go_on=_write_command([*command_of(sys.argv[1:]), "--out", str(folder)], deadline.seconds),
        operators=_count_operators(Path(asked.model).expanduser()),
    )
    one.begin(kept)
    return one


def race(
    asked: Asked, progress: ProgressDisplay, question: Question, pythons: Mapping[str, str], out: Path, limit: Deadline
) -> None:
    """Race a question's releases into a run folder until it is told, or until a deadline.

    Args:
        pythons: the interpreter that has each release.

    Raises:
        Interrupted: what was measured is on disk.
        UsageError: an option, or the model, can't be used.
    """
    backend, *rest = asked.target.split(":")
    named = {name_python(release): python for release, python in pythons.items()}
    targets = [":".join([f"{backend}@{name}", *rest]) for name in named]
    bound = {"max_error": ANY_ERROR} if asked.kind == "outputs" else {}
    own = {"model": asked.model, "backends": targets, "pythons": named}
    study = selection.choose(DEFAULT, {**asked.run, **own, **bound})
    more = {"name": "bisect", "goal": "baseline", "ceilings": False, "max_restarts": MOST_RESTARTS}
    plan = make_plan(study.model_copy(update=more), targets, progress=progress)
    measure(plan, out, fresh=False, limit=limit, progress=progress, purpose=QuestionPurpose(question))


def _write_answer(one: Bisection, options: BisectOptions) -> dict[str, Any]:
    """Write the answer, with the commands that make it again and go on, into the search's folder; return it."""
    one.again = quote(["shootout", *map(name_files, _name_two(one, ","))])
    if one.unasked:
        one.go_on = _write_command(_name_two(one, ".."), options.get("max_time_s"))
    return keep_answer(one)


def _name_two(one: Bisection, mark: str) -> list[str]:
    """Return the command's words; if a release is named, it and its neighbor are the releases, with a mark between."""
    found, wanted = one.found, one.asked.wanted
    two = f"{found.last_good}{mark}{found.first_bad}" if found.outcome is Outcome.NAMED else wanted
    return [two if word == wanted else word for word in command_of(sys.argv[1:])]


def _write_command(words: Sequence[str], given_s: float | None) -> str:
    """Write the command to give next, with as much time as was given, but enough for an environment and a race."""
    time_s = max(round(given_s or 0), LEAST_TIME_S)
    time = f"{time_s}s" if time_s % 60 else f"{time_s // 60}m"
    return quote(["shootout", *words, *limit_words(time if given_s else "")])


def _read_request(
    package: str, wanted: str, target: Target, options: BisectOptions, progress: ProgressDisplay
) -> Asked:
    """Return what is searched for; a model or data that can't be raced is refused before anything is made."""
    model, kind = options.get("model"), options.get("what", "time")
    if not model:
        raise UsageError("bisect needs a model: --model net.onnx, or another that `shootout run` takes")
    if kind not in QUANTITIES:
        raise unknown("quantity --for", kind, QUANTITIES)
    if not (python := shutil.which(named := options.get("python") or sys.executable)):
        raise UsageError(f"--python {named} is no program; name a Python interpreter")
    run = {name: value for name, value in options.items() if name not in OWN}
    study = selection.choose(DEFAULT, {**run, "model": model, "backends": [str(target)]})
    plan = make_plan(study, [str(target)], progress=progress)
    if len(plan.groups) != 1:
        names = ", ".join(group.record.name for group in plan.groups)
        raise UsageError(f"bisect follows one model of one size on one number of threads; these are {names}")
    file = Path(model).expanduser()
    return Asked(
        package=package,
        wanted=wanted,
        kind=kind,
        target=str(target),
        model=model,
        sha256=sha256(file) if file.is_file() else "",
        files=[digest for one in plan.here.facts.values() for digest in one.hashes],
        python=python,
        limit=options.get("limit", LIMIT),
        chance=options.get("chance", CHANCE),
        run=run,
    )


def _count_operators(model: Path) -> dict[str, int]:
    """Count a graph's operators, the most frequent first; none of a model that is no ONNX file."""
    if model.suffix != ".onnx" or not model.is_file():
        return {}
    from shootout.models.sources.onnx_file import open_header

    return dict(Counter(node.op_type for node in open_header(str(model))[1].graph.node).most_common())


def _choose_target(package: str, options: BisectOptions) -> Target:
    """Return the one target that runs the model; refuse several, and one that the package doesn't run."""
    providers = [name for name in backends.names() if any(is_named(one, package) for one in _list_libraries(name))]
    if not providers:
        raise UsageError(f"{package} isn't one package of a runtime here, such as onnxruntime or openvino")
    named = options.get("backends") or providers
    if any("@" in one for one in named):
        raise UsageError(f"--backends {','.join(named)}: leave @NAME out, since each release has its own interpreter")
    if len(named) != 1:
        raise UsageError(f"bisect follows one target, and these are {', '.join(named)}: name one with --backends")
    found = parse_targets(named[0], points.describe)
    if len(found) != 1 or found[0].backend not in providers:
        raise UsageError(f"--backends {named[0]} isn't one target that {package} runs: name {' or '.join(providers)}")
    return found[0]


def _list_libraries(backend: str) -> list[str]:
    """List the packages of which one is a backend's library; of a third party's, also what its adapter needs."""
    row = backends.entry(backend)
    if row.package:
        return [row.package, *row.makers]
    device, precision = row.default
    first = row.installed(Target(backend=backend, device=device, precision=precision))[:1]
    return [one.partition("[")[0] for some in first for one in some.split("|")]


def _list_needs(package: str, target: Target) -> list[str]:
    """List what an environment needs beside the package, which is the library."""
    quantizers = () if target.precision in SCALED else QUANTIZERS
    left_out = {*map(canonicalize_name, (package, *_list_libraries(target.backend), *quantizers))}
    needed = packages_of(backends.entry(target.backend))
    return [f"numpy>={OLDEST}", *(one for one in needed if canonicalize_name(one) not in left_out)]
