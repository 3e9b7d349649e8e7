from __future__ import annotations

import json
import pickle
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.exports import obtain

from shootout import models
from shootout.bundle.bundle import ModelBundle, open_bundle
from shootout.bundle.fidelity import compare, gate, with_accuracy
from shootout.contract import Artifact, Precision
from shootout.errors import ModelError, UsageError
from shootout.export import __main__ as exporter
from shootout.export import cache, client
from shootout.export import inputs as calibration
from shootout.export.client import Request, check, obtain_all
from shootout.export.job import Job, from_json, to_json
from shootout.export.request import checked
from shootout.host import store
from shootout.host.child import Ending, run
from shootout.quantize import torch_bands

REQUESTS = {
    "residual_mlp": Request(model="residual_mlp", parameters={"d_model": 16, "n_layers": 3}, batch=2),
    "digits": Request(model="digits", batch=4),
    "permutation_probe": Request(model="permutation_probe", batch=6),
    "identity": Request(model="identity", batch=2),
}
Bundles = dict[str, ModelBundle]


@pytest.fixture(scope="module")
def bundles() -> Bundles:
    made = obtain_all(list(REQUESTS.values()))
    assert all(isinstance(bundle, ModelBundle) for bundle in made), made
    return dict(zip(REQUESTS, made, strict=True))  # type: ignore[arg-type]


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> str:
        raise AssertionError("an export process was started")

    monkeypatch.setattr(client, "run", refuse)


def outputs_of(bundle: ModelBundle, artifact: Artifact) -> list[dict[str, Any]]:
    """The bundle's outputs for its input buffers, run from one of its files."""
    if artifact is Artifact.FORWARD:
        forward, weights = models.get(bundle.model).forward, bundle.weights()
        assert forward
        return [forward(np, weights, one, bundle.parameters) for one in bundle.input_buffers()]
    if artifact is Artifact.ONNX:
        import onnxruntime as ort

        session = ort.InferenceSession(bundle.path(artifact), providers=["CPUExecutionProvider"])
        assert [i.name for i in session.get_inputs()] == [spec.name for spec in bundle.inputs]
        assert [i.shape for i in session.get_inputs()] == [list(spec.shape) for spec in bundle.inputs]
        return [{"y": session.run(["y"], dict(one))[0]} for one in bundle.input_buffers()]

    if artifact is Artifact.PT2:
        module: Any = torch.export.load(bundle.path(artifact)).module()
    else:
        module = models.get(bundle.model).module(bundle.parameters)
        module.load_state_dict({name: torch.from_numpy(array) for name, array in bundle.weights().items()})
    with torch.no_grad():
        return [{"y": module(torch.from_numpy(one["x"])).numpy()} for one in bundle.input_buffers()]


@pytest.mark.parametrize("name", ["residual_mlp", "digits", "permutation_probe"])
def test_every_artifact_computes_the_oracles_function(bundles: Bundles, name: str):
    bundle = bundles[name]
    assert len(bundle.artifacts) >= 3
    for artifact in bundle.artifacts:
        found = compare(outputs_of(bundle, artifact), bundle.oracle_outputs())
        assert gate(found, bundle.bands[Precision.FP32]) is None, artifact


def test_a_bundle_describes_itself(bundles: Bundles):
    bundle = bundles["residual_mlp"]
    assert (bundle.model, bundle.batch, bundle.parameter_count) == ("residual_mlp", 2, 768)
    assert bundle.parameters == {"d_model": 16, "n_layers": 3, "activation": "relu", "seed": 0}
    assert [(spec.name, spec.shape, spec.dtype) for spec in bundle.inputs] == [("x", (2, 16), "float32")]
    assert [(spec.name, spec.shape, spec.dtype) for spec in bundle.outputs] == [("y", (2, 16), "float32")]
    assert bundle.export_s > 0
    assert bundle.folder.name == bundle.key
    assert len(bundle.weights_sha256) == 64
    assert bundle.versions["torch"].startswith("2.")
    assert stat.S_IMODE(bundle.folder.stat().st_mode) == 0o700
    assert pickle.loads(pickle.dumps(bundle)) == bundle


def test_inputs_are_eight_different_ones_and_the_oracle_is_float64(bundles: Bundles):
    for name in ("residual_mlp", "digits", "identity"):
        buffers = bundles[name].input_buffers()
        assert len({one["x"].tobytes() for one in buffers}) == 8
        assert all(bundles[name].inputs[0].matches(one["x"]) for one in buffers)
        assert {one["y"].dtype for one in bundles[name].oracle_outputs()} == {np.dtype(np.float64)}


