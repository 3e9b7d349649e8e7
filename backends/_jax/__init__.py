"""JAX: one adapter, `jax-jit`."""

from __future__ import annotations

from shootout.core.adapter import Entry

FACTS = Entry(
    path="shootout.backends._jax.backend:JaxJitAdapter",
    extra="jax",
    needs="jax; torchax for models without array code",
    installs={
        "": ("jax", "safetensors"),
        "torchax": ("jax", "torchax", "torch", "safetensors"),
        "cuda": ("jax-cuda13-plugin[with-cuda]|jax-cuda12-plugin[with-cuda]",),
    },
    makers=("torch", "torchax"),
    movable=True,
    loads={"": ("jax", "scipy", "safetensors"), "torchax": ("torch", "torchax")},
    ships="shootout.backends._jax.backend:ship",
    ready_s=1.0,
    copies=0.0,
)
