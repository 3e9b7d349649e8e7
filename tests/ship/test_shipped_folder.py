"""The shipped folder: whoever opens it, we or its own check, sees every byte that was changed, and an older form."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.console import here
from support.races.cells import fidelity
from support.races.shipping import ship_target

from shootout.apps.ship.folder import mismatch_limit, shipping
from shootout.backends.shipped import CHECK, INPUTS, LOAD, MANIFEST, MODEL, open_shipped
from shootout.core import backends
from shootout.core.contract import OutputError, Target
from shootout.core.errors import UsageError
from shootout.core.exported.model import load_sets


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


def test_a_closed_output_is_no_error(shipped: Path):
    script = 'exec "$0" -I "$1" >&-'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, str(shipped / CHECK)], cwd="/", capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


def name_outside(folder: Path) -> None:
    edit(folder, files=json.loads((folder / MANIFEST).read_text())["files"] | {"../other": "0"})


SPOIL: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a changed byte": (
        lambda folder: (folder / "model/model.onnx").write_bytes(b"x"),
        r"model\.onnx.*was changed",
        "model/model.onnx was changed",
    ),
    "a missing file": (lambda folder: (folder / LOAD).unlink(), r"load.py.*can't be read", "load.py: No such file"),
    "a name outside": (name_outside, "outside of the folder", "../other lies outside of this folder"),
    "an older form": (
        lambda folder: edit(folder, schema="shootout.shipped/0", made_with="shootout 0.0.1"),
        r"shootout 0.0.1.*ship it again",
        "shootout.shipped/0",
    ),
}


@pytest.mark.parametrize(("spoil", "says", "told"), SPOIL.values(), ids=SPOIL)
def test_what_was_changed_is_named(copy: Path, spoil: Callable[[Path], object], says: str, told: str):
    spoil(copy)
    with pytest.raises(UsageError, match=says):
        open_shipped(copy)
    done = check(copy)
    assert (done.returncode, told in done.stderr) == (2, True)


def test_a_manifest_of_something_else_is_refused(tmp_path: Path):
    (tmp_path / MANIFEST).write_text("[]")
    with pytest.raises(UsageError, match="holds list, not a JSON object: ship it again"):
        open_shipped(tmp_path)
    with pytest.raises(UsageError, match="No such file or directory; name a shipped folder"):
        open_shipped(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("facts", "code", "told"),
    [
        ({"needs": {"isa": ["fma|asimd", "avx4096|sve9"], "gpu": None}}, 3, "this CPU must have avx4096|sve9"),
        ({"error_limit": 0.0}, 1, "too far off"),
    ],
)
def test_another_cpu_and_wrong_answers_are_refused(copy: Path, facts: dict[str, Any], code: int, told: str):
    edit(copy, **facts)
    done = check(copy)
    assert (done.returncode, told in done.stderr) == (code, True)


@pytest.mark.parametrize(
    ("inputs", "got"),
    [
        ({"x": np.zeros((3, 64), np.float32)}, "got float32 (3, 64)"),
        ({"x": np.zeros((2, 64))}, "got float64 (2, 64)"),
        ({"x": [[0.0] * 64] * 2}, "got <class 'list'> (2, 64)"),
        ({"y": np.zeros((2, 64), np.float32)}, "missing in ['y']"),
    ],
    ids=["another batch", "another type", "no array", "another name"],
)
def test_other_inputs_are_refused(shipped: Path, monkeypatch: pytest.MonkeyPatch, inputs: dict[str, Any], got: str):
    namespace = {"__file__": str(shipped / "load.py"), "__name__": "load"}
    for name, value in open_shipped(shipped).runtime.environment.items():
        monkeypatch.setenv(name, value)
    exec(compile((shipped / "load.py").read_text(), "load.py", "exec"), namespace)
    with pytest.raises(ValueError, match="'x': ") as caught:
        namespace["predict"](inputs)
    assert str(caught.value) == f"'x': made for float32 (2, 64), {got}"


SHADOW = "raise SystemExit('ran a file that was not shipped')"


@pytest.mark.parametrize("words", [[CHECK], ["-S", CHECK]])
def test_its_check_imports_nothing_from_its_own_folder(copy: Path, tmp_path: Path, words: list[str]):
    for name in ("json", "hashlib", "pathlib", "os", "numpy"):
        (copy / f"{name}.py").write_text(SHADOW)
    (copy / "importlib").mkdir()
    (copy / "importlib" / "__init__.py").write_text(SHADOW)
    environment = {**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}."}
    # An environment with an editable install imports that one's finder, and so whatever lies here, before any program.
    venv.create(tmp_path / "bare", symlinks=True)
    python = tmp_path / "bare" / "bin" / "python"
    done = subprocess.run([python, *words], cwd=copy, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr == "hashlib.py is code that was not shipped, and Python could run it: remove it\n"


@pytest.mark.parametrize(
    "name", ["json.py", "model/numpy.SO", "__pycache__/load.cpython-311.pyc", "x.pth", "evidence/a.zip", "json"]
)
def test_code_that_was_not_shipped_is_refused(copy: Path, tmp_path: Path, name: str):
    (copy / name).parent.mkdir(exist_ok=True)
    if name == "json":
        (copy / name).symlink_to(tmp_path)
    else:
        (copy / name).write_bytes(b"")
    with pytest.raises(UsageError, match=rf"{name}' is code that was not shipped, and Python could run it: remove it"):
        open_shipped(copy)
    done = check(copy)
    assert done.returncode == 2
    assert done.stderr == f"{name} is code that was not shipped, and Python could run it: remove it\n"


def test_other_files_may_lie_beside(copy: Path):
    (copy / "README.md").write_text("ours")
    open_shipped(copy)
    assert check(copy).returncode == 0


FILES = (MANIFEST, "runtime.json", LOAD, "model/model.onnx", INPUTS)


def lead_out(path: Path) -> str:
    """Put a file elsewhere, with a link to it in its place."""
    path.rename(path.parents[2] / "elsewhere")
    path.symlink_to(path.parents[2] / "elsewhere")
    return "lies outside of th"


def make_pipe(path: Path) -> str:
    path.unlink()
    os.mkfifo(path)
    return "is not a regular file"


def make_device(path: Path) -> str:
    path.unlink()
    path.symlink_to("/dev/zero")
    return "lies outside of th"


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", [lead_out, make_pipe, make_device])
def test_only_regular_files_of_the_folder_are_read(copy: Path, name: str, change: Callable[[Path], str]):
    says = change(copy / name)
    with pytest.raises(UsageError, match=rf"{name}' can't be read.*{says}"):
        open_shipped(copy)
    done = check(copy)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{name} {says}")


def test_a_link_within_the_folder_is_followed(copy: Path):
    """A mounted volume may consist of such links."""
    (copy / "..data").mkdir()
    for name in (MANIFEST, "runtime.json"):
        (copy / name).rename(copy / "..data" / name)
        (copy / name).symlink_to(Path("..data", name))
    assert open_shipped(copy).arm.label == "onnxruntime:cpu:fp32"
    assert check(copy).returncode == 0


def test_no_file_with_a_hole_fills_the_memory_or_the_time(copy: Path):
    os.truncate(copy / MODEL / "model.onnx", 1 << 40)
    with pytest.raises(UsageError, match=r"holds 1\.1 TB, and a shipped folder at most 68\.7 GB"):
        open_shipped(copy)
    files = json.loads((copy / MANIFEST).read_text())["files"]
    done = check(copy)
    assert (done.returncode, done.stderr) == (2, "the files of the manifest are larger than 64 GiB: ship them again\n")
    for absent in ("zz-missing", "../zz-outside", "aa-missing"):
        edit(copy, files={absent: "0", **files})
        with pytest.raises(UsageError, match=r"holds 1\.1 TB"):
            open_shipped(copy)
    done = check(copy)
    assert (done.returncode, done.stderr.startswith("aa-missing: No such file")) == (2, True)
    os.truncate(copy / MANIFEST, 1 << 40)
    with pytest.raises(UsageError, match=r"manifest\.json' can't be read: it is larger than 67 MB"):
        open_shipped(copy)
    ended = here("gate", copy, "--max-time", "1s", cwd=copy.parent)
    assert (ended.code, "it is larger than 67 MB" in ended.err) == (2, True)
    done = check(copy)
    assert (done.returncode, done.stderr) == (2, "manifest.json is larger than 64 MiB\n")


@pytest.mark.parametrize("limit", [float("nan"), float("inf"), -1.0, "1", None, True, [0]])
@pytest.mark.parametrize("name", ["error_limit", "mismatches"])
def test_a_limit_is_a_finite_number(copy: Path, name: str, limit: object):
    edit(copy, **{name: limit})
    if limit is not True:  # for us it is 1
        with pytest.raises(UsageError, match="is not the manifest of a shipped folder"):
            open_shipped(copy)
    done = check(copy)
    assert done.returncode == 2
    assert done.stderr.startswith(f"manifest.json: {name} is ")


def test_no_text_of_the_manifest_steers_the_terminal(copy: Path):
    arm = json.loads((copy / MANIFEST).read_text())["arm"]
    edit(copy, arm={**arm, "label": "\x1b[2J\u202emine"}, versions={"numpy": "\x1b]0;x\x07"})
    done = check(copy)
    assert done.returncode == 0
    assert "\\x1b[2J\\u202emine: relative L2 error" in done.stdout
    edit(copy, schema="\x1b[31m")
    assert "\x1b" not in done.stdout + done.stderr + check(copy).stderr


MOST_LINES = 76
TELL = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
sys.dont_write_bytecode = True
spec = spec_from_file_location("load", sys.argv[1] + "/load.py")
module = module_from_spec(spec)
spec.loader.exec_module(module)
module.load()
strangers = {"shootout", "onnx", "safetensors"} & set(sys.modules)
assert not strangers, strangers
stored, found = module.np.load(sys.argv[1] + "/evidence/inputs.npz"), {}
for number in range(len(stored.files) // len(module.INPUTS)):
    inputs = {one[0]: stored[f"{place}.{number}"] for place, one in enumerate(module.INPUTS)}
    answers = module.predict(inputs)
    found |= {f"{place}.{number}": answers[one[0]] for place, one in enumerate(module.OUTPUTS)}
module.np.savez(sys.argv[2], **found)
"""
QUICK = ("onnxruntime", "openvino", "litert")
DEAR = ("numpy", "ncnn", "jax-jit", "torchscript", "torch-compile+aoti", "executorch", "iree")


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(one, marks=pytest.mark.slow) for one in DEAR)])
def test_it_answers_as_the_arm_does(name: str, tmp_path: Path):
    backend, _, mode = name.partition("+")
    made = ship_target(Target(backend=backend, mode=mode), tmp_path)
    answers = tmp_path / "answers.npz"
    done = subprocess.run(
        [sys.executable, "-I", "-c", TELL, made.shipped.folder, answers],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    noise = [line for line in done.stderr.splitlines() if "DestroyAccelerator" not in line]  # at the process's end
    assert name == "executorch" or not noise, "what a library logs isn't the folder's"
    found = load_sets(answers, [spec.name for spec in made.shipped.outputs])
    for got, wanted in zip(found, made.answers, strict=True):
        assert got.keys() == wanted.keys()
        for name, array in wanted.items():
            np.testing.assert_array_equal(got[name], array, strict=True)


@pytest.mark.parametrize("name", [name for name, row in backends.shipped().items() if row.ships])
def test_it_can_be_read_at_a_glance(name: str):
    mode = "aoti" if name == "torch-compile" else ""
    folder = shipping(Target(backend=name, mode=mode))[1]
    head = (Path(str(sys.modules["shootout.apps.ship"].__file__)).parent / "load.txt").read_text()
    for template in folder.glob("load*.txt"):
        text = head.replace("BODY\n", template.read_text())
        compile(text, LOAD, "exec")
        assert len(text.splitlines()) <= MOST_LINES


def test_the_check_takes_nan_and_infinity_where_they_are_expected():
    text = (Path(str(sys.modules["shootout.apps.ship"].__file__)).parent / "check.txt").read_text()
    code: dict[str, Any] = {}
    exec(text[text.index("def compare") : text.index("def time_calls")], code)
    manifest, right = {"outputs": [{"name": "y"}]}, np.array([[1.0, -np.inf, np.nan, 2.0]], "f4")
    answers = [right * np.float32(1.5), np.where(np.isnan(right), 0, right), np.where(np.isinf(right), -1e30, right)]
    found = [code["compare"](np, manifest, [{"y": one}], [{"y": right}])[0] for one in (right, *answers)]
    assert found == [0.0, pytest.approx(0.5), math.inf, math.inf]


def test_the_check_lets_as_many_integers_differ_as_the_precision_explains():
    right = [{"map": np.full((1, 100), at), "y": np.zeros(9, "f4")} for at in range(10)]
    flipped = OutputError(name="map", relative_l2=0.0, mismatches=20, elements=1000, flipped=0.03)
    made = replace(fidelity(), mismatches=20, by_output=(flipped, OutputError(name="y", relative_l2=0.1, mismatches=0)))
    assert mismatch_limit(made, {"map": 0.1}, right, 5) == 50
    assert mismatch_limit(made, {}, right, 5) == 15, "the worst that was measured"
    assert mismatch_limit(made, {"map": 4 * 0.3}, right, 5) == 250, "half the way to other inputs' answers"
    wild = replace(made, by_output=(replace(flipped, flipped=1.0),))
    assert mismatch_limit(wild, {}, right, 5) == 500, "all there are"
    assert mismatch_limit(None, {"map": 0.01}, right, 5) == 5
    assert mismatch_limit(made, {"map": 0.1}, [{"y": np.zeros(9, "f4")}], 1) == 0
