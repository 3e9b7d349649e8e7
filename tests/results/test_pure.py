"""Results are read where nothing but the core is installed: analysing a run reaches no adapter, framework or worker.

A proposed command leaves a shipped model's defaults out, so the models' own table may be read. The facts of backends
may be, too: they are data, and tell of what wins if a folder can be made of it, and of a target that loses accuracy
which commands can look into it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        above = ("core.build", "core.race", "core.worker.worker", "apps.tune", "tell.page", "quantize")
        others = {"torch", "scipy.stats", "onnx", "transformers", "sklearn"}
        is_adapter = name.startswith("shootout.backends._") and name.count(".") > 2 and not name.endswith(".facts")
        if name in {f"shootout.{part}" for part in above} | others or is_adapter:
            raise ImportError(f"{name} is imported")

sys.meta_path.insert(0, Blocked())
from pathlib import Path

import shootout.apps.judge.analysis as analysis

print(len(analysis.analyse(Path("results/reference/batch-crossover")).rows))
"""


def test_analysing_a_run_imports_no_backend_and_no_framework():
    done = subprocess.run([sys.executable, "-c", BLOCKED], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
