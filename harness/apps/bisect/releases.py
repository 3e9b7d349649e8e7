"""List a package's releases, and make an environment for each: the same other packages in all, as far as pip allows.

pip does both, under the interpreter that the environments are made of. So its settings hold: the index, find-links,
constraints. If pip isn't installed, uv brings it. An environment lies in the cache under a key of all that is in it. A
file that is written last says that it is whole.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from shootout.apps.bisect.search import Skipped
from shootout.backends import KEY_DIGITS
from shootout.core.clock import Deadline, Stopwatch
from shootout.core.errors import UsageError, one_line
from shootout.core.host.child import QUIET
from shootout.core.host.folders import Scratch
from shootout.core.host.placement import passed_on
from shootout.core.host.store import cache_folder, mark_used, open_sealed, sealed
from shootout.core.units import size, span
from shootout.tell.cache_limit import ENVIRONMENT
from shootout.tell.report import clean_text

AT_ONCE = 3
LIST_S, INSTALL_S, IMPORT_S = 120.0, 1_800.0, 120.0
USUAL_BYTES = 300_000_000
"""An environment of ONNX Runtime or OpenVINO takes so much at most."""
STAMP = "environment.json"
WHEELS = ("--only-binary", ":all:")
"""Keep pip from source packages, dependencies too: it runs their code even to learn what they require."""
OLD_NUMPY = "numpy<2"
"""The requirement of a release that was compiled for NumPy 1, if its wheel doesn't say so."""
COMPILED_FOR_OLD, FOR_OLD = "compiled using NumPy 1.x", "it was compiled for NumPy 1"
"""The words of NumPy 2 when such a release is imported, and those that tell it."""
NO_ANSWER = "Retry(total=0"
"""In pip's words when the last of its tries at an index found no connection."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Describe an environment that holds one release.

    Attributes:
        python: the path of its interpreter.
        packages: the versions of all that is installed in it, by name.
        fault: why the release can't be imported there; "" if it can.
    """

    release: str
    python: str
    packages: Mapping[str, str]
    size_bytes: int
    fault: str = ""

    @property
    def name(self) -> str:
        """Return the name of its folder in the cache."""
        return Path(self.python).parents[1].name


def list_releases(package: str, wanted: str, python: str) -> tuple[list[str], list[str]]:
    """List the releases that are asked for, and all of the index: those with a wheel here, without pre-releases.

    Args:
        wanted: `1.20..1.24`, which ends with the last 1.24.x; `1.20..`; or releases with commas.
        python: the interpreter that the wheels are for.

    Returns:
        both lists, oldest first.

    Raises:
        UsageError: the words can't be read or name a pre-release, the index has no such package, or fewer than two
            such releases.
    """
    takes, named = read_wanted(wanted)
    versions, is_answered = _ask_index(package, python)
    listed = [release for release in sorted(map(Version, versions)) if not release.is_prerelease]
    found = [str(release) for release in listed if takes(release)]
    missing = [one for one in named if one not in listed]
    if (missing or len(found) < 2) and not is_answered:
        raise _tell_unreachable(package)
    if missing:
        near = next((one for one in listed if one > missing[0]), listed[-1])
        raise UsageError(
            f"the index has no wheel of {package} {missing[0]} for this Python and machine: name releases from "
            f"{listed[0]} to {listed[-1]}, such as {near}"
        )
    if len(found) < 2:
        raise UsageError(
            f"{wanted!r} holds {len(found) or 'none'} of the releases of {package} that have a wheel here, and a "
            f"search needs two: the index has {listed[0]} to {listed[-1]}"
        )
    return found, [*map(str, listed)]


def read_wanted(wanted: str) -> tuple[Callable[[Version], bool], list[Version]]:
    """Return what tells whether a release is asked for, and the releases that the index must have.

    Raises:
        UsageError: the words can't be read, name a pre-release, or begin with the newer release.
    """
    is_range = ".." in wanted
    try:
        ends = [Version(one) if one or not is_range else None for one in wanted.split(".." if is_range else ",")]
        first, last = ends if is_range else (None, None)
    except (InvalidVersion, ValueError):
        raise UsageError(
            f"can't read the releases {wanted!r}: give 1.20..1.24, 1.20.. or 1.20.1,1.22.0,1.23.2"
        ) from None
    named = [one for one in ends if one]
    if early := [one for one in named if one.is_prerelease]:
        raise UsageError(f"{early[0]} is a pre-release, and a search takes none: name final releases")
    if not is_range:
        return named.__contains__, named

    def takes(release: Version) -> bool:
        is_below = last is None or release <= last or release.release[: len(last.release)] == last.release
        return is_below and (first is None or release >= first)

    if first and last and not takes(first):
        raise UsageError(f"{wanted!r} begins with the newer release: write {last}..{first}")
    return takes, []


