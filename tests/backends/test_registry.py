"""The registry: names, defaults, third parties by entry point, and what it says when something is wrong."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from support.adapters.third_party import install
from support.console import TESTS

from shootout.backends.optional import Fixture
from shootout.core import backends
from shootout.core.contract import Device, Precision
from shootout.core.errors import NotRunKind, SkippedArm, UsageError
from shootout.core.install import install as install_command
from shootout.tell import registered
from shootout.testing.checks import fixture

MODULE = "from shootout.backends._spin import SpinAdapter\nclass Mine(SpinAdapter):\n    name = 'mine'\n"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


SHIPPED = backends.names()


def test_the_harness_own_instruments_are_hidden():
    assert backends.names() == SHIPPED
    hidden = {"spin", "joint"}
    assert not hidden & {*SHIPPED}
    assert set(backends.names(hidden=True)) == {*SHIPPED, *hidden}


def test_every_row_leads_to_an_adapter_of_its_name_that_has_the_default_target():
    for name in backends.names(hidden=True):
        adapter = backends.get(name)
        assert adapter.name == name
        assert backends.entry(name).default in adapter.capabilities.targets
        assert backends.entry(name).fix == install_command(backends.entry(name).extra)
    assert backends.baselines() == ["torch-eager"]


def test_every_row_says_how_to_install_it_and_what_it_loads():
    extras = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    on_a_cpu = set(re.findall(r"[\w-]+", extras["cpu"][0]))
    apart = {file.parent.name for file in (TESTS.parent / "backends").glob("*/package.txt")}
    assert all(f"{name}/package.txt" in (TESTS.parent / "lab" / "set_up.sh").read_text() for name in apart)
    for name in SHIPPED:
        row = backends.entry(name)
        assert row.loads.get(""), f"{name}: its process could hold any framework"
        assert row.extra in {"", *extras}
        assert row.default[0] is not Device.CPU or row.extra in {"", *on_a_cpu} or f"_{row.extra}" in apart


def test_what_set_up_installs_apart_has_the_versions_that_all_else_is_held_to():
    held = (TESTS.parent / "constraints.txt").read_text().splitlines()
    for file in (TESTS.parent / "backends").glob("*/package.txt"):
        pinned = [line for line in file.read_text().splitlines() if not line.startswith("#")]
        assert pinned
        assert set(pinned) <= set(held)


def test_a_backend_is_installed_where_its_own_library_is():
    packages = {"torch", "tensorrt_rtx_cu13_bindings", "safetensors", "scipy", "onnxruntime-gpu"}
    installed = {name for name in SHIPPED if registered.is_installed(name, packages)}
    assert installed == {"numpy", "torch-eager", "torch-compile", "torchscript", "onnxruntime", "tensorrt"}
    assert all(registered.is_installed(name, {}) for name in SHIPPED), "an older run doesn't tell"


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(UsageError, match=r"unknown backend 'onxruntime': did you mean 'onnxruntime'\?"):
        backends.get("onxruntime")
    with pytest.raises(UsageError, match="known: ") as caught:
        backends.get("nothing-like-it")
    assert "spin" not in str(caught.value), "it is the harness's own"


def test_a_third_party_is_named_like_any_other(packages: Path):
    (packages / "mine_module.py").write_text(MODULE)
    install(packages, "mine-package", {"mine": "mine_module:Mine"})
    assert backends.names() == (*SHIPPED, "mine")
    assert backends.get("mine").name == "mine"
    assert backends.entry("mine").default == (Device.CPU, Precision.FP32)
    assert registered.is_installed("mine", {"numpy", "mine_package"})
    assert not registered.is_installed("mine", {"numpy"}), "a run on a machine without it knows no such backend"


def test_a_third_party_says_how_the_suite_drives_it(packages: Path):
    source = f"{MODULE}    from shootout.backends.optional import Fixture\n    fixture = Fixture(batch=3)\n"
    (packages / "mine_fixture.py").write_text(source)
    install(packages, "mine-package", {"mine": "mine_fixture:Mine"})
    assert fixture("mine").batch == 3
    assert fixture("numpy") == Fixture()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_library", "No module named 'no_such_library'"),
        ("raise RuntimeError('wrong driver')", "wrong driver"),
        ("", "has no attribute 'Broken'"),
        ("class Broken:\n    def __init__(self): 1/0", "division by zero"),
        ("import sys\nsys.exit('no license')", "SystemExit: no license"),
    ],
)
def test_a_broken_third_party_explains_itself(packages: Path, source: str, reason: str):
    module = f"broken_{abs(hash(source))}"
    (packages / f"{module}.py").write_text(source)
    install(packages, "broken-package", {"broken": f"{module}:Broken"})
    with pytest.raises(SkippedArm, match=f"can't be loaded: .*{reason}") as raised:
        backends.get("broken")
    assert raised.value.why.kind is NotRunKind.BROKEN
    assert raised.value.fix == "pip install --upgrade broken-package"


def test_a_third_party_cannot_take_a_shipped_name(packages: Path):
    install(packages, "grabbing-package", {"numpy": "mine_module:Mine"})
    with pytest.raises(UsageError, match=r"'numpy' is claimed twice, by grabbing-package against shootout itself"):
        backends.get("numpy")
    assert backends.names() == SHIPPED
    assert backends.get("torch-eager").name == "torch-eager"
