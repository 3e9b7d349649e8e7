"""The three rings, held: core imports itself, plug-ins its contract, apps no other app; and no circles."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest
from setuptools import find_packages

from shootout.core import backends
from shootout.core.contract import Artifact

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {"harness": "shootout", "backends": "shootout.backends", "models": "shootout.models"}
PLUGINS = ("backends", "models", "scenarios", "quantize")
REGISTRIES = {
    *("backends", "backends.devices.cpu", "backends.optional", "backends.shipped"),
    *("models", "models.metrics", "scenarios", "models.onnx.effort", "models.onnx.layers"),
    *(f"models.sources.{name}" for name in ("packing", "preview", "trees")),
}
"""Modules that look a plug-in up by its name, or a shipped folder by its path, that apps may call for of an adapter,
that tell of the processor, and that say what apps may know of models: sizes, layers, files.
"""
CONTRACT = {
    *("adapter", "clock", "constants", "contract", "errors", "install", "messages", "schemes", "units"),
    *("exported.calls", "exported.fidelity", "exported.model", "exported.request"),
    *("host.child", "host.environment", "host.folders", "host.store", "host.untrusted"),
    *("scoring", "study.schema"),
}
"""The modules of core that plug-ins of several kinds may use."""
CONTRACT_OF = {
    "backends": {"worker.availability"},
    "scenarios": {"scenario", "study.group", "worker.blocks", "worker.verification"},
}
"""Those that plug-ins of one kind may use besides: what their protocols take or give."""
LIBRARIES = (
    *("backends.optional", "quantize", "models.onnx", "models.native_trees", "models.programs", "models.data"),
    *("models.base", "models.drawing", "models.source"),
)
"""The optional part of a backend's contract, and plug-ins' shared code: plug-ins of every kind may use them."""
CALLED = {
    *("models.metrics.scorer", "models.data.reading", "models.probes"),
    *("backends.devices.readings", "backends.pythons", "backends.optional"),
}
"""The modules of plug-ins that core calls by a place that is written as text, beside the tables of plug-ins."""
FRONTS = ("api", "cli", "commands")
"""The command line and the Python API put apps together, so they may import all of them; no app imports them."""
EXCEPTIONS = Path(__file__).with_name("ring_exceptions.txt")
"""Imports against the rules that are still there, one a line; a line may go, none may come."""


def modules() -> dict[str, Path]:
    """Every module of the package, by its dotted name without `shootout.`; the package itself is `shootout`."""
    found = {}
    for folder, package in SOURCES.items():
        for file in (ROOT / folder).rglob("*.py"):
            parts = [package, *file.relative_to(ROOT / folder).with_suffix("").parts]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name.removeprefix("shootout.")] = file
    return found


KNOWN = modules()


def imports(file: Path) -> set[str]:
    """The package's own modules that a file imports, at its top or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("shootout.") for alias in node.names if alias.name.startswith("shootout")}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "shootout":
            base = node.module.removeprefix("shootout").lstrip(".")
            inside = {f"{base}.{alias.name}".lstrip(".") for alias in node.names} & set(KNOWN)
            found |= inside or {base or "shootout"}
    return found & set(KNOWN)


@cache
def all_imports() -> Mapping[str, set[str]]:
    """What each module imports: read in the one process of `-n` that tests it, since it takes a second."""
    return {module: imports(file) for module, file in KNOWN.items()}


def place(module: str) -> str:
    """The part that a module belongs to: `core`, a plug-in's kind, `tell`, `apps.judge`, or a front."""
    parts = module.split(".")
    is_kind = parts[0] == "models" and KNOWN[".".join(parts[:2])].name == "__init__.py"
    return ".".join(parts[:2]) if parts[0] == "apps" or is_kind else parts[0]


def is_allowed(module: str, target: str) -> bool:
    """Tell whether the rings allow an import."""
    here, there = place(module), place(target)
    if here == there or here in FRONTS or module == "shootout":
        return True
    if here == "core":
        return False
    if here.partition(".")[0] in PLUGINS:
        return is_allowed_to_plugins(module, target)
    return there == "core" or target in REGISTRIES or there == "tell"


def is_allowed_to_plugins(module: str, target: str) -> bool:
    """Tell whether a plug-in may import what isn't of its kind: core's contract, and libraries."""
    if place(target) == "core":
        return target.removeprefix("core.") in CONTRACT | CONTRACT_OF.get(place(module), set())
    return any(target == one or target.startswith(f"{one}.") for one in LIBRARIES)


def against_the_rules() -> list[str]:
    return sorted(
        f"{module} -> {target}"
        for module, targets in all_imports().items()
        for target in targets
        if not is_allowed(module, target)
    )


