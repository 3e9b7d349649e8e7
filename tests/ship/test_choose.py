"""The programs of a folder whose contenders race where it lands: real processes, and contenders that are planted."""

from __future__ import annotations

import errno
import itertools
import json
import logging
import math
import os
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.landing import finish, land, take
from support.races.shipping import ship_target

from shootout.core.contract import Target
from shootout.core.host.placement import control_groups, cpu_quota
from shootout.core.stats.verdicts import make_pair

QUICK, SAFE, SLOW = ({"on_call": f"time.sleep({ms / 1e3})"} for ms in (1, 3, 30))
FAULTY = {
    "wrong": {"answer": "{'y': 3 * inputs['x']}"},
    "shape": {"answer": "{'y': inputs['x'][:2]}"},
    "crash": {"on_call": "os.kill(os.getpid(), signal.SIGSEGV)"},
    "raises": {"on_load": "raise ValueError('no\\x1b[2J such\\nmodel')"},
    "ends": {"on_load": "os._exit(7)"},
    "hangs": {"on_call": "calls > 3 and time.sleep(1000)"},
    "lacks": {"on_load": "raise RuntimeError('this CPU must have avx4096|sve9')"},
}
V1 = "quota", "period"
HERE_ALONE = "if '--play' not in sys.argv: "
START = "import sys; sys.path.insert(0, sys.argv[1]); import load; print(load.load(sys.argv[2]))"


def open_module(folder: Path) -> ModuleType:
    """Run choose.py as load.py does."""
    module, path = ModuleType("choose"), folder / "choose.py"
    module.__file__ = str(path)
    exec(compile(path.read_text(), path, "exec"), module.__dict__)
    return module


