"""A run as files for other programs: each format is legal, tells every row, and holds no trap for who opens it."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pyarrow.parquet
import pytest
from support.console import here
from support.races import cells
from support.races.made import COPY, A, B, ended, header, played, rounds, write

import shootout
from shootout.core import install
from shootout.core.contract import NotRunKind
from shootout.core.errors import UsageError
from shootout.models.data import data_files
from shootout.tell import formats as data
from shootout.tell import junit
from shootout.tell.document import Document, Rate, Row, Serving
from shootout.tell.formats import FORMATS, check_files, write_files

ROOT = Path(__file__).resolve().parents[2]
EVIL = "=cmd|' /C calc'!A0 <script>\x1b[2J\x00\ufffe]]>\u202e & \"q\" é"
SEEN = "=cmd|' /C calc'!A0 <script>[2J]]> & \"q\" é"


def failed(arm: str) -> Row:
    return cells.row(arm, None, outcome="failed", reason=EVIL, fix=None, cause=NotRunKind.FAILED, notes=(EVIL,))


def document() -> Document:
    rows = cells.row("a", 1e6), cells.row("b", 5e5, parameters={"w": 3}), cells.row("c", None), failed("d")
    return cells.document(cells.cell(*rows))


def test_junit_has_a_case_for_each_arm_and_no_letter_that_xml_has_not():
    root = Xml.fromstring(junit.as_xml(document()))
    assert (root.tag, root.get("tests"), root.get("failures")) == ("testsuites", "4", "1")
    (suite,) = root
    assert {name: suite.get(name) for name in ("name", "tests", "failures", "errors", "skipped")} == {
        "name": cells.GROUP, "tests": "4", "failures": "1", "errors": "0", "skipped": "1",
    }  # fmt: skip
    a, _, c, d = suite.iterfind("testcase")
    assert (a.get("name"), a.get("classname"), a.get("time")) == ("a:cpu:fp32", cells.GROUP, "0.001000000")
    assert c.find("skipped").attrib == {"type": "unavailable", "message": "no GPU"}
    assert c.findtext("skipped") == "no GPU. Fix: get one"
    assert d.find("failure").get("message") == SEEN


def test_bencher_gets_figures_of_what_was_measured_and_names_that_it_takes():
    faulty = cells.fidelity(math.inf, (0.0, 0.1, "a"))
    rows = cells.row("a", 1e6), cells.row("b", 5e5, fidelity=faulty), failed("d")
    long = tuple(cells.row(f"{'x' * 2_000}:cpu:fp32{end}", 1.0) for end in ("", "#2"))
    found = json.loads(data.as_bencher(cells.document(cells.cell(*rows, *long))))
    assert [name for name in found if len(name) < 100] == [f"{cells.GROUP} / {arm}:cpu:fp32" for arm in "ab"]
    assert len(found) == 4
    assert max(map(len, found)) <= data.LONGEST_NAME
    b = found[f"{cells.GROUP} / b:cpu:fp32"]
    assert b["latency"] == {"value": 5e5, "lower_value": 4.8e5, "upper_value": 5.2e5}
    assert b["ratio"]["value"] == 0.5 < b["ratio"]["upper_value"]
    assert b["file-size"] == {"value": 1_000_000}
    assert b["accuracy"] == {"value": 0.9}
    assert "error" not in b, "an infinite figure is none"


def test_a_rates_inverse_is_no_latency():
    rate = Rate(value=1_000.0, low=900.0, high=1_100.0)
    facts: dict[str, Any] = {"limit_ns": 5e6, "unloaded_ns": 1e5, "holds": True, "p99_ns": 4e6}
    serves = [Serving(rate_per_s=rate, searched=searched, **facts) for searched in (True, False)]
    rows = (
        cells.row("items", 1e6, scenario="throughput", items_per_s=rate),
        cells.row("found", 1e6, scenario="serve", items_per_s=rate, serve=serves[0]),
        cells.row("given", 4e6, scenario="serve", serve=serves[1]),
        cells.row("steps", 1e6, scenario="train-step"),
    )
    found = json.loads(data.as_bencher(cells.document(cells.cell(*rows))))
    items, searched, given, steps = found.values()
    assert [("latency" in one, one.get("throughput", {}).get("value")) for one in (items, searched, given, steps)] == [
        (False, 1e3), (False, 1e3), (False, 1e3), (True, None),
    ]  # fmt: skip
    assert "latency-p99" not in items
    assert searched["latency-p99"] == {"value": 4e6}
    assert given["latency-p99"] == pytest.approx({"value": 4e6, "lower_value": 3.84e6, "upper_value": 4.16e6})


def test_a_spreadsheet_computes_no_text_and_shows_every_row():
    columns, *rows = csv.reader(io.StringIO(data.as_csv([*document().rows, cells.row("e", -1.0, reason=" @x")])))
    told = [dict(zip(columns, row, strict=True)) for row in rows]
    assert [row["arm"][0] for row in told] == ["a", "b", "c", "d", "e"]
    assert told[3]["reason"] == f"'{SEEN}"
    assert told[4]["reason"] == "' @x"
    assert [row["end_to_end.median_ns"] for row in told] == ["1000000.0", "500000.0", "", "", "-1.0"]
    assert [row["parameters.w"] for row in told] == ["", "3", "", "", ""]


def test_parquet_has_the_same_types_whatever_was_measured():
    full = pyarrow.parquet.read_table(pyarrow.BufferReader(data.as_parquet(document().rows)))
    empty = pyarrow.parquet.read_table(pyarrow.BufferReader(data.as_parquet(())))
    assert set(full.schema) - set(empty.schema) == {pyarrow.field("parameters.w", pyarrow.int64())}
    assert empty.schema.field("end_to_end.median_ns").type == pyarrow.float64()
    assert empty.schema.field("artifact_bytes").type == pyarrow.int64()
    assert full.column("notes").to_pylist() == [[], [], [], [EVIL]]
    odd = data.as_parquet([cells.row(arm, 1.0, parameters={"w": w}) for arm, w in (("a", 2**70), ("b", "x"))])
    assert pyarrow.parquet.read_table(pyarrow.BufferReader(odd)).column("parameters.w").to_pylist() == [str(2**70), "x"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = [
        line for g in range(5) for line in (played(A, g, 1_000), played(COPY, g, 1_001), played(B, g, 500), rounds(g))
    ]
    return write(tmp_path_factory.mktemp("run") / "run", header(), *lines, ended())


def test_the_end_of_a_name_says_which_format(run: Path, tmp_path: Path):
    names = [f"new/X{end.upper()}" for end in FORMATS]
    told = here("show", run, *(word for name in names for word in ("--to", name)), cwd=tmp_path)
    assert told.out.startswith("Ship    b:cpu:fp32")
    found = {end: (tmp_path / name).read_bytes() for end, name in zip(FORMATS, names, strict=True)}
    assert "latency" in next(iter(json.loads(found["bencher.json"]).values()))
    assert json.loads(found[".json"]) == here("show", run, "--json", cwd=tmp_path).data
    assert Xml.fromstring(found[".xml"]).tag == "testsuites"
    assert found[".csv"].startswith(b"group,arm,")
    assert found[".parquet"].startswith(b"PAR1")
    shootout.load(run).write(tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == found[".csv"]


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(run: Path, tmp_path: Path):
    for command in (("run", "nonsense"), ("show", run)):
        told = here(*command, "--to", "rows.xlsx", cwd=tmp_path)
        assert told.code == 2
        assert told.err == (
            "shootout: 'rows.xlsx' has an unknown ending: use one of bencher.json, .json, .xml, .csv, .parquet\n"
        )
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        check_files([tmp_path / "folder.csv"])
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="can't be written"):
        check_files([tmp_path / "file" / "rows.csv"])
    with pytest.raises(UsageError, match="can't be written: File name too long"):
        check_files([f"{'x' * 300}.csv"])
    tuning = ROOT / "results/reference/tune"
    assert "is a tuning run: use --json" in here("show", tuning, "--to", "rows.csv", cwd=tmp_path).err


def test_without_pyarrow_parquet_alone_is_refused(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(install, "find_spec", lambda name: None)
    write_files(document(), [tmp_path / "rows.csv", tmp_path / "rows.json"])
    told = "needs pyarrow, which isn't installed: .*parquet"
    for refused in (
        check_files,
        lambda names: shootout.load(run).to_arrow(),
        lambda names: data_files.read_table(*names),
    ):
        with pytest.raises(UsageError, match=told):
            refused([tmp_path / "rows.parquet"])
