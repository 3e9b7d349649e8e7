"""Define a loaded model, as an adapter writes it and a worker drives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from shootout.core.contract import Arrays, Executed, TensorSpec

Event = Mapping[str, Any]
"""What a profiler tells, as Chrome and Perfetto read it: `name`, `ph` ("X": something that began at `ts` and lasted
`dur`, both in microseconds), `pid` and `tid` (its process and thread).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSide:
    """Hold what only a device can tell of a session on it, and do for it; None if the library can't. Never timed.

    Attributes:
        copies: `pinned` or `pageable`: the host memory that `stage` and `fetch` copy from and to; `staged` where the
            library has page-locked memory of its own; "" where they don't copy.
        event_ns: (staged, calls) → nanoseconds of so many calls of `execute`, each by two events on its stream.
        allocator: bytes of device memory that the library's allocator holds now, and the most it held.
    """

    copies: str = ""
    event_ns: Callable[[Any, int], list[float]] | None = None
    allocator: Callable[[], tuple[int, int]] | None = None


class Session(Protocol):
    """Run a loaded model. Not thread-safe; lives in one worker process."""

    @property
    def gpu(self) -> GpuSide | None:
        """Return the device's side of a session on a GPU; None on a CPU."""

    @property
    def executed(self) -> Executed:
        """Return the runtime's own account. It may run the model once, so it is never read while timing."""

    def stage(self, inputs: Arrays, slot: int) -> Any:
        """Copy host → device. One handle (binding, addresses, CUDA graph) per `slot`, reused when it is staged again.

        A session may read the caller's arrays themselves, on a CPU in each `execute` of this handle. So they stay alive
        and as they are until the slot is staged again, and until the `synchronize` or `fetch` after its last `execute`.

        Raises:
            ValueError: an input is missing or has another shape or dtype than the model's; names both.
        """

    def execute(self, staged: Any) -> Any:
        """Run the model on a staged handle; may return before the device is done."""

    def synchronize(self) -> None:
        """Wait until the device is done (nothing to do on CPU)."""

    def fetch(self, raw: Any) -> Arrays:
        """Copy device → host, float32 for float outputs. Only what this returned survives the next `execute`.

        At most once for each `execute`: it may hand out the memory that was written, and take other for the next one.
        """

    def profile(self, call: Callable[[], object], calls: int) -> Sequence[Event]:
        """Return what the runtime's own profiler sees of some calls; empty without a profiler.

        Args:
            call: makes one call, from staging to fetching; not used by a profiler that needs a session of its own.
            calls: how many to profile.
        """

    def close(self) -> None:
        """Free everything. Calling it twice is harmless."""


TARGET, RATE, LOSS = "loss.target", "sgd.rate", "loss"
"""The own inputs of a training step and its output; no Python argument, so no input of a model, can be called so."""
MOMENTUM = 0.9
"""Of its optimizer."""


class TrainingSession(Session, Protocol):
    """Run a loaded training step: `execute` also changes the weights and the momenta; its output is the loss."""

    def reset(self) -> None:
        """Go back to the weights as they were loaded, and momenta of zero."""

    def state(self) -> tuple[Arrays, Arrays]:
        """Return weights and momenta on the host, by the names in `ExportedModel.trained`; no later `execute` changes
        them.
        """


def check_inputs(specs: Sequence[TensorSpec], inputs: Arrays) -> None:
    """Refuse inputs that are not the model's.

    Raises:
        ValueError: an input is missing, unknown, or has another shape or dtype; names the expected and the received.
    """
    for spec in specs:
        array = inputs.get(spec.name)
        if array is None or not spec.matches(array):  # the hot path of every call: no more than this
            got = f"{array.dtype}{list(array.shape)}" if array is not None else f"only {sorted(inputs)}"
            raise ValueError(f"input {spec.name!r}: expected {spec.dtype}{list(spec.shape)}, got {got}")
    if len(inputs) != len(specs):
        raise ValueError(f"inputs: expected {sorted(spec.name for spec in specs)}, got {sorted(inputs)}")
