"""A simulated gate ends on the right side, and the action gives its inputs on as words, never as code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import yaml

from lab import gates_simulated

ROOT = Path(__file__).parents[2]


def test_a_simulated_gate_ends_on_the_right_side():
    """Cheap ones: a wrong side, or a race that doesn't end at the limit, would show at once."""
    for injected, outcome in ((0.0, "pass"), (0.10, "fail")):
        ended = [
            gates_simulated.race("gaussian", 0.01, 20, injected, np.random.default_rng((7, number)))
            for number in range(5)
        ]
        assert {one for one, _ in ended} == {outcome}
        assert max(restarts for _, restarts in ended) < 20


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
        "OPTIONS": "--slower 5%\n  --size 10%\n",
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
        files = ["--fresh", "--out", "out/run", "--to", "out/gate.xml", "--to", "out/bencher.json"]
        assert done.stdout.splitlines() == [
            "gate",
            "a b$(touch x)",
            *more,
            *("--slower", "5%", "--size", "10%"),
            *files,
        ]
        assert done.returncode == 7, "a job ends as the gate does"
    assert not (tmp_path / "x").exists()
