"""Labels against evidence: a contradiction is a fault, a mixed account is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shootout.core.contract import Arm, Device, Executed, Precision, Target
from shootout.core.worker.verification import executed_fault, probe_fault


def executed(**counts: int) -> Executed:
    return Executed(library="lib", version="1", device="cpu", threads=1, compute_nodes_by_precision=counts)


def target(precision: Precision = Precision.FP32, device: Device = Device.CPU, scheme: str = "") -> Target:
    return Target(backend="lib", precision=precision, device=device, scheme=scheme)


def arm(precision: Precision = Precision.FP32, device: Device = Device.CPU, threads: int = 1) -> Arm:
    return Arm(target=target(precision, device), model="m", threads=threads)


@pytest.mark.parametrize(
    ("counts", "precision"),
    [
        ({"fp32": 3}, Precision.FP32),
        ({"fp32": 1, "int8": 9}, Precision.INT8),
        ({"fp64": 2}, Precision.FP32),
        ({"fp32": 2}, Precision.TF32),
        ({}, Precision.BF16),
    ],
)
def test_an_account_that_holds_the_label_is_no_fault(counts: dict[str, int], precision: Precision):
    assert executed_fault(executed(**counts), arm(precision)) is None


@pytest.mark.parametrize(
    ("counts", "precision"),
    [
        ({"bf16": 3}, Precision.FP32),
        ({"fp32": 641}, Precision.INT8),
        ({"fp32": 1}, Precision.FP16),
    ],
)
def test_nothing_in_the_labeled_precision_is_a_fault_that_says_what_ran(counts: dict[str, int], precision: Precision):
    fault = executed_fault(executed(**counts), arm(precision))
    assert fault is not None
    assert fault.startswith(f"labeled {precision}, but lib ran")
    assert all(f"{count} in {name}" in fault for name, count in counts.items())


def test_threads_are_those_that_were_asked_for_and_any_where_the_library_chooses():
    two = replace(executed(fp32=1), threads=2)
    assert executed_fault(two, arm(threads=1)) == "asked for 1 threads, but lib uses 2"
    assert executed_fault(two, arm(threads=0)) is None


def test_a_file_in_its_own_precisions_promises_none_but_its_place():
    native = arm(Precision.NATIVE)
    for counts in ({"int8": 23}, {"fp32": 2, "int4": 1, "bf16": 4}, {}):
        assert executed_fault(executed(**counts), native) is None
    assert "asked for 3 threads" in (executed_fault(executed(int8=1), replace(native, threads=3)) or "")
    assert "elsewhere: 23 in int8" in (executed_fault(executed(int8=23), arm()) or "")


def test_integers_that_the_runtime_says_nothing_of_are_a_fault():
    for precision in (Precision.INT8, Precision.INT8_DYNAMIC, Precision.INT4, Precision.FP8):
        assert "reports no compute node at all" in (executed_fault(executed(), arm(precision)) or "")


def test_tf32_that_kept_every_bit_is_caught_by_the_probe():
    assert "finds fp32" in (probe_fault("fp32", target(Precision.TF32)) or "")


def test_the_probes_settle_every_label():
    assert probe_fault("fp32", target(Precision.FP32)) is None
    assert "finds bf16" in (probe_fault("bf16", target(Precision.FP32)) or "")
    assert "finds unknown" in (probe_fault("unknown", target(Precision.FP16)) or "")
    assert probe_fault(None, target(Precision.FP32)) is None
    assert probe_fault("int8", target(Precision.INT8_DYNAMIC)) is None
    assert "the grid probe finds int8-weights" in (probe_fault("int8-weights", target(Precision.INT8_DYNAMIC)) or "")
    assert "the grid probe finds float" in (probe_fault("float", target(Precision.INT8)) or "")
    assert "finds int8-weights" in (probe_fault("int8-weights", target(Precision.INT4)) or "")
    assert probe_fault("fp8", target(Precision.FP8)) is None
    assert "the grid probe finds fp8-weights" in (probe_fault("fp8-weights", target(Precision.FP8)) or "")


def test_other_threads_or_another_device_than_the_label_says_are_faults():
    assert "asked for 2 threads, but lib uses 1" in (executed_fault(executed(fp32=1), arm(threads=2)) or "")
    for device in (one for one in Device if one.is_gpu):
        fault = executed_fault(executed(fp32=1), arm(device=device))
        assert fault == f"labeled {device}, but lib computes on cpu"
        found = replace(executed(fp32=1), device=f"{device}: a card")
        assert executed_fault(found, arm(device=device)) is None
        assert executed_fault(found, arm()) == f"labeled cpu, but lib computes on {device}: a card"


@pytest.mark.parametrize(
    ("precision", "scheme", "found"),
    [
        (Precision.INT4, "symmetric+activations-8", "int4-activations-8"),
        (Precision.INT8, "weights-only", "int8-weights"),
        (Precision.INT8, "per-tensor", "int8"),
    ],
)
def test_a_word_about_activations_is_held_to_by_account_and_probe(precision: Precision, scheme: str, found: str):
    """Each of the three, and INT4 beside float activations, is another arithmetic: none passes for another."""
    worded = target(precision, scheme=scheme)
    label = f"labeled {precision}" + f"/{scheme.rpartition('+')[2]}" * (found != "int8")
    for ran in ("int4", "int4-activations-8", "int8", "int8-weights"):
        account = replace(executed(), compute_nodes_by_precision={ran: 2})
        faults = (probe_fault(ran, worded), executed_fault(account, replace(arm(), target=worded)))
        if ran == found:
            assert faults == (None, None)
        else:
            assert all(str(fault).startswith(f"{label}, but ") and ran in str(fault) for fault in faults)
