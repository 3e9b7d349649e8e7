"""Whatever is read from outside may be damaged or odd: a ShootoutError or a right result, never another error, no hang.

`ODD_INPUTS` is how many inputs of each kind are tried; `make test-full` tries many. `support/odd_input` keeps what once
broke something.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tempfile
import tomllib
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, fields, is_dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from xml.etree import ElementTree as Xml

import numpy as np
import onnx
import pytest
import typer
from google.protobuf import json_format
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import onnx_made
from support.odd import ODD_TEXT, as_json, edited_bytes, edited_text, edited_values
from support.races.made import COPY, GROUP, A, B, checked, ended, header, played, prepared, rounds

from shootout import cli, models, studies
from shootout.apps import trace
from shootout.apps.judge.analysis import analyse
from shootout.backends.devices.readings import check_amounts
from shootout.commands import doctor, layers, run, selftest, tune  # noqa: F401 - patched below
from shootout.commands.output import PlainConsole
from shootout.core import backends
from shootout.core.backends import get
from shootout.core.contract import Availability, Capabilities, NotRun, NotRunKind, TensorSpec
from shootout.core.errors import ArmFailed, ShootoutError, printable
from shootout.core.exported import client
from shootout.core.exported.client import Request
from shootout.core.exported.model import MANIFEST, ExportedModel, open_exported
from shootout.core.host import store
from shootout.core.host.store import sealed
from shootout.core.journal import journal, samples
from shootout.core.journal.journal import NAME, PACKED
from shootout.core.journal.records import LINE, not_run
from shootout.core.messages import SCOPES, LoadTestResult, Scores, TriedRate, Turn
from shootout.core.study import plan, points, schema
from shootout.core.worker import reported
from shootout.models.data import data_files
from shootout.models.onnx import onnx_files
from shootout.models.sources.preview import preview
from shootout.tell import junit, table
from shootout.tell.formats import as_bencher, as_csv, as_parquet, document_text
from shootout.tell.machines import BIAS_FLOORS, bias_floor
from shootout.tell.page import contents, figures, markdown

KEPT = Path(__file__).parent / "support" / "odd_input"
INPUTS = int(os.environ.get("ODD_INPUTS", "15"))
odd = settings(
    max_examples=INPUTS,
    derandomize=INPUTS < 100,  # a share of them that is always the same
    database=None,
)
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300 + INPUTS)]


def refuse_or_read(read: Callable[[bytes, Path], None], data: bytes) -> None:
    """Read an input in an empty folder; a ShootoutError is a right answer."""
    with tempfile.TemporaryDirectory() as folder, suppress(ShootoutError):
        read(data, Path(folder))


# study files

WORDS = (
    *schema.Study.model_fields,
    *schema.study_options(),
    *(
        " = ",
        "[",
        "]",
        "[[points]]",
        "[parameters]",
        "'numpy:cpu:int8/shared'",
        "1..8",
    ),
    *('"all"', "'*'", "'onnxruntime:cpu:*'", "@old", "/nncf", "+aoti", "true", "1e999", "1979-05-27T07:32:00Z", "0x10"),
)


@cache
def study_files() -> tuple[str, ...]:
    return tuple((files("shootout") / "studies" / f"{name}{studies.SUFFIX}").read_text() for name in studies.names())


def read_study(data: bytes, folder: Path) -> None:
    try:
        fields = json.loads(data)
    except ValueError:
        fields = None
    if isinstance(fields, dict):
        study = schema.checked({"name": "s", **fields}, "a test")
    else:
        (folder / "study.toml").write_bytes(data)
        study = studies.load(str(folder / "study.toml"))
    points.targets_of(study)
    points.points(study)


@odd
@given(
    edited_text(study_files(), WORDS).map(lambda one: one.encode(errors="surrogatepass"))
    | edited_values([tomllib.loads(one) for one in study_files()]).map(as_json)
)
def test_a_study_file(data: bytes):
    refuse_or_read(read_study, data)


# run folders


@cache
def runs() -> tuple[list[Any], ...]:
    """A run with every kind of line, and one that serves, as lines of JSON values."""
    step = TriedRate(rate_per_s=9.0, requests=99, bound_ns=1e6, held=True)
    served = LoadTestResult(limit_ns=5e6, unloaded_ns=1e5, steps=(step,))
    restarts = [
        line
        for g in range(3)
        for line in (*(played(arm, g, at + g) for arm, at in ((A, 100.0), (B, 90.0), (COPY, 100.5))), rounds(g))
    ]
    whole = [
        *(header(), prepared(A), prepared(B), checked(A, Scores(name="m.py:score", rows=(1.0, 0.5, 2.0)))),
        not_run(GROUP, replace(B, threads=2), NotRun(NotRunKind.FAILED, "broke", during="load")),
        *(*restarts, ended()),
    ]
    serving = [header(), prepared(A), played(A, 0, 1e5, served=served), rounds(0), ended(complete=False, budget_s=9.0)]
    return tuple([json.loads(LINE.dump_json(line)) for line in lines] for lines in (whole, serving))


def with_checksums(lines: Any) -> bytes:
    texts = [
        json.dumps(line, separators=(",", ":")).encode() for line in (lines if isinstance(lines, list) else [lines])
    ]
    return b"".join(b'%s,"sum":"%08x"}\n' % (text[:-1], zlib.crc32(text)) for text in texts if text.endswith(b"}"))


def read_run(data: bytes, folder: Path) -> None:
    """Read it, and show it in every form."""
    (folder / (PACKED if data.startswith(b"\x1f\x8b") else NAME)).write_bytes(data)
    journal.begun(folder)
    document = analyse(folder)
    shown = io.StringIO()
    PlainConsole(file=shown, width=100).print(table.render(document, 100, full=True))
    assert printable(shown.getvalue()) == shown.getvalue(), "it steers the terminal"
    json.loads(document_text(document))
    Xml.fromstring(junit.as_xml(document))
    json.loads(as_bencher(document))
    assert as_csv(document.rows)
    assert as_parquet(document.rows)
    source = contents.read(folder, document)
    report = contents.lay_out(source, figures.draw_all(source))
    summary = markdown.render([report])
    assert printable(summary) == summary


JOURNALS = tuple(map(with_checksums, runs()))


@odd
@given(edited_bytes([*JOURNALS, gzip.compress(JOURNALS[0], mtime=0)]))
def test_a_damaged_journal(data: bytes):
    refuse_or_read(read_run, data)


@odd
@given(edited_values(runs()))
def test_a_journal_of_odd_values_with_right_checksums(lines: Any):
    refuse_or_read(read_run, with_checksums(lines))


@cache
def sample_file() -> bytes:
    turns = [Turn(latency_ns={scope: np.linspace(1.0, 2.0, 40) for scope in SCOPES})] * 3
    with tempfile.TemporaryDirectory() as folder:
        samples.write(Path(folder), "samples/g0-000.npz", [(A.label, turns), (B.label, turns)])
        return (Path(folder) / "samples/g0-000.npz").read_bytes()


def read_samples(data: bytes, folder: Path) -> None:
    for name in ("samples/g0-000.npz", samples.PACKED):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
        found = samples.Samples(folder)
        for arm in (A, B):
            found.of(GROUP, arm.label, "end_to_end", {0: "samples/g0-000.npz"})
        assert all(printable(line) == line for line in found.lost)


@odd
@given(edited_bytes([sample_file()]))
def test_a_file_of_samples(data: bytes):
    refuse_or_read(read_samples, data)


# models and data

BESIDE = np.arange(1500, dtype=np.float32).reshape(4, 375)


@cache
def onnx_models() -> tuple[onnx.ModelProto, ...]:
    """A quantized product with a free batch, and one whose weights lie beside the file."""
    with tempfile.TemporaryDirectory() as folder:
        found = [onnx.load(onnx_made.quantized(Path(folder, "a.onnx")))]
        value = onnx_made.value
        product = [onnx.helper.make_node("MatMul", ["x", "w"], ["y"], name="act")]
        file = onnx_made.write(
            Path(folder, "b.onnx"), product, [value("x", ("batch", None))], [value("y", None)], {"w": BESIDE}
        )
        found.append(onnx.load(file))
    tensor = found[1].graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, text in (("location", "model.onnx.data"), ("offset", "0"), ("length", str(BESIDE.nbytes))):
        tensor.external_data.add(key=key, value=text)
    return tuple(found)


def as_message(fields: Any) -> bytes:
    """Return the file of these fields; an empty one if no message can hold them."""
    try:
        return json_format.ParseDict(fields, onnx.ModelProto(), ignore_unknown_fields=True).SerializeToString()
    except (json_format.ParseError, ValueError, TypeError, AttributeError, SystemError):  # the last is protobuf's fault
        return b""


def read_onnx(data: bytes, folder: Path) -> None:
    """Read it as a plan and its dry run do, in this process."""
    file = folder / "model.onnx"
    file.write_bytes(data)
    (folder / "model.onnx.data").write_bytes(BESIDE.tobytes())
    head = onnx_files.header(file)
    free = [
        dim.dim_param or f"{one.name}.{at}"
        for one in head.graph.input
        for at, dim in enumerate(one.type.tensor_type.shape.dim)
        if not dim.dim_value
    ]
    request = Request(model=str(file), parameters=dict.fromkeys(free[1:], 8), batch=2)
    request.source.check_sizes(request)
    client.check(request)
    found = preview(request)
    assert all(isinstance(one, str) for one in (*found.notes, *found.inputs))
    onnx_files.parameter_count(head)


def without_outputs() -> bytes:
    """Return a file whose product gives nothing."""
    model = onnx_models()[1]
    model = type(model).FromString(model.SerializeToString())
    model.graph.node[0].ClearField("output")
    return model.SerializeToString()


@odd
@example(without_outputs())
@given(
    edited_bytes([model.SerializeToString() for model in onnx_models()])
    | edited_values([json_format.MessageToDict(model) for model in onnx_models()]).map(as_message)
)
def test_an_onnx_file(data: bytes):
    refuse_or_read(read_onnx, data)


@cache
def npz_files() -> tuple[bytes, ...]:
    def packed(**arrays: Any) -> bytes:
        file = io.BytesIO()
        np.savez(file, **arrays)
        return file.getvalue()

    x = np.zeros((3, 4), np.float32)
    plain = io.BytesIO()
    np.save(plain, x)
    return packed(x=x), packed(x=x, labels=np.arange(3)), packed(x=x.astype("<U4")), plain.getvalue()


def read_data(data: bytes, folder: Path) -> None:
    (folder / "data.npz").write_bytes(data)
    data_files.check(folder / "data.npz", (TensorSpec(name="x", shape=(1, 4), dtype="float32"),))


@odd
@given(edited_bytes(npz_files()))
def test_a_data_file(data: bytes):
    refuse_or_read(read_data, data)


# what the cache keeps


@cache
def cached_files() -> tuple[bytes, ...]:
    facts: dict[str, Any] = {"parameters": {"d": 1}, "error_bounds": {"fp32": 1e-5}, "versions": {"numpy": "2"}}
    none: dict[str, Any] = {"inputs": (), "outputs": (), "artifacts": ()}
    sizes: dict[str, Any] = {"batch": 1, "parameter_count": 1, "weights_sha256": "0", "export_s": 1.0}
    with tempfile.TemporaryDirectory() as folder:
        ExportedModel(folder=Path(folder), key="0" * 64, model="m", **sizes, **facts, **none).seal()
        manifest = (Path(folder) / MANIFEST).read_bytes()
    return manifest, sealed({"this machine": 0.01, "": 0.0}).encode()


def content(data: bytes) -> str:
    return json.dumps({name: value for name, value in json.loads(data).items() if name != "sha256"}, sort_keys=True)


def read_cached(data: bytes, folder: Path) -> None:
    """Believe what is as it was written, and nothing else."""
    (folder / MANIFEST).write_bytes(data)
    (folder / BIAS_FLOORS).write_bytes(data)
    with patch.dict(os.environ, {"SHOOTOUT_CACHE": str(folder)}):
        believed = bool(store.read_facts(BIAS_FLOORS))
        bias_floor()
    assert not believed or content(data) in map(content, cached_files())
    open_exported(folder)
    assert content(data) == content(cached_files()[0])


@odd
@given(edited_bytes(cached_files()) | edited_values([json.loads(one) for one in cached_files()]).map(as_json))
def test_a_file_of_the_cache(data: bytes):
    refuse_or_read(read_cached, data)


# what adapters answer


@cache
def reports() -> tuple[dict[str, Any], ...]:
    own = get("numpy").capabilities
    told = {one.name: getattr(own, one.name) for one in fields(own)}
    told["rest"] = [[list(key), value] for key, value in told["rest"].items()]
    events = [{"ph": "X", "name": "gemm", "ts": 1.0, "dur": 2.0, "args": {"x": 1}}]
    every = {"facts": {"notes": ["x"]}, "events": events, "amounts": [1.0, 2.0], "capabilities": told}
    plain = json.dumps(every, default=lambda one: asdict(one) if is_dataclass(one) else list(one))
    return tuple({name: value} for name, value in json.loads(plain).items())


def make_capabilities(said: Any) -> Any:
    """An adapter's capabilities, of whatever was given for their fields."""
    try:
        rest = {tuple(key): value for key, value in said["rest"]}
        return Capabilities(**{**said, "rest": rest})
    except (KeyError, TypeError, ValueError):
        return said


