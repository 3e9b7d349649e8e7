"""Schemes as people write them: what each word means, and which go together."""

from __future__ import annotations

import pytest

from shootout.apps.tune.settings import find_offered
from shootout.core import schemes
from shootout.core.contract import Device, Precision, Target
from shootout.core.errors import UsageError
from shootout.core.schemes import Scheme


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", Scheme()),
        ("per-tensor", Scheme(granularity="per-tensor")),
        ("entropy+per-channel+asymmetric", Scheme(granularity="per-channel", symmetry="asymmetric", ranges="entropy")),
        ("samples-12", Scheme(samples=12)),
        ("accuracy-control", Scheme(search="accuracy-control")),
        ("s8s8+minmax", Scheme(ranges="minmax", own="s8s8")),
        ("activations-8+asymmetric", Scheme(activations="activations-8", symmetry="asymmetric")),
        ("awq+scale-estimation+ratio-0.8", Scheme(method="awq", scales="scale-estimation", ratio=0.8)),
        ("float-3", Scheme(floats=(3,))),
        ("minmax+float-0to3.7.12.13", Scheme(ranges="minmax", floats=(0, 1, 2, 3, 7, 12, 13))),
        ("float-2+shared", Scheme(floats=(2,), variant="shared")),
    ],
)
def test_words_in_any_order(text: str, wanted: Scheme):
    assert schemes.parse(text, own=["s8s8"]) == wanted


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("per-chanel", "unknown scheme 'per-chanel': did you mean 'per-channel'"),
        ("s8s9", "unknown scheme 's8s9': did you mean 's8s8'"),
        ("samples-0", "unknown scheme 'samples-0'"),
        ("per-tensor+", "unknown scheme ''"),
        ("minmax+minmax", "'minmax' and 'minmax' exclude each other"),
        ("weights-only+activations-8", "exclude each other"),
        ("entropy+weights-only+samples-3", "weights-only leaves activations float, so entropy and samples-3"),
        ("shared+per-tensor", "shared comes quantized, the same for every backend, so per-tensor would"),
        ("float-3,4", "unknown scheme"),
        ("float-3.3", "name each layer once, in order, runs of three or more as a range: float-3"),
        ("float-1.2.3", "as a range: float-1to3"),
        ("float-5to2", "'5to2' is no range of layers"),
        ("float-999999", "'999999' is no range of layers"),
    ],
)
def test_wrong_words_are_answered_with_what_is_known(text: str, says: str):
    with pytest.raises(UsageError, match=says):
        schemes.parse(text, own=["s8s8"])


@pytest.mark.parametrize(
    ("device", "scheme", "rest"),
    [
        (Device.CPU, "shared", Precision.FP32),
        (Device.CUDA, "shared", Precision.FP16),
        (Device.CUDA, "rest-fp32+shared", Precision.FP32),
        (Device.CPU, "per-tensor+rest-bf16", Precision.BF16),
    ],
)
def test_what_isn_t_quantized_computes_as_people_ship_it_there(device: Device, scheme: str, rest: Precision):
    assert schemes.rest_of(Target(backend="b", device=device, precision=Precision.INT8, scheme=scheme)) is rest
    assert schemes.parse(scheme).for_probe().rest == schemes.parse(scheme).rest


def test_a_word_may_be_offered_for_the_shared_file_alone():
    shared_alone, both = {"shared", "shared+float-*"}, {"shared", "float-*"}
    assert schemes.unoffered(schemes.parse("float-3"), shared_alone) == "float-3"
    for offered in (shared_alone, both):
        assert schemes.unoffered(schemes.parse("float-3+shared"), offered) is None
    assert find_offered(shared_alone, "float-3") == "shared+float-3"
    assert find_offered(both, "float-3") == "float-3"
    assert find_offered({"samples-*"}, "float-3") is None


def test_a_probe_is_asked_without_what_needs_data_or_layers():
    asked = schemes.parse("per-tensor+samples-3").for_probe()
    assert asked.words == ("per-tensor",)
    assert schemes.parse("rest-fp32+shared+float-1").for_probe().words == ("rest-fp32", "shared")
    assert schemes.parse("accuracy-control").for_probe() == Scheme()
    assert schemes.parse("float-3.17").for_probe() == Scheme()
    assert schemes.parse("float-3.17+shared").for_probe().words == ("shared",)
    assert schemes.parse("awq+scale-estimation+ratio-0.8+activations-8").for_probe().words == ("activations-8",)


def test_how_sizes_that_vary_are_run_says_nothing_of_the_model():
    padded = schemes.parse("per-tensor+bucket-32")
    assert (padded.bucket, padded.is_dynamic, padded.granularity) == (32, False, "per-tensor")
    assert schemes.parse("dynamic").is_dynamic
    assert schemes.parse("shared+dynamic").words == ("dynamic", "shared")
    assert schemes.without_shapes("per-tensor+bucket-32") == "per-tensor"
    assert schemes.without_shapes("dynamic") == ""
    assert padded.for_probe().words == ("per-tensor",)
    assert schemes.unoffered(schemes.parse("bucket-8"), ()) is None
    with pytest.raises(UsageError, match="'bucket-32' and 'dynamic' exclude each other"):
        schemes.parse("bucket-32+dynamic")
    for word in ("bucket-0", "bucket--8", "bucket-x"):
        with pytest.raises(UsageError, match=f"scheme '{word}': inputs are padded to a multiple of a whole number"):
            schemes.parse(word)
