"""Runs that are killed, interrupted or out of time, and the same command again: nothing is lost or measured twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.console import Ended, children_of, deaf, deaf_here, environment, spin_study, state
from support.deaf import BUILDS

from shootout.core.journal import journal, records
from shootout.core.worker.fork_server import can_fork

RESTARTS = 2
LABELS = {"spin:cpu:fp32", "spin:cpu:fp32#2", "spin:cpu:fp32#control"}


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return spin_study(tmp_path, restarts=RESTARTS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """A finished run's study, and how the run ended."""
    study = spin_study(tmp_path_factory.mktemp("whole"), restarts=RESTARTS)
    return study, again(study)


@pytest.fixture
def finished(whole: tuple[Path, Ended], tmp_path: Path) -> tuple[Path, Ended]:
    """The same in a folder of the test's own."""
    study, ended = whole
    assert ended.code == 0
    shutil.copytree(study.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / study.name, ended


def again(study: Path, *words: str) -> Ended:
    return deaf_here("run", study, "--out", "out", "--json", *words, cwd=study.parent)


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    """The journal's lines of one kind, a torn one at the end left out."""
    try:
        text = (folder / journal.NAME).read_bytes()
    except FileNotFoundError:
        return []
    whole = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]
    return [line for line in whole if line["kind"] == kind]


@contextmanager
def stopped(study: Path, *words: str, restart: int | str, forked: bool) -> Iterator[subprocess.Popen[str]]:
    """The command in a process group of its own, as a shell starts it, stopped at a restart's first turn.

    Args:
        restart: or `BUILDS`, to be stopped in these.
        forked: whether its workers are forked.
    """
    command = deaf("run", study, *words, forked=forked, stops_in=restart)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(
        command, cwd=study.parent, env=environment(), text=True, start_new_session=True, **pipes
    ) as process:
        try:
            ended = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            assert ended
            assert ended.si_code == os.CLD_STOPPED, process.communicate()
            yield process
        finally:
            process.kill()


def measured_once(folder: Path) -> None:
    """Every restart is there, once, with every arm and its samples."""
    assert [line["restart"] for line in lines(folder, "rounds")] == list(range(RESTARTS))
    played = [(line["restart"], line["arm"]) for line in lines(folder, "played")]
    assert sorted(played) == sorted((g, label) for g in range(RESTARTS) for label in LABELS)
    assert all((folder / line["samples"]).is_file() for line in lines(folder, "played"))
    assert [line["complete"] for line in lines(folder, "ended")][-1]


def killed(study: Path, restart: int | str, *, forked: bool) -> bytes:
    """The journal of a run that was killed there, as far as it is whole."""
    with stopped(study, "--out", "out", restart=restart, forked=forked) as process:
        workers = children_of(process.pid)
        process.kill()
        process.wait()
    while any(map(state, workers)):
        time.sleep(0.01)  # the test's time-out is the limit: none may stay, stopped or not
    out = study.parent / "out"
    return (out / journal.NAME).read_bytes()[: journal.read(out).sound_bytes]


@pytest.mark.parametrize(("restart", "forked"), [(0, True), pytest.param(1, False, marks=pytest.mark.long)])
def test_killed_at_any_point_it_goes_on_from_the_last_whole_restart(study: Path, restart: int, forked: bool):
    out = study.parent / "out"
    begun = killed(study, BUILDS, forked=forked) if restart == 0 else b""  # in its builds first
    assert {line["kind"] for line in map(json.loads, begun.splitlines())} == (
        {"header", "prepared"} if begun else set()
    )
    before = killed(study, restart, forked=forked)
    assert before.startswith(begun)
    assert len(lines(out, "rounds")) == restart
    assert again(study).code == 0
    assert (out / journal.NAME).read_bytes().startswith(before)
    measured_once(out)


def test_a_torn_journal_loses_only_the_restart_being_written(finished: tuple[Path, Ended]):
    study, _ = finished
    out = study.parent / "out"
    whole = (out / journal.NAME).read_bytes().splitlines(keepends=True)
    end = max(index for index, line in enumerate(whole) if b'"kind":"rounds"' in line)
    kept = b"".join(whole[: end - len(LABELS)])
    (out / journal.NAME).write_bytes(b"".join(whole[: end + 1])[:-1])
    assert again(study).code == 0
    assert (out / journal.NAME).read_bytes().startswith(kept)
    measured_once(out)


