"""`shootout merge --ship`: one folder for several machines, whose programs choose by the CPU and never import us."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.console import Ended, here
from support.races import made
from support.races.candidates import analysed
from support.races.cells import row
from support.races.shipping import let_numpy_ship, write_numpy_run

from shootout.apps.judge.compare.merge import find_group
from shootout.apps.judge.gate.reference import read_reference
from shootout.apps.ship.variants import VariantCpu, architecture_of, read_cpu, refuse_twins
from shootout.backends.devices.cpu import cpu_kind
from shootout.backends.shipped import (
    CHECK,
    DOCUMENT,
    EXPECTED,
    INPUTS,
    LOAD,
    MANIFEST,
    open_shipped,
    seal_shipped,
)
from shootout.commands import variants
from shootout.core.contract import Arm, Target
from shootout.core.errors import UsageError
from shootout.core.exported.model import sha256
from shootout.core.host import environment
from shootout.core.study.target import parse_targets
from shootout.tell import this_machine

PARAMETERS = {"d_model": 64, "n_layers": 4}
CPU = environment.facts()["cpu"]
FLAGS = CPU["flags"]
OLDER: dict[str, Any] = {**CPU, "model": "Older CPU", "kind": "Older CPU", "flags": FLAGS[:1]}
NEWER: dict[str, Any] = {**CPU, "model": "Newer CPU", "kind": "Newer CPU", "flags": [*FLAGS, "another_set"]}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what this machine ships, and what one with an older CPU does; the runs lie beside it."""
    place = tmp_path_factory.mktemp("both")
    with pytest.MonkeyPatch.context() as patch:
        let_numpy_ship(patch)
        there = write_run(place, "there", machine="other", cpu=OLDER)
        shipped = ship_as(there, write_run(place, "here"), place / "shipped")
        done = here("merge", place / "here", there, "--ship", place / "model", "--with", shipped, cwd=place)
    assert done.code == 0, done.err
    assert "2 variants" in done.err
    return place / "model"


@pytest.fixture
def copy(both: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(both, tmp_path / "model"))


def write_run(place: Path, name: str, on: str = "", restarts: int = 5, **changes: Any) -> Path:
    """A run made here, with other facts about the machine."""
    return write_numpy_run(
        place / name, {**this_machine.facts(), "date_utc": name, **changes}, PARAMETERS, on, restarts
    )


def ship_as(run: Path, mine: Path, folder: Path) -> Path:
    """Ship a run of this machine as if another machine had shipped `run`."""
    assert here("ship", mine, "-o", folder, cwd=folder.parent).code == 0
    shipped, document = open_shipped(folder), json.loads((folder / DOCUMENT).read_text())
    facts = json.loads((run / "journal.jsonl").read_text().splitlines()[0])["environment"]
    (folder / DOCUMENT).write_text(json.dumps({**document, "environment": facts}))
    machine = {"key": facts["machine"], "name": facts["cpu"]["model"]}
    seal_shipped(replace(shipped, machine=machine))
    return folder


def python(code: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a program in a process that doesn't import us."""
    command = [sys.executable, "-I", "-c", code, *map(str, words)]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=120)


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(folder / CHECK)]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=120)


def folders(model: Path) -> list[str]:
    return [one["folder"] for one in json.loads((model / MANIFEST).read_text())["variants"]]


PREDICT = """
import sys
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import load
assert "numpy" in sys.modules and not any(name.startswith("shootout") for name in sys.modules)
load.load()
import numpy as np
name = load._variant.INPUTS[0][0]
with np.load(sys.argv[2]) as sets:
    outputs = load.predict({name: sets["0.0"]})
np.save(sys.argv[3], *outputs.values())
print(load.VARIANT["folder"])
"""
CHOOSE = """
import json
import runpy
import sys
names = runpy.run_path(sys.argv[1])
machine = {**names["read_machine"](*sys.argv[3:]), **json.loads(sys.argv[2])}
try:
    variant, why = names["choose"](machine)
    print(variant["folder"], why, sep="|")
except RuntimeError as error:
    print("", error, sep="|")
"""


def choose(model: Path, *files: Path, **machine: object) -> tuple[str, str]:
    """Return the variant that a machine gets, "" for none, and why.

    Args:
        files: in place of /proc/cpuinfo and /proc/device-tree/model.
        machine: what differs from what is read there.
    """
    done = python(CHOOSE, model / LOAD, json.dumps(machine), *files)
    assert done.returncode == 0, done.stderr
    folder, _, why = done.stdout.strip().partition("|")
    return folder, why


def write_cpuinfo(path: Path, model: str, flags: object) -> Path:
    processor = f"processor\t: 0\nmodel name\t: {model}\nflags\t\t: {' '.join(flags)}\n"  # type: ignore[arg-type]
    path.write_text(f"{processor}\n{processor}")
    return path


