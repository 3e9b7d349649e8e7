"""Hold a search over releases: what is asked, what its folder keeps, the races that it needs, and what they found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from shootout.apps.bisect.racing import read_bound, read_files, read_race
from shootout.apps.bisect.releases import Environment, Environments, read_whole
from shootout.apps.bisect.search import CHANCE, LIMIT, UNTOLD, Found, Outcome, Question, Raced, Skipped, search
from shootout.core.clock import Deadline
from shootout.core.contract import TensorSpec
from shootout.core.errors import ShootoutError, UsageError, tell_refusal
from shootout.core.exported.model import open_exported
from shootout.core.host.store import cache_folder
from shootout.core.results.run import begun, read_run
from shootout.core.units import span
from shootout.tell.formats import json_text
from shootout.tell.progress import ProgressDisplay
from shootout.tell.run_folder import new_folder

FACTS = "bisect.json"
"""In a search's folder: what it is of, and what is known so far."""
PROCESS_S = 4.0
"""Two restarts of the first race take about so long for each process, its export and builds included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Say what is searched for; a search goes on in its folder if all of it is the same.

    Attributes:
        wanted: the words that name releases.
        kind: the word of `--for`.
        target: as users write it, without an interpreter: `onnxruntime:cpu:fp32`.
        model: as users write it.
        sha256: of the model's file; "" if it has none.
        files: hashes of all files of the user's, data included.
        python: the interpreter that the environments are made of.
        run: options of `run` beside the model, the targets, the interpreters and the folder.
    """

    package: str
    wanted: str = ""
    kind: str = "time"
    target: str
    model: str
    sha256: str = ""
    files: Sequence[str] = ()
    python: str = ""
    limit: float = LIMIT
    chance: float = CHANCE
    run: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the name of the model's file, or the zoo's."""
        return Path(self.model).expanduser().name

    @property
    def has_ratios(self) -> bool:
        """Return whether releases are told by ratios; outputs are right or wrong."""
        return self.kind != "outputs"

    def as_kept(self) -> Any:
        """Return this as the folder's file holds it."""
        return json.loads(json.dumps(asdict(self), default=str))


