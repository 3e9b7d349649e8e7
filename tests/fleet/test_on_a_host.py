"""`run --on` and `ship --on` as a user has them, on a board without torch and converters; its network is a stand-in."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support.console import TESTS

from shootout.apps.judge.analysis import analyse
from shootout.backends.shipped import open_shipped
from shootout.commands import fleet
from shootout.commands.fleet import find_runs, run_on_fleet, ship_there
from shootout.core.errors import ExitCode, UsageError
from shootout.core.journal import journal
from shootout.core.journal.folder import DELIVERY

ABSENT = (
    "torch",
    "torchao",
    "torchax",
    "litert_torch",
    "litert_converter",
    "ai_edge_quantizer",
    "onnx2fx",
    "onnx",
    "jax",
)
"""What makes exports and builds, which a board needs none of."""
LACKS = f"""
from functools import partial
from importlib.machinery import PathFinder
find = PathFinder.find_spec
def find_present(name, *where):
    return None if name.partition(".")[0] in {ABSENT} else find(name, *where)
PathFinder.find_spec = partial(find_present)  # which pytest's own class would bind otherwise
"""
SSH = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift 2\nexec sh -c "$*"\n'


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a host with a cache of its own, whose Python lacks what `ABSENT` names."""
    lacks, binaries = tmp_path / "lacks", tmp_path / "bin"
    for folder in (lacks, binaries):
        folder.mkdir()
    (lacks / "sitecustomize.py").write_text(LACKS)
    (binaries / "ssh").write_text(SSH)
    there = f"PYTHONPATH={lacks}:{TESTS} SHOOTOUT_CACHE={tmp_path / 'there'}"
    (binaries / "python").write_text(f'#!/bin/sh\nexport {there}\nexec {sys.executable} "$@"\n')
    for path in (binaries / "ssh", binaries / "python"):
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{binaries}:{os.environ['PATH']}")
    monkeypatch.setattr(fleet, "NODE", "support.fleets.deaf_board")
    return f"ssh://board{binaries / 'python'}"


@pytest.mark.long
def test_a_board_measures_what_was_built_here_and_ships_it(
    board: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "runs"
    options: Any = {
        "backends": ["litert", "numpy", "torch-eager"],
        "parameters": {"d_model": [16], "n_layers": [1]},
        "max_restarts": 1,
        "out": out,
    }
    code = run_on_fleet("residual_mlp", options, address=board, dry_run=False, full=False, as_json=True)
    assert code == ExitCode.UNAVAILABLE, "the board has no torch"
    (part,) = find_runs(out)
    document = analyse(part)
    rows = {row.backend: row for row in document.rows}
    outcomes = {"litert": "measured", "numpy": "measured", "torch-eager": "skipped"}
    assert {name: row.outcome for name, row in rows.items()} == outcomes
    assert rows["torch-eager"].reason == "torch is not installed"
    assert any(note.startswith("built on ") and note.endswith(", and sent") for note in rows["litert"].notes)
    assert not any("and sent" in note for note in rows["numpy"].notes), "built there, from what was exported here"
    assert journal.read(part).header.on == board
    delivered = json.loads((part / DELIVERY).read_text())
    assert len(delivered["builds"]) == 2, "litert's, and its probe's"
    assert json.loads(capsys.readouterr().out)["rows"]

    model = tmp_path / "model-1"
    assert ship_there(board, part, model, target="litert", policy=None, group=None) == 0
    assert open_shipped(model).arm.backend == "litert"
    assert (model / "check.py").is_file()
    with pytest.raises(UsageError, match="already exists"):
        ship_there(board, part, model, target="litert", policy=None, group=None)