def read_reports(data: bytes, _: Path) -> None:
    readers: dict[str, Callable[[Any], object]] = {
        "facts": reported.check_facts,
        "amounts": check_amounts,
        "events": trace.check_events,
        "capabilities": lambda said: reported.check_capabilities(make_capabilities(said)),
    }
    for name, said in json.loads(data).items():
        if name in readers and isinstance(said, dict if name in ("facts", "capabilities") else list):
            try:
                readers[name](said)
            except ArmFailed:
                continue
            except (TypeError, ValueError):
                assert name == "events"  # of which its caller expects them


@odd
@given(edited_values(reports()).map(as_json))
def test_what_an_adapter_says_of_itself(data: bytes):
    refuse_or_read(read_reports, data)


# command lines

NAMED = ("model.onnx", "study.toml", "net.py:make", "data.npz", "run", "new", "config.json", "net.py", ".", "missing")
APT = {
    "--model": ("model.onnx", "net.py:make", "digits_cnn", "mlp", "recurrent"),
    "--set": ("d_model=8,16", "batch=1,2", "x.0=3", "width=4..16 x2", "backend=numpy"),
    "--shape": ("x=2x4", "2x4", "x=1x4,2x4", "x=0x4", "x=axb"),
    "--batch": ("1", "1,8", "1..64 x2", "1..5", "64..1 x2", "1..1048576", "0"),
    "--backends": ("numpy,numpy", "onnxruntime:cpu:*", "*", "openvino:cpu:int8/nncf", "numpy@old,numpy"),
    "--option": ("onnxruntime.intra=2", "spin.duration_us=5", "numpy.x=y", "a.b"),
    "--python": ("old=/usr/bin/python3", "a=b,c=d"),
    "--scenario": ("latency", "serve", "latency,serve", "training"),
    "--goal": ("best", "baseline", "resolve 3%", "resolve 0%", "resolve"),
    "--max-time": ("30", "2m", "0", "1e300", "1e-300"),
    "--baseline": ("numpy", "numpy:cpu:fp32", "numpy#2"),
    "--rate": ("100/s", "1e9"),
    "--p99": ("5ms", "1e-9s"),
}


