"""Targets without a time and their reasons, and backends that were not tried: what stands below the table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.races import made
from support.races.cells import cell, document, row

from shootout.apps.judge.analysis import analyse
from shootout.core import backends
from shootout.core.contract import NotRunKind
from shootout.core.host import environment
from shootout.core.install import install
from shootout.core.journal import samples
from shootout.tell.document import Document, Row
from shootout.tell.notes import tell_missing
from shootout.tell.report import NAMED, write_lines

SLOW, FAST = row("slow", 2e6), row("fast", 5e5)


def tell(found: Document) -> dict[str, str]:
    """Each line's text, by its label."""
    return {line.label: " · ".join(line.parts) for line in tell_missing(found.answer, [found]) if line.parts}


def told(*rows: Row, libraries: tuple[str, ...] | None = None) -> dict[str, str]:
    facts = {} if libraries is None else {"libraries": dict.fromkeys(libraries, "1.0")}
    return tell(document(cell(*rows), environment=facts))


def test_each_reason_is_told_failures_first_and_a_long_one_in_its_first_words():
    gpus = [row(f"g{number}:cuda:fp32", None, reason="no GPU (libcuda.so.1 is not found)") for number in range(5)]
    absent = {"reason": "No module named 'x'", "fix": "pip install 'shootout[x]'", "cause": NotRunKind.NOT_INSTALLED}
    broken = {"outcome": "failed", "fix": None, "cause": NotRunKind.FAILED}
    long = row("z", None, **broken, reason=f"{'word ' * 14}w; its last step was: tracing")
    found = told(SLOW, FAST, *gpus, row("x", None, **absent), row("y", None, **broken, reason="it broke"), long)
    failed, cut, *others = found["Skipped"].split(" · ")
    assert (failed, cut) == ("y: failed: it broke", f"z: failed: {'word ' * 14}w…"), "no beginning of a last part"
    assert others[:2] == ["5 CUDA targets: no GPU", "x: not installed (pip install 'shootout[x]')"]
    general = [name for name in backends.names() if not backends.entry(name).own_files]
    count = len(general) - NAMED
    assert found["Untried"] == f"numpy, torch-eager, torch-compile, {count} more (add with --backends)"


def test_what_could_win_but_was_not_installed_there_is_told_with_one_command():
    """The packages are those of the machine that measured, whatever the one that reads has."""
    there = ("numpy", "torch", "onnxruntime-gpu", "openvino", "executorch", "ncnn", "iree-base-runtime")
    found = told(SLOW, FAST, libraries=there)
    assert found["Skipped"] == f"not installed: jax-jit, litert ({install('jax,litert')})"
    assert found["Untried"].startswith("numpy, torch-eager,")
    on_gpu = told(SLOW, row("fast:cuda:fp16", 5e5), libraries=there)["Skipped"]
    assert on_gpu == f"not installed: jax-jit, litert, tensorrt ({install('jax,litert,tensorrt-rtx')})"
    training = told(*(row(name, 5e5, scenario="train-step") for name in ("slow", "fast")), libraries=there)
    assert training["Skipped"].startswith("not installed: jax-jit ("), "litert trains nothing"
    assert "Skipped" not in told(SLOW, FAST)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_run_from_another_machine_speaks_of_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_there: bool
):
    """What the machine that reads has is the opposite."""
    monkeypatch.setattr(samples, "read", lambda *_: np.array([]))
    has = {
        True: {"numpy": "2.0", "onnxruntime": "1.20"},
        False: dict.fromkeys(("numpy", "torch", "openvino", "ncnn"), "2.0"),
    }
    monkeypatch.setattr(environment, "libraries", lambda: has[not is_there])
    there = {"machine": "another", "libraries": has[is_there]}
    lines = [made.played(arm, 0, 1e5) for arm in made.ARMS]
    folder = made.write(tmp_path / "run", made.header(environment=there), *lines, made.rounds(0))
    found = tell(analyse(folder))
    assert found["Skipped"].startswith("not installed: ")
    assert ("onnxruntime" in found["Untried"], "onnxruntime" in found["Skipped"]) == (is_there, not is_there)


def test_a_run_of_trees_names_no_runtime_that_cant_read_them():
    mine = {"model": "/c/exported/trees-1/forest.ubj.onnx"}
    found = told(row("onnxruntime", 9e5, **mine), row("xgboost", 5e5, **mine))
    assert found == {"Untried": "numpy (add with --backends)"}, "the only other one that reads them"
    assert "torch-eager" in told(row("onnxruntime", 9e5))["Untried"]


def test_most_of_what_is_missing_is_one_extra_in_two_lines():
    """What an environment with the extra `onnx` alone lacks."""
    gpus = [row(f"onnxruntime:cuda:{one}", None, reason="no NVIDIA driver on this machine") for one in ("a", "b")]
    found = document(cell(SLOW, FAST, *gpus), environment={"libraries": {"numpy": "2", "onnxruntime": "1"}})
    (skipped,) = (line for line in tell_missing(found.answer, [found]) if line.label == "Skipped")
    assert skipped.parts[-1].endswith(f"more ({install('cpu,executorch')})")
    assert len([*write_lines([skipped], 120)]) <= 2
