"""A user's factory from its file to rows: run apart, exported as far as torch can, refused in one clear line."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.console import deaf_here
from support.exports import obtain
from support.factories import HEAD, LINEAR, apart, leave_nothing, write  # noqa: F401 - a fixture is asked for by name
from support.programs import forked

from shootout.backends.common_torch import architecture, float32_module
from shootout.core.contract import Arm, Artifact, Target
from shootout.core.errors import ModelError, ShootoutError, SkippedArm, UsageError
from shootout.core.exported.client import Request, obtain_all
from shootout.core.exported.model import ExportedModel
from shootout.core.exported.request import checked, source_now
from shootout.core.study import feasibility
from shootout.models.onnx import onnx_files
from shootout.models.onnx.effort import Effort
from shootout.models.sources import user_torch
from shootout.quantize import qdq

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


def test_a_folder_with_our_names_is_measured_in_every_process(tmp_path: Path):
    """Its `models`, `harness` and `backends` are its own, in the export and in the workers, with several outputs."""
    write(tmp_path / "models/__init__.py", "WIDTH = 6\n")
    write(tmp_path / "harness.py", "CLASSES = 5\n")
    write(tmp_path / "backends.py", "MINE = True\n")
    write(tmp_path / "net.py", COLLIDING)
    write(
        tmp_path / "one.toml",
        'model = "net.py:make"\ntargets = ["torch-eager", "onnxruntime"]\nmax_restarts = 1\n'
        'baseline = "onnxruntime"\n',  # which plays twice, and is the sooner loaded
    )
    words = ("run", "one.toml", "--batch", "2", "--out", "out", "--json")
    done = deaf_here(*words, cwd=tmp_path, taken_to_work=["torch-eager", "onnxruntime"])
    assert done.code == 0, done.err
    rows = {row["backend"]: row for row in done.data["rows"]}
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "torch-eager": "measured",
        "onnxruntime": "measured",
    }
    assert any("train mode" in note for note in rows["torch-eager"]["notes"])


KEEPS = f"""{HEAD}
CALLS = []

class Net(nn.Module):
    calls, last = 0, 0
    def forward(self, x):
        {{body}}

def make():
    return Net(), torch.randn(2, 4)
"""
IN_PLACE = f"""{HEAD}
class Net(nn.Linear):
    def forward(self, x):
        x.mul_(1.5).add_(0.25)
        return super().forward(x)

def make():
    return Net(4, 3), torch.randn(2, 4)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, ExportedModel | Exception]]:
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
        "scales": IN_PLACE,
        "decays": KEEPS.format(body="self.calls += 1; return x / self.calls"),
        "delta": KEEPS.format(body="self.last, last = x, self.last; return x - last"),
        "outside": KEEPS.format(body="CALLS.append(1); return x * len(CALLS)"),
        "counts": KEEPS.format(body="self.calls += 1; return torch.relu(x)"),
        "crash": "import os\ndef make():\n    os._exit(9)\n",
    }
    paths = {name: write(folder / name / f"{name}.py", text) for name, text in texts.items()}
    asked = {name: Request(model=f"{path}:make", batch=1 + (name == "plain")) for name, path in paths.items()}
    asked["batch"] = Request(model=f"{paths['fixed']}:make", batch=2)
    away = ("plain", "crash")
    found = dict(zip(away, obtain_all([asked[name] for name in away]), strict=True))
    jobs = {name: (one, folder / f"{name}.exported") for name, one in asked.items() if name not in away}
    found |= forked(make_together, jobs)
    return {name: (paths.get(name, folder), one) for name, one in found.items()}


def make_together(jobs: dict[str, tuple[Request, Path]]) -> dict[str, ExportedModel | Exception]:
    """Export each request as an export process does, all in this one."""
    return {name: make_one(*job) for name, job in jobs.items()}


def make_one(request: Request, folder: Path) -> ExportedModel | Exception:
    folder.mkdir()
    job = checked(request)
    assert isinstance(job, Request)
    path, loaded = list(sys.path), set(sys.modules)
    try:
        return user_torch.take(dataclasses.replace(job, folder=folder), Effort())
    except ShootoutError as error:
        return error
    finally:
        leave_nothing(path, loaded)


def exported_of(made: dict[str, tuple[Path, ExportedModel | Exception]], name: str) -> ExportedModel:
    found = made[name][1]
    assert isinstance(found, ExportedModel), found
    return found


def test_the_exported_holds_the_example_and_others_like_it(made):
    exported = exported_of(made, "plain")
    assert exported.inputs[0].shape == (2, 4)
    assert exported.parameters == {"width": 3, "batch": 2}
    buffers = [one["input"] for one in exported.input_buffers()]
    assert len({array.tobytes() for array in buffers}) == len(buffers) > 1
    assert all(np.array_equal(np.sort(array, None), np.sort(buffers[0], None)) for array in buffers)
    assert [len({*right["y"].shape}) for _, right in exported.unseen()] == [2, 2]
    assert (exported.parameter_count, set(exported.artifacts)) == (15, {Artifact.MODULE, Artifact.ONNX, Artifact.PT2})