class WouldMeasure(ShootoutError):
    """All was read and found right."""


def command() -> Any:
    return typer.main.get_command(cli.app)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    commands = command().commands
    name = draw(st.sampled_from(("run", "run", "run", *commands)))
    words = (
        *models.names(),
        *studies.shipped(),
        *backends.names(),
        *NAMED,
        "5ms",
        "100/s",
        "5%",
        "1,8",
        "int8",
        "cuda",
    )
    any_word = st.sampled_from(words) | st.sampled_from(ODD_TEXT) | st.text(max_size=12)
    line = [name, *draw(st.lists(st.sampled_from(words) | any_word, max_size=1))]
    options = [(flag, one.is_flag) for one in commands[name].params for flag in one.opts if flag.startswith("--")]
    for _ in range(draw(st.integers(0, 4)) if options else 0):
        flag, alone = draw(st.sampled_from(options))
        apt = st.sampled_from(APT.get(flag, words))
        line += [flag] if alone else [flag, draw(apt | apt | any_word)]
    return [inside(one) for one in line if "completion" not in one]  # which would write into the user's own home


def inside(text: str) -> str:
    """Return a text that names no file outside the folder, where `--out` and `pack` could write."""
    if text.startswith((".", "~")) or "/" in text:
        return "/".join(part for part in text.split("/") if part and part[0] not in ".~") or "."
    return text