def test_the_report_split_gives_digits_its_accuracy(bundles: Bundles):
    bundle = bundles["digits"]
    forward, weights, report = models.get("digits").forward, bundle.weights(), bundle.report()
    assert forward
    assert report
    found = compare(outputs_of(bundle, Artifact.FORWARD), bundle.oracle_outputs())
    run = lambda x: forward(np, weights, x, bundle.parameters)  # noqa: E731
    assert (with_accuracy(found, run, report, bundle.batch).accuracy or 0) >= 0.95
    assert bundles["residual_mlp"].report() is None


def test_calibration_sets_have_the_models_shape_and_no_report_rows(bundles: Bundles):
    for bundle in bundles.values():
        assert all(bundle.inputs[0].matches(one["x"]) for one in bundle.calibration())
        assert len(bundle.calibration()) >= 8
    report = bundles["digits"].report()
    assert report
    secret = {image.tobytes() for image in report.inputs["x"]}
    assert not secret & {row.tobytes() for one in bundles["digits"].calibration() for row in one["x"]}


def test_calibration_stays_small_for_big_inputs():
    spec = models.get("residual_mlp").inputs({"d_model": 65_536}, 64)
    assert len(calibration.drawn(spec, 64)) == 4, "16 MiB each"


@pytest.mark.parametrize("name", ["residual_mlp", "digits"])
def test_bands_widen_as_precision_narrows(bundles: Bundles, name: str):
    bands = bundles[name].bands
    fp32, tf32, fp16, bf16 = (bands[p] or np.nan for p in ("fp32", "tf32", "fp16", "bf16"))
    assert 1e-5 == fp32 < tf32 <= fp16 < bf16 < 0.2


def test_bands_hold_torchs_own_reduced_precision(bundles: Bundles):

    bundle = bundles["residual_mlp"]
    module = models.get("residual_mlp").module(bundle.parameters)
    module.load_state_dict({name: torch.from_numpy(array) for name, array in bundle.weights().items()})
    errors = {}
    for label, dtype in ((Precision.FP16, torch.float16), (Precision.BF16, torch.bfloat16)):
        half = module.to(dtype)
        with torch.no_grad():
            got = [{"y": half(torch.from_numpy(one["x"]).to(dtype)).float().numpy()} for one in bundle.input_buffers()]
        errors[label] = found = compare(got, bundle.oracle_outputs())
        assert gate(found, bundle.bands[label]) is None
    assert gate(errors[Precision.BF16], bundle.bands[Precision.FP32])
    assert gate(errors[Precision.BF16], bundle.bands[Precision.TF32])


def test_a_model_that_overflows_fp16_has_no_band_for_it():
    inputs = [{"x": np.full((1, 4), 2.0**17, np.float32)}]
    module = torch.nn.Linear(4, 4, bias=False)
    module.load_state_dict({"weight": torch.eye(4)})
    found = torch_bands.bands(module.double(), inputs, [{"y": inputs[0]["x"].astype(np.float64)}])
    assert found[Precision.FP16] is None
    assert found[Precision.BF16] is not None


def test_an_artifact_that_is_not_there_is_named(bundles: Bundles):
    with pytest.raises(ModelError, match="identity has no onnx artifact; it has forward, none"):
        bundles["identity"].path(Artifact.ONNX)
    assert bundles["identity"].weights() == {}
    assert bundles["identity"].path(Artifact.FORWARD).exists()


def test_the_identity_bundle_is_made_with_numpy_alone(tmp_path: Path):
    code = f"""if True:
        import sys
        for name in ("torch", "onnx", "onnxscript", "onnxruntime", "safetensors", "sklearn", "scipy"):
            sys.modules[name] = None  # importing it fails
        from shootout.export.__main__ import make
        from shootout.export.job import Job
        make(Job(folder={str(tmp_path)!r}, model="identity", batch=2))
        from pathlib import Path
        from shootout.bundle.bundle import open_bundle
        bundle = open_bundle(Path({str(tmp_path)!r}))
        assert (bundle.oracle_outputs()[0]["y"] == bundle.input_buffers()[0]["x"]).all()
        assert bundle.weights() == {{}}
        """
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.usefixtures("no_process")
def test_a_known_bundle_comes_from_the_cache(bundles: Bundles):
    assert obtain("residual_mlp", {"d_model": 16, "n_layers": 3}, 2) == bundles["residual_mlp"]
    assert obtain("residual_mlp", {"d_model": 16, "n_layers": 3, "seed": 0}, 2) == bundles["residual_mlp"]
    assert obtain_all(list(REQUESTS.values())) == list(bundles.values())