def test_this_machine_gets_what_was_measured_here(both: Path, tmp_path: Path):
    mine, _ = folders(both)
    done = python(PREDICT, both, both / mine / INPUTS, tmp_path / "found.npy")
    assert done.stdout.strip() == mine, done.stderr
    assert f"{mine}: numpy:cpu:fp32, measured on" in done.stderr
    assert "this kind of CPU" in done.stderr
    with np.load(both / mine / EXPECTED) as expected:
        np.testing.assert_allclose(np.load(tmp_path / "found.npy"), expected["0.0"], rtol=1e-4, atol=1e-5)


def test_another_cpu_gets_its_own_or_the_nearest_whose_instruction_sets_it_has(both: Path, tmp_path: Path):
    mine, older = folders(both)
    text = write_cpuinfo(tmp_path / "older", OLDER["model"], OLDER["flags"])
    assert choose(both, text) == (older, f"{older}: numpy:cpu:fp32, measured on Older CPU: this kind of CPU")
    with_more = write_cpuinfo(tmp_path / "more", OLDER["model"], FLAGS)
    assert choose(both, with_more)[0] == older, "the kind of CPU counts before instruction sets"
    text = write_cpuinfo(tmp_path / "newer", NEWER["model"], NEWER["flags"])
    folder, why = choose(both, text)
    assert folder == mine
    assert "Newer CPU has all of its instruction sets, but its speed was not measured" in why
    text = write_cpuinfo(tmp_path / "small", "Small CPU", [*OLDER["flags"], "another_set"])
    assert choose(both, text)[0] == older


def test_an_arm_board_gets_what_a_board_of_its_kind_measured(copy: Path, tmp_path: Path):
    """Boards whose instruction sets are the same differ in their cores; /proc/cpuinfo has no name of any."""
    boards = {"Raspberry Pi 5 Model B": ("0xd0b",), "Orange Pi 5": ("0xd05", "0xd0b"), "Some Board": ("0xfff",)}
    files = {name: write_board(tmp_path / name, name, parts) for name, parts in boards.items()}
    measured = list(boards)[:2]
    stored = json.loads((copy / MANIFEST).read_text())
    for name in measured:
        kind = cpu_kind(*(path.read_text() for path in files[name]))
        facts = {"cpu": {"model": f"a name of {name}", "kind": kind, "microarchitecture": "cortex_a72"}}
        stored["variants"].append({**stored["variants"][0], **asdict(read_cpu(name, facts)), "folder": name, "isa": []})
    (copy / MANIFEST).write_text(json.dumps(stored))
    for name in measured:
        taken, why = choose(copy, *files[name], architecture="aarch64")
        assert taken == name
        assert "this kind of CPU" in why
    _, why = choose(copy, *files["Some Board"], architecture="aarch64")
    assert "0x41/0xfff, Some Board has all of its instruction sets" in why


def write_board(place: Path, name: str, parts: Sequence[str]) -> tuple[Path, Path]:
    """Write what an ARM board's /proc/cpuinfo and /proc/device-tree/model hold."""
    place.mkdir()
    core = "processor\t: {}\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: {}\n"
    (place / "cpuinfo").write_text("\n".join(core.format(number, part) for number, part in enumerate(parts)))
    (place / "model").write_text(f"{name}\0")
    return place / "cpuinfo", place / "model"


def test_a_machine_that_nothing_fits_is_refused_with_what_there_is(both: Path, copy: Path, tmp_path: Path):
    mine, older = folders(both)
    folder, why = choose(both, architecture="riscv64", kind="Some CPU")
    assert folder == ""
    assert "no variant fits this machine (riscv64, Some CPU)" in why
    assert f"{mine} needs {architecture_of({'cpu': CPU})}; {older} needs" in why
    folder, why = choose(both, write_cpuinfo(tmp_path / "none", "Bare CPU", ["fpu"]))
    assert folder == ""
    assert f"{older} was measured with {FLAGS[0]}, which this CPU lacks" in why
    edit(copy, mine, older, architecture="riscv64")
    done = python(PREDICT, copy, copy / mine / INPUTS, tmp_path / "found.npy")
    assert "RuntimeError: no variant fits this machine" in done.stderr
    assert check(copy).returncode == 3


def test_a_system_that_tells_no_instruction_sets_gets_only_its_own_kind(both: Path, tmp_path: Path):
    mine, _ = folders(both)
    (tmp_path / "empty").write_text("")
    assert choose(both, tmp_path / "empty", kind=CPU["kind"])[0] == mine
    folder, why = choose(both, tmp_path / "empty", kind="Some CPU")
    assert folder == ""
    assert "doesn't tell its CPU's instruction sets" in why


