"""Releases that an index has, and environments of them: what is the same in all, what can't be had, what is kept."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from wheels import write_source, write_wheel

from shootout.apps.bisect import releases
from shootout.apps.bisect.releases import (
    Environment,
    Environments,
    find_differences,
    find_pip,
    last_error,
    list_releases,
    read_whole,
    run_quietly,
)
from shootout.apps.bisect.search import Skipped
from shootout.core.clock import Deadline
from shootout.core.errors import UsageError
from shootout.tell.cache_limit import evict, kept

OLD_ABI = "import sys, numpy\nif numpy.__doc__ > '2': sys.stderr.write('A module that was compiled using NumPy 1.x')"

FUSSY = """import os
if os.path.exists({busy!r}): os.kill(os.getpid(), 9)
assert 'HF_TOKEN' not in os.environ and os.environ['ORT_DISABLE_TELEMETRY'] == '1'
"""
"""What is killed if a file exists, and can't be imported with a secret or with telemetry."""


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index without a network, a cache of its own, and two versions of NumPy and of a package that all need."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "cache"))
    for version in ("1.26.4", "2.4.6"):
        write_wheel(folder, "numpy", version, f"__doc__ = {version!r}")
    for version in ("3.0", "4.0"):
        write_wheel(folder, "other", version)
    return folder


def environments(**more: object) -> Environments:
    return Environments("paw", ["numpy"], sys.executable, "paw", **more)  # type: ignore[arg-type]


def make(release: str, **more: object) -> Environment | Skipped:
    return environments(**more).make([release])[release]


def fake(release: str) -> Environment:
    return Environment(release, "/gone/bin/python", {"paw": release}, 1)


def test_releases_are_those_with_a_wheel_for_this_python(index: Path, monkeypatch: pytest.MonkeyPatch):
    for version in ("1.9.0", "1.20.0", "1.20.1", "1.21.0rc1", "1.24.0", "1.24.10", "1.25.0"):
        write_wheel(index, "paw", version)
    write_wheel(index, "paw", "1.23.0", tag="cp27-cp27m-manylinux1_x86_64")
    (index / "paw-1.22.0.tar.gz").write_bytes(b"")
    listed, is_answered = releases._ask_index("paw", sys.executable)
    assert is_answered
    assert sorted(listed) == ["1.20.0", "1.20.1", "1.24.0", "1.24.10", "1.25.0", "1.9.0"]
    monkeypatch.setattr(releases, "_ask_index", lambda *_: (listed, True))

    def found(wanted: str) -> tuple[str, ...]:
        asked, every = list_releases("paw", wanted, sys.executable)
        assert every == ["1.9.0", "1.20.0", "1.20.1", "1.24.0", "1.24.10", "1.25.0"]
        return tuple(asked)

    assert found("1.20..1.24") == ("1.20.0", "1.20.1", "1.24.0", "1.24.10")  # to the last 1.24.x
    assert found("1.20.1..1.24.0") == ("1.20.1", "1.24.0")
    assert found("1.24..") == ("1.24.0", "1.24.10", "1.25.0")
    assert found("1.25, 1.9.0") == ("1.9.0", "1.25.0")
    for wanted, said in (
        ("1.2x", "can't read the releases '1.2x'"),
        ("1..2..3", "can't read"),
        ("1.20.0,1.23.0", "no wheel of paw 1.23.0 for this Python.*: name releases from 1.9.0 .*, such as 1.24.0"),
        ("1.24..1.20", "'1.24..1.20' begins with the newer release: write 1.20..1.24"),
        ("1.20.0,1.21.0rc1,1.24.0", "1.21.0rc1 is a pre-release, and"),
        ("1.20.0rc1..1.24", "1.20.0rc1 is a pre-release, and"),
        ("1.20..1.24b1", "1.24b1 is a pre-release, and"),
        ("7..8", "holds none of the releases of paw .*: the index has 1.9.0 to 1.25.0"),
        ("1.25..", "holds 1 of"),
    ):
        with pytest.raises(UsageError, match=said):
            found(wanted)
    assert found("1.24.0..1.24") == ("1.24.0", "1.24.10")  # 1.24 is all of 1.24.x
    monkeypatch.setattr(releases, "_ask_index", lambda *_: (["1.31.0"], False))  # the one that is installed
    with pytest.raises(UsageError, match="the index of packages didn't answer: the same"):
        found("1.20..")
    monkeypatch.undo()
    with pytest.raises(UsageError, match="pip finds no wheel of paw for /none: Could not locate"):
        list_releases("paw", "1..2", "/none")


