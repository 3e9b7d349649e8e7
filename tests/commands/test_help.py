"""What `-h` shows: groups with what is used most first, each option once, in lines that a terminal holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.console import here

from shootout import cli
from shootout.study.options import Group, RunOptions, flags_of

COMMANDS = {one.name or one.callback.__name__: one for one in cli.app.registered_commands if one.callback}


def test_options_are_told_in_their_groups_what_is_used_most_first(tmp_path: Path) -> None:
    told = here("run", "-h", cwd=tmp_path).out
    titles = [line.removesuffix(":") for line in told.splitlines() if re.fullmatch(r"[A-Z][^<]*:", line)]
    used = {flag.group for flag in flags_of(RunOptions).values()}
    assert titles == ["Arguments", *(group for group in Group if group in used), "Examples"]
    for flag in flags_of(RunOptions).values():
        assert len(re.findall(rf"^  {flag.name}\b", told, re.MULTILINE)) == 1
        part = told.split(f"{flag.group}:")[1].split("\n\n")[0]
        assert flag.name in part


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    told = here(*command.split(), "-h", cwd=tmp_path).out
    before, _, _ = told.partition("Examples:")
    assert max(map(len, before.splitlines())) <= 80
    assert not re.search(r"\w\.\.\.", before), "a sentence was cut"


def test_each_command_has_its_group(tmp_path: Path) -> None:
    told = here("-h", cwd=tmp_path).out
    shown = re.findall(r"^  ([a-z]+) ", told.partition("Options:")[0], re.MULTILINE)
    assert set(shown) == {name for name, one in COMMANDS.items() if not one.hidden}
    assert "Commands:" not in told