@dataclass(slots=True, kw_only=True)
class Bisection:
    """Hold a search, which goes on from what its folder and the cache hold.

    Attributes:
        folder: gets a run folder for each question.
        releases: all that were asked for.
        index: all final releases that the package's index has for the interpreter.
        race: races a question's releases, each by its interpreter, into a run folder until it is told or time is over.
        deadline: when all of it ends.
        found: with the releases among those skipped that couldn't be installed.
        again: the command that makes it again; `go_on` goes on with it.
        before_s: seconds of earlier attempts.
        facts: the environment of the runs; empty if there is none.
        bound: relative error up to which outputs are right; 0 if it isn't known.
        threads, pinned_cpus: of each process.
        inputs: of the model, as it was measured.
        operators: of its graph, and how often each is there; empty if it has no ONNX file.
    """

    asked: Asked
    folder: Path
    releases: Sequence[str]
    index: Sequence[str] = ()
    environments: Environments
    race: Callable[[Question, Mapping[str, str], Path, Deadline], None]
    progress: ProgressDisplay
    deadline: Deadline
    found: Found = field(default_factory=Found)
    again: str = ""
    go_on: str = ""
    before_s: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)
    bound: float = 0.0
    threads: int = 0
    pinned_cpus: int = 0
    inputs: Sequence[TensorSpec] = ()
    operators: Mapping[str, int] = field(default_factory=dict)
    _races_s: list[float] = field(default_factory=list)

    @property
    def took_s(self) -> float:
        """Return the seconds of all attempts so far."""
        return self.before_s + self.deadline.elapsed_s

    @property
    def is_done(self) -> bool:
        """Return whether more time would tell nothing more."""
        return self.found.is_spent or self.found.outcome not in UNTOLD

    @property
    def unasked(self) -> list[str]:
        """Return the releases between a named one and its neighbor that weren't asked for: any may be at fault."""
        two = self.found.last_good, self.found.first_bad
        if self.found.outcome is not Outcome.NAMED or not {*two} <= {*self.index}:
            return []
        first, last = map(self.index.index, two)
        return [release for release in self.index[first + 1 : last] if release not in self.releases]

    @property
    def made(self) -> dict[str, Environment]:
        """Return the environments that were made, by release."""
        made = self.environments.made
        return {at: one for at in self.releases if isinstance(one := made.get(at), Environment)}

    @property
    def ends(self) -> tuple[str, str]:
        """Return the first and the last release that raced; if none did, of those that were asked for."""
        raced = [*self.found.readings] or [self.releases[0], self.releases[-1]]
        return raced[0], raced[1]

    @property
    def is_later_more(self) -> bool:
        """Return whether the later releases' figures are the larger ones."""
        two = self.found.first_bad, self.found.last_good
        return self.found.sign > 0 if self.asked.has_ratios else self.figure(two[0]) >= self.figure(two[1])

    def figure(self, release: str) -> float:
        """Return the figure of a release that was measured, or else 0.

        Each ratio is of a race of its own, and the machine drifts between races. So that figures and ratios agree, a
        figure is the first release's × the ratio, except for outputs, whose errors are the same in all races.
        """
        reading, first = (self.found.readings.get(one) for one in (release, self.ends[0]))
        if self.asked.has_ratios and reading and first and first.figure:
            return first.figure * reading.ratio.value
        return (reading.figure if reading else None) or 0.0

    def find(self) -> Found:
        """Search as far as the time goes, and return what was found; what the folder holds is read or goes on.

        Raises:
            NothingMeasured: fewer than two releases can be measured.
            Interrupted, KeyboardInterrupt: what was measured, and the environments, are kept.
            UsageError: an option, or the model, can't be used.
        """
        asked, made, every = self.asked, self.environments.made, self.releases
        if not made and self.deadline.left_s > 0:  # side by side: the ends and, if the time isn't limited, the middle
            self._make([every[0], *([] if self.deadline.seconds else [every[len(every) // 2]]), every[-1]])
        self.found = search(every, self._ask, kind=asked.kind, chance=asked.chance, limit=asked.limit)
        unmade = {release: one.reason for release, one in made.items() if isinstance(one, Skipped)}
        self.found.skipped = {**unmade, **self.found.skipped}
        if raced := next((read_run(Path(one.folder)) for one in self.found.readings.values()), None):
            first, self.facts, self.bound = raced.rows[0], raced.facts.environment, read_bound(raced)
            self.threads = first.arm.threads
            self.pinned_cpus = len(first.played[0].cpus or ()) if first.played else 0
            export = first.prepared.exported if first.prepared else ""
            with suppress(OSError, ValueError, KeyError, ShootoutError):  # the cache may have it no more
                self.inputs = open_exported(cache_folder() / export, is_whole=False).inputs
        return self.found

    def _ask(self, question: Question) -> Raced | Skipped:
        """Return what a question's run folder shows, raced now unless it tells already or time is over."""
        out = self.folder / ("-".join(question.suspects) or f"{question.good}-{question.bad}")
        known = read_race(question, read_run(out)) if begun(out) else Raced()
        is_over = known.is_over if isinstance(known, Raced) else not question.has_run(known.release)
        if is_over or not self._has_time(question):
            return known
        if isinstance(known, Skipped):
            shutil.rmtree(out)  # the run itself would try it no more
            known = Raced()
        found = self._race(question, out, known)
        if isinstance(found, Skipped) and not question.has_run(found.release):
            self.progress.say(f"{found.release} is skipped: {found.reason}")
        return found

    def _race(self, question: Question, out: Path, known: Raced) -> Raced | Skipped:
        """Race a question's releases into a run folder, of which so much is known, until it is told or time is over."""
        made = self._make(question.releases)
        if gone := next((one for one in made if isinstance(one, Skipped)), None):
            return gone
        pythons = {one.release: one.python for one in made if isinstance(one, Environment)}
        if len(pythons) < len(question.releases) or not self._has_time(question):
            return known
        if question.kind in ("ready", "memory"):
            read_files(pythons.values())
        self.progress.say(f"racing {question.subject} of {question.good} to {question.bad}")
        part = self.deadline.part()
        self.race(question, pythons, out, part)
        self.deadline.put_off(part.waited_s)
        self.keep()
        raced = read_race(question, read_run(out))
        if isinstance(raced, Raced) and (restarts := raced.restarts - known.restarts) > 0:
            self._races_s.append(2 * part.elapsed_s / restarts / (len(pythons) + 1))
        return raced

    def _has_time(self, question: Question) -> bool:
        """Return whether there is time for two restarts of a race, which tell nothing if they are fewer."""
        left_s, takes_s = self.deadline.left_s, (len(question.releases) + 1) * max(self._races_s, default=PROCESS_S)
        if 0 < left_s < takes_s:
            why = f"--max-time leaves {span(left_s)}, and two restarts take about {span(takes_s)}"
            self.progress.say(f"no race of {question.subject} yet: {why}")
        return left_s >= takes_s

    def _make(self, releases: Sequence[str]) -> list[Environment | Skipped]:
        """Return the environments of releases, made now if they aren't there, as far as the time goes."""
        if missing := [release for release in dict.fromkeys(releases) if release not in self.environments.made]:
            self.progress.stage(f"making environments: {', '.join(missing)}")
            self.environments.make(missing)
        self.keep()
        return [self.environments.made[release] for release in releases if release in self.environments.made]

    def begin(self, kept: Mapping[str, Any]) -> None:
        """Take up what the folder keeps and the cache still holds, or remove an earlier search's races from it.

        Raises:
            UsageError: the folder can't be written.
        """
        found = (read_whole(cache_folder().parent / name) for name in kept.get("environments", {}).values())
        self.environments.made |= {one.release: one for one in found if one}
        self.environments.pins |= kept.get("pins", {})
        self.before_s = kept.get("took_s", 0.0)
        try:
            for race in [] if kept else [one for one in self.folder.glob("*/") if begun(one)]:
                shutil.rmtree(race)
            self.keep()
        except OSError as error:
            why = tell_refusal(error, "choose another --out")
            raise UsageError(f"can't write into {str(self.folder)!r}: {why}") from None

    def keep(self, **more: Any) -> None:
        """Write into the folder what the same command needs to go on, whole at any moment.

        Raises:
            OSError: the folder can't be written.
        """
        facts = {
            "asked": self.asked.as_kept(),
            "releases": self.releases,
            "index": self.index,
            "pins": self.environments.pins,
            "go_on": self.go_on,
            "environments": {at: one.name for at, one in self.made.items()},
            "took_s": self.took_s,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        new = self.folder / f"{FACTS}.new"
        new.write_text(json_text({**facts, **more}), encoding="utf-8")
        new.replace(self.folder / FACTS)


def read_kept(folder: Path) -> dict[str, Any]:
    """Return what an earlier command kept in a search's folder; nothing of another folder."""
    try:
        kept = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        return kept if {"asked", "releases", "pins", "environments", "go_on"} <= {*kept} else {}
    except (OSError, ValueError, TypeError):
        return {}


def choose_folder(asked: Asked, named: str | PathLike[str] | None, *, fresh: bool) -> tuple[Path, dict[str, Any]]:
    """Return the folder of a search and what it holds: the named one, or the newest that isn't done, or a new one.

    Args:
        fresh: nothing that it holds counts.

    Raises:
        UsageError: the named folder holds something else.
    """
    parent, folder = Path("results") / "bisect", Path(named or "")
    if named:
        kept = read_kept(folder)
        if not kept and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(
                f"{named} holds something else than a search of bisect: give another --out, or an empty one"
            )
        if kept and not fresh and kept["asked"] != asked.as_kept():
            raise UsageError(f"{named} holds another search: give another --out, or start over with --fresh")
        return folder, {} if fresh else kept
    for file in [] if fresh else sorted(parent.glob(f"*/{FACTS}"), reverse=True):
        kept = read_kept(file.parent)
        if kept.get("asked") == asked.as_kept() and not kept.get("done"):
            return file.parent, kept
    return new_folder(parent), {}