@pytest.mark.long
def test_environments_differ_in_the_package_alone_where_pip_allows(index: Path):
    write_wheel(index, "paw", "1.0", OLD_ABI, ["other<4", "tail"])
    write_wheel(index, "paw", "2.0", needs=["other", "tail", 'missing; extra == "all"'])
    for version in ("1.0", "2.0", "3.0"):
        write_wheel(index, "tail", version)
        write_wheel(index, "follows", version)
    write_wheel(index, "paw", "3.0", needs=["other>=4", "follows==3.0"])
    write_wheel(index, "paw", "4.0", needs=["tail<2"])
    told: list[str] = []
    every = ["1.0", "2.0", "3.0", "4.0"]
    made = environments(say=told.append).make(every)
    packages = {release: one.packages for release, one in made.items() if isinstance(one, Environment)}
    assert packages == {
        "1.0": {"paw": "1.0", "numpy": "1.26.4", "other": "3.0", "tail": "1.0"},  # it was compiled for NumPy 1
        "2.0": {"paw": "2.0", "numpy": "1.26.4", "other": "3.0", "tail": "1.0"},
        "3.0": {"paw": "3.0", "numpy": "1.26.4", "other": "4.0", "follows": "3.0"},  # the rest stays
        "4.0": {"paw": "4.0", "numpy": "1.26.4", "tail": "1.0"},  # so none has a later one
    }
    different = find_differences("paw", (one for one in made.values() if isinstance(one, Environment)))
    assert different["other"] == {"1.0": "3.0", "2.0": "3.0", "3.0": "4.0", "4.0": ""}
    assert [*different] == ["follows", "other", "tail"]
    assert len(told) == 5  # 1.0 twice, since NumPy 2 was tried first


@pytest.mark.long
def test_what_can_not_be_had_is_skipped_with_a_reason(index: Path, monkeypatch: pytest.MonkeyPatch):
    (index / "numpy-1.26.4-py3-none-any.whl").unlink()  # as for a new Python
    write_wheel(index, "paw", "1.0")
    write_wheel(index, "paw", "2.0", needs=["missing"])
    write_wheel(index, "paw", "3.0").write_bytes(b"torn")
    write_wheel(index, "paw", "4.0", "raise ImportError(f'{__file__}: undefined symbol: x')")
    withdrawn = write_wheel(index.parent, "paw", "5.0")
    (index.parent / "more.html").write_text(f"<html><a href='{withdrawn.name}' data-yanked='bad'>paw</a></html>")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{index} {index.parent / 'more.html'}")
    write_wheel(index, "paw", "6.0", f"{OLD_ABI}; raise ImportError")
    write_wheel(index, "paw", "7.0", needs=["source"])
    write_source(index, "source", "1.0", f"open({str(index / 'it ran')!r}, 'w')")
    made = environments().make([f"{major}.0" for major in range(1, 8)])
    reasons = {release: one.reason for release, one in made.items() if isinstance(one, Skipped)}
    assert set(reasons) == {"2.0", "3.0", "4.0", "5.0", "6.0", "7.0"}
    assert reasons["5.0"] == "was withdrawn from the index"
    assert reasons["2.0"].startswith("can't be installed: ")
    assert "missing" in reasons["2.0"]
    assert "invalid" in reasons["3.0"]
    assert reasons["4.0"] == "can't be imported: ImportError: paw.py: undefined symbol: x"
    assert reasons["6.0"] == "can't be imported: it was compiled for NumPy 1"
    assert "source" in reasons["7.0"]
    assert not (index / "it ran").exists()


