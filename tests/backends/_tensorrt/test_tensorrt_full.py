"""The full TensorRT, which can't even be imported without a GPU: what it is asked for, told by a fake of its builder.

It shows what we ask and how a refusal reads; that TensorRT does as it is asked needs a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shootout.backends._tensorrt.engine import EnginePlan, compile_engine
from shootout.backends._tensorrt.library import Library
from shootout.backends._tensorrt.session import Engine
from shootout.contract import Precision, TensorSpec

X = TensorSpec(name="x", shape=(2, 4), dtype="float32")
OLD_DRIVER = "CUDA initialization failure with error: 35"


class FakeFull:
    """A TensorRT that builds an empty network; `asked` is what it was told.

    Attributes:
        strong: the bit of its flag for strongly typed networks; None: it knows no others and has no flag.
        takes: whether a timing cache fits.
        starts: whether CUDA can be started.
    """

    __name__, __version__ = "tensorrt", "0.0"
    BuilderFlag = SimpleNamespace(TF32="tf32", REQUIRE_USER_ALLOCATION="lent")
    ComputeCapability = SimpleNamespace(__members__={"CURRENT": 1})
    ProfilingVerbosity = SimpleNamespace(DETAILED="detailed")

    def __init__(
        self, *, strong: int | None = 1, takes: bool = True, starts: bool = True, engine: bytes | None = b"engine"
    ) -> None:
        self.NetworkDefinitionCreationFlag = SimpleNamespace(**({} if strong is None else {"STRONGLY_TYPED": strong}))
        self.takes, self.starts, self.engine = takes, starts, engine
        self.asked: dict[str, Any] = {}

    def Builder(self, log: Any) -> Any:  # noqa: N802 - TensorRT's own names
        if not self.starts:
            raise TypeError("pybind11::init(): factory function returned nullptr")
        tensor = SimpleNamespace(name="x", shape=(-1, 4))
        network = SimpleNamespace(num_layers=0, num_inputs=1, get_input=lambda index: tensor)
        engine = None if self.engine is None else np.frombuffer(self.engine, np.uint8)
        return SimpleNamespace(
            create_network=self._noted("flags", network),
            create_builder_config=lambda: FakeConfig(self),
            create_optimization_profile=lambda: SimpleNamespace(set_shape=self._noted("profile", None)),
            build_serialized_network=lambda parsed, config: engine,
        )

    def Runtime(self, log: Any) -> Any:  # noqa: N802
        raise TypeError("pybind11::init(): factory function returned nullptr")

    def OnnxParser(self, network: Any, log: Any) -> Any:  # noqa: N802
        return SimpleNamespace(parse_from_file=lambda path: True)

    def _noted(self, name: str, answer: Any) -> Callable[..., Any]:
        def note(*arguments: Any) -> Any:
            self.asked[name] = arguments
            return answer

        return note


class FakeConfig:
    """Its builder's configuration."""

    builder_optimization_level = 3

    def __init__(self, owner: FakeFull) -> None:
        self.owner, self.asked = owner, owner.asked
        self.cache = b""

    def set_flag(self, flag: str) -> None:
        self.asked[flag] = True

    def clear_flag(self, flag: str) -> None:
        self.asked[flag] = False

    def create_timing_cache(self, stored: bytes) -> bytes:
        return stored

    def set_timing_cache(self, cache: bytes, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch
        self.cache = cache
        return self.owner.takes

    def get_timing_cache(self) -> Any:
        return SimpleNamespace(serialize=lambda: self.cache + b"more")

    def set_compute_capability(self, capability: int, index: int) -> None:
        self.asked["capability"] = capability

    def get_compute_capability(self, index: int) -> Any:
        return SimpleNamespace(name="CURRENT")

    def add_optimization_profile(self, profile: Any) -> None:
        self.asked["profiles"] = self.asked.get("profiles", 0) + 1


def library_of(fake: FakeFull) -> Library:
    log = SimpleNamespace(errors=[], warnings=[OLD_DRIVER], layers=list, weight_bytes=None)
    return Library(fake, log)  # type: ignore[arg-type]


def compiled(fake: FakeFull, folder: Path, precision: Precision = Precision.FP32, **options: str) -> dict[str, Any]:
    plan = EnginePlan(precision=precision, inputs=(X,), current=True, options=options)
    return compile_engine(library_of(fake), folder / "model.onnx", plan, folder)


def test_timings_are_kept_with_the_engine_and_given_to_the_next_build(tmp_path: Path):
    compiled(FakeFull(), tmp_path)
    assert (tmp_path / "timing.cache").read_bytes() == b"more"
    (tmp_path / "next").mkdir()
    facts = compiled(FakeFull(), tmp_path / "next", timing_cache=str(tmp_path / "timing.cache"))
    assert (tmp_path / "next" / "timing.cache").read_bytes() == b"moremore"
    assert (tmp_path / "next" / "engine.plan").read_bytes() == b"engine"
    assert facts["compute_capabilities"] == ["CURRENT"]


def test_timings_of_another_gpu_are_refused_by_name(tmp_path: Path):
    old = tmp_path / "old.cache"
    old.write_bytes(b"another GPU's")
    with pytest.raises(ValueError, match=rf"timing_cache '{old}' is another GPU's or version's"):
        compiled(FakeFull(takes=False), tmp_path, timing_cache=str(old))
    with pytest.raises(RuntimeError, match=f"tensorrt takes no timing cache: {OLD_DRIVER}"):
        compiled(FakeFull(takes=False), tmp_path)


def test_it_has_no_targets_but_its_own_gpu(tmp_path: Path):
    with pytest.raises(ValueError, match="'compute_capability': tensorrt has no such thing"):
        compiled(FakeFull(), tmp_path, compute_capability="SM90")


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.TF32, Precision.FP16, Precision.BF16])
def test_rounding_to_tf32_is_allowed_under_its_own_label_alone(precision: Precision, tmp_path: Path):
    fake = FakeFull()
    compiled(fake, tmp_path, precision)
    assert fake.asked["tf32"] is (precision is Precision.TF32)


