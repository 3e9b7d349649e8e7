"""Tell why an arm can't be asked here: its backend is missing, it doesn't take this model, or memory won't hold it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from shootout.core import backends, schemes
from shootout.core.contract import (
    Arm,
    Artifact,
    Availability,
    Capabilities,
    Device,
    NotRun,
    NotRunKind,
    Precision,
    Target,
    Value,
)
from shootout.core.exported.calls import buffer_count, set_bytes
from shootout.core.exported.client import BYTES_PER_PARAMETER
from shootout.core.exported.model import ALONE, ExportedModel
from shootout.core.exported.request import Content, find_model, is_file, is_own, name_model
from shootout.core.host.placement import Threads
from shootout.core.scenario import scenario_of
from shootout.core.study.group import exact_of
from shootout.core.study.points import describe
from shootout.core.study.target import Describe, provider, scheme_of
from shootout.core.units import counted, size

BYTES_PER_WEIGHT, BYTES_PER_WEIGHT_ARM = 4, 8
"""The bytes of a weight in float32; and of one in an arm, with a runtime's own packed copy."""
FROM_FILE = (Artifact.ONNX, Artifact.MODULE)
"""The forms that a user's file may come to: whether it can be made a torch module, only its export tells."""
BRING_MODULE = "bring the torch module, as in `shootout run net.py:make`"
CHANGE_MODULE = "change the module so that torch can export it"
COPIES_OF_INPUTS = 4
"""Each arm holds its input buffers, their staged copies and, while it is verified, outputs and the reference's."""
CONTEXT_BYTES = 800_000_000
"""A CUDA context and a library's own kernels: 549 MB and up to 210 MB on an H200 (results/reference/h200-batch)."""
_TAKE_LESS = "choose a smaller model or batch, or fewer backends at once"
_MAKE_ROOM = "make room on the disk of the cache, such as by `shootout cache --clear`, or set SHOOTOUT_CACHE"

Available = Mapping[tuple[str, Device], Availability]


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """Hold what this machine offers a study.

    Attributes:
        available: what `worker.availability` found for every (backend, device) the study names.
        threads: compute threads per arm where a study says nothing.
        cpus: CPUs that this process may use.
        memory_bytes: what the machine can give.
        disk_bytes: what is free where exports and builds are kept; None: it isn't known.
        facts: what is known of each model that is a file; see `facts_of`.
        refused: why a file can't race the first one, by model.
    """

    available: Available
    threads: int
    cpus: int
    memory_bytes: int
    disk_bytes: int | None = None
    facts: Mapping[str, Content] = field(default_factory=dict)
    refused: Mapping[str, NotRun] = field(default_factory=dict)

    def facts_of(self, model: str) -> Content:
        """Return what planning goes by of a model that is a file; of another one nothing is known."""
        return self.facts.get(model, Content())

    def first(self, model: str) -> Describe:
        """Return what a backend's bare name means for this model."""
        return partial(describe, native=bool(self.facts_of(model).holds))

    def count(self, asked: Threads) -> int:
        """Return threads as a number, even if there are fewer CPUs; 0 for each library's own."""
        numbers = {None: self.threads, "all": self.cpus, "default": 0}
        return asked if isinstance(asked, int) else numbers[asked]


def find_obstacles(arms: Sequence[Arm], here: Here) -> dict[str, NotRun]:
    """Explain why arms can't run here, by label; those that can are not in it."""
    skips = {arm.label: why for arm in arms if (why := _check_threads(arm, here) or _check_arm(arm, here))}
    made_here = [arm for arm in arms if arm.label not in skips or skips[arm.label].builds]
    return skips | _find_crowded_out(made_here, here)


