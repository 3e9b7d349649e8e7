"""The CPU time of a call: what its process's threads spent over a block, and nothing where that isn't all of it."""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.races import fakes
from support.sessions import EchoSession

from shootout.core import clock
from shootout.core.host.child import Child
from shootout.core.messages import CPU, SCOPES, Ask, Turn
from shootout.core.race.live_arm import LiveArm
from shootout.core.race.pace import RaceTime
from shootout.core.race.restart import block_medians
from shootout.core.worker.blocks import Blocks

CALL_S = 2e-3
HELPER_S = 0.03
HELPER = f"import time\nwhile time.process_time() < {HELPER_S}: pass"


class Session(EchoSession):
    """Calls last `CALL_S`, awake or asleep, with another thread awake as long, or a process awake for longer."""

    def __init__(self, *, awake: bool, helps: bool = False, starts: bool = False) -> None:
        self.awake, self.helps, self.starts = awake, helps, starts

    def execute(self, handle: Any) -> Any:
        other = threading.Thread(target=spin)
        if self.helps:
            other.start()
        helper = os.posix_spawn(sys.executable, [sys.executable, "-I", "-S", "-c", HELPER], {}) if self.starts else 0
        spin() if self.awake else time.sleep(CALL_S)
        if self.helps:
            other.join()
        if helper:
            os.waitpid(helper, 0)
        return handle


def spin() -> None:
    """Use the CPU for so long, however busy the machine is."""
    began = time.thread_time()
    while time.thread_time() < began + CALL_S:
        pass


def cpu_s(session: Session) -> float:
    blocks = Blocks(session, [{}])  # type: ignore[arg-type]
    blocks.tune()
    blocks.play(["compute", "end_to_end"])
    assert blocks.cpu_ns is not None
    return blocks.cpu_ns / 1e9


def test_a_call_that_sleeps_takes_time_and_no_cpu():
    assert cpu_s(Session(awake=False)) < 0.3 * CALL_S


def test_all_threads_count():
    assert 0.95 * CALL_S < cpu_s(Session(awake=True)) < 1.9 * CALL_S
    assert 1.95 * CALL_S < cpu_s(Session(awake=True, helps=True)) < 3.8 * CALL_S


def test_a_process_that_starts_and_ends_within_a_call_counts():
    assert HELPER_S < cpu_s(Session(awake=False, starts=True)) < 6 * HELPER_S, "its own start, too"


def test_an_unknown_count_is_no_figure(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(clock, "cpu_ns", lambda pid: None)
    blocks = Blocks(Session(awake=False), [{}])  # type: ignore[arg-type]
    blocks.tune()
    blocks.play(["end_to_end"])
    assert blocks.cpu_ns is None


def test_from_the_turn_on_in_which_a_process_starts_another_there_is_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "late.py").write_text(
        "import os, subprocess, sys, time\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
        "subprocess.Popen(['sleep', '60'])\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = Turn(latency_ns={"end_to_end": np.ones(3)}, cpu_ns=7.0)
    with Child("late", [tmp_path / "now"]) as child:

        class One(fakes.Answering):
            has_helpers = property(lambda _: child.has_helpers)

        one = One(
            SimpleNamespace(ask=lambda *_, **__: found),
            SimpleNamespace(arm=None),
            SimpleNamespace(time=RaceTime()),
        )
        monkeypatch.setattr(LiveArm, "find_clock_fault", lambda *_: "")
        for _ in range(2):
            child.cpu_ns()  # as each round does
            assert one.turn(Ask()).cpu_ns == 7.0
        (tmp_path / "now").touch()
        while one.turn(Ask()).cpu_ns is not None:
            time.sleep(0.01)  # the test's time-out is the limit


def test_the_journal_has_it_if_each_round_tells_it():
    turns = [Turn(latency_ns={scope: np.ones(3) for scope in SCOPES}, cpu_ns=ns) for ns in (5.0, 6.0)]
    arm = fakes.arm("a")
    live = fakes.live_arm(arm, turns=turns)
    assert block_medians(live)[CPU] == (5.0, 6.0)
    live.turns.append(replace(turns[0], cpu_ns=None))
    assert CPU not in block_medians(live)
    served = fakes.live_arm(replace(arm, scenario="throughput"), turns=[replace(turns[0], cpu_ns=None)])
    assert CPU not in block_medians(served)
