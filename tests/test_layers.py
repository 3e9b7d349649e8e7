"""The floor plan, held: imports point downward only, and setuptools finds every package."""

from __future__ import annotations

import ast
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

import pytest
from setuptools import find_packages

ROOT = Path(__file__).resolve().parents[1]
LAYERS = (
    *(
        "cli",
        "api",
        "testing",
        "commands",
        "tune",
        "fleet",
        "gate",
        "explain",
        "ship",
        "formats",
        "page",
        "report",
        "decide",
        "compare",
        "race",
        "results",
        "journal",
    ),
    *("build", "study", "export", "ceilings", "worker", "backends", "quantize", "models", "exported", "stats"),
    *("host", "root"),
)
"""Top to bottom, against the data's flow; a module may import from its own layer and from those behind it."""
SOURCES = {"harness": "shootout", "backends": "shootout.backends", "models": "shootout.models"}


def modules() -> dict[str, Path]:
    """Every module of the package, by its dotted name."""
    found = {}
    for folder, package in SOURCES.items():
        for file in (ROOT / folder).rglob("*.py"):
            parts = [package, *file.relative_to(ROOT / folder).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def layer(module: str) -> str:
    """The layer of a module: its package, or the root's own two at the top."""
    name = module.partition(".")[2].partition(".")[0]
    return name if name in LAYERS else "root"


def imports(file: Path, known: set[str]) -> set[str]:
    """The package's own modules that a file imports, at its top or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names} & known
            found |= inside or {node.module}
    return found & known


def upward() -> list[str]:
    """Every import of a higher layer, for the whole package; the front door (`shootout.run`) leads to the API."""
    known = modules()
    return sorted(
        f"{module} -> {target}"
        for module, file in known.items()
        for target in imports(file, set(known))
        if LAYERS.index(layer(target)) < LAYERS.index(layer(module))
        and (module, target) != ("shootout", "shootout.api")
    )


def test_imports_point_downward():
    assert upward() == []


def test_no_library_family_imports_another():
    """What two share lies beside them in `backends/`: a build's key covers that and the family's own folder."""
    families = {name: file for name, file in modules().items() if name.startswith("shootout.backends._")}
    across = {
        f"{module} -> {target}"
        for module, file in families.items()
        for target in imports(file, set(families))
        if target.split(".")[2] != module.split(".")[2]
    }
    assert across == set()


def test_every_folder_of_tests_is_collected(pytestconfig: pytest.Config):
    folders = [folder.name for folder in (ROOT / "tests").rglob("*") if folder.is_dir()]
    patterns = pytestconfig.getini("norecursedirs")
    assert not [name for name in folders if name != "__pycache__" and any(fnmatch(name, one) for one in patterns)]


def test_no_two_files_of_tests_have_one_name():
    """Pytest takes such for one module and refuses the second; each folder by itself passes."""
    names = Counter(file.name for file in (ROOT / "tests").rglob("test_*.py"))
    assert not [name for name, count in names.items() if count > 1]


@pytest.mark.parametrize("folder", sorted({file.parent for file in modules().values()}), ids=str)
def test_a_package_says_what_it_is_for(folder: Path):
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))


def test_every_package_is_found_where_it_lies():
    """Setuptools follows the links, and takes each folder that has an `__init__.py`; one without is left out."""
    found = find_packages(str(ROOT), include=["shootout*"])
    assert sorted(found) == sorted(name for name, file in modules().items() if file.name == "__init__.py")
    with_code = {file.parent for folder in ("harness", "backends", "models") for file in (ROOT / folder).rglob("*.py")}
    assert not [str(folder) for folder in with_code if not (folder / "__init__.py").exists()]
