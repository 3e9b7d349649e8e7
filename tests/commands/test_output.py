"""What commands print: a name steers no terminal, and standard output is as a command needs it."""

from __future__ import annotations

import io
import json
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table
from rich.text import Text
from support.console import SHOOTOUT, environment, here

from shootout import cli
from shootout.commands import output
from shootout.commands.output import PlainConsole, print_answer
from shootout.commands.streams import _Output
from shootout.core.errors import SkippedArm

EVIL = "a\x1b]52;c;eA==\x07\x1b[2J\x9b2J\u202eb\x00 [link=http://x]y[/link] [/] :smile: é\xa0µ"
SHOWN = "a]52;c;eA==[2J2Jb [link=http://x]y[/link] [/] :smile: é\xa0µ"


def test_no_letter_of_a_text_steers_the_terminal_and_none_is_markup():
    table = Table("name")
    table.add_row(EVIL)
    for thing in (EVIL, Text(EVIL), table):
        file = io.StringIO()
        PlainConsole(file=file, width=200).print(thing)
        assert SHOWN in file.getvalue()


def test_json_stays_json_whatever_was_measured(capsys: pytest.CaptureFixture[str]):
    print_answer("", {"a": [math.inf, {"b": (math.nan, 1.5, True, "x")}]}, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"a": [None, {"b": [None, 1.5, True, "x"]}]}


REFERENCE = Path(__file__).resolve().parents[2] / "results" / "reference"


@pytest.mark.parametrize("columns", [60, 132])
def test_a_pipe_is_as_wide_as_columns_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int):
    monkeypatch.setenv("COLUMNS", str(columns))
    for command in (("show", REFERENCE / "trees"), ("list", "metrics")):
        lines = here(*command, cwd=tmp_path).out.splitlines()
        assert columns / 2 < max(map(len, lines)) <= columns


def test_a_pipe_is_wide_where_nothing_says_otherwise(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert output.width() == 200


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def run(redirection: str, *words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command with its streams as a shell redirects them; standard error is in `err`."""
    script = f'exec "$0" "$@" {redirection}'
    return subprocess.run(
        ["sh", "-c", script, *SHOOTOUT, *words], cwd=cwd, env=environment(**variables), capture_output=True, text=True
    )


def test_an_output_that_cannot_be_written_to_is_said(tmp_path: Path):
    done = run(">/dev/full", "list", "studies", cwd=tmp_path)
    assert done.returncode == 1
    why = "No space left on device; make room there"
    assert done.stderr == f"shootout: can't write to standard output: {why}. What was measured is kept\n"


def test_a_run_goes_on_when_nothing_reads_its_progress():
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    console = PlainConsole(file=Gone())
    console.print("one")
    console.print("two")
    assert console.quiet


def test_what_the_locale_cannot_show_is_replaced():
    written = io.BytesIO()
    output = _Output(written, "ascii", is_terminal=False)
    output.write("5 µs \udcc3")
    output.flush()
    assert written.getvalue() == b"5 ?s ?"


def refuse(**_: object) -> None:
    raise SkippedArm("it can't be shipped", "name another")


@pytest.mark.parametrize(
    ("app", "code", "told"),
    [
        (
            lambda **_: "net\udcff.onnx".encode(),
            2,
            "'net\\udcff.onnx' holds bytes that aren't UTF-8: rename the file or folder",
        ),
        (refuse, 6, "it can't be shipped; name another"),
    ],
    ids=["a name that is no UTF-8", "a target that can't run"],
)
def test_an_error_is_one_line_with_its_fix(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    app: Any,
    code: int,
    told: str,
):
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        cli.main(app)
    assert (ended.value.code, capsys.readouterr().err) == (code, f"shootout: {told}\n")


def test_a_name_that_the_locale_cannot_write_is_said(tmp_path: Path):
    (tmp_path / "study.toml").write_text('model = "é.onnx"\ntargets = ["numpy"]\n', encoding="utf-8")
    done = run("", "run", "--dry-run", "study.toml", cwd=tmp_path, **ASCII)
    assert done.returncode == 2
    assert done.stderr.endswith(
        "é.onnx' can't be written in this locale's encoding, ascii: set PYTHONUTF8=1\n".replace("é", r"\xe9")
    )
