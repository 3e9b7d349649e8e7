"""Adapters that run float32 under an INT8 label and report INT8 kernels, in a real run: each is caught, twice over."""

from __future__ import annotations

import pytest
from support.adapters.third_party import install
from support.console import Ended, deaf_here

STUDY = """
model = "digits"
targets = ["numpy", "boasting:cpu:int8", "cunning:cpu:int8"]
max_restarts = 1
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    made = tmp_path_factory.mktemp("boasting")
    (made / "mine.toml").write_text(STUDY)
    adapters = {"boasting": "support.adapters.liars:Boasting", "cunning": "support.adapters.liars:Cunning"}
    install(made / "third", "boasters", adapters)
    return deaf_here("run", "mine.toml", "--json", "--out", "all", cwd=made, modules=made / "third")


@pytest.mark.parametrize(
    ("backend", "reason"),
    [
        ("boasting", "labeled int8, but the grid probe finds float"),
        ("cunning", "nothing was rounded"),  # its own account and the probe were both fooled
    ],
)
def test_int8_that_is_float32_fails(ended: Ended, backend: str, reason: str):
    (row,) = [row for row in ended.data["rows"] if row["backend"] == backend]
    assert row["outcome"] == "failed"
    assert reason in row["reason"]
