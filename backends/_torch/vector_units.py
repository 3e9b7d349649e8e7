"""Inductor's tests of the vector units: those of the best one that works, each made once on a machine.

Before it writes a kernel, Inductor compiles a few lines for each instruction set that the processor has and loads what
came out: ten tests and 12 CPU seconds for a build on a processor with AMX, and 1 s for each load, since the loading is
repeated even where the compiled file is there. Then it takes the first that works, unless it is told which one: so
those behind it aren't tested. Whether a compiler and a torch can do it changes with neither model nor process, so a
test that was passed is remembered; one that was not is made again, and a wrong memory can only end in a kernel that
doesn't compile or load, which is loud.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import islice
from typing import Any

from shootout.errors import UsageError
from shootout.host import store
from shootout.host.environment import machine_key

PASSED = "vector-units.json"
"""Beside the exported models: hashes of the tests that were passed."""
NEEDED = ("VecISA", "valid_vec_isa_list", "x86_isa_checker", "supported_vec_isa_list")
"""What must be in Inductor's module of the vector units."""
CHOSEN = "ATEN_CPU_CAPABILITY"
"""The variable by which users tell torch which unit to take."""


@contextmanager
def fewest_tests() -> Iterator[None]:
    """Inside, only the units up to the first that works are tested, and none that passed its test here before."""
    from torch._inductor import config, cpu_vec_isa

    inner: Any = cpu_vec_isa
    if not all(hasattr(inner, name) for name in NEEDED):  # torch's own affair: another version tests as it likes
        yield
        return
    units, listed = inner.VecISA, inner.valid_vec_isa_list
    made = units.check_build

    def check_build(unit: Any, code: str) -> bool:
        key = _key(unit, code)
        with suppress(UsageError):  # a folder that can't be used remembers nothing
            if key in store.read_facts(PASSED):  # read each time: another build may be at the same tests
                return True
        if not made(unit, code):
            return False
        with suppress(UsageError):
            store.write_facts(PASSED, {key: True})
        return True

    def valid_units() -> list[Any]:
        names = inner.x86_isa_checker()  # none on other processors, which have one unit only
        if not names or CHOSEN in os.environ or config.cpp.simdlen is not None:
            return list(listed())
        had = (unit for unit in inner.supported_vec_isa_list if set(str(unit).split()) <= set(names))
        return [*islice(filter(None, had), 1)]

    units.check_build, inner.valid_vec_isa_list = check_build, cache(valid_units)
    try:
        yield
    finally:
        units.check_build, inner.valid_vec_isa_list = made, listed


def _key(unit: Any, code: str) -> str:
    """All that the answer depends on: machine, torch, compiler, flags, what is compiled."""
    import torch
    from torch._inductor.cpp_builder import get_compiler_version_info, get_cpp_compiler

    compiler = get_cpp_compiler()
    content = (machine_key(), torch.__version__, compiler, get_compiler_version_info(compiler))
    return hashlib.sha256(repr((*content, unit.build_arch_flags(), code)).encode()).hexdigest()