def _ask_index(package: str, python: str) -> tuple[list[str], bool]:
    """Return all releases with a wheel for an interpreter, as pip lists them, and whether each index answered.

    If an index doesn't answer, pip lists what others have, or what is installed.
    """
    ended = run_quietly([*find_pip(python), "index", "versions", *WHEELS, package], LIST_S, set())
    said = re.search(r"^Available versions: (.+)$", ended.stdout, re.MULTILINE)
    is_answered = NO_ANSWER not in ended.stderr
    if not said and is_answered:
        raise UsageError(f"pip finds no wheel of {package} for {python}: {last_error(ended)}")
    return said[1].split(", ") if said else [], is_answered


def _tell_unreachable(package: str) -> UsageError:
    works = f"`pip index versions {package}` works"
    return UsageError(f"the index of packages didn't answer: the same command goes on once {works}")


def find_pip(python: str) -> list[str]:
    """Return the command that runs pip for an interpreter, which needs no pip of its own.

    Raises:
        UsageError: neither pip nor uv is here.
    """
    if find_spec("pip"):
        return [sys.executable, "-m", "pip", "--python", python]
    if uv := shutil.which("uv"):
        return [uv, "tool", "run", "--quiet", "pip", "--python", python]
    raise UsageError(f"environments are made by pip or uv, and neither is here: {sys.executable} -m ensurepip")


class _Refused(Exception):
    """Report that pip can't install a release, or not with these versions of the others."""