def flip(path: Path) -> None:
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "changed": lambda folder: flip(folder / "inputs.npz"),
    "missing": lambda folder: (folder / "oracle.npz").unlink(),
    "foreign": lambda folder: (folder / "model.onnx.data").write_text("x"),
    "torn manifest": lambda folder: (folder / "manifest.json").write_text("{"),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "empty manifest": lambda folder: (folder / "manifest.json").write_text("null"),
    "other version": lambda folder: (folder / "manifest.json").write_text('{"schema": 99}'),
}


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("damage", list(DAMAGE))
def test_a_damaged_bundle_is_refused_and_made_again(damage: str):
    bundle = obtain("identity", {}, 3)
    DAMAGE[damage](bundle.folder)
    with pytest.raises(ModelError):
        open_bundle(bundle.folder)
    again = obtain("identity", {}, 3)
    assert again.key == bundle.key
    assert open_bundle(again.folder) == again
    assert [entry.name for entry in bundle.folder.parent.iterdir()] == [bundle.key]


@pytest.mark.usefixtures("own_cache")
def test_a_bundle_under_another_key_is_not_believed():
    bundle = obtain("identity", {}, 3)
    other = bundle.folder.with_name("0" * 64)
    bundle.folder.rename(other)
    assert cache.lookup(other.name) is None


@pytest.mark.usefixtures("own_cache")
def test_another_process_that_was_faster_wins():
    bundle = obtain("identity", {}, 3)
    with cache.workshop() as folder:
        (folder / "late").mkdir()
        (folder / "late" / "file").touch()
        assert cache.install(folder / "late", bundle.key) == bundle
    assert open_bundle(bundle.folder) == bundle


def test_a_job_crosses_into_the_export_process_whole(tmp_path: Path):
    np.savez(tmp_path / "data.npz", x=GOOD)
    job = checked(Request(model="digits", variant="shared", calibration_npz=tmp_path / "data.npz"))
    assert isinstance(job, Job), job
    assert job.base
    assert job.base.calibration == job.calibration
    assert from_json(json.loads(json.dumps(to_json(job)))) == job


def test_the_key_follows_all_that_matters(monkeypatch: pytest.MonkeyPatch):
    def key(**changes: Any) -> str:
        job = {"model": "residual_mlp", "parameters": {"seed": 0}, "batch": 1, "file": None}
        return cache.key({**job, **changes})

    same = key()
    assert key() == same
    others = [key(parameters={"seed": 1}), key(batch=2), key(model="digits")]
    monkeypatch.setattr(cache, "version_of", lambda _: "9.9")
    others.append(key())
    monkeypatch.setattr(cache, "_sources", lambda: "other code")
    others.append(key())
    assert len({same, *others}) == 6


def test_the_key_covers_every_module_that_makes_a_bundle():
    code = """if True:
        import sys
        from importlib import import_module
        from pathlib import Path
        import shootout
        from shootout.export import cache
        package, hashed = Path(shootout.__file__).parent, set(cache.source_files())
        for file in (package / "export").glob("*.py"):
            import_module(f"shootout.export.{file.stem}")
        loaded = {Path(module.__file__) for name, module in sys.modules.items() if name.startswith("shootout.")}
        names = {str(file.relative_to(package)) for file in loaded - hashed}
        print(sorted(name for name in names if not name.startswith("host/") and not name.endswith("__init__.py")))
        """
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert found.strip() == str(["clock.py", "errors.py", "messages.py", "trace_events.py"])


GOOD = np.random.default_rng(3).random((3, 2, 64)).astype(np.float32)
SPOILT = GOOD.copy()
SPOILT[1, 0, :2] = np.nan, np.inf
UNUSABLE: dict[str, tuple[Any, str]] = {
    "missing": (None, "can't read {path}: No such file or directory"),
    "not an npz": (b"PK no", "{path} is not an .npz of plain arrays"),
    "another name": ({"image": GOOD}, "{path}: expected inputs ['x'], got ['image']"),
    "another shape": (
        {"x": GOOD[:, :1]},
        "expected float32[2, 64], or K of them along a leading axis; got float32[3, 1, 64]",
    ),
    "another dtype": ({"x": GOOD.astype(np.float64)}, "got float64[3, 2, 64]"),
    "NaN": ({"x": SPOILT}, "input 'x': expected numbers, got NaN in 1 places"),
    "infinity": ({"x": np.where(np.isnan(SPOILT), 0, SPOILT).astype(np.float32)}, "got infinity in 1 places"),
    "no set": ({"x": GOOD[:0]}, "at least one; got {{'x': 0}}"),
    "one set": ({"x": GOOD[:1]}, "1 calibration set gives no range to rely on; stack at least 2 along a leading axis"),
    "one set, no axis": ({"x": GOOD[0]}, "1 calibration set gives no range"),
}


