"""What running an arm takes to install: packages made by hand, each with the record that an installer writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from shootout.backends import TABLE
from shootout.backends.optional import install_bytes
from shootout.core import backends
from shootout.core.adapter import Entry
from shootout.core.contract import Device, Target

ROW = Entry(path="made:Made", installs={"": ("gpu-runtime|runtime",), "old": None, "cuda": ("runtime[cuda]",)})


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages that a backend `made` runs with: `runtime` and its own `extra`."""
    monkeypatch.setitem(TABLE, "made", f"{__name__}:ROW")
    package(tmp_path, "runtime", 1_000, "arrays>=1", "wire; python_version < '3.12'", "driver; extra == 'cuda'")
    package(tmp_path, "wire", 200, "Arrays", "shootout")
    package(tmp_path, "arrays", 30)
    return tmp_path


def package(site: Path, name: str, size: int, *requires: str) -> None:
    folder = site / f"{name.replace('-', '_')}-1.0.dist-info"
    folder.mkdir()
    lines = [f"Requires-Dist: {one}" for one in requires]
    (folder / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *lines]))
    code = f'"{name}/a, b.py",sha256=x,{size - 1}\n{name}/c.py,sha256=y,1\n{name}/c.pyc,,\n'
    (folder / "RECORD").write_text(f"{code}{name}-1.0.dist-info/RECORD,,\n")


def of(site: Path, target: Target | None = None, python: str = "3.11.2") -> int | None:
    wanted = backends.entry("made").installed(target or Target(backend="made"))
    return install_bytes(wanted, [str(site)], python)


def test_a_package_that_several_need_counts_once_and_the_harness_never(site: Path):
    assert of(site) == 1_230


def test_the_first_choice_that_is_installed_counts(site: Path):
    package(site, "gpu-runtime", 5_000)
    assert of(site) == 5_000


def test_a_device_takes_what_it_needs_beside(site: Path):
    on_gpu = Target(backend="made", device=Device.CUDA)
    assert of(site, on_gpu) is None, "the driver's package is missing"
    package(site, "driver", 9_000)
    assert of(site, on_gpu) is None, "what was found is remembered, as for a run"
    assert install_bytes(backends.entry("made").installed(on_gpu), [str(site), ""], "3.11.2") == 10_230


def test_what_is_required_and_not_there_counts_nothing_but_what_is_wanted_must_be_there(site: Path, tmp_path: Path):
    package(site, "gpu-runtime", 5_000, "absent[all]", "arrays")
    assert of(site) == 5_030
    (empty := tmp_path / "empty").mkdir()
    assert of(empty) is None


def test_a_mode_that_nobody_knows_the_packages_of_is_unknown(site: Path):
    assert of(site, Target(backend="made", mode="old")) is None


@pytest.mark.parametrize("name", TABLE)
def test_each_backend_says_what_runs_its_artifacts(name: str):
    assert backends.entry(name).installed(Target(backend=name))
