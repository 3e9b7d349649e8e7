"""Choose the study: by a study's or a model's name, with changes on top, none of them without effect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shootout import models, studies
from shootout.core import plugins
from shootout.core.contract import SCALED, Artifact, Device, Precision
from shootout.core.errors import UsageError, unknown
from shootout.core.exported.request import find_claim, is_file
from shootout.core.scenario import find_scenario
from shootout.core.study.points import describe, targets_of
from shootout.core.study.schema import Study, as_axis, study_options
from shootout.core.study.target import parse_targets
from shootout.models.data.columns import as_file, names_column
from shootout.models.readers.reader import Reader
from shootout.models.sources import trees
from shootout.models.sources.variants import tell_folder
from shootout.scenarios.mix import read_mix
from shootout.tell.study_changes import change
from shootout.tell.study_options import DEFAULT, RunOptions, read_models

WEIGHTS = (".pth", ".ckpt", ".safetensors", ".bin")
"""The endings of files of weights that people take for models."""
_FORMS = (
    "a study is a NAME or file.toml; a model is a NAME, file.onnx, a folder of such files, file.py:function, "
    f"config.json or its folder, or a file of trees ({', '.join(trees.KINDS)}, .json of XGBoost)"
)
READERS = "shootout.models.readers"
OPTIONS = ("texts", "images", "data")
"""The keywords of `run` that readers take."""


def choose(name: str, options: Mapping[str, object]) -> Study:
    """Return the study of this name, or of this TOML file, with these changes to it; a model gets the default study.

    Args:
        options: as in `shootout.tell.study_options`; options that aren't a study's change nothing.

    Raises:
        UsageError: no such study or model, a value that it can't take, two answers to one question, or an option that
            would have no effect.
    """
    if isinstance(targets := options.get("backends"), str):
        raise UsageError(f"backends takes a list of targets, got the text {targets!r}")
    keys = {*Study.model_fields, *study_options()} & {*RunOptions.__annotations__}
    given: dict[str, Any] = {"targets": options.get("backends"), **{key: options.get(key) for key in keys}}
    if _is_model(name):
        name, given["model"] = DEFAULT, read_place(name, given["model"])
    own = _load_study(name)
    given["model"] = _spread_folders(given["model"] or own.model) or given["model"]
    named = as_axis(given["model"] or own.model)
    rows = take_rows(str(named[0]), options)
    if "model" in rows and len(named) > 1:
        raise UsageError(f"--data makes the columns of one model, and {len(named)} are given: race each by itself")
    given |= rows
    given |= _convert_trees(given, own if name != DEFAULT else None)
    if name == DEFAULT:
        given |= _choose_targets_of_files(given, own)
    if given["mix"]:
        first, *_ = map(str, as_axis(given["model"] or own.model))
        source = find_claim(first)
        given["mix"] = read_mix(given["mix"], lambda: source.open_axes(first) if source else [])
    study = _drop_missing_baseline(change(own, **given), own, given["baseline"])
    _refuse_without_effect(study, options)
    return study


def _spread_folders(named: Any) -> tuple[str, ...]:
    """Return the files that models stand for; () if each stands for itself.

    Raises:
        UsageError, ModelError: a folder's files are no variants of one model.
    """
    models_there = tuple(map(str, as_axis(named)))
    sources = {one: source for one in models_there if (source := find_claim(one))}
    found = tuple(file for one in models_there for file in (sources[one].spread(one) if one in sources else (one,)))
    return () if found == models_there else found


def _convert_trees(given: Mapping[str, Any], own: Study | None) -> dict[str, Any]:
    """Return the ONNX files that a library's own files are converted to, and the targets if none are named.

    Args:
        own: the study as it is written; None for the default one, whose targets such a model doesn't take.

    Raises:
        UsageError, ModelError: a file can't be read or converted.
    """
    named = as_axis(given["model"] or (own.model if own else ()))
    models_there = tuple(source.resolve(one) if (source := find_claim(one)) else one for one in map(str, named))
    if models_there == tuple(map(str, named)):
        return {}
    converted = [*filter(None, (trees.open_converted(Path(one)) for one in models_there))]
    if own or not converted or any(given.get(name) for name in ("targets", "backend")):
        return {"model": models_there}
    return {"model": models_there, "targets": [*dict.fromkeys(one.artifact for one in converted), "onnxruntime"]}


def _choose_targets_of_files(given: Mapping[str, Any], own: Study) -> dict[str, Any]:
    """Return the default study's targets that answer which of several ONNX files to take, if none are named.

    They run the files themselves in plain FP32. Every other runtime, on each file, would take the time of that answer.
    """
    files = [str(one) for one in as_axis(given["model"] or own.model) if is_file(str(one))]
    named = {name for name in ("targets", "backend") if given.get(name)} | {*(given.get("parameters") or {})} & {
        "backend"
    }
    if len(files) < 2 or named:
        return {}
    return {"targets": [text for text in own.targets if _runs_files(text)]}


def _runs_files(text: str) -> bool:
    (target,) = parse_targets(text, describe)
    return target.precision is Precision.FP32 and set(describe(target.backend)[0].consumes) == {Artifact.ONNX}


def _drop_missing_baseline(study: Study, own: Study, asked: str | None) -> Study:
    """Drop the study's own baseline if its target is no longer among those asked for; then it is the default.

    Args:
        own: the study as it was.
        asked: the baseline that the user asks for, which must be there.
    """
    fields = ("targets", "backend", "device", "precision")
    if asked or not study.baseline or all(getattr(study, name) == getattr(own, name) for name in fields):
        return study
    target, *_ = re.split(r"[({#]", study.baseline)  # of a label, which goes on with its file, setting and number
    is_there = {*targets_of(study)} & {*parse_targets(target, describe, study.pythons)}
    return study if is_there else study.model_copy(update={"baseline": None})


def read_place(name: str, other: Any) -> Any:
    """Read a word in a model's place as `--model` reads it.

    Args:
        other: what `--model` itself gives, if anything.

    Raises:
        UsageError: that gives another.
    """
    if other:
        models_given = ",".join(map(str, as_axis(other)))
        raise UsageError(f"two models are given, {name!r} and --model {models_given}: pass only one of them")
    return read_models("--model", name)


def is_meant(name: str) -> bool:
    """Return whether this is meant as a study or a model; a user's own need not exist."""
    return studies.is_named(name) or name.endswith(studies.SUFFIX) or _is_model(name)


