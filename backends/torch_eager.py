"""PyTorch as most people run it: the module, call by call, in inference mode.

One policy for float32 products on every device: IEEE unless the target says tf32. Torch's own default differs between
products and convolutions on CUDA, and on some CPUs it may be told to round them to bfloat16.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from shootout.backends.common import check_inputs, check_options, require_device, trial
from shootout.backends.torch_trace import count_operations, float32_flags
from shootout.contract import Arm, Arrays, Artifact, Availability, Built, Capabilities, Device, Executed, Precision
from shootout.errors import SkippedArm

if TYPE_CHECKING:
    import torch

    from shootout.bundle import ModelBundle

DTYPES = {Precision.FP32: "float32", Precision.TF32: "float32", Precision.BF16: "bfloat16", Precision.FP16: "float16"}
CPU_PRECISIONS = (Precision.FP32, Precision.BF16, Precision.FP16)


class TorchEagerAdapter:
    """Eager PyTorch on CPU and CUDA."""

    name = "torch-eager"
    capabilities = Capabilities(
        consumes=(Artifact.MODULE,),
        targets=frozenset(
            [(Device.CPU, precision) for precision in CPU_PRECISIONS]
            + [(Device.CUDA, precision) for precision in DTYPES]
        ),
    )

    def probe(self, device: Device) -> Availability:
        """Run one small linear layer."""
        return trial("torch", lambda: _try(device))

    def build(self, bundle: ModelBundle, arm: Arm, folder: Path) -> Built:
        """Nothing to build: eager mode has no artifact of its own.

        Raises:
            ValueError: the arm has options; eager mode takes none.
        """
        check_options(arm.options, ())
        return Built(arm=arm, bundle=bundle, folder=folder)

    def load(self, built: Built) -> TorchSession:
        """The module with its weights, on the arm's device and in its dtype; sets the process's threads and flags."""
        import torch

        from shootout import models

        arm, bundle = built.arm, built.bundle
        _configure(arm)
        module = models.get(bundle.model).module(bundle.parameters)
        module.load_state_dict({name: torch.from_numpy(array) for name, array in bundle.weights().items()})
        dtype = getattr(torch, DTYPES[arm.target.precision])
        return TorchSession(module.eval().to(arm.target.device, dtype), bundle, arm.target.device, dtype)


class TorchSession:
    """A module on one device. CPU inputs of its dtype are used in place; the others are converted while staging."""

    def __init__(self, module: torch.nn.Module, bundle: ModelBundle, device: Device, dtype: torch.dtype) -> None:
        import torch

        self._torch, self._module, self._bundle = torch, module, bundle
        self._device, self._dtype, self._output = device, dtype, bundle.outputs[0].name

    @cached_property
    def executed(self) -> Executed:
        """The ATen operations of one run by the dtype of their operands, and torch's own flags."""
        staged = self.stage(self._bundle.input_buffers()[0], 0)
        tensors = list(self._module.state_dict().values())
        return Executed(
            library="torch",
            version=self._torch.__version__,
            device=str(self.execute(staged).device),
            threads=self._torch.get_num_threads(),
            compute_nodes_by_precision=count_operations(self._module, staged, self._device),
            artifact_bytes=sum(tensor.nbytes for tensor in tensors),
        )

    def stage(self, inputs: Arrays, slot: int) -> list[torch.Tensor]:  # noqa: ARG002 - each call has its own tensors
        """Tensors on the device, in the model's input order; floats in the module's dtype."""
        check_inputs(self._bundle.inputs, inputs)
        return [self._to_device(self._torch.from_numpy(inputs[spec.name])) for spec in self._bundle.inputs]

    def execute(self, staged: list[torch.Tensor]) -> torch.Tensor:
        """Call the module; on CUDA this only queues its kernels."""
        with self._torch.inference_mode():
            result: torch.Tensor = self._module(*staged)
            return result

    def synchronize(self) -> None:
        """Wait for the device's queue."""
        if self._device is Device.CUDA:
            self._torch.cuda.synchronize()

    def fetch(self, raw: torch.Tensor) -> Arrays:
        """The output on the host; every call made a new tensor, so it is the caller's."""
        wide = raw.float() if raw.dtype in (self._torch.float16, self._torch.bfloat16) else raw
        return {self._output: wide.cpu().numpy()}

    def close(self) -> None:
        """Drop the module and its memory."""
        self.__dict__.pop("_module", None)

    def _to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._device, self._dtype) if tensor.is_floating_point() else tensor.to(self._device)


def _configure(arm: Arm) -> None:
    import torch

    torch.set_num_threads(arm.threads)
    if torch.get_num_interop_threads() != 1:
        torch.set_num_interop_threads(1)
    policy = "tf32" if arm.target.precision is Precision.TF32 else "ieee"
    for flag in float32_flags(arm.target.device).values():
        flag.fp32_precision = policy


def _try(device: Device) -> str:
    require_device(device, Device)
    import torch

    if device is Device.CUDA and not torch.cuda.is_available():
        kind = f"built for CUDA {torch.version.cuda}, which this driver can't run" if torch.version.cuda else "CPU-only"
        raise SkippedArm(f"torch {torch.__version__} is {kind}", "pip install --force-reinstall torch (a CUDA build)")
    with torch.inference_mode():
        layer = torch.nn.Linear(4, 4).to(device)
        layer(torch.ones(1, 4, device=str(device))).cpu()
    return torch.__version__
