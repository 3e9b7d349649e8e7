"""Find a user's own function and its parameters by reading its source; import and call it where it may be run.

The main process never runs a user's code: it may import torch, be slow, or crash. `find_function` and `call` are for
processes of their own alone.

If its source changes, a model counts as another one. `FactorySource.digest` hashes the factory's file and the .py files
of its folder and of those inside, imported or not. What a factory reads there isn't hashed, so an export's key also
holds the folder's place.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import itertools
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from shootout.core.constants import BATCH
from shootout.core.contract import Value
from shootout.core.errors import UsageError, shorten, tell_refusal, unknown
from shootout.core.exported.model import sha256

SUFFIX = ".py"
MOST_ENTRIES = 10_000
"""Look for .py files among so many files and folders below the top: whole levels, as many as hold fewer.

Whole ones, since the files that a run itself writes there must not move the end somewhere in between.
"""
MOST_IN_FOLDER = 1_000
"""A folder below the top with more entries holds data, and no source."""
FOREIGN = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})
"""Folders whose files aren't the user's own source."""
_DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorySource:
    """Hold a factory's place.

    Attributes:
        file: the file that defines it.
        module: its dotted name in a package, "" for a file on its own.
        root: the folder that its imports start from.
        tree: the folder whose .py files are its source: a change of one of those makes another model.
    """

    file: Path
    module: str
    root: Path
    tree: Path
    function: str

    @property
    def name(self) -> str:
        """Return the place for any process."""
        return f"{self.file}:{self.function}"

    @property
    def short(self) -> str:
        """Return the name for people."""
        return f"{self.file.name}:{self.function}"

    def digest(self) -> str:
        """Hash of the .py files in its tree; what is read at run time isn't in it.

        Files that can't be read, and those with a dot in front, aren't the user's source.

        Raises:
            UsageError: the file itself can't be read.
        """
        found = [os.path.relpath(path, self.tree).encode() + b"\0" + text for path, text in self.files().items()]
        return hashlib.sha256(b"\0".join(found)).hexdigest()

    def holds(self, path: Path) -> bool:
        """Return whether a file is the user's own: in the tree, and in no environment or cache inside it."""
        if path == self.file:
            return True
        inside = path.relative_to(self.tree).parts if path.is_relative_to(self.tree) else (".",)
        return not any(map(_is_foreign, inside))

    def files(self) -> dict[Path, bytes]:
        """Return its file and the .py files of its tree that can be read, with their bytes; see MOST_ENTRIES.

        Raises:
            UsageError: the file itself can't be read.
        """
        texts = {self.file: read(self.file)}
        for file in _list_tree(self.tree):
            with suppress(UsageError):  # another user's, or gone by now
                texts[file] = texts.get(file) or read(file)
        return texts


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorySignature:
    """Hold a factory's parameters with their defaults, and whether it takes the batch size."""

    defaults: Mapping[str, Value]
    takes_batch: bool


def is_meant(model: str) -> bool:
    """Return whether `model` is meant as a user's factory rather than a registered name."""
    return ":" in model or model.endswith(SUFFIX)


def find(model: str) -> FactorySource:
    """Find `file.py:function` (the function may be missing).

    A file of a package, whose folder has an `__init__.py`, is imported as its module.

    Raises:
        UsageError: there is no such file.
    """
    where, _, function = (model, "", "") if model.endswith(SUFFIX) else model.rpartition(":")
    if not where.endswith(SUFFIX):
        raise UsageError(f"{model!r} names no function of a file: give file.py:function")
    file = Path(where).expanduser().absolute()
    if not file.is_file():
        raise UsageError(f"can't find the file {where!r}: looked for {file}")
    root = file.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    inside = file.relative_to(root).with_suffix("").parts
    module, tree = (".".join(inside), root / inside[0]) if len(inside) > 1 else ("", root)
    return FactorySource(file=file, module=module, root=root, tree=tree, function=function)


def signature(source: FactorySource) -> FactorySignature:
    """Read the factory's parameters from its source.

    Raises:
        UsageError: as `definition`, or it needs more than a batch size.
    """
    node = definition(source, "makes the model")
    if not isinstance(node, ast.FunctionDef):
        return FactorySignature(defaults={}, takes_batch=False)  # a class, or made by other code: it is called as it is
    parameters = _read_parameters(node.args)
    needed = [name for name, default in parameters.items() if default is None and name != BATCH]
    if needed:
        raise UsageError(f"{source.short} needs a value for {_list_names(needed)}: give it a default")
    values = {name: _literal_value(default) for name, default in parameters.items() if default and name != BATCH}
    defaults = {name: value for name, value in values.items() if isinstance(value, int | float | str)}
    return FactorySignature(defaults=defaults, takes_batch=BATCH in parameters)


def definition(source: FactorySource, purpose: str) -> ast.stmt | None:
    """Return the statement in its file that defines the function; None if other code makes it.

    Args:
        purpose: what it is for, for the message where none is named.

    Raises:
        UsageError: the source is no Python, or has no such function (with the nearest); or no function is named.
    """
    body = _parse_source(source.file.name, read(source.file)).body
    known = _bound_names(body)
    if not source.function:
        functions = [name for name, node in known.items() if isinstance(node, ast.FunctionDef)]
        example = f"{source.short}{functions[0] if functions else 'make'}"
        raise UsageError(f"say which function {purpose}, as in {example}; there is {_list_names(functions)}")
    if source.function not in known and not {"*", "__getattr__"} & known.keys():  # or it may have others
        public = [name for name, node in known.items() if isinstance(node, _DEFINED) and not name.startswith("_")]
        raise unknown(f"function in {source.short.rpartition(':')[0]}", source.function, public)
    node = known.get(source.function)
    if isinstance(node, ast.AsyncFunctionDef):
        raise UsageError(f"{source.short} is an async function, which would have to be awaited: give a plain one")
    return node


