"""Studies as people write them, in TOML and on the command line, and every way to get one wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.words import chosen

from shootout import studies
from shootout.core.errors import UsageError
from shootout.core.study import schema
from shootout.tell import option_values
from shootout.tell.option_values import read_seconds


def file(folder: Path, text: str, name: str = "mine.toml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


GOOD = 'model = "identity"\ntargets = ["spin"]\n'
TOY = 'model = "residual_mlp"\ntargets = ["spin"]\n'


def test_a_file_is_a_study_named_after_it(tmp_path: Path):
    found = studies.load(file(tmp_path, GOOD + "batch = [1, 8]\nthreads = 2\n"))
    assert (found.name, found.model, found.batch, found.threads) == ("mine", ("identity",), (1, 8), (2,))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('model = "identity\n', r"mine\.toml is not valid TOML: .*line 1"),
        (GOOD + "bacth = [1]\n", r"unknown key 'bacth': did you mean 'batch'\?"),
        ('model = "identity"\ntagets = ["spin"]\n', r"unknown key 'tagets': .* 'targets'\?"),
        ('model = "identity"\n', r"name what to race, by targets .* or by backend: neither is given"),
        (GOOD + 'backend = ["spin"]\n', r"name what to race, .*: both are given"),
        ('model = "identity"\ntargets = []\n', r"targets is \[\]: .*at least 1 item"),
        (GOOD + "batch = []\n", r"batch is \[\]: .*at least 1 item"),
        (GOOD + "batch = [0]\n", r"batch must be from 1 to 1048576, got 0"),
        (GOOD + "batch = [\n 1,\n 1.5\n]\n", r"batch\.1 is 1\.5: .*valid integer"),
        (GOOD + 'goal = "bset"\n', r"unknown goal 'bset': did you mean 'best'\?"),
        (GOOD + 'goal = "resolve 3"\n', r"doesn't say how closely: write 'resolve 3%'"),
        (GOOD + 'energy = "much"\n', r"energy is 'much': .*valid boolean"),
        (GOOD + "max_call_s = -1\n", r"max_call_s is -1: .*greater than or equal to 0"),
        (GOOD + "[parameters]\nd_model = []\n", r"parameters\.d_model is \[\]: .*at least 1 item"),
        (GOOD + 'name = "../up"\n', "name is '../up'"),
    ],
)
def test_a_wrong_file_is_refused_with_the_key(tmp_path: Path, text: str, says: str):
    with pytest.raises(UsageError, match=says) as caught:
        studies.load(file(tmp_path, text))
    assert "mine.toml" in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    with pytest.raises(UsageError, match=r"can't read the study file .*gone\.toml.*No such file"):
        studies.load(str(tmp_path / "gone.toml"))
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"can't read the study file .*binary\.toml"):
        studies.load(str(tmp_path / "binary.toml"))


@pytest.mark.parametrize(
    ("text", "value"),
    [("64", 64), ("-3", -3), ("0.5", 0.5), ("1e3", 1000.0), ("true", True), ("False", False), ("relu", "relu")],
)
def test_a_value_is_what_it_looks_like(text: str, value: object):
    found = option_values.parse_value(text)
    assert (found, type(found)) == (value, type(value))


def test_sets_are_axes():
    assert option_values.read_sets("--set", ["n = 1, 2", "activation=relu"]) == {"n": (1, 2), "activation": ("relu",)}


@pytest.mark.parametrize("text", ["d_model", "=3", " =3", "d_model=", "d_model=1,,2", "d_model=1,"])
def test_a_set_of_another_form_is_refused(text: str):
    with pytest.raises(UsageError, match=f"--set {re.escape(repr(text))} is not of the form key=value"):
        option_values.read_sets("--set", [text])


def test_an_option_may_hold_anything():
    assert option_values.read_options("--option", ["a.K=x=y.z", "a.L="]) == {"a": {"K": "x=y.z", "L": ""}}


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({}, 60),
        ({"goal": "resolve 3%"}, 60),
        ({"goal": "baseline"}, 20),
        ({"scenario": "throughput"}, 20),
        ({"max_restarts": 7}, 7),
    ],
)
def test_races_that_something_else_ends_may_have_more_restarts(fields: dict[str, Any], most: int):
    assert schema.checked({"name": "s", "model": "digits", "targets": ["numpy"], **fields}, "t").most_restarts == most


@pytest.mark.parametrize(
    ("text", "wanted"), [("90", 90), ("1.5s", 1.5), ("2m", 120), ("2m30s", 150), (" 1h ", 3600), ("0.1", 0.1)]
)
def test_times(text: str, wanted: float):
    assert read_seconds("--max-time", text) == wanted


@pytest.mark.parametrize("text", ["", "-5", "1d", "2 minutes", "m", "1:30", "inf", "nan", "1e3"])
def test_a_time_of_another_form_is_refused(text: str):
    with pytest.raises(UsageError, match=f"--max-time {re.escape(repr(text))} is not a time: write 90s, 2m30s or 1h"):
        read_seconds("--max-time", text)


def test_the_command_line_changes_only_what_it_names(tmp_path: Path):
    options = '[options.spin]\nwork = "5"\nmore = "1"\n[parameters]\nd_model = [1]\nn_layers = [2]\n'
    name = file(tmp_path, TOY + options)
    found = chosen(name, parameters=["d_model=3,4"], options=["spin.work=9"], batch="2,4")
    assert found.parameters == {"d_model": (3, 4), "n_layers": (2,)}
    assert found.options == {"spin": {"work": "9", "more": "1"}}
    assert (found.batch, found.targets) == ((2, 4), ("spin",))


@pytest.mark.parametrize("name", ["matmul-transfers", "nested-sin"])
def test_only_the_studies_about_the_trap_set_it(name: str):
    assert studies.load(name).unsynchronized
    assert not studies.load("shootout").unsynchronized


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"batch": "0"}, "^batch must be from 1 to 1048576, got 0"),
        ({"batch": "one"}, "--batch takes whole numbers, got 'one'"),
        ({"batch": "1,"}, "--batch takes whole numbers, got ''"),
        ({"p99_limit_ms": "5ms"}, "p99_limit_ms \\(--p99\\) is for requests .*: add scenario serve"),
        ({"scenario": "latency,sustained"}, "^scenario sustained shares its whole time .*: give it a run of its own"),
        ({"scenario": "sustained", "sustained_s": "soon"}, "^--for 'soon' is not a time"),
        ({"rate": "10/s", "scenario": "throughput"}, r"^rate \(--rate\) is for requests that arrive"),
        ({"goal": "resolve 0.1%"}, "^invalid goal 'resolve 0.1%': .*; use a value from 0.5% to 50%"),
        ({"threads": "many"}, "--threads takes whole numbers, got 'many'"),
        ({"threads": "default", "scenario": "serve"}, "^threads 'default' leaves .*scenario serve divides a number"),
    ],
)
def test_wrong_words_are_refused(asked: dict[str, str], says: str):
    with pytest.raises(UsageError, match=says):
        chosen(**asked)
