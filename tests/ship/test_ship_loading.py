"""`load.py` of each backend, in a process that doesn't import us: it answers bit by bit as the arm's session did."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.races.shipping import ship_target

from shootout import backends
from shootout.contract import Target
from shootout.exported.model import load_sets
from shootout.exported.shipped_folder import LOAD

MOST_LINES = 60
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
    found = load_sets(answers, [spec.name for spec in made.shipped.outputs])
    for got, wanted in zip(found, made.answers, strict=True):
        assert got.keys() == wanted.keys()
        for name, array in wanted.items():
            np.testing.assert_array_equal(got[name], array, strict=True)


@pytest.mark.parametrize("name", [name for name, row in backends.SHIPPED.items() if row.ships])
def test_it_can_be_read_at_a_glance(name: str):
    mode = "aoti" if name == "torch-compile" else ""
    folder = backends.shipping(Target(backend=name, mode=mode))[1]
    head = (Path(str(sys.modules["shootout.ship"].__file__)).parent / "load.txt").read_text()
    for template in folder.glob("load*.txt"):
        text = head.replace("BODY\n", template.read_text())
        compile(text, LOAD, "exec")
        assert len(text.splitlines()) <= MOST_LINES
