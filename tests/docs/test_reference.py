"""The pages of reference: they are what the program says of itself, and leave nothing of it out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from docs.site import keys, offers, reference
from shootout.apps.judge import analysis
from shootout.core.contract import Device, Precision
from shootout.core.errors import ExitCode
from shootout.core.schemes import SHARED, WORDS
from shootout.core.study.schema import Study
from shootout.tell.document import Document, Row, Timing

ROOT = Path(__file__).resolve().parents[2]
DOCS = reference.DOCS


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return reference.write_reference()


def test_the_kept_pages_are_current_and_nothing_lies_beside_them(pages: dict[str, str]):
    assert [name for name, text in pages.items() if (DOCS / name).read_text() != text] == [], "run `make reference`"
    kept = {str(page.relative_to(DOCS)) for page in (DOCS / "reference").rglob("*") if page.is_file()}
    assert kept == {name for name in pages if name.startswith("reference/")}


def test_the_matrix_has_every_precision_that_a_backend_runs(pages: dict[str, str]):
    rows = {line.split("`")[1]: line for line in pages["reference/support.md"].splitlines() if line.startswith("| `")}
    for name, can in offers.list_shipped().items():
        wanted = can.targets - offers.NEVER.get(name, frozenset())
        for device, precision in wanted | {(device, Precision.NATIVE) for device in can.native}:
            cells = rows[f"{name}:{device}"].split("|")[2:-1]
            assert cells[list(Precision).index(precision)].strip(), f"{name}:{device}:{precision}"
        assert not any(f"{name}:{device}" in rows for device in set(Device) - can.devices)
    never = [cell.strip() for cell in rows["jax-jit:cpu"].split("|")[2:-1]]
    assert {never[list(Precision).index(one)] for one in (Precision.FP16, Precision.FP8, Precision.INT4)} == {""}


def test_every_word_that_a_backend_offers_has_a_meaning_and_every_meaning_a_backend(pages: dict[str, str]):
    known = {
        word.removesuffix("N")
        for word in {**offers.MEANINGS, **offers.OWN_WORDS}
        if not word.startswith(offers.FOR_ALL)
    }
    schemes = [words for can in offers.list_shipped().values() for words in can.schemes.values()]
    offered = {word.removeprefix(SHARED).removesuffix("*") for words in schemes for word in words} | {offers.OPEN}
    assert {word for word in offered if not any(one.startswith(word) for one in known)} == set()
    assert {one for one in known if not any(one.startswith(word) for word in offered)} == set()
    assert (*offers.MEANINGS,) == WORDS
    assert "|  |" not in pages["reference/schemes.md"]


def test_every_exit_code_has_a_meaning():
    assert reference.EXIT_CODES.keys() == set(ExitCode)


def parts() -> list[Any]:
    """The parts of all documents, each once."""
    return list(dict.fromkeys(part for _, _, model in keys.DOCUMENTS.values() for part in keys.list_parts(model)))


def test_every_part_has_a_heading_of_its_own():
    names = [part.__name__.lower() for part in parts()]
    assert len(names) == len(set(names))


def test_every_key_has_a_meaning():
    meanings = {f"{part.__name__}.{key}": meaning for part in parts() for key, meaning in keys.list_keys(part)}
    assert [key for key, meaning in meanings.items() if not meaning] == []


def test_every_shared_meaning_is_some_keys_own():
    shared = {
        key
        for part in parts()
        for key, _ in keys.list_keys(part)
        if key in keys.COMMON and not keys.read_meanings(part).get(key)
    }
    assert keys.COMMON.keys() == shared


def test_the_keys_are_those_of_a_document():
    document = analysis.analyse(ROOT / "results" / "reference" / "shootout").model_dump(mode="json", by_alias=True)
    row = next(row for row in document["rows"] if row["end_to_end"])
    for part, written in ((Document, document), (Row, row), (Timing, row["end_to_end"])):
        assert {key for key, _ in keys.list_keys(part)} == set(written)
        told = keys.write_schemas()["document"]
        definition = told if part is Document else told["$defs"][part.__name__]
        assert set(definition["properties"]) == set(written)
        assert all(one.get("description") for one in definition["properties"].values())


def test_a_meaning_goes_on_over_lines_and_belongs_to_every_name_before_its_colon():
    meanings = keys.read_meanings(Timing)
    assert meanings["low_ns"] == meanings["high_ns"] == "the ends of its order-statistic interval over restarts."
    assert meanings["p99_ns"].startswith(
        "the upper bound of a restart's 99th percentile; null with fewer than 4 restarts"
    )
    assert keys.read_meanings(Study)["max_error"].endswith("measured and says so; 0: it fails.")