def read_command(data: bytes, folder: Path) -> None:
    (folder / "model.onnx").write_bytes(onnx_models()[0].SerializeToString())
    (folder / "study.toml").write_text('model = "digits_cnn"\ntargets = ["numpy", "onnxruntime"]\nbatch = [1, 2]\n')
    (folder / "net.py").write_text("def make(width: int = 4, batch: int = 1):\n    return None\n")
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "data.npz").write_bytes(npz_files()[0])
    (folder / "run").mkdir()
    (folder / "run" / NAME).write_bytes(JOURNALS[0])
    out = io.StringIO()
    with nothing_runs(folder), redirect_stdout(out), redirect_stderr(io.StringIO()), suppress(SystemExit):
        command().main(args=json.loads(data), prog_name="shootout")
    assert printable(out.getvalue()) == out.getvalue(), "it steers the terminal"


@contextmanager
def nothing_runs(folder: Path) -> Iterator[None]:
    """End all that would start a process, wait for the machine or take its time."""

    def measure(*_: Any, **__: Any) -> None:
        raise WouldMeasure("this would be measured")

    ends = ("run.measure", "tune._measure_stages", "selftest.run", "doctor.examine", "doctor.obtain_ceilings")
    ends += ("layers.measure_sensitivity",)
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, {"HOME": str(folder), "SHOOTOUT_CACHE": str(folder / "cache")}))
        stack.enter_context(chdir(folder))
        for name in ends:
            stack.enter_context(patch(f"shootout.commands.{name}", measure))
        stack.enter_context(patch("shootout.commands.doctor.machine_lock", lambda *_, **__: nullcontext()))
        stack.enter_context(patch("vl_convert.vegalite_to_svg", lambda *_, **__: '<svg width="1" height="1">'))
        available = Availability(version="1")
        stack.enter_context(
            patch.object(plan, "known_available", lambda pairs, *_, **__: dict.fromkeys(pairs, available))
        )
        examined = SimpleNamespace(digest="0", facts=dict)
        stack.enter_context(patch.object(plan, "examine", lambda pythons, *_: dict.fromkeys(pythons, examined)))
        yield


@odd
@given(command_lines().map(as_json))
def test_a_command_line(data: bytes):
    refuse_or_read(read_command, data)


READERS = {
    "commands": read_command,
    "documents": lambda data, folder: read_run(with_checksums(json.loads(data)), folder),
    "onnx": read_onnx,
    "replies": read_reports,
    "samples": read_samples,
    "studies": read_study,
}


@pytest.mark.parametrize("name", sorted(file.name for file in KEPT.iterdir()))
def test_what_once_broke_something(name: str):
    refuse_or_read(READERS[name.partition("-")[0]], (KEPT / name).read_bytes())
