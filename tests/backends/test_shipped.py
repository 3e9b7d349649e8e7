"""A shipped folder as an arm: what it runs, what it is refused for, and when it is another one."""

from __future__ import annotations

import json
import py_compile
from dataclasses import replace
from pathlib import Path

import pytest
from support.adapters.shipped import make_shipped
from support.exports import obtain

from shootout.backends.shipped import DOCUMENT, LOAD, read_row
from shootout.core import backends
from shootout.core.adapter import Built
from shootout.core.build.builder import probe_key
from shootout.core.contract import Arm, Executed, NotRunKind, Precision, Target
from shootout.core.errors import SkippedArm, UsageError
from shootout.core.exported.model import ExportedModel
from shootout.core.worker.verification import Claim, call_once, verify

UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH
REFUSING = 'def load():\n    raise RuntimeError("this CPU lacks avx512f")\n'
WRONG = "def load():\n    pass\n\ndef predict(inputs):\n    return {'y': inputs['x'] * 1.01}\n"


@pytest.fixture(scope="module")
def exported() -> ExportedModel:
    return obtain("identity", {}, 1)


def built(exported: ExportedModel, folder: Path) -> Built:
    arm = Arm(target=Target(backend="numpy", folder=str(folder)), model="identity")
    return backends.runner(arm.target).build(exported, arm, folder.parent)


def test_it_is_what_its_own_loader_gives(exported: ExportedModel, tmp_path: Path):
    make_shipped(tmp_path / "out", exported)
    made = built(exported, tmp_path / "out")
    runner = backends.runner(made.arm.target)
    first, second = runner.load(made), runner.load(made)
    inputs = exported.input_buffers()[0]
    assert call_once(first, inputs)["y"].tolist() == inputs["x"].tolist()
    loaded = [session.execute.__globals__["loaded"] for session in (first, second)]
    assert loaded == [1, 1]
    with pytest.raises(ValueError, match="expected float32"):
        first.stage({"x": inputs["x"].astype("float64")}, 0)
    first.close()
    first.close()


def test_its_account_is_the_recorded_one_but_for_what_is_installed_here(exported: ExportedModel, tmp_path: Path):
    import numpy as np

    make_shipped(tmp_path / "out", exported, versions={"numpy": "0.9", "absent": "1"})
    made = built(exported, tmp_path / "out")
    executed = backends.runner(made.arm.target).load(made).executed
    assert executed == Executed(
        library="a word of ours",
        version=np.__version__,
        device="cpu",
        threads=None,
        compute_nodes_by_precision={},
        artifact_bytes=4,
    )
    assert f"numpy {np.__version__} here, 0.9 when it was shipped" in made.facts["notes"]
    assert "absent is not installed here, 1 when it was shipped" in made.facts["notes"]


def test_its_row_is_that_of_its_own_cell(exported: ExportedModel, tmp_path: Path):
    """A label has no model, size or scenario: in a run of several it is not enough."""
    shipped = make_shipped(tmp_path / "out", exported, group="second")
    row = {"arm": shipped.arm.label, "batch": exported.batch, "threads": 1, "executed": {"library": "l"}}
    rows = [{**row, "group": name, "model": name} for name in ("first", "second")]
    (tmp_path / "out" / DOCUMENT).write_text(json.dumps({"rows": rows}))
    assert read_row(shipped)["model"] == "second"
    assert read_row(replace(shipped, group=""))["model"] == "first", "an older folder doesn't know its cell"
    with pytest.raises(
        UsageError, match=r"document\.json.* doesn't say what numpy:cpu:fp32 was measured on: ship it again"
    ):
        read_row(replace(shipped, group="third"))


def test_its_answers_are_judged_as_any_arms_are(exported: ExportedModel, tmp_path: Path):
    make_shipped(tmp_path / "out", exported, WRONG)
    made = built(exported, tmp_path / "out")
    claim = Claim(
        arm=made.arm,
        exported=exported,
        session=backends.runner(made.arm.target).load(made),
        buffers=exported.input_buffers(),
        strayed=None,
        together=None,
    )
    assert "error" in (verify(claim).fault or "")


def test_a_machine_that_its_loader_refuses_is_a_skip(exported: ExportedModel, tmp_path: Path):
    make_shipped(tmp_path / "out", exported, REFUSING)
    made = built(exported, tmp_path / "out")
    with pytest.raises(SkippedArm, match=r"out/load.py: this CPU lacks avx512f") as refused:
        backends.runner(made.arm.target).load(made)
    assert refused.value.why.kind is NotRunKind.UNAVAILABLE


def test_a_changed_file_is_refused_by_name(exported: ExportedModel, tmp_path: Path):
    make_shipped(tmp_path / "out", exported)
    (tmp_path / "out" / "model" / "weights").write_bytes(b"1235")
    with pytest.raises(UsageError, match=r"model/weights.* was changed"):
        built(exported, tmp_path / "out")


def test_it_is_asked_no_probe_and_its_model_is_told_from_others(exported: ExportedModel, tmp_path: Path):
    shipped = make_shipped(tmp_path / "out", exported)
    arm = Arm(target=replace(shipped.target, precision=Precision.INT8), model="identity")
    assert probe_key(arm)
    assert probe_key(replace(arm, target=replace(arm.target, folder="/out"))) is None
    assert shipped.misfit(exported) == ""
    assert "model.sha256 " in shipped.misfit(replace(exported, weights_sha256="f" * 64))


def test_kept_bytecode_of_its_loader_is_neither_run_nor_written(exported: ExportedModel, tmp_path: Path):
    """No hash covers it, and Python would run it in place of `load.py`."""
    make_shipped(tmp_path / "out", exported)
    made = built(exported, tmp_path / "out")
    (tmp_path / "out" / LOAD).rename(tmp_path / LOAD)
    (tmp_path / "out" / LOAD).write_text("raise SystemExit('ran the bytecode')")
    kept = Path(py_compile.compile(str(tmp_path / "out" / LOAD), invalidation_mode=UNCHECKED))
    (tmp_path / LOAD).replace(tmp_path / "out" / LOAD)
    backends.runner(made.arm.target).load(made)
    kept.unlink()
    backends.runner(made.arm.target).load(made)
    assert not list(kept.parent.iterdir())
