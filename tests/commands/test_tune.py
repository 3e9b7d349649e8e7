"""`shootout tune` as a command: what it gives the search, and what it prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.console import deaf_here, here

from shootout.clock import Deadline
from shootout.commands import tune
from shootout.study.options import TuneOptions, flags_of


def test_a_tuning_run_from_the_command_line(tmp_path: Path):
    words = ["tune", "--model", "identity", "--backends", "spin", "--option", "spin.work=20", "--out", "out", "--json"]
    done = deaf_here(*words, cwd=tmp_path, tune__search__MORE_TO_SEARCH=-3, tune__search__MAX_RESTARTS=1)
    assert done.code == 0, done.err
    (only,) = done.data["targets"]
    assert only["target"] == "spin:cpu:fp32"
    assert here("show", "out", "--json", cwd=tmp_path).data == done.data


def test_its_time_begins_before_it_looks_what_works_here(monkeypatch: pytest.MonkeyPatch):
    done: list[Any] = []
    monkeypatch.setattr(tune, "Deadline", lambda seconds: done.append("limit") or Deadline(seconds))
    monkeypatch.setattr(tune, "_make_search", lambda *_: done.append("search"))
    monkeypatch.setattr(tune, "read_tuning", lambda _: None)
    monkeypatch.setattr(tune.search, "tune", lambda *_, limit, **__: done.append(limit.seconds))
    progress: Any = type("Nobody", (), {"say": None})
    tune.measure_settings({"max_time_s": 20.0, "out": "out"}, progress)
    assert done == ["limit", "search", 20.0]


def test_its_help_names_no_option_that_it_lacks(tmp_path: Path):
    told = here("tune", "--help", cwd=tmp_path).out
    assert "--max-time" in told
    assert set(re.findall(r"--[a-z-]+", told)) <= {flag.name for flag in flags_of(TuneOptions).values()} | {
        "--json",
        "--help",
    }