def _find_crowded_out(arms: Sequence[Arm], here: Here) -> dict[str, NotRun]:
    """Explain by label why arms don't fit in memory or on the disk beside the others; all of them if none fits alone.

    Those in full precision that read the model as it is stay longest.
    """
    exact = exact_of(arms)
    order = sorted(arms, key=lambda arm: (arm.label not in exact, Artifact.ONNX not in _consumes(arm)))
    fitting = len(order)
    while fitting and (_lack_memory(order[:fitting], here) or _lack_disk(order[:fitting], here)):
        fitting -= 1
    if fitting == len(order):
        return {}
    beside = order[: fitting + 1 if fitting else len(order)]
    memory = _lack_memory(beside, here)
    lack = memory or _lack_disk(beside, here)
    if not fitting:
        return {arm.label: NotRun(NotRunKind.TOO_BIG, lack, _TAKE_LESS if memory else _MAKE_ROOM) for arm in order}
    reason, fix = (
        f"beside {counted(fitting, 'other target')} it {lack}",
        "race it with fewer others: name them in --backends",
    )
    return {arm.label: NotRun(NotRunKind.TOO_BIG, reason, fix) for arm in order[fitting:]}


def _consumes(arm: Arm) -> tuple[Artifact, ...]:
    return backends.capabilities(arm.target.backend).consumes


def _lack_memory(arms: Sequence[Arm], here: Here) -> str:
    """Return how arms of one group don't fit in memory, "" if they do."""
    return _tell_lack("memory", needed_bytes(arms, here), here.memory_bytes)


def _lack_disk(arms: Sequence[Arm], here: Here) -> str:
    return "" if here.disk_bytes is None else _tell_lack("disk", needed_disk_bytes(arms, here), here.disk_bytes)


def _tell_lack(of: str, needs: int, has: int) -> str:
    digits = next((count for count in range(3, 12) if size(needs, count) != size(has, count)), 3)
    return f"needs {size(needs, digits)} of {of}, has {size(has, digits)}" if needs > has else ""


def _check_threads(arm: Arm, here: Here) -> NotRun | None:
    if arm.cpus <= here.cpus:
        return None
    reason = f"needs {arm.cpus} CPUs, one for each thread; this process may use {here.cpus}"
    fewer = "leave this thread count out" if arm.instances == 1 else "fewer --threads or --instances"
    return NotRun(NotRunKind.TOO_BIG, reason, f"{fewer}, or run it on a larger machine")


def _check_arm(arm: Arm, here: Here) -> NotRun | None:
    """Explain why this arm can't run here, None if it can."""
    availability = here.available[provider(arm.target)]
    if availability.why and not availability.why.builds:
        return availability.why
    if arm.model in here.refused:
        return here.refused[arm.model]
    capabilities = backends.capabilities(arm.target.backend)
    consumes = capabilities.consumes
    if Artifact.NONE not in consumes and (why := _check_label(arm, here, capabilities)):
        # in a precision that fits the file it couldn't run either
        return replace(availability.why, kind=NotRunKind.UNAVAILABLE) if availability.why else why
    if why := _check_target(arm.target, capabilities) or _check_shipped(arm) or _check_one_size(arm):
        return why
    if why := scenario_of(arm).find_obstacle(arm, capabilities, partial(_count_weights, arm.model, arm.parameters)):
        return why
    if why := _check_classical(capabilities, here.facts_of(arm.model).classical):
        return why
    scheme = scheme_of(arm.target)
    if scheme.variant and arm.file:
        reason = f"{scheme.variant} is made of the first file alone"
        return NotRun(NotRunKind.UNFIT, reason, "race the other file by itself for that")
    if why := _check_floats(arm, scheme, here.facts_of(arm.model).layers):
        return why
    own = {*find_model(arm.model).artifacts, here.facts_of(arm.model).native}
    if {*consumes} & {Artifact.NONE, *([Artifact.ONNX] if scheme.is_quantized else own)}:
        return availability.why
    takes = " or ".join(_ARTIFACT_NAMES[artifact] for artifact in consumes)
    return NotRun(
        NotRunKind.UNFIT,
        f"{arm.target.backend} takes {takes}, which {name_model(arm.model)} isn't",
        f"give it {takes}" if is_file(arm.model) else "choose a model that has it",
    )


