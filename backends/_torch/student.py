"""A module that learns on PyTorch by the loop that people write (`zero_grad`, loss, `backward`, `step`), or compiled.

Compiled as PyTorch's own documentation does it: forward and loss as one graph, whose backward AOTAutograd compiles
along with it, and `optimizer.step` as another. `backward()` itself is called between them, as in a user's loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shootout.backends._torch.session import float32_module
from shootout.bundle.training import MOMENTUM, RATE
from shootout.contract import Arm, Arrays

if TYPE_CHECKING:
    import torch

    from shootout.bundle.bundle import ModelBundle

GRAPHS = 2
"""A compiled step has so many: forward with its loss (and its backward), and the optimiser's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Student:
    """A module that learns.

    Attributes:
        weights: what is trained, by name in the bundle's order.
        optimizer: holds a momentum for each weight from the start, so that no step is special.
        step: (the model's inputs, the target, the learning rate as a number) → the loss.
    """

    module: torch.nn.Module
    weights: dict[str, torch.nn.Parameter]
    optimizer: torch.optim.SGD
    step: Callable[..., torch.Tensor]

    @property
    def momenta(self) -> dict[str, torch.Tensor]:
        """The momentum of each weight."""
        return {name: self.optimizer.state[weight]["momentum_buffer"] for name, weight in self.weights.items()}


def eager(bundle: ModelBundle, arm: Arm) -> Student:
    """The module and its step, call by call."""
    module, weights = _module(bundle, arm)
    optimizer = _optimizer(weights, 0.0)

    def step(*inputs: Any) -> torch.Tensor:
        *given, target, rate = inputs
        optimizer.zero_grad()
        loss = _loss(module, given, target)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        return loss.detach()

    return Student(module=module, weights=weights, optimizer=optimizer, step=step)


def compiled(bundle: ModelBundle, arm: Arm) -> Student:
    """The module and its compiled step, called twice: all of it is then compiled, or taken from Inductor's cache.

    The learning rate is a tensor, as PyTorch's documentation asks: a number would be part of the code.
    """
    import torch

    module, weights = _module(bundle, arm)
    held = torch.zeros((), device=str(arm.target.device))
    optimizer = _optimizer(weights, held)

    def loss_of(given: list[torch.Tensor], target: torch.Tensor) -> torch.Tensor:
        return _loss(module, given, target)

    torch._dynamo.config.allow_rnn = True  # RNN, GRU and LSTM are traced step by step; without it they are refused
    forward: Any = torch.compile(loss_of, fullgraph=True, dynamic=False)
    update: Any = torch.compile(optimizer.step, dynamic=False)

    def step(*inputs: Any) -> torch.Tensor:
        *given, target, rate = inputs
        optimizer.zero_grad()
        loss: torch.Tensor = forward(given, target)
        loss.backward()  # type: ignore[no-untyped-call]
        held.fill_(rate)
        update()
        return loss.detach()

    student = Student(module=module, weights=weights, optimizer=optimizer, step=step)
    inputs = bundle.input_buffers()[0]
    placed = [tensor.to(str(arm.target.device)) for tensor in on_host(tensors_in(bundle), inputs)]
    for _ in range(2):
        step(*placed, rate_in(inputs))
    return student


def fallbacks() -> tuple[str, ...]:
    """Graph breaks, and graphs beyond a step's own two, since Dynamo last began anew; one line each."""
    from torch._dynamo.utils import counters

    graphs = counters["stats"]["unique_graphs"]
    again = (f"Dynamo compiled {graphs} graphs for one step",) if graphs > GRAPHS else ()
    return (*(f"graph break: {reason.splitlines()[0]}" for reason in counters["graph_break"]), *again)


def tensors_in(bundle: ModelBundle) -> list[str]:
    """The names of all inputs that are staged as tensors: the model's own and the target."""
    return [spec.name for spec in bundle.inputs if spec.name != RATE]


def on_host(names: list[str], inputs: Arrays) -> list[torch.Tensor]:
    """These inputs as tensors."""
    import torch

    return [torch.from_numpy(inputs[name]) for name in names]


def rate_in(inputs: Arrays) -> float:
    """The learning rate as a number, as schedulers give it."""
    return float(inputs[RATE])


def _module(bundle: ModelBundle, arm: Arm) -> tuple[torch.nn.Module, dict[str, torch.nn.Parameter]]:
    import torch

    module = float32_module(bundle).to(str(arm.target.device)).requires_grad_(False)
    for layer in module.modules():
        if isinstance(layer, torch.nn.RNNBase) and not layer.dropout:
            layer.train()  # the same function, but oneDNN and cuDNN keep what its backward needs
    named = dict(module.named_parameters())
    return module, {name: named[name].requires_grad_(True) for name in bundle.trained}  # type: ignore[misc]


def _optimizer(weights: dict[str, torch.nn.Parameter], rate: Any) -> torch.optim.SGD:
    import torch

    optimizer = torch.optim.SGD(weights.values(), lr=rate, momentum=MOMENTUM)
    for weight in weights.values():
        optimizer.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
    return optimizer


def _loss(module: torch.nn.Module, given: list[torch.Tensor], target: torch.Tensor) -> torch.Tensor:
    import torch

    raw = module(*given)
    return torch.nn.functional.mse_loss(raw[0] if isinstance(raw, tuple) else raw, target)
