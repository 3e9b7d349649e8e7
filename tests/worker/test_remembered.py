"""A backend that worked is not tried again while nothing changed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from support.races.fakes import arm

from shootout.backends.devices import cuda_driver
from shootout.core.contract import Availability, Device, NotRun, NotRunKind
from shootout.core.race.recording import Recorder
from shootout.core.worker import availability
from shootout.tell.progress import ProgressDisplay


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, Device]]:
    """What was tried; numpy works at first, openvino and everything on a GPU never, of which there is a driver."""
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path))
    monkeypatch.setattr(cuda_driver, "library", lambda: "a driver")
    found: list[tuple[str, Device]] = []

    def available(pairs, others):
        found.extend(sorted(pairs))
        broken = Availability(why=NotRun(NotRunKind.UNAVAILABLE, "broken", "mend it"))
        works = {pair: pair[0] in ("numpy", "tiny") and pair[1] is Device.CPU for pair in pairs}
        return {pair: Availability(version="1.0") if ok else broken for pair, ok in works.items()}

    monkeypatch.setattr(availability, "find_available", available)
    return found


def again(tried: list[tuple[str, Device]], *pairs: tuple[str, Device]) -> list[tuple[str, Device]]:
    """What a second run tries; its answers are those of the first."""
    first = availability.known_available(pairs)
    tried.clear()
    assert availability.known_available(pairs) == first
    return tried


def test_only_what_worked_on_the_cpu_is_not_tried_again(tried):
    works, broken, on_gpu = ("numpy", Device.CPU), ("openvino", Device.CPU), ("numpy", Device.CUDA)
    assert again(tried, works, broken, on_gpu) == [on_gpu, broken]


@pytest.mark.parametrize(
    "odd",
    [None, 7, [], ["1.0"], ["1.0", None, 2], [1, None], ["1.0", {}], ["1.0", {"kind": [], "reason": "", "fix": ""}]],
)
def test_what_is_no_note_of_ours_is_tried_again_and_replaced(tried, odd):
    pair = ("numpy", Device.CPU)
    availability.known_available([pair])
    (key,) = availability.store.read_facts(availability.WORKED)
    availability.store.write_facts(availability.WORKED, {key: odd, "no state": odd, "": odd})
    availability.forget(["openvino"])
    tried.clear()
    assert availability.known_available([pair])[pair].ok
    assert tried == [pair]
    assert again(tried, pair) == []


def test_what_lacks_a_gpu_is_not_tried_again_until_there_is_a_driver(tried, monkeypatch: pytest.MonkeyPatch):
    on_gpu, third = ("numpy", Device.CUDA), ("tiny", Device.CUDA)
    with monkeypatch.context() as without:
        without.setattr(cuda_driver, "library", lambda: None)
        assert again(tried, on_gpu, third) == [third]
    assert again(tried, on_gpu) == [on_gpu]


def test_a_third_party_s_and_another_interpreter_s_are_tried_each_time(tried):
    pairs = [("tiny", Device.CPU), ("numpy@new", Device.CPU)]
    assert again(tried, *pairs) == sorted(pairs)


@pytest.mark.parametrize("what", ["library", "path", "variable"])
def test_it_is_tried_again_when_anything_changed(tried, monkeypatch: pytest.MonkeyPatch, what: str):
    numpy = ("numpy", Device.CPU)
    assert again(tried, numpy) == []
    if what == "library":
        monkeypatch.setattr(availability.environment, "libraries", lambda: {"numpy": "9"})
    elif what == "path":
        monkeypatch.syspath_prepend("/elsewhere")
    else:
        monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    availability.known_available([numpy])
    assert tried == [numpy]


def test_it_is_tried_again_after_it_failed_and_where_asked_to(tried):
    numpy = ("numpy", Device.CPU)
    assert again(tried, numpy) == []
    availability.forget(["openvino"])
    availability.known_available([numpy])
    assert tried == [], "another one failed"
    availability.forget(["numpy"])
    availability.known_available([numpy])
    assert tried == [numpy]
    availability.known_available([numpy], fresh=True)
    assert tried == [numpy] * 2


@pytest.mark.parametrize(
    ("kind", "during", "forgotten"),
    [
        (NotRunKind.FAILED, "build", True),
        (NotRunKind.FAILED, "entering", True),
        (NotRunKind.FAILED, "export", False),
        (NotRunKind.UNSUPPORTED, "build", False),
    ],
)
def test_only_a_failure_of_the_library_makes_a_run_forget_it(
    tried, tmp_path: Path, kind: NotRunKind, during: str, forgotten: bool
):
    numpy = ("numpy", Device.CPU)
    availability.known_available([numpy])
    tried.clear()
    history = SimpleNamespace(lines=())
    file = SimpleNamespace(append=lambda *_: None)
    recorder = Recorder(out=tmp_path, file=file, history=history, progress=ProgressDisplay(Console(quiet=True)))
    recorder.note("a group", arm("numpy"), NotRun(kind, "it broke", during=during))
    availability.known_available([numpy])
    assert (tried == [numpy]) is forgotten
