"""A mix of sizes as people give it: weights, or a log of lengths that is put into few bins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shootout.commands.selection import choose
from shootout.core.errors import UsageError
from shootout.core.study.schema import checked
from shootout.scenarios.mix import ENOUGH_PADDING, MOST_BINS, read_mix
from shootout.tell.study_changes import change


def log(folder: Path, *lengths: int) -> str:
    path = folder / "lengths.txt"
    path.write_text("\n".join(map(str, lengths)))
    return str(path)


def test_sizes_and_weights_as_they_are_written_in_the_order_of_size():
    mix = read_mix("sequence=64:30, 16:50,256:20.5")
    assert (mix.axis, mix.sizes, mix.weights) == ("sequence", (16, 64, 256), (50.0, 30.0, 20.5))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sequence=16:-1", "the weight of size 16 is -1: give a number above 0"),
        ("sequence=16:0,64:0", "the weight of size 16 is 0"),
        ("sequence=0:1", "needs sizes from 1 on, each once with its weight, received 0"),
        ("sequence=16:1,16:2", "each once with its weight, received 16, 16"),
        ("sequence=16.5:1", "a mix is AXIS=SIZE:WEIGHT"),
        ("sequence=", "a mix is AXIS=SIZE:WEIGHT"),
        ("16", "a mix is AXIS=SIZE:WEIGHT"),
        ("sequence=nowhere.txt", "can't read the lengths in 'nowhere.txt': No such file or directory"),
        ("/", "can't read the lengths in '/'"),
    ],
)
def test_what_is_no_mix_is_refused_with_the_form(text: str, why: str):
    with pytest.raises(UsageError, match=r"--mix|lengths") as refused:
        read_mix(text)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"16\n64\nsixteen\n", "could not convert string to float: 'sixteen'"),
        (b"16\n-4\n", "lengths: give"),
        (b"9" * 400, "lengths: give"),
        (b"\n\n", "lengths: give"),
        (b"\xff\xfe\x00", "can't decode byte 0xff"),
    ],
)
def test_a_file_that_is_no_log_of_lengths_is_refused(tmp_path: Path, text: bytes, why: str):
    path = tmp_path / "lengths.txt"
    path.write_bytes(text)
    with pytest.raises(UsageError, match=r"is no log of lengths.*: give one with a whole number from 1 on") as refused:
        read_mix(f"sequence={path}")
    assert why in str(refused.value)


def test_few_lengths_are_bins_of_their_own(tmp_path: Path):
    mix = read_mix(f"sequence={log(tmp_path, 5, 9, 5, 5, 9)}")
    assert (mix.sizes, mix.weights, mix.padding) == ((5, 9), (3.0, 2.0), 0.0)


def test_a_log_has_no_more_bins_than_it_needs(tmp_path: Path):
    mix = read_mix(f"sequence={log(tmp_path, *[100] * 50, *[101] * 50, *[500] * 20)}")
    assert mix.sizes == (101, 500)
    assert 0 < mix.padding <= ENOUGH_PADDING


def test_no_length_is_counted_as_shorter_than_it_is_and_none_is_lost(tmp_path: Path):
    lengths = np.random.default_rng(0).lognormal(3.5, 0.8, 3_000).astype(int) + 1
    mix = read_mix(f"sequence={log(tmp_path, *lengths)}")
    assert len(mix.sizes) == MOST_BINS
    assert (sum(mix.weights), mix.sizes[-1]) == (lengths.size, lengths.max())
    edges = np.array(mix.sizes)
    counted = edges[np.searchsorted(edges, lengths)]
    assert (counted >= lengths).all()
    assert counted.sum() / lengths.sum() - 1 == pytest.approx(mix.padding)
    quantiles = np.quantile(lengths, np.arange(1, MOST_BINS + 1) / MOST_BINS, method="inverted_cdf").astype(int)
    assert quantiles[np.searchsorted(quantiles, lengths)].sum() / lengths.sum() - 1 > mix.padding


def test_more_lengths_than_are_binned_exactly_are_binned_too(tmp_path: Path):
    mix = read_mix(f"sequence={log(tmp_path, *range(1, 9_001))}")
    assert len(mix.sizes) == MOST_BINS
    assert mix.sizes[-1] == 9_000
    assert mix.padding == pytest.approx(1 / MOST_BINS, rel=0.05), "even lengths are in even bins"


def test_a_mix_without_an_axis_is_of_the_only_one_that_the_model_leaves_open(tmp_path: Path):
    text = log(tmp_path, 3, 4)
    given = read_mix("16:50,64:30", lambda: ["sequence"])
    assert (given.axis, given.sizes, given.weights) == ("sequence", (16, 64), (50.0, 30.0))
    assert read_mix(text, lambda: ["sequence"]).axis == "sequence"
    for axes, told in (([], "it is no file with an open axis: write --mix AXIS="), (["a", "b"], "it leaves a, b open")):
        with pytest.raises(UsageError, match=told):
            read_mix(text, lambda axes=axes: axes)


def test_a_mix_says_which_sizes_to_race():
    study = choose("residual_mlp", {"mix": "d_model=64:50,128:50"})
    assert study.parameters["d_model"] == (64, 128)
    assert study.scenario == ("varying",)
    assert choose("residual_mlp", {"mix": "batch=1:9,8:1"}).batch == (1, 8)


def test_another_mix_takes_the_place_of_a_studys_own_with_its_sizes():
    own = checked({"name": "s", "model": "residual_mlp", "targets": ["numpy"], "mix": "d_model=64:1,128:1"})
    assert own.parameters == {"d_model": (64, 128)}
    assert change(own, mix=read_mix("batch=1:1,4:1")).parameters == {}
    assert change(own, mix=read_mix("d_model=32:1")).parameters == {"d_model": (32,)}
    assert change(own, threads=(1,)).value_of("mix") == own.value_of("mix")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"mix": "batch=1:1,8:1", "batch": (1, 4)}, "the mix says which sizes of batch to race"),
        ({"mix": "d_model=64:1", "parameters": {"d_model": (64, 128)}}, "which sizes of d_model to race"),
        ({"mix": "threads=1:1,2:1"}, "not over threads"),
        ({"mix": "batch=1:1,8:1", "scenario": "serve"}, "is for scenario varying, got serve"),
        ({"mix": "batch=1:1,8:1", "scenario": ("latency", "varying")}, "is for scenario varying, got latency"),
    ],
)
def test_what_contradicts_a_mix_is_refused(options: dict[str, object], why: str):
    with pytest.raises(UsageError, match=why):
        choose("residual_mlp", options)
