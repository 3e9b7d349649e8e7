"""Studies as people write them, in TOML and on the command line, and every way to get one wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shootout import study
from shootout.commands import Asked, seconds
from shootout.errors import UsageError


def file(folder: Path, text: str, name: str = "mine.toml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


GOOD = 'model = "identity"\ntargets = ["spin"]\n'


def test_every_study_that_ships_can_be_read():
    assert set(study.names()) == {
        "shootout",
        "digits",
        "quantization",
        "efficientnet-quantization",
        "bert-quantization",
        "calibration-sweep",
    }
    assert all(study.names().values()), "each says what it is for"


def test_a_file_is_a_study_named_after_it(tmp_path: Path):
    found = study.load(file(tmp_path, GOOD + "batch = [1, 8]\nthreads = 2\n"))
    assert (found.name, found.model, found.batch, found.threads) == ("mine", ("identity",), (1, 8), 2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('model = "identity\n', r"mine\.toml is not valid TOML: .*line 1"),
        (GOOD + "batch = [1\n", r"mine\.toml is not valid TOML: "),
        (GOOD + "bacth = [1]\n", r"unknown key 'bacth': did you mean 'batch'\?"),
        ('model = "identity"\n', r"mine\.toml: targets is .*: Field required"),
        ('model = "identity"\ntargets = []\n', r"targets is \[\]: .*at least 1 item"),
        (GOOD + "batch = []\n", r"batch is \[\]: .*at least 1 item"),
        (GOOD + "batch = [0]\n", "batch must be from 1 to 1048576, got 0"),
        (GOOD + "batch = [1.5]\n", r"batch\.0 is 1\.5: .*valid integer"),
        (GOOD + 'batch = ["one"]\n', r"batch\.0 is 'one': .*valid integer"),
        (GOOD + "max_generations = 0\n", "max_generations is 0: .*greater than or equal to 1"),
        (GOOD + "[parameters]\nd_model = []\n", r"parameters\.d_model is \[\]: .*at least 1 item"),
        (GOOD + 'name = "../up"\n', "name is '../up'"),
        (GOOD + 'name = ".."\n', "name is '..'"),
        (GOOD + 'name = ""\n', "name is ''"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path, text: str, says: str):
    with pytest.raises(UsageError, match=says) as caught:
        study.load(file(tmp_path, text))
    assert "mine.toml" in str(caught.value)


@pytest.mark.parametrize("name", ["shotout", "../studies/shootout", "shoot out", ""])
def test_an_unknown_study_is_refused(name: str):
    with pytest.raises(UsageError, match=f"unknown study {re.escape(repr(name))}: .*known: .*digits, .*shootout"):
        study.load(name)


def test_the_nearest_study_is_named():
    with pytest.raises(UsageError, match="did you mean 'shootout'"):
        study.load("shotout")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    with pytest.raises(UsageError, match=r"can't read the study file .*gone\.toml.*No such file"):
        study.load(str(tmp_path / "gone.toml"))
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"can't read the study file .*binary\.toml"):
        study.load(str(tmp_path / "binary.toml"))


@pytest.mark.parametrize(
    ("text", "value"),
    [("64", 64), ("-3", -3), ("0.5", 0.5), ("1e3", 1000.0), ("true", True), ("False", False), ("relu", "relu")],
)
def test_a_value_is_what_it_looks_like(text: str, value: object):
    found = study.parse_value(text)
    assert (found, type(found)) == (value, type(value))


def test_sets_are_axes():
    assert study.parse_sets(["n = 1, 2", "activation=relu"]) == {"n": (1, 2), "activation": ("relu",)}


@pytest.mark.parametrize("text", ["d_model", "=3", " =3", "d_model=", "d_model=1,,2", "d_model=1,"])
def test_a_set_of_another_form_is_refused(text: str):
    with pytest.raises(UsageError, match=f"--set {re.escape(repr(text))} is not of the form key=value"):
        study.parse_sets([text])


@pytest.mark.parametrize("text", ["work=3", "spin.work", ".work=3", "spin.=3", "spin"])
def test_an_option_of_another_form_is_refused(text: str):
    with pytest.raises(UsageError, match=r"is not of the form backend\.KEY=value"):
        study.parse_options([text])


def test_an_option_may_hold_anything():
    assert study.parse_options(["a.K=x=y.z", "a.L="]) == {"a": {"K": "x=y.z", "L": ""}}


@pytest.mark.parametrize(("text", "wanted"), [("90", 90), ("1.5s", 1.5), ("2m", 120), (" 1h ", 3600), ("0s", 0)])
def test_times(text: str, wanted: float):
    assert seconds(text) == wanted


@pytest.mark.parametrize("text", ["", "-5", "1d", "2 minutes", "m", "1:30", "inf", "nan", "1e3"])
def test_a_time_of_another_form_is_refused(text: str):
    with pytest.raises(UsageError, match=f"--max-time {re.escape(repr(text))} is not a time: write 90s, 2m or 1h"):
        seconds(text)


def test_the_command_line_changes_only_what_it_names(tmp_path: Path):
    options = '[options.spin]\nwork = "5"\nmore = "1"\n[parameters]\na = [1]\nb = [2]\n'
    name = file(tmp_path, GOOD + options)
    found = Asked(study=name, sets=("a=3,4",), options=("spin.work=9",), batch="2,4").chosen()
    assert found.parameters == {"a": (3, 4), "b": (2,)}
    assert found.options == {"spin": {"work": "9", "more": "1"}}
    assert (found.batch, found.targets) == ((2, 4), ("spin",))


def test_another_model_starts_without_the_old_ones_parameters(tmp_path: Path):
    name = file(tmp_path, GOOD + "[parameters]\na = [1]\n")
    assert Asked(study=name, model="digits", sets=("c=1",)).chosen().parameters == {"c": (1,)}


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (Asked(batch="0"), "the request: batch must be from 1 to 1048576, got 0"),
        (Asked(batch="-8"), "batch must be from 1 .*got -8"),
        (Asked(batch="99999999999999999999"), "batch must be from 1 .*got 99999999999999999999"),
        (Asked(batch="one"), "--batch takes whole numbers, got 'one'"),
        (Asked(batch=""), "--batch takes whole numbers, got ''"),
        (Asked(batch="1,"), "--batch takes whole numbers, got ''"),
        (Asked(threads="many"), "--threads takes whole numbers, got 'many'"),
    ],
)
def test_wrong_words_are_refused(asked: Asked, says: str):
    with pytest.raises(UsageError, match=says):
        asked.chosen()
