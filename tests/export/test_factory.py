"""A user's factory: read without running it, run apart, brought into one form, and every mistake is one clear line."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.console import deaf_here

from shootout import models
from shootout.backends.common_torch import architecture, float32_module
from shootout.bundle.bundle import ModelBundle
from shootout.contract import Arm, Artifact, Scenario, Target
from shootout.errors import ModelError, ShootoutError, SkippedArm, UsageError
from shootout.export import __main__ as exporter
from shootout.export import client
from shootout.export.client import Request, obtain_all
from shootout.export.job import Job, to_json
from shootout.export.request import checked
from shootout.host import child, environment
from shootout.models.user import factory, source
from shootout.quantize import variants
from shootout.study import feasibility

HEAD = "import torch\nfrom torch import nn\n"
LINEAR = f"{HEAD}\ndef make(width=3, batch=1):\n    return nn.Linear(4, width), torch.randn(batch, 4)\n"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def apart() -> Iterator[None]:
    """What a user's code leaves in this process is taken away again."""
    path, loaded = list(sys.path), set(sys.modules)
    yield
    leave_nothing(path, loaded)


OF_USERS = {"bad", "outputs", "plain", "fixed", "stuck", "nan", "random_", "batch"}


def leave_nothing(path: list[str], loaded: set[str]) -> None:
    sys.path[:] = path
    for name in (set(sys.modules) - loaded) & OF_USERS:
        del sys.modules[name]


def run(path: Path, function: str = "make", **parameters: int):
    from shootout.models.user import called

    return called.run(source.find(f"{path}:{function}"), parameters)


# Reading


def test_parameters_are_read_and_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bomb = "raise SystemExit('this was run')\n"
    text = f"{bomb}def make(batch, width=64, rate=-0.5, *, kind='a', deep=True, other=None, more=(1, 2), **rest): ...\n"
    write(tmp_path / "pack/__init__.py", bomb)
    write(tmp_path / "pack/sub/__init__.py", bomb)
    write(tmp_path / "pack/sub/mod.py", text)
    monkeypatch.chdir(tmp_path)
    for name in ("pack.sub.mod:make", "pack/sub/mod.py:make"):
        found = models.get(name)
        assert found.defaults == {"width": 64, "rate": -0.5, "kind": "a", "deep": True}
        assert found.check({"rate": 1, "kind": 3})["rate"] == 1.0
        assert source.signature(source.find(name)).takes_batch
        (size, hashes) = client.check(Request(model=name))
        assert (size, len(hashes)) == (0, 1)
    assert source.find("pack.sub.mod:make").root == tmp_path
    assert not {"pack", "pack.sub", "pack.sub.mod", "mod"} & set(sys.modules)


def test_values_of_another_type_than_the_default_are_refused(tmp_path: Path):
    path = write(tmp_path / "m.py", "def make(width=64, deep=True): ...\n")
    with pytest.raises(UsageError, match="width must be a whole number, as its default 64 is, got 'x'"):
        models.get(f"{path}:make").check({"width": "x"})
    with pytest.raises(UsageError, match="deep must be true or false"):
        models.get(f"{path}:make").check({"deep": 1})
    with pytest.raises(UsageError, match="did you mean 'width'"):
        models.get(f"{path}:make").check({"widht": 1})


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        (LINEAR, "none.py:make", "can't find the file"),
        (LINEAR, "m.py:mkae", "unknown function in m.py 'mkae': did you mean 'make'"),
        (LINEAR, "m.py", "say which function makes the model, as in m.py:make"),
        ("def make(:\n", "m.py:make", "m.py line 1 isn't Python"),
        ("async def make(): ...\n", "m.py:make", "async"),
        ("def make(width): ...\n", "m.py:make", "needs a value for width"),
        (LINEAR, "nopackage.mod:make", "no module 'nopackage'"),
        (LINEAR, "m.inner:make", "no module 'm.inner' in m"),
        (LINEAR, "no such name:make", "no module"),
    ],
)
def test_what_reading_already_shows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str, says: str
):
    write(tmp_path / "m.py", text)
    monkeypatch.chdir(tmp_path)
    assert factory.is_meant(name)
    with pytest.raises(UsageError) as caught:
        client.check(Request(model=name))
    assert says in str(caught.value)


def test_a_change_of_any_source_in_the_folder_is_another_model(tmp_path: Path):
    write(tmp_path / "m.py", LINEAR)
    write(tmp_path / "inner/part.py", "A = 1\n")
    first = source.find(f"{tmp_path}/m.py:make").digest()
    write(tmp_path / "data.txt", "not source")
    assert source.find(f"{tmp_path}/m.py:make").digest() == first
    write(tmp_path / "inner/part.py", "A = 2\n")
    assert source.find(f"{tmp_path}/m.py:make").digest() != first


