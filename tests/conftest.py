"""What all tests share: a cache of their own, and `--backend` to run the conformance suite on chosen backends only."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support import compiled, programs, signal_stack

from shootout.core import plugins
from shootout.core.contract import Precision
from shootout.core.exported import client
from shootout.core.host import child
from shootout.core.host.child import QUIET
from shootout.models.sources import converted
from shootout.testing.plugin import add_option


def pytest_addoption(parser: pytest.Parser) -> None:
    """The suite is a part of these tests (tests/backends/test_conformance.py)."""
    with suppress(ValueError):  # `--pyargs shootout.testing`: the plugin was first
        add_option(parser)


TESTS = Path(__file__).resolve().parent
MADE: list[str] = []
"""The cache folder that the processes of `-n` share, in the process that made it."""


TOGETHER = (
    (
        *(f"tests/backends/{start}" for start in ("test_", "_torch/", "_jax/", "_executorch/", "_litert/")),
        "tests/explain/test_planted",
        "tests/ship/test_shipped_folder",
    ),
    (
        "tests/docs/test_claims",
        "tests/docs/test_run",
        "tests/page/test_page",
        "tests/report/test_kept",
        "tests/compare/",
    ),
)
"""The first family's tests fork from processes that have imported torch, Inductor, JAX or a converter, for up to 7 s
each. The second's analyze the same runs, for up to 4 s each."""


def pytest_configure(config: pytest.Config) -> None:
    """With `-n`, all processes share one cache.

    Raises:
        pytest.UsageError: LONGEST or TOGETHER names what is not there.
    """
    stale = [name for name in LONGEST if not (TESTS / name).is_file()]
    stale += [start for family in TOGETHER for start in family if not [*TESTS.parent.glob(f"{start}*")]]
    if stale:
        raise pytest.UsageError(f"tests/conftest.py names {', '.join(stale)}, which is not there")
    if getattr(config.option, "numprocesses", None) and "SHOOTOUT_TEST_CACHE" not in os.environ:
        MADE.append(tempfile.mkdtemp(prefix="shootout-test-cache-"))
        os.environ["SHOOTOUT_TEST_CACHE"] = MADE[0]
    with suppress(ImportError):  # a GPU machine that runs the conformance suite alone lacks it
        from hypothesis import HealthCheck, settings

        steady = {"derandomize": True, "deadline": None, "suppress_health_check": list(HealthCheck)}
        settings.register_profile("steady", **steady)  # the same examples each time, and a busy machine is no fault
        settings.load_profile("steady")
    os.environ.pop("COLUMNS", None)  # which `-n` sets: a screen is as wide as a pipe
    os.environ.pop("PYTHONUNBUFFERED", None)  # which a container often sets: it hides what is never flushed
    os.environ.update(QUIET)  # some tests import libraries into this process
    gc.disable()  # all that the collection imports stays, and takes a fifth less time so


def pytest_collection_finish() -> None:
    """Collect garbage again, of what the tests make."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Remove it."""
    for folder in MADE:
        shutil.rmtree(folder, ignore_errors=True)


LONGEST = (
    *("backends/test_conformance.py", "race/test_resume.py", "commands/test_cli_runs.py"),
    *("backends/_openvino/test_openvino_quantized.py", "tune/test_search.py", "fleet/test_on_a_host.py"),
    *("worker/test_availability.py", "export/test_foreign_onnx.py", "stats/test_error_rates.py"),
    *("export/test_factory.py", "worker/test_misbehaving.py"),
    *("commands/test_cli.py", "quantize/test_error_bounds.py", "commands/test_tracing.py"),
    *("models/test_models.py", "models/test_vision_models.py", "stats/test_interval.py"),
    *("backends/_openvino/test_openvino.py", "backends/_onnxruntime/test_onnxruntime_quantized.py"),
)
"""The files that take longest beside those that go with the first one: `-n` hands them out first, that none be
left to one process in the end."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One process of `-n` gets a whole family, and each a file at a time of the rest."""
    from xdist.scheduler import LoadFileScheduling

    class FamilyScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            family = next((one for one in TOGETHER if nodeid.startswith(one)), None)
            return family[0] if family else super()._split_scope(nodeid)

    return FamilyScheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """With `-n`, every other process goes through the folders from behind: each reads what another has compiled."""
    found = yield
    if isinstance(collector, pytest.Directory) and os.environ.get("PYTEST_XDIST_WORKER", "gw0")[-1] in "13579":
        found.result.reverse()
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort them so, all others by their paths; the order within a file stays.

    Mark the suite's targets as `long`, but for FP32 and INT8 in a backend's plain mode.
    """
    for item in items:
        if isinstance(item, pytest.Function) and item.originalname == "test_conforms":
            target = item.callspec.params["target"]
            if target.mode or target.scheme or target.precision not in (Precision.FP32, Precision.INT8):
                item.add_marker(pytest.mark.long)
    rank = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (rank.get(item.path, len(LONGEST)), item.path))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT interrupt this process and those that it starts.

    A script's `… &`, nohup and some CI start the tests with SIGINT ignored, and a process inherits that.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def _restore_signal_stack() -> Callable[[], None]:
    return signal_stack.keep()


@pytest.fixture(autouse=True)
def _own_signal_stack(_restore_signal_stack: Callable[[], None]) -> Iterator[None]:
    yield
    _restore_signal_stack()


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Exports are shared within a test run, and with the test runs it starts, but never with the user's cache."""
    folder = os.environ.get("SHOOTOUT_TEST_CACHE") or str(tmp_path_factory.mktemp("cache"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOOTOUT_TEST_CACHE", folder)
        patch.setenv("SHOOTOUT_CACHE", folder)
        if tmp_path_factory.getbasetemp().is_relative_to(Path.home()):  # else the tests' paths are told as `~`
            patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        for module in (client, child, converted):
            patch.setattr(module, "run", programs.run)
        changed_ns = plugins._changed_ns  # the folders of tests, one for each package, hold no third party's
        patch.setattr(plugins, "_changed_ns", lambda at: 0 if at.startswith(str(TESTS)) else changed_ns(at))
        patch.setattr(os, "fsync", lambda _: None)  # no power is cut, but where a test says so (tests/journal)
        patch.setenv(
            "TORCHINDUCTOR_VEC_ISA_OK", "1"
        )  # else each build compiles and loads six tests of the vector units
        patch.setenv("AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL", "O0")  # what calls the kernels takes longest to compile
        if "CXX" not in os.environ and (command := compiled.install(Path(folder, "compiler"))):
            patch.setenv("CXX", str(command))
        yield
