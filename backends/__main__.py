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
    """Answer on standard output, one after the other; whatever is printed meanwhile goes to standard error."""
    *names, parent = sys.argv[1:]
    leave_with(int(parent))
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for name in names:
        print(json.dumps([name, _said(name)], default=list), file=answer, flush=True)
    os._exit(0)  # what an adapter leaves for its process's end is nobody's


def _said(name: str) -> dict[str, Any]:
    try:
        adapter = backends.get(name)
        said = {"capabilities": _told(adapter.capabilities), "code": [*map(str, code_of(adapter))]}
        json.dumps(said, default=list)
        return said
    except SkippedArm as error:
        return {"why": error.reason, "lacks": _missed(error.__cause__)}
    except (Exception, SystemExit) as error:
        return {"why": f"{backends.entry(name).path} can't be loaded: {explained(error)}", "lacks": _missed(error)}


def _missed(error: BaseException | None) -> str:
    """What it looked up and was not there, which may be a variable."""
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else ""


def _told(can: Any) -> dict[str, Any]:
    """Capabilities as JSON values, sets apart."""
    if not isinstance(can, Capabilities):
        raise TypeError(f"its capabilities are a {type(can).__name__}, not Capabilities")
    options = [{one.name: getattr(option, one.name) for one in fields(option)} for option in can.options]
    plain = {one.name: getattr(can, one.name) for one in fields(can)}
    return plain | {"schemes": dict(can.schemes), "rest": [*can.rest.items()], "options": options}


if __name__ == "__main__":
    main()
