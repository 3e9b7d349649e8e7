"""Completion of a command line in bash, zsh and fish: the names that there are, read without any framework.

One hidden command answers all three shells: given the line up to the cursor, it prints what the last word may become,
one a line. The shells' own part is a few lines each.
"""

from __future__ import annotations

import ast
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from shootout import backends, models
from shootout.commands.list import KINDS
from shootout.contract import Device, Precision, Scenario, is_among
from shootout.decide.policy import Objective
from shootout.errors import ShootoutError, UsageError
from shootout.export.client import is_file
from shootout.export.request import path_of
from shootout.exported import table_files
from shootout.formats.files import FORMATS
from shootout.models.base import Choice
from shootout.models.user.metric_names import METRICS
from shootout.stats.goals import Aim
from shootout.study import axes, schema

COMMAND = "complete"
"""The hidden command's name."""
GOES_ON = "=:/.,+"
"""A candidate that ends so wants no space behind it."""
_BASH = """\
_shootout() {
    local IFS=$'\\n' line=${COMP_LINE:0:$COMP_POINT} breaks=${COMP_WORDBREAKS//[^=:]/}
    COMPREPLY=($("$1" COMMAND "$line" 2>/dev/null))
    local word=${line##*[[:space:]]}
    if [[ -n $breaks && ${#COMPREPLY[@]} -gt 0 ]]; then  # readline replaces what stands behind a break only
        COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*[$breaks]}"}"}")
    fi
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[GOES_ON] ]]; then compopt -o nospace; fi
}
complete -F _shootout shootout
"""
_ZSH = """\
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
_shootout() {
    local -a found
    found=(${(f)"$(${words[1]} COMMAND "${(j: :)words[1,CURRENT]}" 2>/dev/null)"})
    compadd -S '' -- ${(M)found:#*[GOES_ON]}
    compadd -- ${found:#*[GOES_ON]}
}
compdef _shootout shootout
"""
_FISH = """\
complete -c shootout -f -a '(shootout COMMAND (commandline -cp | string collect) 2>/dev/null)'
"""
SCRIPTS = {
    shell: script.replace("COMMAND", COMMAND).replace("GOES_ON", GOES_ON)
    for shell, script in {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}.items()
}
Given = Mapping[str, str]
"""The words before, by the keyword that they are for."""


def script() -> tuple[str, str]:
    """Return the shell that `SHELL` names, and its completion script.

    Raises:
        UsageError: it is none of those that can.
    """
    shell = Path(os.environ.get("SHELL", "")).name
    if shell not in SCRIPTS:
        raise UsageError(f"SHELL is {shell or 'not set'!r}: completion is available for {', '.join(SCRIPTS)}")
    return shell, SCRIPTS[shell]


def install() -> str:
    """Make new shells of the user's complete our command lines; says what was written.

    Raises:
        UsageError: there is no completion for the shell that `SHELL` names.
    """
    shell, text = script()
    home = Path.home()
    if shell == "fish":
        config = Path(os.environ.get("XDG_CONFIG_HOME", home / ".config"))
        return f"wrote {_write_script(config / 'fish' / 'completions' / 'shootout.fish', text)}: start a new shell"
    data = Path(os.environ.get("XDG_DATA_HOME", home / ".local" / "share"))
    file = _write_script(data / "shootout" / f"completion.{shell}", text)
    settings = home / ".bashrc" if shell == "bash" else Path(os.environ.get("ZDOTDIR", home)) / ".zshrc"
    line = f"source {shlex.quote(str(file))}"
    if line in (settings.read_text(encoding="utf-8", errors="replace").splitlines() if settings.exists() else ()):
        return f"wrote {file}, which {settings} reads already: start a new shell"
    with settings.open("a", encoding="utf-8") as out:
        out.write(f"\n{line}\n")
    return f"wrote {file}, and a line in {settings} that reads it: start a new shell"


