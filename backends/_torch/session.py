"""Parts that PyTorch's adapters share: sessions on the CPU and a GPU, the module with its weights, threads and flags.

Float32 products are IEEE on every device unless the target says tf32. Torch's own default differs between products and
convolutions on CUDA, and on some CPUs it may be told to round them to bfloat16. Reduced floats keep torch's default, by
which cuBLAS may also add up partial sums in them: that is what people run, and the error check bounds it.

Inference mode is held as a user's loop holds it: entered once, around all calls, and not by each of them. The mode
belongs to a thread: each calling thread enters it with its first call, and only that thread can leave it. Nothing may
be built, loaded or trained in it. Tensors made in it are of another kind, which autograd refuses and Dynamo's guards
tell from others. So inputs are staged in it as well.

On a GPU each input slot has device tensors of its own, whose addresses never change. So compiled code and CUDA graphs
always read from the same place. Floats travel as the caller has them and are converted on the device: on the host,
torch would do it in one thread, and by way of pageable memory. One session uses the default stream, as in most people's
programs. Of several in a process, each has a stream of its own, or all would queue on one. Which stream a thread uses
is the thread's own, and a session is called from several.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shootout.backends._torch.account import float32_flags
from shootout.backends.common import DTYPES, precision_of, require_device
from shootout.backends.common_torch import float32_module
from shootout.backends.cuda_memory import COPIES, PINNED
from shootout.core.adapter import Built, Event, GpuSide, Session, check_inputs
from shootout.core.contract import Arm, Array, Arrays, Device, Executed, Option, Precision
from shootout.core.errors import NotRunKind, SkippedArm
from shootout.core.install import pip_install

if TYPE_CHECKING:
    import torch

    from shootout.core.exported.model import ExportedModel


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
"""An option of adapters that run the module's own convolutions; Inductor lays them out by itself."""
DEVICE = str(Device.CUDA)
"""The GPU that torch calls its current one: the first that CUDA_VISIBLE_DEVICES leaves."""
PROFILED = frozenset({"cpu_op", "kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "user_annotation"})
"""Kinds of a profiler's events that are the model's; the rest is the profiler's own."""
Raw = Any
"""The value of a call: a tensor, or a tuple of them if the model has several outputs."""
Facts = Mapping[str, Any]
"""Fields of `Executed` by name."""
Account = Callable[[list[Any]], Facts]
"""Gives what only the adapter knows of `Executed`; called when that is first read, with one staged input set."""


def count_graphs() -> int:
    """Count the graphs that Dynamo has traced in this process, of which each was compiled."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return int(dynamo.counters["stats"]["unique_graphs"]) if dynamo else 0


def session_on(run: Callable[..., Raw], arm: Arm, exported: ExportedModel, account: Account) -> TorchSession:
    """Return a session on the arm's device; see `TorchSession` for the arguments."""
    if arm.target.device is Device.CUDA:
        return TorchGpuSession(run, arm, exported, account)
    return TorchSession(run, arm, exported, account)


class TorchSession:
    """A callable on the CPU. Inputs of its dtype are used in place; the others are converted while staging.

    Args:
        run: makes one call, given a tensor for each input.
        account: gives the facts that only the adapter knows.
    """

    gpu: GpuSide | None = None

    def __init__(self, run: Callable[..., Raw], arm: Arm, exported: ExportedModel, account: Account) -> None:
        import torch

        self._torch, self._run, self._exported, self._account = torch, run, exported, account
        self._arm = arm
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
        """Return the adapter's own account, and the device of a real output."""
        return read_account(self, self._exported, self._account)

    def sized(self, exported: ExportedModel) -> TorchSession:
        """Return a session of the same callable for the inputs of another size."""
        return session_on(self._run, self._arm, exported, self._account)

    def stage(self, inputs: Arrays, slot: int) -> list[torch.Tensor]:  # noqa: ARG002 - each call has its own tensors
        """Return tensors in the model's input order, floats in the arm's dtype."""
        if not self._is_held():
            enter_inference_mode(self._torch)
        check_inputs(self._inputs, inputs)
        from_numpy = self._torch.from_numpy
        if self._in_place:
            return [from_numpy(inputs[spec.name]) for spec in self._inputs]
        return [self._convert_floats(from_numpy(inputs[spec.name])) for spec in self._inputs]

    def execute(self, staged: list[torch.Tensor]) -> Raw:
        """Call it, in the inference mode that this thread's first call enters."""
        if not self._is_held():
            enter_inference_mode(self._torch)
        return self._run(*staged)

    def synchronize(self) -> None:
        """Do nothing: no work is pending."""

    def fetch(self, raw: Raw) -> Arrays:
        """Return the outputs as arrays; every call made new tensors, so they are the caller's."""
        if isinstance(raw, self._torch.Tensor):
            return {self._output: raw.numpy() if self._as_is else self._widen_floats(raw)}
        return {name: self._widen_floats(tensor) for name, tensor in zip(self._outputs, raw, strict=True)}

    def profile(self, call: Callable[[], object], calls: int) -> list[Event]:
        """Return what torch's own profiler sees of some calls."""
        return profile_calls(call, calls, self._device)

    def close(self) -> None:
        """Drop what holds the weights."""
        leave_inference_mode()
        self.__dict__.pop("_run", None)
        self.__dict__.pop("_account", None)

    def _widen_floats(self, tensor: torch.Tensor) -> Array:
        wide = tensor.float() if tensor.dtype in (self._torch.float16, self._torch.bfloat16) else tensor
        array: Array = wide.numpy()
        return array

    def _convert_floats(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._dtype) if tensor.is_floating_point() else tensor


class TorchGpuSession(TorchSession):
    """A callable on the GPU; see `TorchSession`."""

    def __init__(self, run: Callable[..., Raw], arm: Arm, exported: ExportedModel, account: Account) -> None:
        super().__init__(run, arm, exported, account)
        self._cuda = OnCuda(arm, self._dtype)
        self._run = self._cuda.on_stream(run)
        self.gpu = self._cuda.side(self.execute)
        self.synchronize = self._cuda.synchronize  # type: ignore[method-assign] # a method of ours would be timed too

    def stage(self, inputs: Arrays, slot: int) -> list[torch.Tensor]:
        """Return the slot's tensors on the device, in the model's input order, floats in the arm's dtype."""
        if not self._is_held():
            enter_inference_mode(self._torch)
        check_inputs(self._inputs, inputs)
        return self._cuda.to_device([self._torch.from_numpy(inputs[spec.name]) for spec in self._inputs], slot)

    def fetch(self, raw: Raw) -> Arrays:
        """Return copies of the outputs on the host: a CUDA graph's output is memory that the next call writes over."""
        results = [raw] if isinstance(raw, self._torch.Tensor) else raw
        return dict(zip(self._outputs, self._cuda.to_host(results), strict=True))

    def close(self) -> None:
        """Drop what holds device memory."""
        super().close()
        self.gpu = None
        for name in ("_cuda", "synchronize"):
            self.__dict__.pop(name, None)


class OnCuda:
    """Hold an arm's memory on both sides of the bus and its stream, and read the device's own figures.

    Args:
        arm: whose option `copies` is read, and how many sessions work at once.
        floats: the dtype of float inputs on the device.
    """

    def __init__(self, arm: Arm, floats: torch.dtype) -> None:
        import torch

        self._torch, self._floats = torch, floats
        self._narrow = (torch.float16, torch.bfloat16)
        self.copies = arm.options.get(COPIES.name, PINNED)
        self._pinned, self._shares = self.copies == PINNED, arm.instances > 1
        self._placed: dict[int, list[torch.Tensor]] = {}
        self._landings: dict[int, list[torch.Tensor]] = {}
        self._twins: dict[int, list[torch.Tensor]] = {}
        self._results: dict[int, torch.Tensor] = {}
        self._pending = False
        if self._shares:
            torch.cuda.synchronize()  # weights were put there on the default stream
        self._stream: Any = torch.cuda.Stream() if self._shares else torch.cuda.current_stream()  # type: ignore[no-untyped-call]

    def on_stream(self, run: Callable[..., Raw]) -> Callable[..., Raw]:
        """Return the same call on this session's stream, in whichever thread it is made."""
        if not self._shares:
            return run

        def run_there(*inputs: Any) -> Raw:
            self._use_own_stream()
            return run(*inputs)

        return run_there

    def to_device(self, host: Sequence[torch.Tensor], slot: int) -> list[torch.Tensor]:
        """Fill and return the slot's device tensors; the host tensors may change as soon as this returns."""
        self._use_own_stream()
        placed = self._placed.get(slot) or self._new_slot(host, slot)
        landings = self._landings[slot]
        if self._pinned:
            if self._pending:  # an earlier copy may still read the twins
                self.synchronize()
            for landing, twin, source in zip(landings, self._twins[slot], host, strict=True):
                twin.copy_(source)
                landing.copy_(twin, non_blocking=True)
            self._pending = True
        else:
            for landing, source in zip(landings, host, strict=True):
                landing.copy_(source)  # waits: from pageable memory, torch only returns when it has been read
        for target, landing in zip(placed, landings, strict=True):
            if target is not landing:
                target.copy_(landing)
        return placed

    def to_host(self, results: Sequence[torch.Tensor]) -> list[Array]:
        """Return copies of device tensors, reduced floats as float32; waits for what computes them."""
        self._use_own_stream()
        wide = [one.float() if one.dtype in self._narrow else one for one in results]
        if not self._pinned:
            return [one.cpu().numpy() for one in wide]
        twins = [self._pinned_result(index, one) for index, one in enumerate(wide)]
        for twin, one in zip(twins, wide, strict=True):
            twin.copy_(one, non_blocking=True)
        self.synchronize()
        return [twin.numpy().copy() for twin in twins]

    def synchronize(self) -> None:
        """Wait for this session's stream, and for no other's."""
        self._stream.synchronize()
        self._pending = False

    def side(self, execute: Callable[[Any], Any]) -> GpuSide:
        """Return the device's side of a session whose calls are made by `execute`."""
        return GpuSide(copies=self.copies, event_ns=partial(self.event_ns, execute), allocator=self.allocator)

    def event_ns(self, execute: Callable[[Any], Any], staged: Any, calls: int) -> list[float]:
        """Return nanoseconds of each call between two events on its stream; the device is idle before each."""
        kind: Any = self._torch.cuda.Event
        times = []
        self.synchronize()
        for _ in range(calls):
            begin, end = kind(enable_timing=True), kind(enable_timing=True)
            begin.record(self._stream)
            execute(staged)
            end.record(self._stream)
            self.synchronize()
            times.append(begin.elapsed_time(end) * 1e6)
        return times

    def allocator(self) -> tuple[int, int]:
        """Return the bytes that tensors hold now and at most held, by torch's allocator."""
        return self._torch.cuda.memory_allocated(), self._torch.cuda.max_memory_allocated()

    def _use_own_stream(self) -> None:
        if self._shares and _THREAD.stream is not self._stream:
            self._torch.cuda.set_stream(self._stream)
            _THREAD.stream = self._stream

    def _new_slot(self, host: Sequence[torch.Tensor], slot: int) -> list[torch.Tensor]:
        empty, floats = self._torch.empty, self._floats
        if self._pinned:
            self._twins[slot] = [empty(one.shape, dtype=one.dtype, pin_memory=True) for one in host]
        self._landings[slot] = landings = [empty(one.shape, dtype=one.dtype, device=DEVICE) for one in host]
        self._placed[slot] = [
            empty(one.shape, dtype=floats, device=DEVICE) if one.is_floating_point() and one.dtype != floats else one
            for one in landings
        ]
        return self._placed[slot]

    def _pinned_result(self, index: int, like: torch.Tensor) -> torch.Tensor:
        """Return page-locked memory for the output with this index; shapes are fixed, so it is made once."""
        if index not in self._results:
            with self._torch.inference_mode(False):  # written to outside of it, too
                self._results[index] = self._torch.empty(like.shape, dtype=like.dtype, pin_memory=True)
        return self._results[index]


class _OfThread(threading.local):
    """Keep what this module set in the calling thread: the inference mode it entered, the stream it chose."""

    mode: Any = None
    stream: Any = None


_THREAD = _OfThread()


def enter_inference_mode(torch: Any) -> None:
    """Enter the mode in this thread until `leave_inference_mode`; the thread must not be in it."""
    _THREAD.mode = torch.inference_mode()
    _THREAD.mode.__enter__()


def leave_inference_mode() -> None:
    """Leave the mode if `enter_inference_mode` entered it in this thread."""
    if _THREAD.mode is not None:
        _THREAD.mode.__exit__(None, None, None)
        _THREAD.mode = None


def read_account(session: Session, exported: ExportedModel, account: Account) -> Executed:
    """Run a session once: return the adapter's account, the device of a real output and torch's own thread count."""
    import torch

    staged = session.stage(exported.input_buffers()[0], 0)
    raw = session.execute(staged)
    session.synchronize()
    leave_inference_mode()
    # Tensors of inference mode can't be written outside it, as a model may that works in place.
    copies = [one.clone() if isinstance(one, torch.Tensor) else one for one in staged]
    return Executed(
        library="torch",
        version=str(torch.__version__),  # a type of torch's own: to unpickle it would import torch
        device=str((raw if isinstance(raw, torch.Tensor) else raw[0]).device),
        threads=torch.get_num_threads(),
        staged=next(
            (precision_of(str(one.dtype).removeprefix("torch.")) for one in copies if one.is_floating_point()), ""
        ),
        **account(copies),
    )


def profile_calls(call: Callable[[], object], calls: int, device: Device) -> list[Event]:
    """Return trace events of so many calls under torch's profiler, after one that its start slows."""
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
            event
            for event in json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
            if event.get("cat") in PROFILED
        ]


def configure(arm: Arm) -> None:
    """Set the process's threads and float32 flags to what the arm asks for, outside of inference mode."""
    import torch

    leave_inference_mode()
    if arm.threads:
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
    """Return torch's word for how float32 products are computed."""
    return "tf32" if arm.target.precision is Precision.TF32 else "ieee"


def _set_older_flags(*, rounds: bool) -> None:
    """Set the switches that `fp32_precision` replaces.

    `torch.compile` still reads them, and fails if they disagree with it (pytorch issue 166387). Torch warns of them.
    """
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.backends.cuda.matmul.allow_tf32 = rounds
        torch.backends.cudnn.allow_tf32 = rounds


def shipped_settings(built: Built) -> dict[str, Any]:
    """Return the settings that a shipped `load.py` makes: float32 policy, and float inputs' dtype (None: as it is)."""
    target = built.arm.target
    rest = RESTS.get((target.device, target.precision), Precision.FP32)
    dtype = None if target.precision is Precision.NATIVE else DTYPES.get(target.precision, DTYPES[rest])
    return {"fp32_precision": policy_of(built.arm), "floats": dtype}


def require_torch(device: Device) -> str:
    """Return torch's version, after checking that torch can use the device.

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


def dtype_of(arm: Arm) -> torch.dtype:
    """Return the dtype of the arm's float weights and inputs; what a quantizer makes lives inside the model."""
    import torch

    target = arm.target
    usual = Precision.BF16 if target.device is Device.CUDA else Precision.FP32
    rest = RESTS.get((target.device, target.precision), usual)
    dtype: torch.dtype = getattr(torch, DTYPES.get(target.precision, DTYPES[rest]))
    return dtype


def module_of(exported: ExportedModel, arm: Arm) -> torch.nn.Module:
    """Return the module with its weights, for inference, on the arm's device, in its dtype and its order of axes.

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
    """Return one input set as the arm's sessions stage it, for a compiler to look at."""
    tensors, floats = tensors_of(exported, exported.input_buffers()[0]), dtype_of(arm)
    if arm.target.precision is Precision.NATIVE:
        return tensors
    return tuple(one.to(arm.target.device, floats if one.is_floating_point() else one.dtype) for one in tensors)


def tensors_of(exported: ExportedModel, inputs: Arrays) -> tuple[torch.Tensor, ...]:
    """Return one input set as it is, in the model's order."""
    import torch

    return tuple(torch.from_numpy(inputs[spec.name]) for spec in exported.inputs)


def held_bytes(module: torch.nn.Module) -> int:
    """Return the bytes of all tensors that a module holds: weights, buffers, and constants that are neither."""
    held = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    for part in module.modules():
        held |= {id(tensor): tensor for value in vars(part).values() for tensor in _tensors_in(value)}
    return sum(tensor.nbytes for tensor in held.values())


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in an attribute: itself, or in lists and dicts."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from (tensor for one in value.values() for tensor in _tensors_in(one))
    elif isinstance(value, list | tuple):
        yield from (tensor for one in value for tensor in _tensors_in(one))