@lru_cache(maxsize=16)
def _parse_source(name: str, text: bytes) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise UsageError(f"{name} line {error.lineno} isn't Python: {error.msg}") from None
    except ValueError as error:
        raise UsageError(f"{name} isn't Python: {error}") from None


def _bound_names(body: Iterable[ast.stmt]) -> dict[str, ast.stmt]:
    """Return what a module's statements bind, also inside `if`, `try` and `with`."""
    found: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0]: node for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = (name for one in targets for name in ast.walk(one) if isinstance(name, ast.Name))
            found |= {name.id: node for name in names if isinstance(name.ctx, ast.Store)}  # `f.x = 1` binds no f
        else:
            parts = (getattr(node, part, []) for part in ("body", "orelse", "finalbody"))
            handlers = (handler.body for handler in getattr(node, "handlers", []))
            found |= {name: one for part in (*parts, *handlers) for name, one in _bound_names(part).items()}
    return found


def _read_parameters(args: ast.arguments) -> dict[str, ast.expr | None]:
    """Return each parameter's default, None if it has none."""
    places = [*args.posonlyargs, *args.args]
    defaults = [*[None] * (len(places) - len(args.defaults)), *args.defaults]
    pairs = [*zip(places, defaults, strict=True), *zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    return {argument.arg: default for argument, default in pairs}


def _literal_value(default: ast.expr) -> object:
    try:
        return ast.literal_eval(default)
    except ValueError:
        return None


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _list_tree(folder: Path) -> list[Path]:
    """List the .py files, level by level."""
    found: list[Path] = []
    below, left = [list(_scan_entries(folder))], MOST_ENTRIES  # an import from the top reads all of its names too
    while below and left >= 0:
        mine = sorted((one for some in below for one in some if not _is_foreign(one.name)), key=lambda one: one.path)
        found += [Path(entry) for entry in mine if entry.name.endswith(SUFFIX) and _is_file(entry)]
        below = []
        for inner in (Path(entry) for entry in mine if entry.is_dir(follow_symlinks=False)):
            entries = list(itertools.islice(_scan_entries(inner), MOST_IN_FOLDER + 1))
            below += [entries] if len(entries) <= MOST_IN_FOLDER else []
            if (left := left - len(entries)) < 0:
                break
    return found


def _is_foreign(name: str) -> bool:
    return name.startswith(".") or name in FOREIGN


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()  # no pipe, and no link that leads nowhere
    except OSError:
        return False


def _scan_entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:  # another user's, or gone by now
        return


def read(path: Path) -> bytes:
    """Read a source file's bytes.

    Raises:
        UsageError: it can't be read.
    """
    with explaining_refusal(path):
        return path.read_bytes()


def hash_file(path: Path) -> str:
    """Hash of a user's file.

    Raises:
        UsageError: it can't be read.
    """
    with explaining_refusal(path):
        return sha256(path)


@contextmanager
def explaining_refusal(path: Path) -> Iterator[None]:
    """Say in one sentence why a file or folder of the user's can't be read."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"can't read {path}: {tell_refusal(error)}") from error


def kind_of(value: Any) -> str:
    """Describe a value's kind, for messages."""
    if value is None:
        return "None"
    name = f"tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def find_function(source: FactorySource, purpose: str) -> Callable[..., Any]:
    """Import the user's function now.

    Args:
        purpose: what it does, for the message where it is none.

    Raises:
        UsageError: its file raises, or has no such function.
    """
    root = str(source.root)
    if root not in sys.path:
        sys.path.insert(0, root)  # first, as for a script: its own modules, whatever ours or others are called
    module = call(source, lambda: _import_source(source))
    function = getattr(module, source.function, None)
    if function is None:
        raise unknown(f"function in {source.short.rpartition(':')[0]}", source.function, vars(module))
    if not callable(function):
        raise UsageError(f"{source.short} is {kind_of(function)}, not a function: name one that {purpose}")
    found: Callable[..., Any] = function
    return found


def _import_source(source: FactorySource) -> ModuleType:
    if source.module:
        return importlib.import_module(source.module)
    name = source.file.stem
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) == str(source.file):
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(
        name if name not in sys.modules else f"{name}_of_the_user", source.file
    )
    assert spec is not None, "a .py file has a spec"
    assert spec.loader is not None, "and a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # as dataclasses and pickles of its classes expect
    spec.loader.exec_module(module)
    return module


def call(source: FactorySource, run: Callable[[], Any]) -> Any:
    """Run user's code; whatever it raises becomes one line, with the place in the user's own source."""
    try:
        return run()
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            raise
        said = f"{type(error).__name__}: {shorten(' '.join(str(error).split())) or 'without a message'}"
        if isinstance(error, ModuleNotFoundError) and error.name:
            said = f"{said} (install the package that has {error.name.partition('.')[0]!r} into this environment)"
        raise UsageError(f"{source.short} raised {said}{_place_of_error(source, error)}") from error


def _place_of_error(source: FactorySource, error: BaseException) -> str:
    """Return the last line of the user's own that the error came through, "" if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({Path(error.filename).name} line {error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if source.holds(Path(frame.filename))]
    return f" ({Path(frames[-1].filename).name} line {frames[-1].lineno})" if frames else ""
