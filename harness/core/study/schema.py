"""Hold what to measure, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import cache
from importlib import import_module
from os import PathLike, fspath
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    model_validator,
)

from shootout.core import plugins
from shootout.core.constants import BATCH, MAX_CALL_S, MAX_RESTARTS, MAX_RESTARTS_IN_TIME, USUAL_SCENARIO
from shootout.core.contract import Device, Precision, Value
from shootout.core.errors import UsageError, unknown
from shootout.core.host.store import without_home
from shootout.core.scenario import Scenario, StudyOption, find_scenario, scenario_names
from shootout.core.stats.goals import read_goal
from shootout.core.study.target import canonical

AXES = (BATCH, "threads", "scenario", "backend", "device", "precision")
"""The axes beside a model's parameters."""
MAX_BATCH = 2**20
GIVEN = (
    *("inputs", "read", "labels", "truth", "rows_by", "calibration", "weights"),
    *("metric", "scores", "max_drop", "min_agreement", "pythons", "energy", "max_error"),
    *("state", "stream"),
)
"""The fields that a run's journal keeps beside its arms, in the order of the words of a command; see `told_keys`."""
SCORING = {"truth", "rows_by", "scores", "read", "max_drop", "min_agreement"}
"""The fields that say how rows are scored, which the scorer checks."""
_CHOICES: dict[str, type[StrEnum]] = {"device": Device, "precision": Precision}


def as_axis(given: Any) -> Any:
    """Make one word an axis of one value; return anything else as it is."""
    return (given,) if isinstance(given, str) else given