def circles(edges: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Yield the groups of modules that reach each other, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> Iterator[list[str]]:
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in sorted(edges[module]):
            if target not in index:
                yield from visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            found = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(found) > 1:
                yield sorted(found)

    for module in sorted(edges):
        if module not in index:
            yield from visit(module)


def exceptions() -> list[str]:
    lines = EXCEPTIONS.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_imports_keep_to_the_rings():
    assert against_the_rules() == sorted(line for line in exceptions() if "->" in line)


def test_the_contract_of_plugins_is_no_longer_than_they_need():
    used = {(place(module), target) for module, targets in all_imports().items() for target in targets}
    kinds = {place(module) for module in KNOWN if place(module).partition(".")[0] in PLUGINS}
    assert not [one for one in CONTRACT if len({kind for kind in kinds if (kind, f"core.{one}") in used}) < 2]
    assert not [(kind, one) for kind, more in CONTRACT_OF.items() for one in more if (kind, f"core.{one}") not in used]


def test_core_names_plug_ins_by_their_place_in_one_module_only():
    """A call by a name that is text is an import, too, so these are listed where plug-ins are found."""
    named = {
        (module, constant.value.partition(":")[0].removeprefix("shootout."))
        for module, file in KNOWN.items()
        if place(module) == "core"
        for constant in ast.walk(ast.parse(file.read_text()))
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
        if constant.value.partition(":")[0].removeprefix("shootout.") in KNOWN
    }
    outside = {(module, target) for module, target in named if place(target) not in ("core", "shootout")}
    assert {module for module, _ in outside if module != "core.plugins"} == set()
    tables = {"scenarios", "models.sources", "backends", "backends.devices"}
    assert {target for _, target in outside} == tables | CALLED


def test_no_files_import_each_other_in_a_circle():
    inside = {module: targets for module, targets in all_imports().items() if module != "shootout"}
    found = [" <> ".join(names) for names in circles(inside | {"shootout": set()})]  # it leads to the API
    assert sorted(found) == [line for line in exceptions() if "<>" in line]


HANDLE_FILES = {"apps.judge.compare.merged", "commands.fleet", "tell.run_folder"}
"""The modules that pack run folders, send them, or look for one that goes on."""


def test_a_run_is_read_through_its_object():
    """Apps and tellers read `core.results.run`, and the types of a journal's lines; not the files of the folder."""
    files = {"core.journal.journal", "core.journal.samples"}
    read = {module for module, targets in all_imports().items() if targets & files and place(module) != "core"}
    assert {module for module in read if place(module) not in PLUGINS} == HANDLE_FILES


def test_no_library_family_imports_another():
    """What two share lies beside them in `backends/`: a build's key covers that and the family's own folder."""
    families = {name for name in KNOWN if name.startswith("backends._")}
    across = {
        f"{module} -> {target}"
        for module in families
        for target in all_imports()[module] & families
        if target.split(".")[1] != module.split(".")[1]
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


@pytest.mark.parametrize("folder", sorted({file.parent for file in KNOWN.values()}), ids=str)
def test_a_package_says_what_it_is_for(folder: Path):
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))


def test_every_package_is_found_where_it_lies():
    """Setuptools follows the links, and takes each folder that has an `__init__.py`; one without is left out."""
    found = find_packages(str(ROOT), include=["shootout*"])
    packages = {name for name, file in KNOWN.items() if file.name == "__init__.py"}
    assert sorted(found) == sorted(name if name == "shootout" else f"shootout.{name}" for name in packages)
    with_code = {file.parent for folder in ("harness", "backends", "models") for file in (ROOT / folder).rglob("*.py")}
    assert not [str(folder) for folder in with_code if not (folder / "__init__.py").exists()]


RUNTIMES = {row.loads[""][0] for row in backends.shipped().values() if row.loads}
NAMES = ({*backends.names(hidden=True)} | RUNTIMES) - {"numpy", "torch", *Artifact}
"""Backends and their libraries, but for NumPy, which core needs, and those that a form of a model is called by."""
WORD = re.compile(rf"(?<![\w-])({'|'.join(sorted(NAMES, key=len, reverse=True))})(?![\w-])")


def literals(file: Path) -> Iterator[str]:
    """Yield the strings of a file, parts of longer ones too, without those that only describe."""
    tree = ast.parse(file.read_text())
    described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
            yield node.value


def test_backends_are_named_by_the_registry_and_below_it_only():
    """What core and the tellers must know of a backend stands in its facts, or in the registry's tables."""
    rings = {module: file for module, file in KNOWN.items() if place(module) in ("core", "tell")}
    assert not {one for one, file in rings.items() if any(map(WORD.search, literals(file)))}
