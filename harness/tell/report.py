"""The lines that every renderer takes, one job each: `tell.screen` writes them in so many columns of a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that can be pasted.

    Attributes:
        text: the command as a shell reads it, in one line.
        label: what it is for; "" where its line says so.
        remark: what stands behind it.
    """

    text: str
    label: str = ""
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a report, however many rows of a terminal it takes.

    Attributes:
        label: at most 7 letters; "" where it goes on with the line above.
        parts: stand apart by dots; a place where a row may end lies between them.
        commands: below the parts; without parts the first one stands behind the label.
        subject: the name that the parts are about, in bold before them.
    """

    label: str
    parts: Sequence[str] = ()
    commands: Sequence[Command] = ()
    subject: str = ""
