"""Third parties' adapters that break as they are imported: each costs one row, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.adapters.third_party import install
from support.console import here

from shootout.commands import doctor
from shootout.commands.doctor import Quietness
from shootout.core import backends
from shootout.core.contract import Availability, Device, NotRun, Precision
from shootout.core.worker import availability
from shootout.tell.registered import shows_inside

ADAPTER = """
from shootout.core.contract import Artifact, Availability, Capabilities, Device, Option, Precision

class Mine:
    name = "mine"
    capabilities = Capabilities(
        consumes=(Artifact.ONNX,),
        targets=frozenset({(Device.CPU, Precision.FP32)}),
        options=(Option(name="depth", help=""),),
    )
    def probe(self, device):
        return Availability(version="1")
"""
KINDS = {
    "fails": ("raise ValueError('no SDK here\\nits second line')", "ValueError: no SDK here"),
    "exits": ("import sys\nsys.exit(0)", "SystemExit: 0"),
    "empty": ("class Mine: pass", "has no attribute 'capabilities'"),
    "odd": ("class Mine: capabilities = {}", "its capabilities are a dict, not Capabilities"),
    "typed": (
        f"{ADAPTER}    object.__setattr__(capabilities, 'targets', ['cpu'])",
        "its capabilities: targets.0 is 'cpu'",
    ),
    "endless": (f"{ADAPTER}    object.__setattr__(capabilities, 'modes', 7)", "its capabilities: modes is 7"),
    "surrogate": (
        f"{ADAPTER}    object.__setattr__(capabilities.options[0], 'help', '\\ud800')",
        "options: 0: help: text that is no Unicode",
    ),
    "prints": (f"print('welcome')\n{ADAPTER}", ""),
    "open": (f"{ADAPTER}    def look_inside(self, *_): ...", ""),
}
"""By name, a module's text and what is said of it; "" where it works."""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an installer would have left of all of them."""
    folder = tmp_path_factory.mktemp("third-parties")
    for kind, (text, _) in KINDS.items():
        (folder / f"{kind}_adapter.py").write_text(text)
    return install(folder, "all-kinds", {kind: f"{kind}_adapter:Mine" for kind in KINDS})


@pytest.fixture
def installed(packages: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(packages)
    return packages


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("kind", KINDS)
def test_each_says_what_is_wrong_and_how_to_mend_it(kind: str):
    found, reason = backends.describe(kind), KINDS[kind][1]
    if not reason:
        assert (found, shows_inside(kind)) == (backends.get(kind).capabilities, kind == "open")
        return
    assert isinstance(found, NotRun)
    assert f"{kind}_adapter:Mine can't be loaded: " in found.reason
    assert reason in found.reason
    assert found.fix == "pip install --upgrade all-kinds"


@pytest.mark.usefixtures("installed")
def test_what_it_prints_as_it_is_imported_stays_out_of_the_answer(capsys: pytest.CaptureFixture[str]):
    sys.modules.pop("prints_adapter", None)
    assert backends.get("prints").capabilities.targets == {(Device.CPU, Precision.FP32)}
    assert capsys.readouterr() == ("", "welcome\n")


def test_a_list_has_a_line_for_each_and_stays_json(installed: Path):
    told = here("list", "backends", "--json", cwd=installed).data["backends"]
    assert set(told) == set(backends.names())
    assert {kind: told[kind].startswith("broken: ") for kind in KINDS} == {kind: bool(KINDS[kind][1]) for kind in KINDS}
    assert told["prints"] == "cpu:fp32"


@pytest.mark.usefixtures("installed")
def test_the_doctor_has_a_row_for_each_and_asks_those_that_can_answer(monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []
    quiet = Quietness(steal_share=0.0, foreign_share=None, throttled=0)
    monkeypatch.setattr(doctor, "listen", lambda _: quiet)

    def probed(pairs: list[availability.Pair], *_: object) -> dict[availability.Pair, Availability]:
        asked.extend(name for name, _ in pairs)
        return dict.fromkeys(pairs, Availability(version="1"))

    monkeypatch.setattr(availability, "_probe_all", probed)
    rows = [finding for finding in doctor.examine().findings if finding.backend in KINDS]
    assert [(row.backend, row.device) for row in rows] == [(kind, Device.CPU) for kind in sorted(KINDS)]
    assert {row.backend for row in rows if row.availability.ok} == {"prints", "open"}
    assert set(KINDS).intersection(asked) == {"prints", "open"}
