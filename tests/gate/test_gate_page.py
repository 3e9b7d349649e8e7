"""The page on gates tells what was simulated, and the action gives its inputs on as words, never as code."""

from __future__ import annotations

import json
import subprocess
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from bench.gate import simulated

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "gate.md").read_text()
FOUND = json.loads((ROOT / "results" / "reference" / "gate.json").read_text())
(ROWS,) = FOUND["sections"]["gates-simulated"]["tables"].values()


def line(noise: str, sd: float, rows: list[dict[str, Any]]) -> str:
    """The page's line on one noise: of as fast ones undecided, of slower ones red, by generations."""
    cells = []
    for _, pair in groupby(rows, lambda row: row["generations in time"]):
        same, slower = sorted(pair, key=lambda row: row["slower by"])
        told = [f"{100 * share:.1f}".removesuffix(".0") for share in (same["undecided"], slower["red"])]
        marks = "" if same["keeps the bars"] and slower["keeps the bars"] else " ✗"
        cells.append(f"{told[0]} % · {told[1]} %{marks}")
    return f"| {noise} | {sd:.0%} | {' | '.join(cells)} |"


def test_the_page_tells_what_was_simulated():
    for (noise, sd), rows in groupby(ROWS, lambda row: (row["noise"], row["SD"])):
        assert line(noise, sd, list(rows)) in PAGE
    same = [row for row in ROWS if row["slower by"] == 0.0]
    reds = sum(row["red"] * row["runs"] for row in same)
    assert f"{reds:.0f} of {sum(row['runs'] for row in same):,} candidates that are as fast" in PAGE
    assert {row["SD"] for row in ROWS} == {*simulated.SDS}


def test_a_simulated_gate_ends_as_the_file_says():
    """Cheap ones: a wrong side, or a race that doesn't end at the limit, would show at once."""
    for injected, outcome in ((0.0, "pass"), (0.10, "fail")):
        ended = [
            simulated.race("gaussian", 0.01, 20, injected, np.random.default_rng((7, number))) for number in range(5)
        ]
        assert {one for one, _ in ended} == {outcome}
        assert max(generations for _, generations in ended) < 20


def test_the_action_s_inputs_are_words_and_no_code(tmp_path: Path):
    action = yaml.safe_load((ROOT / ".github" / "actions" / "gate" / "action.yml").read_text())
    (step,) = action["runs"]["steps"]
    assert "${{" not in step["run"]
    assert set(step["env"].values()) == {f"${{{{ inputs.{name} }}}}" for name in action["inputs"]}
    command = tmp_path / "shootout"
    command.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 7\n')
    command.chmod(0o755)
    given = {
        "REFERENCE": "a b$(touch x)",
        "OPTIONS": "--slower 5% --size 10%",
        "SHOOTOUT": str(command),
        "OUT": "out",
        "CANDIDATE": "",
    }
    for candidate, more in (("", []), ("new model.onnx", ["--candidate", "new model.onnx"])):
        done = subprocess.run(
            ["/bin/bash", "-e", "-o", "pipefail", "-c", step["run"]],
            env={**given, "CANDIDATE": candidate},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        files = ["--out", "out/run", "--to", "out/gate.xml", "--to", "out/bencher.json"]
        assert done.stdout.splitlines() == [
            "gate",
            "a b$(touch x)",
            *more,
            *("--slower", "5%", "--size", "10%"),
            *files,
        ]
        assert done.returncode == 7, "a job ends as the gate does"
    assert not (tmp_path / "x").exists()
