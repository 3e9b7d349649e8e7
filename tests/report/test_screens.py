"""Commands print of runs that ship what `screens/` holds; `make screens` writes it and the pages that show it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.console import here
from support.kept_screen import hold

from lab.claims_page import ROOT
from lab.recipes import PAGES, list_shown

RUNS = "results/reference"
"""From where the commands are typed, as the pages name them."""
SHOWN = (
    *("shootout", "decide-digits", "training", "trees", "varying-encoder", "h200-batch", "h200-bert", "sustained"),
    *("int4-digits", "resnet-quantization", "depth-sweep", "detectors"),
)
DIGITS, LOAD, TWO = f"{RUNS}/decide-digits", f"{RUNS}/decide-load", (f"{RUNS}/shootout", f"{RUNS}/shootout-intel")
COMMANDS: dict[str, list[tuple[str, ...]]] = {
    **{f"show-{run}": [("show", f"{RUNS}/{run}"), ("show", f"{RUNS}/{run}", "--full")] for run in SHOWN},
    "decide": [
        ("decide", DIGITS, "--p99", "1ms", "--min-metric", "0.95"),
        ("decide", DIGITS, "--objective", "size", "--max-drop", "1pp"),
        ("decide", LOAD, "--load", "500/s", "--p99", "2ms"),
        ("decide", f"{RUNS}/int4-digits", "--objective", "size", "--max-drop", "5pp", "--p99", "1us"),
        ("decide", *TWO, "--p99", "10ms"),
        ("decide", DIGITS, "--p99", "5ms", "--max-drop", "0.5pp"),
        ("decide", LOAD, "--objective", "cost", "--price", "0.0893"),
        ("decide", DIGITS, "--objective", "install", "--memory", "120MB", "--ready", "300ms"),
        ("decide", f"{RUNS}/shootout", "--max-error", "1%"),
        ("decide", DIGITS, "--p99", "1us"),
        ("decide", f"{RUNS}/resnet-quantization"),
        ("decide", f"{RUNS}/tune/confirmed"),
        ("decide", f"{RUNS}/sustained"),
        ("decide", f"{RUNS}/footprints"),
        ("decide", f"{RUNS}/gap-after"),
    ],
    "decide-next": [
        ("decide", f"{RUNS}/resnet-quantization", "--memory", "100MB"),
        ("decide", f"{RUNS}/resnet-quantization", "--max-error", "4.9%"),
        ("decide", f"{RUNS}/linear-precision", "--group", "linear, batch 256"),
        ("decide", f"{RUNS}/h200-bert"),
        ("decide", f"{RUNS}/mix-minilm", "--install", "200MB", "--memory", "400MB"),
        ("decide", f"{RUNS}/batch-crossover", "--group", "residual_mlp, batch 16", "--size", "1MB"),
        ("decide", f"{RUNS}/magika", "--max-error", "1%"),
        ("decide", f"{RUNS}/container-1", "--group", "residual_mlp, batch 1, threads default"),
        ("decide", f"{RUNS}/nested-sin", "--group", "nested_sin (elements=1024)"),
    ],
    "help": [
        ("--help",),
        *((name, "--help") for name in ("run", "tune", "sensitivity", "decide", "ship", "gate")),
        ("run", "--scenario", "serve", "--help"),
        ("list", "scenarios"),
    ],
    "sweep": [("show", f"{RUNS}/batch-crossover"), ("show", f"{RUNS}/frontier")],
    "compare": [("compare", f"{RUNS}/width-sweep", f"{RUNS}/runtimes-widths"), ("merge", *TWO, "-o", "both")],
    "recipes": [tuple(command.split()) for page in sorted(PAGES.glob("*.md")) for command in list_shown(page)],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_screen_is_the_one_that_is_kept(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "results").symlink_to(ROOT / "results")  # what a command writes stays in the folder
    told = []
    for words in COMMANDS[name]:
        done = here(*words, cwd=tmp_path)
        told.append(f"$ shootout {' '.join(words)}\n{done.out}{done.err}[{done.code}]\n")
    hold(name, "\n".join(told))
