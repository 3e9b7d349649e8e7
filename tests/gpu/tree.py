"""This package made importable by links, as an editable install would, for machines where nothing can be installed."""

from __future__ import annotations

import shutil
from pathlib import Path

from .requirements import Project

SUBPACKAGES = ("backends", "models")


def lend(root: Path, site: Path) -> None:
    """Fill `site` with links to the package in the checkout `root`, and with the metadata that pip would write.

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
