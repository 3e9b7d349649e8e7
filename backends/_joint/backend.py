"""The adapter: a call is a pass of the user's function over the pages, and the outputs are the inputs.

What the function returns is compared before (`record.score`): the race's own inputs and outputs are the identity's.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from shootout.backends._joint.parts import Program, Task
from shootout.backends.common import require_device, trial
from shootout.backends.optional import Fixture
from shootout.core.adapter import Built, check_inputs, check_options
from shootout.core.contract import (
    Arm,
    Arrays,
    Artifact,
    Availability,
    Capabilities,
    Device,
    Executed,
    Option,
    Precision,
)
from shootout.core.errors import SkippedArm

if TYPE_CHECKING:
    from shootout.core.exported.model import ExportedModel

OPTIONS = (Option(name="task", help="file that says what to call", form=".+", takes="a path"),)
FIXTURE = Fixture(model="identity", parameters={})


class JointAdapter:
    """A user's program; without the option `task`, one that does nothing."""

    name = "joint"
    fixture = FIXTURE
    capabilities = Capabilities(
        consumes=(Artifact.NONE,), targets=frozenset({(Device.CPU, Precision.FP32)}), options=OPTIONS
    )

    def probe(self, device: Device) -> Availability:
        """Check the device: all else is the user's."""
        return trial("", lambda: _probe(device))

    def build(self, exported: ExportedModel, arm: Arm, folder: Path) -> Built:
        """Check the option; there is nothing to build.

        Raises:
            ValueError: an unknown option.
            SkippedArm: none, and another model than the fixture's.
        """
        check_options(arm, OPTIONS)
        if "task" not in arm.options and exported.model != FIXTURE.model:
            raise SkippedArm("joint races programs of several models only", "shootout run app.py:read --parts …")
        return Built(arm=arm, exported=exported, folder=folder)

    def load(self, built: Built) -> JointSession:
        """Open the parts, and import the function."""
        task = built.arm.options.get("task")
        return JointSession(built.exported, Task.read(Path(task)) if task else None)


class JointSession:
    """The program in a process: its pages once for each call."""

    gpu = None

    def __init__(self, exported: ExportedModel, task: Task | None) -> None:
        self._specs, self._names = exported.inputs, [spec.name for spec in exported.outputs]
        self._pages = task.pages if task else ()
        self._read = Program(task).read if task else str

    @property
    def executed(self) -> Executed:
        """Return an account without any node: the parts' own runs have these."""
        return Executed(
            library="shootout", version=version("shootout"), device="cpu", threads=None, compute_nodes_by_precision={}
        )

    def stage(self, inputs: Arrays, slot: int) -> Arrays:  # noqa: ARG002 - the pages are files
        """Check the inputs and hand them on."""
        check_inputs(self._specs, inputs)
        return inputs

    def execute(self, staged: Arrays) -> Arrays:
        """Call the function on each page."""
        for page in self._pages:
            self._read(page)
        return staged

    def synchronize(self) -> None:
        """Do nothing: each call is done when it returns."""

    def fetch(self, raw: Arrays) -> Arrays:
        """Copy the inputs."""
        return {name: array.copy() for name, array in zip(self._names, raw.values(), strict=True)}

    def close(self) -> None:
        """Drop the program."""
        self.__dict__.pop("_read", None)


def _probe(device: Device) -> str:
    require_device(device, (Device.CPU,))
    return version("shootout")
