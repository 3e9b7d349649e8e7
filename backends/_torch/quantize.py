"""Torchao's quantization: INT8 and FP8 with ranges taken in each call, INT4 weights, and for torch.compile static INT8.

For all but static INT8, torchao swaps a linear layer's weight for a tensor of its own class. That tensor's `linear`
runs kernels of its type, in eager mode and compiled alike. Only such weights are stored and loaded: the float ones are
not read again. What isn't quantized is bfloat16 on a GPU, for which torchao's kernels there are made, and beside INT4;
else float32.

Static INT8 is its PT2E flow with the quantizer that is made for Inductor on x86. The exported graph gets observers, and
calibration sets run through it. The result holds INT8 weights between quantize and dequantize operations. Inductor
turns these into oneDNN's INT8 kernels when it freezes the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shootout.backends import common_onnx
from shootout.backends._torch.session import dtype_of, example_of, tensors_of
from shootout.backends.common import calibration_of
from shootout.backends.common_torch import architecture, float32_module
from shootout.backends.cuda_memory import capability, lacks_float8, require_float8
from shootout.core import schemes
from shootout.core.contract import Arm, Device, Precision, Target
from shootout.core.errors import SkippedArm
from shootout.core.host.environment import SEVEN_BITS, saturates
from shootout.core.schemes import Scheme
from shootout.models.onnx.layers import pick_layers

if TYPE_CHECKING:
    import torch

    from shootout.core.exported.model import ExportedModel
    from shootout.models.onnx.layers import Layer

TARGETS = frozenset(
    [
        (device, precision)
        for device in (Device.CPU, Device.CUDA)
        for precision in (Precision.INT8_DYNAMIC, Precision.INT4)
    ]
    + [(Device.CUDA, Precision.FP8)]
)
"""FP8 not on a CPU: torchao refuses, and `torch._scaled_mm` there widens both operands and multiplies float32.

On CUDA `torch._int_mm` takes sizes in 8s, so other layers stay as they are: of these torchao would multiply int32 on
the CPU, in each call. It also takes more than 16 rows: up to that torchao multiplies float32, and the trace says so.
"""
SCHEMES: Mapping[Precision, frozenset[str]] = {
    Precision.INT8_DYNAMIC: frozenset({"per-channel", "per-tensor", "symmetric", "asymmetric", "float-*"}),
    Precision.FP8: frozenset({"per-channel", "per-tensor", "float-*"}),
    Precision.INT4: frozenset({"float-*"}),
}
STATIC_TARGETS = frozenset({(Device.CPU, Precision.INT8)})
STATIC_SCHEMES = {
    Precision.INT8: frozenset({"per-channel", "symmetric", "asymmetric", "minmax", "samples-*", "float-*"})
}
"""Not `per-tensor`: Inductor finds its INT8 kernels by per-channel weights only, and runs float ones otherwise."""
WEIGHTS, PROGRAM = "quantized.pt", "quantized.pt2"
GROUPS = (128, 64, 32)
"""Inputs that share a scale in INT4, torchao's default first; a layer gets the widest that divides its inputs."""
MULTIPLE = 16
"""Torch's INT4 kernel for CPUs takes layers whose number of outputs is a multiple of this, FP8's also of inputs."""
REPLACING = (Precision.FP32.value, "int32")
"""Products of torchao's on a GPU in place of cuBLAS' integer product, if that can't be used."""
INT8_MULTIPLE = 8
"""Inputs and outputs of cuBLAS' integer product are multiples of this."""
SIZES = {
    Precision.INT8_DYNAMIC: f"int8-dynamic takes (on a GPU multiples of {INT8_MULTIPLE})",
    Precision.FP8: f"fp8 takes (multiples of {MULTIPLE})",
    Precision.INT4: f"int4 takes (inputs in {GROUPS[-1]}s, outputs in {MULTIPLE}s)",
}
"""The layers that a precision takes, for people."""
EPSILON = 2**-12
"""The smallest scale of static INT8, as in the x86 quantizer's own configuration."""

