"""A user's own factory, called: export process and workers only, this is where the user's code runs."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from shootout.errors import UsageError, unknown
from shootout.models.base import Parameters
from shootout.models.flat import FORM, Called, checked, kind_of
from shootout.models.source import Source

SEED = 0


def run(source: Source, parameters: Parameters) -> Called:
    """Call a factory on the CPU, whatever device is torch's default just now.

    Raises:
        UsageError: the user's code raises, or returns something else than a module and its inputs; in one line.
    """
    torch.manual_seed(SEED)  # weights that nobody seeded are the same in every process
    with torch.device("cpu"):
        factory = _function(source)
        given = _calling(source, lambda: factory(**parameters))
        if not isinstance(given, tuple) or len(given) not in (2, 3):
            raise UsageError(f"{source.short} returned {kind_of(given)}: {FORM}")
        module, inputs, labels = given if len(given) == 3 else (*given, None)
        if not isinstance(module, nn.Module):
            raise UsageError(f"{source.short} returned {kind_of(module)} as the module: {FORM}")
        found: Called = _calling(source, lambda: checked(source.short, module, inputs, labels))
        return found


def _function(source: Source) -> Callable[..., Any]:
    root = str(source.root)
    if root not in sys.path:
        sys.path.insert(0, root)  # first, as for a script: its own modules, whatever ours or others are called
    module = _calling(source, lambda: _imported(source))
    function = getattr(module, source.function, None)
    if function is None:
        raise unknown(f"function in {source.short.rpartition(':')[0]}", source.function, vars(module))
    if not callable(function):
        raise UsageError(f"{source.short} is {kind_of(function)}, not a function")
    found: Callable[..., Any] = function
    return found


def _imported(source: Source) -> ModuleType:
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


def _calling(source: Source, run: Callable[[], Any]) -> Any:
    """Run user's code; whatever it raises becomes one line, with the place in the user's own source."""
    try:
        return run()
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            raise
        said = f"{type(error).__name__}: {' '.join(str(error).split()) or 'without a message'}"
        if isinstance(error, ModuleNotFoundError) and error.name:
            said = f"{said} (install {error.name.partition('.')[0]!r} into this environment)"
        raise UsageError(f"{source.short} raised {said}{_place(source, error)}") from error


def _place(source: Source, error: BaseException) -> str:
    """The last line of the user's own that the error came through, "" where there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({Path(error.filename).name} line {error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if source.holds(Path(frame.filename))]
    return f" ({Path(frames[-1].filename).name} line {frames[-1].lineno})" if frames else ""
