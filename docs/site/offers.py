"""Write the pages of what each backend declares: its options, its scheme words, and which precision runs where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from shootout.apps.tune.settings import find_offered
from shootout.core import backends
from shootout.core.contract import Artifact, Capabilities, Device, Option, Precision, Target
from shootout.tell.registered import settable, why_unshippable

OPTIONS_HEAD = """# Every backend's own options

- `--option openvino.NUM_STREAMS=2` sets an option for all targets of a backend.
- `--option openvino:cpu:int8.NUM_STREAMS=2` sets it for one target.
- The row records what you set. A target fails if its backend doesn't have the option there.

Behind each option stand what it does, its values, and the devices, modes and precisions that have it. Without values
the library checks the value itself. `shootout tune` tries the values behind "tried", alone and together.
"""
FOR_ALL, OPEN = "bucket", "dynamic"
"""The beginnings of the words that any backend takes, and of that of `Capabilities.opens`."""
SCHEMES_HEAD = """# Schemes: how a model is quantized

A target may end in a slash and words joined by `+`: `onnxruntime:cpu:int8/per-tensor+entropy`. Without a word the
vendor's own default holds. A target is skipped if its backend doesn't offer the word, and it is refused if two words
exclude each other. [Quantize and verify](../quantization.md) shows how to choose.

| word | what it does | offered by |
|---|---|---|
"""
SUPPORT_HEAD = """# Support: which precision runs where

A mark means that the backend has code for the precision on that device. Your CPU or GPU may lack the precision itself:
the row is then skipped and says so. `shootout doctor` tells what works on your machine. `native` runs an ONNX file in
the precisions that the file holds. [Each runtime has a page](../runtimes/README.md).
"""
NEEDS_HEAD = """
## What each backend needs and offers

- **extra**: the extra that [installs](../install.md) it. **needs**: the packages and drivers.
- **a bare name means**: the target if you give only the backend's name.
- **modes**: what may follow the name. **trains**: it can measure a training step.
- **`ship`**: the modes that `shootout ship` can write as a folder.

| backend | extra | needs | a bare name means | modes | trains | `ship` |
|---|---|---|---|---|---|---|
"""
MEANINGS = {
    "per-channel": "Give each output channel of a weight its own scale.",
    "per-tensor": "Give all of a weight one scale.",
    "symmetric": "Put zero in the middle of the range: of activations; of weights if activations stay float or with "
    "`activations-8`.",
    "asymmetric": "Give the same range a zero point of its own.",
    "minmax": "Take activation ranges from the extremes of the calibration sets.",
    "entropy": "Take the activation ranges that lose least information, by a histogram of the calibration sets.",
    "percentile": "Clip the outermost activations of the calibration sets.",
    "samples-N": "Use the first N calibration sets only.",
    "activations-8": "Round what products read to 8 bits in each call and multiply integers, with weights of 4 bits.",
    "weights-only": "Store weights in fewer bits and multiply in float; needs no calibration.",
    "rest-fp32": "Compute in FP32 what isn't quantized; static INT8 only, its default on a CPU.",
    "rest-fp16": "Compute in FP16 what isn't quantized; static INT8 only, its default on a GPU.",
    "rest-bf16": "Compute in BF16 what isn't quantized; static INT8 only.",
    "awq": "Choose INT4 weights by the calibration sets: AWQ, NNCF's.",
    "gptq": "Choose INT4 weights by the calibration sets: GPTQ, NNCF's or ONNX Runtime's.",
    "hqq": "Choose INT4 weights without data: HQQ, ONNX Runtime's.",
    "k-quant": "Choose INT4 weights without data: k-quant, ONNX Runtime's.",
    "smoothquant": "Move a part of the activations' range into the weights first: NNCF's, with its transformer mode.",
    "scale-estimation": "Search INT4 scales by the calibration sets: NNCF's.",
    "ratio-0.N": "Store this share of the weights in 4 bits, the least sensitive ones, and the rest in 8: NNCF's.",
    "dynamic": "Run all sizes of varying inputs in one session that takes any size.",
    "bucket-N": "Pad varying inputs to a multiple of N with zeros, and cut the outputs back.",
    "shared": "Run one symmetric Q/DQ file that is the same for all runtimes, instead of the vendor's quantizer.",
    "accuracy-control": "Put layers back to float until accuracy on the selection split is kept: NNCF's.",
    "float-N": "Leave layers in float, by their numbers in `shootout sensitivity`: `float-3`, `float-0to4.17`.",
}
"""The meaning of each word of a scheme; N is a number."""
OWN_WORDS = {
    "default": "Leave OpenVINO its own precision hint, which computes FP32 in BF16 on a CPU that has it.",
    "matmul-nbits": "Store weights in blocks, each with its scale, and multiply them by MatMulNBits.",
    "s8s8": "Use ONNX Runtime's own default on x86: signed activations and weights, which may run in float.",
}
"""Scheme words that only one backend has."""
FORMS = {
    Artifact.FORWARD: "array code",
    Artifact.MODULE: "torch module",
    Artifact.ONNX: "ONNX",
    Artifact.SKLEARN: "`.joblib` or `.pkl` of scikit-learn",
    Artifact.LIGHTGBM: "`.txt` of LightGBM",
    Artifact.XGBOOST: "`.ubj` or `.json` of XGBoost",
}
NEVER: Mapping[str, frozenset[tuple[Device, Precision]]] = {
    "jax-jit": frozenset((Device.CPU, one) for one in (Precision.FP16, Precision.FP8, Precision.INT4))
}
"""Targets that a backend takes only to say why it doesn't run them."""
PRECISIONS = tuple(Precision)
_MAIN = (Device.CPU, Device.CUDA)
MATRIX = "| backend | a model as | on the CPU | on CUDA | on other devices |\n|---|---|---|---|---|\n"


