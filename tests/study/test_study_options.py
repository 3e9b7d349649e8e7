"""Options are declared once: the command line, Python and a study agree on them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import get_type_hints

import pytest

import shootout
from shootout import cli
from shootout.commands import selection
from shootout.core.errors import UsageError
from shootout.core.study.schema import Study, study_options
from shootout.tell.option_values import read_milliseconds, read_positive
from shootout.tell.study_options import (
    RATE,
    GateOptions,
    RunOptions,
    SensitivityOptions,
    TuneOptions,
    flags_of,
    read_words,
)


def test_what_is_no_key_of_a_study_is_how_to_run_it():
    how = {"policy", "gpu", "max_time_s", "out", "fresh", "trace", "strict"}
    rows = {"texts", "images", "data", "target", "parts"}  # of which readers, or a program, make a study
    assert {*flags_of(RunOptions)} - {*Study.model_fields, *study_options()} == {"backends", *how, *rows}


@pytest.mark.parametrize("table", [RunOptions, TuneOptions, GateOptions, SensitivityOptions])
def test_no_two_options_have_one_flag_and_each_has_its_help(table: type):
    flags = flags_of(table)
    assert list(flags) == list(get_type_hints(table)), "an option without a flag"
    names = [flag.name for flag in flags.values()]
    assert len(set(names)) == len(names)
    told = {option.flag for option in study_options().values()}  # by the scenario that has it
    assert all(bool(flag.help) is not (flag.name in told) for flag in flags.values())


@pytest.mark.parametrize(
    ("command", "front", "own"),
    [
        ("run", shootout.run, {"study", "dry_run", "full", "as_json", "to", "on"}),
        ("tune", shootout.find_settings, {"chosen", "as_json"}),
    ],
)
def test_python_takes_what_the_command_line_takes(command: str, front: object, own: set[str]):
    (registered,) = [one for one in cli.app.registered_commands if one.name == command]
    offered = set(inspect.signature(registered.callback).parameters) - own
    (table,) = get_type_hints(front)["options"].__args__
    assert set(get_type_hints(table)) == offered


def test_words_that_are_not_given_change_nothing():
    assert read_words(RunOptions, {"model": None, "energy": False, "parameters": [], "batch": "1,2"}) == {
        "batch": (1, 2)
    }


def test_python_may_give_one_value_or_several_and_paths_as_paths():
    one = selection.choose("shootout", {"batch": 8, "scenario": "throughput", "parameters": {"d_model": 64}})
    assert (one.batch, one.scenario, one.parameters["d_model"]) == ((8,), ("throughput",), (64,))
    several = selection.choose("shootout", {"batch": [1, 8], "threads": [1, 2], "inputs": Path("x.npz")})
    assert (several.batch, several.threads, several.inputs) == ((1, 8), (1, 2), "x.npz")
    with pytest.raises(UsageError, match="backends takes a list of targets, got the text 'numpy'"):
        selection.choose("shootout", {"backends": "numpy"})


def test_an_option_that_there_is_not_is_refused():
    with pytest.raises(UsageError, match="unknown option 'bacth': did you mean 'batch'"):
        shootout.plan(bacth=1)  # type: ignore[call-arg]


def test_rates_and_limits_as_people_write_them() -> None:
    assert [RATE.read("--rate", text) for text in ("200/s", "0.5/s", "7")] == [200.0, 0.5, 7.0]
    assert [read_milliseconds("--p99", text) for text in ("5ms", "800us", "1s")] == [5.0, 0.8, 1000.0]
    assert read_positive("--instances", "1, 2") == (1, 2)


@pytest.mark.parametrize(
    ("parse", "text", "fix"),
    [
        (RATE.read, "200/min", "write a rate with its unit as 200/s"),
        (RATE.read, "0", "more than 0"),
        (read_milliseconds, "5", "write a time with its unit as 5ms"),
        (read_positive, "1,x", "of the form 1,2"),
        (read_positive, "0", "whole numbers from 1 on"),
    ],
)
def test_what_can_not_be_read_says_how(parse: Callable[[str, str], object], text: str, fix: str) -> None:
    with pytest.raises(UsageError, match=fix) as error:
        parse("--flag", text)
    assert repr(text) in str(error.value)
