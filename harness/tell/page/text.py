"""Text that leaves the machine: no letter that steers what shows it, and no folder of the machine."""

from __future__ import annotations

import re

from shootout.core.errors import printable

_PART = r"[^\s/:'\"`<>|,;()\[\]{}]+"
_QUOTED = re.compile(r"""(['"])~?/[^'"\n]*/(?=[^'"/\n]+\1)""")
_FOLDERS = re.compile(rf"(?<![\w./~])(?:~/(?:{_PART}/)*|/(?:{_PART}/)+)(?={_PART})")


def clean_text(text: str) -> str:
    """Return text without letters that steer, each absolute path shortened to its last part.

    A page is sent around: where a file lies on the machine that measured is no part of it, and may name a person.
    """
    return _FOLDERS.sub("", _QUOTED.sub(r"\1", printable(text)))