def run(folder: Path, *words: str, start: tuple[str, ...] = (), **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `choose.py --json` from elsewhere."""
    command = [*start, sys.executable, str(folder / "choose.py"), "--json", *words]
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=240)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two contenders that do nothing."""
    return land(tmp_path_factory.mktemp("landing") / "model", {"safe": {}, "other": {}})


@pytest.fixture
def module(planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Its program, which keeps choices in a folder of the test."""
    monkeypatch.setenv("SHOOTOUT_LANDING", str(tmp_path))
    return open_module(planted)


# The statistics.


def test_the_interval_is_that_of_the_product(module: ModuleType):
    rng = np.random.default_rng(0)
    for n, others, questions, sd in itertools.product(range(2, 18), range(4), (1, 5), (1e-5, 0.1)):
        x, beside = rng.normal(0.2, sd, n), [rng.normal(0, 3 * sd, max(2, n - i)) for i in range(others)]
        found = module.find_reach(x.tolist(), [one.tolist() for one in beside], questions)
        assert found == pytest.approx(make_pair(x, beside).reach(questions), rel=1e-9)
    assert module.find_reach([0.1], [], 1) == math.inf


@pytest.mark.parametrize(("call_ns", "calls"), [(1e6, 2 + 9), (3e8, 1)], ids=["short", "long"])
def test_a_pause_of_the_process_is_one_reading_of_several(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, call_ns: float, calls: int
):
    now, made = [0.0], []

    def predict(_: object) -> None:
        made.append(now)
        now[0] += call_ns * (20 if len(made) == 4 else 1)

    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter_ns=lambda: now[0]))
    assert module.time_calls(predict, [{}], 10_000_000, call_ns) == call_ns
    assert len(made) == calls


def play_five(module: ModuleType, **log_times: float) -> list[dict[str, list[float]]]:
    """Return five restarts of four rounds, with a spread of 1 % and so many times by contender."""
    rng = np.random.default_rng(1)
    module.SAFE = next(iter(log_times))
    rounds = {name: np.exp(rng.normal(value, 0.01, (5, 4))).tolist() for name, value in log_times.items()}
    return [{name: found[number] for name, found in rounds.items()} for number in range(5)]


@pytest.mark.parametrize(
    ("log_times", "chosen", "as_good", "is_open"),
    [
        ({"a": 0.0, "b": -0.3, "c": -0.1}, "b", [], []),
        ({"a": 0.0, "b": 0.3}, "a", [], []),
        ({"a": 0.0, "b": -0.001}, "a", [], []),
        ({"a": 0.0, "b": -0.04}, "a", [], ["a", "b"]),
        ({"a": 0.0, "b": -0.3, "c": -0.33}, "c", ["b"], ["b", "c"]),
        ({"a": 0.0, "b": -0.3, "c": -0.3}, "b", ["c"], []),
    ],
    ids=["told", "slower", "the same", "can't tell", "two lead", "two are as good"],
)
def test_only_what_is_told_faster_takes_the_place_of_the_safe_one(
    module: ModuleType, log_times: dict[str, float], chosen: str, as_good: list[str], is_open: list[str]
):
    played = play_five(module, **log_times)[: 3 if is_open else 5]  # three restarts tell less
    assert module.judge(played, [*log_times], "a") == (chosen, as_good)
    assert module.find_open(played, [*log_times]) == is_open


@pytest.mark.parametrize(
    ("times", "chosen"),
    [((0.0, 0.0, 0.0), "a"), ((0.0, -0.14, 0.1), "b"), ((0.0, -0.14, 0.6), "b"), ((0.0, 0.6, 0.6), "a")],
    ids=["equal", "15 %", "one is far", "all are far"],
)
def test_a_race_ends_once_the_fastest_is_told(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, times: tuple[float, ...], chosen: str
):
    rng = np.random.default_rng(2)

    def play(race: Any, playing: list[str]) -> dict[str, list[float]]:
        race.passed = {"a", "b", "c"}
        spread = {name: rng.normal(times["abc".index(name)], 0.015) + rng.normal(0, 0.01, 6) for name in playing}
        return {name: np.exp(found).tolist() for name, found in spread.items()}

    monkeypatch.setattr(module.Race, "play_restart", play)
    module.SAFE, taken, restarts = "a", [], []
    for _ in range(40):
        race = module.Race()
        race.run(["a", "b", "c"])
        taken.append(module.judge(race.played, sorted(race.passed), "a")[0])
        restarts.append(len(race.played))
        played = sum("c" in one for one in race.played)
        assert (played == 1) == (times == (0.0, -0.14, 0.6)), "it is far behind, and two are left"
    assert taken.count(chosen) >= 39
    assert 3 <= np.median(restarts) <= (12 if times[1] == 0 else 4)


def test_the_fastest_is_told_by_the_restarts_without_the_safe_one_too(module: ModuleType):
    played = [{"safe": 1 + d, "b": 0.98 + e, "c": 1 - e} for d, e in ((0, 0), (0.004, 0.01), (-0.004, -0.005))]
    played = [{"safe": one["safe"], "b": one["b"] / 2, "c": one["c"] / 2} for one in played]
    played += [{"b": 1.1 + e, "c": 1.0} for e in (0.01, -0.01) * 7]
    blocks = [{name: [ns] * 6 for name, ns in one.items()} for one in played]
    assert module.judge(blocks[:3], ["b", "c"], "safe") == ("b", ["c"])
    assert module.judge(blocks, ["b", "c"], "safe") == ("c", [])


def test_an_interval_of_one_restart_has_no_end(module: ModuleType):
    played = [{"safe": [2.0] * 6, "other": [1.0] * 6}]
    ratio = module.find_ratio(played, "other", "safe")
    assert ratio == {"ratio": 0.5, "low": None, "high": None, "restarts": 1}
    assert module.tell_ratio(ratio) == "about 2.0x faster, open"
    assert module.find_ratio([*played] * 2, "other", "safe")["high"] == pytest.approx(1)
    assert module.find_ratio(played, "safe", "safe") is None


# What may be wrong with a contender.


@pytest.mark.long
def test_a_faulty_contender_is_a_line_and_the_fastest_right_one_is_taken(tmp_path: Path):
    plans = {"safe": SAFE, "slow": SLOW, "quick": QUICK, **FAULTY, "absent": {}, "changed": {}}
    packages = {"absent": ["no-such|nor-such"], "quick": ["no-such|numpy"]}
    folder = land(tmp_path / "model", plans, packages=packages, limit_s=40.0)
    with (folder / "contenders/changed/load.py").open("a") as file:
        file.write("\nprint('changed')\n")
    done = run(folder)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["chosen"] in ("quick", "safe"), "the slow one never, nor a faulty one"
    assert found["passed"] == ["safe", "slow", "quick"]
    assert found["left_out"] == {
        "absent": "no-such or nor-such isn't installed here: pip install -r requirements.txt",
        "lacks": "this CPU must have avx4096|sve9",
        "wrong": "wrong: relative L2 error 0.58 (limit 1e-05): too far off",
        "shape": "output y has the shape (2,)",
        "crash": "was ended by SIGSEGV",
        "raises": "ValueError: no\x1b[2J such model",
        "ends": "ended with exit code 7",
        "hangs": "gave no answer within 3.6 s",
        "changed": "load.py was changed after it was shipped",
    }


@pytest.mark.parametrize("case", [("other", 99, 1, "safe"), ("safe", 30, 3, "safe"), ("safe", 99, 2, "other")])
def test_a_race_with_a_late_safe_one_keeps_no_choice_but_ends(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, case: tuple[Any, ...]
):
    late, ready_s, starts, chosen = case

    def answer(player: Any, seconds: float) -> float:
        if player.name == late and seconds < ready_s:
            raise module.Late(f"not ready within {seconds:.1f} s")
        return 1e6

    methods = {"__init__": lambda player, name, _: setattr(player, "name", name), "answer": answer}
    methods |= {"ask": lambda *_: 1e6, "close": lambda _: None, "took_s": 0.0}
    monkeypatch.setattr(module, "Player", type("Player", (), methods))
    assert (module.CHECK_S, module.load("never")[0]) == (60.0, chosen)
    found = [module.find_choice("now") for _ in range(starts + 1)]
    assert [one["chosen"] for one in found] == [None] * (starts - 1) + [chosen] * 2
    assert [one["was_kept"] for one in found] == [False] * starts + [True]
    assert found[0]["late"] == {late: "not ready within 24.0 s"}
    assert module.tell_state(found[0])[0].split()[0] == ("undecided:" if starts > 1 else "open")
    reason = "only other can run here", f"there is no verdict, because {late} was not ready within 24.0 s"
    assert found[-1]["reason"] == reason[chosen == "safe"]
    assert module.load("now")[0] == chosen
    told = ("was not ready within 24.0 s", "out: not ready within 60.0 s")
    assert [line for line in caplog.messages if line.endswith(told)][-1] in caplog.messages[-2:]


def test_without_any_that_passes_each_reason_is_named(tmp_path: Path):
    folder = land(tmp_path / "model", {"wrong": FAULTY["wrong"], "raises": FAULTY["raises"]}, limit_s=20.0)
    done = run(folder)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "no contender can run here: wrong: wrong: relative L2 error 0.58 (limit 1e-05): too far off; "
        "raises: ValueError: no\\x1b[2J such model\n"
    )
    assert not list(folder.glob("choice-*")), "nothing is kept, so the next process tries again"


def test_what_fails_in_this_process_alone_gives_way_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    plans = {
        "safe": {"on_load": f"{HERE_ALONE}raise ValueError('not here')", "environment": {"OMP_OURS": "1"}},
        "other": {"environment": {"ITS": "2"}},
    }
    folder = land(tmp_path / "model", plans)
    monkeypatch.setattr(sys, "argv", ["service"])
    monkeypatch.setenv("ITS", "0")
    name, predict = open_module(folder).load("never")
    assert name == "other"
    assert predict({"x": np.ones(4, np.float32)})["y"].tolist() == [2.0] * 4
    assert ("OMP_OURS" in os.environ, os.environ["ITS"]) == (False, "2"), "the variables of the one that runs, alone"
    assert "safe isn't taken: ValueError: not here" in caplog.text


def test_what_ended_a_process_that_opened_it_gives_way_in_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv("SHOOTOUT_LANDING", str(tmp_path / "kept"))
    hang = {"on_load": f"{HERE_ALONE}print('opened', flush=True); time.sleep(1000)"}
    folder = land(tmp_path / "model", {"safe": hang, "other": {}})
    module, command = open_module(folder), [sys.executable, "-c", START, str(folder), "never"]
    key = module.machine_key()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"opened\n"
        assert module.list_ended(key) == {}, "it may end well"
        process.kill()
    assert module.load("never")[0] == "other"
    assert caplog.messages == ["safe is left out: it ended an earlier process while it was opened there"]
    assert [*module.list_ended(key)] == ["safe"], "what was opened well has left no note"


def test_a_verdict_is_kept_if_another_contender_ended_a_process(module: ModuleType, made: list[bool]):
    kept, key = Path(module.find_choice("now")["kept"]), module.machine_key()
    kept.with_name(f"{kept.stem}-1-1-safe.opening").touch()
    for mode in ("never", "now"):
        found = module.find_choice(mode)
        assert (found["chosen"], found["left_out"]) == ("other", {"safe": module.ENDED})
    assert (made, [*module.list_ended(key)]) == ([True], ["safe"])
    assert module.load("now")[0] == module.load("never")[0] == "other"


def test_of_contenders_that_all_ended_a_process_one_runs(module: ModuleType, made: list[bool]):
    kept, key = Path(module.find_choice("now")["kept"]), module.machine_key()
    kept.with_name(f"{kept.stem}-1-1-other.opening").touch()
    assert (module.find_choice("now")["chosen"], made) == ("safe", [True, True])
    assert module.find_choice("now", is_again=True)["chosen"] == "other", "it forgets the note"
    for number, name in enumerate(module.CONTENDERS):
        kept.with_name(f"{kept.stem}-1-{number}-{name}.opening").touch()
    assert [*module.list_ended(key)] == ["safe", "other"]
    assert next(module.list_passing(["other", "safe"], dict.fromkeys(module.CONTENDERS, module.ENDED), [])) == "safe"


@pytest.mark.parametrize("name", ["choose.py", "load.py", "landing.json"])
def test_a_changed_program_is_refused(planted: Path, tmp_path: Path, name: str):
    folder = Path(shutil.copytree(planted, tmp_path / "copy"))
    with (folder / name).open("a") as file:
        file.write("#\n")
    done = run(folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(name)
    assert done.stderr.endswith("was changed after it was shipped\n")
    (folder / "landing.json").write_bytes((planted / "landing.json").read_bytes()[:20])
    with pytest.raises(RuntimeError, match=r"landing\.json was changed after it was shipped"):
        runpy.run_path(str(folder / "load.py"))["load"]()


# What is kept.


@pytest.fixture
def made(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether a race was asked for, of each choice that is made: the others were kept."""
    return count_made(module, monkeypatch)


def count_made(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Let a folder's choice be the other one, without a race."""
    calls: list[bool] = []

    def make(is_raced: bool, key: Mapping[str, Any], _: object) -> Mapping[str, Any]:
        calls.append(is_raced)
        passed = [name for name in ("safe", "other") if name not in module.list_ended(key)]
        found = {"key": key, "chosen": passed[-1] if is_raced else None, "passed": passed, "left_out": {}, "open": []}
        return {**found, "late": {}, "restarts": 3, "reason": "", "made": len(calls), "kept": None, "was_kept": False}

    monkeypatch.setattr(module, "make_choice", make)
    return calls


def test_a_choice_is_kept_until_the_machine_changes(
    module: ModuleType, made: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first = module.find_choice("never")
    assert (module.find_choice("never")["chosen"], made) == (None, [False]), "its check is kept"
    found = module.find_choice("now")
    assert (found["chosen"], made) == ("other", [False, True])
    assert {module.find_choice(mode)["chosen"] for mode in ("now", "idle", "never")} == {"other"}
    assert (found["kept"], len(made)) == (first["kept"], 2)
    monkeypatch.setenv("DNNL_MAX_CPU_ISA", "AVX2")
    module.find_choice("now")
    for name, value in {"list_cpus": [1] * 99, "find_quota": 0.5, "find_version": "9"}.items():
        monkeypatch.setattr(module, name, lambda *_, value=value: value)
        module.find_choice("now")
    module.find_choice("now", is_again=True)
    assert made[2:] == [True] * 5
    assert len(list(tmp_path.glob("choice-*.json"))) == 5, "other machines' choices stay"


def test_a_contender_damaged_later_is_out_before_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    module = open_module(land(tmp_path / "model", {"safe": {}, "other": {}}))
    made, code = count_made(module, monkeypatch), tmp_path / "model/contenders/other/load.py"
    module.find_choice("now", is_command=True)
    code.write_text(code.read_text().replace("calls", "falls"))
    assert module.load("now")[0] == "safe"
    assert "other isn't taken: load.py was changed after it was shipped" in caplog.text
    module.find_choice("now", is_command=True)
    assert made == [True, True], "the command checks every file, and chooses again"


def test_a_choice_holds_for_all_cpus_of_a_kind(module: ModuleType, monkeypatch: pytest.MonkeyPatch):
    frequencies = {0: "3000000", 1: "3000000", 2: "2000000"}
    texts = {f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq": text for cpu, text in frequencies.items()}
    texts["/proc/cpuinfo"] = "\n\n".join(f"processor\t: {cpu}\nmodel name\t: A" for cpu in frequencies)
    monkeypatch.setattr(module, "read_text", lambda path: texts.get(str(path), ""))
    keys = []
    for cpus in ([0], [1], [2], [0, 1], [0, 2]):
        monkeypatch.setattr(module, "list_cpus", lambda cpus=cpus: cpus)
        keys.append(module.machine_key())
    assert keys[0] == keys[1]
    assert [keys.index(key) for key in keys] == [0, 0, 2, 3, 4]
    assert keys[4]["cpu"] == ["A 2000000", "A 3000000"]


@pytest.mark.parametrize("damage", [("other", "safe"), ("restarts", "restart"), ("{", "[")])
def test_what_another_program_changed_counts_as_none(module: ModuleType, made: list[bool], damage: tuple[str, str]):
    kept = Path(module.find_choice("now")["kept"])
    kept.write_text(kept.read_text().replace(*damage))
    assert module.find_choice("now")["chosen"] == "other"
    assert made == [True, True]


def test_a_full_disk_is_a_line(
    module: ModuleType, made: list[bool], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def write(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", write)
    assert module.find_choice("now")["kept"] is None
    assert "No space left on device" in caplog.text
    assert made == [True]
    monkeypatch.setenv("SHOOTOUT_LANDING", "/dev/null/nowhere")
    assert module.load("never")[0] == "safe", "nor can a note be written"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounts take root")
def test_where_the_folder_cannot_be_written(tmp_path: Path):
    folder, cache = land(tmp_path / "model", {"safe": {}, "raises": FAULTY["raises"]}), tmp_path / "cache"
    script = f'mount --bind {folder} {folder} && mount -o remount,ro,bind {folder} && exec "$0" "$@"'
    done = run(folder, start=("unshare", "-m", "sh", "-c", script), XDG_CACHE_HOME=str(cache))
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["chosen"], found["reason"]) == ("safe", "only safe can run here")
    assert found["kept"].startswith(str(cache))
    assert not list(folder.glob("choice*"))


def test_of_two_places_the_newer_choice_holds(
    module: ModuleType, made: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    places = [tmp_path / "choice-1.json", tmp_path / "choice-2.json"]
    for order in (places, places[::-1]):
        monkeypatch.setattr(module, "list_files", lambda _, order=order: order)
        found = module.find_choice("now", is_again=True)
        monkeypatch.setattr(module, "list_files", lambda _: places)
        assert module.find_choice("now") == {**found, "was_kept": True}


@pytest.mark.long
def test_of_two_processes_at_once_the_second_takes_the_choice_of_the_first(tmp_path: Path):
    folder = land(tmp_path / "model", {"safe": SAFE, "quick": QUICK})
    command = [sys.executable, str(folder / "choose.py"), "--json"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    one, other = (json.loads(process.communicate(timeout=240)[0]) | {"was_kept": None} for process in both)
    assert one == other, "to the hundredth of a second that it took"


def test_a_process_that_waits_too_long_takes_the_safe_one_and_the_command_says_why(
    module: ModuleType, made: list[bool], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    module.LANDING["limit_s"] = -2 * module.ANSWER_S
    with module.hold(module.machine_key(), "choice.lock") as is_first:
        assert is_first
        assert (module.load("now")[0], made) == ("safe", [False])
        assert module.main(["--json"]) == 3
        told = "another process races here: start this again once it has ended\n"
        assert (*capsys.readouterr(), made) == ("", told, [False])
        module.LANDING["limit_s"] = 600.0
        monkeypatch.setattr(module.time, "sleep", lambda _: pytest.fail("it waits for the race"))
        assert {module.find_choice(mode)["chosen"] for mode in ("never", "idle")} == {None}
    assert (module.main(["--json"]), module.load("now")[0]) == (0, "other")


# Where it runs.


def test_a_venv_in_the_folder_is_used_and_the_folder_itself_is_not(planted: Path, monkeypatch: pytest.MonkeyPatch):
    venv, ours = planted / ".venv/lib/site-packages", [planted, planted / "contenders", planted / "contenders/safe"]
    monkeypatch.setattr(sys, "path", [*map(str, ours), str(venv), "/elsewhere"])
    path = open_module(planted).PATH
    assert path == [str(venv), "/elsewhere"]


def test_a_variable_that_changes_a_library_changes_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    module = open_module(land(tmp_path / "model", {"safe": {"environment": {"OMP_NUM_THREADS": "2"}}}))
    for name in ("ONEDNN_DEFAULT_FPMATH_MODE", "JAX_PLATFORMS", "OPENBLAS_CORETYPE", "ATEN_CPU_CAPABILITY", "CUDA_X"):
        before = module.machine_key()
        monkeypatch.setenv(name, "BF16")
        assert module.machine_key()["variables"] == {**before["variables"], name: "BF16"}
    before = module.machine_key()
    monkeypatch.setenv("JAX_api_token", "s3cret")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert module.machine_key() == before, "neither a secret, nor what a contender sets itself"


def test_fewer_cpus_than_threads_get_as_many_threads(tmp_path: Path):
    module = open_module(land(tmp_path / "model", {"safe": {}}, threads=1024))
    module.THREADS = 2
    options = {"INFERENCE_NUM_THREADS": "1024", "session": {"intra_op_num_threads": 1024}, "batch": 1024}
    assert module.adapt({"threads": 1024, "affinity": 1024, "options": options}) == {
        "threads": 2,
        "affinity": 1024,
        "options": {"INFERENCE_NUM_THREADS": "2", "session": {"intra_op_num_threads": 2}, "batch": 1024},
    }


@pytest.mark.parametrize(
    ("membership", "files"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "150000 100000"}),
        ("0::/\n", {"cpu.max": "50000 100000"}),
        ("4:cpu,cpuacct:/d\n1:name=x:/d\n", {f"cpu,cpuacct/d/cpu.cfs_{name}_us": "300000" for name in V1}),
        ("4:cpu:/d\n", dict(zip((f"cpu/d/cpu.cfs_{name}_us" for name in V1), ("-1", "100000"), strict=True))),
        ("", {}),
    ],
)
def test_a_quota_is_found_as_the_product_finds_it(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, membership: str, files: dict[str, str]
):
    texts = {f"/sys/fs/cgroup/{name}": text for name, text in files.items()} | {"/proc/self/cgroup": membership}
    monkeypatch.setattr(module, "read_text", lambda path: texts.get(str(path), ""))
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text)
    assert module.find_quota() == cpu_quota(control_groups("cpu", membership, tmp_path / "groups"))


@pytest.mark.parametrize(("load", "races"), [(0.09, ["now"]), (0.11, [])])
def test_a_race_waits_until_the_machine_is_idle(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, load: float, races: list[str]
):
    asked: list[str] = []
    monkeypatch.setattr(module, "find_choice", lambda mode, is_command: asked.append(mode if is_command else ""))
    monkeypatch.setattr(module, "IDLE_S", 0.01)
    monkeypatch.setattr(module, "IDLE_MOST_S", 0.1 if not races else 60.0)
    for name, value in {"nice": 0, "cpu_count": 4, "getloadavg": (4 * load, 9.0, 9.0)}.items():
        monkeypatch.setattr(module.os, name, lambda *_, value=value: value)
    module.race_when_idle()
    assert asked == races
    with module.hold(module.machine_key(), "idle.lock"):
        module.race_when_idle()
    assert asked == races, "one such process is enough"


def test_without_what_linux_has_it_works_all_the_same(
    module: ModuleType, made: list[bool], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "fcntl", None)
    monkeypatch.delattr(module.os, "sched_getaffinity")
    monkeypatch.setattr(module, "read_text", lambda _: "")
    assert module.find_choice("now")["chosen"] == module.find_choice("now")["chosen"] == "other"
    assert (made, module.load("now")[0]) == ([True], "other")


def test_idle_takes_the_safe_one_and_starts_a_later_race(
    module: ModuleType, made: list[bool], monkeypatch: pytest.MonkeyPatch
):
    started: list[list[str]] = []
    monkeypatch.setattr(module, "start", lambda words, _, **__: started.append(words) or subprocess.Popen("true"))
    assert module.load("idle")[0] == "safe"
    assert (made, started) == ([False], [["--when-idle"]])
    module.find_choice("now")
    assert module.load("idle")[0] == "other"
    assert module.load("never")[0] == "safe"
    assert len(started) == 1
    with pytest.raises(ValueError, match=r"choose='later' is unknown: use 'now', 'idle' or 'never'"):
        module.load("later")


def test_a_program_that_holds_its_own_python_takes_the_safe_one_after_a_check(
    planted: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(sys, "executable", "/opt/app/service")
    monkeypatch.setattr(sys, "exec_prefix", "/opt/app")
    caplog.set_level(logging.INFO)
    assert open_module(planted).load("now")[0] == "safe"
    assert "safe runs: safe is the safe one, and no race was made" in caplog.text


SCREEN = """raises is left out: no\\x1b[2J
  safe    the safe one
* quick   1.9x faster (1.2 to 3.1)
  near    about 1.04x faster, open
  like    the same (within 0.8 %)
  once    about 2.0x slower, open
  absent  not raced
  late    not ready
quick is taken{}: it is
open between safe and near: python choose.py --again 60 takes a minute
kept{} in /there
"""


def test_the_screen_says_what_was_left_out_and_why_this_one_is_taken(
    module: ModuleType, capsys: pytest.CaptureFixture[str]
):
    ratios = {
        "quick": (1 / 1.9, 1 / 3.1, 1 / 1.2),
        "near": (0.96, 0.92, 1.003),
        "like": (1.002, 0.996, 1.008),
        "once": (2.0, None, None),
    }
    named = {name: dict(zip(("ratio", "low", "high"), ends, strict=True)) for name, ends in ratios.items()}
    module.CONTENDERS = dict.fromkeys(("raises", "safe", *ratios, "absent", "late"))
    found = {"chosen": "quick", "safe": "safe", "left_out": {"raises": "no\x1b[2J"}, "ratios": named, "seconds": 4.5}
    found |= {"reason": "it is", "kept": "/there", "open": ["safe", "near"], "restarts": 4}
    found |= {"late": {"late": "not ready"}, "made": time.mktime((2026, 1, 2, 3, 4, 5, 0, 0, -1)) + 0.5}
    for was_kept, told in ((False, (", after 4.5 s", "")), (True, ("", " since 2026-01-02 03:04:05"))):
        module.show({**found, "was_kept": was_kept})
        assert capsys.readouterr().out == SCREEN.format(*told)
    assert module.tell_state({**found, "open": [], "restarts": 0, "was_kept": False})[0] == "not raced"


@pytest.mark.parametrize("words", [["--again", "1"], ["--again", "9" * 999], ["--json", "60"]])
def test_an_option_that_cannot_be_taken_is_a_line(
    module: ModuleType, made: list[bool], capsys: pytest.CaptureFixture[str], words: list[str]
):
    told = f"{words[1]} can't be taken: use --json, --again or --again 60 (10 to 3600 s)\n"
    assert (module.main(words), *capsys.readouterr(), made) == (2, "", told, [])


def test_help_is_what_the_program_begins_with(module: ModuleType, made: list[bool], capsys: pytest.CaptureFixture[str]):
    assert (module.main(["--help"]), *capsys.readouterr(), made) == (0, module.__doc__, "", [])


def test_the_programs_are_as_clean_as_ours(planted: Path):
    words = ["check", "--isolated", "--select=E,F,B,I,UP,SIM,RET", "--ignore=E402,SIM300", "--line-length=120"]
    command = [sys.executable, "-m", "ruff", *words, *map(str, planted.glob("*.py"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "CHANGING_VARIABLES" not in (planted / "choose.py").read_text()


USE = """
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import load
print(load.load(), load.load("never"))
import numpy as np
with np.load(sys.argv[1] + "/contenders/onnxruntime/evidence/inputs.npz") as inputs:
    outputs = load.predict({"x": inputs["0.0"]})
with np.load(sys.argv[1] + "/contenders/onnxruntime/evidence/expected.npz") as expected:
    print(all(np.allclose(one, expected[f"{place}.0"], atol=1e-4) for place, one in enumerate(outputs.values())))
print([name for name in ("shootout", "scipy") if name in sys.modules])
"""


@pytest.mark.long
def test_real_contenders_race_and_the_choice_answers_right(tmp_path: Path):
    folder, names = tmp_path / "model", ("onnxruntime", "openvino")
    for name in names:
        place = tmp_path / name
        place.mkdir()
        take(folder, ship_target(Target(backend=name), place).shipped.folder, name)
    finish(folder, names, {name: [name] for name in names}, threads=1)
    command = [sys.executable, "-I", "-c", USE, str(folder)]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(next(folder.glob("choice-*.json")).read_text())
    *_, named, is_right, others = done.stdout.splitlines()
    assert (named, is_right, others) == (f"{found['chosen']} {found['chosen']}", "True", "[]")
    assert found["passed"] == [*names]
    assert found["ratios"]["openvino"]["restarts"] >= 2
