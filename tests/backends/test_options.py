"""What adapters declare of their options: one check, and what the tuner may try."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shootout.core import backends
from shootout.core.adapter import check_options
from shootout.core.contract import Arm, Device, Option, Precision, Target

GPU, MODED = frozenset({Device.CUDA}), frozenset({"fast"})
OPTIONS = (
    Option(name="lib.secret", help="", settled="the target settles it"),
    Option(name="lib.threads", help="how many", form=r"\d+", takes="a whole number"),
    Option(name="lib.*", help="the library's own"),
    Option(name="graph", help="replay a graph", values=("0", "1"), devices=GPU),
    Option(name="wrapper", help="in C++", modes=MODED),
    Option(name="blocks", help="so many", precisions=frozenset({Precision.INT8, Precision.INT4})),
)


def arm_of(options: dict[str, str], device: Device, mode: str) -> Arm:
    return Arm(target=Target(backend="made", device=device, mode=mode), model="m", options=options)


REFUSED = [
    ({"lib.secret": "1"}, Device.CPU, "", "option 'lib.secret' can't be set: the target settles it"),
    ({"lib.threads": "many"}, Device.CPU, "", "option 'lib.threads': expected a whole number, got 'many'"),
    ({"graph": "yes"}, Device.CUDA, "", "option 'graph': expected 0 or 1, got 'yes'"),
    ({"graph": "1"}, Device.CPU, "", "option 'graph' is for cuda, not for cpu: replay a graph"),
    ({"wrapper": "1"}, Device.CPU, "", r"option 'wrapper' is for \+fast, not for the plain mode: in C\+\+"),
    ({"grpah": "1"}, Device.CUDA, "", r"unknown option 'grpah': did you mean 'graph'\? this backend takes graph, lib"),
    ({"grpah": "1"}, Device.CPU, "fast", r"unknown option 'grpah': this backend takes lib\.\*, lib.threads, wrapper"),
    ({"blocks": "1"}, Device.CPU, "", "option 'blocks' is for int4 and int8, not for fp32: so many"),
]


@pytest.mark.parametrize(("options", "device", "mode", "words"), REFUSED)
def test_a_wrong_option_is_refused_with_what_is_known(
    options: dict[str, str], device: Device, mode: str, words: str
) -> None:
    with pytest.raises(ValueError, match=f"^{words}"):
        check_options(arm_of(options, device, mode), OPTIONS)


def test_a_right_one_passes():
    check_options(arm_of({"lib.threads": "2", "lib.other": "x", "wrapper": ""}, Device.CPU, "fast"), OPTIONS)
    check_options(arm_of({"graph": "1"}, Device.CUDA, ""), OPTIONS)
    in_int8 = arm_of({"blocks": "1"}, Device.CPU, "")
    check_options(replace(in_int8, target=replace(in_int8.target, precision=Precision.INT8)), OPTIONS)
    with pytest.raises(ValueError, match="unknown option 'x': this backend takes no options"):
        check_options(arm_of({"x": "1"}, Device.CPU, ""), ())


@pytest.mark.parametrize("name", backends.names(hidden=True))
def test_what_a_backend_wants_tried_is_what_it_takes(name: str):
    capabilities = backends.get(name).capabilities
    for option in capabilities.options:
        assert not option.tries or not (option.name.endswith("*") or option.settled)
        assert (option.modes or frozenset()) <= capabilities.modes
        for value in option.tries:
            assert option.allows(value)
            precision = min(option.precisions or {Precision.FP32})
            for device, mode in ((device, mode) for device in option.devices for mode in option.modes or {""}):
                target = Target(backend=name, device=device, mode=mode, precision=precision)
                check_options(Arm(target=target, model="m", options={option.name: value}), capabilities.options)
