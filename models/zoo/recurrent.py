"""Build one recurrent layer (RNN, GRU or LSTM): a chain of small products that no batch of steps can put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shootout.core.contract import Array, Arrays, TensorSpec
from shootout.models.base import SEED, Call, Choice, IntRange, Model, Parameters, seeded

if TYPE_CHECKING:
    import torch
    from torch import nn

State = tuple[Array, ...]
"""The hidden state, and what else a cell hands on to the next step."""
Cell = Callable[[Any, Array, Array, State], State]
"""Takes (array library, W_ih x + b_ih, W_hh h + b_hh, the state) and returns the next state."""
GATES = {"rnn": 1, "gru": 3, "lstm": 4}


def inputs(parameters: Parameters, batch: int) -> tuple[TensorSpec, ...]:
    """Return the one input `x`, (batch, steps, inputs)."""
    shape = (batch, int(parameters["steps"]), int(parameters["inputs"]))
    return (TensorSpec(name="x", shape=shape, dtype="float32"),)


def parameter_count(parameters: Parameters) -> int:
    """Count for each gate a matrix for the input, one for the hidden state, and a bias for each of them."""
    wide, hidden = int(parameters["inputs"]), int(parameters["hidden"])
    return GATES[str(parameters["kind"])] * hidden * (wide + hidden + 2)


def forward(xp: Any, weights: Arrays, parameters: Parameters) -> Call:
    """Compute the last hidden state, (batch, hidden), by torch's documented equations of RNN, GRU and LSTM."""
    cell, hidden, steps = CELLS[str(parameters["kind"])], int(parameters["hidden"]), int(parameters["steps"])
    into, again = (weights[f"rnn.weight_{kind}_l0"].T for kind in ("ih", "hh"))
    into_bias, again_bias = (weights[f"rnn.bias_{kind}_l0"] for kind in ("ih", "hh"))

    def run(x: Arrays) -> dict[str, Array]:
        inward = x["x"] @ into + into_bias
        start = xp.zeros_like(inward[:, 0, :hidden])
        state: State = (start, start)
        for step in range(steps):
            state = cell(xp, inward[:, step], state[0] @ again + again_bias, state)
        return {"y": state[0]}

    return run


def module(parameters: Parameters) -> nn.Module:
    """Build the torch module; its weights are torch's own init."""
    import torch
    from torch import nn

    layer = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[str(parameters["kind"])]
    wide, hidden = int(parameters["inputs"]), int(parameters["hidden"])

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = layer(wide, hidden, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.rnn(x)[0][:, -1])

    return Recurrent().eval()


def trained(parameters: Parameters) -> nn.Module:
    """Return the module with torch's own init, seeded."""
    with seeded(parameters):
        return module(parameters).requires_grad_(False)


def _rnn_cell(xp: Any, inward: Array, around: Array, state: State) -> State:  # noqa: ARG001 - a `Cell`
    return (xp.tanh(inward + around),)


def _gru_cell(xp: Any, inward: Array, around: Array, state: State) -> State:
    (reset_in, update_in, new_in), (reset, update, new) = (xp.split(part, 3, axis=1) for part in (inward, around))
    update = _sigmoid(xp, update_in + update)
    new = xp.tanh(new_in + _sigmoid(xp, reset_in + reset) * new)
    return ((1 - update) * new + update * state[0],)


def _lstm_cell(xp: Any, inward: Array, around: Array, state: State) -> State:
    enter, forget, new, leave = xp.split(inward + around, 4, axis=1)
    kept = _sigmoid(xp, forget) * state[1] + _sigmoid(xp, enter) * xp.tanh(new)
    return _sigmoid(xp, leave) * xp.tanh(kept), kept


def _sigmoid(xp: Any, x: Array) -> Array:
    """Go through tanh, so that exp can't overflow."""
    return 0.5 + 0.5 * xp.tanh(0.5 * x)  # type: ignore[no-any-return]


CELLS: dict[str, Cell] = {"rnn": _rnn_cell, "gru": _gru_cell, "lstm": _lstm_cell}

RECURRENT = Model(
    name="recurrent",
    description="one recurrent layer (rnn, gru or lstm) of 100 units over 16 steps; gives the last hidden state",
    parameters={
        "kind": Choice(default="lstm", choices=tuple(GATES)),
        "inputs": IntRange(default=64, low=1, high=65_536),
        "hidden": IntRange(default=100, low=1, high=65_536),
        "steps": IntRange(default=16, low=1, high=4_096),
        "seed": SEED,
    },
    parameter_count=parameter_count,
    inputs=inputs,
    forward=forward,
    module=module,
    trained=trained,
)
