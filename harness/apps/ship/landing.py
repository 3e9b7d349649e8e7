"""Write the folder that chooses where it lands: some shipped folders side by side, and two programs that race them.

`choose.txt` and `landing_load.txt` become its own programs. All that they need to know stands in `landing.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from packaging.utils import canonicalize_name

from shootout.apps.ship.folder import requirements_text
from shootout.backends import CHANGING
from shootout.backends.shipped import CONTENDERS, LANDING, LOAD, MANIFEST, REQUIREMENTS, ShippedFolder
from shootout.core import backends
from shootout.core.exported.model import sha256
from shootout.core.host.placement import SECRET
from shootout.core.stats.verdicts import LEAST_RESTARTS, find_reach
from shootout.tell.document import Ratio

CHOOSE = "choose.py"
LANDING_SCHEMA = "shootout.landing/1"
MOST_RESTARTS = 17
"""Restarts that a race has at most."""
LIMIT_S = 10.0
"""The longest that the contenders race where they land: what a start of a service bears."""
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Hold a target that goes along.

    Attributes:
        shipped: its folder, in that of all.
        ratio: its time ÷ that of the safe one in the run; None of the safe one, which is taken without a verdict.
    """

    shipped: ShippedFolder
    ratio: Ratio | None = None

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        return self.shipped.folder.name


def name_contender(backend: str, precision: str) -> str:
    """Return the name of the folder of a runtime's contender: a folder holds one of each precision."""
    return re.sub(r"[^a-z0-9.-]+", "-", f"{backend}-{precision}".lower())


def program_text(template: str) -> str:
    """Return a program of the folder; it must know by which variables a race's outcome changes."""
    text = (_HERE / template).read_text(encoding="utf-8")
    changing = rf"(?!.*(?i:{SECRET.pattern}))(?:{CHANGING}|\w+_(ISA|CAPABILITY|CORETYPE|FEATURES))"
    return text.replace("CHANGING_VARIABLES", changing)


def write_landing(folder: Path, contenders: Sequence[Contender], floor: float) -> dict[str, Any]:
    """Write what lies beside the contenders' folders; return what `landing.json` holds.

    Args:
        contenders: the fastest first; one has no ratio.
        floor: differences up to this share could be the harness's own.
    """
    first, programs = contenders[0].shipped, {CHOOSE: "choose.txt", LOAD: "landing_load.txt"}
    packages = {name: version for one in contenders for name, version in one.shipped.versions.items()}
    for name, template in programs.items():
        (folder / name).write_text(program_text(template), encoding="utf-8")
    (folder / REQUIREMENTS).write_text(requirements_text(packages), encoding="utf-8")
    manifests = [f"{CONTENDERS}/{one.name}/{MANIFEST}" for one in contenders]
    stored = {
        "schema": LANDING_SCHEMA,
        **{name: getattr(first, name) for name in ("made_with", "run", "group")},
        "threads": first.runtime.threads,
        "limit_s": LIMIT_S,
        "floor": floor,
        **list_factors(len(contenders)),
        "safe": next(one.name for one in contenders if one.ratio is None),
        "packages": packages,
        "files": {name: sha256(folder / name) for name in (*programs, REQUIREMENTS, *manifests)},
        "contenders": [_describe(one) for one in contenders],
    }
    (folder / LANDING).write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    return stored


def list_factors(contenders: int) -> dict[str, Any]:
    """Return what the intervals of a race need of the statistics here, for 2 restarts and more.

    Returns:
        `factors`: standard errors that an interval reaches, by questions, series that lend a variance, and restarts.
        `biases`: the mean log of a variance's estimate, by restarts.
    """
    from scipy.special import digamma  # 0.1 s to import

    n = np.arange(LEAST_RESTARTS, MOST_RESTARTS + 1)
    lent, questions = range(contenders - 1), range(1, 2 * contenders - 2, 2)
    factors = {str(each): [find_reach(n, n, n, others, each).tolist() for others in lent] for each in questions}
    biases = digamma((n - 1) / 2) - np.log((n - 1) / 2)
    return {"most_restarts": MOST_RESTARTS, "factors": factors, "biases": biases.tolist()}


def _describe(one: Contender) -> dict[str, Any]:
    shipped, ratio = one.shipped, one.ratio
    return {
        "name": one.name,
        "folder": f"{CONTENDERS}/{one.name}",
        "label": shipped.arm.label,
        "precision": shipped.arm.precision,
        "packages": _packages_of(shipped),
        "ratio_to_safe": ratio and {"ratio": ratio.value, "low": ratio.low, "high": ratio.high},
    }


def _packages_of(shipped: ShippedFolder) -> list[str]:
    """Return the runtime's own packages, of several that would do with `|` between them."""
    known = {*map(canonicalize_name, shipped.versions)}
    wanted = (one.partition("[")[0] for one in backends.entry(shipped.arm.backend).installed(shipped.target))
    return [one for one in wanted if known & {*map(canonicalize_name, one.split("|"))}] or ["numpy"]
