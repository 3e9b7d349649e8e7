"""What a policy may hold, and what is said to whoever wrote something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from shootout.apps.judge.decide.policy import KEYS, Objective, read_policy, write_policy, write_toml, write_words
from shootout.core.errors import UsageError
from shootout.models.metrics import read_share
from shootout.tell.limits import LIMITS, Limit
from shootout.tell.study_options import POLICY_FLAGS

WHOLE = """
objective = "cost"
indifferent = "3%"
load = "200/s"
price = 0.0893
[limits]
p99 = "5ms"
max-drop = "0.5pp"
memory = "500MB"
install = "250MiB"
ready = "2s"
"""


def read(tmp_path: Path, text: str, **changes: object):
    path = tmp_path / "deploy.toml"
    path.write_text(text)
    return read_policy(path, changes)


def test_each_value_is_read_with_its_unit(tmp_path: Path):
    found = read(tmp_path, WHOLE)
    assert (found.objective, found.indifferent, found.load) == (Objective.COST, 0.03, 200.0)
    assert found.limits == pytest.approx(
        {Limit.P99: 5e6, Limit.DROP: 0.005, Limit.MEMORY: 5e8, Limit.INSTALL: 250 * 2**20, Limit.READY: 2e9}
    )
    assert found.price == 0.0893


def test_what_is_written_reads_the_same(tmp_path: Path):
    for keys in (
        {},
        {"max-drop": "1%"},
        {"min-agreement": "95.15%", "max-error": "0.19%", "ready": "2500ms", "cost": "2/million", "price": "1"},
    ):
        for policy in (read_policy(None, keys), read(tmp_path, WHOLE, **keys)):
            options = {name.removeprefix("--"): value for name, value in write_policy(policy)}
            assert read_policy(None, options) == policy
            assert read(tmp_path, write_toml(policy)) == policy
            if words := write_words(policy):
                assert read_policy(Path(words), {}) == policy, "in place of a file"
    four = read_policy(None, {"contenders": "4"})
    assert (read(tmp_path, write_toml(four)), write_policy(four)) == (four, []), "no decision goes by it"


def test_an_option_stands_above_the_file(tmp_path: Path):
    found = read(tmp_path, WHOLE, p99="7ms", objective="latency")
    assert (found.limits[Limit.P99], found.limits[Limit.READY], found.objective) == (7e6, 2e9, Objective.LATENCY)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('objectiv = "cost"', ("unknown key 'objectiv'", "did you mean 'objective'")),
        ("[limits]\nmemroy = '5MB'", ("unknown limit 'memroy'", "did you mean 'memory'")),
        ("[limits]\np99 = 5", ("p99 is 5: write a time with its unit as 5ms",)),
        ("[limits]\nmemory = '500'", ("memory is '500'", "500" and "250MB")),
        ("[limits]\nmax-drop = '0.5 points'", ("as 0.005, 0.5pp or 1%",)),
        ("[limits]\np99 = '-5ms'", ("p99 is '-5ms': it must be more than 0",)),
        ("[limits]\nmin-agreement = '150%'", ("at most 100 %",)),
        ("contenders = 5", ("contenders is a number from 2 to 4, received 5",)),
        ("load = 200", ("load is 200: write a rate with its unit as 200/s",)),
        ('objective = "speed"', ("unknown objective 'speed'",)),
        ('objective = ["latency"]', ("unknown objective \"['latency']\"",)),
        ('objective = "cost"', ("objective cost needs the price of this machine an hour: write price = 0.0893",)),
        ("[limits]\ncost = '0.05/million'", ("a limit on cost needs the price",)),
        ("price = 1.0\n[limits]\ncost = '0.5'", ("write a cost with its unit as 0.05/million",)),
        ("limits = 3", ("write [limits]",)),
        ("load = ", ("not valid TOML",)),
    ],
)
def test_what_cannot_be_read_is_told_with_the_way_out(tmp_path: Path, text: str, words: tuple[str, ...]):
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    for part in words:
        assert part in str(caught.value)
    assert "deploy.toml" in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(UsageError, match="can't read the policy"):
        read_policy(tmp_path / "none.toml", {})
    with pytest.raises(UsageError, match="can't read the policy"):
        read_policy(tmp_path, {})
    with pytest.raises(UsageError, match=r"^p98=5ms: unknown key 'p98': did you mean 'p99'"):
        read_policy(Path("p98=5ms"), {})


def test_there_is_an_option_for_each_key():
    flags = {name.replace("_", "-") for name in POLICY_FLAGS}
    assert flags == {*KEYS, *Limit} - {"limits"}
    assert {*LIMITS} == {*Limit}


@pytest.mark.parametrize(("text", "value"), [("98%", 0.98), ("0.98", 0.98), ("98 %", 0.98), ("100%", 1.0), ("1", 1.0)])
def test_a_share_is_written_in_per_cent_or_as_a_part_of_one(text: str, value: float):
    assert read_policy(None, {"min-agreement": text}).limits == {Limit.AGREEMENT: pytest.approx(value)}
    assert read_share(text) == pytest.approx(value), "as `run` reads it"
    with pytest.raises(UsageError, match="write a share with its unit as 5%"):
        read_policy(None, {"indifferent": "1"})


@pytest.mark.parametrize(
    ("value", "told"), [(0.9997, "99.97 %"), (1.0, "100 %"), (0.99999, "99.999 %"), (0.9512, "95.1 %"), (0.1, "10 %")]
)
def test_a_share_below_all_is_not_rounded_to_all(value: float, told: str):
    assert LIMITS[Limit.AGREEMENT].unit.tell(value) == told
