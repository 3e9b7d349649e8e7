"""Inductor's tests of the vector units, each made once on a machine instead of once in each process.

Before it writes a kernel, Inductor compiles a few lines for each instruction set that the processor has and loads what
came out: ten tests and 12 CPU seconds for a build on a processor with AMX, and 1 s for each load, since the loading is
repeated even where the compiled file is there. Whether a compiler and a torch can do it changes with neither model nor
process, so a test that was passed is remembered; one that was not is made again, and a wrong memory can only end in a
kernel that doesn't compile or load, which is loud.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from shootout.errors import UsageError
from shootout.host import store
from shootout.host.environment import machine_key

PASSED = "vector-units.json"
"""Beside the bundles: hashes of the tests that were passed."""


@contextmanager
def remembered_tests() -> Iterator[None]:
    """Inside, a test of the vector units that was passed here before isn't made again."""
    from torch._inductor import cpu_vec_isa

    units: Any = cpu_vec_isa.VecISA
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

    units.check_build = check_build
    try:
        yield
    finally:
        units.check_build = made


def _key(unit: Any, code: str) -> str:
    """All that the answer depends on: machine, torch, compiler, flags, what is compiled."""
    import torch
    from torch._inductor.cpp_builder import get_compiler_version_info, get_cpp_compiler

    compiler = get_cpp_compiler()
    content = (machine_key(), torch.__version__, compiler, get_compiler_version_info(compiler))
    return hashlib.sha256(repr((*content, unit.build_arch_flags(), code)).encode()).hexdigest()
