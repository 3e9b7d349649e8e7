"""Search ten releases of ONNX Runtime and of OpenVINO on two models each: `python -m lab.bisect_real [MINUTES]`.

Each search is the command that a user types. Its JSON and its text for an issue go to results/reference/bisect/.
The same command goes on where it stopped.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from lab.common import say
from shootout.tell.formats import json_text

FOLDER = Path("results/reference/bisect")
RELEASES = {
    "onnxruntime": "1.18.1,1.19.2,1.20.1,1.21.1,1.22.1,1.23.2,1.24.4,1.26.0,1.28.0,1.31.1",
    "openvino": "2024.0.0,2024.3.0,2024.6.0,2025.0.0,2025.2.0,2025.3.0,2025.4.1,2026.0.0,2026.2.1,2026.4.1",
}
MODELS = {"efficientnet": (), "bert": ("--set", "layers=2", "--set", "tokens=64")}
"""Models, and their options."""


def search(package: str, model: str, minutes: float) -> None:
    """Search, and keep the answer."""
    name = f"{package}-{model}"
    out = Path("build/bisect") / name
    command = ["bisect", package, RELEASES[package], "--model", model, *MODELS[model], "--json"]
    command += ["--out", str(out), "--max-time", f"{minutes:g}m"]
    say(f"shootout {' '.join(command)}")
    program = [sys.executable, "-c", "from shootout.cli import main; main()"]
    ended = subprocess.run([*program, *command], stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode in (0, 7):
        answer = json.loads(ended.stdout)
        answer["environments"] = {
            release: {"packages": made["packages"], "size_bytes": made["size_bytes"]}
            for release, made in answer["environments"].items()
        }
        (FOLDER / f"{name}.json").write_text(json_text(answer), encoding="utf-8")
        issue = out / "issue.md"
        if issue.exists():
            (FOLDER / f"{name}.md").write_text(issue.read_text(encoding="utf-8"), encoding="utf-8")
        say(answer["sentence"])


def main() -> None:
    """Run all four, each for at most so many minutes: five unless given."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for package in RELEASES:
        for model in MODELS:
            search(package, model, minutes)


if __name__ == "__main__":
    main()