def test_what_a_variant_needs_counts_before_the_kind_of_cpu(copy: Path):
    """ONNX Runtime's graph is made for AVX-512 or for its absence; INT8 needs one of several instruction sets."""
    mine, older = folders(copy)
    for needed, taken in (
        (f"!{FLAGS[-1]}", older),
        ("no_such_set|nor_such", older),
        (f"no_such_set|{FLAGS[-1]}", mine),
    ):
        edit(copy, mine, isa=[needed])
        assert choose(copy)[0] == taken


def edit(model: Path, *folders: str, **facts: object) -> None:
    """Change what the manifest, which holds no hash of itself, says of these variants."""
    stored = json.loads((model / MANIFEST).read_text())
    changed = [{**one, **facts} if one["folder"] in folders else one for one in stored["variants"]]
    (model / MANIFEST).write_text(json.dumps({**stored, "variants": changed}))


def test_the_check_runs_the_check_of_this_machines_variant(both: Path):
    mine, _ = folders(both)
    done = check(both)
    assert done.returncode == 0, done.stderr
    assert "numpy:cpu:fp32: relative L2 error" in done.stdout
    assert f"{mine}: numpy:cpu:fp32, measured on" in done.stderr


@pytest.mark.parametrize("change", ["model", "check.py", "stranger"])
def test_the_check_sees_what_was_changed_in_any_variant(copy: Path, change: str):
    _, older = folders(copy)
    name = "json.py" if change == "stranger" else f"{older}/{change}"
    path = next(path for path in (copy / name).iterdir() if path.is_file()) if change == "model" else copy / name
    path.write_bytes(b"raise SystemExit(0)")
    done = check(copy)
    assert done.returncode == 2, "before anything of it is run"
    assert path.relative_to(copy).as_posix() in done.stderr


def test_a_wrong_answer_is_the_checks_own_exit_code(copy: Path):
    mine, _ = folders(copy)
    shipped = open_shipped(copy / mine)
    with np.load(copy / mine / EXPECTED) as stored:
        wrong = {name: array + 1 for name, array in stored.items()}
    np.savez(copy / mine / EXPECTED, **wrong)
    seal_shipped(shipped)
    assert check(copy).returncode == 2, "the folder's own manifest knows the variant's"
    stored = json.loads((copy / MANIFEST).read_text())
    for name in (EXPECTED, MANIFEST):
        stored["files"][f"{mine}/{name}"] = sha256(copy / mine / name)
    (copy / MANIFEST).write_text(json.dumps(stored))
    assert check(copy).returncode == 1


def test_only_what_a_manifest_names_is_taken_along(copy: Path, tmp_path: Path):
    """The folder may be a stranger's: a pipe is not waited for, and no link takes a file along."""
    folder = next(copy.glob(f"*/{MANIFEST}")).parent
    os.mkfifo(folder / "pipe")
    (folder / "key").symlink_to("/etc/hostname")
    site: Any = SimpleNamespace(
        run=SimpleNamespace(document=SimpleNamespace(run="r")),
        cell=SimpleNamespace(group="g"),
        answer=SimpleNamespace(ship=None),
    )
    found = variants._fill(site, open_shipped(folder), tmp_path / "taken")
    assert found.files == open_shipped(folder).files
    assert not [name for name in ("pipe", "key") if os.path.lexists(tmp_path / "taken" / name)]


