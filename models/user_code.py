"""Find and run a user's own function; an exception of it becomes one line, with the place in the user's source.

For processes of their own alone: the main process runs none of the user's code.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from shootout.core.errors import UsageError, shorten, unknown
from shootout.models.source import FactorySource

PACKAGES = {
    "Bio": "biopython",
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "faiss": "faiss-cpu",
    "fitz": "pymupdf",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
    **dict.fromkeys(("imageio", "librosa", "matplotlib", "pandas", "pycocotools", "scipy"), ""),
    **dict.fromkeys(("soundfile", "torchaudio", "torchvision", "tqdm", "transformers"), ""),
}
"""By module: the package that installs it, or "" if it has the same name. What isn't installed tells no names."""


def kind_of(value: Any) -> str:
    """Describe a value's kind, for messages."""
    if value is None:
        return "None"
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"a {type(value).__name__}"


def find_function(source: FactorySource) -> Callable[..., Any]:
    """Import the user's function now.

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
        raise UsageError(
            f"{source.short} is {kind_of(function)}, not a function: name one that returns the module and its inputs"
        )
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
            said = f"{said} ({_tell_install(error.name.partition('.')[0])})"
        raise UsageError(f"{source.short} raised {said}{_place_of_error(source, error)}") from error


def _tell_install(module: str) -> str:
    """Say how to install a module that the user's code imports, which may have a name of its own among packages."""
    if module in PACKAGES:
        return f"install it into this environment: python -m pip install {PACKAGES[module] or module}"
    return f"install the package that has {module!r} into this environment"


def _place_of_error(source: FactorySource, error: BaseException) -> str:
    """Return the last line of the user's own that the error came through, "" if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({Path(error.filename).name} line {error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if source.holds(Path(frame.filename))]
    return f" ({Path(frames[-1].filename).name} line {frames[-1].lineno})" if frames else ""
