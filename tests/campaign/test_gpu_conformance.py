"""The conformance step of a GPU campaign: whom it asks, and how reports of all backends are read."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from doctored import doctor
from gpu import conformance, page, summary
from gpu.state import State


def test_conformance_is_asked_of_what_works_on_cuda(tmp_path: Path):
    assert conformance.able(tmp_path) is None
    doctor(tmp_path, numpy=True, torch_eager=True, openvino=False)
    assert conformance.able(tmp_path) == ["torch-eager"]
    words = conformance.command("torch-eager", tmp_path / "torch-eager.xml")
    assert words[words.index("--backend") + 1] == "torch-eager"
    assert words[words.index("-k") + 1] == "cuda"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Suites that these tests start import no plugins but what they name."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


CHECKS = """
import pytest
@pytest.mark.parametrize("name", ["a:cuda:fp32", "b:cuda:fp32"])
def test_conforms(name):
    assert not name.startswith("b"), "wrong shape"
def test_skipped():
    pytest.skip("no")
"""


@pytest.mark.usefixtures("bare")
def test_reports_of_all_backends_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    suite = tmp_path / "test_it.py"
    suite.write_text(CHECKS)

    def command(backend: str, report: Path) -> list[str]:
        words = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", "/dev/null"]
        return [sys.executable, "-m", "pytest", str(suite), *words, "--junitxml", str(report), "-k", backend]

    monkeypatch.setattr(conformance, "command", command)
    assert conformance.main(tmp_path, ["cuda", "skipped"]) == 1
    found = conformance.results(tmp_path)
    assert found["skipped"] == {"passed": 0, "failed": {}, "code": 0}
    assert found["cuda"]["code"] == 1
    assert found["cuda"]["passed"] == 1
    ((name, why),) = found["cuda"]["failed"].items()
    assert "b:cuda:fp32" in name
    assert "wrong shape" in why
    assert conformance.main(tmp_path, []) == 1  # nothing is left; what was found stays


CUT_CHECKS = """
def test_first_cuda():
    pass
def test_second_cuda():
    raise KeyboardInterrupt
"""


@pytest.mark.usefixtures("bare")
def test_a_suite_that_was_cut_does_not_read_as_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    suite = tmp_path / "test_it.py"
    suite.write_text(CUT_CHECKS)
    whole = conformance.command

    def command(backend: str, report: Path) -> list[str]:
        words = ["--rootdir", str(tmp_path), "-c", "/dev/null"]
        own = [str(suite) if word == conformance.SUITE else word for word in whole(backend, report)]
        return [*own[: own.index("--backend")], *words]

    monkeypatch.setattr(conformance, "command", command)
    doctor(tmp_path, torch_eager=True, jax_jit=True)
    assert conformance.left(tmp_path) == ["torch-eager", "jax-jit"]
    assert conformance.main(tmp_path, ["torch-eager"]) == conformance.CUT
    assert conformance.codes(tmp_path) == {"torch-eager": 2}
    assert conformance.left(tmp_path) == ["torch-eager", "jax-jit"]
    text = page.page(json.loads(json.dumps(summary.summary(State.read(tmp_path)))))
    assert "- Conformance, torch-eager: 1 passed, 0 failed; cut off after 1." in text
    suite.write_text(CUT_CHECKS.replace("raise KeyboardInterrupt", "assert False"))
    assert conformance.main(tmp_path, ["torch-eager"]) == 1
    assert conformance.left(tmp_path) == ["jax-jit"]
    text = page.page(json.loads(json.dumps(summary.summary(State.read(tmp_path)))))
    assert "- Conformance, torch-eager: 1 passed, 1 failed." in text


@pytest.mark.parametrize("text", ["", "[1]"])
def test_codes_and_reports_that_cannot_be_read_count_as_none(tmp_path: Path, text: str):
    doctor(tmp_path, torch_eager=True)
    (tmp_path / conformance.FOLDER).mkdir()
    (tmp_path / conformance.CODES).write_text(text)
    (tmp_path / conformance.FOLDER / "torch-eager.xml").write_text(text)
    assert conformance.results(tmp_path) == {"torch-eager": {"passed": 0, "failed": {}, "code": None}}
    assert conformance.left(tmp_path) == ["torch-eager"]
