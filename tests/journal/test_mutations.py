"""A stranger's journal with one wrong value, seeded: every command ends with a message, none with a traceback."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from support import mutations
from support.console import here
from support.races.made import A, header, played, prepared, rounds, write

from shootout.core.journal import journal

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
COMMANDS = (
    ("show", "bad"),
    ("show", "bad", "--full", "--json"),
    ("decide", "bad"),
    ("compare", "bad", "earlier"),
    ("compare", "elsewhere", "bad"),
    ("report", "bad", "-o", "bad.md"),
    ("merge", "bad", "elsewhere"),
)


def fuzz(place: Path, name: str, each: int) -> None:
    """Change a value of each kind of line, so many times, and read what comes of it by one command after the other."""
    lines = mutations.read_lines(REFERENCE / name)
    elsewhere = {**lines[0]["environment"], "machine": "another"}
    mutations.write_lines([{**lines[0], "created": "2020"}, *lines[1:]], place / "earlier")
    mutations.write_lines([{**lines[0], "created": "2021", "environment": elsewhere}, *lines[1:]], place / "elsewhere")
    chance = random.Random(name)
    for count in range(each):
        for at, kind in enumerate(sorted({line["kind"] for line in lines})):
            changed, number, told = mutations.mutate(lines, kind, chance)
            mutations.write_lines(changed, place / "bad")
            words = COMMANDS[(at + count) % len(COMMANDS)]
            try:
                ended = here(*words, cwd=place)
            except BaseException as error:
                raise AssertionError(f"shootout {' '.join(words)}, with {told}") from error
            assert ended.code in (0, 2, 3, 7), (told, words, ended.err)
            assert "\x1b[31m" not in ended.out + ended.err, told
            if ended.code == 2:
                assert "bad" in ended.err, (told, ended.err)
            elif words[0] == "show" and is_refused(place / "bad", len(lines), number):
                left_out = f"left out of bad/{journal.NAME}, since this program did not write them so: {number} "
                assert left_out in " ".join((ended.out + ended.err).split()), told


def is_refused(folder: Path, count: int, number: int) -> bool:
    """Tell whether a line isn't taken; the last one may be torn, and is then no damage."""
    return number < count and number in journal.read(folder).damaged


@pytest.mark.parametrize("name", ["trees", "h200-linear", "bert-quantization"])
def test_a_wrong_value_never_ends_in_a_traceback(tmp_path: Path, name: str):
    fuzz(tmp_path, name, each=2)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["trees", "h200-linear", "bert-quantization", "decide-load", "sustained"])
def test_no_wrong_value_ends_in_a_traceback(tmp_path: Path, name: str):
    fuzz(tmp_path, name, each=200)


@pytest.mark.parametrize("field", ["load_s", "first_call_s", "rss_after_bytes", "warm_up_calls"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 1 << 70])
def test_no_count_size_or_time_is_negative_or_without_end(tmp_path: Path, field: str, value: float):
    write(tmp_path, header(), prepared(A), played(A, 0, 1e6), rounds(0), played(A, 1, 1e6), rounds(1))
    whole = mutations.read_plain(tmp_path)
    next(line for line in whole if line["kind"] == "played")[field] = value
    mutations.write_lines(whole, tmp_path)
    found = journal.read(tmp_path)
    assert [line.kind for line in found.lines] == ["header", "prepared", "rounds", "played", "rounds"]
    assert found.damaged[0] == 3


@pytest.mark.parametrize(
    "environment",
    [
        {"cpu": "x"},
        {"cpu": {"flags": "avx2"}},
        {"gpus": [{"name": 1}]},
        {"interpreters": {"new": {}}},
        {"machine": {}},
    ],
)
def test_an_environment_of_other_types_is_refused_with_its_line(tmp_path: Path, environment: dict[str, Any]):
    write(tmp_path, header())
    whole = mutations.read_plain(tmp_path)
    whole[0]["environment"] = environment
    mutations.write_lines(whole, tmp_path)
    ended = here("show", tmp_path, cwd=tmp_path)
    assert ended.code == 2
    assert f"line 1 of {tmp_path / journal.NAME}, its header, is not as this program wrote it" in ended.err
