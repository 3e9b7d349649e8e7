"""A doctor's answer, as a GPU campaign finds it in its folder."""

from __future__ import annotations

import json
from pathlib import Path


def doctor(folder: Path, **works: bool) -> None:
    """A doctor's answer, in which these backends work on CUDA or don't (numpy: on the CPU only)."""
    found = [
        {
            "backend": name.replace("_", "-"),
            "device": "cpu" if name == "numpy" else "cuda",
            "availability": {"ok": ok, "reason": "" if ok else "not built for it", "fix": "" if ok else "get it"},
        }
        for name, ok in works.items()
    ]
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "logs" / "doctor.out").write_text(json.dumps({"findings": found}))
