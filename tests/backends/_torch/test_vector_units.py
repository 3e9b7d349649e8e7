"""A test of the vector units that was passed is made once on a machine; one that was not is made each time."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from shootout.backends._torch.vector_units import PASSED, remembered_tests
from shootout.contract import Target
from shootout.host import store
from shootout.testing.cases import warm_of
from shootout.testing.fresh import run_fresh

INDUCTOR = warm_of(Target(backend="torch-compile"))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> SimpleNamespace:
    """A torch of our own: what its tests answer, which were made, and its compiler's version."""
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path))
    here = SimpleNamespace(answer=True, made=[], compiler="g++ 12")

    class VecISA:
        def __init__(self, flags: str) -> None:
            self.flags = flags

        def build_arch_flags(self) -> str:
            return self.flags

        def check_build(self, code: str) -> bool:
            here.made.append((self.flags, code))
            return bool(here.answer)

    here.unit = VecISA
    builder = {"get_cpp_compiler": lambda: "g++", "get_compiler_version_info": lambda _: here.compiler}
    known = {"torch": {"__version__": "2"}, "cpu_vec_isa": {"VecISA": VecISA}, "cpp_builder": builder}
    for name, holds in known.items():
        module = ModuleType(name)
        vars(module).update(holds)
        monkeypatch.setitem(sys.modules, name if name == "torch" else f"torch._inductor.{name}", module)
    inductor = ModuleType("torch._inductor")
    vars(inductor).update(cpu_vec_isa=sys.modules["torch._inductor.cpu_vec_isa"])
    monkeypatch.setitem(sys.modules, "torch._inductor", inductor)
    return here


def ask(machine: SimpleNamespace, flags: str = "-mavx2", code: str = "exp") -> bool:
    """What a new process hears."""
    with remembered_tests():
        return bool(machine.unit(flags).check_build(code))


def test_a_test_that_was_passed_is_not_made_again(machine):
    assert [ask(machine) for _ in range(3)] == [True, True, True]
    assert machine.made == [("-mavx2", "exp")]


def test_one_that_was_not_passed_is_made_again(machine):
    machine.answer = False
    assert not ask(machine)
    machine.answer = True
    assert ask(machine)
    assert len(machine.made) == 2


def test_other_flags_code_or_compiler_is_another_test(machine):
    ask(machine)
    ask(machine, flags="-mavx512f")
    ask(machine, code="tanh")
    machine.compiler = "g++ 14"
    ask(machine)
    assert len(machine.made) == 4


def test_a_memory_that_cannot_be_read_is_no_answer(machine):
    ask(machine)
    (store.cache_folder().parent / PASSED).write_text("[torn")
    assert ask(machine)
    assert len(machine.made) == 2


def test_torch_gets_its_own_test_back(machine):
    own = machine.unit.check_build
    ask(machine)
    assert machine.unit.check_build is own


def units_found(cache: str) -> tuple[list[tuple[list[str], list[str]]], dict[str, bool]]:
    """Twice: which units torch itself finds, as if anew, and which tests it made; then what is remembered.

    Of one instruction set only: each takes seconds to compile.
    """
    import torch
    from torch._inductor import cpu_vec_isa

    os.environ["SHOOTOUT_CACHE"] = cache
    torch._inductor.config.cpp.vec_isa_ok = None  # these tests have set it (tests/conftest.py)
    made: list[str] = []
    real = cpu_vec_isa.VecISA.check_build

    def noted(unit: Any, code: str) -> bool:
        made.append(unit.build_arch_flags())
        return real(unit, code)

    cpu_vec_isa.VecISA.check_build = noted  # type: ignore[method-assign]
    cpu_vec_isa.supported_vec_isa_list[:] = [cpu_vec_isa.VecAVX2()]
    found = []
    for _ in range(2):
        for answers in (cpu_vec_isa.VecISA._VecISA__bool__impl, cpu_vec_isa.valid_vec_isa_list):  # type: ignore[attr-defined]
            answers.cache_clear()
        made.clear()
        with remembered_tests():
            found.append(([str(unit) for unit in cpu_vec_isa.valid_vec_isa_list()], [*made]))
    return found, json.loads(Path(store.cache_folder().parent, PASSED).read_text())


@pytest.mark.skipif("avx2" not in Path("/proc/cpuinfo").read_text().split(), reason="needs AVX2")
def test_torch_makes_its_tests_by_what_is_replaced_here(tmp_path: Path):
    (first, second), stored = run_fresh(units_found, str(tmp_path), warm=INDUCTOR)
    assert first[0] == second[0] == ["avx2"]
    assert first[1]
    assert second[1] == []
    assert list(stored.values()) == [True] * len(first[1])
