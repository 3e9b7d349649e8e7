"""What adapters say of what they are, built and ran: as their process sends it, and once that is read."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from functools import cache
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from shootout import messages
from shootout.backends import get, reported
from shootout.contract import Device, Executed, NotRun, NotRunKind
from shootout.errors import ArmFailed
from tests.fuzz.edits import as_json, edited_bytes, edited_values
from tests.support.races.made import EXACT, EXECUTED

SENT = b"P"
"""Before what goes through a process's pipe; else it is JSON."""
VERIFIED = messages.Verified(executed=EXECUTED, fidelity=EXACT, fault=None)


@cache
def _said() -> tuple[dict[str, Any], ...]:
    capabilities = get("numpy").capabilities
    told = {one.name: getattr(capabilities, one.name) for one in fields(capabilities)}
    told["rest"] = [[list(key), value] for key, value in told["rest"].items()]
    events = [{"ph": "X", "name": "gemm", "ts": 1.0, "dur": 2.0, "args": {"x": 1}}]
    facts = {"artifact_bytes": 9, "compute_nodes_by_precision": {"fp32": 3}, "notes": ["a", "b"]}
    plain = [{"account": asdict(EXECUTED)}, {"facts": facts}, {"events": events}, {"amounts": [1.0, 2.0]}]
    return tuple(json.loads(json.dumps(one, default=_plain)) for one in (*plain, {"capabilities": told}))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, set | frozenset | tuple) else asdict(value)


def inputs() -> SearchStrategy[bytes]:
    sent = (EXECUTED, VERIFIED, NotRun(NotRunKind.BROKEN, "why"), (Device.CPU, {"of": Path("a")}), *_said())
    messages_of = [bytes(ForkingPickler.dumps(one)) for one in sent]
    return st.one_of(
        edited_values(_said()).map(as_json),
        edited_values(_said()).map(as_json),
        edited_bytes(messages_of).map(lambda message: SENT + message),
    )


def read(data: bytes, folder: Path) -> None:
    """As the parent takes it."""
    if data.startswith(SENT):
        try:
            messages.read(data.removeprefix(SENT))
        except Exception as error:  # of any kind, as where it is asked: what a message breaks is its sender's row
            raise ArmFailed(str(error)) from None
        return
    for what, said in json.loads(data).items():
        try:
            _check(what, said)
        except (TypeError, ValueError) as error:
            if what != "events":  # of which these are said to come
                raise
            raise ArmFailed(str(error)) from None


def _check(what: str, said: Any) -> None:
    match what, said:
        case "account", dict():
            known = {one.name for one in fields(Executed)}
            if set(said) <= known and set(asdict(EXECUTED)) <= set(said):
                reported.account(Executed(**said))
        case "facts", dict():
            reported.facts(said)
        case "events", list():
            reported.events(said)
        case "amounts", list():
            reported.amounts(said)
        case "capabilities", dict():
            reported.capabilities(said)
