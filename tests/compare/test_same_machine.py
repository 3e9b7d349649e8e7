"""Which runs are of one machine: one rule for comparing, merging and deciding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.races.candidates import analysed
from support.races.cells import row

from shootout.apps.judge.compare.compare import MOVED, compare
from shootout.apps.judge.compare.merge import merge
from shootout.apps.judge.decide import question as reading
from shootout.tell.machines import is_same_machine, machine_of, name_machines

CPU: dict[str, Any] = {"model": "AMD EPYC", "allowed_cpus": [0, 1], "flags": ["avx2"], "cache_bytes": {"L1d": 49152}}
OTHER = {**CPU, "cache_bytes": {"L1d": 32768}}


def environment(cpu: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"machine": "1111aaaa2222", "cpu": cpu, **more}


def test_a_processor_is_known_by_what_it_is_and_not_by_what_a_library_calls_it():
    mine = machine_of(environment(CPU))
    assert is_same_machine(mine, machine_of(environment({**CPU, "microarchitecture": "zen5", "microcode": "0x2"})))
    assert is_same_machine(mine, machine_of(environment({**CPU, "allowed_cpus": [0]})))
    assert not is_same_machine(mine, machine_of(environment(OTHER)))


def test_another_gpu_makes_another_machine():
    """A run that tells of none, whose driver wasn't asked, doesn't."""
    small, large, none = (
        machine_of(environment(CPU, gpus=[{"name": name}] if name else [])) for name in ("T4", "A100", "")
    )
    assert not is_same_machine(small, large)
    assert is_same_machine(small, none)
    one, other = (analysed(name, row("a", 1), row("b", 2), facts={"gpus": [{"name": name}]}) for name in ("T4", "A100"))
    found = compare(one, other)
    assert (found.level, found.warnings) == (2, (MOVED,))


def test_two_processors_of_one_key_have_names_of_their_own():
    names = [*name_machines(machine_of(environment(cpu)) for cpu in (CPU, OTHER)).values()]
    assert len({*names}) == 2
    assert all(name.startswith("AMD EPYC, 2 CPUs (1111aaaa, processor ") for name in names)


def test_what_compare_takes_for_two_machines_merge_and_decide_do_too(monkeypatch: pytest.MonkeyPatch):
    runs = [
        analysed(str(index), row("a", 1), row("b", 2), facts={"cpu": cpu}) for index, cpu in enumerate((CPU, OTHER))
    ]
    assert compare(*runs).level == 2
    assert all("processor" in place.name for place in merge(runs).places)
    by_name = {Path(one.document.run): one for one in runs}
    monkeypatch.setattr(reading, "analyse_cells", by_name.__getitem__)
    found = reading.read_question([*by_name]).candidates
    assert len(found) == 4, "two arms on two machines"
    assert len({one.machine for one in found}) == 2
