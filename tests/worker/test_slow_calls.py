"""Calls of more than a second: they are timed without a lead-in, and their warm-up tells what they take."""

from __future__ import annotations

from typing import Any

import pytest
from support.sessions import EchoSession

from shootout.core import clock
from shootout.core.constants import LONG_CALL_NS, SLOW_CALL_NS
from shootout.core.messages import SCOPES
from shootout.core.worker.blocks import Blocks


class Session(EchoSession):
    """Each call moves the clock on by so much."""

    def __init__(self, call_ns: int) -> None:
        self.call_ns, self.now_ns, self.calls = call_ns, 0, 0

    def execute(self, handle: Any) -> Any:
        self.now_ns += self.call_ns
        self.calls += 1
        return handle


@pytest.mark.parametrize(
    ("call_ns", "warm", "tune", "block"),
    [(SLOW_CALL_NS + 1, 1, 0, 1), (SLOW_CALL_NS // 2, 1, 0, 2), (LONG_CALL_NS - 1, 1, 6, 6)],
)
def test_a_slow_call_is_made_no_more_often_than_it_is_read(
    call_ns: int, warm: int, tune: int, block: int, monkeypatch: pytest.MonkeyPatch
):
    session = Session(call_ns)
    monkeypatch.setattr(clock, "now_ns", lambda: session.now_ns)
    blocks, counts = Blocks(session, [{}]), []  # type: ignore[arg-type]
    for step in (lambda: blocks.warm(1, 10**10), blocks.tune, lambda: blocks.play(["end_to_end"])):
        before, found = session.calls, step()
        counts.append(session.calls - before)
    assert counts == [warm, tune, block]
    assert {scope: set(read) for scope, read in found.items()} == {"end_to_end": {call_ns}}
    assert blocks.tune().call_ns == dict.fromkeys(SCOPES, call_ns)
