"""The options of `shootout gate`; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Annotated

from shootout.core.constants import INDIFFERENT
from shootout.tell import option_values
from shootout.tell.study_options import (
    Flag,
    FolderOptions,
    HelpGroup,
    MetricOptions,
    ModelOptions,
    StreamOptions,
    read_pythons,
)

MAX_TIME_S = 480.0
"""Seconds of a gate without --max-time: as long as a CI job waits gladly."""


class GateOptions(ModelOptions, MetricOptions, StreamOptions, FolderOptions, total=False):
    """Say what races the reference, by which limits, how long; and the model's own if the reference's differ here."""

    candidate: Annotated[
        str,
        Flag(
            group=HelpGroup.WHAT,
            word="TARGET|MODEL",
            help="Target such as openvino:cpu:int8, or ONNX file for the reference's target, to test against the "
            "reference. Default: the reference itself.",
        ),
    ]
    target: Annotated[
        str,
        Flag(
            group=HelpGroup.WHAT,
            word="TARGET",
            help="The run's target to test against. Default: what the run ships, by --policy if one is given.",
        ),
    ]
    group: Annotated[str, Flag(group=HelpGroup.WHAT, word="NAME", help="The run's group, if several have that target.")]
    reference_sha256: Annotated[
        str,
        Flag(
            group=HelpGroup.WHAT,
            word="HASH",
            help="SHA-256 of the shipped folder's manifest.json; refuse any other reference.",
        ),
    ]
    pythons: Annotated[
        Mapping[str, str | PathLike[str]],
        Flag(
            group=HelpGroup.WHAT,
            word="NAME=PATH",
            name="--python",
            several=True,
            read=read_pythons,
            help="Add an interpreter with other versions, for a candidate backend@NAME.",
        ),
    ]
    slower: Annotated[
        str,
        Flag(
            group=HelpGroup.LIMITS,
            word="5%",
            help=f"Slowdown to accept. Default: the policy's `indifferent`, or {INDIFFERENT:.0%}.",
        ),
    ]
    size: Annotated[str, Flag(group=HelpGroup.LIMITS, word="10%", help="Growth of the model's files to accept.")]
    same_proof: Annotated[
        bool,
        Flag(
            group=HelpGroup.LIMITS,
            kind=bool,
            help="Require the same device, compute nodes by precision, and fallbacks.",
        ),
    ]
    policy: Annotated[
        Path,
        Flag(
            group=HelpGroup.LIMITS,
            word="TOML",
            kind=Path,
            help="Require the limits of this deploy.toml too.",
        ),
    ]
    max_error: Annotated[
        float,
        Flag(
            group=HelpGroup.MORE,
            word="ERROR",
            help="Accept a relative error above the bound predicted for the precision, up to ERROR: 0.1% or 1e-3.",
            read=option_values.read_error,
        ),
    ]
    max_time_s: Annotated[
        float,
        Flag(
            group=HelpGroup.STOP,
            word="TIME",
            name="--max-time",
            help="Stop after this time, exports and builds included; what isn't known then is undecided. The gate "
            "waits as long at most for another run on this machine. Default: 8m.",
            read=option_values.read_seconds,
        ),
    ]
    out: Annotated[
        str | PathLike[str],
        Flag(
            group=HelpGroup.WHERE,
            word="FOLDER",
            help="Run folder to write or continue. Default: results/gate/<time>.",
            kind=Path,
        ),
    ]
