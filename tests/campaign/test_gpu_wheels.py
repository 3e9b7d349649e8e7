"""The wheels that a GPU machine lacks: versions and limits as pip reads them, what is chosen, fetched and joined."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
from gpu import parts, wheelhouse, wheels
from gpu.requirements import Need, Project, key, need, there
from gpu.wheelhouse import Wheel
from made_wheels import names, wheel

ROOT = Path(__file__).resolve().parents[2]


# versions


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("2.9", "2.11"),
        ("0.0.14.dev20261026", "0.0.14"),
        ("0.0.14.dev20261026", "0.0.14.dev20261027"),
        ("0.0.13", "0.0.14.dev1"),
        ("1.0rc1", "1.0"),
    ],
)
def test_versions_are_ordered_as_pip_orders_them(older: str, newer: str):
    assert key(older) < key(newer)


def test_builds_and_trailing_zeros_make_no_difference():
    assert key("2.11.0+cu130") == key("2.11")


@pytest.mark.parametrize(
    ("limits", "version", "met"),
    [
        (">=2.11,<2.14", "2.11.0+cu130", True),
        (">=2.11,<2.14", "2.14.0", False),
        (">=0.0.14.dev20261026,<0.1", "0.0.14.dev20261026", True),
        (">=0.0.14.dev20261026,<0.1", "0.0.13", False),
        ("==2.50.4", "2.50.4", True),
        ("==2.50.4", "2.50.5", False),
        ("==1.2.*", "1.2.9", True),
        ("==1.2.*", "1.20", False),
        ("!=1.5", "1.5", False),
        ("", "anything", True),
    ],
)
def test_limits_are_read_as_pip_reads_them(limits: str, version: str, met: bool):
    assert Need("some", limits).met(version) is met


def test_a_package_that_is_not_there_never_does():
    assert not Need("some").met(None)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("typing_extensions>=4.16.0", Need("typing-extensions", ">=4.16.0")),
        ("Markdown.It (>=2.2.0)", Need("markdown-it", ">=2.2.0")),
        ("pygments (>=2.13.0, <3.0.0)", Need("pygments", ">=2.13.0,<3.0.0")),
        ("onnxruntime-gpu[cuda,cudnn] >= 1.27", Need("onnxruntime-gpu", ">=1.27")),
        ('colorama; platform_system == "Windows"', None),
        ("torch>=2 ; extra == 'torch'", None),
    ],
)
def test_requirements_that_hold_everywhere_are_read(line: str, found: Need | None):
    assert need(line) == found


def test_the_project_says_what_it_needs():
    project = Project.read(ROOT / "pyproject.toml")
    core = {one.name for one in project.core}
    assert core >= {"numpy", "pydantic", "typer", "rich", "psutil", "pyarrow", "archspec"}
    assert "nvidia-ml-py" in core
    assert {one.name for one in project.extras["cuda"]} == {"cuda-bindings"}
    assert "cuda-bindings" not in core, "it costs rows at most"
    assert {one.name for one in project.extras["openvino"]} >= {"openvino", "nncf"}
    assert not {"dev", "cpu", "gpu"} & set(project.extras)


# wheels


def test_the_gpu_s_build_of_onnxruntime_is_onnxruntime(tmp_path: Path):
    (tmp_path / "onnxruntime_gpu-1.31.1.dist-info").mkdir()
    (tmp_path / "onnxruntime_gpu-1.31.1.dist-info" / "METADATA").write_text("Name: onnxruntime-gpu\nVersion: 1.31.1\n")
    assert there([str(tmp_path)]) == {"onnxruntime-gpu": "1.31.1", "onnxruntime": "1.31.1"}


def test_what_is_missing_or_too_old_is_chosen_and_nothing_else(tmp_path: Path):
    for name, version in (("absent", "1.0"), ("old", "2.0"), ("fine", "9.0"), ("newer_here", "1.0")):
        wheel(tmp_path, name, version)
    have = {"old": "1.0", "fine": "3.0", "newer-here": "2.0"}
    wanted = (Need("old", ">=1.5"), Need("fine", ">=1.0"), Need("newer-here", "<2"))
    assert names(tmp_path, have, *wanted) == {"absent": ["1.0"], "old": ["2.0"]}


@pytest.mark.parametrize("name", ["torch", "jax", "jaxlib", "numpy", "triton", "nvidia_cublas", "jax_cuda13_plugin"])
def test_the_machine_s_own_builds_are_never_replaced(tmp_path: Path, name: str):
    wheel(tmp_path, name, "9.0")
    normal = name.replace("_", "-")
    assert names(tmp_path, {normal: "1.0"}, Need(normal, ">=5")) == {}
    assert names(tmp_path, {}, Need(normal, ">=5")) == {normal: ["9.0"]}


def test_what_tells_of_the_gpu_may_be_replaced(tmp_path: Path):
    wheel(tmp_path, "nvidia_ml_py", "13.0")
    assert names(tmp_path, {"nvidia-ml-py": "11.0"}, Need("nvidia-ml-py", ">=12")) == {"nvidia-ml-py": ["13.0"]}


def test_what_a_chosen_wheel_needs_is_chosen_too(tmp_path: Path):
    wheel(tmp_path, "pydantic", "2.14.3", "pydantic-core==2.50.4", "typing-extensions>=4.16.0")
    wheel(tmp_path, "pydantic_core", "2.50.4")
    wheel(tmp_path, "typing_extensions", "4.16.0")
    have = {"pydantic-core": "2.46.0", "typing-extensions": "4.12.0"}
    assert set(names(tmp_path, have)) == {"pydantic", "pydantic-core", "typing-extensions"}
    assert set(names(tmp_path, {**have, "pydantic": "2.14.3"})) == set()


def test_of_two_versions_the_newer_one_comes_first(tmp_path: Path):
    wheel(tmp_path, "twice", "1.9")
    wheel(tmp_path, "twice", "1.10")
    assert names(tmp_path, {}) == {"twice": ["1.10", "1.9"]}


def test_wheels_are_installed_without_a_network_and_share_folders(tmp_path: Path):
    carried, packages = tmp_path / "wheels", tmp_path / "packages"
    wheel(carried, "first", "1.0", shared="common")
    wheel(carried, "second", "1.0", "nobody-has-this>=3", shared="common")
    wheel(carried, "foreign", "1.0", tag="cp27-cp27m-win32")
    found = wheelhouse.chosen(wheelhouse.wheels([carried], tmp_path), {}, [])
    refused = wheelhouse.install(found, packages)
    assert sorted(file.name for file in (packages / "common").glob("*.py")) == ["first.py", "second.py"]
    assert there([str(packages)]) == {"first": "1.0", "second": "1.0"}
    assert set(refused) == {"foreign"}
    assert "not a supported wheel on this platform" in refused["foreign"]


def test_a_wheel_for_another_python_makes_way_for_one_that_fits(tmp_path: Path):
    carried, packages = tmp_path / "wheels", tmp_path / "packages"
    wheel(carried, "built", "2.0", tag="cp27-cp27m-win32")
    wheel(carried, "built", "1.0")
    found = wheelhouse.chosen(wheelhouse.wheels([carried], tmp_path), {}, [])
    assert wheelhouse.install(found, packages) == {}
    assert there([str(packages)]) == {"built": "1.0"}


def test_a_newer_wheel_takes_the_place_of_the_one_before(tmp_path: Path):
    carried, packages = tmp_path / "wheels", tmp_path / "packages"
    for version in ("1.0", "2.0"):
        assert wheelhouse.install({"it": [Wheel(wheel(carried, "it", version))]}, packages) == {}
    assert (packages / "it.py").read_text() == "version = '2.0'\n"
    assert there([str(packages)]) == {"it": "2.0"}


def test_wheels_in_parts_are_joined_wherever_the_parts_lie(tmp_path: Path):
    file = wheel(tmp_path / "first", "large", "1.0")
    whole = file.read_bytes()
    pieces = parts.cut(file, 200)
    (tmp_path / "second").mkdir()
    pieces[-1].rename(tmp_path / "second" / pieces[-1].name)
    (tmp_path / "scratch").mkdir()
    (found,) = wheelhouse.wheels([tmp_path / "first", tmp_path / "second"], tmp_path / "scratch")
    assert (found.name, found.version) == ("large", "1.0")
    assert found.path.read_bytes() == whole


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ((), "holds no wheel: fill it with `make gpu-wheels"),
        (("a-1-py3-none-any.whl.part00", "a-1-py3-none-any.whl.part02"), "lacks its part 01"),
    ],
)
def test_folders_that_cannot_be_used_are_named(tmp_path: Path, files: tuple[str, ...], words: str):
    for name in files:
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=words):
        wheelhouse.wheels([tmp_path], tmp_path)


def test_a_part_that_is_there_twice_is_refused(tmp_path: Path):
    (tmp_path / "other").mkdir()
    files = [tmp_path / "a.part00", tmp_path / "other" / "a.part00"]
    with pytest.raises(ValueError, match="there twice"):
        parts.gathered(files)


def test_a_broken_wheel_is_named(tmp_path: Path):
    (tmp_path / "cut-1.0-py3-none-any.whl").write_bytes(b"PK, and no more")
    with pytest.raises(ValueError, match=r"cut-1.0-py3-none-any.whl is no whole wheel .* carry it again"):
        names(tmp_path, {})


def test_small_files_stay_whole(tmp_path: Path):
    file = tmp_path / "small"
    file.write_bytes(b"x" * 10)
    assert parts.cut(file, 10) == [file]
    assert [piece.stat().st_size for piece in parts.cut(file, 4)] == [4, 4, 2]
    assert not file.exists()


# fetching


def test_what_is_fetched_has_the_versions_of_the_constraints():
    versions = wheels.pinned((ROOT / "constraints.txt").read_text())
    missing = [name for name in (*wheels.CORE, *wheels.BACKENDS) if name not in versions]
    assert missing == []
    words = wheels.command(["pydantic-core", "elsewhere"], versions, Path("into"), "3.12")
    assert words[-2:] == [f"pydantic-core=={versions['pydantic-core']}", "elsewhere"]
    assert words[words.index("--python-version") + 1] == "3.12"
    assert "--no-deps" in words
    assert "manylinux_2_28_x86_64" in words


def test_everything_that_a_fetched_package_needs_is_fetched_or_comes_with_the_machine():
    brought = {"numpy", "scipy", "rich", "networkx", "ninja", "packaging", "psutil", "safetensors", "scikit-learn"}
    brought |= {"pyparsing", "typing-extensions"}
    fetched = {*wheels.CORE, *wheels.BACKENDS}
    needed = {one.name for name in fetched for one in _needs_of(name)}
    assert needed - fetched <= brought


def _needs_of(name: str) -> list[Need]:
    return [found for line in metadata.requires(name) or [] if (found := need(line))]


@pytest.mark.parametrize(("text", "count"), [("60M", 60 << 20), ("1g", 1 << 30), ("512", 512)])
def test_sizes_are_read(text: str, count: int):
    assert wheels.count(text) == count


@pytest.mark.parametrize("text", ["", "M", "0", "1.5M", "60X"])
def test_a_size_that_is_none_is_refused(text: str):
    with pytest.raises(ValueError, match="is no size: write 60M"):
        wheels.count(text)
