"""The terms and the method of a page, in plain words."""

from __future__ import annotations

from shootout.backends import BASELINE_OF_FILES

LEGEND = (
    (
        "target",
        f"What is measured: backend, device and precision, such as {BASELINE_OF_FILES}:cpu:fp32.",
    ),
    ("eligible", "May be shipped: plain FP32, or a lower precision that is shown to keep the accuracy."),
    (
        "1.7x slower (1.1 to 2.7)",
        "Takes 1.7 times as long as the target that is named. In brackets: the 95 % interval of all rows together.",
    ),
    ("open", "No verdict yet: the interval holds 1, or what the harness itself may be off by."),
    ("too few restarts", "Two restarts tell nothing below a doubling, and one tells nothing."),
    ("restart", "Every process was started afresh. The statistics count restarts, not calls."),
    ("times vary by 10 %", "The standard deviation of one target's time between restarts. The intervals allow for it."),
    ("control", "A hidden copy of the baseline. If the two differ, the page gives no verdict."),
    ("disturbed", "Rounds in which other work took CPU time."),
    ("error", "Distance of the outputs from those of the model in float64, relative to these."),
)
"""Terms, and what they mean."""
METHOD = (
    "Before anything was timed, each target's outputs were compared with those of the model in float64.",
    "The targets took turns on the same CPUs, in shuffled order, so a disturbance met all of them alike.",
    "Every process was started afresh several times. The statistics compare whole restarts.",
)
"""Sentences that hold for the measurement of every run."""