IMPORTED = "torch._inductor.compile_fx,torchao.quantization,torchao.quantization.pt2e.quantizer.x86_inductor_quantizer"
"""Modules that quantizing imports, beside torch; freezing compiles."""


def is_missing_here(target: Target) -> bool:
    """Return whether the target is FP8 and this GPU multiplies none; asked without torch, which starts CUDA for
    good.
    """
    return target.precision is Precision.FP8 and lacks_float8(capability() or "")


def quantize_module(exported: ExportedModel, arm: Arm) -> torch.nn.Module:
    """Return the module with torchao's weights in its linear layers.

    Raises:
        ValueError: no layer can be quantized; says why.
        SkippedArm: this GPU multiplies no FP8.
    """
    module = float32_module(exported).requires_grad_(False).to(arm.target.device, dtype_of(arm))
    swap = {
        Precision.INT8_DYNAMIC: _quantize_int8_dynamic,
        Precision.FP8: _quantize_fp8,
        Precision.INT4: _quantize_int4,
    }
    floats = _find_floats(exported, schemes.parse(arm.target.scheme), module)
    layers = {name: layer for name, layer in _linear_layers(module).items() if name not in floats}
    precision = arm.target.precision
    if not swap[precision](module, arm, layers):
        raise ValueError(f"nothing to quantize: the model has no linear layer of a size that {SIZES[precision]}")
    return module


def require_integers(counts: Mapping[str, int], arm: Arm) -> None:
    """Refuse a module in which torchao put another product in the place of each integer one.

    Args:
        counts: what its trace says of its products.

    Raises:
        SkippedArm: with the fix.
    """
    if arm.target.precision is Precision.INT8_DYNAMIC and Precision.INT8.value not in counts:
        ran = ", ".join(f"{count} in {name}" for name, count in sorted(counts.items()))
        reason = f"cuBLAS' integer product takes more than 16 rows; torchao ran others in its place: {ran}"
        raise SkippedArm(reason, "a larger --batch, or torch-compile, where Inductor has a product of Triton's too")


def replaced_integers(counts: Mapping[str, int], arm: Arm) -> tuple[str, ...]:
    """Return the products that torchao put in the place of integer ones on a GPU, as lines for `fallbacks`.

    What it leaves alone there is bfloat16, so neither float32 nor int32 is anything else.
    """
    if arm.target.precision is not Precision.INT8_DYNAMIC or arm.target.device is not Device.CUDA:
        return ()
    return tuple(f"torchao ran {counts[name]} products in {name} for int8" for name in REPLACING if counts.get(name))


def save_module(module: torch.nn.Module, folder: Path) -> None:
    """Write the quantized state to a file, with the buffers that a state dict leaves out; integers keep their size."""
    import torch

    torch.save({**dict(module.named_buffers(remove_duplicate=False)), **module.state_dict()}, folder / WEIGHTS)


def load_module(exported: ExportedModel, folder: Path) -> torch.nn.Module:
    """Load the module with the weights that `save_module` wrote; the exported model's float ones stay on disk."""
    # registers its classes with the unpickler, which takes no others
    import torch
    import torchao.prototype.quantization.int4
    import torchao.quantization  # noqa: F401

    with torch.device("meta"):
        module = architecture(exported)
    state, own = torch.load(folder / WEIGHTS, weights_only=True), module.state_dict().keys()
    for name in [name for name, _ in module.named_buffers(remove_duplicate=False) if name not in own]:
        place, _, last = name.rpartition(".")
        setattr(module.get_submodule(place), last, state.pop(name))
    module.load_state_dict(state, assign=True)
    return module.eval().requires_grad_(False)


