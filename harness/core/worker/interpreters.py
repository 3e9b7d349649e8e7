"""Other Python interpreters that arms may run under (`--python new=path/to/python`), so that an upgrade is raced, not
remembered.

Such an interpreter needs NumPy and the backend's library. Our own package is lent to it through a private folder that
holds nothing else. The folder where the package is installed would bring all of our libraries along.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from shootout.core import backends
from shootout.core.errors import UsageError, tell_refusal
from shootout.core.host import environment, store
from shootout.core.host.placement import passed_on
from shootout.core.host.store import without_home
from shootout.core.install import pip_install

OLDEST_PYTHON = (3, 11)
OLDEST_NUMPY = (1, 26)
"""Arrays that cross the pipe are named by modules that older ones don't have."""
ASK_TIMEOUT_S = 60.0
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_PIP = pip_install()
_ASK = """
import json, sys
sys.path[:] = [place for place in sys.path if place]  # not the folder we happen to be in
found = {"version": list(sys.version_info[:3]), "folders": sys.path, "libraries": {}, "numpy": None}
if sys.version_info >= (3, 8):
    from importlib.metadata import PackageNotFoundError, version
    for name in sys.argv[1:]:
        try:
            found["libraries"][name] = version(name)
        except PackageNotFoundError:
            pass
    try:
        import numpy
        found["numpy"] = numpy.__version__
    except ImportError as error:
        found["why"] = str(error).strip().splitlines()[0]
sys.stdout.write(json.dumps(found))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonInterpreter:
    """A Python that arms may run under.

    Attributes:
        name: what the user calls it; targets show it as `@name`.
        path: of its executable, links kept (a virtual environment is a link with a folder of its own).
        version: of Python.
        libraries: versions of the installed packages that we can use, by name.
        lent: the folder that makes our package importable there.
        folders: where it looks for packages itself.
    """

    name: str
    path: str
    version: str
    libraries: Mapping[str, str]
    lent: str
    folders: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Hash all versions there, for the keys of what is built with it."""
        return hashlib.sha256(json.dumps([self.version, sorted(self.libraries.items())]).encode()).hexdigest()

    def environment(self, own: Mapping[str, str]) -> dict[str, str]:
        """Return `own`, changed so that this interpreter finds its own libraries and our package."""
        more = own.get("PYTHONPATH")
        changed = {**own, "PYTHONPATH": os.pathsep.join([self.lent, more] if more else [self.lent])}
        changed.pop("PYTHONHOME", None)
        return changed

    def install(self, packages: Sequence[str]) -> str:
        """Return the command that installs packages there."""
        return pip_install(*packages, pip=f"{self.path} -m pip")

    def install_backend(self, name: str, fix: str = "") -> str:
        """Return the command that installs a backend there.

        Args:
            fix: the command for our own interpreter; a requirement in it, such as `onnxruntime>=1.24`, is kept.
        """
        wanted = [word for word in shlex.split(fix) if "==" in word or ">=" in word] if fix.startswith(_PIP) else []
        named = {re.split(r"[\[<>=~!]", word)[0] for word in wanted}
        others = [package for package in packages_of(name) if package not in named]
        lines = (re.match(r"([A-Za-z0-9._-]+)[^;]*>=([0-9.]+)", line) for line in _requirements_of(name))
        oldest = {one[1]: one[2] for one in lines if one}
        old = {one for one in others if _is_older(self.libraries.get(one, ""), oldest.get(one, ""))}
        packages = [f"{one}>={oldest[one]}" if one in old else one for one in others]
        return self.install([*wanted, *(one for one in packages if not wanted or one not in self.libraries)])

    def facts(self) -> dict[str, Any]:
        """Return what the record says of it; the user's home is left out of the path."""
        return {"path": without_home(self.path), "python": self.version, "libraries": dict(self.libraries)}


def examine(paths: Mapping[str, str], wanted: Collection[str] = ()) -> dict[str, PythonInterpreter]:
    """Examine every interpreter: its version and its libraries.

    Args:
        wanted: the backends to run, as `backend@name`; a command that installs NumPy names their packages too.

    Raises:
        UsageError: one can't be used; says why and what to do.
    """
    asked = [one.partition("@") for one in sorted(wanted)]
    return {
        name: _examine_interpreter(name, path, [backend for backend, _, other in asked if other == name])
        for name, path in paths.items()
    }


