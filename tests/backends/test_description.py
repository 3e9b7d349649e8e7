"""Third parties' adapters that break as they are imported: each costs one row, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.adapters.third_party import install
from support.console import here

from shootout import backends
from shootout.backends import description
from shootout.commands import doctor
from shootout.commands.doctor import Quietness
from shootout.contract import Availability, Device, Precision
from shootout.host.placement import MORE
from shootout.worker import availability

ADAPTER = """
from shootout.contract import Artifact, Availability, Capabilities, Device, Option, Precision

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
    "aborts": ("import os\nos.abort()", "killed by SIGABRT"),
    "exits": ("import sys\nsys.exit(0)", "SystemExit: 0"),
    "leaves": ("import os\nos._exit(3)", "exited with code 3"),
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
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.syspath_prepend(packages)
    return packages


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("kind", KINDS)
def test_each_says_what_is_wrong_and_how_to_mend_it(kind: str):
    found, reason = backends.describe(kind), KINDS[kind][1]
    if not reason:
        assert (found.why, found.shows_inside) == (None, kind == "open")
        return
    assert found.why
    assert f"{kind}_adapter:Mine can't be loaded: " in found.why.reason
    assert reason in found.why.reason
    assert found.why.fix == "pip install --upgrade all-kinds"


def test_one_whose_process_others_killed_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    once = f"""
import os
from pathlib import Path
mark = Path({str(tmp_path / "asked")!r})
if not mark.exists():
    mark.touch()
    os.kill(os.getpid(), 9)
"""
    (tmp_path / "killed_once.py").write_text(once + ADAPTER)
    install(tmp_path, "killed-package", {"killed-once": "killed_once:Mine"})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    assert backends.describe("killed-once").why is None


def test_one_that_misses_a_variable_as_it_is_imported_says_how_it_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "reads_early.py").write_text(f"import os\nROOT = os.environ['ACME_ROOT']\n{ADAPTER}")
    install(tmp_path, "early-package", {"early": "reads_early:Mine"})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("ACME_ROOT", "/acme")
    monkeypatch.delenv(MORE, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    why = backends.describe("early").why
    assert why
    assert why.reason.endswith("KeyError: 'ACME_ROOT' (a variable that isn't passed on: --env ACME_ROOT)")
    monkeypatch.setenv(MORE, "ACME_ROOT")
    assert backends.describe("early").why is None


def test_one_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(description, "LIMIT_S", 1.0)
    (tmp_path / "hanging.py").write_text("import time\ntime.sleep(600)")
    install(tmp_path, "hanging-package", {"hangs": "hanging:Mine"})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    why = backends.describe("hangs").why
    assert why
    assert why.reason.startswith("hanging:Mine can't be loaded: took longer than 1 s and was killed")


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        *((name, False) for name in ("PWD", "TERM", "SHELL", "TMPDIR", "XDG_RUNTIME_DIR", "LANG")),
        *((name, True) for name in ("PYTHONPATH", "PYTHONHOME", "LD_PRELOAD", "PATH", "VIRTUAL_ENV", "OMP_PLACES")),
        *((name, True) for name in ("ACME_ROOT", "ACME_HOME")),
    ],
)
def test_only_what_decides_an_import_has_it_tried_again(name: str, counts: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(MORE, "ACME_ROOT,ACME_H*")
    monkeypatch.setenv(name, "one")
    before = description._import_state("nowhere:Mine")
    monkeypatch.setenv(name, "another")
    assert (description._import_state("nowhere:Mine") != before) is counts


def test_the_current_folder_is_no_part_of_what_decides_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = set()
    for folder, first in (("a", ""), ("b", ""), ("a", str(tmp_path / "a")), ("b", str(tmp_path / "b"))):
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        monkeypatch.setattr(sys, "path", [first, *sys.path[1:]])
        found.add(description._import_state("nowhere:Mine"))
    assert len(found) == 1
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path[1:]])
    assert description._import_state("nowhere:Mine") not in found


def test_the_doctor_tries_one_that_hung_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path))
    paths = (("hangs", "hanging:Mine"),)
    description._remember_hanging(description._import_state("hanging:Mine"), "took longer than 30 s and was killed")
    assert "`shootout doctor` tries it again" in dict(description._recall_hanging(paths))["hangs"]
    seen: list[object] = []
    monkeypatch.setattr(doctor, "examine", lambda _: seen.extend(description._recall_hanging(paths)))
    monkeypatch.setattr(doctor, "render", str)
    monkeypatch.setattr(doctor, "as_data", lambda _: {})
    assert doctor.doctor({}, as_json=True) == 0
    assert not seen


def test_one_that_hangs_costs_its_time_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each `list` and each `run` is a process of its own, which knows nothing of the one before."""
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(description, "LIMIT_S", 1.0)
    (tmp_path / "hanging_once.py").write_text("import time\ntime.sleep(600)")
    install(tmp_path, "hanging-once-package", {"hangs-once": "hanging_once:Mine"})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    started: list[str] = []

    class Noted(description.Child):
        def __init__(self, module: str, *words: object, **how: object) -> None:
            started.append(module)
            super().__init__(module, *words, **how)

    monkeypatch.setattr(description, "Child", Noted)

    def reason() -> str:
        description.ask.cache_clear()
        why = backends.describe("hangs-once").why
        assert why
        return why.reason

    first = reason()
    again = reason()
    assert len(started) == 1
    assert again.startswith(f"{first} (at 2")
    assert again.endswith("as any command does the next day, or when its files or packages change)")
    monkeypatch.setattr(description, "utc_now", lambda: "2999-01-01T00:00:00+00:00")
    reason()
    assert len(started) == 2
    (tmp_path / "hanging_once.py").write_text("raise ValueError('mended, and broken again')")
    assert "mended, and broken again" in reason()


@pytest.mark.usefixtures("installed")
def test_none_of_its_code_runs_here():
    assert backends.capabilities("prints").targets == {(Device.CPU, Precision.FP32)}
    assert not {f"{kind}_adapter" for kind in KINDS} & set(sys.modules)


def test_a_list_has_a_line_for_each_and_stays_json(installed: Path):
    told = here("list", "backends", "--json", cwd=installed).data["backends"]
    assert set(told) == set(backends.names())
    assert {kind: told[kind].startswith("broken: ") for kind in KINDS} == {kind: bool(KINDS[kind][1]) for kind in KINDS}
    assert told["prints"] == "cpu:fp32"


@pytest.mark.usefixtures("installed")
def test_the_doctor_has_a_row_for_each_and_asks_those_that_can_answer(monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []
    quiet = Quietness(sources=(), steal_share=0.0, foreign_share=None, throttled=0, load_average=0.0)
    monkeypatch.setattr(doctor, "listen", lambda _: quiet)

    def probed(pairs: list[availability.Pair], *_: object) -> dict[availability.Pair, Availability]:
        asked.extend(name for name, _ in pairs)
        return dict.fromkeys(pairs, Availability(version="1"))

    monkeypatch.setattr(availability, "_probe_all", probed)
    rows = [finding for finding in doctor.examine().findings if finding.backend in KINDS]
    assert [(row.backend, row.device) for row in rows] == [(kind, Device.CPU) for kind in sorted(KINDS)]
    assert {row.backend for row in rows if row.availability.ok} == {"prints", "open"}
    assert set(KINDS).intersection(asked) == {"prints", "open"}
