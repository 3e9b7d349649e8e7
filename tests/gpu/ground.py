"""What the campaign stands on: this package by links, the machine's own libraries, and wheels for what is missing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import wheelhouse
from .requirements import Need, Project, asking, there

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "gpu"
SHOWN = ("torch", "triton", "jax", "jaxlib", "numpy", "onnx", "onnxruntime", "onnxruntime-gpu", "openvino", "nncf")
MORE_SHOWN = ("torchao", "torchax", "tensorrt", "tensorrt-rtx-cu13-libs", "cuda-bindings", "nvidia-ml-py", "pydantic")
SUBPACKAGES = ("backends", "models")
CHECKING = (Need("pytest"), Need("pytest-timeout"))
"""What the conformance step alone needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What there is.

    Attributes:
        path: folders that children have on their module path before all others.
        have: the packages that can be imported, version by name.
        taken: packages that came from the wheels, or that would come if this weren't a dry run.
        refused: packages whose wheels pip didn't take, with its words.
        lacking: core packages that are missing or too old: nothing works without them.
        promised: whether some of the core is still to come from the wheels.
        without: by extra, what is missing or has another version than we ask for; its rows may be skipped or fail.
        unmet: what packages from the wheels ask for and don't have, by package.
    """

    path: tuple[str, ...]
    have: dict[str, str]
    taken: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    lacking: tuple[Need, ...] = ()
    promised: bool = False
    without: dict[str, tuple[Need, ...]] = field(default_factory=dict)
    unmet: dict[str, tuple[Need, ...]] = field(default_factory=dict)

    def stand(self) -> None:
        """Let this process, and all that it starts, import from here."""
        sys.path[1:1] = self.path
        own = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([*self.path, *([own] if own else [])])


def prepare(folders: Sequence[Path], *, install: bool, build: Path = BUILD) -> Ground:
    """Make the ground: links always; wheels only where `install` is true, else what would be installed is told.

    Args:
        folders: with wheels; empty: only what the machine has.

    Raises:
        ValueError: a folder of wheels can't be used.
    """
    site, packages = build / "site", build / f"packages-{sys.version_info[0]}.{sys.version_info[1]}"
    lend(ROOT, site)
    project = Project.read(ROOT / "pyproject.toml")
    path = (str(site), str(packages))
    extras = {**project.extras, "conformance": CHECKING}
    wanted = [*project.core, *(one for extra in extras.values() for one in extra)]
    coming, refused = _from_wheels(folders, packages, wanted, install=install) if folders else ({}, {})
    here = there([*path, *sys.path])
    have = {**here, **coming}
    return Ground(
        path=path,
        have=have,
        taken=tuple(f"{name} {version}" for name, version in sorted(coming.items())),
        refused=refused,
        lacking=_unmet(project.core, have),
        promised=_unmet(project.core, have) != _unmet(project.core, here),
        without={name: lacking for name, extra in extras.items() if (lacking := _unmet(extra, have))},
        unmet={name: lacking for name, asked in asking(str(packages)).items() if (lacking := _unmet(asked, have))},
    )


def _unmet(wanted: Sequence[Need], have: Mapping[str, str]) -> tuple[Need, ...]:
    return tuple(one for one in wanted if not one.met(have.get(one.name)))


def _from_wheels(
    folders: Sequence[Path], packages: Path, wanted: Sequence[Need], *, install: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Versions by package of what comes from the wheels, and pip's words on those that it refuses."""
    packages.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=packages.parent) as scratch:
        offered = wheelhouse.wheels(folders, Path(scratch))
        found = wheelhouse.chosen(offered, there([str(packages), *sys.path]), wanted)
        refused = wheelhouse.install(found, packages) if install else {}
    return {name: wheels[0].version for name, wheels in found.items() if name not in refused}, refused


def told(ground: Ground, *, dry: bool) -> list[str]:
    """The ground in words, a line each."""
    shown = [f"{name} {ground.have[name]}" for name in (*SHOWN, *MORE_SHOWN) if name in ground.have]
    lines = [f"Python {platform.python_version()}: {', '.join(shown) or 'none of the libraries'}"]
    if ground.taken:
        lines.append(f"{'would be installed' if dry else 'installed'} from the wheels: {', '.join(ground.taken)}")
    lines += [f"not installed: {name}: {words}" for name, words in ground.refused.items()]
    lines += [f"for {name}: {_lack(ground, needs)}" for name, needs in sorted(ground.without.items())]
    lines += [f"{name} asks for {_lack(ground, needs)}" for name, needs in sorted(ground.unmet.items())]
    if ground.lacking:
        lines += [f"nothing works without: {_lack(ground, ground.lacking)}", f"fix: {fix(ground.lacking)}"]
    return lines


def _lack(ground: Ground, needs: Sequence[Need]) -> str:
    return ", ".join(
        f"{one} (here: {ground.have[one.name]})" if one.name in ground.have else f"{one} is missing" for one in needs
    )


def fix(lacking: Sequence[Need]) -> str:
    """How to get packages onto a machine that reaches no index."""
    names = " ".join(f"'{one}'" for one in lacking)
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    fetch = f"python3 -m pip download --only-binary=:all: --python-version {python} -d wheels {names}"
    return f"where there is a network: {fetch}; carry the folder here, then: make gpu WHEELS=wheels"


def lend(root: Path, site: Path) -> None:
    """Fill `site` with links to the package in the checkout `root`, as an editable install would, and its metadata.

    The metadata is there because the version and the requirements are read from it while the package runs. What is
    right already isn't touched, since another process may be importing from it.
    """
    project = Project.read(root / "pyproject.toml")
    package, facts = site / project.name, site / f"{project.name}-{project.version}.dist-info"
    for folder in (package, facts):
        folder.mkdir(parents=True, exist_ok=True)
    links = {entry.name: entry for entry in (root / "harness").iterdir() if entry.name != "__pycache__"}
    links |= {name: root / name for name in SUBPACKAGES}
    for old in package.iterdir():
        if old.is_symlink() and old.name not in links:
            old.unlink()
    for name, source in links.items():
        _link(package / name, source)
    for old in site.glob(f"{project.name}-*.dist-info"):
        if old != facts:
            shutil.rmtree(old)
    _write(facts / "METADATA", project.metadata)
    _write(facts / "top_level.txt", f"{project.name}\n")


def _write(file: Path, text: str) -> None:
    if not file.exists() or file.read_text() != text:
        file.write_text(text)


def _link(link: Path, source: Path) -> None:
    if not link.is_symlink() or link.readlink() != source:
        link.unlink(missing_ok=True)
        link.symlink_to(source)