def packages_of(backend: str) -> list[str]:
    """List what to install for a backend: the packages of its extra, without versions, which the user chooses."""
    row = backends.entry(backend)
    wanted = environment.required(_requirements_of(backend))
    return sorted(wanted) or [row.package or row.extra or "numpy"]


def _requirements_of(backend: str) -> list[str]:
    """Return the lines of a backend's extra."""
    name = backends.entry(backend).extra
    extra = re.compile(rf"extra\s*==\s*['\"]{re.escape(name)}['\"]")
    try:
        lines = metadata.requires("shootout") or ()
    except metadata.PackageNotFoundError:
        lines = ()
    return [line for line in lines if name and extra.search(line)]


def _is_older(version: str, oldest: str) -> bool:
    """Tell whether an installed version is older; not if one of the two isn't known."""
    here, least = (tuple(map(int, re.findall(r"\d+", text)[:2])) for text in (version, oldest))
    return bool(here and least) and here < least


def _examine_interpreter(name: str, path: str, wanted: Sequence[str] = ()) -> PythonInterpreter:
    if not _NAME.fullmatch(name):
        raise UsageError(f"--python: the name {name!r} may have letters, digits, - and _ only")
    executable = Path(path).expanduser().absolute()
    what = f"--python {name}={path}"
    if executable.is_dir():
        raise UsageError(f"{what} is a folder: name the interpreter in it, e.g. {Path(path) / 'bin' / 'python'}")
    answer = _ask_interpreter(what, executable)
    version = tuple(answer["version"])
    if version < OLDEST_PYTHON:
        raise UsageError(
            f"{what} is Python {_join_version(version)}; backends need {_join_version(OLDEST_PYTHON)} or later"
        )
    if answer["numpy"] is None:
        packages = sorted({"numpy", *(package for backend in wanted for package in packages_of(backend))})
        raise UsageError(f"{what} has no NumPy ({answer['why']}): {pip_install(*packages, pip=f'{executable} -m pip')}")
    if tuple(int(part) for part in re.findall(r"\d+", answer["numpy"])[:2]) < OLDEST_NUMPY:
        needs = _join_version(OLDEST_NUMPY)
        raise UsageError(
            f"{what} has NumPy {answer['numpy']}: {pip_install(f'numpy>={needs}', pip=f'{executable} -m pip')}"
        )
    return PythonInterpreter(
        name=name,
        path=str(executable),
        version=_join_version(version),
        libraries=answer["libraries"],
        lent=str(_lend_package()),
        folders=tuple(answer["folders"]),
    )


def _ask_interpreter(what: str, path: Path) -> dict[str, Any]:
    names = sorted(
        {"numpy", *environment.libraries(), *(package for name in backends.names() for package in packages_of(name))}
    )
    variables = {key: value for key, value in passed_on(os.environ).items() if key != "PYTHONHOME"}
    try:
        done = subprocess.run(  # noqa: S603 - the user named it to be run
            [str(path), "-c", _ASK, *names],
            capture_output=True,
            env=variables,
            timeout=ASK_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"{what} gave no answer within {ASK_TIMEOUT_S:.0f} s; name a Python interpreter") from None
    except OSError as error:
        raise UsageError(f"{what} can't be started: {tell_refusal(error, 'name a Python interpreter')}") from None
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
        answer["version"], answer["folders"], answer["libraries"], answer["numpy"]
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{what} doesn't answer as Python does; name a Python interpreter") from None
    return answer


def _lend_package() -> Path:
    """Make a folder with nothing but a link to this package; it lies in the cache, which is closed to other users."""
    source = Path(__file__).parents[2].absolute()
    folder = store.cache_folder() / "lent" / hashlib.sha256(str(source).encode()).hexdigest()[:16]
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (folder / "shootout").is_symlink():  # in a checkout its own folder has another name
            (folder / "shootout").symlink_to(source)
    except FileExistsError:
        pass  # another run was faster
    except OSError as error:
        raise store.unwritable(folder, error) from None
    return folder


def _join_version(version: Iterable[int]) -> str:
    return ".".join(map(str, version))