@pytest.mark.parametrize(("graph", "lent"), [("0", None), ("1", True)])
def test_an_rtx_engine_that_is_to_be_captured_may_allocate_nothing_while_it_runs(
    graph: str, lent: bool | None, tmp_path: Path
):
    fake = FakeFull()
    fake.__name__ = "tensorrt_rtx"
    compiled(fake, tmp_path, cuda_graph=graph)
    assert fake.asked.get("lent") is lent


@pytest.mark.parametrize(("strong", "flags"), [(1, 2), (0, 1), (None, 0)])
def test_networks_are_strongly_typed_in_each_version(strong: int | None, flags: int, tmp_path: Path):
    fake = FakeFull(strong=strong)
    compiled(fake, tmp_path)
    assert fake.asked["flags"] == (flags,)
    assert fake.asked["profile"] == ("x", (2, 4), (2, 4), (2, 4))
    assert fake.asked["profiles"] == 1


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["no such layer", "(cudaError 35: old driver)", "no such layer"], "no such layer"),
        (["(cudaError 35: old driver)"], "(cudaError 35: old driver)"),
        ([], "it gave no reason"),
    ],
)
def test_a_missing_cuda_hides_no_other_reason(lines: list[str], told: str):
    library = library_of(FakeFull())
    library.log.errors, library.log.warnings = lines, []
    assert library.errors_text() == told


def test_no_engine_and_no_cuda_are_errors_in_its_words(tmp_path: Path):
    with pytest.raises(RuntimeError, match=f"tensorrt built no engine: {OLD_DRIVER}"):
        compiled(FakeFull(engine=None), tmp_path)
    with pytest.raises(RuntimeError, match=f"tensorrt can't start here: {OLD_DRIVER}"):
        compiled(FakeFull(starts=False), tmp_path)
    with pytest.raises(RuntimeError, match=f"tensorrt can't start here: {OLD_DRIVER}"):
        Engine(library_of(FakeFull()), b"engine")
    assert not (tmp_path / "engine.plan").exists()