def test_a_reason_names_no_folder(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/jane doe")
    monkeypatch.setenv("SHOOTOUT_CACHE", "/data/the cache")
    for said, told in (
        ("E: /home/jane doe/paw.so: undefined", "E: paw.so: undefined"),
        ("E: no 'x' in 'paw' (/data/the cache/release-1f/lib/paw/__init__.py)", "E: no 'x' in 'paw' (__init__.py)"),
        ("ERROR: bad file:///srv/wheels/paw-1.whl, see https://a.org/b/c", "bad paw-1.whl, see https://a.org/b/c"),
        ("E: ~/jane/net.onnx isn't whole", "E: net.onnx isn't whole"),
        ("E: 3 / 4 and/or lib/paw.so", "E: 3 / 4 and/or lib/paw.so"),
    ):
        assert last_error(subprocess.CompletedProcess([], 1, "", said)) == told


def test_uv_brings_pip_where_there_is_none(monkeypatch: pytest.MonkeyPatch):
    assert find_pip("p")[-4:] == ["-m", "pip", "--python", "p"]
    monkeypatch.setattr(releases, "find_spec", lambda _: None)
    monkeypatch.setattr(releases.shutil, "which", lambda name: f"/bin/{name}")
    assert find_pip("p") == ["/bin/uv", "tool", "run", "--quiet", "pip", "--python", "p"]
    monkeypatch.setattr(releases.shutil, "which", lambda _: None)
    with pytest.raises(UsageError, match="made by pip or uv, and neither is here"):
        find_pip("p")


def test_an_environment_is_kept_and_a_half_one_is_made_again(index: Path, monkeypatch: pytest.MonkeyPatch):
    resolve, known = Environments._resolve, list[dict[str, tuple[str, str]]]()

    def resolve_once(*asked: Any) -> dict[str, tuple[str, str]]:  # pip takes half a second for each answer
        known[:] = known or [resolve(*asked)]
        return known[0]

    monkeypatch.setattr(Environments, "_resolve", resolve_once)
    monkeypatch.setattr(Environments, "_list_requirements", lambda *_: [])
    monkeypatch.setenv("HF_TOKEN", "secret")
    busy = index / "busy"
    write_wheel(index, "paw", "1.0", FUSSY.format(busy=str(busy)))
    told: list[str] = []
    busy.touch()
    killed = make("1.0", say=told.append)
    assert isinstance(killed, Skipped)
    assert killed.reason == "can't be imported: it ended with -9"
    busy.unlink()  # so the next search tries again
    first = make("1.0", say=told.append)
    assert isinstance(first, Environment), first
    assert make("1.0", say=told.append) == first
    assert len(told) == 1
    folder = Path(first.python).parents[1]
    (folder / releases.STAMP).unlink()
    (folder / "lib").rename(folder / "torn")
    assert read_whole(folder) is None
    assert make("1.0", say=told.append) == first
    assert len(told) == 2
    assert not (folder / "torn").exists()
    assert [one.kind for one in kept()] == ["environments of releases"]
    assert evict(0)
    assert not folder.exists()


def test_an_interruption_ends_pip_and_leaves_nothing_half_made(index: Path, monkeypatch: pytest.MonkeyPatch):
    write_wheel(index, "paw", "2.0", "import time; time.sleep(600)")
    made = environments(pins={"numpy": "2.4.6"}, made={"1.0": fake("1.0")})

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def run(command: list[str], *more: object) -> object:
        if "import paw" in command:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
        return run_quietly(command, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(releases, "run_quietly", run)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            made.make(["2.0"])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert made.made == {"1.0": fake("1.0")}
    assert find_folders(index) == []


def find_folders(index: Path) -> list[Path]:
    return [one for one in index.parent.glob("**/release-*") if one.is_dir()]


def test_no_environment_is_begun_for_which_no_time_is_left(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Environments, "_make_one", lambda _, release, __: fake(release))
    told: list[str] = []
    made = environments(say=told.append, deadline=Deadline(100.0), pins={"numpy": "2.4.6"})
    assert [*made.make(["1.0"])] == ["1.0"]
    made._slowest_s = 30.0
    made.deadline.put_off(-80.0)
    assert [*made.make(["2.0"])] == ["1.0"]
    assert told[-1].startswith("no environment of 2.0 yet: --max-time leaves ")
    made.deadline = Deadline(None)
    assert [*made.make(["2.0"])] == ["1.0", "2.0"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("ERROR: [Errno 28] No space left on device", "no room for an environment in .*: each takes about 300 MB, .*"),
        ("WARNING: Retrying (Retry(total=0, …", "the index of packages didn't answer: the same command goes on once"),
    ],
)
def test_a_full_disk_and_no_index_are_one_sentence_and_leave_nothing_half_made(
    said: str, told: str, index: Path, monkeypatch: pytest.MonkeyPatch
):
    write_wheel(index, "paw", "1.0")

    def run(command: list[str], *more: object) -> object:
        if "--no-deps" in command:
            return subprocess.CompletedProcess(command, 1, "", said)
        return run_quietly(command, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(releases, "run_quietly", run)
    with pytest.raises(UsageError, match=told):
        make("1.0", pins={"numpy": "2.4.6"})
    assert find_folders(index) == []
