"""The fixture `race`: what becomes of a test by what a run says of its claim. Inner sessions run in this process."""

from __future__ import annotations

import re
import subprocess
import sys
from ast import literal_eval
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.deaf import deafen
from support.forked_workers import fork_workers
from support.onnx_made import value, write
from support.races import made

import shootout
from shootout.commands import claims
from shootout.commands.pytest import RaceFixture
from shootout.core.contract import Arm, Availability, NotRun, NotRunKind, Target
from shootout.core.journal.records import Setback
from shootout.core.study import plan
from shootout.core.worker.availability import Pair, PythonInterpreter

ROOT = Path(__file__).resolve().parents[2]
SLOW, FAST = (Arm(target=Target(backend=name), model="identity") for name in ("numpy", "onnxruntime"))
COPY = Arm(target=Target(backend="numpy"), model="identity", control=True)
OWN = ("--disable-plugin-autoload", "-p", "shootout.commands.pytest", "-p", "no:cacheprovider", "-c", "/dev/null")
RunTests = Callable[..., tuple[dict[str, int], str]]


@pytest.fixture
def run_tests(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunTests:
    """Run tests as a project with a `net.onnx` has them; return how many came out how, and what was printed.

    NumPy, ONNX Runtime and OpenVINO work there, and IREE isn't installed.
    """
    works = Availability(version="1")
    found = {"iree": Availability(why=NotRun(NotRunKind.NOT_INSTALLED, "iree isn't installed", "pip install it"))}

    def probe(pairs: Iterable[Pair], *_: object, **__: object) -> dict[Pair, Availability]:
        return {pair: found.get(pair[0], works) for pair in pairs}

    def run(body: str, *options: str) -> tuple[dict[str, int], str]:
        file = tmp_path / f"test_in_{tmp_path.name}.py"  # its module stays in this process
        file.write_text(body)
        inner = (f"--basetemp={tmp_path / 'inner'}", "--import-mode=importlib", "-rs")
        pytest.main([*OWN, *inner, *options, str(file)])
        told = capsys.readouterr().out
        counted = re.findall(r"(\d+) (passed|failed|skipped|error)", told.splitlines()[-1])
        return {what: int(count) for count, what in counted}, told

    nodes = [onnx.helper.make_node("MatMul", [f"x{at}", "w"], [f"x{at + 1}"]) for at in range(8)]
    weight, shape = np.eye(64, dtype=np.float32), ("batch", 64)
    for name in ("net.onnx", "broken.onnx"):
        write(tmp_path / name, nodes, [value("x0", shape)], [value("x8", shape)], {"w": weight})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan, "known_available", probe)
    return run


