"""The command line from outside: exit codes, what goes to stdout and what to stderr, and what it leaves on disk."""

from __future__ import annotations

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
import typer
from onnx import helper
from support.console import SHOOTOUT, call, environment, here
from support.onnx_made import I64, value
from support.onnx_made import write as onnx_written
from support.races.made import A, B, ended, header, played, prepared, rounds, write

from shootout import cli
from shootout.commands.catalog import KINDS
from shootout.core.errors import UsageError
from shootout.core.study import plan
from shootout.testing.checks import has_gpu

ANSI = re.compile(r"\x1b")


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    return write(tmp_path / "run", header(), prepared(A), played(A, 0, 10.0), played(B, 0, 9.0), rounds(0), ended())


IMPORTED = """
import sys
sys.argv = ["shootout", *sys.argv[1:]]
from shootout.cli import main
try:
    main()
except SystemExit as stop:
    print(stop.code, sorted({name.partition(".")[0] for name in sys.modules} & {*"%s".split()}), file=sys.stderr)
"""
HEAVY = "numpy rich torch onnx onnxruntime scipy pyarrow pandas"


@pytest.mark.parametrize(
    ("words", "heavy"),
    [("-h", f"{HEAVY} pydantic"), ("--version", HEAVY), ("run --help", HEAVY)],
)
def test_help_answers_before_anything_is_imported(tmp_path: Path, words: str, heavy: str):
    done = call([sys.executable, "-c", IMPORTED % heavy, *words.split()], tmp_path)
    assert done.err.strip() == "0 []"
    assert "shootout" in done.out


