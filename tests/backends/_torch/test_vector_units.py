"""The tests of the best vector unit are made once on a machine; one that was not passed is made each time."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from shootout.backends._torch.inductor import CHOSEN, PASSED, fewest_tests
from shootout.core.contract import Target
from shootout.core.host import store
from shootout.testing.checks import warm_of
from shootout.testing.fresh import run_fresh

INDUCTOR = warm_of(Target(backend="torch-compile"))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> SimpleNamespace:
    """A torch of our own: what its tests answer, which were made, and its compiler's version."""
    monkeypatch.setenv("SHOOTOUT_CACHE", str(tmp_path))
    monkeypatch.delenv(CHOSEN, raising=False)
    here = SimpleNamespace(answer=True, made=[], compiler="g++ 12", names=["old", "new"], all_of_torch=["all"])

    class VecISA:
        def __init__(self, flags: str, name: str = "") -> None:
            self.flags, self.name = flags, name

        def __str__(self) -> str:
            return self.name

        def __bool__(self) -> bool:
            return self.check_build("exp")

        def build_arch_flags(self) -> str:
            return self.flags

        def check_build(self, code: str) -> bool:
            here.made.append((self.flags, code))
            return bool(here.answer)

    here.unit = VecISA
    builder = {"get_cpp_compiler": lambda: "g++", "get_compiler_version_info": lambda _: here.compiler}
    units = {
        "VecISA": VecISA,
        "supported_vec_isa_list": [VecISA("-mlater", "later"), VecISA("-mnew", "old new"), VecISA("-mold", "old")],
        "x86_isa_checker": lambda: here.names,
        "valid_vec_isa_list": lambda: here.all_of_torch,
    }
    config = {"cpp": SimpleNamespace(simdlen=None)}
    known = {"torch": {"__version__": "2"}, "cpu_vec_isa": units, "cpp_builder": builder, "config": config}
    for name, holds in known.items():
        module = ModuleType(name)
        vars(module).update(holds)
        monkeypatch.setitem(sys.modules, name if name == "torch" else f"torch._inductor.{name}", module)
    inductor = ModuleType("torch._inductor")
    vars(inductor).update({name: sys.modules[f"torch._inductor.{name}"] for name in known if name != "torch"})
    monkeypatch.setitem(sys.modules, "torch._inductor", inductor)
    return here


def ask(machine: SimpleNamespace, flags: str = "-mavx2", code: str = "exp") -> bool:
    """What a new process hears."""
    with fewest_tests():
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


def valid() -> list[str]:
    """What a new process takes for the units that work."""
    with fewest_tests():
        return [str(unit) for unit in sys.modules["torch._inductor.cpu_vec_isa"].valid_vec_isa_list()]


def test_nothing_behind_the_best_unit_that_works_is_tested(machine):
    assert valid() == ["old new"]
    assert machine.made == [("-mnew", "exp")]


def test_a_unit_that_does_not_work_leaves_the_choice_to_the_next(machine):
    machine.answer = False
    assert valid() == []
    assert machine.made == [("-mnew", "exp"), ("-mold", "exp")]


@pytest.mark.parametrize("why", ["another processor", "a variable", "a configuration"])
def test_whoever_names_a_unit_gets_the_list_that_torch_makes(machine, monkeypatch, why):
    if why == "another processor":
        machine.names = []
    elif why == "a variable":
        monkeypatch.setenv(CHOSEN, "avx2")
    else:
        sys.modules["torch._inductor.config"].cpp.simdlen = 256
    assert valid() == machine.all_of_torch


def units_found(cache: str) -> tuple[list[tuple[list[str], list[str]]], dict[str, bool]]:
    """Twice: which units torch finds, as if anew, and which tests it made; then what is remembered.

    Of two instruction sets, of which the second needs no test: each takes seconds to compile.
    """
    import torch
    from torch._inductor import cpu_vec_isa

    os.environ["SHOOTOUT_CACHE"] = cache
    os.environ.pop(CHOSEN, None)  # it names the one unit where the tests run as on another CPU
    torch._inductor.config.cpp.vec_isa_ok = None  # these tests have set it (tests/conftest.py)
    made: list[str] = []
    real = cpu_vec_isa.VecISA.check_build

    def noted(unit: Any, code: str) -> bool:
        made.append(unit.build_arch_flags())
        return real(unit, code)

    cpu_vec_isa.VecISA.check_build = noted  # type: ignore[method-assign]

    class Worse(cpu_vec_isa.VecAVX2):
        _arch_flags = "-mavx2"

    cpu_vec_isa.supported_vec_isa_list[:] = [cpu_vec_isa.VecAVX2(), Worse()]
    found = []
    for _ in range(2):
        cpu_vec_isa.VecISA._VecISA__bool__impl.cache_clear()  # type: ignore[attr-defined]
        made.clear()
        with fewest_tests():
            picked = cpu_vec_isa.pick_vec_isa()
            found.append(([str(unit) for unit in cpu_vec_isa.valid_vec_isa_list()], [*made]))
            assert picked in cpu_vec_isa.valid_vec_isa_list()
    return found, store.read_facts(PASSED)


@pytest.mark.skipif("avx2" not in Path("/proc/cpuinfo").read_text().split(), reason="needs AVX2")
def test_torch_makes_its_tests_by_what_is_replaced_here(tmp_path: Path):
    (first, second), stored = run_fresh(units_found, str(tmp_path), warm=INDUCTOR)
    assert first[0] == second[0] == ["avx2"]
    assert set(first[1]) == {"-mavx2 -mfma -mf16c"}
    assert second[1] == []
    assert list(stored.values()) == [True] * len(first[1])