@pytest.mark.parametrize("place", ["../shipped", "/tmp", "."])
def test_no_variant_lies_outside_of_the_folder(copy: Path, place: str):
    stored = json.loads((copy / MANIFEST).read_text())
    stored["variants"] = [{**one, "folder": place} for one in stored["variants"]]
    (copy / MANIFEST).write_text(json.dumps(stored))
    done = subprocess.run([sys.executable, "-I", str(copy / CHECK)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"{place}/check.py is no file of this folder")
    load = f"exec(compile(open(r'{copy / LOAD}').read(), r'{copy / LOAD}', 'exec'), {{'__file__': r'{copy / LOAD}'}})"
    done = subprocess.run([sys.executable, "-I", "-c", load], capture_output=True, text=True, timeout=120)
    assert f"RuntimeError: {place!r} names no folder in this one" in done.stderr


def test_python_names_the_folder_of_the_requirements(both: Path):
    mine, _ = folders(both)
    done = subprocess.run([sys.executable, both / LOAD], cwd="/", capture_output=True, text=True, timeout=120)
    assert done.stdout == f"{mine}\n"
    assert (both / mine / "requirements.txt").exists()


def test_a_reader_of_one_shipped_folder_is_told_which_there_are(both: Path):
    for read in (open_shipped, read_reference):
        with pytest.raises(UsageError, match=r"for each of several machines: name one of ") as error:
            read(both)
        assert all(str(both / name) in str(error.value) for name in folders(both))
    (target,) = parse_targets(f"shipped:{both / folders(both)[0]}", lambda name: pytest.fail(name))
    assert target.backend == "numpy"


def merge(place: Path, *words: object) -> Ended:
    """Merge the runs `here` and `there`, and ship what the machines do; nothing may be left of what fails."""
    done = here("merge", place / "here", place / "there", *words, cwd=place)
    assert (place / "model").exists() == (done.code == 0)
    return done


def test_a_run_of_another_machine_names_the_command_that_ships_it_there(tmp_path: Path):
    write_run(tmp_path, "here")
    write_run(tmp_path, "there", machine="other", cpu=OLDER)
    done = merge(tmp_path, "--ship", "model")
    assert done.code == 2
    assert f"there was measured on another machine, Older CPU, {len(OLDER['allowed_cpus'])} CPU" in done.err
    command = f"shootout ship {tmp_path / 'there'} --group '{made.GROUP}' --target numpy:cpu:fp32 -o FOLDER"
    assert command in done.err
    assert "add --with FOLDER" in done.err


def test_a_run_of_a_host_is_shipped_there_if_the_user_names_the_host(
    both: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    let_numpy_ship(monkeypatch)
    asked: list[tuple[object, ...]] = []

    def ship_there(address: str, run: Path, out: Path, **words: object) -> int:
        asked.append((address, run, words["target"], words["group"]))
        shutil.copytree(both.parent / "shipped", out)
        return 0

    monkeypatch.setattr(variants, "ship_there", ship_there)
    write_run(tmp_path, "here")
    there = write_run(tmp_path, "there", on="ssh://host", machine="other", cpu=OLDER)
    done = merge(tmp_path, "--ship", "model")
    assert done.code == 2, "a run doesn't choose where we log in"
    assert f"there was measured on another machine, Older CPU, {len(OLDER['allowed_cpus'])} CPU" in done.err
    assert "Or add --on ssh://host if that host is yours" in done.err
    assert "ssh://other: none of these runs" in merge(tmp_path, "--ship", "model", "--on", "ssh://host,ssh://other").err
    assert asked == []
    assert merge(tmp_path, "--ship", "model", "--on", "ssh://host").code == 0
    assert asked == [("ssh://host", there, "numpy:cpu:fp32", made.GROUP)]
    assert check(tmp_path / "model").returncode == 0


def test_what_does_not_go_together_is_refused_before_anything_is_shipped(both: Path, tmp_path: Path):
    write_run(tmp_path, "here")
    there = write_run(tmp_path, "there", machine="other")
    assert "measured on the same kind of CPU" in merge(tmp_path, "--ship", "model").err
    shutil.rmtree(there)
    write_run(tmp_path, "there", machine="third", cpu=NEWER)
    done = merge(tmp_path, "--ship", "model", "--with", both.parent / "shipped")
    assert "which is none of" in done.err
    assert "add that" in merge(tmp_path, "--with", both.parent / "shipped").err
    assert "--on is for what --ship DIR ships" in merge(tmp_path, "--on", "ssh://host").err
    assert "unknown group 'other'" in merge(tmp_path, "--ship", "model", "--group", "other").err


def test_a_place_without_an_answer_says_how_to_choose_there(tmp_path: Path):
    write_run(tmp_path, "here")
    write_run(tmp_path, "there", restarts=0, machine="other", cpu=OLDER)
    done = merge(tmp_path, "--ship", "model")
    assert done.code == 7
    assert "has no answer yet: " in done.err
    assert "--target TARGET -o FOLDER`, and add --with FOLDER here" in done.err


def test_a_target_that_cannot_be_shipped_says_what_to_do_there():
    found = analysed(
        "run", row("torch-eager", 100), facts={"arm": Arm(target=Target(backend="torch-eager"), model="m")}
    )
    (site,) = find_group([found])
    with pytest.raises(UsageError, match=r"torch-eager:cpu:fp32 can't be shipped: .*; ship another of its targets"):
        variants.require_shippable(site, ())


def test_cpus_of_one_kind_are_told_apart_by_their_number_alone():
    cpu = VariantCpu(architecture="x86_64", kind="A CPU", cpu="A CPU", flags=("avx2",), cpus=2)
    refuse_twins({"one": cpu, "two": replace(cpu, cpus=8)})
    with pytest.raises(UsageError, match="one and two were measured on the same kind of CPU"):
        refuse_twins({"one": cpu, "two": cpu})


def test_the_architecture_is_that_of_the_recorded_processor():
    def known(name: str) -> str:
        facts: Mapping[str, Any] = {"cpu": {"microarchitecture": name}}
        return architecture_of(facts)

    assert [known(name) for name in ("zen4", "neoverse_v1", "no such")] == ["x86_64", "aarch64", ""]
    assert architecture_of({}) == ""