def _quantize_int8_dynamic(module: torch.nn.Module, arm: Arm, layers: Mapping[str, Any]) -> int:
    """Quantize with a scale per row of activations, torchao's default, and per channel of weights, or one by the
    scheme.

    If products of 8 bits saturate, both get 7.
    """
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, PerRow, PerTensor, quantize_
    from torchao.quantization.quant_primitives import MappingType

    scheme, on_gpu = schemes.parse(arm.target.scheme), arm.target.device is Device.CUDA
    fitting = {name for name, layer in layers.items() if not on_gpu or _is_multiple(layer, INT8_MULTIPLE)}
    config = Int8DynamicActivationInt8WeightConfig(
        granularity=[PerRow(), PerTensor() if scheme.granularity == "per-tensor" else PerRow()],
        act_mapping_type=MappingType.ASYMMETRIC if scheme.symmetry == "asymmetric" else MappingType.SYMMETRIC,
        set_inductor_config=False,  # process-wide switches, meant for CUDA
        reduce_range=not on_gpu and saturates(),
    )
    quantize_(module, config, filter_fn=lambda _, name: name in fitting)
    return len(fitting)


def _quantize_fp8(module: torch.nn.Module, arm: Arm, layers: Mapping[str, Any]) -> int:
    """Quantize with one scale for all activations and one for the weights, as is torchao's default.

    `per-channel` gives each row and each channel a scale. The product is torch's own, which the trace sees, even if
    MSLK is installed.
    """
    import torch
    from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, PerRow, PerTensor, quantize_
    from torchao.quantization.quantize_.common import KernelPreference

    require_float8("SM{}{}".format(*torch.cuda.get_device_capability()), "bf16 or int8-dynamic")
    fitting = {name for name, layer in layers.items() if _is_multiple(layer, MULTIPLE)}
    config = Float8DynamicActivationFloat8WeightConfig(
        granularity=PerRow() if schemes.parse(arm.target.scheme).granularity == "per-channel" else PerTensor(),
        kernel_preference=KernelPreference.TORCH,
        set_inductor_config=False,
    )
    quantize_(module, config, filter_fn=lambda _, name: name in fitting)
    return len(fitting)


def _is_multiple(layer: Any, of: int) -> bool:
    """Return whether both of a layer's sizes are multiples."""
    return bool(layer.in_features % of == layer.out_features % of == 0)


def _quantize_int4(module: torch.nn.Module, arm: Arm, layers: Mapping[str, Any]) -> int:
    """Quantize each layer in the widest groups that it can have; the kernels take float activations as they are."""
    from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig
    from torchao.quantization import Int4WeightOnlyConfig, quantize_
    from torchao.quantization.quantize_.workflows.int4.int4_packing_format import Int4PackingFormat

    on_gpu = arm.target.device is Device.CUDA
    fitting = {name: group for name, layer in layers.items() if (group := _group_size(layer, padded=on_gpu))}
    for group in set(fitting.values()):
        config = (
            Int4WeightOnlyConfig(  # the one packing whose kernel torch itself has
                group_size=group,
                int4_packing_format=Int4PackingFormat.TILE_PACKED_TO_4D,
                set_inductor_config=False,
            )
            if on_gpu
            else PrototypeInt4WeightOnlyConfig(group_size=group, set_inductor_config=False)
        )
        quantize_(module, config, filter_fn=lambda _, name, group=group: fitting.get(name) == group)
    return len(fitting)


def _group_size(layer: Any, *, padded: bool) -> int:
    """Return the layer's group size; 0 if the kernel can't take it. Outputs may be `padded` to what it takes."""
    fits = padded or layer.out_features % MULTIPLE == 0
    return next((group for group in GROUPS if fits and layer.in_features % group == 0), 0)


def _find_floats(exported: ExportedModel, scheme: Scheme, module: torch.nn.Module) -> set[str]:
    """Return the modules that a scheme leaves in float, by their names.

    Torchao leaves out whole modules, so each has to be one layer and nothing else: a weight, no modules inside, one
    call.

    Raises:
        UsageError: there is no such layer.
        SkippedArm: a layer's name is no such module's, as of a product that an attention's own code computes, or of
            one in a program of an ONNX file.
    """
    if not scheme.floats:
        return set()
    layers = common_onnx.layers_in(exported)
    known = {name: part for name, part in module.named_modules() if hasattr(part, "weight") and not [*part.children()]}
    counts, found = Counter(map(_module_of, layers)), set[str]()
    for one in pick_layers(layers, scheme.floats):
        name = _module_of(one)
        if name not in known or counts[name] > 1:
            reason = f"layer {one.number} {one.name} is no module with a weight of its own that is called once"
            fix = "torchao leaves out such modules only: name others behind float-, or choose another backend"
            raise SkippedArm(reason, fix)
        found.add(name)
    return found