def _write_script(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def complete(program: Any, line: str) -> list[str]:
    """Return what the last word of a command line may become.

    Args:
        program: the command line's own tree of commands, as typer makes it.
        line: up to the cursor.
    """
    *before, word = _split_line(line)[1:] or [""]
    name = next((earlier for earlier in before if not earlier.startswith("-")), None)
    if name is None:
        commands = [name for name, command in program.commands.items() if not command.hidden]
        return _filter_prefix(word, [*commands, *_list_flags(program)])
    if (command := program.commands.get(name)) is None:
        return []
    given, waiting = _read_words(command, before[before.index(name) + 1 :])
    flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    if equals:
        waiting = next((param.name for param in command.params if flag in param.opts), None)
        return [f"{flag}={candidate}" for candidate in _filter_prefix(value, _complete_value(waiting, value, given))]
    if waiting is None and word.startswith("-"):
        return _filter_prefix(word, _list_flags(command))
    if waiting is None:
        places = [param.name for param in command.params if param.param_type_name == "argument"]
        waiting = next((place for place in places if place not in given), None)
    return _filter_prefix(word, _complete_value(waiting, word, given))


def _split_line(line: str) -> list[str]:
    """Return the words of an unfinished line; the last one may be empty."""
    try:
        words = shlex.split(line)
    except ValueError:  # a quote is open
        words = line.replace("'", "").replace('"', "").split()
    return words if line and not line[-1].isspace() else [*words, ""]


def _filter_prefix(word: str, candidates: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(candidates) if name.startswith(word)]


def _list_flags(command: Any) -> list[str]:
    return [flag for param in command.params if param.param_type_name == "option" for flag in param.opts] + ["--help"]


def _read_words(command: Any, words: list[str]) -> tuple[dict[str, str], str | None]:
    """Return the words by keyword, and the keyword of the option that the next word is for."""
    options = {flag: param for param in command.params if param.param_type_name == "option" for flag in param.opts}
    places = iter([param.name for param in command.params if param.param_type_name == "argument"])
    given: dict[str, str] = {}
    waiting = None
    for word in words:
        if waiting:
            given[waiting], waiting = word, None
        elif word.startswith("-"):
            flag, equals, value = word.partition("=")
            option = options.get(flag)
            if option is not None and not option.is_flag:
                given, waiting = ({**given, option.name: value}, None) if equals else (given, option.name)
        elif place := next(places, None):
            given[place] = word
    return given, waiting


def _complete_value(keyword: str | None, word: str, given: Given) -> Iterable[str]:
    """Return candidates for one value; a file that can't be read has none."""
    find = _FINDERS.get(keyword or "")
    try:
        return list(find(word, given)) if find else ()
    except (ShootoutError, OSError, SyntaxError, ValueError):
        return ()


def _complete_list(find: Callable[[str], Iterable[str]], word: str) -> Iterator[str]:
    """Return candidates for the last of several values with commas between."""
    before, comma, last = word.rpartition(",")
    return (f"{before}{comma}{candidate}" for candidate in find(last))


def _complete_models(word: str) -> Iterator[str]:
    yield from models.names()
    yield from _complete_functions(word, ".onnx", ".json")


def _complete_functions(word: str, *endings: str) -> Iterator[str]:
    """Return a file's functions; before that Python files, and those of other endings."""
    file, colon, _ = word.partition(":")
    if colon and file.endswith(".py"):
        body = ast.parse(Path(file).read_bytes()).body
        yield from (f"{file}:{node.name}" for node in body if isinstance(node, ast.FunctionDef))
        return
    for path in _complete_files(word, *endings, ".py"):
        yield f"{path}:" if path.endswith(".py") else path


def _complete_files(word: str, *suffixes: str) -> Iterator[str]:
    """Return files that end so, and folders, in the folder that the word names so far."""
    folder, slash, start = word.rpartition("/")
    for entry in sorted(os.scandir(f"{folder}{slash}" or "."), key=lambda one: one.name):
        if entry.is_dir() and (start or not entry.name.startswith(".")):
            yield f"{folder}{slash}{entry.name}/"
        elif entry.name.endswith(suffixes):
            yield f"{folder}{slash}{entry.name}"


def _complete_targets(word: str) -> Iterator[str]:
    """Return a backend's names, then `:device`, then `:precision`."""
    backend, *rest = word.split(":")
    name, plus, mode = backend.partition("+")
    yield from backends.names()
    if name not in backends.names():
        return
    can = backends.capabilities(name)
    if plus:
        yield from (f"{name}+{named_mode}" for named_mode in sorted(can.modes) if named_mode and "*" not in named_mode)
    if bool(plus) == bool(mode) and is_among(mode, can.modes):
        yield from (f"{backend}:{device}" for device in sorted({device for device, _ in can.targets}))
        pairs = sorted(pair for pair in can.targets if rest and pair[0] == rest[0])
        yield from (f"{backend}:{device}:{precision}" for device, precision in pairs)


def _complete_options(word: str) -> Iterator[str]:
    """Return `backend.`, then `KEY=`, then a value that is worth trying."""
    backend, dot, _ = word.partition(".")
    if not dot:
        yield from (f"{name}." for name in backends.names())
        return
    for name, option in backends.capabilities(backend.partition("+")[0]).settable().items():
        if "*" not in name:
            yield from (f"{backend}.{name}={value}" for value in (option.tries if "=" in word else ("",)))


def _complete_axes(word: str, given: Given) -> Iterator[str]:
    """Return `key=`, then the values that a key has words for."""
    model = _named_model(given)
    parameters = models.get(model).parameters if model and not is_file(model) else {}
    sizes = _open_sizes(model)[0] if model and is_file(model) else []
    choices: dict[str, Iterable[str]] = {
        **dict.fromkeys((*parameters, *sizes, *axes.WORDS), ()),
        **{name: one.choices for name, one in parameters.items() if isinstance(one, Choice)},
        "scenario": Scenario,
        "device": Device,
        "precision": Precision,
        "backend": backends.names(),
    }
    key, equals, value = word.partition("=")
    if not equals:
        yield from (f"{name}=" for name in choices)
    yield from (
        f"{key}={candidate}" for candidate in _complete_list(lambda _: map(str, choices.get(key, ())), value) if equals
    )


def _complete_shapes(_: str, given: Given) -> Iterable[str]:
    """Return a whole shape for each input that an ONNX file leaves open, to be edited."""
    model = _named_model(given)
    return _open_sizes(model)[1] if model and is_file(model) else ()


def _open_sizes(file: str) -> tuple[list[str], list[str]]:
    """Return the names of the axes that an ONNX file leaves open, and a shape for each input."""
    from shootout.exported import onnx_axes
    from shootout.exported.onnx_files import header

    head = header(path_of(file))
    return onnx_axes.open_axes(head), onnx_axes.example_shapes(head)


def _named_model(given: Given) -> str | None:
    """Return the first model that the line names so far."""
    named = (given[place].partition(",")[0] for place in ("model", "study", "chosen") if given.get(place))
    return next((name for name in named if name in models.names() or is_file(name) or models.is_own(name)), None)


_FINDERS: dict[str, Callable[[str, Given], Iterable[str]]] = {
    "study": lambda word, _: (*schema.shipped(), *_complete_files(word, schema.SUFFIX), *_complete_models(word)),
    **dict.fromkeys(("model", "chosen"), lambda word, _: _complete_models(word)),
    "backends": lambda word, _: _complete_list(_complete_targets, word),
    **dict.fromkeys(("baseline", "target"), lambda word, _: _complete_targets(word)),
    "candidate": lambda word, _: (*_complete_targets(word), *_complete_files(word, ".onnx")),
    "read": lambda word, _: _complete_functions(word),
    "metric": lambda word, _: (*METRICS, "auto", *_complete_functions(word)),
    "parameters": _complete_axes,
    "shapes": _complete_shapes,
    "options": lambda word, _: _complete_options(word),
    "scenario": lambda word, _: _complete_list(lambda _: map(str, Scenario), word),
    "goal": lambda *_: map(str, Aim),
    "kind": lambda *_: KINDS,
    "device": lambda *_: map(str, Device),
    "precision": lambda word, _: _complete_list(lambda _: map(str, Precision), word),
    "by": lambda *_: ("layer", "block"),
    "l2": lambda *_: ("warm", "cold"),
    "threads": lambda *_: ("all", "default"),
    **dict.fromkeys(
        ("inputs", "calibration", "labels", "truth", "rows_by"),
        lambda word, _: _complete_files(word, ".npz", ".npy", *table_files.SUFFIXES),
    ),
    "policy": lambda word, _: _complete_files(word, schema.SUFFIX),
    "objective": lambda *_: map(str, Objective),
    "to": lambda word, _: _complete_files(word, *FORMATS),
    **dict.fromkeys(("folder", "folders", "out", "reference"), lambda word, _: _complete_files(word, "/")),
}