@pytest.mark.parametrize("what", list(UNUSABLE))
def test_calibration_data_that_cannot_be_used_cost_only_what_needs_them(tmp_path: Path, what: str):
    content, says = UNUSABLE[what]
    path = tmp_path / "mine.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.savez(path, **content)
    bundle = obtain("identity", {}, 2, calibration_npz=path)
    assert says.format(path=path) in bundle.calibration_fault
    assert bundle.calibration_fault.startswith("the calibration data can't be used: ")
    with pytest.raises(ValueError, match="the calibration data can't be used"):
        bundle.calibration()
    assert bundle.oracle_outputs()


def test_good_calibration_data_replace_the_models_own(bundles: Bundles, tmp_path: Path):
    np.savez(tmp_path / "mine.npz", x=GOOD[:, :, :16])
    request = REQUESTS["residual_mlp"]
    mine = obtain(request.model, request.parameters, request.batch, calibration_npz=tmp_path / "mine.npz")
    assert mine.calibration_fault == ""
    assert np.array_equal(np.stack([one["x"] for one in mine.calibration()]), GOOD[:, :, :16])
    plain = bundles["residual_mlp"]
    assert (mine.folder / "inputs.npz").read_bytes() == (plain.folder / "inputs.npz").read_bytes()
    assert mine.bands["fp32"] == plain.bands["fp32"]
    assert mine.bands["int8-dynamic"] != plain.bands["int8-dynamic"]


def test_the_key_follows_the_calibration_data_and_the_variant(tmp_path: Path):
    def key(**more: Any) -> str:
        job = checked(Request(model="digits", **more))
        assert isinstance(job, Job), job
        return job.key

    path = tmp_path / "mine.npz"
    keys = [key(), key(calibration_npz=path)]
    for sets in (GOOD, GOOD * 2):
        np.savez(path, x=sets)
        keys.append(key(calibration_npz=path))
    keys += [key(variant=one) for one in ("shared", "mixed-sqnr-30", "mixed-size-30", "pruned-50", "pruned-2of4")]
    keys.append(key(variant="shared", calibration_npz=path))
    assert len(set(keys)) == len(keys) == 10
    assert key() == keys[0]


@pytest.mark.usefixtures("own_cache")
def test_a_variant_is_made_from_the_plain_bundle(monkeypatch: pytest.MonkeyPatch):
    variant = Request(model="permutation_probe", batch=6, variant="shared")
    (made,) = obtain_all([variant])
    assert isinstance(made, ModelBundle)
    plain = cache.lookup(checked(replace(variant, variant="")).key)  # type: ignore[union-attr]
    assert plain
    assert (made.folder / "oracle.npz").read_bytes() == (plain.folder / "oracle.npz").read_bytes()
    shutil.rmtree(made.folder)
    jobs: list[str] = []

    def noted(module: str, files: list[Path], *rest: Any) -> Ending:
        jobs.extend(job["key"] for file in files for job in json.loads(file.read_text()))
        return run(module, files, *rest)

    monkeypatch.setattr(client, "run", noted)
    (again,) = obtain_all([variant])
    assert isinstance(again, ModelBundle)
    assert jobs == [made.key] == [again.key], "the plain bundle comes from the cache"


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
        (Request(model="digits", sets={"N": 3}), "digits draws its own inputs"),
        (Request(model="digits", inputs_npz=Path("x.npz")), "digits draws its own inputs"),
    ],
)
@pytest.mark.usefixtures("no_process")
def test_a_wrong_request_is_refused_before_any_process(request_: Request, says: str):
    (error,) = obtain_all([request_])
    assert isinstance(error, UsageError)
    assert says in str(error)


@pytest.mark.usefixtures("own_cache")
def test_a_wrong_request_does_not_stop_the_others():
    good = Request(model="identity", batch=1)
    first, wrong, second = obtain_all([good, Request(model="identity", batch=0), good])
    assert isinstance(first, ModelBundle)
    assert first == second
    assert isinstance(wrong, UsageError)
    with pytest.raises(UsageError, match="batch must be"):
        obtain("identity", {}, 0)


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("kill -9 $$", "failed: killed by SIGKILL (the kernel does this when memory runs out)"),
        ("echo one >&2; echo two >&2; exit 3", "failed: exited with code 3; its last words: one | two"),
    ],
)
def test_an_export_process_that_dies_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, says: str):
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(fake))
    monkeypatch.setattr(client, "run", run)
    with pytest.raises(ModelError) as error:
        obtain("identity", {}, 1)
    assert str(error.value).startswith("the export of identity")
    assert says in str(error.value)


