"""What of the environment reaches other people's code."""

from __future__ import annotations

import pytest

from shootout.core.host.placement import MORE, child_environment, passed_on

NEEDED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "OMP_WAIT_POLICY", "XLA_FLAGS", "CXX")
NEEDED += (
    "CUDA_VISIBLE_DEVICES",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_LOGS",
    "HF_HOME",
    "SHOOTOUT_CACHE",
    "CPLUS_INCLUDE_PATH",
    # what limits the instructions that libraries use, for a run as on an older CPU
    *("ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA", "NPY_DISABLE_CPU_FEATURES", "ONEDNN_MAX_CPU_ISA", "OPENBLAS_CORETYPE"),
)
KEPT = (
    "AWS_SECRET_ACCESS_KEY",
    "GITHUB_TOKEN",
    "HF_HUB_TOKEN",
    "DATABASE_URL",
    "OPENAI_API_KEY",
    "PYTHON_PASSWORD",
    "DATA",
)


def test_what_libraries_work_by_is_passed_on_and_all_else_is_not():
    assert set(passed_on(dict.fromkeys((*NEEDED, *KEPT), "1"))) == set(NEEDED)


def test_a_backend_s_own_and_the_user_s_are_passed_on():
    own = dict.fromkeys((*KEPT, "ACME_ROOT", "ACME_TOKEN"), "1")
    assert set(passed_on(own, ["ACME_*"])) == {"ACME_ROOT"}
    assert set(passed_on(own, ["ACME_TOKEN"])) == {"ACME_TOKEN"}
    assert set(passed_on({**own, MORE: "DATA,GITHUB_TOKEN"})) == {"DATA", "GITHUB_TOKEN", MORE}


def test_an_arm_s_process_gets_no_secret(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    monkeypatch.setenv("ACME_ROOT", "/acme")
    assert "GITHUB_TOKEN" not in child_environment(1, 0)
    assert child_environment(1, 0, ("ACME_*",))["ACME_ROOT"] == "/acme"
