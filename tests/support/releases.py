"""Releases of a runtime that doesn't exist, `fakert`: from a known one on they sleep, allocate, err or import slowly.

Each release is a folder as a wheel unpacks to, beside the adapter of a third party, and has an interpreter of its own:
a script that starts this Python with NumPy and that folder. The noise between processes is the fake's own: each
process draws its factor from a seed, the release and how many processes of it there were.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from shootout.apps.bisect.bisection import Asked, Bisection
from shootout.apps.bisect.releases import Environment, Environments
from shootout.apps.bisect.search import Found, Skipped
from shootout.commands import bisect
from shootout.commands.output import show_progress
from shootout.core.clock import Deadline

from .adapters.third_party import install

PACKAGE = '''
"""A fake runtime: hands inputs back after a while."""
import math, os, random, time
from pathlib import Path

__version__, KIND, FACTOR, SD, SEED, BASE = {release!r}, {kind!r}, {factor!r}, {sd!r}, {seed!r}, {base!r}


def _draw():
    """Draw this process's factor, and count the process."""
    with (Path(__file__).parent / "processes").open("a+") as file:
        file.write(".")
        file.flush()
        number = file.tell()
    return random.Random(f"{{SEED}} {{__version__}} {{number}}")


RNG = _draw()
NOISE = math.exp(RNG.gauss(0, SD))
if KIND == "ready":
    time.sleep(BASE * FACTOR * NOISE)


class Model:
    """Sleep in a call, hold memory, or err in a share of calls."""

    def __init__(self):
        self.held = bytearray(b"1") * int(BASE * FACTOR * NOISE) if KIND == "memory" else b""

    def run(self, inputs):
        if KIND == "time":
            time.sleep(BASE * FACTOR * NOISE)
        errs = KIND == "outputs" and FACTOR > 1 and RNG.random() < BASE
        return {{name: array * 1.01 if errs else array for name, array in inputs.items()}}
'''
BASES = {"time": 1e-3, "ready": 0.15, "memory": 60e6, "outputs": 1.0}
"""Seconds of a call or of an import, bytes, and the share of calls that err; of the good releases, but for that."""
ADAPTER = '''
"""The adapter of a third party."""
from importlib.metadata import version

from shootout.backends.common import trial
from shootout.core.adapter import Built, check_inputs, check_options
from shootout.core.contract import Artifact, Capabilities, Device, Executed, Precision


class FakeAdapter:
    name = "fakert"
    capabilities = Capabilities(consumes=(Artifact.NONE,), targets=frozenset({(Device.CPU, Precision.FP32)}))

    def probe(self, device):
        return trial("", lambda: version("fakert"), fix="pip install fakert")

    def build(self, exported, arm, folder):
        check_options(arm, self.capabilities.options)
        return Built(arm=arm, exported=exported, folder=folder)

    def load(self, built):
        import fakert

        return FakeSession(built.exported, fakert.Model())


class FakeSession:
    gpu = None

    def __init__(self, exported, model):
        self._exported, self._model = exported, model

    @property
    def executed(self):
        return Executed(
            library="fakert", version=version("fakert"), device="cpu", threads=None, compute_nodes_by_precision={}
        )

    def stage(self, inputs, slot):
        check_inputs(self._exported.inputs, inputs)
        return inputs

    def execute(self, staged):
        return self._model.run(staged)

    def synchronize(self):
        pass

    def fetch(self, raw):
        return {spec.name: array.copy() for spec, array in zip(self._exported.outputs, raw.values(), strict=True)}

    def close(self):
        pass
'''


def make_adapter(folder: Path) -> Path:
    """The adapter as it is installed, in a folder for `sys.path` and PYTHONPATH."""
    install(folder, "shootout-fakert", {"fakert": "shootout_fakert:FakeAdapter"})
    (folder / "shootout_fakert.py").write_text(ADAPTER)
    return folder


def make_releases(
    folder: Path, factors: Mapping[str, float], kind: str, *, sd: float = 0.01, seed: int = 0, base: float | None = None
) -> dict[str, Environment]:
    """An interpreter for each release, whose figure is the base × its factor × its process's noise."""
    return {
        release: make_environment(
            folder / release,
            release,
            PACKAGE.format(
                release=release,
                kind=kind,
                factor=factor,
                sd=sd,
                seed=seed,
                base=BASES[kind] if base is None else base,
            ),
        )
        for release, factor in factors.items()
    }


def make_environment(folder: Path, release: str, code: str) -> Environment:
    """One release with this code."""
    package, info = folder / "packages" / "fakert", folder / "packages" / f"fakert-{release}.dist-info"
    package.mkdir(parents=True)
    info.mkdir()
    (package / "__init__.py").write_text(code)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: fakert\nVersion: {release}\n")
    site = Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs", f"numpy-{np.__version__}.dist-info"):
        if (site / name).exists():
            (folder / "packages" / name).symlink_to(site / name)
    python = folder / "python"
    path = f'PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{folder / "packages"}"'
    python.write_text(f'#!/bin/sh\n{path} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return Environment(release=release, python=str(python), packages={"fakert": release}, size_bytes=0)


def plant(releases: Sequence[str], first_bad: str, factor: float) -> dict[str, float]:
    """The factor of each release: 1 before the first bad one."""
    at = releases.index(first_bad)
    return {release: factor if index >= at else 1.0 for index, release in enumerate(releases)}


def find(
    folder: Path,
    environments: Mapping[str, Environment | Skipped],
    kind: str = "time",
    *,
    seconds: float | None = None,
    race: Callable[..., None] | None = None,
) -> Found:
    """Search these whole, and return what is found; the races, real ones unless others are given, are in the folder."""
    asked = Asked(package="fakert", kind=kind, target="fakert:cpu:fp32", model="identity")
    with show_progress() as progress:
        return Bisection(
            asked=asked,
            folder=folder,
            releases=[*environments],
            environments=Environments("fakert", (), "", made={**environments}),
            race=race or partial(bisect.race, asked, progress),
            progress=progress,
            deadline=Deadline(seconds),
        ).find()
