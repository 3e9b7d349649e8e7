"""What a JAX session has on a GPU beside the rest: its copies, its allocator, and a way to empty the L2 cache.

There are no events: JAX shows no stream of XLA's. Its copies go through pageable memory: a NumPy array is in no other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from shootout.backends.cuda_memory import EVICTING, PAGEABLE
from shootout.host import cuda_driver

LARGEST_L2_BYTES = 128 * 2**20
"""Taken where the driver doesn't tell: no GPU has more (a B200 has 126 MB)."""


class OnGpu:
    """Makes a `GpuSession` of a JAX session.

    Attributes:
        jax_device: what the session runs on.
    """

    copies = PAGEABLE
    jax_device: Any

    def allocator(self) -> tuple[int, int]:
        """Bytes in use now and at most, by JAX's own account: arrays, and what programs need while they run.

        Raises:
            RuntimeError: JAX keeps no account on this device (`XLA_PYTHON_CLIENT_ALLOCATOR=platform`, say).
        """
        told = self.jax_device.memory_stats()
        if not told:
            raise RuntimeError(f"JAX keeps no account of memory on {self.jax_device}")
        return int(told["bytes_in_use"]), int(told["peak_bytes_in_use"])

    def evict(self) -> None:
        """Write an array of EVICTING times the L2 cache's size, and drop it; done on return."""
        self._blank().block_until_ready()

    @cached_property
    def _blank(self) -> Callable[[], Any]:
        import jax
        import jax.numpy as jnp

        size = EVICTING * (cuda_driver.l2_bytes() or LARGEST_L2_BYTES)
        with jax.default_device(self.jax_device):
            made: Callable[[], Any] = jax.jit(lambda: jnp.zeros(size, jnp.uint8)).lower().compile()
        return made