def list_shipped() -> dict[str, Capabilities]:
    """Return the capabilities of each backend that ships and that users can name."""
    return {name: backends.get(name).capabilities for name in backends.names()}


def write_options() -> str:
    """Write every backend's options, as its adapter declares them."""
    parts = [OPTIONS_HEAD]
    for name in list_shipped():
        told = "".join(map(_tell_option, settable(name)))
        parts.append(f"## {name}\n\n{told}" if told else f"## {name}\n\nNone.\n")
    return "\n".join(parts)


def _tell_option(option: Option) -> str:
    modes = [] if option.modes is None else sorted(f"`+{mode}`" if mode else "plain mode" for mode in option.modes)
    on = ", ".join([*sorted(option.devices), *modes, *sorted(option.precisions or ())])
    tried = ", ".join(f"`{value}`" if value else "empty" for value in option.tries)
    tried += " with several threads" if option.parallel else ""
    parts = [option.help, option.expects, on, f"tried: {tried}" if tried else ""]
    return f"- `{option.name}`: {' · '.join(filter(None, parts))}\n"


def write_schemes() -> str:
    """Write every word of a scheme, with what it does and the targets that take it."""
    rows = (f"| `{word}` | {meaning} | {_offered_by(word)} |\n" for word, meaning in (MEANINGS | OWN_WORDS).items())
    return SCHEMES_HEAD + "".join(rows)


def _offered_by(word: str) -> str:
    if word.startswith(FOR_ALL):
        return "every backend"
    offers = (
        (
            name,
            can.opens
            if word == OPEN
            else [precision for precision, words in can.schemes.items() if find_offered(words, word)],
        )
        for name, can in list_shipped().items()
    )
    return "; ".join(f"`{name}` {', '.join(sorted(found))}" for name, found in offers if found)


def write_support() -> str:
    """Write which backend runs which precision on which device, and what each backend needs."""
    rows = "".join(_support_rows())
    head = "".join(f" {one} |" for one in PRECISIONS)
    line = "---|" * (len(PRECISIONS) + 1)
    needs = "".join(_needs_row(name, can) for name, can in list_shipped().items())
    return f"{SUPPORT_HEAD}\n| backend and device |{head}\n|{line}\n{rows}{NEEDS_HEAD}{needs}"


def _support_rows() -> Iterator[str]:
    for name, can in list_shipped().items():
        for device, precisions in _runs(name, can).items():
            marks = "".join(" ✓ |" if one in precisions else " |" for one in PRECISIONS)
            yield f"| `{name}:{device}` |{marks}\n"


def _runs(name: str, can: Capabilities) -> dict[Device, list[Precision]]:
    """Return what a backend runs on each device that it has code for, in the order of the precisions."""
    targets = (can.targets | {(device, Precision.NATIVE) for device in can.native}) - NEVER.get(name, frozenset())
    found = {device: [one for one in PRECISIONS if (device, one) in targets] for device in Device}
    return {device: precisions for device, precisions in found.items() if precisions}


def _needs_row(name: str, can: Capabilities) -> str:
    row = backends.shipped()[name]
    device, precision = row.default
    modes = ", ".join(f"`+{mode}`{' (cuda)' if mode in can.cuda_modes else ''}" for mode in sorted(can.modes) if mode)
    trains = "yes" if can.trains else ""
    extra = f"`{row.extra}`" if row.extra else "none"
    target = f"`{name}:{device}:{precision}`"
    cells = (f"`{name}`", extra, row.needs or "NumPy", target, modes, trains, _shippable(name, can))
    return f"| {' | '.join(cells)} |\n"


def _shippable(name: str, can: Capabilities) -> str:
    """Return the modes that can be shipped: all of them is `yes`, none of them is `no`."""
    row = backends.shipped()[name]
    device, precision = row.default
    on_cpu = sorted(can.modes - can.cuda_modes)
    ships = [
        mode
        for mode in on_cpu
        if not why_unshippable(Target(backend=name, device=device, precision=precision, mode=mode))
    ]
    if not ships:
        return "no"
    return "yes" if ships == on_cpu else ", ".join(f"`+{mode}`" if mode else "plain" for mode in ships)


def write_matrix() -> str:
    """Write the short form of the support matrix: by backend and device, the precisions in words."""
    return MATRIX + "".join(_matrix_row(name, can) for name, can in list_shipped().items())


def _matrix_row(name: str, can: Capabilities) -> str:
    runs = _runs(name, can)
    others = "; ".join(f"{device}: {_join(found)}" for device, found in runs.items() if device not in _MAIN)
    forms = " or ".join(FORMS[one] for one in can.consumes)
    cpu, cuda = (_join(runs.get(device, ())) for device in _MAIN)
    return f"| `{name}` | {forms} | {cpu} | {cuda} | {others} |\n"


def _join(precisions: Iterable[Precision]) -> str:
    return ", ".join(one for one in precisions if one is not Precision.NATIVE)
