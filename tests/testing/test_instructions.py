"""The bench's count of a call's instructions: vector ones and calls by their bytes, and whose code they lie in."""

from __future__ import annotations

from lab.why.instructions import tell

CODE = {
    100: b"\x62\xf1\x7c\x48",  # AVX-512
    104: b"\xc5\xf8\x28\xc1",  # AVX
    108: b"\xe8\x00\x00\x00\x00",  # a call
    112: b"\xff\xd0\x90\x90",  # a call by register
    116: b"\xff\xe0\x90\x90",  # a jump by register
    200: b"\x89\xc8\x90\x90",
}
FILES = [(100, 150, "libruntime.so"), (200, 250, "libpython3.11.so.1.0")]


def test_instructions_are_told_apart():
    found = tell({100: 5, 104: 3, 108: 2, 112: 1, 116: 4, 200: 7, 300: 1}, CODE | {300: b"\x90" * 4}, FILES)
    assert (found["instructions"], found["in Python"], found["vector"], found["calls"]) == (23, 7, 8, 3)
    assert found["other"] == 23 - 7 - 8
    assert found["most in"] == "libruntime.so 15, libpython3.11.so.1.0 7, ? 1"
