"""What to measure, as data: a named study, a TOML file, or a study with the command line's changes on top."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from shootout.constants import MAX_GENERATIONS
from shootout.contract import Scenario, Value
from shootout.errors import UsageError, unknown

MAX_BATCH = 2**20


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


class Study(BaseModel):
    """One study. Every axis is a tuple; the cells are their product.

    Attributes:
        name: of the study, also of its folder under `results/`.
        model: models' names, or paths of ONNX files; each races by itself.
        parameters: model parameters (for an ONNX file: sizes of its symbolic axes) by name; of several models, each
            takes those that it has.
        scenario: what is measured of each model; each is a race by itself.
        targets: as `shootout.target` reads them; given twice, a target races itself (A/A).
        baseline: the arm that ratios refer to; None: torch-eager on the CPU, else the first arm that can run.
        options: a backend's own knobs, by backend, backend+mode or whole target.
        inputs: an .npz file with the user's own inputs for an ONNX file.
        calibration: an .npz file with the user's own calibration sets.
        against_own_fp32: also compare each arm with the plain FP32 arm of its own backend.
        seed: of the shuffles and of the environment padding.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    name: str = Field(pattern=r"^[^/\\]*[^/\\.][^/\\]*$")
    description: str = ""
    model: Annotated[tuple[str, ...], BeforeValidator(_several), Field(min_length=1)]
    parameters: dict[str, Annotated[tuple[Value, ...], Field(min_length=1)]] = Field(default_factory=dict)
    scenario: Annotated[tuple[Scenario, ...], BeforeValidator(_several), Field(min_length=1)] = (Scenario.LATENCY,)
    targets: tuple[str, ...] = Field(min_length=1)
    baseline: str | None = None
    batch: tuple[int, ...] = Field(default=(1,), min_length=1)
    threads: int | Literal["all"] | None = None
    options: dict[str, dict[str, str]] = Field(default_factory=dict)
    inputs: str | None = None
    calibration: str | None = None
    against_own_fp32: bool = False
    max_generations: int = Field(default=MAX_GENERATIONS, ge=1, le=1_000)
    seed: int = 0

    def changed(
        self, parameters: dict[str, tuple[Value, ...]], options: dict[str, dict[str, str]], **changes: Any
    ) -> Study:
        """This study with changes on top, everything checked again.

        Args:
            parameters: added to the study's, or instead of them where `model` is another one.
            options: added to the study's, knob by knob.
            changes: fields to replace; None changes nothing.

        Raises:
            UsageError: a value that the study can't take.
        """
        given = {key: value for key, value in changes.items() if value is not None}
        kept = self.parameters if _several(given.get("model", self.model)) == self.model else {}
        knobs = {name: {**self.options.get(name, {}), **options.get(name, {})} for name in {*self.options, *options}}
        fields = {**self.model_dump(), **given, "parameters": {**kept, **parameters}, "options": knobs}
        return checked(fields, "the request")


def checked(fields: dict[str, Any], source: str) -> Study:
    """A study from plain values.

    Raises:
        UsageError: an unknown key (with the nearest one) or a bad value; names the source.
    """
    for key in fields:
        if key not in Study.model_fields:
            raise UsageError(f"{source}: {unknown('key', key, Study.model_fields)}")
    try:
        study = Study.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{source}: {where} is {first['input']!r}: {first['msg']}") from None
    for batch in study.batch:
        if not 1 <= batch <= MAX_BATCH:
            raise UsageError(f"{source}: batch must be from 1 to {MAX_BATCH}, got {batch}")
    return study


def names() -> dict[str, str]:
    """The studies that ship: name → description."""
    folder = files("shootout") / "studies"
    found = sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return {name: load(name).description for name in found}


def load(name: str) -> Study:
    """A named study, or one from a TOML file.

    Raises:
        UsageError: no such study (with the nearest name), or a file that isn't valid TOML (with the line).
    """
    if name.endswith(".toml"):
        return _from_text(_read(Path(name)), Path(name).stem, name)
    resource = files("shootout") / "studies" / f"{name}.toml"
    if not name.replace("-", "").replace("_", "").isalnum() or not resource.is_file():
        raise unknown("study", name, names())
    return _from_text(resource.read_text(), name, name)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"can't read the study file {str(path)!r}: {error}") from None


def _from_text(text: str, name: str, source: str) -> Study:
    try:
        fields = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source} is not valid TOML: {error}") from None
    return checked({"name": name, **fields}, source)


def parse_value(text: str) -> Value:
    """A parameter value as written on the command line: whole number, number, true/false, else text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def parse_sets(texts: list[str]) -> dict[str, tuple[Value, ...]]:
    """`key=v1,v2` texts → axes.

    Raises:
        UsageError: a text without `=`, or an empty value.
    """
    axes = {}
    for text in texts:
        key, equals, values = text.partition("=")
        parts = [part.strip() for part in values.split(",")]
        if not equals or not key.strip() or not all(parts):
            raise UsageError(f"--set {text!r} is not of the form key=value or key=v1,v2")
        axes[key.strip()] = tuple(parse_value(part) for part in parts)
    return axes


def parse_options(texts: list[str]) -> dict[str, dict[str, str]]:
    """`backend.KEY=value` texts → options by backend.

    Raises:
        UsageError: a text of another form.
    """
    options: dict[str, dict[str, str]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        backend, dot, key = name.partition(".")
        if not (equals and dot and backend and key):
            raise UsageError(f"--option {text!r} is not of the form backend.KEY=value")
        options.setdefault(backend, {})[key] = value
    return options
