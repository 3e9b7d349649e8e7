"""A job on a node asks the machine that began it for exports on its way, by files in the job's folder."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.fleets.nodes import GROUPS, node

from shootout.clock import Deadline
from shootout.commands import node as job
from shootout.contract import Device
from shootout.export.delivery import DELIVERY, Delivery, read_delivery, to_json
from shootout.fleet.node_side import ASKED, GIVEN, HEARD, write_whole

BEGUN = Delivery(made_on="it", models={("g1", "identity", "", 1, Device.CPU, False, 0): "a" * 64})
FURTHER = Delivery(made_on="it", models={("g2", "identity", "", 8, Device.CPU, False, 0): "b" * 64})
RECORDS = node("one").header.groups[:1]


class Display:
    def __init__(self) -> None:
        self.said = list[str]()

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run folder in a job's folder; an answer is heard within a fifth of a second."""
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(job, "LOST_S", 0.2)
    monkeypatch.setattr(job, "LOOK_S", 0.01)
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def ask(out: Path, answers: Callable[[dict[str, Any]], Any] | None = None) -> tuple[Delivery, list[str]]:
    """Return what the job has then, and what it says; `answers` runs in another thread, with the question."""
    display, seen = Display(), list[dict[str, Any]]()

    def answer() -> None:
        limit = time.monotonic() + 30
        while not (out.parent / ASKED).exists() and time.monotonic() < limit:
            time.sleep(0.005)
        seen.append(json.loads((out.parent / ASKED).read_text()))
        if answers:
            answers(seen[0])

    other = threading.Thread(target=answer)
    other.start()
    found = job._ask_for(out, count(3), Deadline(None), display, BEGUN, RECORDS)  # type: ignore[arg-type]
    other.join()
    assert seen[0]["number"] == 3
    assert [group["name"] for group in seen[0]["groups"]] == [*GROUPS[:1]]
    assert not (out.parent / ASKED).exists(), "or the next connection would hear it again"
    return found, display.said


def give(out: Path, **given: Any) -> None:
    write_whole(out.parent / GIVEN, json.dumps(given))


def test_what_it_gets_is_kept_with_the_run_beside_what_it_had(out: Path):
    give(out, number=2, error="of the question before")
    found, _ = ask(out, lambda asked: give(out, number=asked["number"], delivery=to_json(FURTHER)))
    assert found.models == {**BEGUN.models, **FURTHER.models}
    kept = read_delivery(out)
    assert kept
    assert kept.models == found.models, "what is shipped later is built from it"


@pytest.mark.parametrize("is_told", [True, False], ids=["refused", "no answer"])
def test_without_an_answer_it_goes_on_with_what_it_has(out: Path, is_told: bool):
    refuse: Any = (lambda asked: give(out, number=asked["number"], error="it can't be exported")) if is_told else None
    found, said = ask(out, refuse)
    assert found is BEGUN
    assert said[1:] == ["it can't be exported" if is_told else "no answer came"]
    assert not (out / DELIVERY).exists()


def test_an_export_may_take_long_while_a_connection_hears_the_question(out: Path):
    def answer_late(asked: dict[str, Any]) -> None:
        for _ in range(30):
            (out.parent / HEARD).touch()
            time.sleep(0.02)
        give(out, number=asked["number"], delivery=to_json(FURTHER))

    found, _ = ask(out, answer_late)
    assert len(found.models) == 2
