"""Whatever a name holds, it is shown as it is written and steers no terminal."""

from __future__ import annotations

import io
import json
import math

import pytest
from rich.table import Table
from rich.text import Text

from shootout.commands.output import PlainConsole, print_answer
from shootout.errors import printable

EVIL = "a\x1b]52;c;eA==\x07\x1b[2J\x9b2J\u202eb\x00 [link=http://x]y[/link] [/] :smile: é\xa0µ"
SHOWN = "a]52;c;eA==[2J2Jb [link=http://x]y[/link] [/] :smile: é\xa0µ"


def test_no_letter_of_a_text_steers_the_terminal_and_none_is_markup():
    table = Table("name")
    table.add_row(EVIL)
    for thing in (EVIL, Text(EVIL), table):
        file = io.StringIO()
        PlainConsole(file=file, width=200).print(thing)
        assert SHOWN in file.getvalue()


def test_our_own_styles_stay():
    file = io.StringIO()
    PlainConsole(file=file, width=80, force_terminal=True, color_system="standard").print(Text("good", style="bold"))
    assert file.getvalue() == "\x1b[1mgood\x1b[0m\n"


def test_lines_of_an_error_stay_lines():
    assert printable("one\ntwo\x1b[31m\r") == "one\ntwo[31m"


def test_json_stays_json_whatever_was_measured(capsys: pytest.CaptureFixture[str]):
    print_answer("", {"a": [math.inf, {"b": (math.nan, 1.5, True, "x")}]}, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"a": [None, {"b": [None, 1.5, True, "x"]}]}
