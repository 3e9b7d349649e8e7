"""`shootout bisect` as a command: bad requests, an interruption, and what the same command goes on with."""

from __future__ import annotations

from functools import partialmethod
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.console import Ended, here
from support.onnx_made import linear
from wheels import write_wheel

from shootout.apps.bisect import releases
from shootout.apps.bisect.bisection import Bisection, read_kept
from shootout.apps.bisect.releases import Environment, Environments
from shootout.apps.bisect.search import Found, Outcome, Skipped
from shootout.commands import bisect as commands_bisect
from shootout.core.contract import Availability
from shootout.core.errors import Interrupted
from shootout.core.study import plan
from shootout.tell import cache_limit

NET = "onnxruntime 1.20.. --model net.onnx"
RELEASES = [f"1.{minor}.0" for minor in range(20, 24)]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, and an index with four releases by the name of a runtime, and what its adapter needs."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "cache"))
    for name in ("numpy", "onnx", "ml_dtypes", "safetensors"):
        write_wheel(folder, name, "2.4.6")
    for version in RELEASES:
        write_wheel(folder, "onnxruntime", version)
    monkeypatch.setattr(
        plan, "known_available", lambda pairs, *_, **__: dict.fromkeys(pairs, Availability(version="1"))
    )
    return linear(tmp_path / "net.onnx")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("onnxruntime 1.20..", "bisect needs a model: --model net.onnx"),
        ("onnxruntime 1.20.. --model none.onnx", "none.onnx"),
        ("onnxruntime,openvino 1.. --model net.onnx", "onnxruntime,openvino isn't one package of a runtime"),
        ("torch 2.. --model net.onnx", "these are torch-eager, torch-compile, torchscript: name one with"),
        (f"{NET} --backends openvino", "isn't one target that onnxrunt"),
        (f"{NET} --backends onnxruntime:cpu:*", "isn't one target"),
        (f"{NET} --backends onnxruntime@new", "leave @NAME out"),
        (f"{NET} --threads 1,2", "one model of one size on one number"),
        (f"{NET} --batch 1,2", "one model of one size on one number"),
        (f"{NET} --for speed", "unknown quantity --for 'speed'"),
        (f"{NET} --python /nope/python", "--python /nope/python is no program; name a Python"),
        (f"{NET} --chance 60", "--chance is '60': it must be more than 0"),
        (f"{NET} --limit abc", "--limit is 'abc': write a share as 5% or"),
        (f"{NET} --max-time 5", "--max-time 5s is too short for a race"),
        ("onnxruntime 1.24..1.20 --model net.onnx", "begins with the newer release: write 1.20..1.24"),
        (f"{NET} --out net.onnx/r", "can't write into 'net.onnx/r'"),
        (
            f"{NET} --out index",
            "than a search of bisect: give another --out, or an empty one",
        ),
        (f"{NET} --max-time 0s", "no time to measure anything: write"),
        ("onnxruntime 7.. --model net.onnx", "the index has 1.20.0 to 1.23.0"),
        ("numpy 1.20..1.24 --model net.onnx", "numpy 1.20.0 is too old for any run: name releases from 1.26"),
    ],
)
def test_a_bad_request_is_one_sentence_and_makes_nothing(
    words: str, said: str, model: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(releases, "_ask_index", lambda *_: (RELEASES, True))
    ended = here("bisect", *words.split(), cwd=model.parent)
    assert ended.code == 2
    *stages, last = ended.err.splitlines()
    assert said in last
    assert stages in ([], [f"asking the index for the releases of {words.split()[0]}"])
    assert not Path("results").exists()


@pytest.mark.long
def test_an_interrupted_search_goes_on_by_the_same_command(model: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[Environment | Skipped | None] = []

    def find(one: Bisection, *, fails: bool) -> None:
        one.found = Found(last_good=one.releases[0], first_bad=one.releases[-1])
        if one.deadline.seconds == 0:  # what is known is read
            return
        asked.extend(one._make(["1.20.0", "1.23.0"]))
        if fails:
            raise Interrupted("interrupted")
        one.found.outcome = Outcome.NONE

    def command(*more: str) -> Ended:
        return here("bisect", "onnxruntime", "1.20..", "--model", "net.onnx", *more, cwd=model.parent)

    monkeypatch.setattr(Bisection, "find", partialmethod(find, fails=True))
    first = command("--max-time", "90s")
    assert first.code == 130
    assert "the same command goes on" in first.err
    (folder,) = Path("results/bisect").iterdir()
    assert f"shootout bisect onnxruntime 1.20.. --model net.onnx --out {folder} --max-time 2m" in " ".join(
        first.out.split()
    )
    write_wheel(Path("index"), "onnxruntime", "1.25.0")  # a later release doesn't change what was asked
    monkeypatch.setattr(Bisection, "find", partialmethod(find, fails=False))
    second = command("--json")
    assert list(Path("results/bisect").iterdir()) == [folder]
    assert "made in" not in second.err
    assert asked[:2] == asked[2:]
    assert second.data["releases"] == ["1.20.0", "1.21.0", "1.22.0", "1.23.0"]
    assert second.code == 0
    assert read_kept(folder)["done"]
    shown = here("show", folder, cwd=model.parent)
    assert "Same    onnxruntime 1.23.0 differs from 1.20.0 by less than 5 %" in shown.out
    assert here("show", folder, "--json", cwd=model.parent).data == second.data
    other = here("bisect", "onnxruntime", "1.21..", "--model", "net.onnx", "--out", folder, cwd=model.parent)
    assert (other.code, "holds another search" in other.err) == (2, True)


@pytest.mark.parametrize("at", [(cache_limit, "evict"), (commands_bisect, "keep_answer")])
def test_an_interruption_before_the_answer_prints_what_is_known(
    at: tuple[ModuleType, str], model: Path, monkeypatch: pytest.MonkeyPatch
):
    real, ended = getattr(*at), list[bool]()

    def find(one: Bisection) -> None:
        one.found = Found(outcome=Outcome.NAMED, last_good="1.20.0", first_bad="1.23.0")

    def interrupt(one: Any) -> Any:  # once: what ends a search when its races are over, or what writes the answer
        if ended:
            return real(one)
        ended.append(True)
        raise KeyboardInterrupt

    monkeypatch.setattr(Bisection, "find", find)
    monkeypatch.setattr(*at, interrupt)
    monkeypatch.setattr(releases, "_ask_index", lambda *_: (RELEASES, True))
    first = here("bisect", "onnxruntime", "1.20.0,1.23.0", "--model", "net.onnx", "--out", "r1", cwd=model.parent)
    assert first.code == 130
    assert "goes on" not in first.err
    folded = " ".join(first.out.split())
    assert "between 1.20.0 and 1.23.0: 1.00x; 2 releases between weren't asked" in folded
    assert "Next shootout bisect onnxruntime 1.20.0..1.23.0 --model net.onnx" in folded
    assert read_kept(Path("r1"))["took_s"] >= read_kept(Path("r1"))["answer"]["took_s"] > 0


def test_an_interrupted_fresh_search_reads_no_race_of_the_earlier_one(model: Path, monkeypatch: pytest.MonkeyPatch):
    read: list[bool] = []

    def find(one: Bisection) -> None:
        race = one.folder / "1.20.0-1.23.0" / "journal.jsonl"
        read.append(race.exists())
        race.parent.mkdir(exist_ok=True)
        if one.deadline.seconds != 0:
            race.write_text("{}\n")
            raise Interrupted("interrupted")

    monkeypatch.setattr(Bisection, "find", find)
    monkeypatch.setattr(Environments, "make", lambda *_: {})
    np.savez("x.npz", x=np.zeros((1, 4), np.float32))
    words = ["bisect", "onnxruntime", "1.20..", "--model", model, "--inputs", Path("x.npz").absolute()]
    words += ["--out", "r1"]
    first = here(*words, "--json", cwd=model.parent)
    assert first.data["command"] == "shootout bisect onnxruntime 1.20.. --model net.onnx --inputs x.npz"
    here(*words, cwd=model.parent)
    fresh = here(*words, "--fresh", cwd=model.parent)
    assert "the same command without --fresh goes on" in fresh.err
    assert read == [False, True, True, True, False, True]
    np.savez("x.npz", x=np.ones((1, 4), np.float32))
    assert "r1 holds another search" in here(*words, cwd=model.parent).err
