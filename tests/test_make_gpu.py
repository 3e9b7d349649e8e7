"""`make gpu`: its races can be parsed, and each has its share of the time, whatever the others do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.main import get_command

from lab import gpu
from shootout import studies
from shootout.cli import app
from shootout.core.clock import Deadline
from shootout.core.errors import ExitCode, SkippedArm
from shootout.core.study.points import describe
from shootout.core.study.target import parse_targets

FAKE = """
import sys, time, signal, pathlib
name = sys.argv[-1].rpartition("/")[2]
with pathlib.Path("played").open("a") as file: file.write(name + "\\n")
if name == "deaf":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    time.sleep(60)
sys.exit(name == "breaks")
"""


@pytest.mark.parametrize("command", [one[-1] for one in gpu.list_races(Path("out"), Deadline(840.0))], ids=" ".join)
def test_a_race_is_a_command_that_can_be_parsed_and_has_a_gpu_in_it(command: list[str]):
    words = command[command.index("run") :]
    get_command(app).commands["run"].make_context("run", words[1:])
    assert words[1] in studies.names()
    targets = [one for text in words[words.index("--backends") + 1].split(",") for one in parse_targets(text, describe)]
    assert "cuda" in {str(target.device) for target in targets}


def test_a_race_that_breaks_or_hangs_costs_no_other_and_all_is_packed(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gpu, "require_gpu", lambda: None)
    monkeypatch.setattr(gpu, "SHOOTOUT", (sys.executable, "-c", FAKE))
    monkeypatch.setattr(gpu, "RACES", "1 breaks: a\nx\n1 deaf: b\nx\n1 works: c\nx\n")
    monkeypatch.setattr(gpu, "LEAST_S", 0)
    monkeypatch.setattr(gpu, "GRACE_S", 1)
    monkeypatch.setenv("GPU_MINUTES", "0.1")
    gpu.main()
    assert Path("played").read_text().split() == ["breaks", "deaf", "works", "gpu.tar.gz"]


def test_without_a_gpu_nothing_is_begun(monkeypatch, capsys):
    def lacks() -> None:
        raise SkippedArm("no NVIDIA driver", "install it")

    monkeypatch.setattr(gpu, "require_gpu", lacks)
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert ended.value.code == ExitCode.UNAVAILABLE
    assert capsys.readouterr().err == "no NVIDIA driver; install it\n"