def test_a_module_without_weights_is_fine_and_its_batch_is_its_own(made):
    assert exported_of(made, "fixed").weights() == {}
    error = made["batch"][1]
    assert isinstance(error, UsageError)
    assert "no parameter `batch`, and its example inputs have 3 rows" in str(error)


def test_what_torch_cannot_export_is_still_there_as_a_module(made):
    exported = exported_of(made, "stuck")
    assert exported.artifacts == (Artifact.MODULE,)
    arm = Arm(target=Target(backend="onnxruntime"), model="stuck.py:make")
    why = feasibility.check_export(arm, exported)
    assert why is not None
    assert why.reason.startswith("torch.export can't take this module: ")
    assert feasibility.check_export(Arm(target=Target(backend="torch-eager"), model="stuck.py:make"), exported) is None


@pytest.mark.parametrize("variant", ["shared", "shared+float-1"])
def test_a_scheme_that_takes_an_onnx_file_is_skipped_where_there_is_none(made, tmp_path: Path, variant: str):
    exported = exported_of(made, "stuck")
    base = shutil.copytree(exported.folder, tmp_path / "base")
    dataclasses.replace(exported, folder=base).seal()
    with pytest.raises(
        SkippedArm, match=re.escape(f"{variant} takes an ONNX file: torch.export can't take this module: ")
    ):
        qdq.quantized(base, variant, tmp_path, reduced=False)


def test_only_the_errors_that_are_needed_are_predicted(tmp_path: Path):
    (tmp_path / "net.py").write_text(f"{HEAD}def make():\n    return nn.Linear(4, 3), torch.randn(1, 4)\n")
    exported = obtain(f"{tmp_path}/net.py:make", {}, 1, needs=("fp16", "fp32"))
    assert set(exported.error_bounds) == {"fp16", "fp32"}
    assert {"bf16", "int8", "int8-dynamic", "int4", "tf32"} <= set(exported.unpredicted)


def test_rows_that_nobody_is_told_of_are_not_counted_as_items(made):
    exported = exported_of(made, "fixed")
    arm = Arm(target=Target(backend="torch-eager"), model=f"{made['fixed'][0]}:make", scenario="throughput")
    for scenario in ("throughput", "serve"):
        why = feasibility.check_export(dataclasses.replace(arm, scenario=scenario), exported)
        assert why is not None
        assert "its example inputs have 3 rows" in why.reason
        assert why.fix.startswith("--batch 3, or")
    assert feasibility.check_export(dataclasses.replace(arm, batch=3), exported) is None
    assert feasibility.check_export(dataclasses.replace(arm, scenario="latency"), exported) is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nan", "NaN or infinity"),
        ("random_", "different outputs for the same inputs, so it can't be compared: forward draws random numbers or"),
        ("decays", "so it can't be compared: forward changes 'calls' ("),
        ("delta", "forward changes 'last'; take that as an input"),
        ("outside", "or keeps something from call to call"),
        ("crash", "exited with code 9"),
    ],
)
def test_outputs_that_prove_nothing_are_refused_and_a_crash_is_nobody_elses(made, name: str, says: str):
    error = made[name][1]
    assert isinstance(error, ModelError)
    assert says in str(error)


def test_a_module_that_changes_its_input_is_exported_as_one_that_does_not(made):
    """Each form gets the inputs as given, in the reference, the ONNX file and the program alike."""
    exported = exported_of(made, "scales")
    assert any("changes its input 'x' in place" in note for note in exported.notes)
    assert {Artifact.MODULE, Artifact.ONNX, Artifact.PT2} == {*exported.artifacts}
    weights, buffers = exported.weights(), exported.input_buffers()
    (weight,), (bias,) = ([one for name, one in weights.items() if end in name] for end in ("weight", "bias"))
    right = [(one["x"].astype(np.float64) * 1.5 + 0.25) @ weight.T.astype(np.float64) + bias for one in buffers]
    assert all(
        np.allclose(one["y"], wanted, rtol=1e-12)
        for one, wanted in zip(exported.reference_outputs(), right, strict=True)
    )
    found = onnx_files.run(exported.path(Artifact.ONNX), buffers, "scales")
    assert all(np.allclose(one["y"], wanted, atol=1e-5) for one, wanted in zip(found, right, strict=True))


def test_a_counter_that_moves_no_output_is_no_fault(made):
    assert exported_of(made, "counts").artifacts


@pytest.mark.usefixtures("apart")
def test_a_worker_runs_the_same_code_or_none(made):
    path, _ = made["plain"]
    exported = exported_of(made, "plain")
    weights = exported.weights()
    assert np.array_equal(float32_module(exported).weight.detach().numpy(), weights["weight"])
    wide = dataclasses.replace(exported, parameters={"width": 4, "batch": 2})
    with pytest.raises(ValueError, match=r"another architecture each time it is called: .*size mismatch for weight"):
        float32_module(wide)
    path.write_text(f"{LINEAR}# edited\n")
    float32_module(exported)  # a process looks once, before it imports
    source_now.cache_clear()
    with pytest.raises(ValueError, match="was changed after it was exported"):
        architecture(exported)
    path.write_text(LINEAR)
    source_now.cache_clear()


def test_reading_a_factory_imports_no_framework(tmp_path: Path):
    write(tmp_path / "m.py", LINEAR)
    code = "import sys; from shootout import models; models.get('m.py:make'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
