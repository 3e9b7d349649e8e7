"""From ONNX to IREE's module, by its importer and its compiler, a program of its own; weights lie in a file beside it.

The compiler takes a graph's types as they are. What it would do otherwise to reach a precision (`demote-f32-to-f16`)
narrows inputs and outputs too, and leaves the weights' file in float32.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from shootout.core.contract import Arm, Device, Option, Precision
from shootout.core.errors import NotRunKind, SkippedArm, keep_end, one_line, shorten
from shootout.core.host.child import ending, with_last_words
from shootout.core.install import install

MODULE, WEIGHTS = "model.vmfb", "model.irpa"
SCOPE = "model"
"""The name under which the module looks for its weights."""
INLINE_ELEMENTS = 256
"""Smaller weights are constants of the module, which the compiler folds into what reads them."""
OLDEST_OPSET = 17
"""Opset that the importer is written for; older files are lifted to it first."""
TIMEOUT_S = 1_800
_WORDS = 200
"""Characters of the compiler's output, at most, that a reason repeats."""
_ELSEWHERE = "other backends take the file as it is"
_UNKNOWN = re.compile(r"failed to legalize operation 'torch\.operator'.*?name = \"onnx\.(?P<operator>\w+)\"")
_ERROR = re.compile(r"error: (.*)")
CPU = "llvmcpu-target-cpu"
HOST, GENERIC = "host", "generic"
VULKAN, HALF = "vulkan-target", "vulkan-target-features"
HALF_FEATURES = (
    *("spirv:v1.3", "cap:Shader", "cap:Float16", "cap:StorageBuffer16BitAccess", "cap:StorageUniform16"),
    "ext:SPV_KHR_16bit_storage",
)
"""Features that the compiler assumes of any GPU, and FP16."""
_ON_CPU, _ON_VULKAN = frozenset({Device.CPU}), frozenset({Device.VULKAN})
OPTIONS = (
    Option(
        name="opt-data-tiling",
        help="whether matrices are kept in the order in which tiles read them (0)",
        values=("0", "1"),
        tries=("1",),
    ),
    Option(
        name="opt-level", help="how hard the compiler tries (O0)", values=("O0", "O1", "O2", "O3"), tries=("O2", "O3")
    ),
    Option(
        name=CPU,
        help=f"the CPU it is compiled for: this one ({HOST}), or any of its architecture",
        values=(HOST, GENERIC),
        devices=_ON_CPU,
    ),
    Option(
        name=VULKAN,
        help="the GPU it is compiled for, by IREE's name, such as rdna3 or adreno (any)",
        form=r"[\w.+-]+",
        takes="a GPU",
        devices=_ON_VULKAN,
    ),
)
"""The compiler's own, by its flags without `--iree-`."""
AS_WRITTEN = "--iree-input-demote-f64-to-f32=false"
"""By default float64 is computed in float32, and the memory of such outputs is half as large as their type says."""


def import_onnx(source: Path, folder: Path) -> Path:
    """Write the graph in the compiler's language; its weights, if it has any, go into WEIGHTS in `folder`.

    Raises:
        SkippedArm: the compiler isn't installed.
    """
    _find_program()
    from iree.compiler.tools.import_onnx import __main__ as importer

    graph = folder / "model.mlir"
    settings = ["--externalize-params", f"--save-params-to={folder / WEIGHTS}", f"--params-scope={SCOPE}"]
    settings += [f"--num-elements-threshold={INLINE_ELEMENTS}"]
    settings += [f"--opset-version={OLDEST_OPSET}"] if _opset_of(source) < OLDEST_OPSET else []
    importer.main(importer.parse_arguments([str(source), f"-o={graph}", *settings]))
    return graph


def compile_graph(graph: Path, module: Path, arm: Arm, dumps: Sequence[str] = ()) -> None:
    """Write a graph's module for an arm.

    Args:
        dumps: flags for what the compiler is to tell of it.

    Raises:
        SkippedArm: the compiler isn't installed, or can't take this model.
        ValueError: it can't with what the user wrote for an option.
        RuntimeError: it was killed, or crashed.
    """
    flags = [AS_WRITTEN, *_target_flags(arm.target.device)]
    flags += [f"--iree-{name}={value}" for name, value in _flags_of(arm).items()]
    ended = subprocess.run(  # noqa: S603 - the compiler that was installed with its package
        [_find_program(), str(graph), "-o", str(module), *flags, *dumps],
        capture_output=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    if ended.returncode:
        _raise_compiler_error(arm, ended.returncode, ended.stderr.decode(errors="replace"))


def _raise_compiler_error(arm: Arm, code: int, said: str) -> NoReturn:
    """Raise what tells the cause: the model, the user's words for an option, or the compiler itself."""
    why = _first_complaint(said)
    written = [f"{one.name}={arm.options[one.name]}" for one in OPTIONS if one.form and one.name in arm.options]
    if code < 0:
        raise RuntimeError(with_last_words(f"IREE's compiler was {ending(code)}", why))
    if written and not _UNKNOWN.search(said):
        raise ValueError(f"IREE's compiler, with {', '.join(written)}: {why or ending(code)}")
    reason = f"IREE's compiler can't take this model: {why or ending(code)}"
    raise SkippedArm(reason, _ELSEWHERE, NotRunKind.UNFIT)


def _flags_of(arm: Arm) -> dict[str, str]:
    """Return the compiler's flags of an arm, without `--iree-`."""
    own = {option.name for option in OPTIONS}
    chosen = {name: value for name, value in arm.options.items() if name in own}
    if arm.target.device is not Device.VULKAN:
        return {CPU: HOST} | chosen
    if arm.target.precision is not Precision.FP16 or VULKAN in chosen:
        return chosen
    return {HALF: ",".join(HALF_FEATURES)} | chosen  # the compiler assumes that no GPU computes in FP16


def _target_flags(device: Device) -> list[str]:
    if device is Device.VULKAN:
        return ["--iree-hal-target-device=vulkan"]
    return ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu"]


def _find_program() -> str:
    try:
        import iree  # noqa: F401 - named by itself where it is missing
        from iree.compiler.tools.binaries import find_tool
    except ModuleNotFoundError as error:
        raise SkippedArm(f"{error.name} is not installed", install("iree"), NotRunKind.NOT_INSTALLED) from error
    return str(find_tool("iree-compile"))


def _opset_of(source: Path) -> int:
    from shootout.models.onnx.onnx_files import header

    return next((one.version for one in header(source).opset_import if one.domain in ("", "ai.onnx")), OLDEST_OPSET)


def _first_complaint(said: str) -> str:
    """Return the compiler's first complaint, in a line."""
    if unknown := _UNKNOWN.search(said):
        return f"it has no way to write the operator {unknown['operator']}"
    error = _ERROR.search(said)
    return shorten(one_line(error[1]), _WORDS) if error else keep_end(one_line(said), _WORDS)
