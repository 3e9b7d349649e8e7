"""The shipped folder: whoever opens it, we or its own check, sees every byte that was changed, and an older form."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.races.shipping import ship_target

from shootout.bundle.shipped import CHECK, MANIFEST, open_shipped
from shootout.contract import Target
from shootout.errors import UsageError


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of ONNX Runtime's."""
    return ship_target(Target(backend="onnxruntime"), tmp_path_factory.mktemp("ship")).shipped.folder


@pytest.fixture
def copy(shipped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shipped, tmp_path / "copy"))


def check(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The folder's own check, in a process that doesn't import us."""
    command = [sys.executable, "-I", str(folder / CHECK), *words]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=120)


def edit(folder: Path, **facts: object) -> None:
    """Change the manifest, which holds no hash of itself."""
    stored = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(stored | facts))


def test_a_folder_is_opened_as_it_was_written(shipped: Path):
    found = open_shipped(shipped)
    assert found.arm.target == "onnxruntime:cpu:fp32"
    assert found.target == Target(backend="onnxruntime")
    assert found.runtime.threads == found.runtime.affinity == 1
    assert [spec.name for spec in found.inputs] == ["x"]
    assert found.versions.keys() >= {"onnxruntime", "numpy"}


def test_a_clean_process_finds_the_answers_right(shipped: Path):
    done = check(shipped)
    assert (done.returncode, done.stderr) == (0, "")
    assert "relative L2 error" in done.stdout


def test_a_changed_byte_is_named(copy: Path):
    path = copy / "model" / "model.onnx"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.raises(UsageError, match=r"model\.onnx.*was changed"):
        open_shipped(copy)
    done = check(copy)
    assert done.returncode == 2
    assert "model/model.onnx was changed" in done.stderr


def test_a_missing_file_is_named(copy: Path):
    (copy / "load.py").unlink()
    with pytest.raises(UsageError, match=r"load.py.*can't be read"):
        open_shipped(copy)


def test_a_name_outside_of_the_folder_is_refused(copy: Path):
    edit(copy, files=json.loads((copy / MANIFEST).read_text())["files"] | {"../other": "0"})
    with pytest.raises(UsageError, match="outside of the folder"):
        open_shipped(copy)


def test_an_older_form_is_refused(copy: Path):
    edit(copy, schema="shootout.shipped/0", made_with="shootout 0.0.1")
    with pytest.raises(UsageError, match=r"shootout 0.0.1.*ship it again"):
        open_shipped(copy)
    done = check(copy)
    assert done.returncode == 2
    assert "shootout.shipped/0" in done.stderr


def test_a_manifest_of_something_else_is_refused(tmp_path: Path):
    (tmp_path / MANIFEST).write_text("[]")
    with pytest.raises(UsageError, match="no JSON object"):
        open_shipped(tmp_path)
    with pytest.raises(UsageError, match="is it a shipped folder"):
        open_shipped(tmp_path / "nowhere")


def test_a_cpu_without_the_instructions_is_refused(copy: Path):
    edit(copy, needs={"isa": ["fma|asimd", "avx4096|sve9"], "gpu": None})
    done = check(copy)
    assert done.returncode == 3
    assert "this CPU must have avx4096|sve9" in done.stderr


def test_answers_out_of_the_band_are_refused(copy: Path):
    edit(copy, error_limit=0.0)
    done = check(copy)
    assert done.returncode == 1
    assert "too far off" in done.stderr


def test_other_inputs_are_refused(shipped: Path, monkeypatch: pytest.MonkeyPatch):
    namespace = {"__file__": str(shipped / "load.py"), "__name__": "load"}
    for name, value in open_shipped(shipped).runtime.environment.items():
        monkeypatch.setenv(name, value)
    exec(compile((shipped / "load.py").read_text(), "load.py", "exec"), namespace)
    with pytest.raises(ValueError, match="expected the inputs"):
        namespace["predict"]({"x": np.zeros((3, 64), np.float32)})
