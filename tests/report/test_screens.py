"""Commands print of runs that ship what `screens/` holds; `SCREENS=write` writes it again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.console import here

from lab.claims_page import RUNS

KEPT = Path(__file__).parent / "screens"
SHOWN = (
    *("shootout", "decide-digits", "training", "trees", "varying-encoder", "h200-batch", "sustained"),
    *("int4-digits", "resnet-quantization", "depth-sweep", "detectors"),
)
COMMANDS = {
    **{f"show-{run}": [("show", run), ("show", run, "--full")] for run in SHOWN},
    "decide": [
        ("decide", "decide-digits", "--p99", "1ms", "--min-metric", "0.95"),
        ("decide", "decide-digits", "--objective", "size", "--max-drop", "1pp"),
        ("decide", "decide-load", "--load", "500/s", "--p99", "2ms"),
        ("decide", "int4-digits", "--objective", "size", "--max-drop", "5pp", "--p99", "1us"),
        ("decide", "shootout", "shootout-intel", "--p99", "10ms"),
    ],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_screen_is_the_one_that_is_kept(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "100")
    told = []
    for words in COMMANDS[name]:
        done = here(*words, cwd=RUNS)
        told.append(f"$ shootout {' '.join(words)}\n{done.out}{done.err}[{done.code}]\n")
    text, kept = "\n".join(told), KEPT / f"{name}.txt"
    if os.environ.get("SCREENS") == "write":
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(text, encoding="utf-8")
    assert text == kept.read_text(encoding="utf-8"), "read the difference, then write it by SCREENS=write"
