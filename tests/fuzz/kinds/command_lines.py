"""Command lines: read, checked and planned as ever, in a folder with files to name; what would measure is left out."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import patch

import numpy as np
import typer
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from shootout import backends, cli, models
from shootout.commands import (  # noqa: F401 - patched below
    doctor,
    run,
    sensitivity,
    tune,
)
from shootout.contract import Availability, Device, Precision
from shootout.errors import ShootoutError, printable
from shootout.journal.journal import NAME
from shootout.study import plan, schema
from tests.fuzz.edits import NASTY_TEXT, as_json

from . import journals, onnx_files

OPTIONS_LEFT_OUT = {"--install-completion", "--show-completion"}
"""They write into the user's own home."""
STUDY = 'model = "digits_cnn"\ntargets = ["numpy", "onnxruntime"]\nbatch = [1, 2]\n'
FACTORY = "def make(width: int = 4, batch: int = 1):\n    return None\n"
FILES = ("model.onnx", "study.toml", "net.py:make", "net.py", "data.npz", "run", "new", "config.json", ".", "missing")


APT = {
    "": (
        "model.onnx",
        "study.toml",
        "net.py:make",
        "run",
        "new",
        "digits_cnn",
        "digits",
        "residual_mlp,digits",
        "batch-sweep",
    ),
    "--model": ("model.onnx", "net.py:make", "digits_cnn", "mlp", "digits", "decoder_step", "model.onnx,other.onnx"),
    "--set": (
        "d_model=8,16",
        "n_layers=2",
        "batch=1,2",
        "threads=1",
        "hidden=4",
        "x.0=3",
        "width=4..16 x2",
        "backend=numpy",
    ),
    "--shape": ("x=2x4", "2x4", "x=1x4,2x4", "x=0x4", "y=1", "x=-1x4", "x=axb"),
    "--batch": ("1", "1,8", "1..64 x2", "1..5", "1048577", "64..1 x2", "1..1048576", "0"),
    "--backends": (
        "numpy",
        "numpy,numpy",
        "onnxruntime:cpu:*",
        "*",
        "torch-eager:cpu:int8",
        "spin",
        "openvino:cpu:int8/nncf",
        "numpy@old,numpy",
    ),
    "--threads": ("1", "all", "1,2", "99999999", "1..4"),
    "--option": (
        "onnxruntime.intra=2",
        "onnxruntime.allow_spinning=0",
        "spin.duration_us=5",
        "openvino.hint=latency",
        "numpy.x=y",
    ),
    "--python": ("old=/usr/bin/python3", "old=python", "a=b,c=d"),
    "--scenario": ("latency", "throughput", "serve", "latency,serve", "training"),
    "--rate": ("100/s", "1e9", "0.1/s"),
    "--p99": ("5ms", "1e-9s", "5us"),
    "--instances": ("1", "2", "1,2,4"),
    "--max-error": ("0.5", "1", "1e-3"),
    "--baseline": ("numpy", "numpy:cpu:fp32", "onnxruntime", "numpy#2", "numpy(x=1)"),
    "--goal": ("best", "baseline", "resolve 3%", "resolve 0%", "resolve"),
    "--l2": ("cold", "warm"),
    "--gpu": ("0", "0,1", "GPU-1"),
    "--max-time": ("30", "2m", "1h", "0", "1e300", "1e-300"),
    "--out": ("new", "run", "data.npz", "a/b", "."),
    "--allow": ("fp16", "int8,bf16"),
    "--device": ("cpu", "cuda"),
    **dict.fromkeys(
        ("--inputs", "--calibration", "--labels", "--weights"), ("data.npz", "net.py", "run", "config.json")
    ),
}
"""What belongs behind each option, or alone."""


class Reached(ShootoutError):
    """All was read and found right: now it would be measured."""


@cache
def _command() -> Any:
    return typer.main.get_command(cli.app)


@cache
def _flags() -> dict[str, list[tuple[str, bool]]]:
    """By command, its options, and whether each takes a value."""
    return {
        name: [(flag, not one.is_flag) for one in command.params for flag in one.opts if flag.startswith("--")]
        for name, command in _command().commands.items()
    }


@cache
def _words() -> tuple[str, ...]:
    targets = [f"{name}:{device}" for name in backends.names() for device in Device]
    precise = [f"{one}:{precision}" for one in targets[::5] for precision in Precision]
    schemes = ("/shared", "/nncf", "+aoti", "@old", "#2", "int8/mixed-sqnr-30", "pruned-50")
    sizes = (
        "1",
        "1,8",
        "1..8",
        "2**3",
        "0",
        "x=1x4",
        "batch=2",
        "d_model=8,16",
        "n_layers=2",
        "x=1x3x8x8",
        "all",
        "1x4",
    )
    limits = (
        "30",
        "2m",
        "5ms",
        "1h",
        "100/s",
        "5%",
        "resolve 3%",
        "best",
        "baseline",
        "0.1",
        "-5",
        "1e999",
        "cold",
        "warm",
    )
    knobs = (
        "onnxruntime.threads=2",
        "openvino.hint=latency",
        "numpy.x=y",
        "spin.duration_us=5",
        "onnxruntime+ep=X.y=z",
        "a.b",
    )
    words = (
        "latency",
        "throughput",
        "serve",
        "cuda",
        "gpu",
        "cpu",
        "studies",
        "int8",
        "run --ba",
        "options",
        "old=python3",
    )
    known = (*models.names(), *schema.shipped(), *backends.names(), *targets, *precise)
    return tuple(dict.fromkeys((*known, *schemes, *sizes, *limits, *knobs, *words, *FILES)))