def test_files_that_are_nobodys_source_stop_nothing(tmp_path: Path):
    place = source.find(f"{write(tmp_path / 'm.py', LINEAR)}:make")
    first = place.digest()
    (tmp_path / ".#net.py").symlink_to("someone@somewhere.1234")  # an editor's lock
    (tmp_path / "gone.py").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.py")
    for name in (".hidden.py", "inner/.venv/lib/part.py", "inner/site-packages/part.py"):
        write(tmp_path / name, "A = 1\n")
    assert place.digest() == first
    (tmp_path / "m.py").unlink()
    with pytest.raises(UsageError, match="can't read"):
        place.digest()


def test_a_file_that_cannot_be_read_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = source.find(f"{write(tmp_path / 'm.py', LINEAR)}:make")
    first = place.digest()
    locked, read = write(tmp_path / "theirs.py", "A = 1\n"), Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path == locked:
            raise PermissionError(13, "Permission denied")
        return read(path)

    assert place.digest() != first
    monkeypatch.setattr(Path, "read_bytes", refuse)  # its mode says nothing to root
    assert place.digest() == first


def test_a_large_tree_counts_as_far_down_as_few_files_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = source.find(f"{write(tmp_path / 'm.py', LINEAR)}:make")
    write(tmp_path / "near/part.py", "A = 1\n")
    write(tmp_path / "images/set/part.py", "A = 1\n")
    for index in range(20):
        write(tmp_path / f"images/set/{index:03}.png", "")
    looked: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: looked.append(Path(path).name) or scandir(path))
    monkeypatch.setattr(source, "MOST_ENTRIES", 10)
    first = place.digest()
    write(tmp_path / "images/set/part.py", "A = 2\n")
    assert place.digest() == first
    write(tmp_path / "images/set/deeper/part.py", "A = 1\n")
    assert place.digest() == first
    assert "deeper" not in looked
    write(tmp_path / "near/part.py", "A = 2\n")
    assert place.digest() != first


def test_a_folder_full_of_data_hides_no_source_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = source.find(f"{write(tmp_path / 'm.py', LINEAR)}:make")
    for index in range(20):
        write(tmp_path / f"{index:03}.png", "")
        write(tmp_path / f"images/{index:03}/{index}.py", "")
    monkeypatch.setattr(source, "MOST_IN_FOLDER", 10)
    first = place.digest()
    write(tmp_path / "images/003/3.py", "A = 2\n")
    assert place.digest() == first
    for name in ("part.py", "nets/part.py", "nets/deep/er/part.py"):
        before = place.digest()
        write(tmp_path / name, "A = 1\n")
        assert place.digest() != before


def test_the_source_is_hashed_once_for_all_requests_of_a_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / "m.py", LINEAR)
    monkeypatch.setattr(client, "_make", lambda jobs, found: {job.key: ModelError("not here") for job in jobs})
    walks: list[Path] = []
    tree = source._tree
    monkeypatch.setattr(source, "_tree", lambda folder: walks.append(folder) or tree(folder))
    name = f"{tmp_path}/m.py:make"
    obtain_all([Request(model=name)])
    once = len(walks)
    obtain_all([Request(model=name, batch=batch) for batch in range(1, 9)])
    assert len(walks) == 2 * once


def test_another_version_of_what_the_source_imports_is_another_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = "import os, yaml.loader as y\nif y:\n    from onnx.helper import make_node\nfrom . import part\n"
    place = source.find(f"{write(tmp_path / 'm.py', text + LINEAR)}:make")
    assert place.imports() == {"os", "yaml", "onnx", "torch"}

    def key() -> str:
        job = checked(Request(model=place.name))
        assert isinstance(job, Job)
        return job.key

    first, version_of = key(), environment.version_of
    monkeypatch.setattr(environment, "version_of", lambda name: "9.9" if name.lower() == "pyyaml" else version_of(name))
    assert key() != first


