"""Ask another Python interpreter what it has, tell what installs a backend there, and lend it our own package.

Such an interpreter (`--python new=path/to/python`) needs NumPy and the backend's library. Our own package is lent to it
through a private folder that holds nothing else. The folder where the package is installed would bring all of our
libraries along.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
from collections.abc import Collection, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from shootout.core.adapter import Entry
from shootout.core.errors import UsageError, tell_refusal
from shootout.core.host import environment, store
from shootout.core.install import pip_install
from shootout.core.worker.availability import PythonInterpreter

OLDEST_PYTHON = (3, 11)
OLDEST_NUMPY = (1, 26)
"""Arrays that cross the pipe are named by modules that older ones don't have."""
ASK_TIMEOUT_S = 60.0
_NAME = re.compile(r"[A-Za-z0-9_-]+")
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


def examine_python(
    name: str, path: str, *, needs: Iterable[Entry], known: Iterable[Entry], variables: Mapping[str, str]
) -> PythonInterpreter:
    """Examine an interpreter: its version and its libraries.

    Args:
        needs: the backends to run there: a command that installs NumPy names their packages too.
        known: those whose packages are looked for.
        variables: its environment.

    Raises:
        UsageError: it can't be used; says why and what to do.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"--python: the name {name!r} may have letters, digits, - and _ only")
    executable = Path(path).expanduser().absolute()
    what = f"--python {name}={path}"
    if executable.is_dir():
        raise UsageError(f"{what} is a folder: name the interpreter in it, e.g. {Path(path) / 'bin' / 'python'}")
    libraries = {"numpy", *environment.libraries(), *(package for row in known for package in packages_of(row))}
    answer = _ask_interpreter(what, executable, libraries, variables)
    version = tuple(answer["version"])
    if version < OLDEST_PYTHON:
        raise UsageError(
            f"{what} is Python {_join_version(version)}; backends need {_join_version(OLDEST_PYTHON)} or later"
        )
    if answer["numpy"] is None:
        packages = {"numpy", *(package for row in needs for package in packages_of(row))}
        install = pip_install(*sorted(packages), pip=f"{executable} -m pip")
        raise UsageError(f"{what} has no NumPy ({answer['why']}): {install}")
    if tuple(int(part) for part in re.findall(r"\d+", answer["numpy"])[:2]) < OLDEST_NUMPY:
        oldest = _join_version(OLDEST_NUMPY)
        raise UsageError(
            f"{what} has NumPy {answer['numpy']}: {pip_install(f'numpy>={oldest}', pip=f'{executable} -m pip')}"
        )
    return PythonInterpreter(
        name=name,
        path=str(executable),
        version=_join_version(version),
        libraries=answer["libraries"],
        lent=str(_lend_package()),
        folders=tuple(answer["folders"]),
    )


def install_backend(interpreter: PythonInterpreter, row: Entry, fix: str = "") -> str:
    """Return the command that installs a backend there.

    Args:
        fix: the command for our own interpreter; a requirement in it, such as `onnxruntime>=1.24`, is kept.
    """
    is_command, there = fix.startswith(pip_install()), interpreter.libraries
    wanted = [word for word in shlex.split(fix) if "==" in word or ">=" in word] if is_command else []
    named = {re.split(r"[\[<>=~!]", word)[0] for word in wanted}
    others = [one for one in packages_of(row) if one not in named and not (wanted and one in there)]
    return interpreter.install([*wanted, *others])


def packages_of(row: Entry) -> list[str]:
    """List what to install for a backend, without versions, which the user chooses: of its extra, or its own."""
    extra = re.compile(rf"extra\s*==\s*['\"]{re.escape(row.extra)}['\"]")
    try:
        lines = metadata.requires("shootout") or ()
    except metadata.PackageNotFoundError:
        lines = ()
    own = [line for line in lines if row.extra and extra.search(line)]
    alone = [row.package or row.extra] if row.package or row.extra else [*(row.installs.get("") or ()), *row.makers]
    return sorted(environment.required(own)) or alone or ["numpy"]


def _ask_interpreter(what: str, path: Path, libraries: Collection[str], variables: Mapping[str, str]) -> dict[str, Any]:
    own = {key: value for key, value in variables.items() if key != "PYTHONHOME"}
    try:
        done = subprocess.run(  # noqa: S603 - the user named it to be run
            [str(path), "-c", _ASK, *sorted(libraries)],
            capture_output=True,
            env=own,
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
    source = Path(__file__).parents[1].absolute()
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
