"""Name the command that installs what is missing, as this package itself was installed: clone, wheel or sent."""

from __future__ import annotations

import json
import re
import shlex
from functools import lru_cache
from importlib.metadata import distributions
from importlib.util import find_spec

from shootout.core.errors import UsageError

UNINSTALLED = "which isn't installed"
SENT = "SENT"
"""A file beside this package's metadata, on a machine that it was sent to and isn't installed on."""
NVIDIA_INDEX = "--extra-index-url https://pypi.nvidia.com"


def install(extra: str, options: str = "") -> str:
    """Return the command that installs one of this package's extras; "" is the bare package.

    No package index has it. So it is installed from its clone, in whose folder the command is to be run, or else from
    the file of its wheel. On a machine that it was sent to, the extra's own packages are named instead.
    """
    if sent := next((one for one in distributions(name="shootout") if one.read_text(SENT)), None):
        named = [re.compile(rf"extra\s*==\s*['\"]{re.escape(one)}['\"]") for one in extra.split(",")]
        lines = (line for asked in named for line in sent.requires or () if asked.search(line))
        return pip_install(*dict.fromkeys(line.partition(";")[0].strip() for line in lines), options=options)
    version = _find_wheel_version()
    extras = f"[{extra}]" if extra else ""
    if version:
        return pip_install(f"shootout-{version}-py3-none-any.whl{extras}", options=options)
    return pip_install(f".{extras}", options=f"{options} -e".strip(), pip=".venv/bin/pip")


def require_pyarrow(what: str) -> None:
    """Refuse what takes Parquet if its library isn't installed.

    Raises:
        UsageError: it isn't; says how to install it.
    """
    if find_spec("pyarrow") is None:
        raise UsageError(f"{what} needs pyarrow, {UNINSTALLED}: {install('parquet')}")


@lru_cache
def _find_wheel_version() -> str:
    """Return the version of the wheel that this package was installed from; "" if it is run from a clone."""
    # Started in a clone's folder, Python finds its `shootout.egg-info` first, which doesn't say how it was installed.
    found = list(distributions(name="shootout"))
    origins = [json.loads(one.read_text("direct_url.json") or "{}") for one in found]
    is_clone = any(origin.get("dir_info", {}).get("editable") for origin in origins)
    return "" if is_clone or not found else found[0].version


def pip_install(*packages: str, options: str = "", pip: str = "pip") -> str:
    """Return the command that installs packages; every such command that a user sees is made here.

    Args:
        packages: pip's requirements, quoted here for a shell.
        options: of pip, as they are typed.
        pip: how it is called, for the interpreter to install for.
    """
    return " ".join(filter(None, [pip, "install", options, *map(shlex.quote, packages)]))