@pytest.fixture
def goals(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In place of races, runs in which ONNX Runtime is about twice as fast as NumPy, and the goal of each.

    It breaks on `broken.onnx`.
    """
    found: list[str] = []

    def measure(planned: plan.Plan, _: object, out: Path, *__: object) -> None:
        found.append(planned.study.aims_at)
        rng, lines = np.random.default_rng(1), list[Any]()
        if planned.study.model == ("broken.onnx",):
            why: Any = {"reason": "no such operator", "cause": NotRunKind.FAILED}
            lines.append(Setback(kind="failure", group=made.GROUP, arm=FAST, **why))
        for number in range(3):
            for arm, ns in ((SLOW, 2e6), (FAST, 1e6), (COPY, 2e6)):
                lines.append(made.played(arm, number, ns * np.exp(rng.normal(0.0, 0.04))))
            lines.append(made.rounds(number))
        made.write(out, made.header((SLOW, FAST, COPY)), *lines, made.ended())

    monkeypatch.setattr(claims, "measure_run", measure)
    return found


OPEN = """
def test_open(race):
    assert race("net.onnx", "onnxruntime").faster_than("numpy", by=2)
"""
CLAIMS = f"""
def test_true(race):
    assert race("net.onnx", "onnxruntime").faster_than("numpy")
    assert "faster than numpy (" in repr(race("net.onnx", "onnxruntime").faster_than("numpy", by=1.2))
    assert race("net.onnx", "numpy").same_outputs()

def test_false(race):
    assert race("net.onnx", "onnxruntime").faster_than("numpy", by=30)
{OPEN}
"""


def test_a_claim_is_true_or_false_or_skips_the_test_with_the_reason(run_tests: RunTests, goals: list[str]):
    count, told = run_tests(CLAIMS)
    assert count == {"passed": 1, "failed": 1, "skipped": 1}, told
    sentence = r"onnxruntime is 1\.9x faster than numpy \(1\.\d to 2\.\d\)"
    assert re.search(rf"^E +AssertionError: assert {sentence}, not 30x faster$", told, re.MULTILINE)
    assert re.search(rf"^{sentence}, not 30x faster\nshootout show /\S+/race0$", told, re.MULTILINE)
    told_open = r"can't tell whether onnxruntime is 2x faster .*: it is about 1\.9x .* \(shootout show /\S+/race1\)$"
    assert re.search(rf"^SKIPPED \[1\] \S+: {told_open}", told, re.MULTILINE)
    assert goals == ["baseline", "resolve 3.5%"], "one race for five claims, and a closer one for the last"


SETTING = """
def test(race):
    own = {"onnxruntime": {"session.intra_op.allow_spinning": "0"}}
    assert race("net.onnx", "onnxruntime", options=own).faster_than("numpy")
    assert race("net.onnx", "numpy", options=own).same_outputs()
"""


def test_a_setting_of_one_target_stands_beside_the_other(
    run_tests: RunTests, goals: list[str], monkeypatch: pytest.MonkeyPatch
):
    planned, plan_run = list[object](), claims.plan_run
    monkeypatch.setattr(claims, "plan_run", lambda *asked: planned.append(asked) or plan_run(*asked))
    count, told = run_tests(SETTING)
    assert (count, goals) == ({"passed": 1}, ["baseline"]), told
    assert len(planned) == 3, "one for each claim, and the race's own"


def test_what_cant_be_told_fails_under_strict(run_tests: RunTests, goals: list[str]):
    count, told = run_tests(OPEN, "--shootout-strict")
    assert (count, goals) == ({"failed": 1}, ["baseline", "resolve 3.5%"])
    assert "Failed: can't tell whether onnxruntime is 2x faster than numpy" in told


ROWS = """
import numpy as np
def test(race):
    for value in (0, 0, 1):
        np.savez("rows.npz", x0=np.full((8, 64), value, np.float32))
        assert race("net.onnx", "numpy", inputs="rows.npz").same_outputs()
"""
EXTERNAL = """
import onnx
def test(race):
    onnx.save_model(onnx.load("net.onnx"), "net.onnx", save_as_external_data=True, location="data", size_threshold=0)
    CLAIM
    open("data", "r+b").write(b"1")
    CLAIM
"""
HELPER = """
from pathlib import Path
def test(race):
    Path("net.py").write_text("import helper\\ndef make():\\n    return helper.net")
    Path("helper.py").write_text("net = 1")
    CLAIM
    Path("helper.py").write_text("net = 2")
    CLAIM
"""


@pytest.mark.parametrize(
    ("body", "model"),
    [(ROWS, ""), (EXTERNAL, "net.onnx"), (HELPER, "net.py:make")],
    ids=["rows", "weights", "helper"],
)
def test_a_model_is_raced_anew_if_a_file_of_it_changes(run_tests: RunTests, goals: list[str], body: str, model: str):
    claim = f'assert race("{model}", "numpy").same_outputs()'
    count, told = run_tests(body.replace("CLAIM", f"{claim}; {claim}"))
    assert (count, len(goals)) == ({"passed": 1}, 2), told


def test_a_target_is_raced_anew_if_the_packages_of_its_python_change(monkeypatch: pytest.MonkeyPatch):
    def name(version: str) -> object:
        other = PythonInterpreter(name="new", path="p", version="3.12", libraries={"onnxruntime": version}, lent="")
        monkeypatch.setattr(plan, "examine", lambda *_: {"new": other})
        monkeypatch.setattr(plan, "known_available", lambda *_, **__: defaultdict(lambda: Availability(version="1")))
        return claims.identify({"model": "identity", "pythons": {"new": "p"}}, ["onnxruntime@new"])

    assert name("1.20") == name("1.20") != name("1.21")


def test_what_is_wrong_is_an_error_in_one_sentence_and_never_a_skip(run_tests: RunTests, goals: list[str]):
    errors = {
        '("net.onnx", "opervino").p99_under("5ms")': "UsageError: unknown backend 'opervino': did you mean 'openvino'?",
        '("net.onnx", "iree").p99_under("5ms")': "Unavailable: iree can't run here: iree isn't installed; pip",
        '("no.onnx", "numpy").same_outputs()': "UsageError: can't read ",
        '("net.onnx", "numpy").p99_under("5")': "UsageError: p99 is '5': write a time with its unit",
        '("net.onnx", "numpy").faster_than("iree", by=0.9)': "UsageError: '0.9x faster' needs a factor above 1, such",
        '("net.onnx", "numpy", thread=2).same_outputs()': "UsageError: unknown option 'thread': did you mean 'th",
        '("net.onnx", "numpy", goal="best").same_outputs()': "UsageError: leave out goal=: the model, the targets and",
        '("net.onnx", "numpy", max_time_s=0).same_outputs()': "UsageError: max_time_s=0 leaves no time to measure",
        '("net.onnx", "numpy", max_time_s=-5).p99_under("5ms")': "UsageError: max_time_s=-5 leaves no time",
        '(type("Net", (), {"forward": 1})(), "numpy").same_outputs()': "UsageError: Net: give example inputs too: race",
        '("net.onnx", "numpy", batch=[1, 2]).same_outputs()': "UsageError: a claim is on one model at one size, and",
        '("net.onnx", "onnxruntime:cpu:*").same_outputs()': "UsageError: 'onnxruntime:cpu:*' names several targets",
        '("net.onnx", "numpy").faster_than("numpy")': "UsageError: 'numpy' is compared with itself: name another",
        '("broken.onnx", "onnxruntime").faster_than("numpy")': "ArmFailed: onnxruntime failed: no such operator; the",
        '("net.onnx", "numpy").p99_under and None': "TypeError: race('net.onnx', 'numpy').p99_under claims nothing w",
        '("net.onnx", "numpy") and None': "TypeError: race('net.onnx', 'numpy') claims nothing: add .faster_than(…)",
    }
    tests = [f"def test_{number}(race):\n    race{claim}\n" for number, claim in enumerate(errors)]
    count, told = run_tests("\n".join(tests), "-q")
    assert (count, goals) == ({"failed": len(errors)}, ["baseline"])  # of the target that breaks
    for error in errors.values():
        assert re.search(rf"^E +\S*{re.escape(error)}", told, re.MULTILINE), (error, told)
    assert "/commands/" not in told, "no line of ours"


@pytest.mark.long
def test_the_tests_of_the_page_race(run_tests: RunTests, monkeypatch: pytest.MonkeyPatch):
    deafen({}, monkeypatch.setattr)
    fork_workers(monkeypatch.setattr)
    page = (ROOT / "docs" / "pytest.md").read_text()
    (body,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    more = 'def test_false(race):\n    assert race("net.onnx", "openvino").faster_than("onnxruntime", by=1000)\n'
    count, told = run_tests(f"{body}\n{more}", "-rA")
    assert sum(count.values()) == len(re.findall("^def test", body + more, re.MULTILINE))
    assert not re.search("^E +.*Error: (?!assert )", told, re.MULTILINE), told
    assert re.search(
        r"^openvino is .* than onnxruntime.*, not 1000x faster\nshootout show /\S+/race", told, re.MULTILINE
    )


def test_a_project_without_races_imports_nothing_and_has_the_option(tmp_path: Path):
    code = (
        "import sys, pytest; pytest.main(['-q', '--help', '-p', 'shootout.commands.pytest', '-p', 'no:cacheprovider']);"
        "print([name for name in sys.modules if name.startswith('shootout')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "--shootout-strict" in done.stdout
    names = {*literal_eval(done.stdout.splitlines()[-1])}
    assert names <= {
        "shootout",
        *(f"shootout.{name}" for name in ("commands", "commands.pytest", "testing", "testing.plugin")),
    }
    assert shootout.RaceFixture is RaceFixture