def _refusing(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a reader that refuses as pydantic wants it, by a ValueError, to which it adds the place."""

    def read_or_refuse(given: Any) -> Any:
        try:
            return read(given)
        except UsageError as error:
            raise ValueError(str(error)) from None

    return read_or_refuse


_Words = BeforeValidator(as_axis)
_Axis = BeforeValidator(lambda given: given if isinstance(given, list | tuple) else (given,))
_Some = Field(min_length=1)
_Size = Annotated[int, Field(ge=0, le=MAX_BATCH)]
_Path = Annotated[str, BeforeValidator(lambda given: fspath(given) if isinstance(given, PathLike) else given)]


def _read_scenario(name: str) -> str:
    """Read the name of a scenario.

    Raises:
        UsageError: there is none, or another has an option of that name.
    """
    found, every = find_scenario(name), study_options()
    if taken := [option for option, own in found.options.items() if every.get(option) is not own]:
        raise UsageError(f"scenario {name!r} has an option {taken[0]!r}, which is taken: it needs another name")
    return found.name


_Scenario = Annotated[str, AfterValidator(_refusing(_read_scenario))]


class Study(BaseModel):
    """One study. Every axis is a tuple; the cells are their product. docs/studies.md says how people write them.

    Beside its fields it holds its values for options of scenarios, each under the option's name; `value_of` tells them.

    Attributes:
        name: of the study, also of its folder under `results/`.
        model: models' names, or paths of ONNX files; each model races by itself, several files each other.
        parameters: model parameters (for an ONNX file: sizes of its symbolic axes) by name; of several models, each
            takes those that it has.
        shapes: whole shapes of an ONNX file's inputs, by input ("" for the only one), for its free axes.
        scenario: what is measured of each model; each is a race by itself.
        targets: as `study.target` reads them; given twice, a target races itself (A/A). Empty where `backend` is
            given.
        backend: backends with or without a mode: with `device` and `precision`, a product in place of `targets`.
        device: instead of each target's own.
        precision: instead of each target's own.
        baseline: the arm that ratios refer to; None: onnxruntime for an ONNX file or the goal `best`, torch-eager
            otherwise; else the first arm that can run.
        threads: compute threads per arm, "all" for every CPU, "default" for each library's own number, None for the
            usual one; each is a race by itself.
        points: combinations that are no product, such as a width and a depth that go together. Each takes the place of
            the axes that it names: parameters, model, batch, scenario, threads. All other axes stay.
        options: a backend's own knobs, by backend, backend+mode or whole target.
        pythons: other interpreters to race ours, by the name that targets give them: paths.
        inputs: the user's own data (`models.data.data_files`) for a model of their own, or the files that `read` reads.
        read: the function of the user's that reads these, `file.py:load` (`models.data.reading`).
        labels: the right class of each row of these inputs, for accuracy, where it doesn't lie among them.
        truth: what is right for each row of these inputs, of any type and shape, for `metric`
            (`models.data.truth_files`).
        metric: what scores each row: a name (`models.metrics`) or `file.py:score`.
        scores: the output that labels and named metrics go by; None: the first that fits.
        rows_by: what each row of these inputs belongs to (`models.data.truth_files`): rows of one count as one.
        max_drop: what the mean score of a target may lose against plain FP32's, in its unit, or `1%` of FP32's.
        min_agreement: of a metric without truth, the least mean agreement with the model's own FP32 outputs.
        state: by input of a user's model, the output that is its value in the next call; None: there is none.
        stream: calls of a clip, with each of which the state begins anew; None: 100 if there is a state.
        calibration: the user's own calibration data.
        weights: of a transformers config: a file of them, or the folder.
        goal: what must be known before a race ends: `baseline`, `best`, `resolve 3%` or `limit 5%`. None: `best`.
        least_restarts: that each arm plays, whatever is known before; 0: as few as tell.
        max_restarts: where nothing can be told; 60 for `best` and `resolve` unless it is given. Under sustained load
            each arm plays as many, a turn in each; 3 unless it is given.
        against_own_fp32: also compare each arm with the plain FP32 arm of its own backend.
        ceilings: measure this machine's ceilings first, where they aren't remembered.
        energy: also measure a call's energy on a GPU, over two seconds of calls of each arm there.
        unsynchronized: also show what a timer reads on a GPU that doesn't wait for it; it enters no verdict.
        max_error: an arm whose relative L2 error is more than its precision explains, but no more than this, is
            measured and says so; 0: it fails.
        max_call_s: an arm whose call takes longer is skipped; 0: none is.
        seed: of the shuffles and of the environment padding.
    """

    model_config = ConfigDict(frozen=True, extra="allow", strict=False)

    name: str = Field(pattern=r"^[^/\\]*[^/\\.][^/\\]*$")
    description: str = ""
    model: Annotated[tuple[str, ...], _Words, _Some]
    parameters: dict[str, Annotated[tuple[Value, ...], _Axis, _Some]] = Field(default_factory=dict)
    shapes: dict[str, Annotated[tuple[_Size, ...], _Some]] = Field(default_factory=dict)
    scenario: Annotated[tuple[_Scenario, ...], _Words, _Some] = (USUAL_SCENARIO,)
    targets: Annotated[tuple[str, ...], _Some] = ()
    backend: Annotated[tuple[str, ...], _Words, _Some] = ()
    device: Annotated[tuple[Device, ...], _Words, _Some] = ()
    precision: Annotated[tuple[Precision, ...], _Words, _Some] = ()
    baseline: str | None = None
    batch: Annotated[tuple[int, ...], _Axis, _Some] = (1,)
    threads: Annotated[tuple[int | Literal["all", "default"] | None, ...], _Axis, _Some] = (None,)
    points: tuple[dict[str, Value], ...] = ()
    options: dict[Annotated[str, AfterValidator(canonical)], dict[str, str]] = Field(default_factory=dict)
    pythons: dict[str, _Path] = Field(default_factory=dict)
    inputs: _Path | None = None
    read: str | None = None
    labels: _Path | None = None
    truth: _Path | None = None
    metric: str | None = None
    scores: str | None = None
    rows_by: _Path | None = None
    max_drop: str | None = None
    min_agreement: str | None = None
    state: dict[str, str] | None = None
    stream: int | None = Field(default=None, ge=1)
    calibration: _Path | None = None
    weights: _Path | None = None
    goal: Annotated[str, AfterValidator(_refusing(lambda text: str(read_goal(text))))] | None = None
    against_own_fp32: bool = False
    ceilings: bool = False
    energy: bool = False
    unsynchronized: bool = False
    least_restarts: int = Field(default=0, ge=0, le=1_000)
    max_restarts: int = Field(default=MAX_RESTARTS, ge=1, le=1_000)
    max_error: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    max_call_s: float = Field(default=MAX_CALL_S, ge=0.0, allow_inf_nan=False)
    seed: int = 0

    @model_validator(mode="before")
    @classmethod
    def _read_options(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Read what is no field as options of scenarios, of which it keeps those that aren't as by default."""
        own = {name: value for name, value in fields.items() if name not in cls.model_fields}
        read = options_model().model_validate(own)
        kept = {name: getattr(read, name) for name in own if getattr(read, name) != study_options()[name].default}
        return {**{name: value for name, value in fields.items() if name not in own}, **kept}

    @property
    def given(self) -> dict[str, Any]:
        """Return as JSON values what was set of what no arm tells: the user's files, what scores their rows, and so on.

        Homes of interpreters are written as `~`, since a run's journal keeps this.
        """
        told = self.model_dump(mode="json", include={*told_keys()}, exclude_defaults=True)
        found = {name: value for name, value in told.items() if value != ""}
        if self.pythons:
            found["pythons"] = {name: without_home(path) for name, path in self.pythons.items()}
        return found

    @property
    def aims_at(self) -> str:
        """Return the goal of its races, given or not."""
        return self.goal or "best"

    @property
    def all_scenarios(self) -> set[Value]:
        """Return the scenarios of the study and of its points."""
        return {*self.scenario, *(point["scenario"] for point in self.points if "scenario" in point)}

    @property
    def scenarios(self) -> list[Scenario]:
        """Return what its models are measured in."""
        return [find_scenario(name) for name in scenario_names() if name in self.all_scenarios]

    @property
    def own_options(self) -> dict[str, Any]:
        """Return the values that it gives to options of scenarios, but for those that are as by default."""
        return self.model_extra or {}

    def value_of(self, option: str) -> Any:
        """Return the study's value for an option of a scenario, its default where none is given."""
        return self.own_options.get(option, study_options()[option].default)

    def options_of(self, scenario: Scenario) -> dict[str, Any]:
        """Return the study's values for a scenario's options."""
        return {name: self.value_of(name) for name in scenario.options}

    @property
    def turns(self) -> int:
        """Return how many restarts each arm plays, where a scenario fixes that; 0: until its verdicts are in."""
        fixed = max((one.restarts for one in self.scenarios), default=0)
        return self.max_restarts if fixed and "max_restarts" in self.model_fields_set else fixed

    @property
    def dealt_s(self) -> float:
        """Return the seconds that all restarts share, where a scenario fixes that; else 0."""
        return max((one.whole_s(self.options_of(one)) for one in self.scenarios), default=0.0)

    @property
    def most_restarts(self) -> int:
        """Return the most restarts of a race: the study's own number, else more for races that something else ends."""
        if self.turns:
            return self.turns
        own = "max_restarts" in self.model_fields_set or any(find_scenario(one).selects for one in self.scenario)
        return self.max_restarts if own or self.aims_at == "baseline" else MAX_RESTARTS_IN_TIME


@cache
def study_options() -> dict[str, StudyOption]:
    """Return the options of all scenarios by name; one that a field of a study or an earlier one has isn't taken."""
    found = dict[str, StudyOption]()
    for scenario in map(find_scenario, scenario_names()):
        found |= {name: one for name, one in scenario.options.items() if name not in {*Study.model_fields, *found}}
    return found


def told_keys() -> tuple[str, ...]:
    """Return the keys of studies that a run's journal keeps, in the order of the words of a command."""
    return (*GIVEN, *(name for name, option in study_options().items() if option.is_told))


@cache
def options_model() -> type[BaseModel]:
    """Return what reads and checks the values of all options of scenarios."""
    fields: dict[str, Any] = {
        name: (_type_of(option), Field(default=option.default, description=option.help))
        for name, option in study_options().items()
    }
    return create_model("Options", __config__=ConfigDict(extra="forbid"), **fields)


def _type_of(option: StudyOption) -> Any:
    """Return the type of an option's value in pydantic's terms."""
    if (read := option.read) is not None:
        return Annotated[Any, BeforeValidator(_refusing(read))] | None
    kind: Any = option.kind
    one: Any = Annotated[kind, Field(gt=option.above, ge=option.least, le=option.most)]
    if isinstance(option.default, tuple):
        return Annotated[tuple[one, ...], _Axis]
    return one | None if option.default is None else one


def checked(fields: dict[str, Any], source: str = "") -> Study:
    """Make a study from plain values.

    Args:
        source: the file or study that they come from, for messages; "" if they are the command's own.

    Raises:
        UsageError: an unknown key (with the nearest one) or a bad value; names the source and the key.
    """
    place = f"{source}: " if source else ""
    keys = {*Study.model_fields, *study_options()}
    if strange := next((key for key in fields if key not in keys), None):
        raise UsageError(f"{place}{unknown('key', strange, keys)}")
    for scenario in map(find_scenario, scenario_names()):
        if any(option.implies and fields.get(name) for name, option in scenario.options.items()):
            fields = {"scenario": (scenario.name,), **fields}
    try:
        study = Study.model_validate(fields)
    except ValidationError as invalid:
        raise UsageError(f"{place}{_explain_error(invalid.errors()[0])}") from None
    for fault in _find_faults(study):
        raise UsageError(f"{place}{fault}")
    every = study_options().items()
    sizes = {axis: some for name, option in every for axis, some in option.sizes_of(study.value_of(name)).items()}
    own: dict[str, Any] = {"batch": sizes.pop("batch")} if "batch" in sizes else {}  # of a mix, say
    own |= {"parameters": {**study.parameters, **sizes}} if sizes else {}
    return study.model_copy(update=own) if own else study


def _explain_error(error: Any) -> str:
    """Say what pydantic found, with the nearest name if it must be one of a few."""
    where, received = error["loc"], error["input"]
    if error["type"] == "enum" and where[0] in _CHOICES:
        return str(unknown(str(where[0]), str(received), map(str, _CHOICES[str(where[0])])))
    if error["type"] == "literal_error" and len(where) == 1:
        return str(unknown(str(where[0]), str(received), get_args(Study.model_fields[where[0]].annotation)))
    why = error["msg"].removeprefix("Value error, ")
    return why if where[:1] in (("goal",), ("scenario",)) else f"{'.'.join(map(str, where))} is {received!r}: {why}"


def _find_faults(study: Study) -> Iterator[str]:
    """Yield what makes no sense in a study whose every field is well formed."""
    if bool(study.targets) is bool(study.backend):
        which = "both are given" if study.backend else "neither is given"
        yield f"name what to race, by targets (such as targets = ['numpy']) or by backend: {which}"
    for batch in study.batch:
        if not 1 <= batch <= MAX_BATCH:
            yield f"batch must be from 1 to {MAX_BATCH}, got {batch}"
    for scenario in map(find_scenario, scenario_names()):
        if scenario.name in study.all_scenarios or {*scenario.options} & {*study.own_options}:
            yield from scenario.find_faults(study)
    at_once = [name for name in study.scenario if find_scenario(name).divides_threads]
    if "default" in study.threads and at_once:
        why = f"scenario {at_once[0]} divides a number"
        yield f"threads 'default' leaves the number to each library, and {why}: leave one of the two out"
    for name, option in study_options().items():  # in any other scenario it would be a limit without effect
        takers = [one for one in scenario_names() if name in find_scenario(one).options]
        if option.use and name in study.own_options and not study.all_scenarios & {*takers}:
            flag = f" ({option.flag})" if option.flag else ""
            how = f"add scenario {' or '.join(takers)} (--scenario {takers[0]})"
            them = "them" if option.use.startswith("are ") else "it"
            yield f"{name}{flag} {option.use}: {how}, or leave {them} out"
    if study.model_fields_set & SCORING:
        yield from import_module(plugins.SCORER).find_faults(study)
    axes_given = [(name, getattr(study, name)) for name in ("model", *AXES)]
    for name, values in [*axes_given, *study.parameters.items()]:
        for again in [value for at, value in enumerate(values) if value in values[:at]][:1]:
            yield f"{name} {again} is asked for 2 times: name each value once"