# Running


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise ValueError('no\\n such width')", "raised ValueError: no such width (bad.py line 4)"),
        ("raise SystemExit(3)", "raised SystemExit: 3 (bad.py line 4)"),
        ("import not_there.deep", "ModuleNotFoundError: No module named 'not_there' (install 'not_there'"),
        ("return None", "returned None: expected (torch module, example inputs)"),
        ("return 1, 2, 3, 4", "returned a tuple of 4"),
        ("return 5, torch.ones(1)", "returned a int as the module"),
        ("return nn.Linear(2, 2), [[1.0, 2.0]]", "input 'input' is a list, expected a torch tensor"),
        ("return nn.Linear(2, 2), torch.ones(1, 2).to_sparse()", "no backend takes it"),
        ("return nn.Linear(2, 2), torch.ones(1, 3)", "raised RuntimeError"),
        ("return nn.Linear(2, 2), ()", "no example inputs"),
    ],
)
def test_what_running_shows_is_one_line(tmp_path: Path, body: str, says: str):
    path = write(tmp_path / "bad.py", f"{HEAD}def make():\n    {body}\n")
    with pytest.raises(UsageError) as caught:
        run(path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("apart")
def test_the_place_of_a_mistake_is_in_the_users_own_code(tmp_path: Path):
    library = write(tmp_path / ".venv/lib/site-packages/bad.py", "def fail():\n\n    raise ValueError('no')\n").parent
    head = f"import sys\nsys.path.insert(0, {str(library)!r})\nimport bad\n"
    path = write(tmp_path / "plain.py", f"{head}def make():\n    bad.fail()\n")
    with pytest.raises(UsageError, match=r"raised ValueError: no \(plain.py line 5\)"):
        run(path)


OUTPUTS = f"""{HEAD}
import dataclasses
import collections

@dataclasses.dataclass
class Result:
    scores: torch.Tensor
    nothing: None
    hidden: tuple

class Net(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.form, self.line = form, nn.Linear(4, 3)

    def forward(self, x, scale=None, shift=None):
        y = self.line(x)
        y = y if shift is None else y + shift
        match self.form:
            case "tuple": return y, (y * 2, y.argmax(-1))
            case "dict": return {{"a": y, "b": [y + 1]}}
            case "dataclass": return Result(y, None, (y * 3,))
            case "other": return [y, "text"]
        return (y,)

def make(form="one", named=False):
    x = torch.ones(2, 4, dtype=torch.float64)
    return Net(form), {{"shift": torch.ones(2, 3), "x": x}} if named else x
"""


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("one", ("y0",)),
        ("tuple", ("y0", "y1_0", "y1_1")),
        ("dict", ("a", "b.0")),
        ("dataclass", ("scores", "hidden.0")),
    ],
)
def test_outputs_of_any_form_become_named_tensors(tmp_path: Path, form: str, names: tuple[str, ...], named: bool):
    import torch

    path = write(tmp_path / "outputs.py", OUTPUTS)
    from shootout.models.user import called

    found = called.run(source.find(f"{path}:make"), {"form": form, "named": named})
    assert found.outputs == names
    assert list(found.inputs) == (["shift", "x"] if named else ["x"])
    assert found.inputs["x"].dtype == np.float32
    assert not found.module.training
    with torch.no_grad():
        raw = found.module(*map(torch.from_numpy, found.inputs.values()))
        first = raw[0] if len(names) > 1 else raw
        wanted = found.module.module.line(torch.ones(2, 4)) + (1 if named else 0)
    assert torch.equal(first, wanted)
    assert found.dtypes[-1] == ("int64" if form == "tuple" else "float32")


@pytest.mark.usefixtures("apart")
def test_an_output_that_holds_no_tensor_is_refused(tmp_path: Path):
    path = write(tmp_path / "outputs.py", OUTPUTS)
    from shootout.models.user import called

    with pytest.raises(UsageError, match="returned a str at 'y1', expected tensors"):
        called.run(source.find(f"{path}:make"), {"form": "other"})


# In processes of their own

COLLIDING = f"""{HEAD}
import backends, harness
import models

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, models.WIDTH), nn.Linear(models.WIDTH, harness.CLASSES)

    def forward(self, x, mask):
        hidden = torch.relu(self.one(x)) * mask
        return {{"scores": self.two(hidden), "hidden": hidden}}

def make(batch=1):
    assert backends.MINE
    return Net(), {{"mask": torch.tensor([1.0, 0.0] * (models.WIDTH // 2)), "x": torch.randn(batch, 4)}}
"""


