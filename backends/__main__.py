"""Tell what adapters say of themselves: the other end of `backends.description`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import fields
from typing import Any

from shootout import backends
from shootout.backends.description import code_of
from shootout.contract import Capabilities
from shootout.errors import SkippedArm, explained
from shootout.host.child import leave_with


def main() -> None:
    """Answer on standard output, one name after the other; whatever is printed meanwhile goes to standard error."""
    *names, parent = sys.argv[1:]
    leave_with(int(parent))
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for name in names:
        print(json.dumps([name, _describe_adapter(name)], default=list), file=answer, flush=True)
    os._exit(0)  # what an adapter left for its process's end isn't run


def _describe_adapter(name: str) -> dict[str, Any]:
    try:
        adapter = backends.get(name)
        said = {
            "capabilities": _capabilities_as_json(adapter.capabilities),
            "code": [*map(str, code_of(adapter))],
            "shows_inside": hasattr(adapter, "look_inside"),
        }
        json.dumps(said, default=list)
        return said
    except SkippedArm as error:
        return {"why": error.reason, "lacks": _missing_variable(error.__cause__)}
    except (Exception, SystemExit) as error:
        return {
            "why": f"{backends.entry(name).path} can't be loaded: {explained(error)}",
            "lacks": _missing_variable(error),
        }


def _missing_variable(error: BaseException | None) -> str:
    """Return what a failed look-up asked for, which may be a variable."""
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else ""


def _capabilities_as_json(can: Any) -> dict[str, Any]:
    """Return capabilities as JSON values, sets apart."""
    if not isinstance(can, Capabilities):
        raise TypeError(f"its capabilities are a {type(can).__name__}, not Capabilities")
    options = [{one.name: getattr(option, one.name) for one in fields(option)} for option in can.options]
    plain = {one.name: getattr(can, one.name) for one in fields(can)}
    return plain | {"schemes": dict(can.schemes), "rest": [*can.rest.items()], "options": options}


if __name__ == "__main__":
    main()
