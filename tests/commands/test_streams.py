"""Standard output that is closed, full or of a poor locale: a sentence and an exit code, never a traceback."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import pytest
from support.console import SHOOTOUT, environment

from shootout import cli
from shootout.commands.output import PlainConsole
from shootout.commands.streams import _Output

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def run(redirection: str, *words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command with its streams as a shell redirects them; standard error is in `err`."""
    script = f'exec "$0" "$@" {redirection}'
    return subprocess.run(
        ["sh", "-c", script, *SHOOTOUT, *words], cwd=cwd, env=environment(**variables), capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("redirection", "why", "command"),
    [(">&-", "Bad file descriptor", "--version"), (">/dev/full", "No space left on device", "list studies")],
)
def test_an_output_that_cannot_be_written_to_is_said(tmp_path: Path, redirection: str, why: str, command: str):
    done = run(redirection, *command.split(), cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == f"shootout: can't write to standard output: {why}; what was measured is kept\n"


def test_without_a_standard_error_the_exit_code_is_told(tmp_path: Path):
    assert run("2>&- >&- <&-", "show", "nowhere", cwd=tmp_path).returncode == 2


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


def test_a_name_that_is_no_utf8_is_said_to_be_renamed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(cli, "app", "net\udcff.onnx".encode)
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "shootout: 'net\\udcff.onnx' holds bytes that aren't UTF-8: rename the file or folder\n"
    )


def test_a_name_that_the_locale_cannot_write_is_said(tmp_path: Path):
    (tmp_path / "study.toml").write_text('model = "é.onnx"\ntargets = ["numpy"]\n', encoding="utf-8")
    done = run("", "run", "--dry-run", "study.toml", cwd=tmp_path, **ASCII)
    assert done.returncode == 2
    assert done.stderr.endswith(
        "é.onnx' can't be written in this locale's encoding, ascii: set PYTHONUTF8=1\n".replace("é", r"\xe9")
    )