def _check_one_size(arm: Arm) -> NotRun | None:
    """Explain why a target can't take any size or pad its inputs here: all have one size; None if it isn't asked to."""
    shapes = scheme_of(arm.target).shapes
    if not shapes or scenario_of(arm).varies:
        return None
    reason = f"{shapes} is for inputs of several sizes, and this race has one"
    return NotRun(NotRunKind.UNFIT, reason, "add a mix, such as --mix sequence=16:50,64:30")


def _count_weights(model: str, parameters: Mapping[str, Value]) -> int | None:
    """Count a model's weights; None of a model of the user's own."""
    return None if is_file(model) or is_own(model) else find_model(model).count_weights(parameters)


def _check_floats(arm: Arm, scheme: schemes.Scheme, count: int) -> NotRun | None:
    """Explain why a scheme can't leave these layers in float: there are fewer, or none would be left to quantize."""
    if not scheme.floats or not count:
        return None
    fix = f"`shootout sensitivity {shlex.quote(arm.model)}` lists the layers with their numbers"
    has = f"{name_model(arm.model)} has {counted(count, 'layer')}, numbered from 0 to {count - 1}"
    if scheme.floats[-1] >= count:
        return NotRun(NotRunKind.UNFIT, f"there is no layer {scheme.floats[-1]}: {has}", fix)
    if len(scheme.floats) == count:
        word = schemes.write_floats(scheme.floats)
        return NotRun(NotRunKind.UNFIT, f"{word} leaves no layer to quantize: {has}", fix)
    return None


def _check_label(arm: Arm, here: Here, can: Capabilities) -> NotRun | None:
    """Explain why no row of a file with precisions of its own can promise this label, or `native` needs a file."""
    target, holds = arm.target, here.facts_of(arm.model).holds
    if target.precision is Precision.NATIVE and not is_file(arm.model):
        why = f"{Precision.NATIVE} runs an ONNX file in its own precisions, and {arm.model} is not a file"
        return NotRun(NotRunKind.UNFIT, why, f"use {replace(target, precision=Precision.FP32)}")
    if not holds or (target.precision is Precision.NATIVE and target.device in can.native):
        return None
    kinds = " and ".join(precision.upper() for precision in holds)
    why = f"the file holds {kinds} itself, so a row of it can promise no other precision"
    able = next(name for name in backends.baselines(loads_quickly=True) if backends.capabilities(name).native)
    fix = f"give the FP32 file; this one runs as `{Precision.NATIVE}`, such as {able}:cpu:{Precision.NATIVE}"
    if target.precision is Precision.NATIVE:
        why, fix = f"{target.backend} takes no file that holds {kinds} itself", "give the FP32 file"
    is_given = not all(one.holds for one in here.facts.values())  # the FP32 file is among those that race
    return NotRun(NotRunKind.UNFIT, why, "" if is_given else fix)  # the same of each target and file: one line


def _check_classical(can: Capabilities, what: str) -> NotRun | None:
    """Explain why a backend can't read a file of a classical model, in the same words for each."""
    if not what or can.classical or not set(can.consumes) & {*FROM_FILE}:
        return None
    able = [name for name in backends.names() if backends.capabilities(name).classical]
    needs, fix = f"{what} need {' or '.join(able)}", f"race it with --backends {','.join(able)}"
    return NotRun(NotRunKind.UNFIT, needs, fix)


def _check_shipped(arm: Arm) -> NotRun | None:
    """Explain why a shipped folder can't run this; None for other targets."""
    if not arm.target.folder:
        return None
    if scenario_of(arm).trains:
        return NotRun(NotRunKind.UNSUPPORTED, f"{arm.target} has no {arm.scenario}", "it was shipped for inference")
    return backends.open_shipped(arm.target.folder).find_obstacle(arm)


