"""One exported model to make, as it crosses into the export process: JSON, and nothing in it that the parent didn't
check.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shootout import models
from shootout.contract import NotRun, NotRunKind, Precision, Value
from shootout.errors import ModelError, ShootoutError, SkippedArm, UsageError
from shootout.export import cache

JOBS = "jobs.json"
"""In the folder of an export process: the jobs, and its seconds."""


def brief_key(key: str, needs: Iterable[str]) -> str:
    """The key of the exported model that takes the place of this one where there is no time for all of it.

    Args:
        needs: the precisions whose errors it is to tell.
    """
    return hashlib.sha256(f"{key} brief {' '.join(sorted(needs))}".encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A user's own file: its absolute path and its hash, "" where it can't be read (which the exported model then
    says).
    """

    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One exported model to make.

    Attributes:
        model: the registry's name, a user's file's name, or the place of a user's own model.
        batch: as in `Request`, like `variant` and `training`.
        parameters: complete; none for a user's file.
        file: path of a user's ONNX file, "" for other models.
        sets: sizes of the file's symbolic axes.
        module: as in `Request`, like `needs`.
        contents: hashes of the file and of those beside it that hold its weights, by name.
        holds: the precisions other than FP32 that the file holds itself.
        source_sha256: of the source of a user's own model, "" for other models.
        libraries: versions of what that source imports, by package.
        inputs: the user's own inputs, for a file or an own model.
        labels: the right class of each of their rows.
        calibration: the user's own calibration sets.
        weights: a user's own weights, a file or a folder, hashed as one.
        base: of a variant with quantized weights, the plain exported model's job; of a file that races its original,
            that's.
        original: of such a file, the original's name; "" for other models.
        versions: of the packages that an exported model depends on.
        key: hash of all above, and of the code that exports a model.
        folder: where the exported model goes; "" until there is a place.
        base_folder: where the base's exported model is, likewise.
    """

    model: str
    batch: int = 1
    variant: str = ""
    reduced: bool = False
    training: bool = False
    parameters: Mapping[str, Value] = field(default_factory=dict)
    file: str = ""
    sets: Mapping[str, int] = field(default_factory=dict)
    module: bool = False
    needs: tuple[str, ...] = ()
    contents: Mapping[str, str] = field(default_factory=dict)
    holds: tuple[Precision, ...] = ()
    source_sha256: str = ""
    libraries: Mapping[str, str] = field(default_factory=dict)
    inputs: Given | None = None
    labels: Given | None = None
    calibration: Given | None = None
    weights: Given | None = None
    base: Job | None = None
    original: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    folder: str = ""
    base_folder: str = ""

    @property
    def is_probe(self) -> bool:
        """Whether the model is one of the harness's own."""
        return self.model in models.HIDDEN

    @property
    def is_own(self) -> bool:
        """Whether the model is a user's own factory or config, whose code runs in the export."""
        return bool(self.source_sha256)

    @property
    def short(self) -> str:
        """The model's name for people: of a user's own without its folder."""
        return Path(self.model).name

    @property
    def weights_sha256(self) -> str:
        """Of a user's file, the hash of its own and its weights' contents."""
        return hashlib.sha256(json.dumps(dict(self.contents)).encode()).hexdigest()

    def keyed(self) -> Job:
        """The same with its versions and its key."""
        known = dataclasses.replace(self, versions=cache.versions())
        return dataclasses.replace(known, key=cache.key(dataclasses.asdict(known)))


def to_json(job: Job) -> dict[str, Any]:
    """A job as JSON values."""
    return dataclasses.asdict(job)


def from_json(stored: Mapping[str, Any]) -> Job:
    """The job that `to_json` wrote."""
    given = {name: Given(**stored[name]) for name in ("inputs", "labels", "calibration", "weights") if stored[name]}
    base = from_json(stored["base"]) if stored["base"] else None
    holds = tuple(map(Precision, stored["holds"]))
    return Job(**{**stored, **given, "base": base, "holds": holds, "needs": tuple(stored["needs"])})


def error_to_json(error: ShootoutError) -> dict[str, Any]:
    """What an export ended with, as JSON values: a skip with its reason, or the message and whose fault it is."""
    if isinstance(error, SkippedArm):
        return {"why": dataclasses.asdict(error.why)}
    return {"message": str(error), "is_usage": isinstance(error, UsageError)}


def error_from_json(stored: Mapping[str, Any]) -> ShootoutError:
    """The error that `error_to_json` wrote."""
    if "why" in stored:
        why = NotRun(**{**stored["why"], "kind": NotRunKind(stored["why"]["kind"])})
        return SkippedArm(why.reason, why.fix, why.kind)
    return (UsageError if stored["is_usage"] else ModelError)(stored["message"])