def _is_model(name: str) -> bool:
    """Return whether a study's place holds a model; a study of the same name comes first."""
    parts = name.split(",")
    if studies.is_named(name) or name.endswith(studies.SUFFIX):
        return False
    return all((source := find_claim(part)) and not source.is_hidden for part in parts)


def _load_study(name: str) -> Study:
    if studies.is_named(name) or name.endswith(studies.SUFFIX):
        return studies.load(name)
    if name.endswith(WEIGHTS):
        raise UsageError(
            f"{name!r} holds weights and no model: export the model to ONNX (torch.onnx.export), or give code that "
            "makes it, as in net.py:make"
        )
    if Path(name).expanduser().is_dir():
        raise UsageError(tell_folder(name))
    if set(name) & set("./\\*?["):
        raise UsageError(f"{name!r} is neither a study nor a model: {_FORMS}")
    raise UsageError(f"{unknown('study or model', name, {*studies.shipped(), *models.names()})}; {_FORMS}")


def _refuse_without_effect(study: Study, options: Mapping[str, Any]) -> None:
    """Refuse what the user asks for in so many words, and would change nothing; a study's own keys don't count.

    Raises:
        UsageError: it does.
    """
    asked = {keyword for keyword, value in options.items() if value is not None and value is not False}
    targets, more = targets_of(study), options.get("precision", ())
    if asked & {"energy", "gpu"} and not any(target.device.is_gpu for target in targets):
        flag = "--energy" if "energy" in asked else "--gpu"
        raise UsageError(f"{flag} is for a GPU, and no target is on one: add one such as onnxruntime:cuda")
    if "energy" in asked and not any(target.device is Device.CUDA for target in targets):
        raise UsageError("--energy is counted by NVIDIA's driver, and no target is on cuda: add one, or leave it out")
    if "energy" in asked and not any(find_scenario(str(name)).is_by_call for name in study.all_scenarios):
        raise UsageError("--energy is of one call after another: add --scenario latency, or leave it out")
    offered = {precision for target in targets for _, precision in describe(target.backend)[0].targets}
    if none := [word for word in more if word in {*Precision} - offered]:
        raise UsageError(f"--precision {none[0]}: no target can run it; they can run {', '.join(sorted(offered))}")
    if "calibration" in asked and not {*(target.precision for target in targets), *more} & {*SCALED}:
        raise UsageError("--calibration is for quantized rows, and none is asked for: onnxruntime:cpu:int8 is one")


def take_rows(model: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a study that take the place of readers' options; none if there are no such options.

    Args:
        model: see `Reader.read`.
        given: the keywords of `run` that were given.

    Raises:
        UsageError: as `Reader.read`, or two options give rows, or one means nothing here.
    """
    given = {name: value for name, value in given.items() if value is not None}
    named = [option for option in OPTIONS if option in given]
    both = [*named, *(["inputs"] if "inputs" in given else [])]
    if named and len(both) > 1:
        raise UsageError(f"--{both[0]} and --{both[1]} both give the model's inputs: pass only one of them")
    found = _find_reader(named[0], str(given[named[0]])) if named else None
    if "target" in given and (not found or "target" not in found.also):
        raise UsageError("--target names a column of a table: give the table too, with --data table.parquet")
    if found:
        return found.read(model, given)
    return {"labels": as_file(labels)} if names_column(labels := str(given.get("labels", ""))) else {}


def _find_reader(option: str, given: str) -> Reader:
    readers = [one for one in plugins.usable(READERS, Reader).values() if one.option == option]
    if found := next((one for one in readers if one.claims(given)), None):
        return found
    known = " or ".join(sorted(one.takes for one in readers))
    raise UsageError(f"--{option} {given!r}: expected {known}; arrays are given by --inputs")
