"""A shipped folder's runner: its session is what the folder's own `load.py` gives, so what is mounted is raced.

What it answers is judged as every arm's answers are. What its runtime ran node by node was told when it was measured,
and is read from the evidence in the folder: `load.py` has no word for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from shootout.backends.common import widen
from shootout.core import backends
from shootout.core.adapter import Built
from shootout.core.contract import Arm, Arrays, Executed
from shootout.core.errors import NotRunKind, SkippedArm
from shootout.core.exported.model import ExportedModel
from shootout.core.session import Event, GpuSide, check_inputs
from shootout.models.sources.shipped_folder import LOAD, ShippedFolder, open_shipped, read_row

_NUMBERS = count()
"""Each session has a module of its own: `load.py` keeps what it loaded in its globals."""


class ShippedRunner:
    """The runner of shipped folders, which builds nothing: all lies in the folder."""

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Check the folder, and tell what was recorded of it and which packages are others here.

        Raises:
            UsageError: one of its files was changed.
        """
        shipped = open_shipped(Path(arm.target.folder))
        return Built(arm=arm, exported=exported, folder=folder, facts=_recorded_facts(shipped))

    def load(self, built: Built) -> ShippedSession:
        """Load what `load.py` loads.

        Raises:
            SkippedArm: `load.py` refuses this machine; in its own words.
        """
        folder = Path(built.arm.target.folder)
        path = folder / LOAD
        module = ModuleType(f"shootout_shipped_{next(_NUMBERS)}")
        module.__file__ = str(path)
        exec(compile(path.read_bytes(), path, "exec"), module.__dict__)  # noqa: S102 - bytecode kept of it has no hash
        try:
            module.load()
        except RuntimeError as error:
            raise SkippedArm(f"{folder.name}/{LOAD}: {error}", "", NotRunKind.UNAVAILABLE) from error
        return ShippedSession(built, module.predict)


class ShippedSession:
    """A loaded folder: a call is `predict`, from the caller's arrays to arrays that are the caller's own."""

    def __init__(self, built: Built, predict: Callable[[Arrays], Arrays]) -> None:
        self.gpu = GpuSide() if built.arm.target.device.is_gpu else None
        self._facts, self._inputs, self._target = built.facts, built.exported.inputs, built.arm.target
        self._wanted = [(spec.name, spec.shape, np.dtype(spec.dtype)) for spec in self._inputs]
        self.execute = predict  # a method of ours would be timed too
        self._narrow = any(spec.dtype == "float16" for spec in built.exported.outputs)

    @cached_property
    def executed(self) -> Executed:
        """Return the account from when the folder was made, with the version that is installed here."""
        known = {field.name for field in fields(Executed)}
        recorded = {name: value for name, value in self._facts["executed"].items() if name in known}
        here = filter(None, map(_installed_version, backends.entry(self._target.backend).distributions(self._target)))
        recorded |= {"version": next(here, recorded.get("version", "")), "threads": None}
        return Executed(**recorded)

    def stage(self, inputs: Arrays, slot: int) -> Arrays:  # noqa: ARG002 - host memory needs no slot
        """Check the inputs and hand them on; no more than a small model's own adapter spends on that."""
        for name, shape, dtype in self._wanted:
            array = inputs.get(name)
            if array is None or array.shape != shape or array.dtype != dtype:
                check_inputs(self._inputs, inputs)
        if len(inputs) != len(self._wanted):
            check_inputs(self._inputs, inputs)
        return inputs

    def synchronize(self) -> None:
        """Do nothing: `predict` is done when it returns."""

    def fetch(self, raw: Arrays) -> Arrays:
        """Return the arrays of the call."""
        return {name: widen(array) for name, array in raw.items()} if self._narrow else raw

    def profile(self, call: Callable[[], object], calls: int) -> tuple[Event, ...]:  # noqa: ARG002
        """Return nothing: `load.py` has no profiler."""
        return ()

    def close(self) -> None:
        """Drop what was loaded."""
        self.__dict__.pop("execute", None)


def _recorded_facts(shipped: ShippedFolder) -> dict[str, Any]:
    """Return the account of a folder's row, its size, and which packages are other versions here."""
    sizes = [(shipped.folder / name).stat().st_size for name in shipped.files if name.startswith("model/")]
    notes = [f"proof of what it runs: of {shipped.run}, when it was shipped", *_other_versions(shipped.versions)]
    return {"executed": {**read_row(shipped)["executed"], "artifact_bytes": sum(sizes)}, "notes": notes}


def _other_versions(versions: Mapping[str, str]) -> Iterator[str]:
    """Yield packages that are of another version here than when the arm was measured."""
    for name, measured in versions.items():
        if (here := _installed_version(name)) != measured:
            yield f"{name} {here or 'is not installed'} here, {measured} when it was shipped"


def _installed_version(package: str) -> str:
    try:
        return version(package)
    except (PackageNotFoundError, ValueError):
        return ""