def test_a_run_killed_before_its_header_was_whole_starts_over(study: Path):
    out = study.parent / "out"
    out.mkdir()
    (out / journal.NAME).write_bytes(b'{"kind":"header","schema_ver')
    assert again(study).code == 0
    measured_once(out)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("how", "forked"), [(signal.SIGTERM, True), pytest.param(signal.SIGINT, False, marks=pytest.mark.long)]
)
def test_an_interrupted_run_lets_no_other_write_shows_what_it_has_and_resumes_in_the_same_folder(
    study: Path, how: signal.Signals, forked: bool
):
    with stopped(study, restart=1, forked=forked) as process:  # without --out: the unfinished run is found again
        found = list(study.parent.glob("results/tiny/*"))
        second = deaf_here("run", study, "--out", found[0], cwd=study.parent)
        assert second.code == 2
        assert f"process {process.pid} (a run) is writing there; wait for it or give another --out" in second.err
        workers = children_of(process.pid)
        os.killpg(process.pid, how)
        os.killpg(process.pid, signal.SIGCONT)
        out, err = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "shootout: interrupted; run the same command again to resume" in err
    assert "spin#2" in out
    told = " ".join(out.replace("\\\n", " ").split())
    assert f"--out {found[0].relative_to(study.parent)} --max-time 5m" in told
    while any(map(state, workers)):
        time.sleep(0.01)  # the test's time-out is the limit: none may stay
    assert lines(found[0], "ended")[-1]["why"] == "interrupted"
    done = deaf_here("run", study, "--json", cwd=study.parent)
    assert done.code == 0
    assert done.data["run"] == str(found[0].relative_to(study.parent))
    assert not done.data["complete"], "nothing was distinguished"
    assert lines(found[0], "ended")[-1]["complete"]
    measured_once(found[0])


def test_a_run_out_of_time_is_unfinished_and_goes_on_when_given_more(study: Path):
    out = study.parent / "out"
    none = again(study, "--max-time", "0.001s")
    assert none.code == 3
    assert "--max-time 0 s was too short for a figure: exports and builds took" in none.err
    assert not none.data["complete"]
    reasons = ("the run ended before", "not built in the time")  # as the build is kept from an earlier test, or not
    assert all(row["reason"].startswith(reasons) for row in none.data["rows"])
    assert [line["why"] for line in lines(out, "ended")] == ["--max-time"]
    assert again(study, "--max-time", "10m").code == 0, "--max-time is not part of what is measured"
    measured_once(out)


def test_a_run_whose_arms_all_fail_does_not_blame_its_time(tmp_path: Path):
    words = ("--model", "identity", "--backends", "spin", "--max-time", "1h", "--out", tmp_path / "out")
    found = deaf_here("run", *words, cwd=tmp_path)
    assert found.code == 4, "spin without a duration can't be built"
    assert "was over before" not in found.err


def test_a_finished_run_is_shown_and_only_fresh_measures_again(finished: tuple[Path, Ended]):
    study, first = finished
    out = study.parent / "out"
    assert {line["forked"] for line in lines(out, "played")} == {can_fork()}, "as `deaf_here` has them"
    *kept, end = journal.read(out).lines
    assert isinstance(end, records.Ended)
    assert not end.settled, "nothing was distinguished"
    file = journal.Journal(out)
    file.append(*kept, end.model_copy(update={"settled": True}))
    file.close()
    before = (out / journal.NAME).read_bytes()
    shown = again(study)
    assert "already holds this run, finished; --fresh measures again" in shown.err
    assert (first.data["complete"], shown.data["complete"]) == (False, True)
    assert shown.data["rows"] == first.data["rows"]
    assert (out / journal.NAME).read_bytes() == before
    (out / "samples" / "old.npz").touch()
    assert again(study, "--fresh").code == 0
    assert (out / journal.NAME).read_bytes() != before
    assert not (out / "samples" / "old.npz").exists()
    measured_once(out)


def test_another_study_is_refused_and_the_run_is_left_alone(study: Path):
    assert again(study, "--max-time", "0.001s").code == 3
    before = (study.parent / "out" / journal.NAME).read_bytes()
    for words in (["--option", "spin.work=21"], ["--batch", "2"], ["--backends", "spin"]):
        other = again(study, *words)
        assert other.code == 2
        assert (
            "'out' holds another study, other targets or another model (tiny): add --fresh to start over there"
            in other.err
        )
    assert (study.parent / "out" / journal.NAME).read_bytes() == before


def test_a_run_of_another_version_is_refused_even_to_resume(study: Path):
    out = study.parent / "out"
    out.mkdir()
    other = b'{"kind":"header","schema_version":7,"new":true}\n'
    (out / journal.NAME).write_bytes(other)
    done = again(study)
    assert done.code == 2
    assert "written by another version of shootout (schema 7, this one reads 6): read it with that version" in done.err
    assert (out / journal.NAME).read_bytes() == other
