"""Asking for exported models: wrong requests, processes that die, what an export raises."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support.exports import obtain
from support.onnx_made import linear

from shootout.core.clock import Deadline
from shootout.core.contract import Precision, Target
from shootout.core.errors import ModelError, NotRunKind, UsageError
from shootout.core.exported import client
from shootout.core.exported.client import Request, obtain_all
from shootout.core.exported.model import MANIFEST, ExportedModel
from shootout.core.exported.request import JOBS, checked
from shootout.core.host.child import Ending, run
from shootout.core.install import install
from shootout.models.onnx.effort import Effort
from shootout.models.sources import __main__ as exporter


@pytest.fixture
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> str:
        raise AssertionError("an export process was started")

    monkeypatch.setattr(client, "run", refuse)


def test_a_known_exported_comes_from_the_cache(request: pytest.FixtureRequest):
    known = [
        Request(model="residual_mlp", parameters={"d_model": 16, "n_layers": 3}, batch=2),
        Request(model="identity", batch=2),
    ]
    made = obtain_all(known)
    request.getfixturevalue("no_process")
    assert obtain("residual_mlp", {"d_model": 16, "n_layers": 3}, 2) == made[0]
    assert obtain("residual_mlp", {"d_model": 16, "n_layers": 3, "seed": 0}, 2) == made[0]
    assert obtain_all(known) == made


@pytest.mark.usefixtures("own_cache")
def test_a_process_of_its_own_exports_as_users_have_it(monkeypatch: pytest.MonkeyPatch):
    """All other tests fork theirs from one that has imported everything (see `support.programs`)."""
    endings: list[Ending] = []

    def noted(*words: Any) -> Ending:
        endings.append(run(*words))
        return endings[-1]

    monkeypatch.setattr(client, "run", noted)
    small = Request(model="residual_mlp", parameters={"d_model": 8, "n_layers": 1}, batch=2)
    plain, shared = obtain_all([small, replace(small, variant="shared")])
    assert isinstance(plain, ExportedModel), plain
    assert isinstance(shared, ExportedModel), shared
    assert plain.key != shared.key
    assert [ending.code for ending in endings] == [0]


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (Request(model="residual_mlpp"), "unknown model 'residual_mlpp': did you mean 'residual_mlp'"),
        (Request(model="digits", parameters={"hiden": 3}), "unknown parameter 'hiden': did you mean 'hidden'"),
        (Request(model="digits", batch=0), "batch must be a whole number from 1 to 1048576, got 0"),
        (Request(model="digits", batch=-4), "got -4"),
        (Request(model="digits", batch=10**9), "got 1000000000"),
        (Request(model="digits", batch=True), "got True"),
        (Request(model="permutation_probe"), "batch 6"),
        (Request(model="digits", inputs_npz=Path("x.npz")), "digits draws its own inputs"),
    ],
)
@pytest.mark.usefixtures("no_process")
def test_a_wrong_request_is_refused_before_any_process(request_: Request, says: str):
    (error,) = obtain_all([request_])
    assert isinstance(error, UsageError)
    assert says in str(error)


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize(
    ("script", "limit_s", "says"),
    [
        ("kill -9 $$", 60, "failed: killed by SIGKILL (the kernel does this when memory runs out)"),
        ("echo one >&2; echo two >&2; exit 3", 60, "failed: exited with code 3; its last words: one | two"),
        ("exec sleep 60", 0.2, "took longer than 0 s and was killed"),
    ],
)
def test_an_export_process_that_dies_or_hangs_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, limit_s: float, says: str
):
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(fake))
    monkeypatch.setattr(client, "run", run)
    monkeypatch.setattr(client, "BUILD_TIMEOUT_S", limit_s)
    with pytest.raises(ModelError) as error:
        obtain("identity", {}, 1)
    assert str(error.value).startswith("the export of identity")
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("raised", "kind", "says"),
    [
        (ModuleNotFoundError("No module named 'torch'", name="torch"), UsageError, install("torch")),
        (ModuleNotFoundError("no", name="sklearn"), UsageError, install("models")),
        (MemoryError("Unable to allocate 9 TiB"), ModelError, "doesn't fit into memory"),
        (
            OSError(28, "No space left on device"),
            UsageError,
            "No space left on device; free space or set SHOOTOUT_CACHE",
        ),
        (RuntimeError("unsupported operator"), ModelError, "exporting m failed: RuntimeError: unsupported operator"),
        (ModelError("as it is"), ModelError, "as it is"),
    ],
)
def test_whatever_an_export_raises_is_explained(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, kind: type[Exception], says: str
):
    def fail(*_: Any) -> None:
        raise raised

    monkeypatch.setattr(exporter, "make", fail)
    error = exporter._make_or_explain(Request(model="m"), Effort())
    assert type(error) is kind
    assert says in str(error)


class Left(Deadline):
    """So many seconds are left, however long anything takes."""

    @property
    def left_s(self) -> float:
        return self.seconds or 0.0

    def part(self, share: float = 1.0) -> Deadline:
        return Left(share * self.left_s)


@pytest.mark.usefixtures("own_cache")
def test_an_export_in_a_hurry_is_kept_under_a_key_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shootout.core.exported.request.LITTLE", 0.0)
    request = Request(model=str(linear(tmp_path / "m.onnx")))
    job, needs = checked(request), ["fp32", "int8"]
    assert isinstance(job, Request), job
    with client.workshop() as place:
        folder = place / job.key
        folder.mkdir()
        exporter.make(replace(job, folder=folder), Effort("m.onnx", limit=Left(1e3), plan=Left(0.0), leading=needs))
        made = client._collect_result(replace(job, folder=folder), Ending(code=0, said="", how=""), None)
    assert isinstance(made, ExportedModel), made
    assert made.key != job.key
    assert len(made.input_buffers()) == 2
    assert set(made.error_bounds) == {"fp32", "native"}
    assert any(note.startswith("left out of the export for want of time") for note in made.notes)
    assert made.whole_s
    hurried, patient = Left(made.whole_s / 2), Left(1e4)

    def kept(limit: Deadline, needs: list[str]) -> ExportedModel | None:
        return client._find_cached(job.key, client.lookup, limit, needs, is_brief=False)

    assert kept(hurried, needs) == made, "there is no time for more now either"
    assert kept(Left(2 * made.whole_s), needs) == made, "an export has a third of it"
    assert not kept(patient, needs)
    assert not kept(hurried, ["fp32"])
    whole, again = (obtain_all([request], None, patient, needs, begun_on)[0] for begun_on in ((), {made.key}))
    assert isinstance(whole, ExportedModel)
    assert (whole.key, again) == (job.key, made), "a run that was begun on it goes on with it"


def loop_without_end(file: Path) -> Path:
    """Write a file of some 250 bytes, a call of which adds 2**62 times."""
    scalar, row = onnx.TensorProto.BOOL, onnx.TensorProto.FLOAT
    body = helper.make_graph(
        [helper.make_node("Add", ["c", "step"], ["more"]), helper.make_node("Identity", ["on"], ["goes_on"])],
        "body",
        [
            helper.make_tensor_value_info("number", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info("on", scalar, []),
            helper.make_tensor_value_info("c", row, [1, 4]),
        ],
        [helper.make_tensor_value_info("goes_on", scalar, []), helper.make_tensor_value_info("more", row, [1, 4])],
        [numpy_helper.from_array(np.full(1, 1e-9, np.float32), "step")],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)],
        "loop",
        [helper.make_tensor_value_info("x", row, [1, 4])],
        [helper.make_tensor_value_info("y", row, [1, 4])],
        [numpy_helper.from_array(np.array(2**62), "count")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


@pytest.mark.usefixtures("own_cache")
def test_a_loop_without_end_ends_the_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client, "run", run)
    monkeypatch.setattr(client, "LONGEST_CALL_S", 0.1)
    (found,) = obtain_all([Request(model=str(loop_without_end(tmp_path / "loop.onnx")))])
    assert isinstance(found, ModelError)
    assert str(found) == "a call of loop.onnx takes longer than 0 s, so a loop in it may have no end"


@pytest.mark.parametrize(("kills", "kind"), [(1, None), (2, NotRunKind.KILLED)])
def test_an_export_that_was_killed_is_begun_anew_once_with_what_it_had_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, kind: NotRunKind | None
):
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path))
    monkeypatch.setattr(client, "install", lambda _, key: key)
    monkeypatch.setattr(client, "key_in", lambda folder: folder.name)
    asked: list[list[str]] = []

    def export(_: str, files: list[Path], *__: Any) -> Ending:
        jobs = pickle.loads((files[0] / JOBS).read_bytes())["jobs"]
        asked.append([job.key for job in jobs])
        assert not any(Path(job.folder, "half").exists() for job in jobs)
        is_killed = len(asked) <= kills
        for job in jobs[:1] if is_killed and len(asked) == 1 else [] if is_killed else jobs:
            (Path(job.folder) / MANIFEST).touch()
        (Path(jobs[-1].folder) / "half").touch()
        return Ending(code=-9 if is_killed else 0, said="", how="killed by SIGKILL", was_killed=is_killed)

    monkeypatch.setattr(client, "run", export)
    watched = client.WatchedExport(None, Left(1e3), is_needed=True)
    found: Any = client._make_missing([Request(model="m", key=key) for key in "ab"], {}, watched, ())
    assert asked == [["a", "b"], ["b"]]
    assert found["a"] == "a"
    if kind:
        assert isinstance(found["b"], ModelError)
        assert (found["b"].kind, str(found["b"])) == (kind, "the export of m failed: killed by SIGKILL")
    else:
        assert found["b"] == "b"


def test_what_no_arm_runs_in_is_not_predicted_and_such_a_exported_is_one_of_its_own(tmp_path: Path):
    request = Request(model=str(linear(tmp_path / "mine.onnx")), needs=("fp16", "fp32"))
    whole, narrow = obtain_all([replace(request, needs=()), request])
    assert isinstance(whole, ExportedModel)
    assert isinstance(narrow, ExportedModel)
    assert whole.key != narrow.key
    assert (set(narrow.error_bounds), narrow.error_bounds["fp16"]) == (
        {"fp16", "fp32", "native"},
        whole.error_bounds["fp16"],
    )
    assert {"bf16", "int8", "tf32"} <= set(narrow.unpredicted)
    assert not whole.unpredicted
    bf16 = Target(backend="onnxruntime", precision=Precision.BF16)
    assert (whole.is_judged(bf16), narrow.is_judged(bf16)) == (True, False)
    assert (narrow.whole_s, narrow.notes) == (whole.whole_s, whole.notes)
