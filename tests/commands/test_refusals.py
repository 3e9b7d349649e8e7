"""What the system refuses, a full disk or a missing right, is told with its path and what to do."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shootout.apps.judge.gate import output
from shootout.apps.judge.gate.verdict import Gate
from shootout.cli import tell_system_error
from shootout.commands import catalog as cache
from shootout.core.errors import ShootoutError, UsageError, tell_refusal
from shootout.core.journal import samples
from shootout.core.journal.records import SCHEMA
from shootout.core.worker import availability
from shootout.scenarios import mix
from shootout.tell import document
from shootout.tell.formats import write_file

DOCS = Path(__file__).parents[2] / "docs"
FULL = "No space left on device; make room there"


def refused(number: int, *paths: str) -> OSError:
    """An error as a copy raises it: with its source, and with its target."""
    names: list[Any] = [paths[0], None, *paths[1:]] if paths else []
    return OSError(number, os.strerror(number), *names)


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files be made, and half of their content be written."""

    def write_half(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise refused(errno.ENOSPC)

    monkeypatch.setattr(Path, "write_bytes", write_half)


@pytest.mark.parametrize(
    ("number", "instead", "told"),
    [
        (errno.ENOSPC, "", FULL),
        (
            errno.EDQUOT,
            "choose another --out",
            f"{os.strerror(errno.EDQUOT)}; make room there, or choose another --out",
        ),
        (errno.EACCES, "set X", "Permission denied; give this user the right to it, or set X"),
        (errno.EPERM, "", "Operation not permitted; give this user the right to it"),
        (errno.ENOENT, "name a run", "No such file or directory; name a run"),
        (errno.EIO, "", "Input/output error"),
    ],
)
def test_a_refusal_says_what_to_do(number: int, instead: str, told: str):
    assert tell_refusal(refused(number), instead) == told


def test_a_copy_that_fills_a_disk_names_its_target():
    assert tell_system_error(refused(errno.ENOSPC, "source", "target")) == f"'target': {FULL}"
    assert tell_system_error(refused(errno.EACCES, "source", "target")).startswith("'source': Permission denied; give")
    assert tell_system_error(refused(errno.ENOSPC)).startswith("No space left on device; make room for the output, the")


def test_no_half_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    study = tmp_path / "study.toml"
    with monkeypatch.context() as patch:
        fill_disk(patch)
        with pytest.raises(UsageError, match=rf"study\.toml' can't be written: {FULL}, or choose another file"):
            write_file(study, b"model = 1")
    assert not [*tmp_path.iterdir()]


def test_the_documents_tell_today_s_versions():
    user, detail = ((DOCS / name).read_text() for name in ("file-formats.md", "design/file-formats.md"))
    assert f"The document's schema is {document.SCHEMA}, the journal's {SCHEMA}." in user
    assert f"the journal's `schema_version` is {SCHEMA}," in detail
    assert f"the document's `schema` {document.SCHEMA};" in detail


def write_summary() -> None:
    told = Gate(outcome="pass", reasons=(), reference="a", candidate="b", recorded="c", limit=1.05, run="d")
    output.tell_github(told, None, sys.stderr, {output.SUMMARY: "/s"})


@pytest.mark.parametrize(
    ("place", "name", "call", "fix"),
    [
        (cache, "evict", lambda: cache.cache(clear=True, as_json=False), "or remove it by hand"),
        (Path, "read_text", lambda: mix.read_mix(f"size={__file__}"), "or a mix is AXIS=SIZE"),
        (Path, "open", write_summary, f"or unset {output.SUMMARY}"),
        (Path, "open", lambda: samples.write(Path("/"), "tmp/none/a.npz", [], []), "run the same command again"),
        (subprocess, "run", lambda: availability.examine({"a": sys.executable}), "or name a Python interpreter"),
    ],
    ids=["cache", "mix", "summary", "samples", "interpreter"],
)
def test_a_missing_right_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, call: Callable[[], Any], fix: str
):
    monkeypatch.setattr(place, name, _deny)
    with pytest.raises(ShootoutError, match=f"Permission denied; give this user the right to it.*{fix}"):
        call()


def _deny(*_: object, **__: object) -> None:
    raise refused(errno.EACCES)