def _module_of(layer: Layer) -> str:
    """Return the name of the module that a layer belongs to, which further calls of it share."""
    return layer.name.partition("#")[0]


def _linear_layers(module: torch.nn.Module) -> dict[str, Any]:
    from torch import nn

    return {name: layer for name, layer in module.named_modules() if isinstance(layer, nn.Linear)}


def quantize_program(exported: ExportedModel, arm: Arm) -> torch.export.ExportedProgram:
    """Return the model as an exported program with INT8 weights.

    Raises:
        ValueError: the quantizer found no layer, or the calibration data can't be used.
    """
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    scheme, example = schemes.parse(arm.target.scheme), example_of(exported, arm)
    sets = calibration_of(exported, scheme)
    with torch.no_grad():
        module = float32_module(exported).requires_grad_(False)
        quantizer = _make_quantizer(scheme)
        for name in _find_floats(exported, scheme, module):
            quantizer.set_module_name_qconfig(name, None)
        prepared = prepare_pt2e(torch.export.export(module, example).module(), quantizer)
        for one in sets:
            prepared(*tensors_of(exported, one))
        converted = convert_pt2e(prepared)
        if not any("quantize_per" in str(node.target) for node in converted.graph.nodes):
            raise ValueError("nothing to quantize: torchao's x86 quantizer finds no layer of a kind that it knows")
        _drop_float_weights(converted)
        return torch.export.export(converted, example)


def notes_of(arm: Arm) -> list[str]:
    """Return the notes of an INT8 model's row: this CPU cost activations a bit, with dynamic ranges weights too."""
    lost = {Precision.INT8: "activations", Precision.INT8_DYNAMIC: "activations and weights"}
    what = lost.get(arm.target.precision) if arm.target.device is Device.CPU else None
    return [SEVEN_BITS.format(what)] if what and saturates() else []


def notes_on_floats(exported: ExportedModel, arm: Arm) -> list[str]:
    """Return the row's line on the layers that the arm's scheme leaves in float."""
    return common_onnx.notes_on_floats(exported, schemes.parse(arm.target.scheme))


def save_program(program: torch.export.ExportedProgram, folder: Path) -> None:
    """Write the program to a file, weights and all."""
    import torch

    torch.export.save(program, folder / PROGRAM)


def load_program(folder: Path) -> torch.nn.Module:
    """Read what `save_program` wrote; its folder is our own, checked by hash (`torch.export.load` may unpickle)."""
    import torch

    # registers the rewriting that makes INT8 kernels of what is loaded
    import torchao.quantization.pt2e.quantizer.x86_inductor_quantizer  # noqa: F401

    return torch.export.load(folder / PROGRAM).module()


def _make_quantizer(scheme: Scheme) -> Any:
    """Make the x86 quantizer, by default with asymmetric U8 activations whose ranges lose least in a histogram.

    If products of 8 bits saturate, activations (not weights, as with others) get 7.
    """
    import torch
    from torchao.quantization.pt2e import MinMaxObserver
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    config = x86.get_default_x86_inductor_quantization_config(reduce_range=saturates())
    changes: dict[str, Any] = {}
    if scheme.symmetry == "symmetric":
        changes["qscheme"] = torch.per_tensor_symmetric
    if scheme.ranges == "minmax":
        changes["observer_or_fake_quant_ctr"] = MinMaxObserver.with_args(eps=EPSILON)
    activation = replace(config.input_activation, **changes)
    quantizer: Any = x86.X86InductorQuantizer()
    return quantizer.set_global(replace(config, input_activation=activation, output_activation=activation))


def _drop_float_weights(converted: Any) -> None:
    """Drop the float originals that conversion leaves in the module: exported, they would be stored as well."""
    used = {node.target for node in converted.graph.nodes if node.op == "get_attr"}
    for name, _ in list(converted.named_parameters()):
        if name not in used:
            owner, _, leaf = name.rpartition(".")
            delattr(converted.get_submodule(owner), leaf)
