"""Count what a folder chooses where it lands if one contender is slow by so much, and one as fast as the safe one.

    python -m lab.planted_landing [50]

The contenders multiply matrices with NumPy, so that their times have the noise of the machine: the safe one, one that
makes 15 % more products and one that makes 30 % fewer, one like the safe one, and one that is quick and wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.support.landing import land

PRODUCTS = {"safe": 20, "slow": 23, "quick": 14, "like": 20, "wrong": 10}
CALL = "import numpy as np; a = np.ones((64, 64), 'f4'); [a @ a for _ in range({})]"
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
SETS = {"one is slow": ("safe", "slow", "like", "wrong"), "one is quick": ("safe", "slow", "quick", "wrong")}


def make_folder(folder: Path, names: tuple[str, ...]) -> Path:
    """Write a folder of these contenders, which decide within the 10 s of a shipped one."""
    answers = {"wrong": {"answer": "{'y': 3 * inputs['x']}"}}
    plans = {
        name: {"on_call": CALL.format(PRODUCTS[name]), "environment": ONE_THREAD, **answers.get(name, {})}
        for name in names
    }
    return land(folder, plans, limit_s=10.0)


def main(times: int) -> None:
    """Choose so often afresh in each folder; print how often each contender was taken, and the seconds."""
    with tempfile.TemporaryDirectory() as temporary:
        for title, names in SETS.items():
            folder = make_folder(Path(temporary) / title, names)
            command = [sys.executable, "-I", str(folder / "choose.py"), "--again", "--json"]
            chosen, seconds = Counter[str](), []
            for _ in range(times):
                found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                chosen[found["chosen"]] += 1
                seconds.append(found["seconds"])
            middle, most = sorted(seconds)[times // 2], max(seconds)
            print(f"{title}: {dict(chosen)} of {times}; {middle:.1f} s, {most:.1f} s at most")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
