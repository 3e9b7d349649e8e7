"""The options of `shootout gate`; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Annotated

from shootout import units
from shootout.constants import INDIFFERENT
from shootout.study.options import Flag, FolderOptions, HelpGroup, MetricOptions, ModelOptions, read_pythons

MAX_TIME_S = 480.0
"""Seconds of a gate without --max-time: as long as a CI job waits gladly."""


class GateOptions(ModelOptions, MetricOptions, FolderOptions, total=False):
    """What races the reference, by which limits, how long; the model's own where the reference's differ here."""

    candidate: Annotated[
        str,
        Flag(
            group=HelpGroup.WHAT,
            word="TARGET|MODEL",
            help="What may take the reference's place: a target such as openvino:cpu:int8 on the same model, or an "
            "ONNX file that the reference's target runs. Default: the reference itself.",
        ),
    ]
    arm: Annotated[
        str,
        Flag(
            group=HelpGroup.WHAT,
            word="TARGET",
            help="The run's arm to hold it against. Default: what it ships, by --policy where there is one.",
        ),
    ]
    group: Annotated[
        str, Flag(group=HelpGroup.WHAT, word="NAME", help="The run's cell, where it has several of that arm.")
    ]
    reference_sha256: Annotated[
        str,
        Flag(
            group=HelpGroup.WHAT,
            word="HASH",
            help="SHA-256 of the shipped folder's manifest.json: any other reference is refused.",
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
            help="Another interpreter, with other versions, for a candidate backend@NAME.",
        ),
    ]
    slower: Annotated[
        str,
        Flag(
            group=HelpGroup.LIMITS,
            word="5%",
            help=f"How much slower it may be. Default: the policy's indifferent, or {INDIFFERENT:.0%}.",
        ),
    ]
    accuracy_drop: Annotated[
        str, Flag(group=HelpGroup.LIMITS, word="0.5pp", help="Accuracy that it may lose, in pairs of labelled rows.")
    ]
    size: Annotated[str, Flag(group=HelpGroup.LIMITS, word="10%", help="How much larger its artifact may be.")]
    same_proof: Annotated[
        bool,
        Flag(
            group=HelpGroup.LIMITS,
            kind=bool,
            help="What ran must be alike: device, compute nodes by precision, fallbacks.",
        ),
    ]
    policy: Annotated[
        Path,
        Flag(
            group=HelpGroup.LIMITS,
            word="TOML",
            kind=Path,
            help="A deploy.toml: the candidate must keep its limits too.",
        ),
    ]
    max_error: Annotated[
        float,
        Flag(
            group=HelpGroup.MORE,
            word="ERROR",
            kind=float,
            help="Let outputs err by more than their precision explains, up to this: 1e-3.",
        ),
    ]
    max_time_s: Annotated[
        float,
        Flag(
            group=HelpGroup.STOP,
            word="TIME",
            name="--max-time",
            help="End after so long, exports and builds too; what isn't known then is undecided. Default: 8m.",
            read=units.read_seconds,
        ),
    ]
    out: Annotated[
        str | PathLike[str],
        Flag(group=HelpGroup.WHERE, word="FOLDER", help="Run folder. Default: results/gate/<time>.", kind=Path),
    ]
