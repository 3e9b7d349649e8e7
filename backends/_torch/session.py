"""What the adapters on PyTorch share: threads and flags, the module with its weights, a session on the CPU.

One policy for float32 products on every device: IEEE unless the target says tf32. Torch's own default differs between
products and convolutions on CUDA, and on some CPUs it may be told to round them to bfloat16. Reduced floats keep the
default, by which cuBLAS may also add up partial sums in them: that is what people run, and the fidelity gate bounds it.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._torch import inference
from shootout.backends._torch.account import float32_flags
from shootout.backends.common import DTYPES, check_inputs, precision_of, require_device
from shootout.backends.common_torch import float32_module
from shootout.contract import Arm, Array, Arrays, Device, Executed, Option, Precision
from shootout.errors import NotRunKind, SkippedArm, pip_install
from shootout.session import GpuSide, Session
from shootout.trace_events import Event

if TYPE_CHECKING:
    import torch

    from shootout.exported.model import ExportedModel

TARGETS = frozenset(
    [(Device.CPU, precision) for precision in (Precision.FP32, Precision.BF16, Precision.FP16)]
    + [(Device.CUDA, precision) for precision in DTYPES]
)
NATIVE = frozenset({Device.CPU})
RESTS = {(Device.CPU, Precision.INT4): Precision.BF16}
"""Torch's INT4 kernel for CPUs has vector code for bfloat16 alone: on float32 it takes 70 times as long."""
FLOATS = frozenset(DTYPES)
MEMORY_FORMAT, CHANNELS_LAST = "memory_format", "channels_last"
LAYOUT = Option(
    name=MEMORY_FORMAT,
    help="filters, and so what convolutions give, with their channels last in memory; inference only",
    values=("contiguous_format", CHANNELS_LAST),
    precisions=FLOATS,
    tries=(CHANNELS_LAST,),
)
"""Of the adapters that run the module's own convolutions: Inductor lays them out by itself."""
Raw = Any
"""What a call returns: a tensor, or a tuple of them where the model has several outputs."""
Facts = Mapping[str, Any]
"""Fields of `Executed` by name."""
Account = Callable[[list[Any]], Facts]
"""What only the adapter knows of `Executed`, asked when it is first read, with one staged input set, after a call."""
OURS = frozenset({"cpu_op", "kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "user_annotation"})
"""Kinds of a profiler's events that are the model's; the rest is the profiler's."""


class TorchSession:
    """A callable on the CPU. Inputs of its dtype are used in place; the others are converted while staging."""

    gpu: GpuSide | None = None

    def __init__(self, run: Callable[..., Raw], arm: Arm, exported: ExportedModel, account: Account) -> None:
        import torch

        self._torch, self._run, self._exported, self._account = torch, run, exported, account
        self._is_held: Callable[[], bool] = torch.is_inference_mode_enabled
        self._dtype, self._device = dtype_of(arm), arm.target.device
        self._inputs, self._output = exported.inputs, exported.outputs[0].name
        self._outputs = tuple(spec.name for spec in exported.outputs)
        floats = {getattr(torch, spec.dtype) for spec in self._inputs if np.dtype(spec.dtype).kind == "f"}
        # Settled once: each of these steps would cost as much in every call as wrapping the array does.
        native = arm.target.precision is Precision.NATIVE
        self._in_place = native or floats <= {self._dtype}
        self._as_is = not native and self._dtype not in (torch.float16, torch.bfloat16)

    @cached_property
    def executed(self) -> Executed:
        """The adapter's own account, beside the device of a real output."""
        return read_account(self, self._exported, self._account)

    def stage(self, inputs: Arrays, slot: int) -> list[torch.Tensor]:  # noqa: ARG002 - each call has its own tensors
        """Tensors in the model's input order; floats in the arm's dtype."""
        if not self._is_held():
            inference.hold(self._torch)
        check_inputs(self._inputs, inputs)
        from_numpy = self._torch.from_numpy
        if self._in_place:
            return [from_numpy(inputs[spec.name]) for spec in self._inputs]
        return [self._converted(from_numpy(inputs[spec.name])) for spec in self._inputs]

    def execute(self, staged: list[torch.Tensor]) -> Raw:
        """Call it, in the inference mode that this thread's first call enters (see `inference`)."""
        if not self._is_held():
            inference.hold(self._torch)
        return self._run(*staged)

    def synchronize(self) -> None:
        """Nothing is pending."""

    def fetch(self, raw: Raw) -> Arrays:
        """The outputs as arrays; every call made new tensors, so they are the caller's."""
        if isinstance(raw, self._torch.Tensor):
            return {self._output: raw.numpy() if self._as_is else self._widened(raw)}
        return {name: self._widened(tensor) for name, tensor in zip(self._outputs, raw, strict=True)}

    def profile(self, call: Callable[[], object], calls: int) -> list[Event]:
        """What torch's own profiler sees of some calls."""
        return profile_calls(call, calls, self._device)

    def close(self) -> None:
        """Drop what holds the weights."""
        inference.leave()
        self.__dict__.pop("_run", None)
        self.__dict__.pop("_account", None)

    def _widened(self, tensor: torch.Tensor) -> Array:
        wide = tensor.float() if tensor.dtype in (self._torch.float16, self._torch.bfloat16) else tensor
        array: Array = wide.numpy()
        return array

    def _converted(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._dtype) if tensor.is_floating_point() else tensor


def read_account(session: Session, exported: ExportedModel, account: Account) -> Executed:
    """What a session runs: the adapter's own account, the device of a real output and torch's own thread count."""
    import torch

    staged = session.stage(exported.input_buffers()[0], 0)
    raw = session.execute(staged)
    session.synchronize()
    inference.leave()
    # Tensors of inference mode can't be written outside it, as a model may that works in place.
    copies = [one.clone() if isinstance(one, torch.Tensor) else one for one in staged]
    return Executed(
        library="torch",
        version=str(torch.__version__),  # a type of torch's own: who unpickled it would import torch
        device=str((raw if isinstance(raw, torch.Tensor) else raw[0]).device),
        threads=torch.get_num_threads(),
        staged=next(
            (precision_of(str(one.dtype).removeprefix("torch.")) for one in copies if one.is_floating_point()), ""
        ),
        **account(copies),
    )


def profile_calls(call: Callable[[], object], calls: int, device: Device) -> list[Event]:
    """Trace events of so many calls under torch's profiler; one more before it, since starting it slows the first."""
    import torch

    kinds: Any = torch.profiler.ProfilerActivity
    wanted = [kinds.CPU, kinds.CUDA] if device is Device.CUDA else [kinds.CPU]
    call()
    with torch.profiler.profile(activities=wanted) as profiler:
        for _ in range(calls):
            call()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return [
            event for event in json.loads(path.read_text(encoding="utf-8"))["traceEvents"] if event.get("cat") in OURS
        ]


def dtype_of(arm: Arm) -> torch.dtype:
    """The dtype of the arm's float weights and inputs; what a quantizer makes lives inside the model."""
    import torch

    target = arm.target
    usual = Precision.BF16 if target.device is Device.CUDA else Precision.FP32
    rest = RESTS.get((target.device, target.precision), usual)
    dtype: torch.dtype = getattr(torch, DTYPES.get(target.precision, DTYPES[rest]))
    return dtype


def configure(arm: Arm) -> None:
    """Set the process's threads and float32 flags to what the arm asks for, outside of inference mode."""
    import torch

    inference.leave()
    torch.set_num_threads(arm.threads)
    if torch.get_num_interop_threads() != 1:
        torch.set_num_interop_threads(1)
    policy = policy_of(arm)
    if arm.target.device is Device.CUDA:
        _set_older_flags(rounds=policy == "tf32")
        # Inductor's own convolutions in Triton read this one, and no other.
        torch.backends.cudnn.fp32_precision = policy
    for flag in float32_flags(arm.target.device).values():
        flag.fp32_precision = policy


def policy_of(arm: Arm) -> str:
    """How float32 products are computed, in torch's word."""
    return "tf32" if arm.target.precision is Precision.TF32 else "ieee"


def _set_older_flags(*, rounds: bool) -> None:
    """The switches that `fp32_precision` replaces: torch.compile still reads them, which fails where they disagree with
    it (pytorch issue 166387). Torch warns that they are old.
    """
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.backends.cuda.matmul.allow_tf32 = rounds
        torch.backends.cudnn.allow_tf32 = rounds


def module_of(exported: ExportedModel, arm: Arm) -> torch.nn.Module:
    """The module with its weights, for inference, on the arm's device, in its dtype and its order of axes.

    Of the weights with four axes only filters are laid out, as torch's own utility does it: what follows a convolution
    inherits its order, and nothing else gains by it.

    Raises:
        ValueError: the filters' channels are to be last, and no layer has any.
    """
    import torch
    from torch.nn.utils import convert_conv2d_weight_memory_format

    from shootout.quantize.retyping import retyped

    device, stored = torch.device(arm.target.device), float32_module(exported).requires_grad_(False)
    native = arm.target.precision is Precision.NATIVE
    module = stored.to(device) if native else retyped(stored, dtype_of(arm), device)
    if arm.options.get(MEMORY_FORMAT) != CHANNELS_LAST:
        return module
    if not any(isinstance(one, torch.nn.Conv2d | torch.nn.ConvTranspose2d) for one in module.modules()):
        raise ValueError(f"option {MEMORY_FORMAT!r}: the module of {exported.model} has no Conv2d layer to lay out")
    return convert_conv2d_weight_memory_format(module, torch.channels_last)


def example_of(exported: ExportedModel, arm: Arm) -> tuple[torch.Tensor, ...]:
    """One input set as the arm's sessions stage it, for a compiler to look at."""
    tensors, floats = tensors_of(exported, exported.input_buffers()[0]), dtype_of(arm)
    if arm.target.precision is Precision.NATIVE:
        return tensors
    return tuple(one.to(arm.target.device, floats if one.is_floating_point() else one.dtype) for one in tensors)


def tensors_of(exported: ExportedModel, inputs: Arrays) -> tuple[torch.Tensor, ...]:
    """One input set as it is, in the model's order."""
    import torch

    return tuple(torch.from_numpy(inputs[spec.name]) for spec in exported.inputs)


def weight_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of all these tensors."""
    return sum(tensor.nbytes for tensor in tensors)


def require_torch(device: Device) -> str:
    """Torch's version, once it is sure that torch can use the device.

    Raises:
        SkippedArm: it can't; with the reason and the fix.
    """
    require_device(device, (Device.CPU, Device.CUDA))
    import torch

    if device is Device.CUDA and not torch.cuda.is_available():
        kind = f"built for CUDA {torch.version.cuda}, which this driver can't run" if torch.version.cuda else "CPU-only"
        fix = f"{pip_install('torch', options='--force-reinstall')} (a CUDA build)"
        raise SkippedArm(f"torch {torch.__version__} is {kind}", fix, NotRunKind.BROKEN)
    return str(torch.__version__)
