"""What `make check` counts."""

from __future__ import annotations

from lab.ratchet import count_code_lines, find_fields

SOURCE = '''"""A module."""

import os  # why


class Kept:
    """A class.

    With two lines.
    """

    name: str = ""
    """A field."""


def first(
    one: int,
) -> str:
    # a comment
    return """two
lines"""
'''


def test_prose_is_no_code():
    assert count_code_lines(SOURCE) == 8


def test_fields_are_those_of_the_class():
    assert list(find_fields("contract.py:Target"))[:3] == ["backend", "device", "precision"]