@pytest.mark.usefixtures("own_cache")
def test_an_export_process_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nexec sleep 60\n")
    fake.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(fake))
    monkeypatch.setattr(client, "run", run)
    monkeypatch.setattr(client, "BUILD_TIMEOUT_S", 0.2)
    with pytest.raises(ModelError, match="took longer than 0 s and was killed"):
        obtain("identity", {}, 1)


@pytest.mark.parametrize(
    ("raised", "kind", "says"),
    [
        (ModuleNotFoundError("No module named 'torch'", name="torch"), UsageError, "pip install 'shootout[torch]'"),
        (ModuleNotFoundError("no", name="sklearn"), UsageError, "pip install 'shootout[models]'"),
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
    def fail(_: Any) -> None:
        raise raised

    monkeypatch.setattr(exporter, "make", fail)
    error = exporter._explained(Job(model="m"))
    assert type(error) is kind
    assert says in str(error)


def test_a_full_disk_is_an_error_and_leaves_nothing(own_cache: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: Any, **__: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.tempfile, "mkdtemp", full)
    with pytest.raises(UsageError, match="No space left on device; set SHOOTOUT_CACHE"):
        obtain("identity", {}, 1)
    assert list((own_cache / "bundles").iterdir()) == []


def test_a_cache_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"can't make the cache folder .*file/bundles.*set SHOOTOUT_CACHE"):
        obtain("identity", {}, 1)


def test_a_cache_that_others_can_write_is_refused(own_cache: Path):
    folder = own_cache / "bundles"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(UsageError, match="others can write the cache folder"):
        obtain("identity", {}, 1)


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SHOOTOUT_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert store.cache_folder() == tmp_path / "home" / ".cache" / "shootout" / "bundles"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert store.cache_folder() == tmp_path / "xdg" / "shootout" / "bundles"
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "own"))
    assert store.cache_folder() == tmp_path / "own" / "bundles"


def test_asking_for_bundles_imports_no_framework(bundles: Bundles):
    code = """if True:
        import sys
        from shootout.export.client import Request, obtain
        bundle = obtain(Request(model="identity", batch=2))
        heavy = ("torch", "onnx", "onnxruntime", "safetensors", "sklearn", "scipy")
        loaded = [name for name in heavy if name in sys.modules]
        assert not loaded, loaded
        bundle.input_buffers(), bundle.oracle_outputs(), bundle.weights()
        """
    subprocess.run([sys.executable, "-c", code], check=True)
    assert bundles["identity"].key


def test_the_manifest_hashes_every_other_file(bundles: Bundles):
    folder = bundles["digits"].folder
    files = json.loads((folder / "manifest.json").read_text())["files"]
    assert set(files) == {path.name for path in folder.iterdir()} - {"manifest.json"}
    assert {"model.onnx", "model.pt2", "params.safetensors", "report.npz"} <= set(files)


def test_big_weights_lie_beside_the_onnx_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from shootout.export import torch_files

    monkeypatch.setattr(torch_files, "INLINE_BYTES", 1_000)
    parameters = models.get("residual_mlp").check({"d_model": 64, "n_layers": 2})
    exporter.make(Job(folder=str(tmp_path), model="residual_mlp", parameters=parameters))
    bundle = open_bundle(tmp_path)
    assert bundle.path(Artifact.ONNX).stat().st_size < 64 * 64 * 4 < (tmp_path / "model.onnx.data").stat().st_size
    found = compare(outputs_of(bundle, Artifact.ONNX), bundle.oracle_outputs())
    assert gate(found, bundle.bands[Precision.FP32]) is None


def test_torch_s_table_of_operators_is_made_once(tmp_path: Path):
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    from shootout.export import torch_files

    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        module, example = torch.nn.Linear(2, 2).eval(), {"x": np.ones((1, 2), np.float32)}
        torch_files.write_module(module, example, tmp_path / name)
    assert ONNXRegistry.from_torchlib.cache_info().misses == 1


def test_a_run_is_another_one_with_other_calibration_data(tmp_path: Path):
    path, hashes = tmp_path / "data.npz", []
    for value in (0.25, 0.5):
        np.savez(path, x=np.full((2, 1, 64), value, np.float32))
        hashes.append(check(Request(model="digits", calibration_npz=path))[1])
    assert hashes[0] != hashes[1]
    assert all(hashes)