def test_a_folder_with_our_names_is_measured_in_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its `models`, `harness` and `backends` are its own, in the export and in the workers, with several outputs."""
    write(tmp_path / "models/__init__.py", "WIDTH = 6\n")
    write(tmp_path / "harness.py", "CLASSES = 5\n")
    write(tmp_path / "backends.py", "MINE = True\n")
    write(tmp_path / "net.py", COLLIDING)
    write(
        tmp_path / "one.toml", 'model = "net.py:make"\ntargets = ["torch-eager", "onnxruntime"]\nmax_generations = 1\n'
    )
    monkeypatch.setattr(client, "run", child.run)  # not in the process that tests fork theirs from
    done = deaf_here("run", "one.toml", "--batch", "2", "--out", "out", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    rows = {row["backend"]: row for row in done.data["rows"]}
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "torch-eager": "measured",
        "onnxruntime": "measured",
    }
    assert any("train mode" in note for note in rows["torch-eager"]["notes"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, ModelBundle | Exception]]:
    """Some factories, each exported once; what works and what crashes in processes of their own."""
    folder = tmp_path_factory.mktemp("made")
    texts = {
        "plain": LINEAR,
        "fixed": f"{HEAD}def make():\n    return nn.ReLU(), torch.randn(3, 4)\n",
        "stuck": f"{HEAD}class Net(nn.Linear):\n    def forward(self, x):\n"
        "        return super().forward(x) if float(x.sum()) > -1e9 else x\n"
        "def make():\n    return Net(4, 3), torch.randn(1, 4)\n",
        "nan": f"{HEAD}class Net(nn.Module):\n    def forward(self, x):\n        return x / 0 - x / 0\n"
        "def make():\n    return Net(), torch.randn(1, 4)\n",
        "random_": f"{HEAD}class Net(nn.Module):\n    def forward(self, x):\n        return x + torch.rand(4)\n"
        "def make():\n    return Net(), torch.randn(1, 4)\n",
        "crash": "import os\ndef make():\n    os._exit(9)\n",
    }
    paths = {name: write(folder / name / f"{name}.py", text) for name, text in texts.items()}
    asked = {name: Request(model=f"{path}:make", batch=1 + (name == "plain")) for name, path in paths.items()}
    asked["batch"] = Request(model=f"{paths['fixed']}:make", batch=2)
    away = ("plain", "crash")
    found = dict(zip(away, obtain_all([asked[name] for name in away]), strict=True))
    found |= {name: made_here(one, folder / f"{name}.bundle") for name, one in asked.items() if name not in away}
    return {name: (paths.get(name, folder), one) for name, one in found.items()}


def made_here(request: Request, folder: Path) -> ModelBundle | Exception:
    """What the export process makes of a request, without that process."""
    from shootout.export import user_torch

    folder.mkdir()
    job = checked(request)
    assert isinstance(job, Job)
    path, loaded = list(sys.path), set(sys.modules)
    try:
        return user_torch.take(dataclasses.replace(job, folder=str(folder)))
    except ShootoutError as error:
        return error
    finally:
        leave_nothing(path, loaded)


def bundle_of(made: dict[str, tuple[Path, ModelBundle | Exception]], name: str) -> ModelBundle:
    found = made[name][1]
    assert isinstance(found, ModelBundle), found
    return found


def test_the_bundle_holds_the_example_and_others_like_it(made):
    bundle = bundle_of(made, "plain")
    assert bundle.inputs[0].shape == (2, 4)
    assert bundle.parameters == {"width": 3, "batch": 2}
    buffers = [one["input"] for one in bundle.input_buffers()]
    assert len({array.tobytes() for array in buffers}) == len(buffers) > 1
    assert all(np.array_equal(np.sort(array, None), np.sort(buffers[0], None)) for array in buffers)
    assert (bundle.parameter_count, set(bundle.artifacts)) == (15, {Artifact.MODULE, Artifact.ONNX, Artifact.PT2})


def test_a_module_without_weights_is_fine_and_its_batch_is_its_own(made):
    assert bundle_of(made, "fixed").weights() == {}
    error = made["batch"][1]
    assert isinstance(error, UsageError)
    assert "no parameter `batch`, and its example inputs have 3 rows" in str(error)


def test_what_torch_cannot_export_is_still_there_as_a_module(made):
    bundle = bundle_of(made, "stuck")
    assert bundle.artifacts == (Artifact.MODULE,)
    arm = Arm(target=Target(backend="onnxruntime"), model="stuck.py:make")
    why = feasibility.unfit(arm, bundle)
    assert why is not None
    assert why.reason.startswith("onnxruntime takes an ONNX file: torch.export can't take this module: ")
    assert feasibility.unfit(Arm(target=Target(backend="torch-eager"), model="stuck.py:make"), bundle) is None


def test_arms_that_their_model_is_too_large_for_are_skipped_after_its_export(made):
    bundle = dataclasses.replace(bundle_of(made, "plain"), parameter_count=2**30)
    arms = [Arm(target=Target(backend=name), model="plain.py:make") for name in ("torch-eager", "onnxruntime")]
    bundles = {arm.label: bundle for arm in arms}
    assert feasibility.unheld(arms, bundles, 25 * 2**30) == {}
    skips = feasibility.unheld(arms, bundles, 23 * 2**30)
    assert set(skips) == set(bundles)
    assert "needs 24.0 GiB of memory, has 23.0 GiB" in skips[arms[0].label].reason
    assert feasibility.unheld(arms, {}, 0) == {}


@pytest.mark.parametrize("variant", ["shared", "mixed-2"])
def test_a_scheme_that_takes_an_onnx_file_is_skipped_where_there_is_none(made, tmp_path: Path, variant: str):
    bundle = bundle_of(made, "stuck")
    base = shutil.copytree(bundle.folder, tmp_path / "base")
    dataclasses.replace(bundle, folder=base).seal()
    with pytest.raises(SkippedArm, match=f"{variant} takes an ONNX file: torch.export can't take this module: "):
        variants.quantized(base, variant, tmp_path)


def test_a_skip_comes_out_of_the_export_process_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    job = Job(model="m.py:make", key="k", folder=str(tmp_path))
    jobs = write(tmp_path / "jobs.json", json.dumps([to_json(job)]))
    monkeypatch.setattr(sys, "argv", ["exporter", str(jobs), "0"])
    monkeypatch.setattr(exporter, "leave_with", lambda _: None)
    monkeypatch.setattr(exporter, "_explained", lambda _: SkippedArm("why", "what to do"))
    exporter.main()
    error = client._collect(job, "")
    assert isinstance(error, SkippedArm)
    assert (error.reason, error.fix) == ("why", "what to do")


def test_rows_that_nobody_is_told_of_are_not_counted_as_items(made):
    bundle = bundle_of(made, "fixed")
    arm = Arm(target=Target(backend="torch-eager"), model=f"{made['fixed'][0]}:make", scenario=Scenario.THROUGHPUT)
    for scenario in (Scenario.THROUGHPUT, Scenario.SERVE):
        why = feasibility.unfit(dataclasses.replace(arm, scenario=scenario), bundle)
        assert why is not None
        assert "its example inputs have 3 rows" in why.reason
        assert why.fix.startswith("--batch 3, or")
    assert feasibility.unfit(dataclasses.replace(arm, batch=3), bundle) is None
    assert feasibility.unfit(dataclasses.replace(arm, scenario=Scenario.LATENCY), bundle) is None


@pytest.mark.parametrize(
    ("name", "says"),
    [("nan", "NaN or infinity"), ("random_", "different outputs for the same inputs"), ("crash", "exited with code 9")],
)
def test_outputs_that_prove_nothing_are_refused_and_a_crash_is_nobody_elses(made, name: str, says: str):
    error = made[name][1]
    assert isinstance(error, ModelError)
    assert says in str(error)


@pytest.mark.usefixtures("apart")
def test_a_worker_runs_the_same_code_or_none(made):
    path, _ = made["plain"]
    bundle = bundle_of(made, "plain")
    weights = bundle.weights()
    assert np.array_equal(float32_module(bundle).weight.detach().numpy(), weights["weight"])
    wide = dataclasses.replace(bundle, parameters={"width": 4, "batch": 2})
    with pytest.raises(ValueError, match="another architecture each time it is called: weight differs"):
        float32_module(wide)
    path.write_text(f"{LINEAR}# edited\n")
    float32_module(bundle)  # a process looks once, before it imports
    factory.source_now.cache_clear()
    with pytest.raises(ValueError, match="was changed after it was exported"):
        architecture(bundle)
    path.write_text(LINEAR)
    factory.source_now.cache_clear()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--model", "m.py:mkae"), "did you mean 'make'"),
        (("--model", "m.py:make", "--backends", "torch-eager"), "raised ValueError: no (m.py line 2)"),
        (("--model", "m.py:make", "--labels", "l.npz"), "--inputs"),
    ],
)
def test_on_the_command_line_a_mistake_is_one_line_and_exit_2(tmp_path: Path, words: tuple[str, ...], says: str):
    write(tmp_path / "m.py", "def make():\n    raise ValueError('no')\n")
    done = deaf_here("run", *words, "--out", "out", "--json", cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    (line,) = [line for line in done.err.splitlines() if line.startswith("shootout: ")]
    assert says in line


def test_reading_a_factory_imports_no_framework(tmp_path: Path):
    write(tmp_path / "m.py", LINEAR)
    code = "import sys; from shootout import models; models.get('m.py:make'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
