"""What a library's error means, for libraries that say it in terms of their own insides.

Each backend keeps its table beside its adapter; the library's own words stay in the worker's log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from shootout.contract import NotRun, NotRunKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorHint:
    """One kind of refusal: the model is sound, and this library can't take it.

    Attributes:
        said: a regular expression; found in what it raises, its type's name in front.
        reason: what that means, in one line; `{name}` is what the expression's group of that name found.
        fix: what the user can do, or "".
    """

    said: str
    reason: str
    fix: str = ""


OURS = ErrorHint(
    said="^ValueError: (?P<why>nothing to quantize: .*)",
    reason="{why}",
    fix="race its floats; products inside branches and loops are out of every quantizer's reach",
)
"""What every adapter says of a model without layers of the kinds that it quantizes."""


def explain(error: BaseException, table: Iterable[ErrorHint]) -> NotRun | None:
    """What an error means by the first row that knows it; None where none does, and the error is a failure."""
    told = f"{type(error).__name__}: {error}"
    for row in (*table, OURS):
        if found := re.search(row.said, told):
            return NotRun(NotRunKind.UNFIT, row.reason.format(**found.groupdict()), row.fix)
    return None