def check_export(arm: Arm, exported: ExportedModel) -> NotRun | None:
    """Explain why the arm can't run what came of the export: a module that has no export, or rows of unknown number."""
    if uncounted := _check_item_count(arm, exported):
        return uncounted
    if arm.target.folder:
        return backends.open_shipped(arm.target.folder).find_other_shapes(arm, exported)
    consumes = backends.capabilities(arm.target.backend).consumes
    if exported.varying and scheme_of(arm.target).is_dynamic and Artifact.ONNX in consumes:
        consumes = (Artifact.OPEN,)
    if Artifact.NONE in consumes or set(consumes) & set(exported.artifacts):
        return None
    if exported.unmade:
        own = {*exported.artifacts} - {*FROM_FILE}  # of a library whose file can't be converted
        fix = exported.unmade_fix or ("" if own else BRING_MODULE)  # in the same words for each backend: one line
        return NotRun(NotRunKind.UNFIT, exported.unmade, fix if exported.is_file else CHANGE_MODULE)
    takes = " or ".join(_ARTIFACT_NAMES[artifact] for artifact in consumes)
    alone = next((f"; it was {note}" for note in exported.notes if note.startswith(ALONE)), "")
    why = alone if exported.varying else ""
    fix = f"give it {takes}" if exported.is_file else CHANGE_MODULE
    return NotRun(NotRunKind.UNFIT, f"{arm.target.backend} takes {takes}{why}", fix)


def _check_item_count(arm: Arm, exported: ExportedModel) -> NotRun | None:
    """Explain why items a second would be wrong: a factory that doesn't take the batch makes any number of rows."""
    if not scenario_of(arm).items(arm) or not is_own(arm.model):
        return None
    firsts = {spec.shape[0] if spec.shape else None for spec in exported.inputs}
    rows = firsts.pop() if len(firsts) == 1 else None
    if find_model(arm.model).takes_batch or rows in (None, arm.batch):
        return None
    return NotRun(
        NotRunKind.UNFIT,
        f"its example inputs have {rows} rows, so items a second can't be counted with batch {arm.batch}",
        f"--batch {rows}, or give the factory a parameter `batch`",
    )


def _check_target(target: Target, can: Capabilities) -> NotRun | None:
    """Explain why the backend has no such mode or precision on this device, or no such scheme for it."""
    if target.mode in can.cuda_modes and target.device is not Device.CUDA:
        moded = f"{target.backend}+{target.mode}"
        return NotRun(
            NotRunKind.UNSUPPORTED,
            f"{moded} is for {Device.CUDA}, not for {target.device}",
            f"use {moded}:{Device.CUDA}:{target.precision}, or leave +{target.mode} out",
        )
    native = target.precision is Precision.NATIVE
    if (target.device not in can.native) if native else (target.device, target.precision) not in can.targets:
        offered = ", ".join(sorted(precision for device, precision in can.targets if device is target.device))
        return NotRun(
            NotRunKind.UNSUPPORTED,
            f"{target.backend} has no {target.precision} on {target.device}",
            f"it offers {offered or 'nothing there'}",
        )
    words = can.schemes.get(target.precision, frozenset())
    if word := schemes.unoffered(scheme_of(target), words):
        return NotRun(
            NotRunKind.UNSUPPORTED,
            f"{target.backend} has no {word} quantization for {target.precision}",
            f"it offers {', '.join(sorted(words)) or 'no scheme for this precision'}",
        )
    return None


_ARTIFACT_NAMES = {
    Artifact.FORWARD: "array code",
    Artifact.MODULE: "a torch module",
    Artifact.ONNX: "an ONNX file",
    Artifact.OPEN: "an ONNX file with open axes",
    Artifact.PT2: "an exported program",
    Artifact.SKLEARN: "a scikit-learn model (.joblib)",
    Artifact.LIGHTGBM: "a LightGBM model (.txt)",
    Artifact.XGBOOST: "an XGBoost model (.ubj, .json)",
    Artifact.NONE: "nothing",
}


