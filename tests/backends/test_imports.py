"""Nothing is imported before it is used: neither the package nor any adapter's module brings in a framework."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from support.imported import frameworks_after

from shootout.core import backends
from shootout.core.adapter import Built
from shootout.core.contract import Device, Target
from shootout.core.plugins import BACKENDS, table
from shootout.testing.checks import OURS, build_in, call, case_of, warm_of
from shootout.testing.fresh import run_fresh

OTHERS = ("onnx", "nncf", "sklearn", "scipy", "pydantic", "pyarrow", "pandas", "transformers")
LIBRARIES = {name for row in backends.shipped().values() for loaded in row.loads.values() for name in loaded}
FRAMEWORKS = LIBRARIES.union(OTHERS) - {"numpy"}
FACTS = [path.partition(":")[0] for path in table(BACKENDS).values()]
MODULES = (
    "shootout",
    "shootout.backends",
    *FACTS,
    *(row.path.partition(":")[0] for row in backends.shipped().values()),
)
STEPS = ("", *MODULES, *backends.shipped())


@cache
def imported() -> dict[str, set[str]]:
    """All steps."""
    found: dict[str, set[str]] = run_fresh(frameworks_after, sorted(FRAMEWORKS), STEPS)
    return found


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step or "nothing")
def test_importing_a_module_and_making_an_adapter_bring_in_no_framework(step: str) -> None:
    assert imported()[step] == set()


TARGETS = [
    Target(backend=name, mode=mode)
    for name, row in backends.shipped().items()
    if row.loads and row.default[0] is Device.CPU
    for mode in sorted(backends.get(name).capabilities.modes - backends.get(name).capabilities.cuda_modes)
    if not mode.endswith("*")
]
CONVERTED = ("torch-compile+aoti", "executorch", "litert")
"""Each takes seconds to build what another process loads."""
ASKED = [
    pytest.param(one, marks=[pytest.mark.long] if str(one).startswith(CONVERTED) else [], id=str(one))
    for one in TARGETS
]


def frameworks_of_a_session(made: Built) -> set[str]:
    """The frameworks in a process that loads an arm, runs it, and reads its account."""
    session = backends.get(made.arm.target.backend).load(made)
    call(session, made.exported.input_buffers()[0])
    assert session.executed.version
    return FRAMEWORKS & set(sys.modules)


@pytest.mark.parametrize("target", ASKED)
def test_an_arm_s_process_holds_its_own_library_only(target: Target, tmp_path: Path) -> None:
    """Torch.compile, for one, no longer works where torchax was imported."""
    loads = backends.entry(target.backend).loads
    made = run_fresh(build_in, case_of(target), tmp_path, warm=warm_of(target))
    warm = OURS if target.backend == "litert" else warm_of(replace(target, mode=""))  # which only its build imports
    found = run_fresh(frameworks_of_a_session, made, warm=warm)
    assert found <= {*loads[""], *loads.get(target.mode, ())}
