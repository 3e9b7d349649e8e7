"""Run folders: journals with edits anywhere, journals whose edited values have right checksums, files of samples."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import numpy as np
from hypothesis.strategies import SearchStrategy

from shootout.commands.output import PlainConsole
from shootout.contract import NotRun, NotRunKind
from shootout.errors import printable
from shootout.formats import bencher, junit, tables
from shootout.formats.json_text import document_text
from shootout.journal import journal, samples
from shootout.journal.journal import NAME, PACKED
from shootout.journal.records import LINE, Added, Confirming, Holding, Line, PlayedOnGpu, Served, Step, not_run
from shootout.messages import Scope, Scores, Turn
from shootout.page import markdown, plots, sources
from shootout.report import table
from shootout.results.analysis import analyse
from tests.fuzz.edits import as_json, edited_bytes, edited_values
from tests.support.races.made import COPY, GROUP, A, B, checked, ended, header, played, prepared, rounds

FILE = "samples/g0-000.parquet"


@cache
def _runs() -> tuple[list[Any], ...]:
    """Runs as lines of JSON values: one with every kind of line, one that serves, one that is a sweep."""
    served = Served(
        limit_ns=5e6,
        unloaded_ns=1e5,
        start_late_ns=9.0,
        steps=(Step(rate_per_s=9.0, requests=99, bound_ns=1e6, held=True),),
    )
    restarts = [
        line
        for g in range(3)
        for line in (
            *(
                played(arm, g, at + g, flagged=(1,) * (g == 1), spent_s={"load": 0.1})
                for arm, at in ((A, 100.0), (B, 90.0), (COPY, 100.5))
            ),
            rounds(g, voided=int(g == 1)),
        )
    ]
    out: list[Line] = [
        not_run(GROUP, replace(A, threads=2), NotRun(NotRunKind.UNAVAILABLE, "no GPU", "get one")),
        not_run(GROUP, replace(B, threads=2), NotRun(NotRunKind.FAILED, "broke", during="load")),
    ]
    group = header().groups[0]
    more = [Added(group=group.model_copy(update={"name": "more"}), size=2, asked=(f"end_to_end {A.label} {B.label}",))]
    sure = Confirming(group=group.model_copy(update={"name": "sure"}))
    held = Holding(mode="stop", ratio=1.01, pairs=4)
    on_gpu = played(A, 3, 101.0, gpu=PlayedOnGpu(sm_clock_mhz=900, reference_mhz=1000))
    whole = [
        header(axis="batch"),
        prepared(A),
        prepared(B),
        checked(A, Scores(name="m.py:score", rows=(1.0, 0.5, 2.0))),
        checked(B, Scores(name="m.py:score", rows=(1.0, 0.0, 2.0))),
        held,
        *out,
        *restarts,
        on_gpu,
        rounds(3),
        *more,
        sure,
        ended(),
    ]
    serving = [header(), prepared(A), played(A, 0, 1e5, served=served), rounds(0), ended(complete=False, budget_s=9.0)]
    return tuple([json.loads(LINE.dump_json(line)) for line in run] for run in (whole, serving, [header(), *restarts]))


def _summed(lines: Sequence[Any]) -> bytes:
    texts = [json.dumps(line, separators=(",", ":")).encode() for line in lines]
    return b"".join(b'%s,"sum":"%08x"}\n' % (text[:-1], zlib.crc32(text)) for text in texts if text.endswith(b"}"))


@cache
def _texts() -> tuple[bytes, ...]:
    old = [[{**run[0], "schema_version": 1}, *run[1:]] for run in _runs()]
    plain = [b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in run) for run in old]
    return (*map(_summed, _runs()), *plain, *plain, gzip.compress(plain[0], mtime=0))


def inputs() -> SearchStrategy[bytes]:
    return edited_bytes(_texts())


def read(data: bytes, folder: Path) -> None:
    """As `shootout show` reads and shows it; and `run`, before it goes on there."""
    (folder / (PACKED if data.startswith(b"\x1f\x8b") else NAME)).write_bytes(data)
    _show(folder)


def documents() -> SearchStrategy[bytes]:
    return edited_values(_runs()).map(as_json)


def read_sealed(data: bytes, folder: Path) -> None:
    """The same, of lines that were changed and have the right checksum all the same."""
    lines = json.loads(data)
    (folder / NAME).write_bytes(_summed(lines if isinstance(lines, list) else [lines]))
    _show(folder)


def _show(folder: Path) -> None:
    journal.begun(folder)
    document = analyse(folder)
    shown = io.StringIO()
    for full in (False, True):
        text = table.render(document, 100, full=full)
        PlainConsole(file=shown, width=100).print(text)
        PlainConsole(file=shown, width=100, force_terminal=True, color_system=None).print(text)
    assert printable(shown.getvalue()) == shown.getvalue(), "it steers the terminal"
    json.loads(document_text(document))
    Xml.fromstring(junit.as_xml(document))
    json.loads(bencher.as_text(document))
    assert tables.as_csv(document.rows)
    assert tables.as_parquet(document.rows)
    summary = markdown.render([document])
    assert printable(summary) == summary
    source = sources.read(folder, document)
    for draw in plots.KINDS.values():
        draw(source)


@cache
def _files() -> tuple[bytes, ...]:
    import tempfile

    turns = [Turn(latency_ns={scope: np.linspace(1.0, 2.0, 40) for scope in Scope})] * 3
    with tempfile.TemporaryDirectory() as folder:
        samples.write(Path(folder), FILE, [(A.label, turns), (B.label, turns)])
        return ((Path(folder) / FILE).read_bytes(),)


def samples_inputs() -> SearchStrategy[bytes]:
    return edited_bytes(_files())


def read_samples(data: bytes, folder: Path) -> None:
    """A file of readings, alone and as the packed one."""
    for name in (FILE, samples.PACKED):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
        found = samples.Samples(folder)
        for arm in (A, B):
            found.of(GROUP, arm.label, Scope.END_TO_END, {0: FILE})
        assert all(printable(line) == line for line in found.lost)
