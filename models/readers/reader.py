"""Define what a reader is: it makes a study's rows of files that a user holds, before anything is planned.

The rows lie in the cache, as those that a user's function has read (`models.data.reading`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from shootout.core.host.folders import Scratch
from shootout.core.host.store import READ_ROWS, cache_folder, mark_used
from shootout.models.data.data_files import ROWS_FACTS, RowFacts


class Reader:
    """A kind of data that people hold beside a model.

    Attributes:
        option: the keyword of `run` that names it.
        also: further keywords that it takes, beside `labels`.
        takes: tells what its option names, where another reader has the same option.
    """

    option: ClassVar[str]
    also: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[str] = ""

    def claims(self, given: str) -> bool:  # noqa: ARG002
        """Return whether its option's value is meant for it, which need not exist."""
        return True

    def read(self, model: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a study that take the place of its options: `inputs`, and what scores them.

        Args:
            model: the word of the model, or of the first of several files.
            given: the keywords of `run` that were given.

        Raises:
            UsageError: the data can't be read, or don't fit the model; in one sentence, before anything is exported.
        """
        raise NotImplementedError


def keep_rows(made_of: Sequence[Any], facts: RowFacts, make: Callable[[Path], int]) -> Path:
    """Return the folder in the cache that holds the rows of a user's files, made now unless they are there.

    Args:
        made_of: all that decides the rows, as JSON values: hashes of the files, the reader's version and settings.
        facts: what is told of them; the number of rows is filled in.
        make: writes the rows into an empty folder, and returns how many there are.

    Raises:
        UsageError: as `make`.
    """
    key = hashlib.sha256(json.dumps([*made_of, facts.notes]).encode()).hexdigest()[:32]
    folder = cache_folder() / f"{READ_ROWS}{key}"
    if not folder.is_dir():
        with Scratch(cache_folder()) as made:
            told = {"told": facts.told, "files": facts.files, "notes": [*facts.notes], "rows": make(made)}
            (made / ROWS_FACTS).write_text(json.dumps(told), encoding="utf-8")
            if not folder.is_dir():
                made.rename(folder)
    mark_used(folder)
    return folder