def test_list_names_what_there_is(tmp_path: Path):
    done = here("list", "--json", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert set(done.data) == {*KINDS}
    assert done.data["modes"]["torch-compile"] == "+aoti, +cudagraphs (cuda)"
    assert "k-quant" in done.data["schemes"]["onnxruntime int4"]
    assert "cpu:native" in done.data["backends"]["openvino"]
    assert "spin" not in done.data["backends"], "the harness's own instruments are not for choosing"
    assert "onnxruntime" in here("list", cwd=tmp_path).out
    assert set(here("list", "models", "--json", cwd=tmp_path).data) == {"models"}
    assert here("list", "models", cwd=tmp_path).out.startswith("models\n  residual_mlp ")


def test_what_was_written_is_told_for_people_or_as_json(finished: Path):
    for words, file in (("report run -o new.md", "new.md"), ("pack run -o new.tar.gz", "new.tar.gz")):
        for_people = here(*words.split(), cwd=finished.parent)
        assert (for_people.code, for_people.out, for_people.err.partition(":")[0]) == (0, "", file)
        told = here(*words.split(), "--json", cwd=finished.parent).data
        assert told == {"file": file, "size_bytes": (finished.parent / file).stat().st_size, "runs": ["run"]}


def on_a_terminal(folder: Path, **changes: str) -> str:
    """What `show run` writes to a terminal."""
    ours, theirs = pty.openpty()
    env = environment(TERM="xterm-256color", COLUMNS="200", **changes)
    subprocess.run([*SHOOTOUT, "show", "run"], cwd=folder, env=env, stdout=theirs, stderr=theirs, check=True)
    os.close(theirs)
    text = b""
    while chunk := _read(ours):
        text += chunk
    os.close(ours)
    return text.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:  # the other end is closed and all is read
        return b""


def test_colors_are_for_terminals_and_for_those_who_want_them(finished: Path):
    color = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
    assert color.search(on_a_terminal(finished.parent))
    assert not color.search(on_a_terminal(finished.parent, NO_COLOR="1"))
    assert not ANSI.search(here("show", "run", cwd=finished.parent).out)


EACH_TO_A_CLOSED_PIPE = """
import os, sys
import shootout.commands.catalog, shootout.commands.read
from shootout.cli import main

ours, theirs = os.pipe()
os.close(ours)  # as `| head -1` does once it has its line
for words in sys.argv[1:]:
    if pid := os.fork():  # which spares each its imports, and ends as any process does
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    else:
        os.dup2(theirs, 1)
        sys.argv = ["shootout", *words.split()]
        main()
"""


def test_a_closed_pipe_ends_it_quietly(finished: Path):
    path = finished / "journal.jsonl"
    path.write_bytes(path.read_bytes() + b"x\n" * 1_000 + path.read_bytes().splitlines(keepends=True)[-1])
    commands = ["show run --json", "show run", "list"]
    done = call([sys.executable, "-c", EACH_TO_A_CLOSED_PIPE, *commands], finished.parent)
    assert done.err == ""
    assert done.out.split() == ["1"] * len(commands)


def test_a_dry_run_writes_nothing(tmp_path: Path):
    text = here("run", "--dry-run", "--backends", "numpy,numpy", "--out", "out", cwd=tmp_path)
    assert text.code == 0
    assert "numpy:cpu:fp32#2" in text.out
    assert "nothing was measured" in text.out
    data = here("run", "--dry-run", "--backends", "numpy,numpy", "--json", cwd=tmp_path)
    assert data.data["groups"][0]["restarts"] == [2, 60]
    assert data.data["groups"][0]["arms"] == ["numpy:cpu:fp32", "numpy:cpu:fp32#2", "numpy:cpu:fp32#control"]
    assert list(tmp_path.iterdir()) == []


def test_a_decoders_mask_follows_from_its_past_and_the_suggested_sizes_run(tmp_path: Path):
    inputs = [value("mask", ("batch", "past + 1"), I64), value("kv", ("batch", "past", 8))]
    nodes = [helper.make_node(kind, [name], [out]) for kind, name, out in (("Abs", "mask", "y"), ("Abs", "kv", "z"))]
    onnx_written(tmp_path / "m.onnx", nodes, inputs, [value("y", None, I64), value("z", None)])
    words = ("run", "m.onnx", "--backends", "onnxruntime", "--dry-run")
    done = here(*words, "--set", "past=32", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "as [1, 33]" in done.out
    assert "as [1, 32, 8]" in done.out
    refused = here(*words, cwd=tmp_path)
    assert refused.code == 2
    options = shlex.split(refused.err.strip().splitlines()[-1])
    assert "as [1, 129]" in here(*words, *options, cwd=tmp_path).out
    empty = here(*words, "--set", "past=0", cwd=tmp_path)
    assert (empty.code, "past=0: a size of 0 can't be measured" in empty.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("run shotout", "unknown study or model 'shotout': did you mean 'shootout'?"),
        (
            "run wonder",
            "; a study is a NAME or file.toml; a model is a NAME, file.onnx, a folder of such files, f",
        ),
        ("run net.pth", "'net.pth' holds weights and no model: export the model to ONNX"),
        ("run net.tflite", "'net.tflite' is neither a study nor a model: "),
        ("run linear --model mlp", "two models are given, 'linear' and --model mlp: pass only one of them"),
        ("run --model batch-sweep", "unknown model 'batch-sweep'"),
        ("run --backends numpy --gpu 0", "--gpu is for a GPU, and no target is on one"),
        ("run gone.toml", "can't read the study file 'gone.toml': No such file"),
        ("run --model gone.onnx", "No such file or directory; name an .onnx file that is there"),
        ("run --backends numpi", "unknown backend 'numpi': did you mean 'numpy'?"),
        ("run --backends numpy,,numpy", "target '' is not of the form"),
        ("run --backends numpy:cpu:fp99", "unknown precision 'fp99'"),
        ("run --backends numpy --baseline nmupy", "unknown backend 'nmupy': did you mean 'numpy'?"),
        ("run --backends numpy --baseline spin", "unknown baseline 'spin': known: numpy:cpu:fp32"),
        ("run --set n_layer=3", "unknown parameter 'n_layer': did you mean 'n_layers'?"),
        ("run --set n_layers", "--set 'n_layers' is not of the form"),
        ("run --batch 0", "batch must be from 1 to 1048576, got 0"),
        ("run --batch 1,1", "is asked for 2 times"),
        ("run --threads 0", "invalid threads 0: this process may use "),
        ("run --goal resolve 3%", "goal 'resolve' doesn't say how closely: write 'resolve 3%', in quotes"),
        ("run --max-time 0s", "--max-time '0s' leaves no time to measure anything"),
        ("run --max-time soon", "--max-time 'soon' is not a time"),
        ("run --option numpy=3", "--option 'numpy=3' is not of the form"),
        ("run --option onnxruntime.grph=1", "--option onnxruntime.grph=1: unknown option 'grph': "),
        ("run --option spin.work=3", "unknown backend or target in --option 'spin'"),
        ("run --inputs gone.npz", "can't read gone.npz: No such file"),
    ],
)
def test_bad_words_get_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, says: str):
    monkeypatch.setattr(plan, "known_available", lambda *_, **__: pytest.fail("backends were tried first"))
    done = here(*words.split(), "--dry-run", "--json", cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("shootout: ")
    assert says in done.err
    assert done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(has_gpu(), reason="there is a GPU")
@pytest.mark.parametrize("command", ["run --dry-run", "tune"])
def test_a_gpu_that_is_not_there_is_told_before_anything_else(tmp_path: Path, command: str):
    done = here(*command.split(), "--gpu", "3", "--json", cwd=tmp_path)
    assert (done.code, done.out) == (6, "")
    assert done.err.startswith("shootout: gpu 3: ")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("run --bacth 1", "Possible options: --batch"),
        ("run --device gpu", "No such option: --device"),
        ("show --device gpu", "No such option: --device\n"),
        ("rum", "Did you mean 'run'?"),
        ("tune linear --model mlp", "two models are given, 'linear' and --model mlp: pass only one of them"),
        ("run a.onnx b.onnx", "unexpected extra argument"),
        ("run mlp --max-drop 1%", "--max-drop is for rows of your own, and mlp has none here: give --inputs"),
        ("run mlp --inputs x.npz --rows-by y.npz", "is for a metric: add one (`shootout list metrics` shows them)"),
        ("net.onnx", "Did you mean: shootout run net.onnx"),
        ("quantization", "Did you mean: shootout run quantization"),
        ("show", "Missing argument 'RUN'"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error_with_the_nearest(tmp_path: Path, words: str, says: str):
    done = here(*shlex.split(words), cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_ctrl_c_before_anything_is_measured_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def plan(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("shootout.commands.run.make_plan", plan)
    done = here("run", cwd=tmp_path)
    assert (done.code, done.err, list(tmp_path.iterdir())) == (130, "shootout: interrupted\n", [])


@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_as_ctrl_c_does_unless_it_was_started_to_ignore_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, ignored: bool
):
    """A terminal that closes, `kill`, and Ctrl-C; nohup and a script's `… &` ignore the first or the last."""

    def plan(*_: object, **__: object) -> NoReturn:
        os.kill(os.getpid(), number)
        raise UsageError("went on")

    heard = signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, signal.SIG_IGN if ignored else heard)
    try:
        monkeypatch.setattr("shootout.commands.run.make_plan", plan)
        ended = here("run", cwd=tmp_path)
    finally:
        signal.signal(number, before)
    assert (ended.code, ended.err) == ((2, "shootout: went on\n") if ignored else (130, "shootout: interrupted\n"))


COMMANDS = {one.name or one.callback.__name__: one for one in cli.app.registered_commands if one.callback}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_first_screen_shows_sixteen_options_and_the_whole_help_each_once(tmp_path: Path, command: str) -> None:
    shown = re.compile(r"^  (?:-\w, )?(--[a-z0-9-]+)", re.MULTILINE)
    first, every = (shown.findall(here(command, word, cwd=tmp_path).out) for word in ("--help", "--help-all"))
    assert len(first) <= 16
    assert {*first} <= {*every}
    params = typer.main.get_group(cli.app).commands[command].params
    options = [max(one.opts, key=len) for one in params if one.param_type_name == "option"]
    assert "--json" in options or command == "mcp"  # whose protocol is JSON
    assert sorted(every) == sorted([*options, "--help"])


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    told = here(*command.split(), "-h", cwd=tmp_path).out
    before, _, _ = told.partition("Examples:")
    assert max(map(len, before.splitlines())) <= 80
    assert not re.search(r"\w\.\.\.", before), "a sentence was cut"


def test_the_bare_command_shows_what_to_type_with_options_that_there_are(tmp_path: Path) -> None:
    done = here(cwd=tmp_path)
    assert done.code == 0
    assert len(done.out.splitlines()) <= 15
    options = {name for one in typer.main.get_group(cli.app).commands["run"].params for name in one.opts}
    assert len(cli.STARTS) == len({*cli.STARTS.values()}) > 7
    for command in cli.STARTS.values():
        assert command in done.out
        assert {word for word in command.split() if word.startswith("--")} <= options, command