@st.composite
def _lines(draw: st.DrawFn) -> list[str]:
    name = draw(st.sampled_from(("run", "run", "run", *_flags())))
    options = [one for one in _flags()[name] if one[0] not in OPTIONS_LEFT_OUT]
    line = [name] + [draw(_value(""))] * draw(st.integers(0, 1))
    for _ in range(draw(st.integers(0, 4))):
        flag, takes = draw(st.sampled_from(options or [("--json", False)]))
        line += [flag, *([draw(_value(flag))] * takes)]
    line += ["--dry-run"] * (name == "run" and draw(st.booleans()))
    for _ in range(draw(st.sampled_from((0, 0, 0, 0, 0, 1)))):
        line.insert(draw(st.integers(0, len(line))), draw(_value("")))
    return [one for one in line if one not in OPTIONS_LEFT_OUT]


def _value(flag: str) -> SearchStrategy[str]:
    """A word, several in one, or any text; none leads out of the folder, where `--out` and `pack` could write."""
    known, nasty = st.sampled_from(_words()), st.sampled_from(NASTY_TEXT)
    several = st.lists(known | nasty, min_size=2, max_size=3).flatmap(
        lambda parts: st.sampled_from((",", ":", "=", "", "/")).map(lambda between: between.join(parts))
    )
    apt = st.sampled_from(APT.get(flag, APT[""]))
    kinds = (*[apt] * 12, known, several, nasty, st.text(max_size=12))
    return st.sampled_from(kinds).flatmap(lambda one: one).map(_inside)


def _inside(text: str) -> str:
    if text.startswith((".", "~")) or "/" in text:
        return "/".join(part for part in text.split("/") if part and part[0] not in ".~") or "."
    return text


def inputs() -> SearchStrategy[bytes]:
    return _lines().map(as_json)


def read(data: bytes, folder: Path) -> None:
    """As `shootout WORDS` reads them."""
    _fill(folder)
    out, err = io.StringIO(), io.StringIO()
    with _nothing_runs(folder), redirect_stdout(out), redirect_stderr(err):
        try:
            _command().main(args=json.loads(data), prog_name="shootout")
        except SystemExit as end:
            if end.code == 2:
                raise Reached("click's own refusal") from None
    assert printable(out.getvalue()) == out.getvalue(), "it steers the terminal"


def _fill(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(onnx_files._models()[0].SerializeToString())
    (folder / "other.onnx").write_bytes(onnx_files._models()[2].SerializeToString())
    (folder / "study.toml").write_text(STUDY)
    (folder / "net.py").write_text(FACTORY)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    np.savez(folder / "data.npz", x=np.zeros((3, 4), np.float32))
    (folder / "run").mkdir()
    (folder / "run" / NAME).write_bytes(journals._texts()[0])


@contextmanager
def _nothing_runs(folder: Path) -> Iterator[None]:
    """Everything that would start a process, wait for the machine or take its time ends at once."""

    def reach(*_: Any, **__: Any) -> NoReturn:
        raise Reached("this would be measured")

    def all_work(pairs: Any, *_: Any, **__: Any) -> dict[Any, Availability]:
        return {pair: Availability(version="1") for pair in pairs}

    def examine(pythons: dict[str, str]) -> dict[str, Any]:
        return {name: SimpleNamespace(digest="0", facts=dict) for name in pythons}

    ends = (
        "run.measure",
        "tune._measure",
        "machine.selftest.run",
        "machine.doctor.examine",
        "machine.ceilings.obtain_ceilings",
        "sensitivity.rank_layers",
    )
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, {"HOME": str(folder), "SHOOTOUT_CACHE": str(folder / "cache")}))
        stack.enter_context(chdir(folder))
        for name in ends:
            stack.enter_context(patch(f"shootout.commands.{name}", reach))
        stack.enter_context(patch("shootout.commands.doctor.machine_lock", lambda *_, **__: nullcontext()))
        # What draws has an engine of JavaScript, which reserves more memory than the campaign may have.
        drawn = {"vegalite_to_svg": lambda *_, **__: "<svg >", "vegalite_to_png": lambda *_, **__: b""}
        stack.enter_context(patch.multiple("vl_convert", **drawn))
        stack.enter_context(patch.object(plan, "known_available", all_work))
        stack.enter_context(patch.object(plan.interpreters, "examine", examine))
        yield