@dataclass(slots=True)
class Environments:
    """Make environments of a package's releases, and keep them in the cache.

    The first one that is made decides the versions of all other packages, of those that all allow which are asked for
    together. A release that can't have some of them gets its own.

    Attributes:
        needs: requirements beside the package itself.
        python: the interpreter that they are made of.
        imports: the package's module, which is tried; "" if it isn't known.
        say: gets a line for each that is made.
        pins: versions of the other packages by name; empty before the first one.
        made: what became of each release so far.
        deadline: none is begun that would not be made before it, if it took as long as the slowest so far.
    """

    package: str
    needs: Sequence[str]
    python: str
    imports: str = ""
    say: Callable[[str], None] = lambda _: None
    pins: dict[str, str] = field(default_factory=dict)
    made: dict[str, Environment | Skipped] = field(default_factory=dict)
    deadline: Deadline = field(default_factory=lambda: Deadline(None))
    _slowest_s: float = 0.0
    _running: set[subprocess.Popen[str]] = field(default_factory=set)
    _stopped: bool = False

    def make(self, releases: Sequence[str]) -> Mapping[str, Environment | Skipped]:
        """Make the environments of releases that aren't there yet, side by side, as far as the time goes; return all.

        Raises:
            UsageError: the disk is full, or the index doesn't answer.
            KeyboardInterrupt: what is half made is made anew next time.
        """
        missing = [release for release in releases if release not in self.made]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                shared = [] if self.pins else _find_shared(pool.map(self._list_requirements, missing))
                while missing and not self.pins:  # the first one alone
                    pool.submit(self._keep, missing.pop(0), shared).result()
                list(pool.map(self._keep, missing))
            except BaseException:
                self._stopped = True
                pool.shutdown(wait=False, cancel_futures=True)
                for process in [*self._running]:
                    _kill(process)
                raise
        return self.made

    def _keep(self, release: str, shared: Sequence[str] = ()) -> None:
        if not self.deadline.allows(self._slowest_s):
            takes = f", and one takes about {span(self._slowest_s)}" if self._slowest_s else ""
            self.say(f"no environment of {release} yet: --max-time leaves {span(self.deadline.left_s)}{takes}")
            return
        with Stopwatch() as watch:
            try:
                found: Environment | Skipped = self._make_one(release, shared)
            except _Refused as error:
                found = Skipped(release, one_line(str(error)))
        self._slowest_s = max(self._slowest_s, watch.seconds)
        if self._stopped:  # what was killed is no fault of the release
            return
        self.made[release] = found
        if isinstance(found, Environment) and not self.pins:
            self.pins.update(without(self.package, found.packages))

    def _make_one(self, release: str, shared: Sequence[str]) -> Environment:
        """Make one with the versions of the others, or of NumPy alone, or with its own; `shared` makes the first."""
        held = [f"{name}=={version}" for name, version in self.pins.items()] or [*shared]
        numpy = [one for one in held if one.startswith("numpy==")]
        made = self._install(release, self._resolve(release, (held, numpy, [])))
        if made.fault == FOR_OLD:
            others = [one for one in held if one not in numpy]
            with suppress(_Refused):  # this Python may have no such NumPy: the first fault is the reason
                made = self._install(release, self._resolve(release, ([*others, OLD_NUMPY], [OLD_NUMPY])))
        if made.fault:
            raise _Refused(f"can't be imported: {made.fault}")
        return made

    def _resolve(self, release: str, tries: Iterable[Sequence[str]]) -> dict[str, tuple[str, str]]:
        """Return the version and the hash of all that is to be installed, by name; constraints: the strictest first."""
        with Scratch() as place:
            for constraints in tries:
                (place / "constraints.txt").write_text("\n".join(constraints), encoding="utf-8")
                installs, why = self._plan(release, *self.needs, "-c", str(place / "constraints.txt"))
                if installs:
                    break
            else:
                raise _Refused(f"can't be installed: {why}")
        if any(one["is_yanked"] for one in installs if is_named(one["metadata"]["name"], self.package)):
            raise _Refused("was withdrawn from the index")
        return {
            one["metadata"]["name"]: (one["metadata"]["version"], str(one["download_info"].get("archive_info")))
            for one in installs
        }

    def _plan(self, release: str, *more: str) -> tuple[list[dict[str, Any]], str]:
        """Return what pip would install for a release; nothing if it can't, and why."""
        dry = ["install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-", "--prefer-binary"]
        ended = self._run([*find_pip(self.python), *dry, *WHEELS, f"{self.package}=={release}", *more], INSTALL_S)
        return (json.loads(ended.stdout)["install"], "") if ended.returncode == 0 else ([], last_error(ended))

    def _list_requirements(self, release: str) -> list[Requirement]:
        """Return what a release itself requires; nothing if it isn't written as it should be."""
        planned, _ = self._plan(release, "--no-deps")
        try:
            every = [Requirement(line) for one in planned for line in one["metadata"].get("requires_dist", ())]
        except InvalidRequirement:
            return []
        return [each for each in every if each.marker is None or each.marker.evaluate({"extra": ""})]

    def _install(self, release: str, packages: Mapping[str, tuple[str, str]]) -> Environment:
        """Return an environment with these packages, from the cache if it holds one."""
        key = json.dumps([os.path.realpath(self.python), sorted(packages.items())])
        folder = cache_folder().parent / f"{ENVIRONMENT}{hashlib.sha256(key.encode()).hexdigest()[:KEY_DIGITS]}"
        with folder.with_name(f"{folder.name}.lock").open("a", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another bisect may make it
            if found := read_whole(folder):
                return found
            try:
                return self._fill(folder, release, {name: version for name, (version, _) in packages.items()})
            except BaseException as error:
                shutil.rmtree(folder, ignore_errors=True)
                if not (isinstance(error, OSError) and error.errno == errno.ENOSPC):
                    raise
        sizes = [made.size_bytes for made in self.made.values() if isinstance(made, Environment)]
        takes = size(max(sizes, default=USUAL_BYTES))
        raise UsageError(
            f"no room for an environment in {folder.parent}: each takes about {takes}, and pip as much in its "
            "temporary folder; make room, or set SHOOTOUT_CACHE"
        )

    def _fill(self, folder: Path, release: str, packages: Mapping[str, str]) -> Environment:
        """Make a folder the environment with these packages.

        It is kept if the package can be imported, or was compiled for NumPy 1. Another fault may be the machine's.
        """
        shutil.rmtree(folder, ignore_errors=True)  # of one that was killed
        with Stopwatch() as watch:
            python = str(folder / "bin" / "python")
            exact = [f"{name}=={version}" for name, version in packages.items()]
            how = ["install", "--quiet", "--no-deps", "--no-compile", "--ignore-installed", *WHEELS, *exact]
            for command in ([self.python, "-m", "venv", "--without-pip", str(folder)], [*find_pip(python), *how]):
                ended = self._run(command, INSTALL_S)
                if ended.returncode and (full := os.strerror(errno.ENOSPC)) in ended.stderr:
                    raise OSError(errno.ENOSPC, full)
                if ended.returncode:
                    raise _Refused(f"can't be installed: {last_error(ended)}")
            trial = [python, "-P", "-c", f"import {self.imports or 'sys'}"]
            kept = {"PYTHONDONTWRITEBYTECODE": ""}  # what it compiles: else each start would compile it again
            tried = self._run(trial, IMPORT_S, {**passed_on(os.environ), **QUIET, **kept})
        fault = FOR_OLD if COMPILED_FOR_OLD in tried.stderr else last_error(tried) if tried.returncode else ""
        made = Environment(release, python, packages, sum(file.lstat().st_size for file in folder.rglob("*")), fault)
        if fault not in ("", FOR_OLD):
            shutil.rmtree(folder, ignore_errors=True)
            return made
        (folder / STAMP).write_text(sealed(asdict(made)), encoding="utf-8")
        self.say(f"{self.package} {release}: an environment of {size(made.size_bytes)}, made in {span(watch.seconds)}")
        return made

    def _run(
        self, command: Sequence[str], limit_s: float, given: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        if self._stopped:
            raise _Refused("interrupted")
        ended = run_quietly(command, limit_s, self._running, given)
        if ended.returncode and NO_ANSWER in ended.stderr:  # which says nothing of the release
            raise _tell_unreachable(self.package)
        return ended


def _find_shared(every: Iterable[Iterable[Requirement]]) -> list[str]:
    """Return constraints that hold what all releases require of the others.

    A package that follows the releases isn't among them, or one of which no version suits all.
    """
    found = dict[str, SpecifierSet]()
    for one in (one for requirements in every for one in requirements):
        found[one.name] = found.get(one.name, SpecifierSet()) & one.specifier

    def suits(held: SpecifierSet) -> bool:
        named = {one.version for one in held}
        tried = ("0", *named, *(f"{version}.1" for version in named))
        return not any(one.operator == "==" for one in held) and any(map(held.contains, tried))

    return [f"{name}{held}" for name, held in found.items() if suits(held)]


def read_whole(folder: Path) -> Environment | None:
    """Return the environment that a folder of the cache holds; None if it was never whole."""
    try:
        found = Environment(**open_sealed(folder / STAMP))
    except (OSError, ValueError, TypeError):
        return None
    mark_used(folder)
    return found


def run_quietly(
    command: Sequence[str],
    limit_s: float,
    running: set[subprocess.Popen[str]],
    given: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; one that takes longer is killed.

    Args:
        running: holds the process meanwhile.
        given: its environment, apart from Python's search path; None gives it ours, with pip's settings.
    """
    ours = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"} if given is None else given
    process = subprocess.Popen(  # noqa: S603 - pip, and the interpreter that the user named
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={name: value for name, value in ours.items() if name not in ("PYTHONPATH", "PYTHONHOME")},
        encoding="utf-8",
        errors="replace",
        start_new_session=True,  # pip starts another one, which has to end with it
    )
    running.add(process)
    try:
        said, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        _kill(process)
        said, errors = process.communicate()
        errors += f"\ntook longer than {limit_s:.0f} s"
    finally:
        running.discard(process)
    return subprocess.CompletedProcess([*command], process.returncode, said, errors)


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def last_error(ended: subprocess.CompletedProcess[str]) -> str:
    """Return what a process said last of why it failed, without warnings and the folders of files."""
    lines = [line for line in ended.stderr.strip().splitlines() if line.strip() and not line.startswith("WARNING")]
    errors = [line for line in lines if line.startswith("ERROR: ")] or lines
    return drop_folders(errors[-1].removeprefix("ERROR: ")) if errors else f"it ended with {ended.returncode}"


def drop_folders(text: str) -> str:
    """Return a text with files named without their folders: it goes into a public issue, and folders name users."""
    for place in {cache_folder().parent, Path.home()} - {Path("/")}:  # these names may have spaces
        text = text.replace(f"{place}/", "~/")
    return clean_text(text.replace("file://", ""))


def without(package: str, packages: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of the other packages."""
    return {name: version for name, version in packages.items() if not is_named(name, package)}


def is_named(name: str, package: str) -> bool:
    """Tell whether two names are one package's."""
    return canonicalize_name(name) == canonicalize_name(package)


def find_differences(package: str, made: Iterable[Environment]) -> dict[str, dict[str, str]]:
    """Return the other packages that aren't the same everywhere: their version by release, "" if it isn't there."""
    every = {one.release: without(package, one.packages) for one in made}
    names = sorted({name for held in every.values() for name in held})
    found = {name: {release: held.get(name, "") for release, held in every.items()} for name in names}
    return {name: versions for name, versions in found.items() if len(set(versions.values())) > 1}