def needed_bytes(arms: Sequence[Arm], here: Here) -> int:
    """Return the peak memory for arms of one group: exporting their model, or holding all of them at once.

    Raises:
        UsageError: their parameters aren't the model's.
    """
    if not arms:
        return 0
    weights = weight_bytes(arms, here) // BYTES_PER_WEIGHT
    needs = weights * max(BYTES_PER_PARAMETER, _bytes_per_weight(arms))
    return needs + COPIES_OF_INPUTS * sum(arm.instances * _input_bytes(arm) for arm in (arms[0], *arms))


def weight_bytes(arms: Sequence[Arm], here: Here) -> int:
    """Return the bytes of a group's weights in float32; of files, those of the largest.

    Raises:
        UsageError: their parameters aren't the model's.
    """
    if is_file(arms[0].model):
        return max(here.facts_of(arm.model).bytes for arm in arms)
    return BYTES_PER_WEIGHT * find_model(arms[0].model).count_weights(arms[0].parameters)


def needed_disk_bytes(arms: Sequence[Arm], here: Here) -> int:
    """Return what the exports and builds of a group's arms take on the disk: the weights, as often as each has them."""
    if not arms:
        return 0
    forms = {one for arm in arms for one in _consumes(arm)} & {Artifact.ONNX, Artifact.MODULE, Artifact.FORWARD}
    exports = len(forms - {Artifact.FORWARD}) if is_file(arms[0].model) else 2
    builds = sum(backends.entry(arm.target.backend).copies for arm in arms)
    return int(weight_bytes(arms, here) * (exports + builds))


def check_memory_of_exports(
    arms: Sequence[Arm], exported_models: Mapping[str, ExportedModel], memory_bytes: int
) -> dict[str, NotRun]:
    """Explain by label why arms don't fit in memory together; only the export tells this of a user's own model.

    Args:
        exported_models: of each arm that can be built, by label.
    """
    own = [arm for arm in arms if arm.label in exported_models and exported_models[arm.label].source_sha256]
    if not own:
        return {}
    weights = max(exported_models[arm.label].parameter_count for arm in own)
    specs = [(arm, exported_models[arm.label].inputs) for arm in (own[0], *own)]
    inputs = sum(arm.instances * set_bytes(one) * buffer_count(one) for arm, one in specs)
    lack = _tell_lack("memory", weights * _bytes_per_weight(own) + COPIES_OF_INPUTS * inputs, memory_bytes)
    why = NotRun(NotRunKind.TOO_BIG, lack, _TAKE_LESS)
    return {arm.label: why for arm in own} if lack else {}


def device_bytes(arm: Arm, exported: ExportedModel) -> int:
    """Return the bytes of a GPU's memory that an arm takes by rule of thumb."""
    held = 2 if scenario_of(arm).trains else 1
    inputs = set_bytes(exported.inputs) * buffer_count(exported.inputs)
    weights = BYTES_PER_WEIGHT_ARM * held * exported.parameter_count
    return CONTEXT_BYTES + arm.instances * (weights + COPIES_OF_INPUTS * inputs)


def _bytes_per_weight(arms: Sequence[Arm]) -> int:
    """Return the bytes per weight while all arms of a group, and the baseline's control, hold their sessions."""
    sessions = sum(arm.instances for arm in arms) + 1
    held = 2 if scenario_of(arms[0]).trains else 1  # a training step also has gradients and momenta
    return BYTES_PER_WEIGHT_ARM * held * sessions


def _input_bytes(arm: Arm) -> int:
    """Return the bytes of all input buffers; 0 for a user's file, whose inputs only the export knows."""
    model = find_model(arm.model)
    specs = model.inputs(model.check(arm.parameters), arm.batch)
    return set_bytes(specs) * buffer_count(specs)
